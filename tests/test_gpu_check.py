"""tools/gpu_check.sh: a line and exit code 0 without a GPU, and a rehearsal of every step."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).parents[1]
GPU_PAGE = PROJECT / "docs" / "gpu.md"
SCRIPT = PROJECT / "tools" / "gpu_check.sh"
STEPS = ("tests", "resnet18-batch64", "wrn16-4-batch1000", "kl-width1024", "precision", "panel")
STEPS += ("certificate", "wrn16-4-batch4096")


def run(*words, cwd, **environment):
    return subprocess.run(
        ["sh", str(SCRIPT), *words],
        cwd=cwd,
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_a_line_and_leaves_nothing(tmp_path):
    done = run(cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("gpu_check: no GPU (torch ") and done.stdout.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_interpreter_without_torch_is_named_with_what_it_lacks(tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    done = run(cwd=tmp_path, PYTHON=str(bare))
    assert (done.returncode, done.stderr) == (0, "")
    assert "lacks torch, numpy, scipy; nothing was run" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu",), "found --gpu; allowed: --cpu and one folder"),
        (("one", "two"), "a second folder, two; allowed: one"),
    ],
)
def test_other_words_exit_2_with_one_line(words, said, tmp_path):
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_rehearsal_that_has_no_time_starts_no_step_and_leaves_its_summary(tmp_path):
    done = run("--cpu", "cut", cwd=tmp_path, OUT=str(tmp_path / "out"), SECONDS_IN_ALL="0")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "out" / "cut" / "summary.json").read_text())
    outcomes = {one["step"]: one["outcome"] for one in summary["run"]["steps"]}
    assert outcomes == dict.fromkeys(STEPS, "not started")


@pytest.mark.slow
def test_a_rehearsal_goes_through_every_step(tmp_path):
    done = run("--cpu", cwd=tmp_path)
    folder = tmp_path / "gpu_check"
    log = (folder / "log.txt").read_text()
    assert done.returncode == 0, done.stderr
    assert len(list(folder.iterdir())) <= 8
    summary = json.loads((folder / "summary.json").read_text())
    outcomes = {one["step"]: one["outcome"] for one in summary["run"]["steps"]}
    assert outcomes == dict.fromkeys(STEPS, "done"), log
    assert summary["tests"]["tests"] > 0 == summary["tests"]["failures"]
    raced = {(row["case"], row["candidate"]) for row in summary["ratios"]}
    for case in ("resnet18-batch64", "wrn16-4-batch1000", "width1024", "wrn16-4-batch4096"):
        assert {(case, "plain"), (case, "dpatlas"), (case, "opacus-hooks")} <= raced
    assert ("reparametrisation", "dpatlas") in raced
    assert not [row for row in summary["ratios"] if "left_out" in row]
    (kl,) = summary["precision"]
    # The number of docs/gpu.md, whatever computes it: processors round the last digit otherwise.
    row = re.search(r"^\| largest KL of a record, nats \| (\S+) \|", GPU_PAGE.read_text(), re.M)
    assert kl["cpu"] == pytest.approx(float(row[1]), rel=1e-5)
    first, second = summary["panel"]["rows"]
    # A CPU knows no TF32.
    assert first["kl_max"] == second["kl_max"] and first["kl_max"][0] > 0
    text = (folder / "summary.md").read_text()
    assert "these numbers mean nothing" in text
    assert "no CIFAR-10 was at hand" in text
