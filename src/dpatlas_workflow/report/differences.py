"""What differs between two results, and which difference comes first.

A difference is a dict with `what`, `name`, `old`, `new`. Causes come in the order in which they
act (`CAUSES`), then what they led to (`RESULTS`). A later cause often follows from an earlier one:
other settings select other data. Where results differ and no cause is known, `unexplained` stands
between the two, unless all are numbers that differ by rounding: by at most a relative tolerance.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpatlas.base.canonical import canonical_json
from dpatlas.base.files import read_json, read_text
from dpatlas.base.records import read_record
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.verdicts import CLAIMS, COMPARISONS, read_claims
from dpatlas_workflow.records import measured
from dpatlas_workflow.report.lineage import Trace
from dpatlas_workflow.report.state import sha256_now

# Of products `name` and `kind`: two different figures differ for no other reason. `records`: those
# that only one of the two has.
CAUSES = (
    *("kind", "name", "settings", "spec", "products", "records"),
    *("data", "features", "backbone", "code", "versions", "device", "machine", "tier", "edited"),
    "criterion",
)
RESULTS = ("seeds", "ledger", "verdict", "claims", "metrics", "bytes")
UNEXPLAINED = "unexplained"
FACTS = ("spec", "data", "features", "backbone", "code", "versions", "device")
MACHINE = ("processor", "machine", "host", "cores")
# Of a data set's manifest: what tells where it is from before what follows from that.
FIRST_OF_DATA = ("name", "source", "preprocessing", "options", "sha256")
ABSENT = "absent"
# Sums in another order move the last digits of a double; long training magnifies that.
TOLERANCE = 1e-9
# Columns of claims.csv that say what a claim asks: its `criterion`; others follow from the runs.
CRITERION = (
    *("paper", "place", "statement", "kind", "expected", "margin", "level", "comparisons"),
    "evidence",
)
# Columns of these that also change with the runs: the level with the verdict, the number of
# comparisons with the number of runs. Where one of STANDING differs, they ask no other question.
OF_RUNS, STANDING = ("level", "comparisons"), ("verdict", "runs", "look")
Difference = dict[str, Any]


def compare(old: Trace, new: Trace, tolerance: float = TOLERANCE) -> dict[str, Any]:
    """`old`, `new` (files), `same`, `first_cause`, `metrics` and `differences` of two traces.

    `first_cause` is a difference, None if nothing differs, or numbers alone and these by at most
    `tolerance`, which is in the result as well; `metrics` is same, differ or unknown.
    For all but records, data and features also `records`: ids that only one of the two has, and
    the differences of those in both, each with the ids that it holds for. Records pair by id, the
    others by slug. Raises InputError for two kinds that do not compare.
    """
    kinds = {old["kind"], new["kind"]}
    if len(kinds) > 1 and kinds != {"figure", "table"}:
        found = f"a {old['kind']} and a {new['kind']}"
        allowed = "two records, two figures or tables, or two of another kind"
        raise InputError("explain OLD NEW", found, allowed)
    result: dict[str, Any] = {"old": old["file"], "new": new["file"]}
    if "records" not in old:
        differences = _record_differences(old, new, tolerance)
    else:
        differences = _ordered(_product_differences(old, new))
        result["records"] = _paired(old["records"], new["records"], tolerance)
    every = all_differences({**result, "differences": differences})
    every = _with_unexplained(every, tolerance)
    result["same"], result["tolerance"] = not every, tolerance
    result["first_cause"] = None if _rounded(every, tolerance) else every[0]
    result["metrics"] = _metrics_state(old, new, every)
    return {**result, "differences": differences}


def all_differences(result: Mapping[str, Any]) -> list[Difference]:
    """Differences of a comparison and of the records behind it, causes first."""
    records = result.get("records", {})
    one_sided = [
        {"what": "records", "name": f"only in the {side}", "old": None, "new": None, "ids": ids}
        for side in ("old", "new")
        if (ids := records.get(f"only_{side}"))
    ]
    # Records come before the figures that are made of them.
    return _ordered([*one_sided, *records.get("in_both", ()), *result["differences"]])


def _rounded(differences: Iterable[Difference], tolerance: float) -> bool:
    """Whether all are numbers that differ by at most the tolerance."""
    gaps = (each.get("largest_relative") for each in differences)
    return all(gap is not None and gap <= tolerance for gap in gaps)


def _with_unexplained(differences: list[Difference], tolerance: float) -> list[Difference]:
    """The differences; before results for which they name no cause, one that says so."""
    if _rounded(differences, tolerance) or differences[0]["what"] in (*CAUSES, UNEXPLAINED):
        return differences
    note = "same inputs, different bits"
    unexplained = {"what": UNEXPLAINED, "name": None, "old": None, "new": None, "note": note}
    return [unexplained, *differences]


def _metrics_state(old: Trace, new: Trace, differences: list[Difference]) -> str:
    if any(each["what"] == "metrics" for each in differences):
        return "differ"
    traces = [*old.get("records", [old]), *new.get("records", [new])]
    return "same" if all(each["present"] for each in traces) else "unknown"


def _ordered(differences: Iterable[Difference]) -> list[Difference]:
    order = [*CAUSES, UNEXPLAINED, *RESULTS]
    return sorted(differences, key=lambda each: order.index(each["what"]))


def _record_differences(old: Trace, new: Trace, tolerance: float) -> list[Difference]:
    return _with_unexplained(list(_known_differences(old, new)), tolerance)


def _known_differences(old: Trace, new: Trace) -> Iterator[Difference]:
    for name in FACTS:
        source = "code_digest" if name == "code" else name
        if old[source] is None or new[source] is None:
            # Known of one only: a published run keeps no seeds and ledgers.
            continue
        if name == "code":
            yield from _code(old, new)
        elif name == "data":
            yield from sorted(_fields(name, old[name], new[name]), key=_place_in_data)
        elif name == "features":
            # Not where they lie.
            before, after = ({**trace[name], "manifest": None} for trace in (old, new))
            yield from _fields(name, before, after)
        else:
            yield from _fields(name, old[source], new[source])
    shas = [trace["sha256"] or trace["sha256_in_lineage"] for trace in (old, new)]
    if shas[0] != shas[1]:
        # Of equal bytes nobody asks where they were made. A publication keeps the processor alone.
        costs = [each["cost"] or {"processor": each["processor"]} for each in (old, new)]
        for name in MACHINE:
            if all(cost.get(name) is not None for cost in costs):
                yield from _fields("machine", costs[0][name], costs[1][name], name)
    for name in ("seeds", "ledger"):
        if old[name] is not None and new[name] is not None:
            yield from _fields(name, old[name], new[name])
    there = old["present"] and new["present"]
    metrics = list(_metrics(_results(old), _results(new))) if there else []
    yield from metrics
    if shas[0] != shas[1]:
        name = "record.json" if old["kind"] == "record" else "arrays"
        gap = _largest([each["largest_relative"] for each in metrics])
        yield {"what": "bytes", "name": name, "old": shas[0], "new": shas[1]} | _gap(gap)


def _place_in_data(difference: Difference) -> int:
    first = difference["name"].partition(".")[0]
    return FIRST_OF_DATA.index(first) if first in FIRST_OF_DATA else len(FIRST_OF_DATA)


def _results(trace: Trace) -> Any:
    """What a trace's file says beside what went in; inputs among the metrics are left out."""
    if trace["kind"] == "record":
        return measured(read_record(trace["file"]))
    content = read_json(trace["file"])
    return {name: content.get(name) for name in ("counts", "shapes", "arrays") if name in content}


def _product_differences(old: Trace, new: Trace) -> Iterator[Difference]:
    for name in ("kind", "name", "tier"):
        # The name of a whole run is that of its tier.
        if old[name] != new[name] and (name, old["kind"]) != ("name", "run"):
            yield {"what": name, "name": None, "old": old[name], "new": new[name]}
    if old["kind"] == "claim":
        yield from _claim_differences(old["entry"], new["entry"])
    if old["kind"] == "run":
        yield from _verdict_differences(Path(old["file"]), Path(new["file"]))
    if "products" not in old:
        yield from _one_product(old, new)
        return
    sides = [{each["name"]: each for each in side["products"]} for side in (old, new)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        if name in sides[0] and name in sides[1]:
            for each in _one_product(sides[0][name], sides[1][name]):
                # Several products of one module have its code in common.
                yield each if each["what"] == "code" else {**each, "name": _of(name, each["name"])}
        else:
            states = ["there" if name in side else ABSENT for side in sides]
            yield {"what": "products", "name": name, "old": states[0], "new": states[1]}


def _verdict_differences(old: Path, new: Path) -> Iterator[Difference]:
    """What differs in claims.csv and comparisons.csv of two folders of results.

    A claim in both with other cells than its verdict's gives a `criterion` or `claims`, whose
    `columns` has old and new cell by column.
    """
    before, after = (
        {row["claim"]: row for row in read_claims(folder)} if (folder / CLAIMS).is_file() else {}
        for folder in (old, new)
    )
    verdicts = [{name: row["verdict"] for name, row in side.items()} for side in (before, after)]
    yield from _fields("verdict", verdicts[0], verdicts[1])
    for name in (each for each in before if each in after):
        rows = before[name], after[name]
        changed = {
            column: [row.get(column) or "" for row in rows]
            for column in dict.fromkeys([*rows[0], *rows[1]])
            # These have a difference of their own.
            if column not in ("verdict", "tier")
        }
        changed = {column: pair for column, pair in changed.items() if pair[0] != pair[1]}
        moved = any(rows[0].get(column) != rows[1].get(column) for column in STANDING)
        follow = OF_RUNS if moved else ()
        asked = {
            column: changed.pop(column)
            for column in CRITERION
            if column in changed and column not in follow
        }
        for what, columns in (("criterion", asked), ("claims", changed)):
            if columns:
                note = ", ".join(columns)
                claim = {"what": what, "name": name, "old": None, "new": None, "note": note}
                gap = _largest([_relative(*pair) for pair in columns.values()])
                yield {**claim, "columns": columns} | (_gap(gap) if what == "claims" else {})
    paths = [folder / COMPARISONS for folder in (old, new)]
    digests = [sha256_now(path) or ABSENT for path in paths]
    if digests[0] != digests[1]:
        sides = dict(zip(("old", "new"), digests, strict=True))
        yield {"what": "bytes", "name": COMPARISONS, **sides} | _gap(_gap_of_files(*paths))


def _of(product: str, name: str | None) -> str:
    return product if name is None else f"{product}: {name}"


def _claim_differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    asked = ("expected", "kind", "margin", "comparisons", "level")
    for what, names in (("settings", asked), ("verdict", ("verdict", "observed", "low", "high"))):
        for name in names:
            yield from _fields(what, old.get(name) or "", new.get(name) or "", name)


def _one_product(old: Trace, new: Trace) -> Iterator[Difference]:
    yield from _fields("settings", old["settings"], new["settings"])
    yield from _code(old, new)
    yield from _fields("versions", old["versions"], new["versions"])
    for side, each in (("old", old), ("new", new)):
        if each["as_made"] is False:
            yield {
                "what": "edited",
                "name": f"the {side} file, after it was made",
                "old": each["outputs"][Path(each["file"]).name],
                "new": each["sha256"],
            }
    before, after = (
        {Path(name).suffix: digest for name, digest in trace["outputs"].items()}
        for trace in (old, new)
    )
    if old["kind"] == new["kind"]:
        # The csv has all that the other files show.
        paths = (Path(trace["file"]).with_suffix(".csv") for trace in (old, new))
        gap = _gap(_gap_of_files(*paths)) if before != after else {}
        yield from (each | gap for each in _fields("bytes", before, after))


def _code(old: Trace, new: Trace) -> Iterator[Difference]:
    modules, digests = ((old[name], new[name]) for name in ("module", "code_digest"))
    if modules[0] != modules[1]:
        yield {"what": "code", "name": "module", "old": modules[0], "new": modules[1]}
    if digests[0] != digests[1]:
        yield {
            "what": "code",
            "name": modules[1],
            "old": digests[0],
            "new": digests[1],
            "note": "a digest covers the module and all it imports, and does not tell which changed"
            + _which_is_current(old, new),
        }


def _which_is_current(old: Trace, new: Trace) -> str:
    current = [side for side, each in (("old", old), ("new", new)) if each["code_unchanged"]]
    return f"; on disk now: the {current[0]} one" if current else "; on disk now: neither"


def _fields(what: str, old: Any, new: Any, name: str | None = None) -> Iterator[Difference]:
    """Leaves that differ; a list is a leaf."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            path = key if name is None else f"{name}.{key}"
            yield from _fields(what, old.get(key, ABSENT), new.get(key, ABSENT), path)
    elif canonical_json(old) != canonical_json(new):
        gap = _gap(_relative(old, new)) if what in RESULTS and what != "bytes" else {}
        yield {"what": what, "name": name, "old": old, "new": new} | gap


def _metrics(old: Any, new: Any) -> Iterator[Difference]:
    """One difference per metric, lists folded: how many of its values differ, and how far."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    folded: dict[str, list[tuple[Any, Any]]] = {}
    for place in dict.fromkeys([*before, *after]):
        pair = before.get(place, ABSENT), after.get(place, ABSENT)
        folded.setdefault(re.sub(r"\[\d+\]", "", place), []).append(pair)
    for name, pairs in folded.items():
        changed = [(a, b) for a, b in pairs if a != b]
        if not changed:
            continue
        gaps = [_relative(a, b) for a, b in changed]
        yield {
            "what": "metrics",
            "name": name,
            "old": changed[0][0],
            "new": changed[0][1],
            "values": len(pairs),
            "changed": len(changed),
            "largest_relative": _largest(gaps),
        }


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _leaves(part, f"{place}[{index}]")
    else:
        yield place, value


def _gap_of_files(old: Path, new: Path) -> float | None:
    """The largest relative difference of two csv files; None if a cell is no number, or none is."""
    if not (old.is_file() and new.is_file()):
        return None
    # A cell may hold the values of several runs.
    rows = [
        [[cell.split() for cell in row] for row in csv.reader(read_text(path).splitlines())]
        for path in (old, new)
    ]
    shapes = [[[len(words) for words in row] for row in side] for side in rows]
    if shapes[0] != shapes[1]:
        return None
    words = ([word for row in side for cell in row for word in cell] for side in rows)
    return _largest([_relative(*pair) for pair in zip(*words, strict=True) if pair[0] != pair[1]])


def _gap(gap: float | None) -> Difference:
    return {} if gap is None else {"largest_relative": gap}


def _relative(a: Any, b: Any) -> float | None:
    """How far two numbers, or cells of a csv, differ, as a part of the larger."""
    if any(isinstance(each, bool) or not isinstance(each, int | float | str) for each in (a, b)):
        return None
    try:
        numbers = float(a), float(b)
    except ValueError:
        return None
    gap = abs(numbers[0] - numbers[1])
    return gap / max(map(abs, numbers)) if gap else 0.0


def _largest(gaps: Sequence[float | None]) -> float | None:
    known = [gap for gap in gaps if gap is not None and math.isfinite(gap)]
    return max(known) if known and len(known) == len(gaps) else None


def _paired(old: list[Trace], new: list[Trace], tolerance: float) -> dict[str, list[Any]]:
    before, after = ({each["id"]: each for each in side} for side in (old, new))
    partner = {name: name for name in before if name in after}
    left, right = (
        _by_slug(name for name in side if name not in partner) for side in (before, after)
    )
    for slug, names in left.items():
        if len(names) == len(right.get(slug, ())) == 1:
            partner[names[0]] = right[slug][0]
    merged: dict[str, Difference] = {}
    for name, other in partner.items():
        for each in _record_differences(before[name], after[other], tolerance):
            # Results differ in their own way in every record, causes mostly in one way.
            cause = [] if each["what"] in RESULTS else [each["old"], each["new"]]
            key = canonical_json([each["what"], each["name"], *cause])
            entry = merged.setdefault(key, {**each, "ids": []})
            if entry["ids"] and each["what"] in RESULTS:
                for count in {"values", "changed"} & each.keys():
                    entry[count] += each[count]
                gaps = [side.get("largest_relative") for side in (entry, each)]
                entry["largest_relative"] = _largest(gaps)
            entry["ids"].append(other)
    return {
        "only_old": [name for name in before if name not in partner],
        "only_new": [name for name in after if name not in partner.values()],
        "in_both": _ordered(merged.values()),
    }


def _by_slug(ids: Iterable[str]) -> dict[str, list[str]]:
    slugs: dict[str, list[str]] = {}
    for name in ids:
        slugs.setdefault(name.rpartition("-")[0], []).append(name)
    return slugs
