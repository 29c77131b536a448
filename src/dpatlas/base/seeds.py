"""Named seeds and counter-based noise.

Seeds come from named axes, so that common random numbers are visible in the code:
`seed("kl_privacy", run=3, layer=0, use="init")` is shared by every condition that names the same
axes. Noise is keyed by (root, repetition, step, use): a resumed run draws nothing twice, and no
generator state has to be stored.

Within `recording()`, every stream is listed when it is first drawn from.
"""

import functools
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.guard import checked, one_of
from dpatlas.errors import InputError

KEY_BITS = 128
_made = threading.local()
# The JSON of a text, as `canonical_json` gives it.
_quoted = functools.lru_cache(maxsize=4096)(canonical_json)
# Statement in every ledger of trainings that share their noise under a name.
SHARED_NOISE = (
    "noise shared by several trainings ({name}): only one of them may be released; each guarantee "
    "is for one alone, nothing may be chosen among them, and all together have none"
)


class Streams:
    """The set of random streams that were drawn from."""

    def __init__(self) -> None:
        self._noted: set[tuple[str, str]] = set()

    def note(self, kind: str, name: str) -> None:
        """Add one stream: its kind ("named", "keyed", "os" or "shared_noise") and its use."""
        self._noted.add((kind, name))

    def stored(self) -> list[list[str]]:
        """The streams as a checkpoint stores them for `add`."""
        return sorted(map(list, self._noted))

    def add(self, stored: Iterable[Iterable[str]]) -> None:
        """Add the streams that an interrupted attempt drew from."""
        self._noted.update((kind, name) for kind, name in stored)

    def facts(self) -> dict[str, list[str]]:
        """Sorted uses by kind, for a record; kinds without any are left out."""
        kinds = sorted({kind for kind, _ in self._noted})
        return {kind: sorted(n for k, n in self._noted if k == kind) for kind in kinds}


_recorders: list[Streams] = []


@contextmanager
def recording() -> Iterator[Streams]:
    """The streams that this process draws from within the context."""
    streams = Streams()
    _recorders.append(streams)
    try:
        yield streams
    finally:
        _recorders.remove(streams)


def note_stream(kind: str, name: str) -> None:
    """Note a stream in every recording; to be called for draws by other means than this module."""
    for streams in _recorders:
        streams.note(kind, name)


def seed(key: str, *, use: str, **axes: Any) -> int:
    """A 128-bit seed for the named axes; equal axes give equal seeds, in any order.

    `key` is a paper's key and `use` what the numbers are for. The Philox generator takes all 128
    bits (a 32-bit seed, which is what a Mersenne twister keeps, would collide).
    """
    note_stream("named", f"{use} ({', '.join([key, *sorted(axes)])})")
    text = canonical_json({"key": key, "use": use, "axes": axes})
    return int(sha256(f"seed {text}")[: KEY_BITS // 4], 16)


def generator(bits: int) -> np.random.Generator:
    """A generator whose stream is a function of the 128-bit key alone."""
    return np.random.Generator(np.random.Philox(key=bits))


def reused(bits: int) -> np.random.Generator:
    """The `generator` of this key, to be drawn from before the next call in this thread.

    To make one takes as long as 1,000 normals, to set one a tenth of that.
    """
    if not hasattr(_made, "draws"):
        _made.draws, _made.start = (made := generator(0)), made.bit_generator.state
    _made.start["state"]["key"][:] = bits % 2**64, bits // 2**64
    _made.draws.bit_generator.state = _made.start
    draws: np.random.Generator = _made.draws
    return draws


def permutation(bits: int, count: int) -> np.ndarray:
    """A permutation of range(count) that is a function of the 128-bit key alone, int64.

    It sorts raw generator output, the one part of numpy's generators that is fixed for all
    versions.
    """
    return np.argsort(generator(bits).bit_generator.random_raw(count), kind="stable")


# Which training drew noise of (root, repetition) in this process, under which shared name, and
# some number of its noisy sum at each step.
_claims: dict[tuple[str, int], tuple[str, str | None, dict[int, Any]]] = {}
# Noisy sums are the same if such a number differs by less of the noise, and of itself.
SAME_NOISE, SAME_SUM = 1e-3, 1e-5


class Noise:
    """Random numbers of one root: Gaussian noise, batches, augmentations.

    `source="os"` derives every draw from a secret that the operating system gives at the start:
    nobody can subtract the noise, and nobody can repeat the run. The secret goes into checkpoints,
    so that a resumed run keeps its batches, and nowhere else; `root` is then a name alone.
    `source="keyed"` derives them from (root, repetition, step, use): runs can be repeated, and
    whoever knows or guesses the root can subtract the noise.
    """

    @checked(source=one_of("keyed", "os"))
    def __init__(self, root: str = "", source: str = "os"):
        if source == "keyed" and not root:
            raise InputError("root", repr(root), "a text that keys the noise, as its source is")
        self.source = source
        self.secret = os.urandom(KEY_BITS // 8).hex() if source == "os" else None
        self._root = self.secret or root
        self._process = os.getpid()

    @property
    def name(self) -> str:
        """Identifies the noise in a saved state, without revealing the root."""
        return sha256(f"name {self._root}")[: KEY_BITS // 4]

    def carry(self, secret: str | None) -> None:
        """Go on with the secret from a checkpoint; None where the noise is keyed.

        Raises InputError for a checkpoint of the other source, and for another secret once a
        training has drawn: its sums stay released, and others may go on from this object.
        """
        if (secret is None) != (self.source == "keyed"):
            stored = "keyed noise" if secret is None else "noise of the operating system"
            allowed = f"one with source={self.source!r}"
            raise InputError("checkpoint", f"a run with {stored}", allowed)
        if secret is not None:
            if secret != self.secret and any(root == self._root for root, _ in _claims):
                found = "a run of another secret, after noise of this one was drawn"
                allowed = "its own Noise(), and a training made with it"
                raise InputError("checkpoint", found, allowed)
            self.secret = self._root = secret
        self._process = os.getpid()

    def claim(self, repetition: int, training: str, shared: str | None = None) -> None:
        """Take the noise of `repetition` for the training with this fingerprint.

        The outputs of two trainings with the same noise would differ by exactly the difference of
        their clean sums. The same training may claim it again, to go on after an interruption or to
        repeat its bits. Different trainings may share it if all name the same `shared`;
        `SHARED_NOISE` says what that costs. Raises InputError for noise that another training
        claimed in this process, and for a secret that came from another process but not by a
        checkpoint: what others drew from it there is not known here.
        """
        if self.source == "os":
            self.check_process()
        self._process = os.getpid()
        first, name, _ = _claims.setdefault((self._root, repetition), (training, shared, {}))
        if (first, name) != (training, shared) and (shared is None or name != shared):
            found = f"repetition {repetition} of noise that another training has drawn"
            own = "a Noise or a repetition of its own"
            raise InputError("noise", found, f"{own}, or in both trainings the same shared_noise")
        if shared is not None:
            note_stream("shared_noise", shared)

    def added(self, repetition: int, step: int, number: Any, scale: float) -> None:
        """InputError if the noise of this step was added to another sum before, in this process.

        number: a projection of the noisy sum, real or complex, a tensor too. scale: of the noise in
        it. Trainings that share their noise by name may differ.
        """
        self.check_process()
        _, shared, numbers = _claims.get((self._root, repetition), ("", None, {}))
        before = numbers.setdefault(step, number)
        if shared is not None or before is number:
            return
        one, other = complex(before), complex(number)
        if abs(one - other) > SAME_NOISE * scale + SAME_SUM * abs(one):
            found = f"that of step {step}, which was added to another sum before"
            allowed = "the same training to the bit, or a Noise or a repetition of its own"
            raise InputError("noise", found, allowed)

    def check_process(self) -> None:
        """InputError in another process than the one that made, restored or claimed this noise.

        After a fork, or in what was pickled, each would draw the same.
        """
        if self._process != os.getpid():
            of = "the operating system" if self.source == "os" else "a root"
            found = f"noise of {of} from process {self._process}"
            raise InputError("noise", found, "a Noise made in each process, or a checkpoint's")

    def key(self, repetition: int, step: int, use: str, part: str = "") -> int:
        """The 128-bit key of one draw, or of the part of it that `part` names."""
        note_stream(self.source, use)
        # The canonical JSON of these values.
        end = f",{canonical_json(part)}]" if part else "]"
        text = f"[{_quoted(self._root)},{repetition:d},{step:d},{_quoted(use)}{end}"
        return int(sha256(f"noise {text}")[: KEY_BITS // 4], 16)

    def generator(
        self, *, repetition: int, step: int, use: str, part: str = ""
    ) -> np.random.Generator:
        """The generator of one draw, or of a part of it."""
        return generator(self.key(repetition, step, use, part))

    def reused(self, *, repetition: int, step: int, use: str) -> np.random.Generator:
        """The generator of one draw, to be drawn from before the next one is asked for."""
        return reused(self.key(repetition, step, use))

    def normal(self, size: int, *, repetition: int, step: int, use: str) -> np.ndarray:
        """`size` independent N(0, 1) draws, float64: numpy's ziggurat, as in `privacy.noise`."""
        return self.reused(repetition=repetition, step=step, use=use).standard_normal(size)
