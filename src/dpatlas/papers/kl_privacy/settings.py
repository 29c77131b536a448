"""kl_privacy: the paper's block of the config, and the jobs that it asks for."""

import itertools
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, model_validator

from dpatlas.config.common import run_blocks, run_spec
from dpatlas.config.model import AsWritten, ClassName, Model, Once, setting
from dpatlas.config.root import General
from dpatlas.config.types import DealtSet, Digit, PrivateName, Rate, Repeated
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "kl_privacy"

Init = Literal["lecun", "he", "ntk", "xavier"]
Cifar10Class = Literal[
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
]
Steps = Annotated[int, setting("A number of full-batch steps.", ge=2, le=1_000_000)]
Depth = Annotated[int, setting("Depth L, the number of weight matrices.", ge=2, le=1000)]
Depths = Annotated[Once[Depth], setting("Depths L, numbers of weight matrices.", min_length=1)]
Width = Annotated[int, setting("Hidden width m.", ge=1, le=100_000)]
Widths = Annotated[Once[Width], setting("Hidden widths m.", min_length=1)]
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


class Rates(Model):
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

    networks: int = setting(
        "Networks of every run, on the same records, each with weights and noise of its own.",
        ge=1,
        le=1000,
    )


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


class Linearized(Repeated):
    """The linearised network of Sec. 6, trained at a fixed KL budget and at a fixed noise."""

    depths: Depths
    width: Width
    n_train: int = setting(
        "Training records used; the work grows with their cube.", ge=2, le=20_000
    )
    epsilon: float = setting("KL budget epsilon of Cor. 6.4, in nats.", gt=0, le=1e6)
    min_steps: Steps
    time: float = setting("Training time at the fixed noise, steps times step size.", gt=0, le=1e6)
    sigma: float = setting("The fixed noise sigma.", gt=0)
    widths: Widths
    width_depth: Depth


class Constants(Model):
    """Monte Carlo check of the gradient-norm constant B."""

    depths: Depths
    width: Width
    outputs: int = setting("Outputs o.", ge=1, le=1000)
    draws: int = setting("Networks drawn per init and depth.", ge=2, le=1_000_000)


class Settings(Repeated):
    """KL privacy loss of noisy gradient descent."""

    enabled: bool = setting("Whether this paper is part of the run.")
    data: Annotated[
        Annotated[TwoDigits, Tag("TwoDigits")]
        | Annotated[TwoOfCifar10, Tag("TwoOfCifar10")]
        | Annotated[TwoOfOwn, Tag("TwoOfOwn")],
        Discriminator(_two_classes_of),
    ] = setting("Two classes; training records, and the records to add as neighbours.")
    inits: Once[Init] = setting("Initialisations to compare.", min_length=1)
    outputs: int = setting(
        "Outputs o of the network; 1 is the logistic loss, 2 or more the softmax.", ge=1, le=1000
    )
    sigma: float = setting("Noise sigma of the update W - eta grad + sqrt(2 eta sigma^2) Z.", gt=0)
    lr: Rates
    horizons: Horizons
    depth_sweep: DepthSweep
    width_sweep: WidthSweep
    epochs: Epochs
    early: Early
    bounds: Bounds
    linearized: Linearized
    constants: Constants

    @model_validator(mode="after")
    def _has_a_rate_for_every_init(self) -> "Settings":
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
    block: Settings = config.kl_privacy
    depth, width, epochs, bounds = block.depth_sweep, block.width_sweep, block.epochs, block.bounds
    linearized, constants, horizons = block.linearized, block.constants, block.horizons
    long = horizons.long
    data, watched = block.data.dealt(), block.data.watched
    # Steps at which some figure or claim reads the records of a sweep.
    read = {*horizons.plain().values(), horizons.early // 2, width.steps}

    def training(
        init: str,
        depth: int,
        width: int,
        steps: int,
        lr: float,
        networks: int = 1,
        runs: int = block.runs,
    ) -> list[Spec]:
        fields = {
            "data": data,
            "init": init,
            "depth": depth,
            "width": width,
            "lr": lr,
            "steps": steps,
            "networks": networks,
            "shown_steps": sorted(_up_to(steps, read | _evenly(steps))),
            "record_steps": sorted(_up_to(steps, read | {steps})),
            "watched": watched,
            **block.plain("outputs", "sigma"),
        }
        several = f"-{networks}-networks" if networks > 1 else ""
        name = f"{init}-d{depth}-w{width}{several}"
        return run_blocks(config, KEY, "training", fields, name, runs, block.runs_per_job)

    def lr(init: str) -> float:
        return getattr(block.lr, init)

    def steps_at(units: int) -> int:
        # Where the depth sweep trains the same condition for longer, its curve holds these steps.
        shared = width.depth in depth.depths and units == depth.width
        return long if shared and width.steps <= long else width.steps

    return {
        "depth": [
            spec
            for init in block.inits
            for layers in depth.depths
            for spec in training(
                init, layers, depth.width, long, lr(init), runs=depth.runs or block.runs
            )
        ],
        "width": [
            spec
            for init in block.inits
            for units in width.widths
            for spec in training(init, width.depth, units, steps_at(units), lr(init))
        ],
        "epochs": [
            spec
            for init in block.inits
            for spec in training(init, epochs.depth, epochs.width, long, lr(init))
        ],
        "early": [
            spec
            for init in block.inits
            for spec in training(
                init, epochs.depth, epochs.width, horizons.early, lr(init), block.early.networks
            )
        ],
        "bounds": [
            spec
            for init in block.inits
            for spec in training(init, bounds.depth, bounds.width, bounds.steps, bounds.lr)
        ],
        "linearized": [
            spec
            for init in block.inits
            for spec in run_blocks(
                config,
                KEY,
                "linearized",
                {
                    "data": data,
                    "init": init,
                    "watched": watched,
                    **linearized.plain_without("runs", "runs_per_job"),
                },
                f"linearized-{init}-w{linearized.width}",
                linearized.runs,
                linearized.runs_per_job,
            )
        ],
        "constants": [
            run_spec(
                config,
                KEY,
                "constants",
                {"data": block.data.fields(), "inits": block.inits, **constants.plain()},
                f"constants-w{constants.width}",
            )
        ],
    }


def _evenly(steps: int) -> set[int]:
    """Up to SHOWN steps from 1 to `steps`, evenly spaced in their logarithm."""
    return {round(steps ** (k / (SHOWN - 1))) for k in range(SHOWN)}


def _up_to(steps: int, numbers: Iterable[int]) -> set[int]:
    return {number for number in numbers if 1 <= number <= steps}


def settings(config: General) -> dict[str, Any]:
    """What figures and claims need from the config beside the records."""
    block: Settings = config.kl_privacy
    return {"horizons": block.horizons.plain()}
