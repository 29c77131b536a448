"""The settings of a private training of one's own, as a YAML file or a mapping gives them."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dpatlas.base.canonical import canonical_json
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
from dpatlas.base.guard import real
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


PREPARED = ("/", f"/{MANIFEST}")


def _named(*names: str, endings: tuple[str, ...] = ()) -> AfterValidator:
    """FILE.py:FUNCTION, one of the names, or what has one of the endings."""

    def check(target: str) -> str:
        if not (target in names or target.endswith(endings) or NAMED.fullmatch(target)):
            raise ValueError("no FILE.py:FUNCTION")
        return target

    return AfterValidator(check)


Function = Annotated[str, _named()]
Records = Annotated[str, _named(endings=(".npz", *TABLES))]
Data = Annotated[
    str,
    _named(*DATA_SETS, MANIFEST, endings=(".npz", *TABLES, *PREPARED)),
    setting(
        f"{' or '.join(DATA_SETS)}; the {MANIFEST} of a prepared set; FOLDER/ of images with "
        "`images`; FILE.csv or FILE.parquet with `table`; "
        "FILE.npz with arrays x, y and perhaps groups, the persons of records; or FILE.py:FUNCTION "
        "that returns (x, y), (x, y, groups) or a dataset. Of numpy's arrays floats become "
        "float32 and whole targets int64."
    ),
]
Range = Annotated[
    list[Bounded], setting("Range that trials draw from.", min_length=2, max_length=2)
]
Count = Annotated[int, Field(ge=1, le=10**9)]


def _texts_once(names: list[int | str]) -> list[int | str]:
    """Refuse 1 beside "1": cells of a table are texts."""
    if len(set(map(str, names))) < len(names):
        raise ValueError("an entry twice")
    return names


Classes = Annotated[
    Once[ClassName],
    AfterValidator(_texts_once),
    setting("Public names, in order.", min_length=2),
]


class ColumnSettings(Model):
    """An input of a table: a number in a public range, one of some categories, or a text."""

    range: list[Annotated[float, Field(ge=-1e30, le=1e30)]] = setting(
        "Public range, which becomes -1 to 1; numbers outside are clipped and counted.",
        min_length=2,
        max_length=2,
        default=None,
    )
    categories: Classes = optional()
    words: int = setting(
        "Of a text: its words are counted in so many buckets, by a public hash, and scaled to "
        "length 1.",
        ge=2,
        le=2**20,
        default=None,
    )
    missing: Any = setting(
        "Public constant, category or text for missing cells, which are refused without it.",
        default=None,
        json_schema_extra={"type": ["number", "string"]},
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "ColumnSettings":
        _just_one({name: getattr(self, name) for name in ("range", "categories", "words")})
        filler, allowed = self.missing, list(map(str, self.categories or ()))
        if not isinstance(filler, str | None):
            real().check("missing", filler)
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
    """Columns of tables; others are not used."""

    target: str = setting("Column of the targets, none missing.")
    classes: Classes = setting(
        "Classes as in cells; without it targets are numbers.", min_length=2, default=None
    )
    columns: dict[str, ColumnSettings] = setting("Inputs, in order.", min_length=1)
    groups: str = setting("Column of the person of a record.", default=None)
    missing_marks: list[str] = setting(
        "Marks of missing cells, in upper or lower case.",
        default=["NA", "N/A", "NaN", "null", "None"],
    )

    @model_validator(mode="after")
    def _target_is_no_input(self) -> "TableSettings":
        if self.target in self.columns:
            raise InputError("columns", f"{self.target}, the target", "inputs alone")
        return self


class WarmupCosineSettings(Model):
    """Linear rise over `warmup` steps, then half a cosine down to `final`."""

    name: Literal["warmup-cosine"]
    warmup: int = setting("Steps of the rise.", ge=0, le=10**9)
    final: float = setting("Factor at the end.", ge=0, le=1, default=0.0)


class InverseTimeSettings(Model):
    """1 / (1 + decay step)."""

    name: Literal["inverse-time"]
    decay: float = setting("How fast it falls.", ge=0, le=1e30)


class StepDecaySettings(Model):
    """factor^(number of whole `every` steps passed)."""

    name: Literal["step-decay"]
    every: Count = setting("Steps between two changes.")
    factor: float = setting("Multiplier.", gt=0, le=1)


Schedule = Annotated[
    WarmupCosineSettings | InverseTimeSettings | StepDecaySettings,
    Field(discriminator="name", description="Factor by the step."),
]


class AdaptiveClipSettings(Model):
    """Clip bound that follows a quantile of the norms from max_grad_norm on."""

    quantile: float = setting("Share of records not clipped.", ge=0, le=1)
    count_noise: float = setting("Standard deviation of the count's noise.", gt=0, le=1e30)
    lr: float = setting("Step size of the bound's logarithm.", gt=0, le=1e30, default=0.2)


class Group(Model):
    """A learning rate and weight decay for the parameters under one prefix of their names."""

    prefix: str = setting("Of parameter names.")
    lr: Rate = optional()
    weight_decay: float = setting("Weight decay.", ge=0, le=1e30, default=None)

    @model_validator(mode="after")
    def _says_something(self) -> "Group":
        if self.lr is None and self.weight_decay is None:
            raise InputError("", "neither lr nor weight_decay", "one of them, or both")
        return self


class Views(Model):
    """Shifted and mirrored images, whose gradients are averaged before the clip."""

    image_shape: list[Count] = setting("Channels, height, width.", min_length=3, max_length=3)
    views: Count = setting("Copies.")
    padding: int = setting("Largest shift in pixels.", ge=0, le=10**6)
    flip: bool = setting("Whether half are mirrored.", default=True)


class Select(Model):
    """The best of a random number of trials, the choice counted in epsilon."""

    law: Literal["geometric", "logarithmic", "poisson"] = setting(
        "Distribution of the number of trials."
    )
    expected_trials: float = setting("Mean number of trials.", ge=1, le=1e30)
    validation: Records = setting(
        "Records that trials are scored on, not of `data`, without groups unless public; by "
        "default of a prepared set.",
        default=None,
    )
    lr: Range = optional()
    max_grad_norm: Range = optional()
    right: Function = setting(
        "FILE.py:FUNCTION of outputs and targets: whether each record is right; by default the "
        "largest output is the label.",
        default=None,
    )
    score_noise: float = setting(
        "Standard deviation of the noise on a trial's right answers on private validation records.",
        gt=0,
        le=1e30,
        default=None,
    )
    public_validation: bool = setting("Public validation records: no noise.", default=False)

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
    """An audit of this training by its network."""

    number: int = setting(
        "Blank records with their own inputs, in or out by a fair coin.", ge=2, le=100_000
    )
    level: Share = setting("Confidence of bound and verdict; 0.95 by default.", default=0.95)


class TrainSettings(Model):
    """A private training of a network, of one's own or by its name."""

    data: Data
    test: Records = setting(
        "Public records that measure loss and accuracy; by default those of a prepared set.",
        default=None,
    )
    table: TableSettings = optional()
    images: OwnSet = setting(
        "Images of a folder: classes; channels (1 or 3), height, width; scaling to 0 to 1 "
        "(unit) or -1 to 1 (centred); whether central squares are resized.",
        default=None,
    )
    model: Annotated[str, _named(*NETWORK_NAMES)] = setting(
        "FILE.py:FUNCTION that returns the network, called after torch is seeded. For prepared "
        f"sets and folders of images also {', '.join(NETWORK_NAMES)}; for classes in a table the "
        "first two."
    )
    loss: Annotated[str, _named(*LOSSES)] = setting(
        f"{', '.join(LOSSES)} (default the first), or FILE.py:FUNCTION of outputs and targets with "
        "a value for each record.",
        default=LOSSES[0],
    )
    epsilon: Epsilon = optional()
    noise_multiplier: float = setting(
        "Noise in units of max_grad_norm, in place of epsilon; 0 trains without privacy.",
        ge=0,
        le=1e30,
        default=None,
    )
    delta: Share = setting("1e-5 by default, or 1 / (10 n) if that is less.", default=None)
    relation: Relation = setting(
        "By default add_remove, or replace_one for samplers without an accountant for it.",
        default=None,
    )
    sampler: Literal["poisson", "fixed-size", "shuffled", "cyclic", "full-batch"] = setting(
        "poisson by default.", default="poisson"
    )
    batch: Count = setting("Expected batch size, in persons with groups.", default=None)
    steps: Updates = optional()
    epochs: float = setting(
        "Passes over the data, in place of steps, rounded up.", gt=0, le=1e30, default=None
    )
    max_grad_norm: MaxGradNorm = optional()
    clipping: Literal["flat", "per-layer"] = setting(
        "One bound for the gradient (default), or an equal one for each layer.", default="flat"
    )
    layer_bounds: dict[str, Bounded] = setting(
        "Clip bounds by prefix of layer names, in place of max_grad_norm.",
        default=None,
        min_length=1,
    )
    adaptive_clip: AdaptiveClipSettings = optional()
    lr: Rate = optional()
    optimizer: Annotated[str, Field(pattern=r"^(sgd|adam|adamw|[A-Z][A-Za-z0-9]*)$")] = setting(
        "sgd, adam, adamw, or a class of torch.optim, such as NAdam; sgd by default.", default="sgd"
    )
    optimizer_settings: dict[str, Any] = setting(
        "Arguments of a class of torch.optim, such as betas, eps or nesterov.", default={}
    )
    momentum: Momentum = 0.0
    weight_decay: float = setting("Weight decay.", ge=0, le=1e30, default=0.0)
    lr_schedule: Schedule = optional()
    noise_schedule: Schedule = optional()
    parameter_groups: list[Group] = setting("Parameters with their own rate.", default=[])
    trainable: list[str] = setting(
        "Prefixes of trained parameters; by default all that require gradients.",
        default=[""],
        min_length=1,
    )
    augmentation: Views = optional()
    ema_decay: float = setting(
        "Decay of averaged weights, which are then the model.", ge=0, lt=1, default=None
    )
    max_physical_batch: Count = setting(
        "Records in memory at a time; changes only rounding.", default=None
    )
    workers: int = setting(
        "Threads that fetch a dataset's items; 0 by default.", ge=0, le=1000, default=0
    )
    settings_tried: SettingsTried = setting(
        "Settings tried on these private records; the ledger then also states their cost together, "
        "`epsilon` that of this training.",
        default=None,
    )
    select: Select = optional()
    runs: int = setting(
        "Networks trained, with one guarantee for all; 1 by default.", ge=1, le=1000, default=1
    )
    canaries: CanarySettings = optional()
    seed: Seed = setting("Of initial weights; 0 by default.", default=0)
    noise_source: Literal["os", "keyed"] = setting(
        "os (default) is secret; keyed can be repeated, and subtracted by whoever knows the "
        "settings.",
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
        for key in ("ema_decay", "settings_tried"):
            if self.select and getattr(self, key) is not None:
                raise InputError(key, "it beside select", "one of the two")
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
        for key in ("lr", "weight_decay"):
            if key in self.optimizer_settings:
                allowed = f"none: {key} is a setting of its own"
                raise InputError(f"optimizer_settings.{key}", self.optimizer_settings[key], allowed)
        try:
            canonical_json(self.optimizer_settings)
        except (TypeError, ValueError):
            allowed = "finite numbers, texts, true or false, and lists of them"
            raise InputError("optimizer_settings", self.optimizer_settings, allowed) from None
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
        return self.data in (*DATA_SETS, MANIFEST) or self.data.endswith(PREPARED)

    @property
    def identity(self) -> dict[str, Any]:
        """All keys that tell trainings apart, without those that came later at their defaults."""
        none = dict.fromkeys(("canaries", "table", "images"))
        later: dict[str, Any] = {**none, "runs": 1, "optimizer_settings": {}}
        same = [name for name, value in later.items() if getattr(self, name) == value]
        return self.whole("workers", *same)


def _just_one(choice: dict[str, Any]) -> None:
    """InputError unless one of the keys has a value."""
    given = [name for name, value in choice.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise InputError(" or ".join(choice), found, "one of them")
