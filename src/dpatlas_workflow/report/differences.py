"""What differs between two results, and which difference comes first.

A difference is a dict with `what`, `name`, `old`, `new`. Causes come in the order in which they
act (`CAUSES`), then what they led to (`RESULTS`). A later cause often follows from an earlier one:
other settings select other data. Where results differ and no cause is known, `unexplained` stands
between the two, unless all are numbers that differ by rounding: by at most a relative tolerance.
"""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpatlas.base.canonical import canonical_json
from dpatlas.base.files import read_json, read_text
from dpatlas.base.records import read_record
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.verdicts import COMPARISONS, NOT_RUN
from dpatlas_workflow.records import measured
from dpatlas_workflow.report.index import Index, evidence_of
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
# Columns of claims.csv that a claim is compared by.
OF_CLAIM = ("expected", "kind", "margin", "comparisons", "level")
OF_VERDICT = ("verdict", "observed", "low", "high")
Difference = dict[str, Any]


def _difference(
    what: str,
    name: str | None,
    old: Any = None,
    new: Any = None,
    gap: float | None = None,
    **more: Any,
) -> Difference:
    """gap: by what part of the larger numbers differ at most; None where that says nothing."""
    relative = {} if gap is None else {"largest_relative": gap}
    return {"what": what, "name": name, "old": old, "new": new, **more, **relative}


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
    traces = [*old.get("records", [old]), *new.get("records", [new])]
    metrics = "same" if all(trace["present"] for trace in traces) else "unknown"
    if any(difference["what"] == "metrics" for difference in every):
        metrics = "differ"
    return {
        **result,
        "same": not every,
        "tolerance": tolerance,
        "first_cause": None if _rounded(every, tolerance) else every[0],
        "metrics": metrics,
        "differences": differences,
    }


def all_differences(result: Mapping[str, Any]) -> list[Difference]:
    """Differences of a comparison and of the records behind it, causes first."""
    records = result.get("records", {})
    one_sided = [
        _difference("records", f"only in the {side}", ids=ids)
        for side in ("old", "new")
        if (ids := records.get(f"only_{side}"))
    ]
    # Records come before the figures that are made of them.
    return _ordered([*one_sided, *records.get("in_both", ()), *result["differences"]])


def _ordered(differences: Iterable[Difference]) -> list[Difference]:
    order = [*CAUSES, UNEXPLAINED, *RESULTS]
    return sorted(differences, key=lambda difference: order.index(difference["what"]))


def _rounded(differences: Iterable[Difference], tolerance: float) -> bool:
    gaps = (difference.get("largest_relative") for difference in differences)
    return all(gap is not None and gap <= tolerance for gap in gaps)


def _with_unexplained(differences: list[Difference], tolerance: float) -> list[Difference]:
    """The differences; before results for which they name no cause, one that says so."""
    if _rounded(differences, tolerance) or differences[0]["what"] in (*CAUSES, UNEXPLAINED):
        return differences
    return [_difference(UNEXPLAINED, None, note="same inputs, different bits"), *differences]


def _record_differences(old: Trace, new: Trace, tolerance: float) -> list[Difference]:
    return _with_unexplained(_ordered(_known_differences(old, new)), tolerance)


def _known_differences(old: Trace, new: Trace) -> Iterator[Difference]:
    yield from _machines(old, new)
    for what in (*FACTS, "seeds", "ledger"):
        field = "code_digest" if what == "code" else what
        before, after = old[field], new[field]
        if before is None or after is None:
            # Known of one only: a published run keeps no seeds and ledgers.
            continue
        if what == "features":
            # Not where they lie.
            before, after = ({**side, "manifest": None} for side in (before, after))
        found = _code(old, new) if what == "code" else _fields(what, before, after)
        yield from sorted(found, key=_rank_in_data) if what == "data" else found
    there = old["present"] and new["present"]
    metrics = list(_metrics(_results(old), _results(new))) if there else []
    yield from metrics
    if _sha256(old) != _sha256(new):
        name = "record.json" if old["kind"] == "record" else "arrays"
        gap = _largest(difference["largest_relative"] for difference in metrics)
        yield _difference("bytes", name, _sha256(old), _sha256(new), gap)


def _sha256(trace: Trace) -> str | None:
    return trace["sha256"] or trace["sha256_in_lineage"]


def _machines(old: Trace, new: Trace) -> Iterator[Difference]:
    """Of equal bytes nobody asks where they were made. A publication keeps the processor alone."""
    if _sha256(old) != _sha256(new):
        costs = [trace["cost"] or {"processor": trace["processor"]} for trace in (old, new)]
        for name in MACHINE:
            if all(cost.get(name) is not None for cost in costs):
                yield from _fields("machine", costs[0][name], costs[1][name], name)


def _rank_in_data(difference: Difference) -> int:
    field = difference["name"].partition(".")[0]
    return FIRST_OF_DATA.index(field) if field in FIRST_OF_DATA else len(FIRST_OF_DATA)


def _results(trace: Trace) -> Any:
    """What a trace's file says beside what went in; inputs among the metrics are left out."""
    if trace["kind"] == "record":
        return measured(read_record(trace["file"]))
    content = read_json(trace["file"])
    return {name: content.get(name) for name in ("counts", "shapes", "arrays") if name in content}


def _product_differences(old: Trace, new: Trace) -> Iterator[Difference]:
    for what in ("kind", "name", "tier"):
        # The name of a whole run is that of its tier.
        if old[what] != new[what] and (what, old["kind"]) != ("name", "run"):
            yield _difference(what, None, old[what], new[what])
    if old["kind"] == "claim":
        before, after = old["entry"], new["entry"]
        for column in (*OF_CLAIM, *OF_VERDICT):
            what = "settings" if column in OF_CLAIM else "verdict"
            yield from _fields(what, before.get(column) or "", after.get(column) or "", column)
    if old["kind"] == "run":
        yield from _verdict_differences(Path(old["file"]), Path(new["file"]))
    if "products" not in old:
        yield from _one_product(old, new)
        return
    before, after = (
        {product["name"]: product for product in side["products"]} for side in (old, new)
    )
    for name in dict.fromkeys([*before, *after]):
        if name in before and name in after:
            for found in _one_product(before[name], after[name]):
                # Several products of one module have its code in common.
                if found["what"] != "code":
                    found["name"] = ": ".join(filter(None, (name, found["name"])))
                yield found
        else:
            states = ["there" if name in side else ABSENT for side in (before, after)]
            yield _difference("products", name, states[0], states[1])


def _verdict_differences(old: Path, new: Path) -> Iterator[Difference]:
    """What differs in claims.csv and comparisons.csv of two folders of results.

    A claim in both with other cells than its verdict's gives a `criterion` or `claims`, whose
    `columns` has old and new cell by column.
    """
    before, after = (
        # The files of a published paper have a folder of their own.
        {name: {**row, "evidence": ", ".join(evidence_of(row))} for name, row in claims.items()}
        for claims in (Index(old).claims, Index(new).claims)
    )
    # Papers that were not run are no part of a publication.
    verdicts = [
        {n: row["verdict"] for n, row in side.items() if n in other or row["verdict"] != NOT_RUN}
        for side, other in ((before, after), (after, before))
    ]
    yield from _fields("verdict", verdicts[0], verdicts[1])
    for name in (claim for claim in before if claim in after):
        row, other = before[name], after[name]
        changed = {
            column: [row.get(column) or "", other.get(column) or ""]
            for column in {**row, **other}
            # These have a difference of their own.
            if column not in ("verdict", "tier")
            and (row.get(column) or "") != (other.get(column) or "")
        }
        moved = any(row.get(column) != other.get(column) for column in STANDING)
        fixed = [column for column in CRITERION if not (moved and column in OF_RUNS)]
        criterion = {column: changed.pop(column) for column in fixed if column in changed}
        if criterion:
            yield _difference("criterion", name, note=", ".join(criterion), columns=criterion)
        if changed:
            gap = _largest(_relative(*pair) for pair in changed.values())
            yield _difference("claims", name, gap=gap, note=", ".join(changed), columns=changed)
    paths = [folder / COMPARISONS for folder in (old, new)]
    digests = [sha256_now(path) or ABSENT for path in paths]
    if digests[0] != digests[1]:
        yield _difference("bytes", COMPARISONS, digests[0], digests[1], _gap_of_files(*paths))


def _one_product(old: Trace, new: Trace) -> Iterator[Difference]:
    yield from _fields("settings", old["settings"], new["settings"])
    yield from _code(old, new)
    yield from _fields("versions", old["versions"], new["versions"])
    for side, trace in (("old", old), ("new", new)):
        if trace["as_made"] is False:
            name, made = f"the {side} file, after it was made", Path(trace["file"]).name
            yield _difference("edited", name, trace["outputs"][made], trace["sha256"])
    if old["kind"] == new["kind"]:
        before, after = (
            {Path(name).suffix: digest for name, digest in trace["outputs"].items()}
            for trace in (old, new)
        )
        # The csv has all that the other files show.
        paths = (Path(trace["file"]).with_suffix(".csv") for trace in (old, new))
        gap = _gap_of_files(*paths) if before != after else None
        for found in _fields("bytes", before, after):
            yield found if gap is None else {**found, "largest_relative": gap}


def _code(old: Trace, new: Trace) -> Iterator[Difference]:
    if old["module"] != new["module"]:
        yield _difference("code", "module", old["module"], new["module"])
    if old["code_digest"] != new["code_digest"]:
        current = [side for side, of in (("old", old), ("new", new)) if of["code_unchanged"]]
        now = f"the {current[0]} one" if current else "neither"
        covered = "a digest covers the module and all it imports, and does not tell which changed"
        note = f"{covered}; on disk now: {now}"
        yield _difference("code", new["module"], old["code_digest"], new["code_digest"], note=note)


def _fields(what: str, old: Any, new: Any, name: str | None = None) -> Iterator[Difference]:
    """Leaves that differ; a list is a leaf."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            path = key if name is None else f"{name}.{key}"
            yield from _fields(what, old.get(key, ABSENT), new.get(key, ABSENT), path)
    elif canonical_json(old) != canonical_json(new):
        gap = _relative(old, new) if what in RESULTS and what != "bytes" else None
        yield _difference(what, name, old, new, gap)


def _metrics(old: Any, new: Any) -> Iterator[Difference]:
    """One difference per metric, lists folded: how many of its values differ, and how far."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    folded: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    for path in {**before, **after}:
        pair = before.get(path, ABSENT), after.get(path, ABSENT)
        folded[re.sub(r"\[\d+\]", "", path)].append(pair)
    for name, pairs in folded.items():
        if changed := [(a, b) for a, b in pairs if a != b]:
            counts = {"values": len(pairs), "changed": len(changed)}
            gap = _largest(_relative(a, b) for a, b in changed)
            yield _difference("metrics", name, *changed[0], **counts, largest_relative=gap)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _leaves(part, f"{path}[{index}]")
    else:
        yield path, value


def _gap_of_files(old: Path, new: Path) -> float | None:
    """The largest relative difference of two csv files; None if a cell is no number, or none is."""
    if not (old.is_file() and new.is_file()):
        return None
    # A cell may hold the values of several runs.
    sides = [
        [[cell.split() for cell in row] for row in csv.reader(read_text(path).splitlines())]
        for path in (old, new)
    ]
    shapes = [[[len(words) for words in row] for row in side] for side in sides]
    if shapes[0] != shapes[1]:
        return None
    words = ([word for row in side for cell in row for word in cell] for side in sides)
    return _largest(_relative(*pair) for pair in zip(*words, strict=True) if pair[0] != pair[1])


def _relative(a: Any, b: Any) -> float | None:
    """How far two numbers, or cells of a csv, differ, as a part of the larger."""
    if any(isinstance(v, bool) or not isinstance(v, int | float | str) for v in (a, b)):
        return None
    try:
        first, second = float(a), float(b)
    except ValueError:
        return None
    gap = abs(first - second)
    return gap / max(abs(first), abs(second)) if gap else 0.0


def _largest(gaps: Iterable[float | None]) -> float | None:
    every = list(gaps)
    known = [gap for gap in every if gap is not None and math.isfinite(gap)]
    return max(known) if known and len(known) == len(every) else None


def _paired(old: list[Trace], new: list[Trace], tolerance: float) -> dict[str, list[Any]]:
    before, after = ({record["id"]: record for record in side} for side in (old, new))
    partner = {name: name for name in before if name in after}
    slugs: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for number, side in enumerate((before, after)):
        for name in side:
            if name not in partner:
                slugs[name.rpartition("-")[0]][number].append(name)
    partner |= {left[0]: right[0] for left, right in slugs.values() if len(left) == len(right) == 1}
    merged: dict[str, Difference] = {}
    for name, other in partner.items():
        for found in _record_differences(before[name], after[other], tolerance):
            # Results differ in their own way in every record, causes mostly in one way.
            result = found["what"] in RESULTS
            key = canonical_json(list(found.values())[: 2 if result else 4])
            entry = merged.setdefault(key, {**found, "ids": []})
            if entry["ids"] and result:
                for count in {"values", "changed"} & found.keys():
                    entry[count] += found[count]
                gaps = (side.get("largest_relative") for side in (entry, found))
                entry["largest_relative"] = _largest(gaps)
            entry["ids"].append(other)
    return {
        "only_old": [name for name in before if name not in partner],
        "only_new": [name for name in after if name not in partner.values()],
        "in_both": _ordered(merged.values()),
    }
