"""A comparison as lines for people: the first cause, what else differs, what followed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpatlas.report.differences import CAUSES, UNEXPLAINED, Difference
from dpatlas.report.lineage_text import SHORT, plain
from dpatlas.report.tree import NAMED, Tree

LONGEST = 60
# Lines of causes, and of metrics, unless all are asked for.
MOST_CAUSES, MOST_METRICS = 8, 6
HEX_DIGEST = re.compile("[0-9a-f]{64}")
ORDER = "settings, data, code, versions, device, machine"


def describe_comparison(result: Mapping[str, Any], full: bool = False) -> str:
    """The comparison `result`; `full` shortens nothing."""
    tree = Tree(full)
    first = result["first_cause"]
    if first is None:
        tree.lines.append("no difference: nothing that is known of them differs")
        _files(tree, result)
        return tree.text()
    tree.line(f"first cause: {_words(first, full)}")
    _files(tree, result)
    records = result.get("records", {})
    every = [*records.get("in_both", ()), *result["differences"]]
    every += [
        {"what": "records", "name": f"only in the {side}", "old": None, "new": None, "ids": ids}
        for side in ("old", "new")
        if (ids := records.get(f"only_{side}"))
    ]
    order = [*CAUSES, UNEXPLAINED]
    every.sort(key=lambda each: order.index(each["what"]) if each["what"] in order else 0)
    causes = [each for each in every if each["what"] in order and each != first]
    _section(tree, "also differs", causes, MOST_CAUSES)
    if first["what"] == UNEXPLAINED:
        tree.lines.append("")
        tree.line(f"looked at, and found equal or not known: {ORDER}", "  ")
    followed = [each for each in every if each["what"] not in (*order, "metrics", "bytes")]
    _section(tree, "what follows", followed, MOST_CAUSES)
    metrics = [each for each in every if each["what"] == "metrics"]
    _metrics(tree, result["metrics"], metrics, several="records" in result)
    _bytes(tree, [each for each in every if each["what"] == "bytes"])
    return tree.text()


def _files(tree: Tree, result: Mapping[str, Any]) -> None:
    tree.add("old", result["old"])
    tree.add("new", result["new"])


def _section(tree: Tree, title: str, found: Sequence[Difference], most: int) -> None:
    if not found:
        return
    tree.lines += ["", title]
    shown = found if tree.full else found[:most]
    for each in shown:
        tree.line(_words(each, tree.full), "  ")
    _left_out(tree, len(found) - len(shown))


def _metrics(tree: Tree, state: str, found: Sequence[Difference], several: bool) -> None:
    tree.lines += ["", "metrics"]
    if not found:
        same = "none differs" + (" in the records that both have" if several else "")
        said = {"same": same, "unknown": "not known: a record is not here"}
        tree.lines.append(f"  {said[state]}")
        return
    # What is not a number, or is there in one only, comes first: it says most.
    infinite = float("inf")
    far = [infinite if (gap := each["largest_relative"]) is None else gap for each in found]
    ranked = [found[place] for place in sorted(range(len(found)), key=lambda i: -far[i])]
    shown = ranked if tree.full else ranked[:MOST_METRICS]
    for each in shown:
        gap = each["largest_relative"]
        by = "" if gap is None else f", by up to {gap:.2g} of the larger"
        old, new = _pair(each, tree.full)
        if each["values"] == 1:
            tree.line(f"{each['name']}: {old} -> {new}{by}", "  ")
            continue
        where = f" of {len(each['ids'])} records" if len(each.get("ids", ())) > 1 else ""
        count = f"{each['changed']} of {each['values']} values{where} differ{by}"
        tree.line(f"{each['name']}: {count}; the first {old} -> {new}", "  ")
    _left_out(tree, len(found) - len(shown))


def _bytes(tree: Tree, found: Sequence[Difference]) -> None:
    names = [f"{each['name']}{_ids(each, tree.full)}" for each in found]
    tree.lines += ["", "bytes"]
    tree.line(f"differ: {tree.names(names, 6)}" if names else "every output is the same", "  ")


def _left_out(tree: Tree, count: int) -> None:
    if count:
        tree.cut = True
        tree.lines.append(f"  and {count} more")


def _words(difference: Difference, full: bool) -> str:
    text = f"{difference['what']} {difference['name'] or ''}".rstrip()
    if difference["old"] is not None or difference["new"] is not None:
        old, new = _pair(difference, full)
        text += f": {old} -> {new}"
    note = f" ({difference['note']})" if "note" in difference else ""
    return text + _ids(difference, full) + note


def _ids(difference: Difference, full: bool) -> str:
    ids = difference.get("ids")
    if not ids:
        return ""
    if full or len(ids) <= NAMED:
        return f" [{', '.join(ids)}]"
    return f" [{len(ids)} records, e.g. {ids[0]}]"


def _pair(difference: Difference, full: bool) -> tuple[str, str]:
    """Old and new, as short as they can be told apart."""
    sides = difference["old"], difference["new"]
    if not full and all(isinstance(side, float) for side in sides):
        old, new = (f"{side:.6g}" for side in sides)
        if old != new:
            return old, new
    return _value(sides[0], full), _value(sides[1], full)


def _value(value: Any, full: bool) -> str:
    text = repr(value) if isinstance(value, float) else plain(value)
    if full:
        return text
    if HEX_DIGEST.fullmatch(text):
        return text[:SHORT]
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
