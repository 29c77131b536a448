"""lp_fft: features during private fine-tuning, which the jobs feature_quality and umap evaluate.

Features are the inputs of the head. Their quality is the accuracy of nearest neighbours: a task's
known records vote on the classes of its queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpatlas.core.facts import BackboneUsed
from dpatlas.data.prepared import Prepared
from dpatlas.jobs.private_plan import dp_sgd_phase
from dpatlas.jobs.private_records import identity
from dpatlas.models.backbone import CHUNK, Backbone
from dpatlas.models.network import Network
from dpatlas.papers.lp_fft.jobs.networks import Networks, Seen
from dpatlas.papers.lp_fft.records.private import Part, PrivateFields
from dpatlas.privacy.accounting import Phase, guarantee
from dpatlas.privacy.ledger import Ran, ledger
from dpatlas.privacy.samplers import Sampler
from dpatlas.privacy.training import PrivateTraining

# The shipped rates and steps were chosen by earlier curves on the same data set (claims.yaml).
GIVEN = {
    "what": "nothing in this job: its settings are given, and it does not know on which records "
    "they were chosen",
    "cost": "not counted",
}
# The curves themselves use private records, which vote as nearest neighbours.
RELEASED = "every iterate of one run, without nearest neighbours, which look the records up,"


@dataclass(frozen=True)
class Task:
    """Known records (n, pixels) with labels (n,), and queries with their true classes."""

    known: Tensor
    labels: np.ndarray
    queries: Tensor
    truth: np.ndarray

    def quality(self, network: Network, neighbours: int) -> float:
        """Accuracy of nearest neighbours on the network's features."""
        known, queries = features_of(network, self.known), features_of(network, self.queries)
        return knn_accuracy(known, self.labels, queries, self.truth, neighbours)


@dataclass(frozen=True)
class PhasePlan:
    """Steps that train one part of the network, with one noise multiplier and learning rate."""

    part: Part
    steps: int
    noise_multiplier: float
    lr: float


def training_of(
    networks: Networks,
    network: Network,
    sampler: Sampler,
    plans: Sequence[PhasePlan],
    seen: Seen,
    draws: Mapping[str, Any],
) -> PrivateTraining:
    """A training of `network` on the records of a run, phase by phase.

    draws: the arguments by which it draws batches and noise.
    """
    fields: PrivateFields = networks.job.fields
    phases = [
        dp_sgd_phase(
            sampler,
            plan.noise_multiplier,
            fields.max_grad_norm,
            plan.steps,
            plan.lr,
            trainable=networks.trained(network, plan.part),
            max_physical_batch=fields.max_physical_batch,
        )
        for plan in plans
    ]
    return PrivateTraining(network, phases, seen.x["train"], seen.labels["train"], **draws)


def public_task(data: Prepared, device: str, known: int, queries: int) -> Task:
    """The first `known` training records as known ones, the first `queries` test records."""
    return Task(
        torch.from_numpy(data.x_train[:known]).to(device),
        data.y_train[:known],
        torch.from_numpy(data.x_test[:queries]).to(device),
        data.y_test[:queries],
    )


def private_task(seen: Seen) -> Task:
    """The training records of a run as known ones and its test records as queries."""
    x, labels = seen.x, seen.dealt.labels
    return Task(x["train"], labels["train"], x["test"], labels["test"])


def features_of(network: Network, x: Tensor) -> np.ndarray:
    """Inputs of the head for x, (records, features).

    Values that are not finite become 0: scikit-learn refuses all features for a single one.
    """
    with torch.no_grad():
        features = torch.cat([network.features(rows) for rows in x.split(CHUNK)])
    return features.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).cpu().numpy()


def knn_accuracy(
    known: np.ndarray, labels: np.ndarray, queries: np.ndarray, truth: np.ndarray, neighbours: int
) -> float:
    """Share of `queries` (m, d) whose nearest neighbours in `known` (n, d) vote for their class."""
    from sklearn.neighbors import KNeighborsClassifier

    classifier = KNeighborsClassifier(neighbours, algorithm="brute").fit(known, labels)
    return float(classifier.score(queries, truth))


def check_accountant(fields: PrivateFields, phases: Sequence[Phase]) -> None:
    """Raise InputError, before anything is trained, for phases that no accountant covers."""
    guarantee(phases, fields.delta, fields.relation, fields.accountant)


def ledger_of(fields: PrivateFields, ran: Ran) -> dict[str, Any]:
    """The ledger of a run whose iterates are all evaluated."""
    return ledger(
        ran,
        delta=fields.delta,
        relation=fields.relation,
        accountant=fields.accountant,
        chosen_on_private_data=[GIVEN],
        released=RELEASED,
    )


def backbone_used(backbone: Backbone) -> BackboneUsed:
    """The backbone, for a record."""
    return BackboneUsed(**identity(backbone), architecture=backbone.architecture)
