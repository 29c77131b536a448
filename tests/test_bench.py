import dataclasses
import json
import os
import subprocess
import sys

import pytest
import torch

from dpatlas.bench import certificate, conv, kl, logistic, steps, worker
from dpatlas.bench.kernels import KERNELS, Candidate
from dpatlas.bench.race import race
from dpatlas.cli import dispatch
from dpatlas.commands import bench
from dpatlas.errors import InputError, RunError, run_command
from dpatlas.models.build import NAMES
from dpatlas.papers.max_information.jobs import risk as maxinf_risk

KL = KERNELS["kl"]
CERTIFICATE = {
    "plain": "a batch",
    "inputs": 12,
    "widths": [9],
    "classes": 3,
    "records": 50,
    "deviation": 0.3,
    "pairs": 40,
    "sampled": 5,
}
TINY = {
    "width": 8,
    "depth": 3,
    "inputs": 12,
    "outputs": 2,
    "n_train": 20,
    "n_add": 4,
    "chunk": 5,
    "peer_records": 24,
}
FAST = KL.candidates[:4]
QUIET = {"noise_multiplier": 0.0, "steps": 2}
REGRESSION = {"records": 40, "features": 60, "classes": 10, "batch": 12, **QUIET}
NETWORK = {"image_shape": [1, 8, 8], "classes": 3, "batch": 4, **QUIET}
# Bounds near the median norm at the start, so that some records are clipped and some are not.
TINY_STEPS = {
    "given batch": (logistic, {**REGRESSION, "sampler": "full-batch", "max_grad_norm": 7.5}),
    "poisson": (logistic, {**REGRESSION, "sampler": "poisson", "max_grad_norm": 7.5}),
    "convolutions": (conv, {**NETWORK, "model": "small-cnn-t", "max_grad_norm": 3.5}),
    "transformer": (conv, {**NETWORK, "model": "vit-tiny", "max_grad_norm": 50.0}),
}
PRIVATE = ["dpatlas", "opacus-hooks", "opacus-ghost", "vmap"]


def _steps(candidates, case):
    return {candidate.name: kl.prepare(candidate.name, case)[0]() for candidate in candidates}


@pytest.fixture(autouse=True)
def products_threshold(monkeypatch):
    # A worker lives in its own process and may change the threshold; a test puts it back.
    monkeypatch.setattr(kl.products, "LARGE", kl.products.LARGE)


def test_every_candidate_that_reports_gaps_reports_the_same_ones():
    found = _steps(KL.candidates, TINY)
    ours = found["dpatlas"]
    assert ours.shape == (24,)
    assert (ours > 0).all()
    for name in ("dpatlas-torch", "opacus-hooks", "vmap"):
        torch.testing.assert_close(found[name].double(), ours, rtol=1e-4, atol=0)


@pytest.mark.parametrize("sizes", [TINY, {**TINY, "width": 256, "inputs": 1100, "n_train": 300}])
def test_both_plain_steps_compute_the_gradient_of_the_mean_loss(sizes):
    found = _steps([KL.candidates[0], KL.candidates[2]], sizes)
    weights, x, labels = kl._problem(sizes)
    kernel = kl.record_gaps(weights, x, labels, len(x)).gradient
    for gradients in found.values():
        for plain, ours in zip(gradients, kernel, strict=True):
            assert (plain - ours).norm() <= 1e-4 * ours.norm()


@pytest.mark.skipif(not kl.products.onednn_available(), reason="torch without oneDNN")
def test_plain_uses_the_kernels_product_routine_and_torch_candidates_do_not(monkeypatch):
    calls = []
    routine = torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(
        torch.ops.mkldnn,
        "_linear_pointwise",
        lambda *arguments: calls.append(1) or routine(*arguments),
        raising=False,
    )
    large = {**TINY, "width": 256, "inputs": 1100, "n_train": 2000}
    counts = {}
    for candidate in FAST:
        calls.clear()
        kl.prepare(candidate.name, large)[0]()
        counts[candidate.name] = len(calls)
    # Forward through two large layers, backward through one; the kernel's inner products besides.
    assert counts == {"plain": 3, "dpatlas": 5, "plain-torch": 0, "dpatlas-torch": 0}


@pytest.mark.parametrize("name", KL.cases)
def test_a_peers_time_is_scaled_to_all_records(name):
    case = KL.cases[name]
    records = case["n_train"] + case["n_add"]
    assert case["peer_records"] % case["chunk"] == 0
    small = {**TINY, "peer_records": 10}
    assert kl.prepare("vmap", small)[1] == 24 / 10
    assert kl.prepare("dpatlas", small)[1] == 1
    assert case["peer_records"] <= records


def _weights(candidate, module, case):
    torch.manual_seed(0)
    return torch.cat([value.detach().flatten() for value in module.prepare(candidate, case)[0]()])


@pytest.mark.parametrize(("module", "case"), TINY_STEPS.values(), ids=TINY_STEPS)
def test_without_noise_all_private_candidates_reach_the_same_weights(module, case):
    before = _weights("dpatlas", module, case | {"steps": 1})
    ours, *others = [_weights(candidate, module, case) for candidate in PRIVATE]
    moved = (ours - before).norm()
    assert moved > 0
    for other in others:
        assert (other - ours).norm() < 1e-3 * moved


@pytest.mark.parametrize("name", ["given batch", "convolutions"])
def test_with_a_loose_clip_a_private_step_is_the_plain_one(name):
    module, case = TINY_STEPS[name]
    before = _weights("plain", module, case | {"steps": 1})
    plain = _weights("plain", module, case)
    loose, tight = (
        _weights("dpatlas", module, case | {"max_grad_norm": bound}) for bound in (1e3, 0.1)
    )
    assert (plain - loose).norm() < 1e-3 * (plain - before).norm()
    assert (plain - tight).norm() > 0.5 * (plain - before).norm()


@pytest.mark.parametrize("candidate", PRIVATE)
@pytest.mark.parametrize("name", ["poisson", "convolutions"])
def test_every_private_candidate_adds_the_same_amount_of_noise(name, candidate):
    module, case = TINY_STEPS[name]
    loud = case | {"noise_multiplier": 100.0}
    noise = _weights(candidate, module, loud) - _weights(candidate, module, case)
    # Set-up takes a step besides the two that are timed.
    expected = steps.LEARNING_RATE * 100 * case["max_grad_norm"] / case["batch"] * 3**0.5
    assert float(noise.std()) == pytest.approx(expected, rel=0.15)


def test_time_is_given_per_step():
    module, case = TINY_STEPS["given batch"]
    assert module.prepare("plain", case)[1] == 1 / 2


def test_steps_hold_no_gradients_between_them():
    module, case = TINY_STEPS["convolutions"]
    for candidate in ["plain", *PRIVATE]:
        parameters = module.prepare(candidate, case)[0]()
        kept = [getattr(p, name, None) for p in parameters for name in ("grad", "grad_sample")]
        assert all(value is None for value in kept), candidate


@pytest.mark.parametrize(
    ("plain", "candidate", "counted", "scale"),
    [
        ("a batch", "plain", 40, 1),
        ("single records", "plain", 5, 8),
        ("a batch", "weight-sampling", 5, 8),
    ],
)
def test_a_certificate_s_time_is_that_of_all_pairs(plain, candidate, counted, scale, monkeypatch):
    seen = []

    class Counting(maxinf_risk.PairErrors):
        def run(self):
            seen.append(self.pairs)
            return super().run()

    monkeypatch.setattr(maxinf_risk, "PairErrors", Counting)
    step, found = certificate.prepare(candidate, {**CERTIFICATE, "plain": plain})
    passed = step()
    assert (seen or [passed]) == [counted]
    assert found == scale


def test_both_ways_to_count_errors_agree():
    case = {**CERTIFICATE, "pairs": 4000, "sampled": 4000}
    ours, by_sampling = (
        certificate.prepare(candidate, case)[0]() / 4000
        for candidate in ("dpatlas", "weight-sampling")
    )
    # Five standard errors of a difference of two shares.
    assert abs(ours - by_sampling) < 5 * (2 * 0.25 / 4000) ** 0.5


def test_the_documented_cases_are_there():
    assert list(KERNELS["logistic"].cases) == ["step", "step-poisson"]
    assert list(KERNELS["conv"].cases) == [
        "smallcnn-batch64",
        "resnet18-batch16",
        "resnet18-batch64",
        "wrn16-4-batch32",
        "vit-batch32",
    ]
    assert {case["model"] for case in KERNELS["conv"].cases.values()} <= set(NAMES)
    assert list(KERNELS["certificate"].cases) == ["reparametrisation", "weight-sampling"]


@pytest.mark.parametrize("kernel", ["logistic", "conv"])
def test_candidates_stay_out_of_cases_that_exist_only(kernel):
    for candidate in KERNELS[kernel].candidates:
        assert set(candidate.not_in) <= set(KERNELS[kernel].cases)
        assert candidate.name == "dpatlas" or candidate.name in steps.UPDATES


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("kl", TINY),
        pytest.param("logistic", TINY_STEPS["poisson"][1], marks=pytest.mark.slow),
        ("conv", TINY_STEPS["convolutions"][1]),
        pytest.param("certificate", CERTIFICATE, marks=pytest.mark.slow),
    ],
)
def test_the_documented_json_comes_out_of_one_round(name, case, monkeypatch, capsys):
    absent = Candidate("opacus-hooks", "too large for this case", not_in=("tiny",))
    candidates = (*KERNELS[name].candidates[:2], absent)
    kernel = dataclasses.replace(KERNELS[name], cases={"tiny": case}, candidates=candidates)
    monkeypatch.setitem(bench.KERNELS, name, kernel)
    assert dispatch(["bench", name, "--json", "--repeats", "1", "--case", "tiny"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["kernel"] == name
    rows = {row["candidate"]: row for row in result["cases"]}
    assert list(rows) == ["plain", "dpatlas"]
    for row in rows.values():
        assert row["case"] == "tiny"
        ratio = row["time_ratio"]
        assert ratio["min"] == ratio["median"] == ratio["max"] > 0
        assert row["memory_ratio"] is None or row["memory_ratio"] >= 0
    assert rows["plain"]["time_ratio"]["median"] == 1
    assert "2/2" in printed.err


FAKE = """
import time

clock = [0.0]
time.process_time = lambda: clock[0]

def prepare(candidate, case):
    if candidate == "broken":
        raise KeyError("nothing\\nhere")

    def step():
        memory = bytearray(case["megabytes"][candidate] * 2**20)
        clock[0] += case["seconds"][candidate]
        print("libraries may print", len(memory))

    return step, case.get("scale", {}).get(candidate, 1.0)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A kernel module whose clock and memory do exactly what the case says."""
    (tmp_path / "fake_kernel.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return {
        "seconds": {"plain": 0.02, "dpatlas": 0.03, "plain-torch": 0.06},
        "megabytes": {"plain": 50, "dpatlas": 100, "plain-torch": 50},
    }


def _fake_race(case, candidates, repeats=3):
    return race("fake_kernel", "tiny", case, candidates, repeats)


def test_ratios_of_time_are_to_plain_and_to_the_same_products(fake):
    plain, ours, other = _fake_race(
        fake,
        [
            Candidate("plain", "-"),
            Candidate("dpatlas", "-", baseline="plain-torch"),
            Candidate("plain-torch", "-", baseline="plain-torch"),
        ],
    )
    assert plain["time_ratio"] == {"median": 1, "min": 1, "max": 1}
    assert ours["time_ratio"]["median"] == pytest.approx(1.5)
    assert ours["time_ratio_same_products"]["median"] == pytest.approx(0.5)
    assert other["time_ratio"]["median"] == pytest.approx(3)
    assert other["time_ratio_same_products"]["median"] == 1


@pytest.mark.skipif(not worker.STATUS.exists(), reason="no /proc")
def test_the_ratio_of_memory_is_to_plain(fake):
    plain, ours = _fake_race(fake, [Candidate("plain", "-"), Candidate("dpatlas", "-")])
    assert ours["memory_ratio"] == pytest.approx(2, rel=0.2)
    assert plain["memory_mb"] == pytest.approx(50, rel=0.2)


def test_a_candidate_that_does_a_share_of_the_work_is_scaled_up(fake):
    case = {**fake, "scale": {"dpatlas": 4}}
    _, ours = _fake_race(case, [Candidate("plain", "-"), Candidate("dpatlas", "-")])
    assert ours["time_ratio"]["median"] == pytest.approx(6)


def test_rounds_of_slow_candidates_are_limited(fake):
    limited = [Candidate("plain", "-"), Candidate("dpatlas", "-", rounds=1)]
    plain, ours = _fake_race(fake, limited)
    assert (plain["rounds"], ours["rounds"]) == (3, 1)
    assert ours["time_ratio"]["min"] == ours["time_ratio"]["max"]


def test_a_candidate_that_dies_is_named_in_one_line_and_nobody_stays_behind(fake):
    candidates = [Candidate("plain", "-"), Candidate("broken", "-")]
    with pytest.raises(RunError, match="candidate broken failed: KeyError") as caught:
        _fake_race(fake, candidates)
    assert "\n" not in str(caught.value)
    children = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True
    ).stdout
    assert "dpatlas.bench.worker" not in children


def test_the_table_shows_both_ratios_with_their_spread():
    ratio = {"median": 1.234, "min": 1.1, "max": 1.5}
    same = {"median": 0.87, "min": 0.8, "max": 0.9}
    row = {"case": "width256", "candidate": "dpatlas", "time_ratio": ratio, "rounds": 3}
    row |= {"time_ratio_same_products": same, "memory_ratio": None, "cpu_s": 1.0, "memory_mb": 2.0}
    text = bench.table(KL, [row])
    assert "1.23 [1.1, 1.5]" in text
    assert "0.87 [0.8, 0.9]" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "kernel"),
        (["convolution"], "allowed: one of kl"),
        (["kl", "--repeats", "0"], "allowed: a whole number >= 1"),
        (["kl", "--repeats", "many"], "many"),
        (["kl", "--case", "width257"], "allowed: one of width256, width1024"),
        (["kl", "--fast"], "--fast"),
        (["kl", "width256"], "width256"),
    ],
)
def test_bad_arguments_exit_2_with_one_line(arguments, said, capsys):
    assert run_command(dispatch, ["bench", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert said in printed.err


def test_arguments_are_refused_before_any_worker_starts(monkeypatch):
    monkeypatch.setattr(bench, "race", lambda *arguments: pytest.fail("a race began"))
    with pytest.raises(InputError):
        bench.main(["kl", "--case", "width256", "--case", "nowhere"])


@pytest.mark.skipif(not worker.STATUS.exists(), reason="no /proc")
def test_memory_is_the_peak_since_set_up():
    code = """
import dpatlas.bench.worker as worker
early = bytearray(200 * 2**20)
del early
worker.give_freed_memory_back()
worker.forget_peak()
before = worker.resident_bytes("VmRSS")
late = bytearray(50 * 2**20)
del late
print((worker.resident_bytes("VmHWM") - before) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 45 < float(done.stdout) < 60


def test_the_parent_needs_no_torch():
    code = "import sys, dpatlas.commands.bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
