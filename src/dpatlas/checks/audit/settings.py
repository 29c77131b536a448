"""audit: which attacks on our own mechanisms the config asks for, and what is trained by them.

No paper: it checks the code that the papers stand on.
"""

from collections.abc import Mapping
from typing import Any

from dpatlas.checks.audit.mechanisms import MECHANISMS
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "audit"
# Of a `training` spec: what a config has to say, and what else a command line may.
SETTINGS = (
    "data",
    "model",
    "epsilon",
    "delta",
    "batch",
    "steps",
    "max_grad_norm",
    "lr",
    "momentum",
    "optimizer",
    "settings_tried",
)
DEFAULTS: Mapping[str, Any] = {
    "relation": "add_remove",
    "sampler": "poisson",
    "noise_multiplier": None,
    "weight_decay": 0.0,
    "clipping": "flat",
    "max_physical_batch": None,
    "ema_decay": None,
    "runs": 1,
    "canaries": 0,
}
# Of these a selection has none: one network comes out of it, and who chose is in its ledger.
UNSELECTED = ("runs", "canaries", "ema_decay", "settings_tried")
NUMBERS = ("epsilon", "delta", "noise_multiplier", "max_grad_norm", "lr", "momentum")


def groups(config: Mapping[str, Any]) -> dict[str, list[Spec]]:
    """Specs by group: one attack per mechanism, the one-run audit, the private training."""
    block = config[KEY]
    _check(block)
    levels = {name: float(block[name]) for name in ("level", "verdict_level")}
    return {
        "mechanisms": [
            mechanism_spec(config, name, block["runs"], block["delta"], **levels)
            for name in block["mechanisms"]
        ],
        "canaries": [training_spec(config, {**_held_out(block["canaries"]), **levels})],
        "training": [training_spec(config, _held_out(block["training"]))],
    }


def mechanism_spec(
    config: Mapping[str, Any],
    name: str,
    runs: int,
    delta: float,
    level: float,
    verdict_level: float,
) -> Spec:
    """The attack on one mechanism: `runs` runs on each neighbour, times what its entry says."""
    fields = {
        **_common(config, "mechanism"),
        "mechanism": name,
        "runs": runs * MECHANISMS[name].runs,
        "delta": float(delta),
        "level": level,
        "verdict_level": verdict_level,
    }
    return Spec.of(fields, name)


def training_spec(config: Mapping[str, Any], settings: Mapping[str, Any]) -> Spec:
    """Private training with `SETTINGS`, and any of `DEFAULTS` changed; with canaries, its audit.

    `config` gives the base of the seeds and the source of the noise.
    """
    fields = {**_common(config, "training"), **DEFAULTS, **settings}
    for name in NUMBERS:
        if fields[name] is not None:
            fields[name] = float(fields[name])
    what = "canaries" if fields["canaries"] else "training"
    return Spec.of(fields, f"{what}-{fields['model']}")


def selection_spec(
    config: Mapping[str, Any], settings: Mapping[str, Any], selection: Mapping[str, Any]
) -> Spec:
    """A private selection among trainings with `settings`, those drawn from `ranges` left out.

    selection: `law` and `expected_trials`, `ranges` {name: [low, high]} of what each trial draws,
    and `score_noise`, the deviation on the count of right answers (None: public records).
    """
    fields = dict(training_spec(config, settings).fields)
    for name in (*UNSELECTED, *selection["ranges"]):
        del fields[name]
    return Spec.of({**fields, **selection, "kind": "selection"}, f"selection-{fields['model']}")


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing: the table is made of the records alone."""
    return {}


def _held_out(block: Mapping[str, Any]) -> dict[str, Any]:
    """A config block whose data set has no add-one records: it is split three ways."""
    return {**block, "data": {**block["data"], "n_add": 0}}


def _common(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "key": KEY,
        "kind": kind,
        "seed": config["seed"],
        "noise_source": config["noise_source"],
    }


def _check(block: Mapping[str, Any]) -> None:
    if block["verdict_level"] < block["level"]:
        raise InputError("audit.verdict_level", block["verdict_level"], "at least audit.level")
    for name in ("training", "canaries"):
        inner = block[name]
        n = inner["data"]["n_train"] + inner.get("canaries", 0)
        if inner["batch"] > n:
            raise InputError(f"audit.{name}.batch", inner["batch"], f"at most {n}, the records")
        if inner["optimizer"] == "adam" and inner["momentum"]:
            raise InputError(f"audit.{name}.momentum", inner["momentum"], "0 with adam")
    canaries, available = block["canaries"]["canaries"], block["canaries"]["data"]["n_validation"]
    if canaries > available:
        allowed = f"at most n_validation = {available}: canaries are mislabelled validation records"
        raise InputError("audit.canaries.canaries", canaries, allowed)
    if 2 * canaries * block["canaries"]["delta"] > 1:
        allowed = f"at most 1 / (2 canaries) = {1 / (2 * canaries):.2g}"
        raise InputError("audit.canaries.delta", block["canaries"]["delta"], allowed)
