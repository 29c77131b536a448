"""The settings of a private training of one's own, as a YAML file or a mapping gives them."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dpatlas.core.fields import (
    Bounded,
    Epsilon,
    MaxGradNorm,
    Model,
    Momentum,
    Rate,
    Relation,
    Seed,
    SettingsTried,
    Share,
    Updates,
    optional,
    setting,
)
from dpatlas.errors import InputError

NAMED = re.compile(r"[^\x00-\x1f]+\.py:[A-Za-z_]\w*")
LOSSES = ("cross_entropy", "binary_cross_entropy", "squared_error", "token_cross_entropy")


def _is_function(target: str) -> str:
    if not NAMED.fullmatch(target):
        raise ValueError("no FILE.py:FUNCTION")
    return target


def _is_function_or_file(target: str) -> str:
    return target if target.endswith(".npz") else _is_function(target)


def _is_loss(target: str) -> str:
    return target if target in LOSSES else _is_function(target)


Function = Annotated[str, AfterValidator(_is_function)]
Records = Annotated[
    str,
    AfterValidator(_is_function_or_file),
    setting(
        "FILE.py:FUNCTION that returns (x, y), (x, y, groups) or a dataset, or FILE.npz with "
        "arrays x, y and perhaps groups: the persons that records are of. Of numpy's "
        "arrays floats become float32 and whole targets int64; tensors stay as they are."
    ),
]
Range = Annotated[
    list[Bounded],
    setting("Low and high end: each trial draws a value between them.", min_length=2, max_length=2),
]
Count = Annotated[int, Field(ge=1, le=10**9)]


class WarmupCosine(Model):
    """A linear rise over `warmup` steps, then half a cosine down to `final`."""

    name: Literal["warmup-cosine"]
    warmup: int = setting("Steps of the rise.", ge=0, le=10**9)
    final: float = setting("Factor at the end.", ge=0, le=1, default=0.0)


class InverseTime(Model):
    """1 / (1 + decay step)."""

    name: Literal["inverse-time"]
    decay: float = setting("How fast it falls.", ge=0, le=1e30)


class StepDecay(Model):
    """factor^(number of whole `every` steps that have passed)."""

    name: Literal["step-decay"]
    every: Count = setting("Steps between two changes.")
    factor: float = setting("What the value is multiplied by.", gt=0, le=1)


Schedule = Annotated[
    WarmupCosine | InverseTime | StepDecay,
    Field(discriminator="name", description="Factor by the step of the training."),
]


class AdaptiveClip(Model):
    """A clip bound that follows a quantile of the norms, and starts at max_grad_norm."""

    quantile: float = setting("Share of records that are not clipped.", ge=0, le=1)
    count_noise: float = setting("Standard deviation of the noise on the count.", gt=0, le=1e30)
    lr: float = setting("Step size of the bound's logarithm.", gt=0, le=1e30, default=0.2)


class Group(Model):
    """A learning rate and weight decay for the parameters under one prefix of their names."""

    prefix: str = setting("Prefix of parameter names.")
    lr: Rate = optional()
    weight_decay: float = setting("Weight decay.", ge=0, le=1e30, default=None)

    @model_validator(mode="after")
    def _says_something(self) -> "Group":
        if self.lr is None and self.weight_decay is None:
            raise InputError("", "neither lr nor weight_decay", "one of them, or both")
        return self


class Views(Model):
    """Shifted and mirrored copies of each image, whose gradients are averaged before the clip."""

    image_shape: list[Count] = setting(
        "Channels, height and width of a record.", min_length=3, max_length=3
    )
    views: Count = setting("Copies of each image.")
    padding: int = setting("Pixels of a shift at most.", ge=0, le=10**6)
    flip: bool = setting("Whether half of the views are mirrored.", default=True)


class Select(Model):
    """Settings chosen privately: the best of a random number of trials, the choice counted."""

    law: Literal["geometric", "logarithmic", "poisson"] = setting(
        "Distribution of the number of trials."
    )
    expected_trials: float = setting("Mean of that distribution.", ge=1, le=1e30)
    validation: Records = setting(
        "Records that trials are scored on, none of which are trained on: given as those of `data` "
        "are, without groups unless they are public."
    )
    lr: Range = optional()
    max_grad_norm: Range = optional()
    right: Function = setting(
        "FILE.py:FUNCTION of outputs and targets that says of each record whether it is right; "
        "without it the largest output is compared with the label.",
        default=None,
    )
    score_noise: float = setting(
        "Standard deviation of the noise on a trial's count of right validation records, where "
        "these are private.",
        gt=0,
        le=1e30,
        default=None,
    )
    public_validation: bool = setting(
        "Whether validation records are public: then scores carry no noise.", default=False
    )

    @model_validator(mode="after")
    def _ranges_and_noise(self) -> "Select":
        if not self.ranges:
            raise InputError("", "no range", "lr or max_grad_norm with a low and a high end")
        for name, (low, high) in self.ranges.items():
            if low >= high:
                raise InputError(name, f"{low:g} to {high:g}", "a low end below the high end")
        if (self.score_noise is None) != self.public_validation:
            found = "both" if self.public_validation else "neither"
            allowed = "the one for private validation records, the other for public ones"
            raise InputError("score_noise and public_validation", found, allowed)
        return self

    @property
    def ranges(self) -> dict[str, list[float]]:
        """Low and high end by the name of the setting."""
        found = {"lr": self.lr, "max_grad_norm": self.max_grad_norm}
        return {name: ends for name, ends in found.items() if ends is not None}


class Settings(Model):
    """One private training of one's own network on one's own records."""

    data: Records
    test: Records = setting(
        "Records to measure loss and accuracy on, without noise: they count as public.",
        default=None,
    )
    model: Function = setting(
        "FILE.py:FUNCTION that takes nothing and returns the network; torch's random numbers are "
        "seeded before it is called."
    )
    loss: Annotated[str, AfterValidator(_is_loss)] = setting(
        f"{', '.join(LOSSES)}, or FILE.py:FUNCTION of outputs and targets that returns a value for "
        f"each record; {LOSSES[0]} by default.",
        default=LOSSES[0],
    )
    epsilon: Epsilon = optional()
    noise_multiplier: float = setting(
        "Noise on the sum of clipped gradients in units of max_grad_norm, in place of epsilon; 0 "
        "trains without privacy.",
        ge=0,
        le=1e30,
        default=None,
    )
    delta: Share = setting(
        "The delta of the guarantee; 1e-5 by default, or 1 / (10 n) if that is less.", default=None
    )
    relation: Relation = setting(
        "Which data sets are neighbours; by default add_remove, or replace_one with batches that "
        "have no accountant for it.",
        default=None,
    )
    sampler: Literal["poisson", "fixed-size", "shuffled", "cyclic", "full-batch"] = setting(
        "How batches are drawn; poisson by default.", default="poisson"
    )
    batch: Count = setting("Expected batch size, in persons where there are groups.", default=None)
    steps: Updates = optional()
    epochs: float = setting(
        "Passes over the data, in place of steps, which are rounded up.",
        gt=0,
        le=1e30,
        default=None,
    )
    max_grad_norm: MaxGradNorm = optional()
    clipping: Literal["flat", "per-layer"] = setting(
        "One bound for the whole gradient, which is the default, or an equal one for each layer.",
        default="flat",
    )
    layer_bounds: dict[str, Bounded] = setting(
        "Clip bound by prefix of the layers' names, in place of max_grad_norm.",
        default=None,
        min_length=1,
    )
    adaptive_clip: AdaptiveClip = optional()
    lr: Rate = optional()
    optimizer: Literal["sgd", "adam", "adamw"] = setting(
        "Optimiser of the privatised gradient; sgd by default.", default="sgd"
    )
    momentum: Momentum = 0.0
    weight_decay: float = setting("Weight decay.", ge=0, le=1e30, default=0.0)
    lr_schedule: Schedule = optional()
    noise_schedule: Schedule = optional()
    parameter_groups: list[Group] = setting("Parameters with a rate of their own.", default=[])
    trainable: list[str] = setting(
        "Prefixes of the parameters that are trained; all that require gradients without it.",
        default=[""],
        min_length=1,
    )
    augmentation: Views = optional()
    ema_decay: float = setting(
        "Decay of an average of the weights, which is then the model.", ge=0, lt=1, default=None
    )
    max_physical_batch: Count = setting(
        "Records in memory at a time; changes results only by rounding.", default=None
    )
    workers: int = setting(
        "Threads that fetch the items of a dataset at the same time; 0 by default.",
        ge=0,
        le=1000,
        default=0,
    )
    settings_tried: SettingsTried = setting(
        "How many settings were tried on these private records before these were chosen; the "
        "ledger then states what all of them cost together, and `epsilon` is of this training "
        "alone.",
        default=None,
    )
    select: Select = optional()
    seed: Seed = setting("Seed of initial weights; 0 by default.", default=0)
    noise_source: Literal["os", "keyed"] = setting(
        "os, the default: secret noise, which nobody can repeat. keyed: noise that whoever knows "
        "the settings can subtract.",
        default="os",
    )

    @model_validator(mode="after")
    def _fit_together(self) -> "Settings":
        ranges = self.select.ranges if self.select else {}
        bound = {
            "max_grad_norm": self.max_grad_norm,
            "layer_bounds": self.layer_bounds,
            "select.max_grad_norm": ranges.get("max_grad_norm"),
        }
        rate = {"lr": self.lr, "select.lr": ranges.get("lr")}
        noise = {"epsilon": self.epsilon, "noise_multiplier": self.noise_multiplier}
        for choice in (noise, {"steps": self.steps, "epochs": self.epochs}, bound, rate):
            _just_one(choice)
        if self.batch is None and self.sampler != "full-batch":
            raise InputError("batch", "nothing", f"a batch size with {self.sampler} batches")
        if self.adaptive_clip and (self.layer_bounds or self.clipping != "flat"):
            raise InputError("adaptive_clip", "another clipping beside it", "one of them")
        if self.layer_bounds and self.clipping != "flat":
            raise InputError("layer_bounds", f"clipping {self.clipping}", "one of them")
        if self.select and self.ema_decay is not None:
            raise InputError("ema_decay", "it beside select", "one of the two")
        if self.select and self.settings_tried is not None:
            raise InputError("settings_tried", "it beside select", "one of the two")
        if self.select and self.noise_multiplier == 0:
            raise InputError("noise_multiplier", "0 with select", "a number > 0")
        return self


def _just_one(choice: dict[str, Any]) -> None:
    """InputError unless one of the keys has a value."""
    given = [name for name, value in choice.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise InputError(" or ".join(choice), found, "one of them")
