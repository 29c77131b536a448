"""The outcomes of a paper's tunings as one file: `python -m dpatlas_workflow.report.tuned`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from dpatlas.base.files import read_json, write_atomic
from dpatlas.base.records import read_record
from dpatlas.errors import ArgumentParser, run_command


def outcome(path: Path) -> tuple[str, dict[str, Any]]:
    """Id of a tuning and its outcome, from its record and what it cost."""
    record, cost = read_record(path), read_json(path.with_name("cost.json"))
    rows = record["metrics"]["rows"]
    arms = {
        row["arm"]: {
            "chosen": row["chosen"],
            "epsilon": row["trials_epsilon"],
            "tried": [
                {"settings": each["settings"], "score": round(fmean(each["scores"]), 6)}
                for each in row["tried"]
            ],
        }
        for row in rows
    }
    trials = sum(len(each["scores"]) for row in rows for each in row["tried"])
    return record["id"], {
        "code": record["code_digest"],
        "finished": cost["finished"],
        "processor": cost["processor"],
        "trials": trials,
        "arms": arms,
    }


class _OnOneLine(dict[str, Any]):
    """A mapping that YAML writes in a line."""


class _Dumper(yaml.SafeDumper):
    """With that mapping."""


_Dumper.add_representer(
    _OnOneLine,
    lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True),
)


def text_of(outcomes: Mapping[str, Mapping[str, Any]]) -> str:
    """Outcomes as YAML, by id; a line for each point of a grid."""
    content = {name: dict(outcomes[name]) for name in sorted(outcomes)}
    for each in content.values():
        each["arms"] = {
            name: {**arm, "tried": [_OnOneLine(point) for point in arm["tried"]]}
            for name, arm in each["arms"].items()
        }
    return yaml.dump(
        {"tuned": content}, Dumper=_Dumper, default_flow_style=None, sort_keys=False, width=200
    )


def main(arguments: Sequence[str]) -> int:
    """Write the outcomes of the tunings with these records."""
    parser = ArgumentParser(prog="python -m dpatlas_workflow.report.tuned", description=__doc__)
    parser.add_argument("--records", required=True, nargs="+", type=Path, help="of tunings")
    parser.add_argument("--output", required=True, type=Path, help="YAML file to write")
    options = parser.parse_args(arguments)
    write_atomic(options.output, text_of(dict(map(outcome, options.records))))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
