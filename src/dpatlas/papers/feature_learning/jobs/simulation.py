"""feature_learning: overlaps and risks of two-layer networks on single-index data, condition by
condition.

A row for every condition and kind of features:

- private: one clipped, noisy gradient step on W (a matrix is released); private read-out.
- direction: the mean of clipped y x, with noise; all neurons point along it; private read-out.
- nonprivate: the same step without clip or noise.
- random: W_0; private and non-private read-out. random-both: likewise, read out of both data sets.
- printed: the printed first layer, with its sigma_W; only its features are looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpatlas.core.progress import Progress, say
from dpatlas.core.seeds import Noise
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.jobs.resume import Stages, State
from dpatlas.papers.feature_learning.formulas.single_index import Link as TargetLink
from dpatlas.papers.feature_learning.formulas.single_index import link as link_of
from dpatlas.papers.feature_learning.jobs.draws import REAL, Draw, Records, draw
from dpatlas.papers.feature_learning.jobs.layers import (
    Normal,
    SecondLayer,
    first_gradient,
    normalised,
    released_direction,
    released_gradient,
    stepped,
)
from dpatlas.papers.feature_learning.jobs.rules import (
    NEIGHBOURS,
    NEIGHBOURS_SHARED,
    SHARED,
    Rules,
    rehearsed_bounds,
    warnings,
)
from dpatlas.papers.feature_learning.records.simulation import (
    Link,
    Measured,
    Metrics,
    Point,
    Row,
    Spec,
)
from dpatlas.papers.feature_learning.sizes import runs_at_once
from dpatlas.privacy.ledger import holds_for

PRIVATE, DIRECTION, NONPRIVATE = "private", "direction", "nonprivate"
RANDOM, RANDOM_BOTH, PRINTED = "random", "random-both", "printed"
FEATURES = (PRIVATE, DIRECTION, NONPRIVATE, RANDOM, RANDOM_BOTH, PRINTED)
MEASURES = tuple(Measured.model_fields)


def simulation(job: Job) -> Outcome:
    """Rows of every condition of the spec, with its settings and warnings.

    Raises InputError for a link with a mean, and for n <= d.
    """
    fields: Spec = job.fields
    link = link_of(fields.polynomial)
    warned = warnings(link, sorted({point.epsilon for point in fields.points}), fields.delta)
    for warning in warned:
        say(f"{job.spec.id}: {warning}")
    rules = [_rules(fields, link, point) for point in fields.points]
    # Before any work: a condition with n <= d has no rate.
    conditions = [each.facts() for each in rules]
    metrics = Metrics(
        link=Link(
            polynomial=link.scaled.tolist(),
            hermite=link.hermite.tolist(),
            degree=link.degree,
            information_exponent=link.information_exponent,
        ),
        conditions=conditions,
        rows=Study(job, rules).run(),
        warnings=warned,
    )
    return Outcome(metrics, _ledger(fields, rules))


class Study:
    """All conditions of a job, in blocks of runs that fit into memory: a `Work` of a step each."""

    def __init__(self, job: Job, conditions: Sequence[Rules]):
        self.job, self.conditions = job, conditions
        self.fields: Spec = job.fields
        self.noise = Noise(job.spec.digest, self.fields.noise_source)
        # By features, of every block of runs of every condition.
        self.measured: list[dict[str, Measured]] = []
        self.blocks = [
            (number, runs)
            for number, rules in enumerate(conditions)
            for runs in self._blocks(rules)
        ]
        self._networks: tuple[Any, Networks] | None = None

    @property
    def steps_done(self) -> int:
        """Blocks of runs measured."""
        return len(self.measured)

    @property
    def steps(self) -> int:
        """All blocks."""
        return len(self.blocks)

    def step(self) -> None:
        """Measure one more block."""
        self.measured.append(self._block(*self.blocks[self.steps_done]))

    def state(self) -> State:
        """Measures of all blocks so far."""
        measured = [
            {features: measures.model_dump() for features, measures in block.items()}
            for block in self.measured
        ]
        return {}, {"measured": measured}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Go on from a state."""
        self.measured = [
            {features: Measured(**measures) for features, measures in block.items()}
            for block in facts["measured"]
        ]

    def run(self) -> list[Row]:
        """The rows."""
        with Progress(self.steps, self.job.spec.id) as progress:
            Stages(self.job, self.noise).finish(self, lambda: progress.reach(self.steps_done))
        by_condition: list[list[dict[str, Measured]]] = [[] for _ in self.conditions]
        for (number, _), measured in zip(self.blocks, self.measured, strict=True):
            by_condition[number].append(measured)
        return [
            row
            for rules, blocks in zip(self.conditions, by_condition, strict=True)
            for row in self._rows(rules, blocks)
        ]

    def _blocks(self, rules: Rules) -> list[range]:
        runs = self.fields.runs
        size = runs_at_once(rules.d, rules.n, rules.p, self.fields.n_test)
        return [range(first, min(first + size, runs)) for first in range(0, runs, size)]

    def _block(self, number: int, runs: range) -> dict[str, Measured]:
        rules, fields = self.conditions[number], self.fields
        # Conditions that differ in epsilon only share what depends on none.
        key = (rules.d, rules.n, rules.p, runs)
        if self._networks is None or self._networks[0] != key:
            # The last one's features go before the next one's come.
            self._networks = None
            drawn = draw(rules.link, rules.d, rules.p, rules.n, fields.n_test, runs, fields.seed)
            self._networks = key, Networks(rules, drawn)
        networks = self._networks[1]

        def normal(size: int, index: int, step: int, use: str) -> np.ndarray:
            repetition = number * fields.runs + runs[index]
            return self.noise.normal(size, repetition=repetition, step=step, use=use)

        return networks.measured(rules, normal)

    def _rows(self, rules: Rules, blocks: Sequence[dict[str, Measured]]) -> list[Row]:
        """Blocks of runs put together."""
        rows = []
        for features in FEATURES:
            if features in blocks[0]:
                values: dict[str, Any] = {name: getattr(rules, name) for name in Point.model_fields}
                for name in MEASURES:
                    values[name] = _joined([getattr(block[features], name) for block in blocks])
                rows.append(Row(features=features, **values))
        return rows


@dataclass
class Networks:
    """The networks of one draw: those that depend on no epsilon are made once."""

    rules: Rules
    draw: Draw

    def measured(self, rules: Rules, normal: Normal) -> dict[str, Measured]:
        """Every measure of every kind of features."""
        measured = {
            PRIVATE: self._private(rules, self._matrix(rules, normal), PRIVATE, normal),
            DIRECTION: self._private(rules, self._direction(rules, normal), DIRECTION, normal),
            NONPRIVATE: self._nonprivate,
            RANDOM: self._random.model_copy(
                update=self._read(rules, self._random_layer, RANDOM, normal)
            ),
        }
        if rules.sharing != SHARED:
            measured[RANDOM_BOTH] = self._random_of_both(rules, normal)
        return {**measured, PRINTED: self._printed(rules, normal)}

    @property
    def second(self) -> Records:
        """The records of the second layer."""
        return self.draw.first if self.rules.sharing == SHARED else self.draw.second

    def _matrix(self, rules: Rules, normal: Normal) -> np.ndarray:
        gradient = released_gradient(
            self.draw.start, self.draw.first, rules.bounds.matrix, rules.matrix_noise, normal
        )
        return stepped(self.draw.start, gradient, rules.rate)

    def _direction(self, rules: Rules, normal: Normal) -> np.ndarray:
        mean = released_direction(
            self.draw.first, rules.bounds.direction, rules.direction_noise, normal
        )
        return normalised(np.repeat(mean[:, :, None], rules.p, axis=2))

    def _printed(self, rules: Rules, normal: Normal) -> Measured:
        """A step of the summed gradient, normalised, and sigma_W N(0, I) on every neuron."""
        weights = stepped(self.draw.start, self._gradient * rules.n, rules.rate)
        for run, one in enumerate(weights):
            noise = normal(one.size, run, 0, "printed").reshape(one.shape)
            one += REAL(rules.printed_noise) * noise
        return Measured(**self._angles(normalised(weights)))

    @cached_property
    def _gradient(self) -> np.ndarray:
        return first_gradient(self.draw.start, self.draw.first, None)

    @cached_property
    def _nonprivate(self) -> Measured:
        weights = stepped(self.draw.start, self._gradient, self.rules.rate)
        return self._without_noise(weights, self._layer(weights, self.second))

    @cached_property
    def _random_weights(self) -> np.ndarray:
        return normalised(self.draw.start.weights)

    @cached_property
    def _random_layer(self) -> SecondLayer:
        return self._layer(self._random_weights, self.second)

    @cached_property
    def _random(self) -> Measured:
        return self._without_noise(self._random_weights, self._random_layer)

    def _without_noise(self, weights: np.ndarray, layer: SecondLayer) -> Measured:
        """What gradient descent without noise reads off these features."""
        return Measured(
            **self._angles(weights),
            risk=self._risk(weights, layer.descend(self.rules.steps)),
            risk_floor=self._risk(weights, layer.ridge()),
        )

    def _random_of_both(self, rules: Rules, normal: Normal) -> Measured:
        layer = self._layer(self._random_weights, self.second.joined(self.draw.first))
        read = self._read(rules, layer, RANDOM_BOTH, normal)
        return Measured(**self._angles(self._random_weights), **read)

    def _private(
        self, rules: Rules, weights: np.ndarray, features: str, normal: Normal
    ) -> Measured:
        layer = self._layer(weights, self.second)
        return Measured(
            **self._angles(weights),
            **self._read(rules, layer, features, normal, weights),
            risk_floor=self._risk(weights, layer.ridge()),
        )

    def _read(
        self,
        rules: Rules,
        layer: SecondLayer,
        features: str,
        normal: Normal,
        weights: np.ndarray | None = None,
    ) -> dict[str, list[float]]:
        """Private read-out of learned `weights`, or of random ones."""
        deviation = rules.head_noise(layer.n, learns_features=weights is not None)
        head, clipped = layer.descend_privately(
            rules.steps, rules.bounds.head, deviation, normal, f"head, {features}"
        )
        used = self._random_weights if weights is None else weights
        return {"risk_private": self._risk(used, head), "clipped": clipped.tolist()}

    def _layer(self, weights: np.ndarray, records: Records) -> SecondLayer:
        phi = self.draw.start.features(records.x, weights)
        return SecondLayer(phi, records.y, self.rules.penalty)

    def _risk(self, weights: np.ndarray, head: np.ndarray) -> list[float]:
        test = self.draw.test
        phi = self.draw.start.features(test.x, weights)
        predicted = (phi @ head.astype(REAL)[:, :, None])[:, :, 0]
        return np.square(predicted - test.y, dtype=float).mean(axis=1).tolist()

    def _angles(self, weights: np.ndarray) -> dict[str, list[float]]:
        """Of neurons of unit norm with mu."""
        cosines = np.einsum("rd,rdp->rp", self.draw.start.mu, weights, dtype=float)
        return {
            "overlap": np.abs(cosines).mean(axis=1).tolist(),
            "cosine": cosines.mean(axis=1).tolist(),
        }


def _rules(fields: Spec, link: TargetLink, point: Point) -> Rules:
    return Rules(
        link=link,
        d=point.d,
        n=point.n,
        p=point.p,
        epsilon=point.epsilon,
        delta=fields.delta,
        steps=fields.steps,
        sharing=fields.sharing,
        penalty_per_neuron=fields.penalty_per_neuron,
        bounds=rehearsed_bounds(link, point.d, point.p, fields.seed, fields.clip_quantiles),
    )


def _joined(parts: Sequence[list[float] | None]) -> list[float] | None:
    taken = [part for part in parts if part is not None]
    return [value for part in taken for value in part] if taken else None


def _ledger(fields: Spec, conditions: Sequence[Rules]) -> dict[str, Any]:
    shared = fields.sharing == SHARED
    arms = []
    for rules in conditions:
        arms.append(rules.ledger(PRIVATE, "matrix", rules.n))
        arms.append(rules.ledger(DIRECTION, "direction", rules.n))
        arms.append(rules.ledger(RANDOM, None, rules.n))
        if not shared:
            arms.append(rules.ledger(RANDOM_BOTH, None, 2 * rules.n))
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
        "holds_for": holds_for(fields.noise_source, "one network of one arm"),
        "arms": arms,
    }


KIND = Kind(simulation, spec=Spec, packages=("numpy", "scipy"))
