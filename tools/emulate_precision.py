"""What TF32 and bfloat16 do to KL values, clipped shares and a certificate, emulated on a CPU.

    python tools/emulate_precision.py

Factors of products are rounded to 10 or 7 bits after the point and added up in float32, as tensor
cores do: in passes through networks, which is what `precision: tf32` does, or in all products,
which the engine never does. Prints the table of docs/gpu.md in a minute or two.
"""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from dpatlas.base.seeds import Noise, generator
from dpatlas.certify.risk import risk_on_records
from dpatlas.formulas.kl_privacy.theorems import kl_step
from dpatlas.formulas.max_information.certificates import kl_inverse
from dpatlas.models.build import build
from dpatlas.models.mean_field import flat_values
from dpatlas.models.mlp import initial_weights
from dpatlas.models.precision import set_precision
from dpatlas.privacy.kl import noisy_step, record_gaps
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas_workflow.papers.max_information.jobs.posteriors import (
    PosteriorTraining,
    TrainingSettings,
)

# Bits after the point; float32 keeps 23.
BITS = {"TF32": 10, "bfloat16": 7}
PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
    torch.ops.mkldnn._linear_pointwise.default,
}
MAX_GRAD_NORM = 0.1


class Rounded(TorchDispatchMode):
    """Within, factors of products are rounded to `bits`: all, or those where a GPU may use TF32."""

    def __init__(self, bits: int, everywhere: bool):
        super().__init__()
        self.bits, self.everywhere = bits, everywhere

    def __torch_dispatch__(self, function, types, given=(), named=None):
        """Round what a product is given, but for what is added to it."""
        inside = self.everywhere or torch.backends.cuda.matmul.allow_tf32
        if function in PRODUCTS and inside:
            added = function is torch.ops.aten.addmm.default
            given = [
                value if place == 0 and added else rounded(value, self.bits)
                for place, value in enumerate(given)
            ]
        return function(*given, **(named or {}))


def rounded(value: object, bits: int) -> object:
    """A float32 tensor with so many bits after the point, to nearest; all else as it is."""
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        return value
    mantissa, exponent = torch.frexp(value)
    scale = 2.0 ** (bits + 1)
    return torch.ldexp((mantissa * scale).round_() / scale, exponent)


@contextmanager
def emulated(bits: int | None, everywhere: bool) -> Iterator[None]:
    """Full float32 for None."""
    if bits is None:
        yield
        return
    before = set_precision("tf32")
    try:
        with Rounded(bits, everywhere):
            yield
    finally:
        set_precision(before)


def digits(norm: float) -> tuple[Tensor, Tensor]:
    """All digits, each record of that norm."""
    bunch = load_digits()
    x = torch.from_numpy(bunch.data.astype(np.float32))
    return norm * x / x.norm(dim=1, keepdim=True), torch.from_numpy(bunch.target)


def worst_kl(dtype: torch.dtype = torch.float32, device: str = "cpu") -> float:
    """The largest KL of a record after 100 noisy steps of an MLP; nats."""
    x, labels = digits(8.0)
    chosen = (labels == 3) | (labels == 8)
    x, labels = x[chosen].to(device, dtype), (labels[chosen] == 8).long().to(device)
    eta, sigma, noise = 1e-3, 0.01, Noise("emulated", "keyed")
    drawn = initial_weights("he", 64, 256, 5, 2, key="emulated", run=0, base_seed=0)
    weights = [torch.from_numpy(weight).to(device, dtype) for weight in drawn]
    size = sum(weight.numel() for weight in weights)
    total = torch.zeros(len(x), dtype=torch.float64, device=device)
    for step in range(100):
        gaps = record_gaps(weights, x, labels, 300)
        total += kl_step(eta, sigma**2, gaps.squared_gaps())
        draws = torch.from_numpy(noise.normal(size, repetition=0, step=step, use="step"))
        noisy_step(weights, gaps.gradient, draws.to(device), eta, sigma)
    return float(total.max())


def largest_share(model: str, device: str = "cpu") -> float:
    """The longest clipped gradient of 24 random records, each alone, over C.

    Accounting takes 1. A record that is made up for it could do worse where norms are inexact.
    """
    draws = generator(7)
    shape = (1, 8, 8) if model != "resnet18" else (3, 32, 32)
    network = build(model, shape, 10, key="emulated", run=0, base_seed=0).to(device)
    x = torch.from_numpy(draws.standard_normal((24, math.prod(shape)), dtype=np.float32)).to(device)
    labels = torch.from_numpy(draws.integers(0, 10, 24)).to(device)
    kernel = NetworkGradients(network)
    with _disable_current_modes():
        # What rounds is no part of the network.
        kernel.trace(x, labels)
    shares = []
    for record in range(len(x)):
        one = slice(record, record + 1)
        found = kernel.clipped_sum(x[one], labels[one], MAX_GRAD_NORM).gradients.values()
        norm2 = sum(float(gradient.double().square().sum()) for gradient in found)
        shares.append(math.sqrt(norm2) / MAX_GRAD_NORM)
    return max(shares)


def certificate(device: str = "cpu") -> float:
    """A bound on the risk of a posterior that was trained and judged in this precision."""
    x, labels = (part.to(device) for part in digits(1.0))
    network = build("mlp", (1, 8, 8), 10, key="emulated", run=0, base_seed=0, widths=[100])
    network = network.to(device)
    settings = TrainingSettings("fclassic", "per-class", 0.4, 0.95, 250, 60, kl_penalty=0.1)
    noise, n = Noise("emulated", "keyed"), len(x)
    centre, extra = flat_values(network), math.log(2 * math.sqrt(n) / 0.05)
    training = PosteriorTraining(
        network, centre[None], [0.2], x, labels, settings, extras=[extra],
        noise=noise, repetition=0,
    )  # fmt: skip
    (posterior,) = training.run()
    pairs = risk_on_records(posterior, x, labels, 20_000, noise=noise)
    (errors,) = pairs.run()
    return float(kl_inverse(errors / pairs.pairs, (posterior.kl(centre, 0.2) + extra) / n))


MEASURED: dict[str, Callable[[], float]] = {
    "largest KL of a record (nats)": worst_kl,
    "largest share / C, small-cnn-s": lambda: largest_share("small-cnn-s"),
    "largest share / C, resnet18": lambda: largest_share("resnet18"),
    "certificate of a risk": certificate,
}


def main() -> None:
    """One line per number and precision."""
    torch.set_num_threads(1)
    print(f"largest KL of a record (nats), float64 throughout: {worst_kl(torch.float64):.8f}")
    for name, measure in MEASURED.items():
        reference = measure()
        print(f"{name}, float32: {reference:.8f}")
        for precision, bits in BITS.items():
            for everywhere in (False, True):
                with emulated(bits, everywhere):
                    found = measure()
                place = "in all products" if everywhere else "in passes"
                change = found / reference - 1
                print(f"{name}, {precision} {place}: {found:.8f} ({change:+.1e})", flush=True)


if __name__ == "__main__":
    main()
