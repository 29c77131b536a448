"""A trace as a short tree for people; what many records share is said once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpatlas.core.canonical import canonical_json
from dpatlas.report.lineage import Trace

SHORT = 12
NO_DATA_SET = "no data set"
SHARED = ("module", "code_digest", "data", "features", "versions", "device", "seeds")
IN_OTHER_LINES = ("key", "kind", "data", "seed", "noise_source")


def describe(trace: Trace) -> str:
    """The tree: the product or record, then its records in groups that share their facts."""
    if trace["kind"] == "record":
        lines = [f"{trace['id']}  (record of {trace['key']}, tier {trace['tier']})"]
        lines += _labelled(
            [
                ("file", f"{trace['file']}, sha256 {_short(trace['sha256'])}"),
                ("re-make", trace["command"]),
                *_shared_lines(trace),
                ("spec", _words(trace["spec"], without=IN_OTHER_LINES)),
                ("privacy", _privacy([trace["ledger"]])),
                ("cost", _cost([trace])),
            ]
        )
        return "\n".join(lines)
    lines = [f"{trace['name']}  ({trace['kind']}, tier {trace['tier']})"]
    state = {True: "as made", False: "CHANGED since it was made", None: "its lineage"}
    lines += _labelled(
        [
            ("file", f"{trace['file']}, {state[trace['as_made']]}"),
            ("re-make", trace["command"]),
            ("code", _code(trace)),
            ("settings", _words(trace["settings"])),
            ("versions", _words(trace["versions"])),
        ]
    )
    for members in _groups(trace["records"]):
        lines += ["", *_group_lines(members)]
    return "\n".join(lines)


def _group_lines(members: Sequence[Trace]) -> list[str]:
    first = members[0]
    count = "1 record" if len(members) == 1 else f"{len(members)} records"
    specs = [member["spec"] or {} for member in members]
    names = dict.fromkeys(name for spec in specs for name in spec)
    varying = [name for name in names if len({_key(spec.get(name)) for spec in specs}) > 1]
    common = {name: value for name, value in specs[0].items() if name not in varying}
    kinds = "" if "kind" in varying or "kind" not in common else f", {common['kind']}"
    lines = [f"  {count} of {first['key']}{kinds}"]
    lines += _labelled(
        [
            *_shared_lines(first),
            ("spec", _words(common, without=IN_OTHER_LINES)),
            ("privacy", _privacy([member["ledger"] for member in members])),
            ("cost", _cost(members)),
        ],
        indent="    ",
    )
    width = max(len(member["id"]) for member in members)
    for member, spec in zip(members, specs, strict=True):
        own = _words({name: spec.get(name) for name in varying}, without=("key", "data"))
        lines.append(f"    {member['id']:<{width}}  {_state(member)}  {own}".rstrip())
    return lines


def _groups(records: Iterable[Trace]) -> list[list[Trace]]:
    groups: dict[str, list[Trace]] = {}
    for record in records:
        kind = (record["spec"] or {}).get("kind")
        key = _key([kind, *(record[name] for name in SHARED)])
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def _shared_lines(record: Trace) -> list[tuple[str, str | None]]:
    return [
        ("data", _data(record)),
        ("features", _features(record)),
        ("code", _code(record)),
        ("versions", _words(record["versions"])),
        ("device", record["device"]),
        ("seeds", _words(record["seeds"])),
    ]


def _labelled(pairs: Iterable[tuple[str, str | None]], indent: str = "  ") -> list[str]:
    return [f"{indent}{label:<10}{text}" for label, text in pairs if text]


def _data(record: Trace) -> str | None:
    data = record["data"]
    if data is None:
        # Without a spec nothing is known; a spec that names no data set has none.
        return NO_DATA_SET if record["spec"] and "data" not in record["spec"] else None
    source = data.get("source") or {}
    named = " ".join(str(source[name]) for name in ("kind", "file") if source.get(name))
    checksum = f" ({_short(source['checksum'], 20)})" if source.get("checksum") else ""
    return f"{data['name']}, sha256 {_short(data['sha256'])}, from {named}{checksum}"


def _features(record: Trace) -> str | None:
    found = record["features"]
    return found and f"{found['manifest']}, sha256 {_short(found['sha256'])}, on {found['device']}"


def _code(trace: Trace) -> str | None:
    if trace["code_digest"] is None:
        return None
    if trace["code_unchanged"]:
        now = "the same on disk now"
    elif trace["code_now"] is None:
        now = "no such module now"
    else:
        now = f"on disk now {trace['code_now']}: CHANGED"
    return f"{trace['module']} {trace['code_digest']}, {now}"


def _privacy(ledgers: Sequence[Mapping[str, Any] | None]) -> str | None:
    texts = {}
    for ledger in ledgers:
        given = [
            f"{word}: {in_words(value)}"
            for word in ("epsilon", "delta", "guaranteed", "claimed")
            if (value := (ledger or {}).get(word)) is not None
        ]
        texts["; ".join(given) or (ledger or {}).get("mechanism", "")] = None
    return " | ".join(filter(None, texts))


def _cost(records: Sequence[Trace]) -> str | None:
    costs = [record["cost"] for record in records if record["cost"]]
    if not costs:
        return None
    wall, cpu = (sum(cost[name] for cost in costs) for name in ("wall_s", "cpu_s"))
    peak = max(cost["peak_memory_mb"] for cost in costs)
    return f"wall {duration(wall)}, CPU {duration(cpu)}, peak memory {peak:.0f} MB"


def _state(record: Trace) -> str:
    if not record["present"]:
        return f"not here, sha256 {_short(record['sha256_in_lineage'])}"
    words = {True: "as used", False: "CHANGED since", None: ""}
    return words[record["as_used"]]


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best: `8.1 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _words(values: Mapping[str, Any] | None, without: Sequence[str] = ()) -> str:
    shown = {name: value for name, value in (values or {}).items() if name not in without}
    return ", ".join(f"{name} {plain(value)}" for name, value in shown.items())


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


def _key(value: Any) -> str:
    return canonical_json(value)


def _short(digest: str | None, length: int = SHORT) -> str:
    return (digest or "unknown")[:length]
