"""What can be raced: kernels, their cases and their candidates. No torch: the workers import it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """One contender; `prepare` of the kernel's module builds its step.

    `baseline` names the plain step that uses the same matrix products. `rounds` limits how often
    a slow one runs.
    """

    name: str
    sentence: str
    baseline: str = "plain"
    rounds: int | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel's cases by name (sizes, passed to the worker as JSON) and its candidates.

    `module` offers `prepare(candidate, case) -> (step, scale)`: a callable that does one
    repetition, and the factor from the work it does to the work of the whole case.
    """

    module: str
    sentence: str
    cases: dict[str, dict[str, Any]]
    candidates: tuple[Candidate, ...]


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
}
