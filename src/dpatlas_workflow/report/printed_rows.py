"""What a paper prints, numbers of tables and what its text says of curves, beside ours."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter

from dpatlas_workflow.evidence.claim_file import STATISTICAL
from dpatlas_workflow.evidence.printed import PrintedComparison
from dpatlas_workflow.evidence.verdicts import OURS, origin_of

NUMBERS = (
    *("printed row", "printed", "here, 95 % interval", "inside", "ours less printed, both spreads"),
    *("runs", "data and network"),
)
ORDERS = (
    *("claim", "as the paper has it", "compared", "claimed"),
    *("here", "interval", "level", "runs", "inside"),
)

OF_NUMBERS = (
    "Inside: whether the interval of our runs holds the printed number. The last interval is that "
    "of the difference at 95 % (Welch), with the printed standard deviation where there is one: it "
    "may hold 0 where ours alone does not hold the print. Both are empty where ours is of other "
    "data."
)
# Comparisons of a claim that are shown; comparisons.csv has more.
NEAREST = 4


def printed_lines(
    pairs: Sequence[PrintedComparison],
    claims: Iterable[Mapping[str, str]],
    compared: Iterable[Mapping[str, str]],
) -> list[str]:
    """Two tables in Markdown, each left out where it has no row.

    claims, compared: rows of claims.csv and of comparisons.csv, where the one that decides comes
    first; of each statistical claim of the paper the first few that have an interval count. Claims
    of our own are not what its text says.
    """
    statements = {
        row["claim"]: row["statement"]
        for row in claims
        if row["kind"] == STATISTICAL and origin_of(row["place"]) != OURS
    }
    of_runs = [row for row in compared if row["claim"] in statements and row["low"]]
    nearest = [
        row for _, rows in groupby(of_runs, itemgetter("claim")) for row in islice(rows, NEAREST)
    ]
    numbers = [_number(pair) for pair in pairs]
    orders = [_order(statements[row["claim"]], row) for row in nearest]
    lines = _table("Printed numbers", NUMBERS, numbers, OF_NUMBERS)
    return lines + _table("What the text says of curves", ORDERS, orders)


def cell(text: str) -> str:
    """Text inside a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def _table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> list[str]:
    if not rows:
        return []
    lines = [f"| {' | '.join(map(cell, row))} |" for row in (heads, ["---"] * len(heads), *rows)]
    return [f"## {title}", "", *([note, ""] if note else []), *lines, ""]


def _number(pair: PrintedComparison) -> list[str]:
    low, high = pair.interval
    here = f"{pair.ours.value:.4g} ({low:.4g} to {high:.4g})"
    inside, both = "yes" if low <= pair.printed <= high else "no", "no spread is printed"
    if pair.difference is None or pair.difference_interval is None:
        inside, both = "", ""
    elif pair.printed_error:
        least, most = pair.difference_interval
        both = f"{pair.difference:.3g} ({least:.3g} to {most:.3g})"
    return [pair.what, f"{pair.printed:g}", here, inside, both, f"{pair.ours.runs}", pair.setting]


def _order(statement: str, row: Mapping[str, str]) -> list[str]:
    words = (f"{word} {row[word]}" for word in ("above", "below") if row[word])
    ends = (f"{float(row[end]):.4g}" for end in ("low", "high") if row[end])
    return [
        row["claim"],
        statement,
        row["comparison"],
        " and ".join(words),
        f"{float(row['observed']):.4g}",
        " to ".join(ends),
        _percent(float(row["level"])),
        row["runs"],
        _inside(row),
    ]


def _percent(level: float) -> str:
    """With two digits of what is missing to 100 %, and two decimals at least."""
    missing = 1 - level
    digits = max(2, math.ceil(-math.log10(100 * missing)) + 1) if missing else 2
    return f"{100 * level:.{digits}f}%"


def _inside(row: Mapping[str, str]) -> str:
    """Whether the interval lies on the claimed side, on the other, or on both."""
    low, high = float(row["low"]), float(row["high"] or math.inf)
    above, below = float(row["above"] or -math.inf), float(row["below"] or math.inf)
    if above < low and high < below:
        return "as claimed"
    return "opposite" if high < above or low > below else "both sides"
