"""feature_learning: overlaps and risks of two-layer networks on single-index data.

A condition has a row for every kind of features, the first layer's weights; the read-out is the
second layer's descent on them.

- private: one clipped, noisy gradient step on W, a released matrix; private read-out.
- direction: the mean of clipped y x with noise, along which all neurons point; private read-out.
- nonprivate: the same gradient step without clip or noise; non-private read-out.
- random: W_0; private and non-private read-out.
- random-both: W_0; private read-out on the records of both data sets.
- printed: the printed first layer with its sigma_W; its features are measured and not read out.

Noise depends on the run's number, the step and the layer alone: conditions of a job, and kinds of
features, share it within a run, in proportion to what each needs. So do their data and initial
weights, as far as they have such records and neurons.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpatlas.accounting.ledger import holds_for
from dpatlas.base.progress import Progress, say
from dpatlas.base.records import Row, rows_of
from dpatlas.base.seeds import Noise, note_stream
from dpatlas.formulas.feature_learning.single_index import link as link_of
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.resume import Stages, State
from dpatlas_workflow.papers.feature_learning.jobs.draws import REAL, FeatureDraw, Records, draw
from dpatlas_workflow.papers.feature_learning.jobs.layers import (
    Normal,
    SecondLayer,
    first_gradient,
    neurons_noise,
    normalised,
    released_direction,
    released_gradient,
    stepped,
)
from dpatlas_workflow.papers.feature_learning.jobs.rules import (
    NEIGHBOURS,
    NEIGHBOURS_SHARED,
    SHARED,
    Rules,
    link_facts,
    rehearsed_bounds,
    warnings,
)
from dpatlas_workflow.papers.feature_learning.records.simulation import (
    RECORD,
    FeatureSimulationSpec,
)
from dpatlas_workflow.papers.feature_learning.sizes import runs_at_once

PRIVATE, DIRECTION, NONPRIVATE = "private", "direction", "nonprivate"
RANDOM, RANDOM_BOTH, PRINTED = "random", "random-both", "printed"
# Name of what the networks of one run share.
SHARED_BY = "the conditions and kinds of features of one run"
FEATURES = (PRIVATE, DIRECTION, NONPRIVATE, RANDOM, RANDOM_BOTH, PRINTED)
MEASURES = ("overlap", "cosine", "risk_private", "risk", "risk_floor", "clipped")
# Of one kind of features: by name a value for every run; some of MEASURES.
Measures = dict[str, list[float]]


def simulation(job: Job) -> Outcome:
    """Simulate every condition of the spec, over all runs.

    Raises InputError for a link with a mean, and for n <= d.
    """
    fields: FeatureSimulationSpec = job.fields
    link = link_of(fields.polynomial)
    excluded = warnings(link, sorted({point.epsilon for point in fields.points}), fields.delta)
    for warning in excluded:
        say(f"{job.spec.id}: {warning}")
    shared = ("delta", "steps", "sharing", "penalty_per_neuron")
    conditions = [
        Rules(
            link=link,
            bounds=rehearsed_bounds(link, point.d, point.p, fields.seed, fields.clip_quantiles),
            **point.model_dump(),
            **{name: getattr(fields, name) for name in shared},
        )
        for point in fields.points
    ]
    # Before any simulation, as a condition with n <= d is refused here.
    facts = {**link_facts(link), "conditions": [rules.facts() for rules in conditions]}
    rows = Study(job, conditions).run()
    return Outcome({**facts, "rows": rows, "warnings": excluded}, _ledger(fields, conditions))


class Study:
    """All conditions of a job: a `Work` whose steps are blocks of runs that fit into memory."""

    def __init__(self, job: Job, conditions: Sequence[Rules]):
        self.job, self.conditions = job, conditions
        self.fields: FeatureSimulationSpec = job.fields
        self.noise = Noise(job.spec.digest, self.fields.noise_source)
        note_stream("shared_noise", SHARED_BY)
        # Of every block of runs, in order: measures by kind of features.
        self.measured: list[dict[str, Measures]] = []
        runs, n_test = self.fields.run_numbers, self.fields.n_test
        blocks = [
            (number, runs[first : first + size])
            for number, rules in enumerate(conditions)
            for size in [runs_at_once(*rules.sizes, n_test)]
            for first in range(0, len(runs), size)
        ]
        # Conditions that differ in epsilon only share the networks that do not depend on it: they
        # follow each other in every block of runs.
        self.blocks = sorted(blocks, key=lambda block: (conditions[block[0]].sizes, block[1].start))
        # The last networks and their noise, with the sizes and runs that they are of.
        self._made: tuple[Any, DrawNetworks, Normal] | None = None

    @property
    def steps_done(self) -> int:
        """Number of blocks that have been measured."""
        return len(self.measured)

    @property
    def steps(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def step(self) -> None:
        """Measure the next block."""
        number, runs = self.blocks[self.steps_done]
        rules, fields = self.conditions[number], self.fields
        key = (rules.sizes, runs)
        if self._made is None or self._made[0] != key:
            # Free the last networks' features before the next ones are made.
            self._made = None
            d, n, p = rules.sizes
            drawn = draw(rules.link, d, p, n, fields.n_test, runs, fields.seed)
            self._made = key, DrawNetworks(rules, drawn), self._normal(runs)
        _, networks, normal = self._made
        self.measured.append(networks.measured(rules, normal))

    def state(self) -> State:
        """The measures of all blocks so far."""
        return {}, {"measured": self.measured}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Continue from a state."""
        self.measured = facts["measured"]

    def run(self) -> list[Row]:
        """The rows of all conditions; from the checkpoint of an interrupted job if it has one."""
        with Progress(self.steps, self.job.spec.id) as progress:
            Stages(self.job, self.noise).finish(self, lambda: progress.reach(self.steps_done))
        rows: list[Row] = []
        for number, rules in enumerate(self.conditions):
            for features in FEATURES:
                for (condition, runs), measured in zip(self.blocks, self.measured, strict=True):
                    if condition == number and features in measured:
                        taken = {name: [None] * len(runs) for name in MEASURES}
                        of_block = rows_of({"run": runs}, **taken | measured[features])
                        rows += [{**row, **rules.point, "features": features} for row in of_block]
        return rows

    def _normal(self, runs: range) -> Normal:
        """Noise of `runs`, each drawn once: all kinds of features and every epsilon share it."""

        @functools.cache
        def normal(size: int, index: int, step: int, use: str) -> np.ndarray:
            drawn = self.noise.normal(size, repetition=runs[index], step=step, use=use)
            drawn.flags.writeable = False
            return drawn

        return normal


@dataclass
class DrawNetworks:
    """The networks on one draw of the data; those that do not depend on epsilon are made once.

    `rules` are those of any condition of these sizes; what depends on epsilon is passed by method.
    """

    rules: Rules
    draw: FeatureDraw

    def measured(self, rules: Rules, normal: Normal) -> dict[str, Measures]:
        """Every measure by kind of features."""
        start, first, bounds = self.draw.start, self.draw.first, rules.bounds
        gradient = released_gradient(
            start, first, bounds.matrix, rules.first_noise("matrix"), normal
        )
        matrix = stepped(start, gradient, rules.rate)
        mean = released_direction(first, bounds.direction, rules.first_noise("direction"), normal)
        direction = normalised(np.repeat(mean[:, :, None], rules.p, axis=2))
        private = functools.partial(self._private, rules, normal)
        measured = {
            PRIVATE: private(PRIVATE, matrix, self._layer(matrix, self.second)),
            DIRECTION: private(DIRECTION, direction, self._layer(direction, self.second)),
            NONPRIVATE: self._nonprivate,
            RANDOM: self._random | private(RANDOM, self._random_weights, self._random_layer),
        }
        if rules.sharing != SHARED:
            both = self._layer(self._random_weights, self.second.joined(first))
            measured[RANDOM_BOTH] = private(RANDOM_BOTH, self._random_weights, both)
        return {**measured, PRINTED: self._printed(rules, normal)}

    @property
    def second(self) -> Records:
        """The records of the second layer."""
        return self.draw.first if self.rules.sharing == SHARED else self.draw.second

    def _printed(self, rules: Rules, normal: Normal) -> Measures:
        """A step along the summed gradient, normalised, and sigma_W N(0, I) on every neuron."""
        weights = stepped(self.draw.start, self._gradient * rules.n, rules.rate)
        for run, matrix in enumerate(weights):
            noise = neurons_noise(matrix.shape, run, "printed", normal)
            matrix += REAL(rules.printed_noise) * noise
        return self._angles(normalised(weights))

    @functools.cached_property
    def _gradient(self) -> np.ndarray:
        return first_gradient(self.draw.start, self.draw.first, None)

    @functools.cached_property
    def _nonprivate(self) -> Measures:
        weights = stepped(self.draw.start, self._gradient, self.rules.rate)
        return self._nonprivate_readout(weights, self._layer(weights, self.second))

    @functools.cached_property
    def _random_weights(self) -> np.ndarray:
        return normalised(self.draw.start.weights)

    @functools.cached_property
    def _random_layer(self) -> SecondLayer:
        return self._layer(self._random_weights, self.second)

    @functools.cached_property
    def _random(self) -> Measures:
        return self._nonprivate_readout(self._random_weights, self._random_layer)

    def _nonprivate_readout(self, weights: np.ndarray, layer: SecondLayer) -> Measures:
        """Measures of features that gradient descent without noise reads out."""
        heads = {"risk": layer.descend(self.rules.steps), "risk_floor": layer.ridge()}
        return self._angles(weights) | self._risks(weights, heads)

    def _private(
        self, rules: Rules, normal: Normal, features: str, weights: np.ndarray, layer: SecondLayer
    ) -> Measures:
        """Measures of features that noisy descent reads out; of learned ones with ridge's risk."""
        learned = features in (PRIVATE, DIRECTION)
        deviation = rules.head_noise(layer.n, learns_features=learned)
        head, clipped = layer.descend_privately(
            rules.steps, rules.bounds.head, deviation, normal, "head"
        )
        heads = {"risk_private": head} | ({"risk_floor": layer.ridge()} if learned else {})
        risks = self._risks(weights, heads)
        return {**self._angles(weights), **risks, "clipped": clipped.tolist()}

    def _layer(self, weights: np.ndarray, records: Records) -> SecondLayer:
        phi = self.draw.start.features(records.x, weights)
        return SecondLayer(phi, records.y, self.rules.penalty)

    def _risks(self, weights: np.ndarray, heads: dict[str, np.ndarray]) -> Measures:
        """Mean squared error of the networks with each head on the test records, by run."""
        test, risks = self.draw.test, {}
        phi = self.draw.start.features(test.x, weights)
        for name, head in heads.items():
            predicted = (phi @ head.astype(REAL)[:, :, None])[:, :, 0]
            risks[name] = np.square(predicted - test.y, dtype=float).mean(axis=1).tolist()
        return risks

    def _angles(self, weights: np.ndarray) -> Measures:
        """Mean |cosine| and mean cosine with mu of neurons of unit norm, by run."""
        cosines = np.einsum("rd,rdp->rp", self.draw.start.mu, weights, dtype=float)
        return {
            "overlap": np.abs(cosines).mean(axis=1).tolist(),
            "cosine": cosines.mean(axis=1).tolist(),
        }


def _ledger(fields: FeatureSimulationSpec, conditions: Sequence[Rules]) -> dict[str, Any]:
    shared = fields.sharing == SHARED
    arms = [
        rules.ledger(features, release, records)
        for rules in conditions
        for features, release, records in (
            (PRIVATE, "matrix", rules.n),
            (DIRECTION, "direction", rules.n),
            (RANDOM, None, rules.n),
            (RANDOM_BOTH, None, 2 * rules.n),
        )
        if not (shared and features == RANDOM_BOTH)
    ]
    return {
        "mechanism": "means of clipped gradients with Gaussian noise, full batch: one step on the "
        "first layer, all steps on the second",
        "neighbour_relation": NEIGHBOURS_SHARED if shared else NEIGHBOURS,
        "sampler": "full batch",
        "accountant": "Gaussian differential privacy, exact"
        + ("; the mu of both layers add in quadrature" if shared else ""),
        "epsilon": max(rules.epsilon for rules in conditions),
        "delta": fields.delta,
        "guaranteed": "as each arm says, for the first layer and all iterates of the second",
        "claimed": None,
        "chosen_on_private_data": "nothing: rates follow from d, n and p, and clip bounds are "
        "quantiles of norms in a public rehearsal",
        "holds_for": holds_for(fields.noise_source, "one network of one arm", SHARED_BY),
        "arms": arms,
    }


KIND = Kind(simulation, record=RECORD, packages=("numpy", "scipy"))
