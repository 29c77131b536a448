"""lp_fft: features during private fine-tuning, which the jobs feature_quality and umap evaluate.

Features are the inputs of the head. Their quality is the accuracy of nearest neighbours: a task's
known records vote on the classes of its queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.ledger import Ran, ledger
from dpatlas.data.prepared import Prepared
from dpatlas.models.backbone import CHUNK, Backbone
from dpatlas.models.network import Network
from dpatlas_workflow.papers.lp_fft.jobs.networks import Seen
from dpatlas_workflow.papers.lp_fft.records.private import PrivateFields
from dpatlas_workflow.run.arms import accuracy, outputs
from dpatlas_workflow.run.private_records import identity

# The shipped rates and steps were chosen by earlier curves on the same data set (claims.yaml).
GIVEN = {
    "what": "nothing in this job: its settings are given, and it does not know on which records "
    "they were chosen",
    "cost": "not counted",
}
# Queries whose distances to all known records are in memory at a time.
ROWS = 512
# The curves themselves use private records, which vote as nearest neighbours.
RELEASED = "every iterate of one run, without nearest neighbours, which look the records up,"


@dataclass(frozen=True)
class Task:
    """Known records (n, pixels) with labels (n,) int64, and queries with their true classes."""

    known: Tensor
    labels: Tensor
    queries: Tensor
    truth: Tensor

    def features(self, network: Network) -> "Task":
        """The same records as their features by the network."""
        known, queries = (features_of(network, x) for x in (self.known, self.queries))
        return replace(self, known=known, queries=queries)

    def quality(self, neighbours: int) -> float:
        """Accuracy of nearest neighbours among these records."""
        return knn_accuracy(self.known, self.labels, self.queries, self.truth, neighbours)

    def accuracy(self, head: nn.Module) -> float:
        """Accuracy of a head whose inputs these records are."""
        return accuracy(outputs(head, self.queries), self.truth)


def public_task(data: Prepared, device: str, known: int, queries: int) -> Task:
    """The first `known` training records as known ones, the first `queries` test records."""
    train = data.x_train[:known], data.y_train[:known]
    test = data.x_test[:queries], data.y_test[:queries]
    return Task(*(torch.from_numpy(array).to(device) for array in (*train, *test)))


def private_task(seen: Seen) -> Task:
    """The training records of a run as known ones and its test records as queries."""
    x, labels = seen.x, seen.labels
    return Task(x["train"], labels["train"], x["test"], labels["test"])


def features_of(network: Network, x: Tensor) -> Tensor:
    """Inputs of the head for x, (records, features)."""
    with torch.no_grad():
        return torch.cat([network.features(rows) for rows in x.split(CHUNK)])


def finite(features: Tensor) -> Tensor:
    """The features in float64; values that are not finite, which have no distance, become 0."""
    return features.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def knn_accuracy(
    known: Tensor, labels: Tensor, queries: Tensor, truth: Tensor, neighbours: int
) -> float:
    """Share of `queries` (m, d) whose nearest neighbours in `known` (n, d) vote for their class.

    labels (n,), truth (m,) int64. All that are as near as the last of the `neighbours` vote; the
    lowest of equally many votes wins.
    """
    known, queries = finite(known), finite(queries)
    squares, classes = known.square().sum(1), one_hot(labels).double()
    votes = []
    for rows in queries.split(ROWS):
        # Less |row|^2, which is the same for all known records.
        distances = torch.addmm(squares, rows, known.T, alpha=-2)
        last = distances.topk(neighbours, largest=False).values[:, -1:]
        votes.append((distances <= last).double() @ classes)
    return accuracy(torch.cat(votes), truth)


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


def backbone_used(backbone: Backbone) -> dict[str, str]:
    """The backbone, for a record."""
    return {**identity(backbone), "architecture": backbone.architecture}
