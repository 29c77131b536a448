"""feature_learning: the paper's block of the config, and the simulations that it asks for."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from dpatlas.base.fields import Model, Once, setting
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas.formulas.feature_learning.single_index import link
from dpatlas_workflow.config.common import run_blocks
from dpatlas_workflow.config.root import General
from dpatlas_workflow.config.types import Repeated
from dpatlas_workflow.papers.feature_learning.records.simulation import (
    Algorithm,
    Epsilon,
    Inputs,
    Neurons,
    Point,
    Records,
)

KEY = "feature_learning"
AXES = ("n", "p", "d", "epsilon")


class OfLink(Model):
    """A link by name."""

    link: str = setting("Name of a link.")


class Base(Point, OfLink):
    """The condition that every sweep varies along one axis."""


class Sweeps(Model):
    """Values along each axis, all else as in base; n for every link, others for the base link."""

    n: Once[Records] = setting("Records in each data set.", min_length=1)
    p: Once[Neurons] = setting("Neurons.")
    d: Once[Inputs] = setting("Inputs.")
    epsilon: Once[Epsilon] = setting("Privacy levels.")


class Vanishing(Model):
    """A further ladder on which epsilon and delta fall, within Assumption 3.

    epsilon = `base.epsilon` (log d_1 / log d)^epsilon_power and, at every d, the delta of the last
    one, delta (d_1 / d_last)^delta_power; d_1 is the first d.
    """

    epsilon_power: float = setting("Exponent of 1 / log d in epsilon.", gt=0, lt=1)
    delta_power: float = setting("Exponent of 1 / d in delta.", ge=0, le=10)


class Ladder(Model):
    """Conditions at which d, n and p grow together, for every link of information exponent 1.

    n = d^n_power and p = d^p_power, rounded: eps_n = (n_power - 1) / 3 and eps_p = p_power of
    Assumption 2, with the epsilon of `base`.
    """

    d: Once[Inputs] = setting("Inputs.", min_length=2)
    n_power: float = setting("Exponent of n in d.", gt=1, le=10)
    p_power: float = setting("Exponent of p in d.", gt=0, le=10)
    vanishing: Vanishing | None = setting(
        "The same ladder with epsilon and delta that fall; null: none.", default=None
    )

    @model_validator(mode="after")
    def _keeps_assumption_2(self) -> "Ladder":
        most = 16 / 9 * (self.n_power - 1)
        if self.p_power >= most:
            allowed = f"below 16 (n_power - 1) / 9 = {most:g}, by Assumption 2"
            raise InputError("p_power", self.p_power, allowed)
        return self

    def points(self) -> list[dict[str, int]]:
        """The conditions by d, n and p."""
        return [
            {"d": d, "n": round(d**self.n_power), "p": max(1, round(d**self.p_power))}
            for d in self.d
        ]

    def falling(self, epsilon: float, delta: float) -> tuple[list[dict[str, float]], float]:
        """The conditions of `vanishing`, with their epsilon, and their delta; none without it."""
        if self.vanishing is None:
            return [], delta
        first, last, power = min(self.d), max(self.d), self.vanishing.epsilon_power
        points: list[dict[str, float]] = []
        for point in self.points():
            share = math.log(first) / math.log(point["d"])
            points.append({**point, "epsilon": epsilon * share**power})
        return points, delta * (first / last) ** self.vanishing.delta_power


class Pair(Model):
    """A condition of the table."""

    p: Neurons
    n: Records


class FeatureLearningEnabled(Repeated):
    """What comes first in the block."""

    enabled: bool = setting("Whether this paper is part of the run.")


class FeatureLearningSettings(Algorithm, FeatureLearningEnabled):
    """Private features of single-index models, simulated."""

    links: dict[
        Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")],
        Annotated[
            list[Annotated[float, Field(ge=-1e6, le=1e6)]],
            setting(
                "Coefficients of 1, u, u^2, ...; of zero mean under N(0, 1), scaled to unit "
                "variance.",
                min_length=2,
                max_length=12,
            ),
        ],
    ] = setting("Links s of y = s(<x, mu>), by name.", min_length=1)
    base: Base
    sweeps: Sweeps
    ladder: Ladder | None = setting("Conditions at which d, n and p grow together; null: none.")
    table: list[Pair] = setting("Further pairs of p and n for the table, all else as in base.")

    @model_validator(mode="after")
    def _are_links(self) -> "FeatureLearningSettings":
        for name, coefficients in self.links.items():
            try:
                link(coefficients)
            except InputError as error:
                raise InputError(f"links.{name}", error.found, error.allowed) from None
        if self.base.link not in self.links:
            allowed = "one of " + ", ".join(self.links)
            raise InputError("base.link", repr(self.base.link), allowed)
        return self

    @model_validator(mode="after")
    def _more_records_than_inputs(self) -> "FeatureLearningSettings":
        """The report's rates are powers of n / d."""
        n, d = self.base.n, self.base.d
        points = {"base": (n, d)}
        points |= {f"sweeps.n.{i}": (value, d) for i, value in enumerate(self.sweeps.n)}
        points |= {f"sweeps.d.{i}": (n, value) for i, value in enumerate(self.sweeps.d)}
        points |= {f"table.{i}": (pair.n, d) for i, pair in enumerate(self.table)}
        for i, point in enumerate(self.ladder.points() if self.ladder else []):
            points[f"ladder.d.{i}"] = (point["n"], point["d"])
        for path, (n, d) in points.items():
            if n <= d:
                raise InputError(path, f"n = {n} with d = {d}", "n > d")
        return self


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `links`: every link along n. `axes`: the base link along p, d and epsilon. `ladders`: every link
    of information exponent 1 along d, with n and p as powers of d. `vanishing`: the same with
    epsilon and delta that fall. `table`: pairs of p and n. All other settings are those of `base`.
    """
    block: FeatureLearningSettings = config.feature_learning
    sweeps, pairs = block.sweeps.plain(), [pair.plain() for pair in block.table]
    learnable = [name for name in block.links if link(block.links[name]).information_exponent == 1]
    base, ladder = block.base, block.ladder
    rungs = ladder.points() if ladder else []
    falling, last_delta = ladder.falling(base.epsilon, block.delta) if ladder else ([], 0.0)

    def simulations(
        name: str, axis: str, points: Sequence[dict[str, Any]], slug: str, **changes: float
    ) -> list[Spec]:
        if not points:
            return []
        fields = {
            "link": name,
            "polynomial": block.links[name],
            "axis": axis,
            "points": [{**base.part(Point), **point} for point in points],
            **block.part(Algorithm),
            **changes,
        }
        return run_blocks(config, KEY, "simulation", fields, slug, block.runs, block.runs_per_job)

    def sweep(name: str, axis: str) -> list[Spec]:
        points = [{axis: value} for value in sweeps[axis]]
        return simulations(name, axis, points, f"{name}-{axis}")

    return {
        "links": [spec for name in block.links for spec in sweep(name, "n")],
        "axes": [spec for axis in AXES[1:] for spec in sweep(base.link, axis)],
        "ladders": [
            spec
            for name in learnable
            for spec in simulations(name, "ladder", rungs, f"{name}-ladder")
        ],
        "vanishing": [
            spec
            for name in learnable
            for spec in simulations(name, "ladder", falling, f"{name}-vanishing", delta=last_delta)
        ],
        "table": simulations(base.link, "table", pairs, "table"),
    }


SETTINGS = FeatureLearningSettings
