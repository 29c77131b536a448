"""A private step asks nothing of the device: the host never waits for it.

On a GPU torch itself refuses to wait (`set_sync_debug_mode`). Without one, the step is run on the
CPU as a GPU would run it, and every way to read a tensor from Python is counted.
"""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from small_training import N, data, flat, network, phase, training, weights
from torch import Tensor

from dpatlas.accounting.samplers import FixedSize
from dpatlas.base.seeds import Noise
from dpatlas.formulas.kl_privacy.theorems import kl_step
from dpatlas.models.mlp import initial_weights
from dpatlas.privacy import clipping
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.kl import noisy_step, record_gaps, squared_row_norms
from dpatlas.privacy.langevin import Langevin, LangevinRun, bound_records
from dpatlas_workflow.papers.kl_privacy.jobs.training import noise_draws

READS = ("item", "tolist", "cpu", "nonzero", "__bool__", "__float__", "__int__")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@contextmanager
def reads():
    """The list of reads of tensors from Python within."""
    seen = []

    def watched(name, real):
        def read(tensor, *arguments, **named):
            seen.append(name)
            return real(tensor, *arguments, **named)

        return read

    with pytest.MonkeyPatch.context() as patch:
        for name in READS:
            patch.setattr(Tensor, name, watched(name, getattr(Tensor, name)))
        yield seen


@contextmanager
def no_wait():
    """Within, torch raises where the host would wait for the GPU."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def private_run(model="small-cnn-t", device="cpu", poison=None, **changes):
    x, labels = data()
    if poison is not None:
        x[3] = poison
    options = {name: changes.pop(name) for name in ("augmentation", "ema_decay") if name in changes}
    records = x.to(device), labels.to(device)
    run = training([phase(**changes)], network(model).to(device), None, records, **options)
    # The first step of a phase probes the network.
    run.step()
    return run


RUNS = {
    "linear": {"model": "linear"},
    "mlp": {"model": "mlp"},
    "cnn": {},
    "per layer": {"clipping": "per-layer"},
    "chunks": {"max_physical_batch": 2},
    "views": {"augmentation": ShiftAndFlip((1, 8, 8), 2, 1, True), "ema_decay": 0.9},
    "adam": {"optimizer": "adam"},
    "momentum": {"momentum": 0.9, "weight_decay": 0.1},
    "nan": {"poison": torch.nan},
}


@pytest.mark.parametrize("name", RUNS)
def test_whether_the_host_looks_changes_nothing_but_rounding(name, monkeypatch):
    found = []
    for look in (True, False):
        monkeypatch.setattr(clipping, "may_look", lambda values, look=look: look)
        run = private_run(**RUNS[name])
        for _ in range(4):
            run.step()
        found.append((flat(weights(run.model)), run.skipped_records))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    assert found[0][1] == found[1][1]
    assert (found[0][1] > 0) == (name == "nan")


def kl_problem(device="cpu"):
    draws = np.random.default_rng(3)
    drawn = initial_weights("he", 13, 9, 3, 2, key="test", run=0, base_seed=0)
    layers = [torch.from_numpy(weight).to(device) for weight in drawn]
    x = torch.from_numpy(draws.standard_normal((30, 13)).astype(np.float32)).to(device)
    labels = torch.from_numpy(draws.integers(0, 2, 30)).to(device)
    return layers, x, labels, torch.zeros(3, 30, dtype=torch.float64, device=device)


def kl_steps(layers, x, labels, kl):
    size = sum(weight.numel() for weight in layers)
    norm2 = squared_row_norms(x)
    for step in range(1, 3):
        gaps = record_gaps(layers, x, labels, 20, norm2)
        kl[step] = kl[step - 1] + kl_step(0.1, 0.01, gaps.squared_gaps())
        draws = noise_draws(Noise("digest", "keyed"), size, 0, step, x.device.type)
        noisy_step(layers, gaps.gradient, draws, 0.1, 0.1)


def kl_run(device="cpu"):
    problem = kl_problem(device)
    # The first products choose their kernels.
    kl_steps(*problem)
    return lambda: kl_steps(*problem), lambda: bool((problem[3][2] > 0).all())


def langevin_steps(device="cpu"):
    x, labels = data()
    settings = Langevin(FixedSize(N, 6), 0.1, 0.05, 0.02, (0.3,) * 4)
    options = {"noise": Noise("digest", "keyed"), "repetition": 0}
    run = LangevinRun(settings, bound_records(x, 1.0).x.to(device), labels.to(device), 5, **options)
    run.step()
    return run.step, lambda: bool(run.weights.isfinite().all())


def steps_of(name):
    """A function of the device: a step that has been taken once, and what must hold after it."""
    if name in RUNS:

        def private(device="cpu"):
            run = private_run(device=device, **RUNS[name])
            return run.step, lambda: run.skipped_records >= 0

        return private
    return {"kl": kl_run, "langevin": langevin_steps}[name]


STEPS = [*RUNS, "kl", "langevin"]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_reads_no_tensor(name, monkeypatch):
    monkeypatch.setattr(clipping, "may_look", lambda values: False)
    step, holds = steps_of(name)()
    with reads() as seen:
        step()
    assert seen == [] and holds()


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("name", STEPS)
def test_a_gpu_never_waits_in_a_step(name):
    step, holds = steps_of(name)("cuda")
    with no_wait():
        step()
    assert holds()
