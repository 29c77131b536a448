"""Deals: which records each run of a job trains on, and which it is tested on.

A run is the whole experiment, so that runs show how a result varies with its records. All arms of a
run, and all jobs with the same data and base seed, are dealt the same. What run i is dealt is a
function of (data options, base seed, i):

    dealt   a permutation of the set's records, split into parts of the sizes of the prepared ones
    fresh   a generated set has no end: every run draws records of its own
    fixed   the parts of the prepared set, where the spec says `redeal: false`

The prepared set's validation records, a fixed part of all records, are in no run. Settings are
chosen on them alone: a trial deals them into records to train on and to be scored on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpatlas.base.guard import integer
from dpatlas.base.seeds import permutation, seed
from dpatlas.data import generated
from dpatlas.data.definitions import scale
from dpatlas.data.prepared import Prepared
from dpatlas.data.registry import find
from dpatlas.jobs.job import Job
from dpatlas.models.backbone import Backbone
from dpatlas.models.backbone import features as features_of
from dpatlas.models.precision import passes
from dpatlas_workflow.run.private_records import frozen_features

FIXED = "validation"
# A trial trains on five sixths of the fixed part.
TRAINED, OF = 5, 6
Parts = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Dealt:
    """The records of one run, by part.

    x: part -> (n, d) float32, without columns where the job reads features alone. labels: part ->
    (n,) int64. positions: part -> (n,) int64, where each record stands among the prepared parts,
    one after the other; fresh records stand where those that they replace do. take_features: the
    function behind `features`.
    """

    x: Parts
    labels: Parts
    positions: Parts
    take_features: Callable[[Backbone], Parts]

    def features(self, backbone: Backbone) -> Parts:
        """Features (n, features) float32 of the records by a frozen backbone, by part.

        InputError for a set that is dealt, unless the job has its features by this backbone.
        """
        return self.take_features(backbone)


class Deals:
    """What each run of a job is dealt.

    parts: those of the prepared set that make up a run; records go from one to another.
    """

    def __init__(self, job: Job, parts: Sequence[str] = ("train", "test")):
        self.job, self.parts = job, tuple(parts)
        self.data: Prepared = job.prepared
        self.sizes = {part: len(getattr(self.data, f"y_{part}")) for part in parts}
        for part, size in self.sizes.items():
            integer(ge=1).check(f"n_{part}", size)

    def of(self, run: int) -> Dealt:
        """The records of run `run`."""
        if not self.job.fields.data.redeal:
            return self._fixed()
        key = self._key("records of a run", run)
        if is_generated(self.data):
            return self._fresh(key)
        return self._pooled(self.parts, self._split(permutation(key, sum(self.sizes.values()))))

    def trial(self, run: int) -> Dealt:
        """Records of the fixed part, for run `run` of a trial: "train", and "test" for its score.

        Raises InputError for a fixed part of a single record or none.
        """
        count = len(getattr(self.data, f"y_{FIXED}"))
        integer(ge=2).check(f"n_{FIXED}", count)
        order = permutation(self._key("records of a trial", run), count)
        trained, scored = np.split(order, [count * TRAINED // OF])
        return self._pooled([FIXED], {"train": trained, "test": scored})

    def _split(self, order: np.ndarray) -> Parts:
        """Positions of the records of all parts, split into parts."""
        ends = np.cumsum([*self.sizes.values()])[:-1]
        return dict(zip(self.parts, np.split(order, ends), strict=True))

    def _in_order(self) -> Parts:
        return self._split(np.arange(sum(self.sizes.values())))

    def _key(self, use: str, run: int) -> int:
        data = self.job.fields.data
        axes = {"data_set": data.name, "selection": data.selection or 0, "run": run}
        return seed("data", use=use, base_seed=self.job.fields.seed, **axes)

    def _fixed(self) -> Dealt:
        """The parts as they were prepared."""
        x, labels = (
            {part: getattr(self.data, f"{name}_{part}") for part in self.parts} for name in "xy"
        )
        return Dealt(
            x, labels, self._in_order(), lambda backbone: frozen_features(self.job, backbone).x
        )

    def _pooled(self, parts: Sequence[str], order: Parts) -> Dealt:
        """The records `order`, part -> positions, of `parts` one after the other."""

        def chosen(arrays: Sequence[np.ndarray]) -> Parts:
            pool = np.concatenate(arrays)
            return {part: pool[indices] for part, indices in order.items()}

        def take_features(backbone: Backbone) -> Parts:
            features = frozen_features(self.job, backbone)
            return chosen([features.x[part] for part in parts])

        x, labels = (
            chosen([getattr(self.data, f"{name}_{part}") for part in parts]) for name in "xy"
        )
        return Dealt(x, labels, order, take_features)

    def _fresh(self, key: int) -> Dealt:
        """New records of a generated set."""
        data_set, options = find(self.job.fields.data.name), self.data.manifest["options"]
        x, labels = {}, {}
        for part, size in self.sizes.items():
            pixels, labels[part] = generated.records(
                data_set, self.data.classes, size, part=part, selection=key
            )
            x[part] = scale(pixels, data_set.scaling, options["norm"])

        def take_features(backbone: Backbone) -> Parts:
            with passes():
                return {part: features_of(backbone.network, rows) for part, rows in x.items()}

        return Dealt(x, labels, self._in_order(), take_features)


def is_generated(data: Prepared) -> bool:
    """Whether the set's records are drawn on demand."""
    source: Mapping[str, Any] = data.manifest.get("source", {})
    return source.get("kind") == "generated"
