"""What all specs of a run share."""

from collections.abc import Mapping
from typing import Any

from dpatlas.base.specs import FIRST_RUN, RUNS, Spec
from dpatlas.errors import InputError
from dpatlas_workflow.config.root import General


def run_spec(config: General, key: str, kind: str, fields: Mapping[str, Any], name: str) -> Spec:
    """The spec of one job of the block `key`, with the run's base seed and source of noise."""
    common = {
        "key": key,
        "kind": kind,
        "seed": config.seed,
        "noise_source": config.noise_source,
    }
    return Spec.of({**common, **fields}, name)


def run_blocks(
    config: General,
    key: str,
    kind: str,
    fields: Mapping[str, Any],
    name: str,
    runs: int,
    runs_per_job: int,
) -> list[Spec]:
    """The specs of one condition, each a block of at most `runs_per_job` of its runs.

    fields: of the condition, without `first_run` and `runs`. A block is named `NAME-runFIRST`. More
    runs, by the config or by `config.more_runs`, are more blocks of the same size, so that earlier
    ones keep their ids.

    Raises InputError unless `runs` is at most `runs_per_job` or a multiple of it.
    """
    size = min(runs, runs_per_job)
    if runs % size:
        found = f"{runs} with runs_per_job {runs_per_job}"
        allowed = "at most runs_per_job, or a multiple of it"
        raise InputError(f"{key}: runs of {name}", found, allowed)

    def block(first: int) -> Spec:
        of_block = {**fields, FIRST_RUN: first, RUNS: size}
        return run_spec(config, key, kind, of_block, f"{name}-run{first}")

    needed = max(runs, config.more_runs.get(block(0).condition, 0))
    return [block(first) for first in range(0, needed, size)]
