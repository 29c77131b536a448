"""Traces and their differences as text: trees 80 columns wide, and facts in words for the page.

`full` leaves nothing out. A tree says when something had to be left out.
"""

import math
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpatlas.base.canonical import canonical_json
from dpatlas.base.progress import duration
from dpatlas_workflow.evidence.run_values import samples_of
from dpatlas_workflow.evidence.verdicts import observed_text
from dpatlas_workflow.report.differences import RESULTS, UNEXPLAINED, Difference, all_differences
from dpatlas_workflow.report.lineage import Trace

WIDTH = 80
LABEL = 10
# Of a list of names, so many are shown.
NAMED = 3
MORE = "--all leaves nothing out, --json is for tools"
SHORT = 12
# Of a setting that varies, so many values are shown.
VALUES = 5
NO_DATA_SET = "no data set"
IN_OTHER_LINES = ("key", "kind", "data", "seed", "noise_source")
MADE = {True: "as made", False: "CHANGED since it was made", None: "its lineage"}
LONGEST = 60
# Lines of causes, and of metrics, unless all are asked for.
MOST_CAUSES, MOST_METRICS = 8, 6
DIGEST = re.compile("[0-9a-f]{64}")
ORDER = "settings, data, code, versions, device, machine"


class Tree:
    """Lines of labelled text; `cut` tells whether any had to be left out."""

    def __init__(self, full: bool):
        self.full, self.cut = full, False
        # Shown of a checksum.
        self.digits = None if full else SHORT
        self.lines: list[str] = []

    def add(
        self, label: str, text: str | None, indent: str = "  ", most: int | None = None
    ) -> None:
        """A label and its text, in `most` lines unless the tree is full; no line for no text."""
        if not text:
            return
        head, margin = f"{indent}{label:<{LABEL}}", indent + " " * LABEL
        # A path may be wider than the room beside its label.
        if max(map(len, text.split())) > WIDTH - len(margin):
            self.lines.append(head.rstrip())
            head = margin = f"{indent}  "
        lines = _wrapped(text, head, margin)
        if most and len(lines) > most and not self.full:
            last = lines[most - 1]
            while len(last) > WIDTH - 4:
                last = last.rpartition(" ")[0]
            lines = [*lines[: most - 1], f"{last.rstrip(' ,;')} ..."]
            self.cut = True
        self.lines += lines

    def line(self, text: str, indent: str = "") -> None:
        """Text without a label."""
        self.lines += _wrapped(text, indent, indent + "  ")

    def command(self, words: str | None, indent: str = "  ") -> None:
        """The command that makes it, in lines that a shell takes as they are."""
        if words is None:
            return
        first, *options = words.split(" --configfile ")
        lines = [f"{indent}{'make':<{LABEL}}{first}"]
        for option in (f"--configfile {file}" for file in options):
            if len(f"{lines[-1]} {option}") <= WIDTH:
                lines[-1] += f" {option}"
            else:
                lines[-1] += " \\"
                lines.append(f"{indent}{'':<{LABEL + 2}}{option}")
        self.lines += lines

    def names(self, names: Sequence[str], most: int = NAMED) -> str:
        """The names, or the first few and how many more."""
        if self.full or len(names) <= most + 1:
            return ", ".join(names)
        self.cut = True
        return f"{', '.join(names[:most])} and {len(names) - most} more"

    def section(self, title: str, texts: Sequence[str], most: int) -> None:
        """A title and a line for each text, or for the first `most` unless the tree is full."""
        if not texts:
            return
        self.lines += ["", title]
        for text in texts if self.full else texts[:most]:
            self.line(text, "  ")
        if len(texts) > most and not self.full:
            self.cut = True
            self.lines.append(f"  and {len(texts) - most} more")

    def text(self) -> str:
        """All lines, and how to see more."""
        return "\n".join([*self.lines, *(["", f"  {MORE}"] if self.cut else [])])

    def claims(self, claims: Sequence[Mapping[str, str]], where: str = "on it") -> None:
        """How many claims there are, and their names by verdict."""
        if claims:
            self.add("claims", f"{len(claims)} {where}; {self.verdicts(claims)}", most=3)

    def verdicts(self, claims: Sequence[Mapping[str, str]]) -> str:
        """The names of claims by verdict."""
        names: dict[str, list[str]] = defaultdict(list)
        for row in claims:
            names[row["verdict"]].append(row["claim"])
        return "; ".join(f"{verdict}: {self.names(of, 6)}" for verdict, of in names.items())


def describe(trace: Trace, full: bool = False) -> str:
    """The tree: what it is, then its records, those of a kind as one unless `full`."""
    tree, kind = Tree(full), trace["kind"]
    if kind in ("record", "data", "features"):
        _node(tree, trace)
        return tree.text()
    of = f" of {trace['entry']['paper']}" if kind == "claim" else ""
    tier = "" if kind == "run" else f", tier {trace['tier']}"
    tree.lines.append(f"{trace['name']}  ({kind}{of}{tier})")
    if kind == "claim":
        _claim(tree, trace)
    elif kind == "run":
        tree.add("folder", trace["file"])
        tree.command(trace["command"])
        tree.claims(trace["claims"], "in all")
        if not full:
            _overview(tree, trace)
            return tree.text()
    else:
        tree.add("file", f"{trace['file']}, {MADE[trace['as_made']]}")
        tree.command(trace["command"])
        tree.add("code", _code([trace]))
        tree.add("settings", _words(trace["settings"]), most=3)
        tree.add("versions", _words(trace["versions"]), most=2)
        tree.claims(trace["claims"])
    for product in trace.get("products", ()):
        code = _code([product])
        tree.add(product["kind"], f"{product['name']}, {MADE[product['as_made']]}; {code}")
    for members in _groups(trace["records"], full):
        tree.lines.append("")
        _group(tree, members)
    return tree.text()


def _overview(tree: Tree, trace: Trace) -> None:
    products = trace["products"]
    names = [product["name"] for product in products]
    tree.add("products", f"{len(names)}: {tree.names(names, 6)}")
    tree.add("edited", ", ".join(p["name"] for p in products if p["as_made"] is False))
    tree.lines.append("")
    for members in _groups(trace["records"], full=False):
        kind = (members[0]["spec"] or {}).get("kind", "")
        code, *others = {_code_state(member) for member in members}
        spent = sum(member["cost"]["cpu_s"] for member in members if member["cost"])
        words = [_states(members), "partly other code" if others else code]
        words += [f"{duration(spent)} of CPU"] if spent else []
        tree.add(f"{len(members)}", f"{members[0]['key']} {kind}: {'; '.join(words)}")
    tree.cut = True


def _node(tree: Tree, trace: Trace) -> None:
    what = f"record of {trace['key']}" if trace["kind"] == "record" else trace["kind"]
    tier = f", tier {trace['tier']}" if trace["tier"] else ""
    tree.lines.append(f"{trace['id']}  ({what}{tier})")
    tree.add("file", trace["file"] + ("" if trace["present"] else ", which is not here"))
    sha256 = trace["sha256"] or trace["sha256_in_lineage"] or "unknown"
    tree.add("sha256", sha256[: tree.digits])
    tree.command(trace["command"])
    _facts(tree, [trace], "  ", _shown(tree, trace["spec"] or {}))
    _extra(tree, trace["extra"] or {})
    tree.add("used by", tree.names(trace.get("used_by", ()), 6))
    tree.claims(trace.get("claims", ()))


def _extra(tree: Tree, extra: Mapping[str, Any]) -> None:
    if tree.full:
        for name, value in extra.items():
            tree.add(name, in_words(value))
        return
    tree.add("licence", extra.get("licence"), most=1)
    counts, arrays = ((extra.get(name) or {}).items() for name in ("counts", "arrays"))
    tree.add("records", ", ".join(f"{name} {sum(of.values())}" for name, of in counts))
    shapes = (f"{name} {' x '.join(map(str, of['shape']))}" for name, of in arrays)
    tree.add("arrays", ", ".join(shapes))
    tree.add("weights", _words(extra.get("weights")), most=2)
    tree.cut = True


def _claim(tree: Tree, trace: Trace) -> None:
    row = trace["entry"]
    for label, column in (("says", "statement"), ("place", "place")):
        tree.add(label, row.get(column))
    tree.add("verdict", f"{row['verdict']} ({row.get('kind')}, {row.get('runs') or 0} runs)")
    tree.add("expected", row.get("expected"))
    tree.add("observed", observed_text(row))
    for compared in (row for row in trace["compared"] if row.get("decides") == "1"):
        samples = (" ".join(f"{v:.4g}" for v in sample) for sample in samples_of(compared))
        tree.add("runs", " | ".join(samples), most=3)
    if because := row.get("because"):
        margin = f"; margin {row['margin']}" if row.get("margin") else ""
        tree.add("because", because + margin)
    tree.add("note", row.get("note"), most=2)
    tree.add("parts", tree.verdicts(trace["parts"]))
    tree.command(trace["command"])


def _group(tree: Tree, members: Sequence[Trace]) -> None:
    first, indent = members[0], "    "
    specs = [member["spec"] or {} for member in members]
    names = dict.fromkeys(name for spec in specs for name in spec)
    varying = [n for n in names if len({canonical_json(spec.get(n)) for spec in specs}) > 1]
    common = {name: value for name, value in specs[0].items() if name not in varying}
    count = f"{len(members)} record{'s' * (len(members) > 1)}"
    kind = f", {specs[0]['kind']}" if "kind" in specs[0] else ""
    tree.lines.append(f"  {count} of {first['key']}{kind}: {_states(members)}")
    if not tree.full:
        word = "ids" if len(members) <= NAMED + 1 else "e.g."
        tree.add(word, tree.names([member["id"] for member in members]), indent)
        varied = [
            f"{name} {_some_values(tree, dict.fromkeys(plain(s.get(name)) for s in specs))}"
            for name in varying
            if name not in IN_OTHER_LINES
        ]
        tree.add("varied", "; ".join(varied), indent, most=3)
    _facts(tree, members, indent, _shown(tree, common))
    if tree.full:
        for member, spec in zip(members, specs, strict=True):
            tree.lines.append(f"{indent}{member['id']}  {_states([member])}")
            own = _words({name: spec.get(name) for name in varying})
            tree.add("", own, indent)


def _facts(tree: Tree, members: Sequence[Trace], indent: str, spec: Mapping[str, Any]) -> None:
    """What records were made from and by, each value once. spec: what all of them share."""
    tree.add("spec", _words(spec), indent, most=3)

    def line(label: str, texts: Iterable[str | None], most: int | None = None) -> None:
        distinct = list(dict.fromkeys(filter(None, texts)))
        more = f", and {len(distinct) - 1} more" if len(distinct) > 1 else ""
        if tree.full:
            for text in distinct:
                tree.add(label, text, indent)
        elif distinct:
            tree.cut = tree.cut or bool(more)
            tree.add(label, distinct[0] + more, indent, most)

    line("data", (data_text(member, tree.digits) for member in members))
    for name in ("features", "backbone"):
        line(name, (_upstream(tree, member[name]) for member in members))
    line("code", [_code(members)])
    line("versions", (_words(member["versions"]) for member in members), 2)
    if tree.full or not any(member["cost"] for member in members):
        line("device", (member["device"] for member in members))
    line("seeds", (seeds_text(member["seeds"]) for member in members), 1)
    tree.add("ledger", _ledgers(tree, members), indent, most=1)
    tree.add("cost", cost_text(members), indent)


def _groups(records: Iterable[Trace], full: bool) -> list[list[Trace]]:
    shared = ("code_digest", "data", "features", "backbone", "versions", "device", "seeds")
    groups: dict[str, list[Trace]] = defaultdict(list)
    for record in records:
        facts = [record[name] for name in shared] if full else []
        kind = (record["spec"] or {}).get("kind")
        groups[canonical_json([record["key"], kind, *facts])].append(record)
    return list(groups.values())


def _shown(tree: Tree, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """All settings; or those that do something and stand in no other line."""
    if tree.full:
        return spec
    return {k: v for k, v in spec.items() if v is not None and k not in IN_OTHER_LINES}


def _states(members: Sequence[Trace]) -> str:
    words = {True: "as used", False: "CHANGED since", None: "there"}
    if len(members) == 1 and not members[0]["present"]:
        return f"not here, sha256 {(members[0]['sha256_in_lineage'] or 'unknown')[:SHORT]}"
    counts = Counter(words[m["as_used"]] if m["present"] else "not here" for m in members)
    if len(counts) == 1:
        return next(iter(counts))
    changed = ", ".join(member["id"] for member in members if member["as_used"] is False)
    counted = ", ".join(f"{number} {word}" for word, number in counts.items())
    return counted + (f" ({changed})" if changed else "")


def data_text(trace: Mapping[str, Any], length: int | None = None) -> str | None:
    """The data set of a trace or record and its source, with so many digits of every checksum.

    None where it is not known.
    """
    if data := trace["data"]:
        sha256 = f", sha256 {data['sha256'][:length]}" if data.get("sha256") else ""
        source = source_text(data.get("source") or {}, length)
        return f"{data['name']}{sha256}" + (f", from {source}" if source else "")
    spec = trace["spec"] or {}
    settings, records = spec.get("settings"), spec.get("records")
    # One's own training (`dpatlas.train`).
    if isinstance(settings, Mapping) and isinstance(records, Mapping) and "data" in settings:
        known = str(records.get("data") or "")
        if DIGEST.fullmatch(known):
            return f"{settings['data']}, digest {known[:length]}"
        # A dataset's own text.
        return f"{settings['data']}" + (f", fingerprint {known}" if known else "")
    return NO_DATA_SET if spec and "data" not in spec else None


def source_text(source: Mapping[str, Any], length: int | None = None) -> str:
    """Kind, file and checksum of a data set's source; nothing if it names neither."""
    named = " ".join(str(source[name]) for name in ("kind", "file") if source.get(name))
    algorithm, _, digest = (source.get("checksum") or "").rpartition(":")
    checksum = f" ({algorithm or 'checksum'} {digest[:length]})" if digest else ""
    return named and named + checksum


def _upstream(tree: Tree, source: Mapping[str, Any] | None) -> str | None:
    if not source or "sha256" not in source:
        return None
    words = [source.get("id", ""), f"sha256 {source['sha256'][: tree.digits]}"]
    words += [f"on {source['device']}"] if source.get("device") else []
    words += [source["manifest"]] if tree.full and source.get("manifest") else []
    return ", ".join(words)


def _code(traces: Sequence[Trace]) -> str | None:
    texts: dict[str, None] = {}
    for trace in (trace for trace in traces if trace["code_digest"]):
        text = f"{trace['module']} {trace['code_digest']}, "
        text += _code_state(trace).removeprefix("code ")
        changed = trace["code_now"] and not trace["code_unchanged"]
        texts[text + (f": now {trace['code_now']}" if changed else "")] = None
    if not texts and traces[0]["kind"] == "data":
        return f"{traces[0]['module']}, no digest kept"
    return "; ".join(texts) or None


def _code_state(trace: Trace) -> str:
    changed = "code CHANGED since" if trace["code_now"] else "no such module now"
    return "code as now" if trace["code_unchanged"] else changed


def seeds_text(seeds: Mapping[str, Any] | None) -> str:
    """Numbers and uses before the sentences that say how a seed comes about."""
    return in_words(dict(sorted((seeds or {}).items(), key=lambda item: "(" in str(item[1]))))


def _some_values(tree: Tree, values: Iterable[str]) -> str:
    distinct = [value or "none" for value in values]
    if len(distinct) <= VALUES:
        return " | ".join(distinct)
    tree.cut = True
    return f"{' | '.join(distinct[:NAMED])} | ... ({len(distinct)})"


def _ledgers(tree: Tree, traces: Sequence[Trace]) -> str | None:
    """The guarantees of the ledgers, each once; of one alone in full everything that it says."""
    texts: dict[str, None] = {}
    for ledger in (trace["ledger"] or {} for trace in traces):
        words = dict.fromkeys(("epsilon", "delta", "guaranteed", "claimed"))
        words |= dict.fromkeys(ledger if tree.full and len(traces) == 1 else ())
        given = (f"{w}: {in_words(ledger[w])}" for w in words if ledger.get(w) is not None)
        texts["; ".join(given) or ledger.get("mechanism", "")] = None
    ledgers = list(filter(None, texts))
    if tree.full or len(ledgers) < 2:
        return " | ".join(ledgers) or None
    tree.cut = True
    return f"{len(ledgers)} ledgers, e.g. {ledgers[0]}"


def cost_text(records: Sequence[Mapping[str, Any]]) -> str | None:
    """What the runs of traces or records cost together; None where nothing tells."""
    costs = [record["cost"] for record in records if record["cost"]]
    if not costs:
        return None
    wall, cpu = (duration(sum(cost[name] for cost in costs)) for name in ("wall_s", "cpu_s"))
    peak = max(cost["peak_memory_mb"] for cost in costs)
    devices = ", ".join(dict.fromkeys(cost["device"] for cost in costs))
    return f"wall {wall}, CPU {cpu}, peak memory {peak:.0f} MB, on {devices}"


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


def describe_comparison(result: Mapping[str, Any], full: bool = False) -> str:
    """The comparison `result`; `full` shortens nothing."""
    tree, first, every = Tree(full), result["first_cause"], all_differences(result)

    def of(*what: str) -> list[Difference]:
        return [found for name in what for found in every if found["what"] == name]

    if first is not None:
        tree.line(f"first cause: {_difference(first, full)}")
    elif result["same"]:
        tree.line("no difference: nothing that is known of them differs")
    else:
        gap = max(found["largest_relative"] for found in every)
        words = f"no difference beyond a relative {result['tolerance']:g}"
        tree.line(f"{words}: numbers differ by up to {gap:.2g} of the larger")
    tree.add("old", result["old"])
    tree.add("new", result["new"])
    if result["same"]:
        return tree.text()
    causes = [found for found in every if found["what"] not in RESULTS and found != first]
    tree.section("also differs", [_difference(found, full) for found in causes], MOST_CAUSES)
    if first and first["what"] == UNEXPLAINED:
        tree.section("looked at, and found equal or not known", [ORDER], 1)
    effects = of(*(name for name in RESULTS if name not in ("metrics", "bytes")))
    tree.section("what follows", [_difference(found, full) for found in effects], MOST_CAUSES)
    both = " that both have" * ("records" in result)

    def gap_of(difference: Difference) -> float:
        gap = difference.get("largest_relative")
        return math.inf if gap is None else gap

    # What is not a number, or is there in one only, comes first: it says most.
    ranked = sorted(of("metrics"), key=gap_of, reverse=True)
    none = f"none differs{both and f' in the records{both}'}"
    if result["metrics"] == "unknown":
        none = "not known: a record is not here"
    tree.section("metrics", [_metric(found, full) for found in ranked] or [none], MOST_METRICS)
    files = [f"{found['name']}{_ids(found, full)}{_by(found)}" for found in of("bytes")]
    same = f"every output{both} is the same"
    tree.section("bytes", [f"differ: {tree.names(files, 6)}" if files else same], 1)
    return tree.text()


def _by(difference: Difference) -> str:
    """How far numbers differ; of the files of a figure its csv says it."""
    name, gap = difference["name"], difference.get("largest_relative")
    file = difference["what"] == "bytes" and not name.endswith((".csv", "record.json"))
    return "" if gap is None or file else f" by up to {gap:.2g} of the larger"


def _metric(difference: Difference, full: bool) -> str:
    name, by, pair = difference["name"], _by(difference), _pair(difference, full)
    by = f",{by}" if by else ""
    if difference["values"] == 1:
        return f"{name}: {pair}{by}"
    records = len(difference.get("ids", ()))
    where = f" of {records} records" if records > 1 else ""
    count = f"{difference['changed']} of {difference['values']} values{where} differ{by}"
    return f"{name}: {count}; the first {pair}"


def _difference(difference: Difference, full: bool) -> str:
    text = f"{difference['what']} {difference['name'] or ''}".rstrip()
    if difference["old"] is not None or difference["new"] is not None:
        text += f": {_pair(difference, full)}"
    note = f" ({difference['note']})" if "note" in difference else ""
    return text + _ids(difference, full) + note


def _ids(difference: Difference, full: bool) -> str:
    ids = difference.get("ids", ())
    if len(ids) > NAMED and not full:
        return f" [{len(ids)} records, e.g. {ids[0]}]"
    return f" [{', '.join(ids)}]" if ids else ""


def _pair(difference: Difference, full: bool) -> str:
    """Old and new, as short as they can be told apart."""
    sides = difference["old"], difference["new"]
    texts = [repr(side) if isinstance(side, float) else plain(side) for side in sides]
    if not full:
        if all(isinstance(side, float) for side in sides):
            rounded = [f"{side:.6g}" for side in sides]
            texts = rounded if rounded[0] != rounded[1] else texts
        texts = [text[:SHORT] if DIGEST.fullmatch(text) else text for text in texts]
        texts = [t if len(t) <= LONGEST else f"{t[: LONGEST - 3]}..." for t in texts]
    return " -> ".join(texts)


def _wrapped(text: str, head: str, margin: str) -> list[str]:
    wrapper = textwrap.TextWrapper(WIDTH, initial_indent=head, subsequent_indent=margin)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.wrap(text)


def days(first: str | None, last: str | None) -> str:
    """The days of two times in UTC as words."""
    begun, ended = ("on an unknown day" if time is None else time[:10] for time in (first, last))
    return begun if begun == ended else f"{begun} to {ended}"
