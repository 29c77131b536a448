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
from typing import Any

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


@dataclass(frozen=True)
class JobCost:
    """What a kind of job costs. work: of a spec's fields and the size of its data set.

    memory_mb: peak of a job with these fields, in MB. lower: keys of the block of the config that
    lower it, one that changes no result first. gpu: whether the work moves to a GPU where one is.
    takes_features: whether a job with these fields is given features of a frozen backbone.
    """

    work: Callable[[Mapping[str, Any], Size], Work]
    memory_mb: Callable[[Mapping[str, Any]], int]
    lower: tuple[str, ...]
    gpu: bool = False
    takes_features: Callable[[Mapping[str, Any]], bool] = lambda fields: False
