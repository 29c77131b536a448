"""The cost of audit's jobs."""

from functools import partial

from dpatlas.cost.counting import STEP, Cost

# A batch in memory, measured on 8x8 images and rounded up: activations, patches and backward
# passes, and inputs that belong to canaries.
trained = partial(
    Cost,
    gpu=True,
    base_mb=900,
    numbers=lambda s: (s.max_physical_batch or s.batch) * (180_000 + 5 * getattr(s, "canaries", 0)),
)
KINDS = {
    "mechanism": Cost(lower=("runs",), base_mb=900),
    "training": trained(
        lambda s, network: s.runs * s.steps * (s.batch * network + STEP), ("batch", "data.n_train")
    ),
    "selection": trained(
        lambda s, network: s.expected_trials * s.steps * (s.batch * network + STEP), ("runs",)
    ),
}
