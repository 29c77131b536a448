"""TF32: which products may take it, that clipping still bounds, and that a CPU never takes it."""

import sys

import emulate_precision
import pytest
import torch
from reference_gradients import NETWORKS, distance, norm_of, records, seeded
from torch.utils._python_dispatch import _disable_current_modes

from dpatlas.errors import InputError
from dpatlas.jobs import job
from dpatlas.models.precision import exact, passes, set_precision
from dpatlas.privacy.logistic import SoftmaxGradients
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config

BACKENDS = torch.backends.cuda.matmul, torch.backends.cudnn


def allowed():
    return [backend.allow_tf32 for backend in BACKENDS]


@pytest.mark.parametrize("name", ["float32", "tf32"])
def test_only_passes_may_take_tf32_and_what_is_exact_within_them_not(name):
    before = set_precision(name)
    try:
        seen = [allowed()]
        with passes():
            seen.append(allowed())
            with exact():
                seen.append(allowed())
            seen.append(allowed())
        seen.append(allowed())
        with pytest.raises(RuntimeError), passes():
            raise RuntimeError
        seen.append(allowed())
    finally:
        set_precision(before)
    inside, outside = [name == "tf32"] * 2, [False] * 2
    assert seen == [outside, inside, outside, inside, outside, outside]
    assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark


@pytest.fixture
def restored():
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def on_cpu():
    parts = torch.backends.mkldnn
    return [parts.matmul.fp32_precision, parts.conv.fp32_precision, parts.rnn.fp32_precision]


@pytest.mark.parametrize("told", ["highest", "high", "medium"])
def test_what_a_script_told_torch_to_round_is_exact_inside_and_as_before_afterwards(told, restored):
    torch.set_float32_matmul_precision(told)
    # Torch's default: convolutions by cuDNN round their factors.
    torch.backends.cudnn.allow_tf32 = True
    before = allowed(), torch.get_float32_matmul_precision(), on_cpu()
    for context in (exact, passes):
        with context():
            assert allowed() == [False, False]
            assert not {"bf16", "tf32"} & set(on_cpu())
        assert (allowed(), torch.get_float32_matmul_precision(), on_cpu()) == before


@pytest.mark.parametrize("kernel", [NetworkGradients, SoftmaxGradients])
def test_nothing_of_a_clipped_sum_is_rounded_by_the_script_s_setting(kernel, restored, monkeypatch):
    module, seen = sys.modules[kernel.__module__], []
    factors = module.clip_factors

    def watched(*given):
        seen.append((allowed(), on_cpu()))
        return factors(*given)

    monkeypatch.setattr(module, "clip_factors", watched)
    torch.set_float32_matmul_precision("medium")
    x = torch.randn(64, 200, generator=torch.Generator().manual_seed(0))
    labels, bound = torch.arange(64) % 10, 0.01
    made = kernel(torch.nn.Linear(200, 10))
    whole = made.clipped_sum(x, labels, bound).gradients
    for record in range(8):
        others = torch.arange(64) != record
        # 1.0014 of the bound on a processor that multiplies bfloat16.
        rest = made.clipped_sum(x[others], labels[others], bound).gradients
        assert distance(whole, rest) <= bound * (1 + 1e-5)
    assert all(flags == [False, False] and "bf16" not in parts for flags, parts in seen) and seen


def largest_share(network, clipping="flat"):
    make, shape = NETWORKS[network]
    model, (x, labels) = seeded(make, dtype=torch.float32), records(shape, dtype=torch.float32)
    kernel = NetworkGradients(model, clipping=clipping)
    # Outside of what emulates rounding, whose operations would be traced.
    with _disable_current_modes():
        kernel.trace(x, labels)
    alone = (kernel.clipped_sum(x[[i]], labels[[i]], 1e-3).gradients for i in range(len(x)))
    return max(map(norm_of, alone)) / 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("clipping", ["flat", "per-layer"])
@pytest.mark.parametrize("network", NETWORKS)
def test_rounded_passes_leave_every_record_s_share_within_the_clip(network, clipping):
    for bits in emulate_precision.BITS.values():
        with emulate_precision.emulated(bits, everywhere=False):
            assert largest_share(network, clipping) <= 1 + 1e-5


@pytest.mark.slow
def test_rounded_norms_and_sums_would_not():
    with emulate_precision.emulated(7, everywhere=True):
        assert max(map(largest_share, NETWORKS)) > 1 + 1e-3


def test_precision_changes_no_id_and_reaches_jobs_on_a_gpu_alone():
    plain, fast = (
        Atlas(load_config(changes={"device": "auto", "precision": precision}))
        for precision in ("float32", "tf32")
    )
    assert list(plain.specs) == list(fast.specs)
    for spec_id in plain.specs:
        device = plain.job(spec_id).device
        assert fast.job(spec_id).device == {"cpu": "cpu", "auto": "auto-tf32"}[device]
    assert (plain.features_device(), fast.features_device()) == ("auto", "auto-tf32")


def test_a_job_sets_its_precision_and_puts_back_what_was():
    with job.numerics("cuda-tf32"), passes():
        assert not torch.is_grad_enabled() and allowed() == [True, True]
    with passes():
        assert allowed() == [False, False]


@pytest.mark.parametrize(
    ("gpu", "name", "found"),
    [
        (False, "auto-tf32", "cpu"),
        (True, "auto-tf32", "cuda-tf32"),
        (True, "cuda-tf32", "cuda-tf32"),
        (True, "auto", "cuda"),
    ],
)
def test_a_job_says_on_what_and_how_it_ran_and_never_tf32_on_a_cpu(monkeypatch, gpu, name, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert job.resolve_device(name) == found
    assert job.torch_device(found) == found.removesuffix("-tf32")
    with pytest.raises(InputError, match="device: found 'cpu-tf32'"):
        job.resolve_device("cpu-tf32")
