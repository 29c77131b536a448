"""`python -m dpatlas audit`: attack our own private mechanisms, here and now."""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import json
from collections.abc import Sequence
from typing import Any

from dpatlas.checks.audit.settings import MECHANISMS, Settings, mechanism_spec
from dpatlas.config.load import load_config
from dpatlas.core.guard import integer, real
from dpatlas.core.specs import Spec
from dpatlas.errors import ArgumentParser, InputError, RunError

SHARE = real(gt=0, lt=1)


def main(arguments: Sequence[str]) -> int:
    """Print the table of attacks; RunError, exit code 1, if a guarantee is contradicted."""
    config = load_config()
    block: Settings = config.audit
    parser = ArgumentParser(prog="dpatlas audit", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--mechanism", action="append", metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=block.runs,
        help="runs on each neighbour, of Langevin SGD 2 to 6 times as many (%(default)s)",
    )
    parser.add_argument(
        "--delta", type=float, default=block.delta, help="of the bounds (%(default)s)"
    )
    parser.add_argument(
        "--level", type=float, default=block.level, help="confidence of bounds (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    options = parser.parse_args(arguments)
    integer(ge=2).check("--runs", options.runs)
    SHARE.check("--delta", options.delta)
    SHARE.check("--level", options.level)
    names = list(dict.fromkeys(options.mechanism or MECHANISMS))
    for name in names:
        if name not in MECHANISMS:
            raise InputError("--mechanism", repr(name), "one of " + ", ".join(MECHANISMS))
    levels = (options.level, max(options.level, block.verdict_level))
    seeds = config.plain("seed", "noise_source")
    specs = [mechanism_spec(seeds, name, options.runs, options.delta, *levels) for name in names]
    found = attack(specs)
    print(json.dumps(found, indent=1, allow_nan=False) if options.json else table(found))
    bad = [each["spec"]["mechanism"] for each in found if each["metrics"]["contradicted"]]
    if bad:
        raise RunError(f"the guarantee is contradicted by an attack on {', '.join(bad)}")
    return 0


def attack(specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """Id, spec, metrics and ledger of each, as in the record that a rule would write."""
    import torch

    from dpatlas.checks.audit.jobs.dispatch import mechanism

    torch.set_num_threads(1)
    with torch.no_grad():
        return [{"id": spec.id, "spec": spec.fields, **mechanism(spec)} for spec in specs]


def table(found: Sequence[dict[str, Any]]) -> str:
    """The rows for a reader, as Markdown."""
    from dpatlas.checks.audit.figures.audit import attacks_part, mechanism_row
    from dpatlas.show.tables import to_markdown

    note = "an attack that finds nothing proves nothing"
    return to_markdown([attacks_part([mechanism_row(each) for each in found])], note)
