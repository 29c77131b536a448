"""The settings of a private training of one's own, as a YAML file or a mapping gives them."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dpatlas.base.facts import OwnSet
from dpatlas.base.fields import (
    Bounded,
    ClassName,
    Epsilon,
    MaxGradNorm,
    Model,
    Momentum,
    Once,
    Rate,
    Relation,
    Seed,
    SettingsTried,
    Share,
    Updates,
    optional,
    setting,
)
from dpatlas.base.networks import NETWORKS
from dpatlas.base.own_data import definition
from dpatlas.errors import InputError

# Data sets that are prepared when a training names them, and networks that are built by a name.
DATA_SETS = ("digits", "cifar10")
MANIFEST = "manifest.json"
TABLES = (".csv", ".parquet")
NETWORK_NAMES = tuple(name for name, entry in NETWORKS.items() if entry.weights is None)
NAMED = re.compile(r"[^\x00-\x1f]+\.py:[A-Za-z_]\w*")
LOSSES = ("cross_entropy", "binary_cross_entropy", "squared_error", "token_cross_entropy")


def _is_function(target: str) -> str:
    if not NAMED.fullmatch(target):
        raise ValueError("no FILE.py:FUNCTION")
    return target


def _is_function_or_file(target: str) -> str:
    return target if target.endswith((".npz", *TABLES)) else _is_function(target)


def _is_data(target: str) -> str:
    prepared = target in DATA_SETS or target.endswith("/") or Path(target).name == MANIFEST
    return target if prepared else _is_function_or_file(target)


def _is_network(target: str) -> str:
    return target if target in NETWORK_NAMES else _is_function(target)


def _is_loss(target: str) -> str:
    return target if target in LOSSES else _is_function(target)


Function = Annotated[str, AfterValidator(_is_function)]
Records = Annotated[
    str,
    AfterValidator(_is_function_or_file),
    setting(
        "FILE.py:FUNCTION that returns (x, y), (x, y, groups) or a dataset, or FILE.npz with "
        "arrays x, y and perhaps groups: the persons that records are of. Of numpy's "
        "arrays floats become float32 and whole targets int64; tensors stay as they are. Or "
        "FILE.csv or FILE.parquet, of which `table` names the columns."
    ),
]
Data = Annotated[
    str,
    AfterValidator(_is_data),
    setting(
        f"{' or '.join(DATA_SETS)}, which is prepared first, or the {MANIFEST} of a data set that "
        "is: both have test and validation records, too, and records are rows of numbers. Or "
        "FOLDER/ of images in train/CLASS and perhaps test/CLASS, or in CLASS, with `images`. Or "
        "FILE.py:FUNCTION, FILE.npz, FILE.csv or FILE.parquet, as for `test`."
    ),
]
Range = Annotated[
    list[Bounded],
    setting("Low and high end: each trial draws a value between them.", min_length=2, max_length=2),
]
Count = Annotated[int, Field(ge=1, le=10**9)]


Classes = Annotated[Once[ClassName], setting("Names, public and in order.", min_length=2)]


class ColumnSettings(Model):
    """An input of a table: a number in a public range, one of some categories, or a text."""

    range: list[Annotated[float, Field(ge=-1e30, le=1e30)]] = setting(
        "Public low and high end, which become -1 and 1; numbers outside are clipped and counted.",
        min_length=2,
        max_length=2,
        default=None,
    )
    categories: Classes = optional()
    words: int = setting(
        "Of a text: each word adds 1 to one of so many numbers, by a public hash, and the whole is "
        "scaled to length 1.",
        ge=2,
        le=2**20,
        default=None,
    )
    missing: Any = setting(
        "What fills a missing cell: a public constant of the range, a category or a text; without "
        "it missing cells are refused.",
        default=None,
        json_schema_extra={"type": ["number", "string"]},
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "ColumnSettings":
        _just_one({name: getattr(self, name) for name in ("range", "categories", "words")})
        filler, allowed = self.missing, list(map(str, self.categories or ()))
        if self.range:
            low, high = self.range
            if low >= high:
                raise InputError("range", f"{low:g} to {high:g}", "a low end below the high end")
            if filler is not None and not (type(filler) in (int, float) and low <= filler <= high):
                raise InputError("missing", repr(filler), f"a number from {low:g} to {high:g}")
        elif allowed and filler is not None and str(filler) not in allowed:
            raise InputError("missing", repr(filler), f"one of {', '.join(allowed)}")
        return self


class TableSettings(Model):
    """What the columns of tables are; others are not used."""

    target: str = setting("Column of the targets, of which none may be missing.")
    classes: Classes = setting(
        "Classes as the target's cells name them; without it targets are numbers.",
        min_length=2,
        default=None,
    )
    columns: dict[str, ColumnSettings] = setting(
        "Inputs, in order, by their columns.", min_length=1
    )
    groups: str = setting("Column that names the person of a record.", default=None)
    missing_marks: list[str] = setting(
        "Cells that count as missing beside empty ones, in any case of letters.",
        default=["NA", "N/A", "NaN", "null", "None"],
    )


class WarmupCosineSettings(Model):
    """A linear rise over `warmup` steps, then half a cosine down to `final`."""

    name: Literal["warmup-cosine"]
    warmup: int = setting("Steps of the rise.", ge=0, le=10**9)
    final: float = setting("Factor at the end.", ge=0, le=1, default=0.0)


class InverseTimeSettings(Model):
    """1 / (1 + decay step)."""

    name: Literal["inverse-time"]
    decay: float = setting("How fast it falls.", ge=0, le=1e30)


class StepDecaySettings(Model):
    """factor^(number of whole `every` steps that have passed)."""

    name: Literal["step-decay"]
    every: Count = setting("Steps between two changes.")
    factor: float = setting("What the value is multiplied by.", gt=0, le=1)


Schedule = Annotated[
    WarmupCosineSettings | InverseTimeSettings | StepDecaySettings,
    Field(discriminator="name", description="Factor by the step of the training."),
]


class AdaptiveClipSettings(Model):
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
        "Records that trials are scored on, none of which are trained on: without groups unless "
        "they are public; by default those of a prepared data set.",
        default=None,
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


class CanarySettings(Model):
    """An audit of this training by the network that it gives, with an input for each canary."""

    number: int = setting(
        "Blank records with an input of their own each, in or out of the training set by a fair "
        "coin.",
        ge=2,
        le=100_000,
    )
    level: Share = setting(
        "Confidence of the bound on epsilon and of the verdict; 0.95 by default.", default=0.95
    )


class TrainSettings(Model):
    """A private training of a network, of one's own or by its name."""

    data: Data
    test: Records = setting(
        "Records to measure loss and accuracy on, without noise: they count as public; by default "
        "those of a prepared data set.",
        default=None,
    )
    table: TableSettings = optional()
    images: OwnSet = setting(
        "What the images of a folder are: classes by name, image_shape as channels (1 or 3), "
        "height and width, scaling to 0 to 1 (unit) or -1 to 1 (centred), and whether central "
        "squares are resized to that shape.",
        default=None,
    )
    model: Annotated[str, AfterValidator(_is_network)] = setting(
        "FILE.py:FUNCTION that takes nothing and returns the network; torch's random numbers are "
        "seeded before it is called. With a prepared data set or a folder of images also "
        f"{', '.join(NETWORK_NAMES)}; with classes in a table the first two."
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
    adaptive_clip: AdaptiveClipSettings = optional()
    lr: Rate = optional()
    optimizer: Annotated[str, Field(pattern=r"^(sgd|adam|adamw|[A-Z][A-Za-z0-9]*)$")] = setting(
        "Optimiser of the privatised gradient: sgd, adam, adamw, or a class of torch.optim such as "
        "NAdam; sgd by default.",
        default="sgd",
    )
    optimizer_settings: dict[str, Any] = setting(
        "Its arguments for a class of torch.optim, such as betas, eps or nesterov.", default={}
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
    runs: int = setting(
        "Networks trained, with initial weights, batches and noise of their own; the guarantee is "
        "of all together; 1 by default.",
        ge=1,
        le=1000,
        default=1,
    )
    canaries: CanarySettings = optional()
    seed: Seed = setting("Seed of initial weights; 0 by default.", default=0)
    noise_source: Literal["os", "keyed"] = setting(
        "os, the default: secret noise, which nobody can repeat. keyed: noise that whoever knows "
        "the settings can subtract.",
        default="os",
    )

    @model_validator(mode="after")
    def _fit_together(self) -> "TrainSettings":
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
        if self.select and self.runs > 1:
            raise InputError("runs", "it beside select", "1: a selection releases one network")
        for key in ("select", "canaries"):
            if getattr(self, key) and self.noise_multiplier == 0:
                raise InputError("noise_multiplier", f"0 with {key}", "a number > 0")
        if self.select and self.select.validation is None and not self.is_prepared:
            raise InputError("select.validation", "nothing", "records to score trials on")
        if self.optimizer_settings and self.optimizer.islower():
            allowed = f"none with {self.optimizer}; a class of torch.optim takes them"
            raise InputError("optimizer_settings", ", ".join(self.optimizer_settings), allowed)
        self._check_files()
        if self.canaries:
            self._check_canaries()
        return self

    def _check_files(self) -> None:
        """InputError for files without a block that says what they hold, and for networks."""
        chosen = self.select.validation if self.select else None
        tables = [each for each in (self.data, self.test, chosen) if each and each.endswith(TABLES)]
        with_blocks = {
            "table": (bool(tables), "FILE.csv or FILE.parquet"),
            "images": (self.data.endswith("/"), "FOLDER/"),
        }
        for key, (used, names) in with_blocks.items():
            if used != (getattr(self, key) is not None):
                found = "nothing" if used else f"it without {names}"
                raise InputError(key, found, f"this block with {names}, and only then")
        if self.images:
            definition("images", self.images.whole())
        if self.model not in NETWORK_NAMES or self.is_prepared:
            return
        of_classes = self.data in tables and self.table and self.table.classes
        if not (of_classes and NETWORKS[self.model].flat):
            allowed = f"FILE.py:FUNCTION, or {' or '.join(DATA_SETS)} or a {MANIFEST} as data"
            found = f"{self.model} with records of one's own"
            raise InputError("model", found, f"{allowed}; linear or mlp with classes in a table")

    def _check_canaries(self) -> None:
        """InputError for a training whose canaries would show nothing, or are not accounted."""
        alone = {
            "select": None,
            "runs": 1,
            "sampler": "poisson",
            "clipping": "flat",
            "layer_bounds": None,
            "augmentation": None,
            "loss": LOSSES[0],
        }
        for key, value in alone.items():
            if getattr(self, key) != value:
                allowed = "none of it" if value is None else value
                raise InputError(key, "another value beside canaries", str(allowed))
        if self.relation == "replace_one":
            raise InputError("relation", "replace_one beside canaries", "add_remove")

    @property
    def is_prepared(self) -> bool:
        """Whether `data` is a prepared data set, or a folder of images, which becomes one."""
        named = self.data in DATA_SETS or Path(self.data).name == MANIFEST
        return named or self.data.endswith("/")

    @property
    def identity(self) -> dict[str, Any]:
        """All keys that tell trainings apart, without those that came later at their defaults."""
        none = dict.fromkeys(("canaries", "table", "images"))
        later = {**none, "runs": 1, "optimizer_settings": {}}
        same = [name for name, value in later.items() if getattr(self, name) == value]
        return self.whole("workers", *same)


def _just_one(choice: dict[str, Any]) -> None:
    """InputError unless one of the keys has a value."""
    given = [name for name, value in choice.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise InputError(" or ".join(choice), found, "one of them")
