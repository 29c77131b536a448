"""How often verdicts are wrong, and how often they fall: the procedure of `looks` on drawn runs.

`python tools/verdict_rates.py` writes the table in docs/verdicts.md. A simulated paper has
`ENTRIES` statistical entries that are judged as those of claims.yaml are. Its runs follow one law,
of standard deviation 1 (but for runs that collapse), and every comparison asks for more than 0 by a
margin.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpatlas.base.files import write_atomic
from dpatlas.errors import ArgumentParser, InputError, run_command
from dpatlas_workflow.config.load import project_root
from dpatlas_workflow.evidence.claims import FAMILY_ERROR
from dpatlas_workflow.evidence.comparisons import Evidence
from dpatlas_workflow.evidence.looks import LOOKS, decide, with_margin
from dpatlas_workflow.statistics import FAILS, HOLDS, OPEN, Comparison, mean_estimate

# (runs, quantities), of mean 0.
Draw = Callable[[np.random.Generator, int, int], np.ndarray]
# Entries of a simulated paper by kind: of one comparison, of several that all have to hold, and of
# alternatives of which one would be enough.
KINDS = ("one",) * 6 + ("all of three",) * 4 + ("one of two",) * 2
ENTRIES = len(KINDS)
# In standard deviations of a run.
MARGIN = 1.0
# In margins: the largest that must not be reproduced and the smallest that must not be refuted.
EFFECTS = (0, 1)
# Comparisons that are not in question lie so many margins from their limit.
FAR = 10
# Looks by which the table shows how many verdicts are right.
SHOWN = (12, 48)
# Share of runs that collapse, in the laws of which some do.
COLLAPSED = 0.05
SEED = 22
DOCUMENT, BEGIN, END = "docs/verdicts.md", "<!-- simulation -->", "<!-- end of simulation -->"


def _shared(generator: np.random.Generator, runs: int, quantities: int) -> np.ndarray:
    """All quantities of a run have correlation .9, as where entries read the same records."""
    common = generator.normal(size=(runs, 1))
    return np.sqrt(0.9) * common + np.sqrt(0.1) * generator.normal(size=(runs, quantities))


def _arms(correlation: float) -> Draw:
    """Differences of two arms of standard deviation 1 each, with this correlation in a run."""

    def draw(generator: np.random.Generator, runs: int, quantities: int) -> np.ndarray:
        return np.sqrt(2 * (1 - correlation)) * generator.normal(size=(runs, quantities))

    return draw


def _two_valued(share: float) -> Draw:
    def draw(generator: np.random.Generator, runs: int, quantities: int) -> np.ndarray:
        ones = generator.random((runs, quantities)) < share
        return (ones - share) / np.sqrt(share * (1 - share))

    return draw


def _collapsing(distance: float) -> Draw:
    """Normal runs, of which `COLLAPSED` lie `distance` of their standard deviations away."""

    def draw(generator: np.random.Generator, runs: int, quantities: int) -> np.ndarray:
        collapsed = generator.random((runs, quantities)) < COLLAPSED
        return generator.normal(size=(runs, quantities)) + distance * (collapsed - COLLAPSED)

    return draw


LAWS: Mapping[str, Draw] = {
    "normal": lambda generator, *shape: generator.normal(size=shape),
    "normal, entries correlated by .9": _shared,
    "independent normal arms": _arms(0.0),
    "normal arms correlated by .9": _arms(0.9),
    "Student t, 3 degrees": lambda generator, *shape: (
        generator.standard_t(3, size=shape) / np.sqrt(3)
    ),
    "uniform": lambda generator, *shape: generator.uniform(-np.sqrt(3), np.sqrt(3), shape),
    "three values, equally often": lambda generator, *shape: (
        generator.integers(-1, 2, shape) / np.sqrt(2 / 3)
    ),
    "two values, equally often": _two_valued(0.5),
    "two values, a tenth high": _two_valued(0.1),
    "two values, a tenth low": _two_valued(0.9),
    "exponential, tail upwards": lambda generator, *shape: generator.exponential(size=shape) - 1,
    "exponential, tail downwards": lambda generator, *shape: 1 - generator.exponential(size=shape),
    "normal, one run in twenty 10 higher": _collapsing(10.0),
    "normal, one run in twenty 10 lower": _collapsing(-10.0),
}
# Laws for which the promised error is kept, as the simulation shows.
KEEPING = tuple(LAWS)[:7]


@dataclass(frozen=True)
class Rates:
    """What came out for one law and effect, as shares.

    reproduced, not_reproduced: of entries, by each look. wrong_papers: of papers with a wrong
    verdict on any entry by the last look; wrong_by_first: by the first one.
    """

    law: str
    effect: int
    papers: int
    reproduced: tuple[float, ...]
    not_reproduced: tuple[float, ...]
    wrong_papers: float
    wrong_by_first: float

    @property
    def wrong(self) -> tuple[float, ...]:
        """Wrong entries by each look."""
        return self.reproduced if self.effect <= 0 else self.not_reproduced

    @property
    def right(self) -> tuple[float, ...]:
        """Entries with the other verdict by each look."""
        return self.not_reproduced if self.effect <= 0 else self.reproduced


def simulate(law: str, effect: int, papers: int, margin: float = MARGIN) -> Rates:
    """Judge so many papers whose effects are all `effect` margins, from -1 on.

    Wrong is "reproduced" for an effect of at most 0 and "not reproduced" for one of at least the
    margin; the other comparisons of an entry are as unfavourable as they can be.
    """
    effects = list(itertools.chain(*(_effects(kind, effect) for kind in KINDS)))
    place = list(LAWS).index(law)
    generator = np.random.default_rng([SEED, place, effect + 1])
    wrong = HOLDS if effect <= 0 else FAILS
    counts = {HOLDS: np.zeros(len(LOOKS)), FAILS: np.zeros(len(LOOKS))}
    wrong_papers, wrong_by_first = 0, 0
    for _ in range(papers):
        draws = LAWS[law](generator, LOOKS[-1], len(effects)) + margin * np.array(effects)
        found = [look for answer, look in _judged(draws, margin, counts) if answer == wrong]
        wrong_papers += bool(found)
        wrong_by_first += LOOKS[0] in found
    by_look = {answer: np.cumsum(at) / papers / ENTRIES for answer, at in counts.items()}
    return Rates(
        law,
        effect,
        papers,
        tuple(map(float, by_look[HOLDS])),
        tuple(map(float, by_look[FAILS])),
        wrong_papers / papers,
        wrong_by_first / papers,
    )


def table(rates: Sequence[Rates]) -> str:
    """The rates in Markdown, in percent: a row for each law."""
    right = f"right by {', '.join(map(str, SHOWN))}"
    lines = [
        f"| law of a run | at 0, wrong | {right} | at m, wrong | {right} |",
        "|---|---|---|---|---|",
    ]
    for law, of_law in itertools.groupby(rates, lambda each: each.law):
        cells = [law]
        for each in of_law:
            cells.append(_shares(each.wrong[-1], each.wrong_papers, each.wrong_by_first))
            cells.append(_shares(*(each.right[LOOKS.index(look)] for look in SHOWN)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def written(text: str, rates: Sequence[Rates]) -> str:
    """The document with this table between its marks; InputError if it has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(DOCUMENT, "no place for the table", f"the lines {BEGIN} and {END}")
    papers = " or ".join(sorted({f"{each.papers:,}" for each in rates}))
    caption = (
        f"In percent of {papers} papers of {ENTRIES} entries; m is {MARGIN:g} standard deviation "
        f"of a run or arm. Wrong: of\nentries, of papers, of papers by {LOOKS[0]} runs. Right: of "
        "entries."
    )
    return f"{before}{begin}\n{caption}\n\n{table(rates)}\n{end}{after}"


def main(arguments: Sequence[str]) -> int:
    """Simulate every law and effect, and write the table."""
    parser = ArgumentParser(prog="python tools/verdict_rates.py", description=__doc__)
    parser.add_argument("--papers", type=int, default=2000, help="simulated papers for each row")
    parser.add_argument("--document", type=Path, default=project_root() / DOCUMENT)
    options = parser.parse_args(arguments)
    rates = []
    for law, effect in itertools.product(LAWS, EFFECTS):
        rates.append(simulate(law, effect, options.papers))
        print(rates[-1], flush=True)
    write_atomic(options.document, written(options.document.read_text(encoding="utf-8"), rates))
    return 0


def _effects(kind: str, effect: int) -> Sequence[int]:
    """Effects of an entry's comparisons, in margins."""
    if kind == "all of three":
        # One false comparison has to hold by chance, or any of three true ones to fail.
        return (effect, FAR, FAR) if effect <= 0 else (effect,) * 3
    if kind == "one of two":
        return (effect,) * 2 if effect <= 0 else (effect, -FAR)
    return (effect,)


def _judged(
    draws: np.ndarray, margin: float, counts: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, int]]:
    """Answer and look of every entry, counted by answer and look; draws: (runs, comparisons)."""
    first = 0
    for kind in KINDS:
        columns = range(first, first := first + len(_effects(kind, 0)))

        def at(look: int, columns: range = columns, kind: str = kind) -> Evidence:
            comparisons = [
                Comparison(f"quantity {column}", mean_estimate(draws[:look, column]), above=0.0)
                for column in columns
            ]
            one_of = [[each] for each in comparisons]
            return with_margin(Evidence(one_of if kind == "one of two" else [comparisons]), margin)

        decision = decide(at, FAMILY_ERROR / ENTRIES / len(LOOKS))
        if decision.answer != OPEN:
            counts[decision.answer][LOOKS.index(decision.look)] += 1
        yield decision.answer, decision.look


def _shares(*values: float) -> str:
    return ", ".join(map(_share, values))


def _share(value: float) -> str:
    """In percent: two digits below one, one decimal above; 0 and 100 only where it is so."""
    if value in (0, 1):
        return f"{100 * value:.0f}"
    return f"{100 * value:.2g}" if value < 0.01 else f"{100 * value:.1f}"


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
