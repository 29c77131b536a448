"""The strategies that lp_fft compares: which part of the network each of their phases trains."""

from collections.abc import Sequence

from dpatlas.errors import InputError
from dpatlas_workflow.papers.lp_fft.records.private import FULL, HEAD, LORA, Part

# The part trained in each phase. The controls lp-lp and fft-fft change the learning rate between
# the phases as lp-fft does, and nothing else.
STRATEGIES: dict[str, tuple[Part, ...]] = {
    "lp": (HEAD,),
    "fft": (FULL,),
    "lora": (LORA,),
    "lp-fft": (HEAD, FULL),
    "lp-lora": (HEAD, LORA),
    "lp-lp": (HEAD, HEAD),
    "fft-fft": (FULL, FULL),
}
# The strategy that trains a part in all steps: a first phase takes the rate tuned for it.
ALONE: dict[Part, str] = {HEAD: "lp", FULL: "fft", LORA: "lora"}


def check_rank(where: str, strategies: Sequence[str], rank: int | None) -> None:
    """Raise InputError, naming `where`, for LoRA without a rank and for FFT with one."""
    refused, needed = (LORA, "a lora_rank") if rank is None else (FULL, "no lora_rank")
    for name in strategies:
        if refused in STRATEGIES[name]:
            raise InputError(where, name, f"{needed} with it")
