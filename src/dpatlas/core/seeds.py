"""Named seeds and counter-based noise.

Seeds come from named axes, so that common random numbers are a choice one can read:
`seed("kl_privacy", run=3, layer=0, use="init")` is shared by every condition that names the same
axes. Noise is keyed by (spec, repetition, step, use): a resumed run draws nothing twice, and no
generator state has to be stored.
"""

import os
from typing import Any

import numpy as np

from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.guard import checked, one_of

KEY_BITS = 128


def seed(key: str, *, use: str, **axes: Any) -> int:
    """A 128-bit seed for the named axes; equal axes give equal seeds, in any order.

    `key` is a paper's key and `use` what the numbers are for. The Philox generator takes all 128
    bits (a 32-bit seed, which is what a Mersenne twister keeps, would collide).
    """
    text = canonical_json({"key": key, "use": use, "axes": axes})
    return int(sha256(f"seed {text}")[: KEY_BITS // 4], 16)


def generator(bits: int) -> np.random.Generator:
    """A generator whose stream is a function of the 128-bit key alone."""
    return np.random.Generator(np.random.Philox(key=bits))


class Noise:
    """Random numbers of one spec: Gaussian noise, batches, augmentations.

    `source="keyed"` derives every draw from (spec digest, repetition, step, use).
    `source="os"` derives them from a secret that the operating system gives at the start: nobody
    can subtract the noise, and nobody can repeat the run. The secret goes into checkpoints, so that
    a resumed run keeps its batches, and nowhere else.
    """

    @checked(source=one_of("keyed", "os"))
    def __init__(self, spec_digest: str, source: str = "keyed"):
        self.source = source
        self.secret = os.urandom(KEY_BITS // 8).hex() if source == "os" else None
        self._root = self.secret or spec_digest

    def carry(self, secret: str | None) -> None:
        """Go on with the secret that a checkpoint kept; None where the noise is keyed."""
        if secret is not None:
            self.source, self.secret, self._root = "os", secret, secret

    def key(self, repetition: int, step: int, use: str) -> int:
        """The 128-bit key of one draw."""
        text = canonical_json([self._root, repetition, step, use])
        return int(sha256(f"noise {text}")[: KEY_BITS // 4], 16)

    def generator(self, *, repetition: int, step: int, use: str) -> np.random.Generator:
        """The generator of one draw."""
        return generator(self.key(repetition, step, use))

    def normal(self, size: int, *, repetition: int, step: int, use: str) -> np.ndarray:
        """`size` independent N(0, 1) draws, float32."""
        draws = self.generator(repetition=repetition, step=step, use=use)
        return draws.standard_normal(size, dtype=np.float32)
