"""What ends a job early says so in one line: a time limit, and memory that runs out."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from small_jobs import arguments

from dpatlas.base.specs import Spec
from dpatlas.errors import InputError, RunError, run_command
from dpatlas_workflow.config.load import read_config
from dpatlas_workflow.registry import all_blocks
from dpatlas_workflow.run import limits
from dpatlas_workflow.run.command import main
from dpatlas_workflow.run.limits import TIME_LIMIT, limited

SPEC = Spec.of({"key": "lp_fft", "kind": "strategies"}, "small")


def keys_below(block):
    """Every key in a block of the config, however deep."""
    if isinstance(block, dict):
        return set(block).union(*map(keys_below, block.values()))
    return set().union(*map(keys_below, block)) if isinstance(block, list) else set()


@pytest.mark.parametrize("block", all_blocks().values(), ids=lambda block: block.key)
def test_every_kind_names_keys_of_the_config_that_lower_its_memory(block):
    known = keys_below(read_config()[block.key])
    assert set(block.load("cost").KINDS) <= set(block.kinds)
    for cost in filter(None, map(block.cost, block.kinds)):
        assert cost.lower
        for name in cost.lower:
            assert set(name.split(".")) <= known, name


def test_what_an_earlier_attempt_left_is_told_with_the_way_out(
    training_spec, data_folder, tmp_path, capsys
):
    spec = training_spec(steps=2, runs=1)
    words = arguments(spec, data_folder / "manifest.json", tmp_path)
    assert run_command(main, words) == 0
    assert "earlier attempt" not in capsys.readouterr().err
    (tmp_path / "checkpoints" / spec.id).mkdir(parents=True)
    assert run_command(main, words) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "earlier attempt" in line]
    assert len(told) == 1 and "lower width or data.n_train" in told[0]


LIMITED = """
import resource, sys, time
import numpy as np
from pathlib import Path
from dpatlas_workflow.blocks import Block
from dpatlas.base.specs import Spec
from dpatlas.errors import run_command
from dpatlas_workflow.run.limits import limited

def main(arguments):
    with limited(Spec.parse(arguments[0]), Path("no-checkpoints")):
        {body}

sys.exit(run_command(main, sys.argv[1:]))
"""


def in_a_process(body, minutes="", spec=SPEC):
    """Exit code and lines on stderr of a process that runs `body` within the limits."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.format(body=body), spec.argument],
        env={**os.environ, TIME_LIMIT: minutes},
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    "body", ["exec('while True: pass')", "__import__('threading').Event().wait()"]
)
def test_a_job_that_hangs_is_ended_with_the_name_of_the_limit(body):
    code, (line,) = in_a_process(body, "0.01")
    assert code == 1
    assert line.startswith(f"dpatlas: {SPEC.id}: stopped at ") and TIME_LIMIT in line
    assert "0.01 minutes" in line and "goes on from the last checkpoint" in line


def test_a_job_that_is_done_in_time_is_left_alone():
    assert in_a_process("time.sleep(0.1)", "5") == (0, [])


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_that_is_none_is_bad_input(minutes, monkeypatch):
    monkeypatch.setenv(TIME_LIMIT, minutes)
    with pytest.raises(InputError, match=TIME_LIMIT):
        limits.time_limit()


GPU = pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(lambda: np.empty((1 << 45, 1 << 10)), id="numpy"),
        pytest.param(lambda: torch.empty(1 << 55), id="torch"),
        pytest.param(lambda: bytearray(1 << 60), id="python"),
        pytest.param(lambda: torch.empty(1 << 50, device="cuda"), id="gpu", marks=GPU),
    ],
)
def test_memory_that_runs_out_names_the_key_to_lower(action, tmp_path):
    message = f"^{SPEC.id}: out of memory; lower max_physical_batch or .*{limits.RESUMES}"
    with pytest.raises(RunError, match=message), limited(SPEC, tmp_path / "none"):
        action()
    with pytest.raises(RuntimeError, match="shapes"), limited(SPEC, tmp_path / "none"):
        raise RuntimeError("shapes cannot be multiplied")


def test_a_job_under_a_limit_of_address_space_says_what_to_lower():
    spec = Spec.of({"key": "kl_privacy", "kind": "training"}, "wide")
    gigabyte = "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))"
    code, lines = in_a_process(f"{gigabyte}; np.ones(1 << 29)", spec=spec)
    assert code == 1
    assert lines == [
        f"dpatlas: {spec.id}: out of memory; lower width or data.n_train in the config's block "
        "kl_privacy; a re-run goes on from the last checkpoint"
    ]
