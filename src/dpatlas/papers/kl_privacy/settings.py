"""kl_privacy: which jobs the config asks for, and which of them each figure and table needs."""

import itertools
from typing import Any

from dpatlas.core.specs import Spec
from dpatlas.errors import InputError

KEY = "kl_privacy"


def groups(config: dict[str, Any]) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `depth`, `width`, `epochs`, `bounds`: training runs. `linearized`: the trade-off of Sec. 6, one
    spec per init. `constants`: the Monte Carlo check of Eq. 7. A condition that two groups share
    is one spec and runs once.
    """
    block = config[KEY]
    _check(block)
    depth, width, epochs = block["depth_sweep"], block["width_sweep"], block["epochs"]
    bounds, linearized = block["bounds"], block["linearized"]
    long = block["horizons"]["long"]

    def training(init: str, depth: int, width: int, steps: int, lr: float) -> Spec:
        fields = {
            **_common(config, "training"),
            "init": init,
            "depth": depth,
            "width": width,
            "outputs": block["outputs"],
            "lr": float(lr),
            "sigma": float(block["sigma"]),
            "steps": steps,
            "runs": block["runs"],
        }
        return Spec.of(fields, f"{init}-d{depth}-w{width}")

    def lr(init: str) -> float:
        return block["lr"][init]

    def steps_at(units: int) -> int:
        # The depth sweep trains this condition too, for longer: its curve is read on the way.
        shared = width["depth"] in depth["depths"] and units == depth["width"]
        return long if shared and width["steps"] <= long else width["steps"]

    inits = block["inits"]
    return {
        "depth": [
            training(init, layers, depth["width"], long, lr(init))
            for init in inits
            for layers in depth["depths"]
        ],
        "width": [
            training(init, width["depth"], units, steps_at(units), lr(init))
            for init in inits
            for units in width["widths"]
        ],
        "epochs": [
            training(init, epochs["depth"], epochs["width"], long, lr(init)) for init in inits
        ],
        "bounds": [
            training(init, bounds["depth"], bounds["width"], bounds["steps"], bounds["lr"])
            for init in inits
        ],
        "linearized": [
            Spec.of(
                {
                    **_common(config, "linearized"),
                    "init": init,
                    "depths": linearized["depths"],
                    "width": linearized["width"],
                    "n_train": linearized["n_train"],
                    "epsilon": float(linearized["epsilon"]),
                    "runs": linearized["runs"],
                    "min_steps": linearized["min_steps"],
                },
                f"linearized-{init}-w{linearized['width']}",
            )
            for init in inits
        ],
        "constants": [
            Spec.of(
                {
                    **_common(config, "constants"),
                    "inits": inits,
                    **{name: block["constants"][name] for name in ("width", "outputs", "draws")},
                    "depths": block["constants"]["depths"],
                },
                f"constants-w{block['constants']['width']}",
            )
        ],
    }


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """What figures and claims need of the config beside the records."""
    block = config[KEY]
    return {
        "horizons": block["horizons"],
        "reference_depth": block["epochs"]["depth"],
        "reference_width": block["epochs"]["width"],
    }


def _common(config: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        "key": KEY,
        "kind": kind,
        "seed": config["seed"],
        "noise_source": config["noise_source"],
        "data": config[KEY]["data"],
    }


def _check(block: dict[str, Any]) -> None:
    horizons = block["horizons"]
    for earlier, later in itertools.pairwise(("early", "short", "long")):
        if horizons[earlier] >= horizons[later]:
            raise InputError(
                f"kl_privacy.horizons.{later}",
                horizons[later],
                f"a number of steps above horizons.{earlier} ({horizons[earlier]})",
            )
    for init in block["inits"]:
        if init not in block["lr"]:
            raise InputError("kl_privacy.lr", f"no rate for {init}", "a rate for every init")
