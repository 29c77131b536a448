"""Records of kind `training`: runs of one condition, with the KL of every record on the way.

n_train, n_add: records removed and added as neighbours. inputs: d. parameters: weights of the
network. convention: of the KL values, as in `formulas.theorems.kl_step`.

`runs`, by run. diverged: first step with a KL that is not finite, or None. gap_max: largest over
records of the squared norm of the change of the mean gradient before the first step; gap_watched:
that of the watched record; norm2: squared norm of the mean gradient.

`curves`, by run and shown step. kl_max: cumulative KL in nats of the record for which it is
largest, geometric mean over the run's networks; kl_watched: of the watched record, mean over
networks; loss: mean training loss at the weights that the step starts from. Of runs that diverged
all of this is None.

`probe`, by run that did not diverge and probed step 1, 2, 4, ...: how far the run's first network
is from the start. gradient_change: largest norm of the change of a record's gradient; distance:
norm of the change of the weights.

`by_record`, by record step. sums: cumulative KL in nats of every record as prepared, added up over
the `runs` runs of a block that did not diverge; run: the last one of the block.
"""

from typing import Annotated, Literal

from dpatlas.base.fields import Count, Rate, setting
from dpatlas.base.records import RecordShape, RunsFields
from dpatlas_workflow.papers.kl_privacy.records import Depth, Init, KlSpec, Position, Width

Outputs = Annotated[
    int,
    setting(
        "Outputs o of the network; 1 is the logistic loss, 2 or more the softmax.", ge=1, le=1000
    ),
]
Sigma = Annotated[
    float, setting("Noise sigma of the update W - eta grad + sqrt(2 eta sigma^2) Z.", gt=0)
]
Networks = Annotated[
    int,
    setting(
        "Networks of every run, on the same records, each with weights and noise of its own.",
        ge=1,
        le=1000,
    ),
]


class KlTrainingSpec(KlSpec, RunsFields):
    """One condition: network, step size eta = `lr`, noise, full-batch steps, runs.

    A run is the mean of its networks. shown_steps: steps at which curves are kept; record_steps:
    those at which every record's KL is. watched: the record whose KL is kept for itself.
    """

    kind: Literal["training"]
    init: Init
    depth: Depth
    width: Width
    outputs: Outputs
    lr: Rate
    sigma: Sigma
    steps: Count
    networks: Networks
    shown_steps: list[Count]
    record_steps: list[Count]
    watched: Position


RECORD = RecordShape(
    KlTrainingSpec,
    version=3,
    facts="n_train n_add inputs parameters convention",
    tables={
        "runs": "run diverged gap_max gap_watched norm2",
        "curves": "run step kl_max kl_watched loss",
        "probe": "run step gradient_change distance",
        "by_record": "run runs step sums",
    },
)
