"""Errors of several tools in few words, for the tables of docs/models.md and docs/beside.md."""

import re

# Part of a message, and what a table says of it. Of any other message it has the first words.
WHY = {
    "equal size": "unequal sizes",
    "size of tensor": "unequal sizes",
    "size mismatch": "weights of another size",
    "broadcast shape": "shapes do not broadcast",
    "layer with buffers": "layer with buffers",
    "_current_grad_sample": "no `_current_grad_sample`",
    "values to unpack": "too few values",
    "boolean masks": "mask not boolean",
    "required positional": "missing argument",
    "gradient is not initialized": "no per-sample gradient",
    "modified inplace": "view modified in place",
    "called random operation": "random numbers in vmap",
    "expected device": "wrong device",
    "BatchNorm cannot support": "BatchNorm",
    "in-place operation": "in-place write",
    "being vmapped": "tensor escaped vmap",
}
WORDS = 6


def brief(error: str) -> str:
    """`Kind: message` of an error with the reason alone; of an InputError what it found."""
    kind, _, message = error.partition(": ")
    if kind == "InputError":
        return re.split(r"[;:]|, so ", message.partition("found ")[2])[0]
    known = (words for part, words in WHY.items() if part in message)
    return f"{kind}, {next(known, ' '.join(message.split()[:WORDS]))}"
