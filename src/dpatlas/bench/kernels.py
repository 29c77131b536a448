"""What can be raced: kernels, their cases and their candidates. No torch: the workers import it."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """One candidate; `prepare` of the kernel's module builds its step.

    `baseline` names the plain step that uses the same matrix products. `rounds` limits how often a
    slow candidate runs; `not_in` names the cases for which a CPU has too little memory.
    """

    name: str
    sentence: str
    baseline: str = "plain"
    rounds: int | None = None
    not_in: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """A kernel's cases by name (sizes, passed to the worker as JSON) and its candidates.

    `module` has `prepare(candidate, case) -> (step, scale)`: a callable that does one repetition,
    and the factor from its work to the work of the whole case. The worker adds `device` to a case.
    `gpu_cases`: further cases, of sizes that a GPU is for.
    """

    module: str
    sentence: str
    cases: dict[str, dict[str, Any]]
    candidates: tuple[Candidate, ...]
    gpu_cases: dict[str, dict[str, Any]] = field(default_factory=dict)

    def cases_on(self, device: str) -> dict[str, dict[str, Any]]:
        """All cases by name that may run on the device, in order."""
        cases = self.cases if device == "cpu" else {**self.cases, **self.gpu_cases}
        return {name: {**case, "device": device} for name, case in cases.items()}

    def candidates_on(self, device: str, case: str) -> tuple[Candidate, ...]:
        """The candidates of the case, in order. On a GPU all try: who lacks memory is left out."""
        return tuple(one for one in self.candidates if device != "cpu" or case not in one.not_in)


def _kl_case(width: int, chunk: int, peer_records: int) -> dict[str, Any]:
    return {
        "width": width,
        "depth": 10,
        "inputs": 3072,
        "outputs": 2,
        "n_train": 2000,
        "n_add": 400,
        # Peers materialise per-record gradients: `chunk` of them at a time, about 1 GB, over the
        # first `peer_records` records only, because the whole case would take them minutes.
        "chunk": chunk,
        "peer_records": peer_records,
    }


# Noise and clip bound of every private step.
MECHANISM = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}


def _network_case(
    model: str,
    batch: int,
    shape: tuple[int, ...] = (3, 32, 32),
    steps: int = 1,
    max_physical_batch: int | None = None,
) -> dict[str, Any]:
    sizes = {"image_shape": list(shape), "classes": 10, "batch": batch}
    chunks = {"max_physical_batch": max_physical_batch}
    return {"model": model, **sizes, **chunks, "steps": steps, **MECHANISM}


def _sequence_case(batch: int, **shape: Any) -> dict[str, Any]:
    return {**shape, "classes": 10, "batch": batch, "steps": 2, **MECHANISM}


def _small_case(model: str) -> dict[str, Any]:
    # As lp_fft trains them. Single steps, of milliseconds, would time the machine's pauses.
    return _network_case(model, 256, (1, 8, 8), steps=50)


# A step takes a fifth of a millisecond, less than the resolution of the CPU clock.
LOGISTIC = _network_case("linear", 512, (512,), steps=200)
POISSON = {"sampler": "poisson", "records": 50_000}


def _certificate_case(plain: str) -> dict[str, Any]:
    sizes = {"inputs": 784, "widths": [600, 600, 600], "classes": 10, "records": 20_000}
    return {"plain": plain, **sizes, "deviation": 0.04, "pairs": 10_000, "sampled": 20}


# Per-record gradients of 11 million parameters: 2.9 GB for 64 records, and copies of them.
LARGEST = ("resnet18-batch64",)
# Opacus refuses torch's attention and has one of its own.
REFUSED_BY_OPACUS = (*LARGEST, "encoder-batch32")

KERNELS = {
    "kl": Kernel(
        module="dpatlas.bench.kl",
        sentence="mean gradient and every record's squared gradient gap (remove and add)",
        cases={
            "width256": _kl_case(256, chunk=160, peer_records=320),
            "width1024": _kl_case(1024, chunk=20, peer_records=60),
        },
        candidates=(
            Candidate("plain", "autograd step with our product routine; gradients only"),
            Candidate("dpatlas", "our kernel: the gradients and all gaps"),
            Candidate("plain-torch", "autograd step with torch's products", "plain-torch"),
            Candidate("dpatlas-torch", "our kernel with torch's products", "plain-torch"),
            Candidate("opacus-hooks", "GradSampleModule by chunks", "plain-torch", rounds=3),
            Candidate("vmap", "torch.func vmap(grad) by chunks", "plain-torch", rounds=3),
        ),
    ),
    "logistic": Kernel(
        module="dpatlas.bench.networks",
        sentence="one step of softmax regression, on a given batch or with Poisson sampling",
        cases={"step": LOGISTIC, "step-poisson": {**LOGISTIC, **POISSON}},
        candidates=(
            Candidate("plain", "autograd step with SGD; step-poisson: on our sampler's batches"),
            Candidate("dpatlas", "our private training loop: clip, noise, SGD"),
            Candidate("opacus-hooks", "GradSampleModule and DPOptimizer, batches as plain"),
            Candidate("opacus-ghost", "Opacus' ghost clipping, batches as plain"),
        ),
    ),
    "conv": Kernel(
        module="dpatlas.bench.networks",
        sentence="one step of a convolutional network or transformer on images, signals or words",
        cases={
            "smallcnn-t-batch256": _small_case("small-cnn-t"),
            "smallcnn-xs-batch256": _small_case("small-cnn-xs"),
            "smallcnn-batch64": _network_case("bench-cnn", 64),
            "resnet18-batch16": _network_case("resnet18", 16),
            "resnet18-batch64": _network_case("resnet18", 64),
            "wrn16-4-batch32": _network_case("wrn16-4", 32),
            "vit-batch32": _network_case("vit-tiny", 32),
            "encoder-batch32": _sequence_case(32, words=64),
            "signals-batch64": _sequence_case(64, signals=[16, 256]),
        },
        gpu_cases={
            "resnet18-batch256": _network_case("resnet18", 256),
            "wrn16-4-batch1000": _network_case("wrn16-4", 1000),
            # Ours in four parts, as max_physical_batch would have it; the others at once.
            "wrn16-4-batch4096": _network_case("wrn16-4", 4096, max_physical_batch=1024),
        },
        candidates=(
            Candidate("plain", "autograd step with SGD"),
            Candidate("dpatlas", "our private training loop: clip, noise, SGD"),
            Candidate(
                "opacus-hooks",
                "GradSampleModule and DPOptimizer",
                rounds=3,
                not_in=REFUSED_BY_OPACUS,
            ),
            Candidate("opacus-ghost", "Opacus' ghost clipping", rounds=3, not_in=REFUSED_BY_OPACUS),
            Candidate("vmap", "torch.func vmap(grad), clip, noise, SGD", rounds=3, not_in=LARGEST),
        ),
    ),
    "certificate": Kernel(
        module="dpatlas.bench.certificate",
        sentence="errors of a randomised 784-600-600-600-10 network on (record, weights) pairs",
        cases={
            "reparametrisation": _certificate_case("a batch"),
            "weight-sampling": _certificate_case("single records"),
        },
        candidates=(
            Candidate("plain", "forward passes of single records; reparametrisation: in batches"),
            Candidate("dpatlas", "our counts, as the case says: outputs or weights are drawn"),
            Candidate(
                "weight-sampling", "all weights drawn for every pair", not_in=("weight-sampling",)
            ),
        ),
    ),
}
