"""What the cost model counts of a job.

Counts are what costs time, each with a unit that has a rate: `products` floating-point operations
of float32 matrix products; `layers` and `steps` visits, each with a fixed overhead; `elements`
activations swept over; `normals` N(0, 1) draws; `resamples` record values resampled by the
bootstrap; `dense` float64 operations of factorisations and products; `streamed` float64 entries
read by matrix-vector products; `accountings` values of epsilon from steps on a sample of records;
`starts` how often the interpreter and torch start.
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
    "resamples",
    "dense",
    "streamed",
    "accountings",
    "starts",
)
# A line of an indented JSON list of floats, in bytes.
BYTES_PER_NUMBER = 24
RECORD_BYTES = 6_000


@dataclass(frozen=True)
class Size:
    """Training records, records to add and inputs of a data set."""

    n_train: int
    n_add: int
    inputs: int

    @property
    def records(self) -> int:
        """All records that a step looks at."""
        return self.n_train + self.n_add


NO_DATA = Size(0, 0, 0)


@dataclass(frozen=True)
class Work:
    """Counts by feature; size of the record and of checkpoints while it runs, in bytes."""

    counts: Mapping[str, float]
    record_bytes: float
    checkpoint_bytes: float = 0.0


class Backbone(Protocol):
    """What the spec of a public backbone says of its network, trained here or imported."""

    @property
    def kind(self) -> str:
        """Of the job that makes it."""

    @property
    def model(self) -> str:
        """Name of the network."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Of the network's builder."""


@dataclass(frozen=True)
class JobCost:
    """What a kind of job costs; its functions take specs as the class of the kind has them.

    work: of a spec, the size of its data set, and the spec of its backbone, None without one.

    memory_mb: peak of a job, in MB. lower: keys of the block of the config that
    lower it, one that changes no result first. gpu: whether the work moves to a GPU where one is.
    takes_features: whether a job is given features of a frozen backbone.
    """

    work: Callable[[Any, Size, Any], Work]
    memory_mb: Callable[[Any], int]
    lower: tuple[str, ...]
    gpu: bool = False
    takes_features: Callable[[Any], bool] = lambda fields: False
