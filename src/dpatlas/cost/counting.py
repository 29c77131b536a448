"""The counts of work from which the cost model estimates the time of a job.

Each feature counts one kind of work, and `rates` has seconds per unit of it:

    products     floating-point operations of float32 matrix products
    layers       passes through a layer, each with a fixed overhead
    steps        updates or other calls, each with a fixed overhead
    elements     activations that are read and written
    normals      N(0, 1) draws
    dense        float64 operations of factorisations and matrix products
    streamed     float64 entries read by matrix-vector products
    accountings  values of epsilon from steps on a sample of records
    starts       starts of the interpreter with torch
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

FEATURES = (
    "products",
    "layers",
    "steps",
    "elements",
    "normals",
    "dense",
    "streamed",
    "accountings",
    "starts",
)
# Bytes of a line in an indented JSON list of floats, and of a record without such lists.
BYTES_PER_NUMBER = 24
RECORD_BYTES = 6_000


@dataclass(frozen=True)
class Size:
    """Numbers of training records, of records to add, and of inputs of a data set."""

    n_train: int
    n_add: int
    inputs: int

    @property
    def records(self) -> int:
        """Number of records that a step may use."""
        return self.n_train + self.n_add


NO_DATA = Size(0, 0, 0)


@dataclass(frozen=True)
class Work:
    """Counts by feature; sizes in bytes of the record, and of checkpoints while the job runs."""

    counts: Mapping[str, float]
    record_bytes: float
    checkpoint_bytes: float = 0.0


class Backbone(Protocol):
    """The network of a public backbone's spec, trained here or imported."""

    @property
    def kind(self) -> str:
        """Kind of the job that makes it."""

    @property
    def model(self) -> str:
        """Name of the network."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Arguments of the network's builder."""


@dataclass(frozen=True)
class JobCost:
    """The cost of a kind of job; its functions take specs as objects of the kind's `Spec` class.

    work: from a spec, the size of its data set, and the spec of its backbone (None without one).
    memory_mb: peak memory of a job in MB. lower: keys of the block of the config that lower it,
    those that change no result first. gpu: whether the work runs on a GPU where there is one.
    takes_features: whether a job reads features of a frozen backbone.
    """

    work: Callable[[Any, Size, Any], Work]
    memory_mb: Callable[[Any], int]
    lower: tuple[str, ...]
    gpu: bool = False
    takes_features: Callable[[Any], bool] = lambda fields: False
