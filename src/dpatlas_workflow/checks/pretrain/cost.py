"""The cost of pretrain's jobs."""

from dpatlas.base.networks import PUBLISHED
from dpatlas_workflow.config.sizes import inputs_of
from dpatlas_workflow.cost.counting import KindCost, pass_work

SIZES = ("batch", "n_train")
KINDS = {
    "backbone": KindCost(
        lambda s: s.epochs * s.data.n_train * pass_work(s.model, inputs_of(s.data), s.options),
        SIZES,
        gpu=True,
        base_mb=1100,
    ),
    "imported": KindCost(
        lower=SIZES, base_mb=0, numbers=lambda s: PUBLISHED[s.model].import_mb * 2**18
    ),
    # Nearest neighbours by brute force.
    "transfer": KindCost(
        lambda s: s.splits * (1 + len(s.backbones)) * s.data.n_train**2,
        ("transfer.data.n_train", "n_test"),
        base_mb=1100,
    ),
}
