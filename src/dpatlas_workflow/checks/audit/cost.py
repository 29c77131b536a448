"""The cost of audit's jobs."""

from dpatlas_workflow.cost.counting import KindCost

KINDS = {
    "mechanism": KindCost(lower=("runs",), base_mb=900),
    # A batch in memory, measured on 8x8 images and rounded up: activations, patches and backward
    # passes, and inputs that belong to canaries.
    "network": KindCost(
        lambda s: s.runs * s.steps,
        ("batch", "data.n_train"),
        steps=True,
        gpu=True,
        base_mb=900,
        numbers=lambda s: s.batch * (180_000 + 5 * (s.canaries or 0)),
    ),
}
