"""A trace as a short tree for people, 80 columns wide; `full` leaves nothing out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpatlas.core.canonical import canonical_json
from dpatlas.core.progress import duration
from dpatlas.report.lineage import Trace
from dpatlas.report.tree import NAMED, Tree

SHORT = 12
# Of a setting that varies, so many values are shown.
VALUES = 5
NO_DATA_SET = "no data set"
IN_OTHER_LINES = ("key", "kind", "data", "seed", "noise_source")
MADE = {True: "as made", False: "CHANGED since it was made", None: "its lineage"}


def describe(trace: Trace, full: bool = False) -> str:
    """The tree: what it is, then its records, those of a kind as one unless `full`."""
    tree = Tree(full)
    if trace["kind"] in ("record", "data", "features"):
        _node(tree, trace)
        return tree.text()
    of = f" of {trace['entry']['paper']}" if trace["kind"] == "claim" else ""
    tier = "" if trace["kind"] == "run" else f", tier {trace['tier']}"
    tree.lines.append(f"{trace['name']}  ({trace['kind']}{of}{tier})")
    if trace["kind"] == "claim":
        _claim(tree, trace)
    elif trace["kind"] == "run":
        tree.add("folder", trace["file"])
        tree.command(trace["command"])
        _claims(tree, trace["claims"], "in all")
        if not full:
            _overview(tree, trace)
            return tree.text()
    else:
        tree.add("file", f"{trace['file']}, {MADE[trace['as_made']]}")
        tree.command(trace["command"])
        tree.add("code", _code(tree, [trace]))
        tree.add("settings", _words(trace["settings"]), most=3)
        tree.add("versions", _words(trace["versions"]), most=2)
        _claims(tree, trace["claims"])
    for product in trace.get("products", ()):
        code = _code(tree, [product])
        tree.add(product["kind"], f"{product['name']}, {MADE[product['as_made']]}; {code}")
    for members in _groups(trace["records"], full):
        tree.lines.append("")
        _group(tree, members)
    return tree.text()


def _overview(tree: Tree, trace: Trace) -> None:
    """A line for each kind of records of a whole run."""
    names = [product["name"] for product in trace["products"]]
    tree.add("products", f"{len(names)}: {tree.names(names, 6)}")
    edited = [each["name"] for each in trace["products"] if each["as_made"] is False]
    tree.add("edited", ", ".join(edited))
    tree.lines.append("")
    for members in _groups(trace["records"], full=False):
        kind = (members[0]["spec"] or {}).get("kind", "")
        states = Counter(_code_state(member) for member in members)
        code = ", ".join(states) if len(states) == 1 else "partly other code"
        spent = sum(member["cost"]["cpu_s"] for member in members if member["cost"])
        cost = f"{duration(spent)} of CPU" if spent else ""
        words = filter(None, [_states(members), code, cost])
        tree.add(f"{len(members)}", f"{members[0]['key']} {kind}: {'; '.join(words)}")
    tree.cut = True


def _node(tree: Tree, trace: Trace) -> None:
    what = f"record of {trace['key']}" if trace["kind"] == "record" else trace["kind"]
    tree.lines.append(f"{trace['id']}  ({what}, tier {trace['tier']})")
    tree.add("file", trace["file"])
    tree.add("sha256", trace["sha256"] if tree.full else _short(trace["sha256"]))
    tree.command(trace["command"])
    _facts(tree, [trace], "  ")
    tree.add("spec", _words(_shown(tree, trace["spec"] or {})), most=4)
    tree.add("ledger", _ledgers(tree, [trace], whole=tree.full), most=1)
    tree.add("cost", _cost([trace]))
    _extra(tree, trace["extra"] or {})
    tree.add("used by", tree.names(trace.get("used_by", ()), 6))
    _claims(tree, trace.get("claims", ()))


def _extra(tree: Tree, extra: Mapping[str, Any]) -> None:
    """What only data sets, features and backbones have to say."""
    if tree.full:
        for name, value in extra.items():
            tree.add(name, in_words(value))
        return
    tree.add("licence", extra.get("licence"), most=1)
    counts = (extra.get("counts") or {}).items()
    tree.add("records", ", ".join(f"{name} {sum(each.values())}" for name, each in counts))
    arrays = (extra.get("arrays") or {}).items()
    shapes = [f"{name} {' x '.join(map(str, each['shape']))}" for name, each in arrays]
    tree.add("arrays", ", ".join(shapes))
    tree.add("weights", _words(extra.get("weights")), most=2)
    tree.cut = True


def _claim(tree: Tree, trace: Trace) -> None:
    row = trace["entry"]
    tree.add("says", row.get("statement"))
    tree.add("place", row.get("place"))
    tree.add("verdict", f"{row['verdict']} ({row.get('kind')}, {row.get('runs') or 0} runs)")
    tree.add("expected", row.get("expected"))
    between = f" [{_number(row['low'])}, {_number(row['high'])}]" if row.get("low") else ""
    tree.add("observed", _number(row.get("observed") or "") + between)
    tree.add("note", row.get("note"), most=2)
    tree.add("parts", _verdicts(trace["parts"], tree))
    tree.command(trace["command"])


def _group(tree: Tree, members: Sequence[Trace]) -> None:
    first, indent = members[0], "    "
    specs = [member["spec"] or {} for member in members]
    names = dict.fromkeys(name for spec in specs for name in spec)
    varying = [name for name in names if len({_key(spec.get(name)) for spec in specs}) > 1]
    common = {name: value for name, value in specs[0].items() if name not in varying}
    count = "1 record" if len(members) == 1 else f"{len(members)} records"
    kind = f", {specs[0]['kind']}" if "kind" in specs[0] else ""
    tree.lines.append(f"  {count} of {first['key']}{kind}: {_states(members)}")
    if not tree.full:
        word = "ids" if len(members) <= NAMED + 1 else "e.g."
        tree.add(word, tree.names([member["id"] for member in members]), indent)
        varied = [
            f"{name} {_some_values(tree, [spec.get(name) for spec in specs])}"
            for name in varying
            if name not in IN_OTHER_LINES
        ]
        tree.add("varied", "; ".join(varied), indent, most=3)
    tree.add("spec", _words(_shown(tree, common)), indent, most=3)
    _facts(tree, members, indent)
    tree.add("ledger", _ledgers(tree, members), indent, most=1)
    tree.add("cost", _cost(members), indent)
    if tree.full:
        for member, spec in zip(members, specs, strict=True):
            tree.lines.append(f"{indent}{member['id']}  {_states([member])}")
            own = _words({name: spec.get(name) for name in varying})
            tree.add("", own, indent)


def _facts(tree: Tree, members: Sequence[Trace], indent: str) -> None:
    """Data, features, backbone, code, versions, device, seeds: each value once."""

    def line(label: str, texts: Iterable[str | None], most: int | None = None) -> None:
        found = list(dict.fromkeys(filter(None, texts)))
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        if tree.full:
            for text in found:
                tree.add(label, text, indent)
        elif found:
            tree.cut = tree.cut or bool(more)
            tree.add(label, found[0] + more, indent, most)

    line("data", (_data(tree, member) for member in members))
    line("features", (_upstream(tree, member["features"]) for member in members))
    line("backbone", (_upstream(tree, member["backbone"]) for member in members))
    line("code", [_code(tree, members)])
    line("versions", (_words(member["versions"]) for member in members), 2)
    if tree.full or not any(member["cost"] for member in members):
        line("device", (member["device"] for member in members))
    line("seeds", (_seeds(member["seeds"]) for member in members), 1)


def _groups(records: Iterable[Trace], full: bool) -> list[list[Trace]]:
    """Records of a kind; those that also share all facts if `full`."""
    shared = ("code_digest", "data", "features", "backbone", "versions", "device", "seeds")
    groups: dict[str, list[Trace]] = {}
    for record in records:
        kind = (record["spec"] or {}).get("kind")
        facts = [record[name] for name in shared] if full else []
        groups.setdefault(_key([record["key"], kind, *facts]), []).append(record)
    return list(groups.values())


def _shown(tree: Tree, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """All settings; or those that do something and stand in no other line."""
    if tree.full:
        return spec
    return {k: v for k, v in spec.items() if v is not None and k not in IN_OTHER_LINES}


def _claims(tree: Tree, claims: Sequence[Mapping[str, str]], where: str = "on it") -> None:
    if claims:
        tree.add("claims", f"{len(claims)} {where}; {_verdicts(claims, tree)}", most=3)


def _verdicts(claims: Sequence[Mapping[str, str]], tree: Tree) -> str:
    by: dict[str, list[str]] = {}
    for each in claims:
        by.setdefault(each["verdict"], []).append(each["claim"])
    return "; ".join(f"{verdict}: {tree.names(names, 6)}" for verdict, names in by.items())


def _states(members: Sequence[Trace]) -> str:
    words = {True: "as used", False: "CHANGED since", None: "there"}
    counts = Counter(
        words[member["as_used"]] if member["present"] else "not here" for member in members
    )
    if len(members) == 1 and not members[0]["present"]:
        return f"not here, sha256 {_short(members[0]['sha256_in_lineage'])}"
    if len(counts) == 1:
        return next(iter(counts))
    changed = [member["id"] for member in members if member["as_used"] is False]
    named = f" ({', '.join(changed)})" if changed else ""
    return ", ".join(f"{number} {word}" for word, number in counts.items()) + named


def _data(tree: Tree, trace: Trace) -> str | None:
    data = trace["data"]
    if data is None:
        # Without a spec nothing is known; a spec that names no data set has none.
        return NO_DATA_SET if trace["spec"] and "data" not in trace["spec"] else None
    length = None if tree.full else SHORT
    own = f", sha256 {data['sha256'][:length]}" if data.get("sha256") else ""
    source = data.get("source") or {}
    named = " ".join(str(source[name]) for name in ("kind", "file") if source.get(name))
    algorithm, _, digest = (source.get("checksum") or "").rpartition(":")
    checksum = f" ({algorithm or 'checksum'} {digest[:length]})" if digest else ""
    return f"{data['name']}{own}" + (f", from {named}{checksum}" if named else "")


def _upstream(tree: Tree, found: Mapping[str, Any] | None) -> str | None:
    if not found or "sha256" not in found:
        return None
    length = None if tree.full else SHORT
    device = f", on {found['device']}" if found.get("device") else ""
    manifest = f", {found['manifest']}" if tree.full and found.get("manifest") else ""
    return f"{found.get('id', '')}, sha256 {found['sha256'][:length]}{device}{manifest}"


def _code(tree: Tree, traces: Sequence[Trace]) -> str | None:
    """Module and digest, and whether today's code is the same, once for all that share them."""
    found = list(dict.fromkeys(_one_code(trace) for trace in traces if trace["code_digest"]))
    if not found and traces[0]["kind"] == "data":
        return f"{traces[0]['module']}, no digest kept"
    return "; ".join(found) or None


def _code_state(trace: Trace) -> str:
    if trace["code_unchanged"]:
        return "code as now"
    return "code CHANGED since" if trace["code_now"] else "no such module now"


def _one_code(trace: Trace) -> str:
    now = _code_state(trace).removeprefix("code ")
    changed = (
        f": now {trace['code_now']}" if trace["code_now"] and not trace["code_unchanged"] else ""
    )
    return f"{trace['module']} {trace['code_digest']}, {now}{changed}"


def _seeds(seeds: Mapping[str, Any] | None) -> str:
    """Numbers and uses before the sentences that say how a seed comes about."""
    found = seeds or {}
    return in_words(dict(sorted(found.items(), key=lambda item: "(" in str(item[1]))))


def _some_values(tree: Tree, values: Sequence[Any]) -> str:
    found = list(dict.fromkeys(plain(value) or "none" for value in values))
    if len(found) <= VALUES:
        return " | ".join(found)
    tree.cut = True
    return f"{' | '.join(found[:NAMED])} | ... ({len(found)})"


def _ledgers(tree: Tree, traces: Sequence[Trace], whole: bool = False) -> str | None:
    """The guarantees of the ledgers, each once; everything that they say if `whole`."""
    texts: dict[str, None] = {}
    for trace in traces:
        ledger = trace["ledger"] or {}
        words = ("epsilon", "delta", "guaranteed", "claimed")
        if whole:
            words = (*words, *(name for name in ledger if name not in words))
        given = [
            f"{word}: {in_words(ledger[word])}" for word in words if ledger.get(word) is not None
        ]
        texts["; ".join(given) or ledger.get("mechanism", "")] = None
    found = list(filter(None, texts))
    if tree.full or len(found) < 2:
        return " | ".join(found) or None
    tree.cut = True
    return f"{len(found)} ledgers, e.g. {found[0]}"


def _cost(records: Sequence[Trace]) -> str | None:
    costs = [record["cost"] for record in records if record["cost"]]
    if not costs:
        return None
    wall, cpu = (sum(cost[name] for cost in costs) for name in ("wall_s", "cpu_s"))
    peak = max(cost["peak_memory_mb"] for cost in costs)
    devices = ", ".join(dict.fromkeys(cost["device"] for cost in costs))
    spent = f"wall {duration(wall)}, CPU {duration(cpu)}, peak memory {peak:.0f} MB"
    return f"{spent}, on {devices}"


def _words(values: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {plain(value)}" for name, value in (values or {}).items())


def plain(value: Any) -> str:
    """A JSON value without its quotes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} {plain(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return " ".join(map(plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def in_words(value: Any) -> str:
    """A value of a ledger, in which mappings and lists of them stand without brackets."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(part)}" for name, part in value.items())
    if isinstance(value, list):
        return "; ".join(map(in_words, value))
    return plain(value)


def _number(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def _key(value: Any) -> str:
    return canonical_json(value)


def _short(digest: str | None, length: int = SHORT) -> str:
    return (digest or "unknown")[:length]
