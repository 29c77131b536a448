"""kl_privacy: the paper's block of the config, and the jobs that it asks for."""

import itertools
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, model_validator

from dpatlas.config.common import run_spec
from dpatlas.config.model import AsWritten, ClassName, Model, Once, setting
from dpatlas.config.root import General
from dpatlas.config.types import DataSet, Digit, PrivateName, Rate
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


class TwoDigits(DataSet):
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


class TwoOfCifar10(DataSet):
    """Two classes of CIFAR-10."""

    name: Literal["cifar10"] = setting("Name of the data set.")
    classes: Once[Cifar10Class] = setting(  # type: ignore[assignment]
        "Two of the ten classes.", min_length=2, max_length=2
    )
    n_train: int = setting("Training records of the two classes.", ge=2, le=10_000)
    n_add: int = setting("Test records of the two classes, added as neighbours.", ge=1, le=2000)


class TwoOfOwn(DataSet):
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


class WidthSweep(Model):
    """Conditions of kl_vs_width."""

    widths: Once[Width] = setting("Hidden widths m.", min_length=1)
    depth: Depth
    steps: Steps


class Epochs(Model):
    """The condition whose KL is shown against the number of steps in kl_vs_epochs."""

    depth: Depth
    width: Width


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


class Linearized(Model):
    """The linearised network of Sec. 6, trained at a fixed KL budget."""

    depths: Depths
    width: Width
    n_train: int = setting(
        "Training records used; the work grows with their cube.", ge=2, le=20_000
    )
    epsilon: float = setting("KL budget epsilon of Cor. 6.4, in nats.", gt=0, le=1e6)
    runs: int = setting("Initialisations per depth.", ge=2, le=1000)
    min_steps: Steps


class Constants(Model):
    """Monte Carlo check of the gradient-norm constant B."""

    depths: Depths
    width: Width
    outputs: int = setting("Outputs o.", ge=1, le=1000)
    draws: int = setting("Networks drawn per init and depth.", ge=2, le=1_000_000)


class Settings(Model):
    """KL privacy loss of noisy gradient descent."""

    enabled: bool = setting("Whether this paper is part of the run.")
    data: Annotated[
        Annotated[TwoDigits, Tag("TwoDigits")]
        | Annotated[TwoOfCifar10, Tag("TwoOfCifar10")]
        | Annotated[TwoOfOwn, Tag("TwoOfOwn")],
        Discriminator(_two_classes_of),
    ] = setting("Two classes; training records, and the records to add as neighbours.")
    inits: Once[Init] = setting("Initialisations to compare.", min_length=1)
    runs: int = setting(
        "Training runs of every condition; intervals need at least 2, verdicts 5 or more.",
        ge=2,
        le=1000,
    )
    outputs: int = setting(
        "Outputs o of the network; 1 is the logistic loss, 2 or more the softmax.", ge=1, le=1000
    )
    sigma: float = setting("Noise sigma of the update W - eta grad + sqrt(2 eta sigma^2) Z.", gt=0)
    lr: Rates
    horizons: Horizons
    depth_sweep: DepthSweep
    width_sweep: WidthSweep
    epochs: Epochs
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
    """The paper's specs by group.

    `depth`, `width`, `epochs`, `bounds`: training runs. `linearized`: the trade-off of Sec. 6, one
    spec per init. `constants`: the Monte Carlo check of Eq. 7. A condition that two groups share
    is one spec and runs once.
    """
    block: Settings = config.kl_privacy
    depth, width, epochs, bounds = block.depth_sweep, block.width_sweep, block.epochs, block.bounds
    linearized, constants, long = block.linearized, block.constants, block.horizons.long
    data = block.data.fields()

    def training(init: str, depth: int, width: int, steps: int, lr: float) -> Spec:
        fields = {
            "data": data,
            "init": init,
            "depth": depth,
            "width": width,
            "lr": lr,
            "steps": steps,
            **block.plain("outputs", "sigma", "runs"),
        }
        return run_spec(config, KEY, "training", fields, f"{init}-d{depth}-w{width}")

    def lr(init: str) -> float:
        return getattr(block.lr, init)

    def steps_at(units: int) -> int:
        # Where the depth sweep trains the same condition for longer, its curve holds these steps.
        shared = width.depth in depth.depths and units == depth.width
        return long if shared and width.steps <= long else width.steps

    return {
        "depth": [
            training(init, layers, depth.width, long, lr(init))
            for init in block.inits
            for layers in depth.depths
        ],
        "width": [
            training(init, width.depth, units, steps_at(units), lr(init))
            for init in block.inits
            for units in width.widths
        ],
        "epochs": [
            training(init, epochs.depth, epochs.width, long, lr(init)) for init in block.inits
        ],
        "bounds": [
            training(init, bounds.depth, bounds.width, bounds.steps, bounds.lr)
            for init in block.inits
        ],
        "linearized": [
            run_spec(
                config,
                KEY,
                "linearized",
                {"data": data, "init": init, **linearized.plain()},
                f"linearized-{init}-w{linearized.width}",
            )
            for init in block.inits
        ],
        "constants": [
            run_spec(
                config,
                KEY,
                "constants",
                {"data": data, "inits": block.inits, **constants.plain()},
                f"constants-w{constants.width}",
            )
        ],
    }


def settings(config: General) -> dict[str, Any]:
    """What figures and claims need from the config beside the records."""
    block: Settings = config.kl_privacy
    return {"horizons": block.horizons.plain()}
