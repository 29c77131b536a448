"""kl_privacy: the paper's block of the config, and the jobs that it asks for."""

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Tag, model_validator

from dpatlas.base.fields import AsWritten, ClassName, Model, Once, Rate, setting
from dpatlas.base.specs import Spec
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas_workflow.config.common import run_blocks, run_spec
from dpatlas_workflow.config.root import General
from dpatlas_workflow.config.types import DealtSet, Digit, PrivateName, Repeated
from dpatlas_workflow.papers.kl_privacy.records import Depth, Depths, Init, Steps, Width, Widths
from dpatlas_workflow.papers.kl_privacy.records.constants import Constants
from dpatlas_workflow.papers.kl_privacy.records.linearized import Linearized
from dpatlas_workflow.papers.kl_privacy.records.training import Networks, Outputs, Sigma

KEY = "kl_privacy"

if TYPE_CHECKING:
    Cifar10Class = str
else:
    Cifar10Class = Literal[DATA_SETS["cifar10"].classes]
# Number of shown steps of a training, at most, beside those that claims and figures ask for.
SHOWN = 30


class TwoClasses(DealtSet):
    """Records of two classes, to train on or to add."""

    watched: int = setting(
        "Position, among the training records and then those to add, of the record by which a "
        "bound would be shown to be violated; to be fixed on pilot runs.",
        ge=0,
        le=10_000_000,
        default=0,
    )

    def fields(self) -> dict[str, Any]:
        """Fields of a spec; the watched record is no part of the data set."""
        return {name: value for name, value in super().fields().items() if name != "watched"}


class TwoDigits(TwoClasses):
    """Two of the ten digits."""

    name: Literal["digits"] = setting("Name of the data set.")
    # Settings are never written to, so that a narrower list may stand for a list.
    classes: Once[Digit] = setting(  # type: ignore[assignment]
        "Two of the ten digits.", min_length=2, max_length=2
    )
    n_train: int = setting(
        "Training records; the others of the two classes are added.", ge=2, le=1797
    )
    norm: Annotated[float, AsWritten] = setting(
        "Norm that every record is scaled to; the theory wants sqrt(d) = 8.", gt=0
    )


class TwoOfCifar10(TwoClasses):
    """Two classes of CIFAR-10."""

    name: Literal["cifar10"] = setting("Name of the data set.")
    classes: Once[Cifar10Class] = setting(  # type: ignore[assignment]
        "Two of the ten classes.", min_length=2, max_length=2
    )
    n_train: int = setting("Training records of the two classes.", ge=2, le=10_000)
    n_add: int = setting("Test records of the two classes, added as neighbours.", ge=1, le=2000)


class TwoOfOwn(TwoClasses):
    """Two classes of the user's own data set."""

    name: Annotated[str, PrivateName(("digits", "cifar10"))] = setting("Name of the data set.")
    classes: Once[ClassName] = setting("Two of its classes.", min_length=2, max_length=2)
    n_train: int = setting("Training records of the two classes.", ge=2, le=10_000_000)
    n_add: int = setting(
        "Records of the two classes, added as neighbours; test records if the data set has any.",
        ge=1,
        le=1_000_000,
    )
    norm: Annotated[float, AsWritten] = setting(
        "Norm that every record is scaled to; the theory wants sqrt(d) for records of d numbers.",
        gt=0,
        default=None,
    )


def _two_classes_of(data: Any) -> str:
    name = data.get("name") if isinstance(data, dict) else getattr(data, "name", None)
    return {"digits": "TwoDigits", "cifar10": "TwoOfCifar10"}.get(str(name), "TwoOfOwn")


class InitRates(Model):
    """Step size eta of each initialisation."""

    lecun: Rate = setting("Step size with LeCun's initialisation.", default=None)
    he: Rate = setting("Step size with He's initialisation.", default=None)
    ntk: Rate = setting("Step size with the NTK initialisation.", default=None)
    xavier: Rate = setting("Step size with Xavier's initialisation.", default=None)


class Horizons(Model):
    """Numbers of full-batch steps at which curves are read; long is the length of training."""

    early: int = setting(
        "A number of full-batch steps up to which the paper reports near-linear growth.",
        ge=2,
        le=1_000_000,
    )
    short: Steps
    long: Steps

    @model_validator(mode="after")
    def _grow(self) -> "Horizons":
        steps = self.plain()
        for earlier, later in itertools.pairwise(steps):
            if steps[earlier] >= steps[later]:
                allowed = f"a number of steps above horizons.{earlier} ({steps[earlier]})"
                raise InputError(later, steps[later], allowed)
        return self


class DepthSweep(Model):
    """Conditions of kl_vs_depth."""

    depths: Depths
    width: Width
    runs: int = setting(
        "Runs of each, where they are not those of the block.", ge=1, le=1000, default=None
    )


class WidthSweep(Model):
    """Conditions of kl_vs_width."""

    widths: Widths
    depth: Depth
    steps: Steps


class Epochs(Model):
    """The condition whose KL is shown against the number of steps in kl_vs_epochs."""

    depth: Depth
    width: Width


class Early(Model):
    """Runs up to the early horizon, of the condition of `epochs`."""

    networks: Networks


class Bounds(Model):
    """Short runs with small steps for kl_bounds, as Lemma 3.2 grows like exp(beta^2 T)."""

    depth: Depth
    width: Width
    steps: int = setting(
        "Full-batch steps; the constants of Lemma 3.2 are read at steps 1, 2, 4, ...",
        ge=3,
        le=1_000_000,
    )
    lr: Rate


class LinearizedRuns(Linearized, Repeated):
    """The linearised network of Sec. 6, trained at a fixed KL budget and at a fixed noise."""


class KlPrivacySettings(Repeated):
    """KL privacy loss of noisy gradient descent."""

    enabled: bool = setting("Whether this paper is part of the run.")
    data: Annotated[
        Annotated[TwoDigits, Tag("TwoDigits")]
        | Annotated[TwoOfCifar10, Tag("TwoOfCifar10")]
        | Annotated[TwoOfOwn, Tag("TwoOfOwn")],
        Discriminator(_two_classes_of),
    ] = setting("Two classes; training records, and the records to add as neighbours.")
    inits: Once[Init] = setting("Initialisations to compare.", min_length=1)
    outputs: Outputs
    sigma: Sigma
    lr: InitRates
    horizons: Horizons
    depth_sweep: DepthSweep
    width_sweep: WidthSweep
    epochs: Epochs
    early: Early
    bounds: Bounds
    linearized: LinearizedRuns
    constants: Constants

    @model_validator(mode="after")
    def _has_a_rate_for_every_init(self) -> "KlPrivacySettings":
        for init in self.inits:
            if getattr(self.lr, init) is None:
                raise InputError("lr", f"no rate for {init}", "a rate for every init")
        return self


def groups(config: General) -> dict[str, list[Spec]]:
    """The paper's specs by group, all blocks of runs of each condition.

    `depth`, `width`, `epochs`, `bounds`, `early`: training runs. `linearized`: the trade-off of
    Sec. 6, for each init. `constants`: the Monte Carlo check of Eq. 33. A condition that two groups
    share runs once.
    """
    block: KlPrivacySettings = config.kl_privacy
    by_depth, by_width, horizons = block.depth_sweep, block.width_sweep, block.horizons
    epochs, bounds = block.epochs, block.bounds
    data, watched = block.data.dealt(), block.data.watched
    # Steps at which some figure or claim reads the records of a sweep.
    read = {*horizons.plain().values(), horizons.early // 2, by_width.steps}

    def training(
        init: str,
        depth: int,
        width: int,
        steps: int = horizons.long,
        *,
        lr: float | None = None,
        networks: int = 1,
        runs: int = block.runs,
    ) -> list[Spec]:
        fields = {
            "data": data,
            "init": init,
            "depth": depth,
            "width": width,
            "outputs": block.outputs,
            "lr": lr or getattr(block.lr, init),
            "sigma": block.sigma,
            "steps": steps,
            "networks": networks,
            "shown_steps": sorted(_up_to(steps, read | _evenly(steps))),
            "record_steps": sorted(_up_to(steps, read | {steps})),
            "watched": watched,
        }
        several = f"-{networks}-networks" if networks > 1 else ""
        name = f"{init}-d{depth}-w{width}{several}"
        return run_blocks(config, KEY, "training", fields, name, runs, block.runs_per_job)

    def linearized(init: str) -> list[Spec]:
        fields = {"data": data, "init": init, "watched": watched}
        fields |= block.linearized.part(Linearized)
        name = f"linearized-{init}-w{block.linearized.width}"
        runs = block.linearized.runs, block.linearized.runs_per_job
        return run_blocks(config, KEY, "linearized", fields, name, *runs)

    def steps_at(width: int) -> int:
        # Where the depth sweep trains the same condition for longer, its curve holds these steps.
        shared = by_width.depth in by_depth.depths and width == by_depth.width
        return max(horizons.long, by_width.steps) if shared else by_width.steps

    def each(specs_of: Callable[..., Iterable[Spec]], *values: Iterable[int]) -> list[Spec]:
        points = itertools.product(block.inits, *values)
        return [spec for point in points for spec in specs_of(*point)]

    constants = {"data": block.data.fields(), "inits": block.inits, **block.constants.plain()}
    name, runs = f"constants-w{block.constants.width}", by_depth.runs or block.runs
    early = {"steps": horizons.early, "networks": block.early.networks}
    return {
        "depth": each(lambda i, d: training(i, d, by_depth.width, runs=runs), by_depth.depths),
        "width": each(lambda i, w: training(i, by_width.depth, w, steps_at(w)), by_width.widths),
        "epochs": each(lambda i: training(i, epochs.depth, epochs.width)),
        "early": each(lambda i: training(i, epochs.depth, epochs.width, **early)),
        "bounds": each(lambda i: training(i, **bounds.plain())),
        "linearized": each(linearized),
        "constants": [run_spec(config, KEY, "constants", constants, name)],
    }


def _evenly(steps: int) -> set[int]:
    """Up to SHOWN steps from 1 to `steps`, evenly spaced in their logarithm."""
    return {round(steps ** (k / (SHOWN - 1))) for k in range(SHOWN)}


def _up_to(steps: int, numbers: Iterable[int]) -> set[int]:
    return {number for number in numbers if 1 <= number <= steps}


def settings(config: General) -> dict[str, Any]:
    """What figures and claims need from the config beside the records."""
    block: KlPrivacySettings = config.kl_privacy
    return {"horizons": block.horizons.plain()}


SETTINGS = KlPrivacySettings
