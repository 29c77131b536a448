"""The training named by `FILE.py:FUNCTION`, and the claim that stands beside it."""

from dpatlas.audit.claim import Claim
from dpatlas.audit.run import Train
from dpatlas.core.canonical import sha256
from dpatlas.core.scripts import named_function
from dpatlas.errors import InputError

ALLOWED = "FILE.py:FUNCTION, such as mine.py:train"


def load(target: str) -> tuple[Train, Claim, str]:
    """The function, its claim and a digest of the file's text.

    The claim is the function's attribute `claim`, which adapters set, or the file's variable
    `claim`. The file's folder comes first on the path of imports, as if it were run as a script.
    Raises InputError for a file that cannot be loaded, and one without such a function or claim.
    """
    train, module, file = named_function(target, ALLOWED)
    claim = getattr(train, "claim", None) or getattr(module, "claim", None)
    if not isinstance(claim, Claim):
        found = "no claim" if claim is None else f"claim of type {type(claim).__name__}"
        allowed = "claim = Claim(sampler=..., n=..., batch=..., noise=..., steps=..., delta=...)"
        raise InputError(f"script {file}", found, allowed)
    return train, claim, sha256(file.read_bytes())
