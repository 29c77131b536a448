"""What differs between two results, first cause first.

Causes come in the order in which they act: settings and spec, data, code, versions, device, seeds;
then what they led to: metrics and bytes. A difference is a dict with `what`, `name`, `old`, `new`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpatlas.core.canonical import canonical_json
from dpatlas.core.records import read_record
from dpatlas.errors import InputError
from dpatlas.report.lineage import Trace
from dpatlas.report.lineage_text import SHORT, plain

CAUSES = ("spec", "data", "code", "versions", "device", "seeds", "ledger")
RESULTS = ("metrics", "bytes")
SHOWN_IDS = 3
LONGEST = 60
HEX_DIGEST = re.compile("[0-9a-f]{64}")
ABSENT = "absent"
Difference = dict[str, Any]


def compare(old: Trace, new: Trace) -> dict[str, Any]:
    """`old`, `new` (names), `same`, and `differences` of two records or two products.

    For products also `records`: those only in one of the two, and the differences of those in both,
    each with the ids that it holds for. Records pair by id, the others by slug.
    Raises InputError for a record against a product.
    """
    if "record" in (old["kind"], new["kind"]) and old["kind"] != new["kind"]:
        found = f"a {old['kind']} and a {new['kind']}"
        raise InputError("explain OLD NEW", found, "two records, or two figures or tables")
    names = {"old": old["file"], "new": new["file"]}
    if old["kind"] == "record":
        differences = list(_record_differences(old, new))
        return {**names, "same": not differences, "differences": differences}
    differences = list(_product_differences(old, new))
    records = _paired(old["records"], new["records"])
    same = not differences and not any(records.values())
    return {**names, "same": same, "differences": differences, "records": records}


def describe_comparison(result: Mapping[str, Any]) -> str:
    """The comparison as lines for people."""
    lines = [f"old  {result['old']}", f"new  {result['new']}"]
    if result["same"]:
        return "\n".join([*lines, "the same: nothing that is known of them differs"])
    records = result.get("records", {})
    causes = [each for each in result["differences"] if each["what"] != "bytes"]
    lines += [_line(each) for each in causes]
    for side in ("old", "new"):
        if ids := records.get(f"only_{side}"):
            lines.append(f"  records only in the {side}: {_some(ids)}")
    for each in records.get("in_both", ()):
        lines.append(f"{_line(each)}   [{len(each['ids'])} records: {_some(each['ids'])}]")
    lines += [_line(each) for each in result["differences"] if each["what"] == "bytes"]
    return "\n".join(lines)


def _record_differences(old: Trace, new: Trace) -> Iterator[Difference]:
    for name in CAUSES:
        source = "code_digest" if name == "code" else name
        if old[source] is None or new[source] is None:
            # Known of one only: a published run keeps no seeds and ledgers.
            continue
        if name == "code":
            yield from _code(old, new)
        else:
            yield from _fields(name, old[source], new[source])
    if old["present"] and new["present"]:
        metrics = (read_record(each["file"])["metrics"] for each in (old, new))
        yield from _metrics(*metrics)
    shas = [each["sha256"] or each["sha256_in_lineage"] for each in (old, new)]
    if shas[0] != shas[1]:
        yield {"what": "bytes", "name": "record.json", "old": shas[0], "new": shas[1]}


def _product_differences(old: Trace, new: Trace) -> Iterator[Difference]:
    for name in ("kind", "name", "tier"):
        if old[name] != new[name]:
            yield {"what": name, "name": None, "old": old[name], "new": new[name]}
    yield from _fields("settings", old["settings"], new["settings"])
    yield from _code(old, new)
    yield from _fields("versions", old["versions"], new["versions"])
    suffixes = [
        {Path(name).suffix: digest for name, digest in each["outputs"].items()}
        for each in (old, new)
    ]
    yield from _fields("bytes", *suffixes)
    for side, each in (("old", old), ("new", new)):
        if each["as_made"] is False:
            yield {
                "what": "bytes",
                "name": f"{side} file was edited after it was made",
                "old": each["outputs"][Path(each["file"]).name],
                "new": each["sha256"],
            }


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
        yield {"what": what, "name": name, "old": old, "new": new}


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
            "largest_relative": None if None in gaps else max(gaps),
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


def _relative(a: Any, b: Any) -> float | None:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (a, b))
    return abs(a - b) / max(abs(a), abs(b)) if numbers else None


def _paired(old: list[Trace], new: list[Trace]) -> dict[str, list]:
    before, after = ({each["id"]: each for each in side} for side in (old, new))
    partner = {name: name for name in before if name in after}
    left, right = (
        _by_slug(name for name in side if name not in partner) for side in (before, after)
    )
    for slug, names in left.items():
        if len(names) == len(right.get(slug, ())) == 1:
            partner[names[0]] = right[slug][0]
    found: dict[str, Difference] = {}
    for name, other in partner.items():
        for each in _record_differences(before[name], after[other]):
            # Results differ in their own way in every record, causes mostly in one way.
            cause = [] if each["what"] in RESULTS else [each["old"], each["new"]]
            key = canonical_json([each["what"], each["name"], *cause])
            entry = found.setdefault(key, {**each, "ids": []})
            entry["ids"].append(other)
            if each.get("largest_relative") is not None:
                entry["largest_relative"] = max(
                    each["largest_relative"], entry["largest_relative"] or 0
                )
    order = [*CAUSES, *RESULTS]
    return {
        "only_old": [name for name in before if name not in partner],
        "only_new": [name for name in after if name not in partner.values()],
        "in_both": sorted(found.values(), key=lambda each: order.index(each["what"])),
    }


def _by_slug(ids: Iterable[str]) -> dict[str, list[str]]:
    slugs: dict[str, list[str]] = {}
    for name in ids:
        slugs.setdefault(name.rpartition("-")[0], []).append(name)
    return slugs


def _line(difference: Difference) -> str:
    name = f" {difference['name']}" if difference["name"] else ""
    old, new = (_shown(difference[side]) for side in ("old", "new"))
    line = f"  {difference['what']}{name}: {old} -> {new}"
    if difference["what"] == "metrics":
        far = difference["largest_relative"]
        distance = "" if far is None else f", largest relative difference {far:.2g}"
        line += f"  (first of {difference['changed']} in {difference['values']} values{distance})"
    return f"{line}  ({difference['note']})" if "note" in difference else line


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, float) else plain(value)
    if HEX_DIGEST.fullmatch(text):
        return text[:SHORT]
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return ", ".join(ids[:SHOWN_IDS]) + more
