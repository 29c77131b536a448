"""What lp_fft compares: strategies, the parts that they train, and which of them go together."""

from collections.abc import Sequence

from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.records.private import FULL, HEAD, LORA, Part

# What is trained, phase by phase. The controls lp-lp and fft-fft have a second rate too, and
# nothing else.
STRATEGIES: dict[str, tuple[Part, ...]] = {
    "lp": (HEAD,),
    "fft": (FULL,),
    "lora": (LORA,),
    "lp-fft": (HEAD, FULL),
    "lp-lora": (HEAD, LORA),
    "lp-lp": (HEAD, HEAD),
    "fft-fft": (FULL, FULL),
}
# Which strategy trains a part from beginning to end: a first phase takes its rate.
ALONE: dict[Part, str] = {HEAD: "lp", FULL: "fft", LORA: "lora"}


def check_rank(where: str, strategies: Sequence[str], rank: int | None) -> None:
    """InputError, naming `where`, for LoRA without a rank, and for FFT beside LoRA's branches."""
    refused, needed = (LORA, "a lora_rank") if rank is None else (FULL, "no lora_rank")
    for name in strategies:
        if refused in STRATEGIES[name]:
            raise InputError(where, name, f"{needed} with it")
