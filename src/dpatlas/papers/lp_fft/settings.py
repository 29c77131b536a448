"""lp_fft: the jobs that the config asks for, and which of them each figure and table needs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpatlas.checks.pretrain.settings import backbone_spec, check_private
from dpatlas.config.common import run_spec
from dpatlas.config.sizes import check_records
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.papers.lp_fft.records.private import HEAD
from dpatlas.papers.lp_fft.records.strategies import ALONE, STRATEGIES, check_rank

KEY = "lp_fft"
# A job at every privacy level of a scenario; what draws a picture on the way; what trains nothing.
TRAINED = ("strategies", "lora", "clip_sweep")
COMPUTED = ("dynamics", "distortion", "sensitivity", "imbalance")

# What the block sets for all trainings, and each scenario or picture may set for itself.
SHARED = ("delta", "relation", "accountant", "max_grad_norm", "max_physical_batch")
OF_SCENARIO = ("lrs", "head_scale", "augmentation", "ema_decay", "lora_rank")
# What entries of one scenario may differ in.
OF_ENTRY = (
    *("noise_multipliers", "epsilons", "strategies", "shares", "control_shares"),
    *("runs", "tuning_runs"),
)
REAL = ("delta", "max_grad_norm", "head_scale", "feature_scale", "ema_decay")
# Of the theory, numbers and lists of them that count something: they stay whole.
COUNTS = (
    *("records", "inputs", "hidden", "draws", "paths", "sizes", "points", "hs", "trials", "runs"),
    *("records_per_input", "dims", "seeds", "d", "steps", "every"),
)


def groups(config: Mapping[str, Any]) -> dict[str, list[Spec]]:
    """The paper's specs by group.

    `strategies`, `lora`, `clip_sweep`: one job per scenario and privacy level (or clip bound).
    `feature_quality`: one per noise multiplier. `umap`. Four kinds of theory, without data.
    """
    block = config[KEY]
    _check(config)
    return {
        "strategies": [
            spec for chosen in block["scenarios"] for spec in _levels(config, chosen, "strategies")
        ],
        "lora": [spec for chosen in block["lora"] for spec in _levels(config, chosen, "lora")],
        "clip_sweep": list(_clip_sweep(config)),
        "feature_quality": [
            _quality(config, chosen, float(noise))
            for chosen in block["feature_quality"]
            for noise in chosen["noise_multipliers"]
        ],
        "umap": [_umap(config, chosen) for chosen in block["umap"]],
        **{kind: [run_spec(config, KEY, kind, _theory(block[kind]), kind)] for kind in COMPUTED},
    }


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing: figures, tables and claims are made of the records alone."""
    return {}


def takes_features(fields: Mapping[str, Any]) -> bool:
    """Whether some strategy trains the head alone, on features that augmentation does not move."""
    return (
        fields["kind"] == "strategies"
        and fields["augmentation"] is None
        and any(set(STRATEGIES[name]) == {HEAD} for name in fields["strategies"])
    )


def _levels(config: Mapping[str, Any], chosen: Mapping[str, Any], group: str) -> Iterator[Spec]:
    """A scenario at every noise multiplier and at every epsilon that it names."""
    levels = [{"noise_multiplier": float(noise)} for noise in chosen["noise_multipliers"]]
    levels += [{"epsilon": float(epsilon)} for epsilon in chosen["epsilons"]]
    for level in levels:
        ((kind, value),) = level.items()
        name = f"{chosen['name']}-{'noise' if kind == 'noise_multiplier' else 'eps'}{value:g}"
        fields = _scenario(config, chosen, group)
        yield run_spec(config, KEY, "strategies", {**fields, "level": level}, name)


def _clip_sweep(config: Mapping[str, Any]) -> Iterator[Spec]:
    """A scenario at one noise multiplier, at other clip bounds than its own."""
    sweep = config[KEY]["clip_sweep"]
    if sweep is None:
        return
    place = f"{KEY}.clip_sweep.scenario"
    base = _named(config[KEY]["scenarios"], sweep["scenario"], place)
    own = {name: sweep[name] for name in ("strategies", "shares", "control_shares", "runs")}
    _check_strategies(config[KEY], f"{KEY}.clip_sweep", {**base, **own})
    usual = float(base.get("max_grad_norm", config[KEY]["max_grad_norm"]))
    for bound in sweep["max_grad_norms"]:
        chosen = {**base, **own, "max_grad_norm": float(bound)}
        fields = _scenario(config, chosen, "clip_sweep")
        # Rates scale with the bound: a step is lr times a sum of gradients that it bounds.
        fields["lrs"] = {
            part: [lr * usual / float(bound) for lr in lrs] for part, lrs in fields["lrs"].items()
        }
        level = {"noise_multiplier": float(sweep["noise_multiplier"])}
        name = f"clip{bound:g}-{base['name']}"
        yield run_spec(config, KEY, "strategies", {**fields, "level": level}, name)


def _scenario(config: Mapping[str, Any], chosen: Mapping[str, Any], group: str) -> dict[str, Any]:
    block = config[KEY]
    own = {name: block[name] for name in (*SHARED, *OF_SCENARIO)}
    own |= {name: chosen[name] for name in own if name in chosen}
    counts = ("batch", "steps", "runs", "tuning_runs")
    fields = {
        "group": group,
        "scenario": chosen["name"],
        **_private(config, chosen),
        **own,
        **{name: chosen[name] for name in (*counts, "strategies")},
        **{name: _reals(chosen[name]) for name in ("shares", "control_shares")},
        "lrs": {part: _reals(lrs) for part, lrs in own["lrs"].items()},
    }
    return _as_reals(fields)


def _quality(config: Mapping[str, Any], chosen: Mapping[str, Any], noise: float) -> Spec:
    block = config[KEY]
    trained = backbone_spec(config, chosen["backbone"]).fields
    if "data" not in trained:
        allowed = "a backbone that is trained here: its images are the public task"
        raise InputError(f"{KEY}.feature_quality", repr(chosen["backbone"]), allowed)
    fields = {
        **{name: block[name] for name in SHARED},
        **{name: value for name, value in chosen.items() if name != "noise_multipliers"},
        **_private(config, chosen),
        "public_data": trained["data"],
        "noise_multiplier": noise,
        "head_scales": _reals(chosen["head_scales"]),
        "lrs": _reals(chosen["lrs"]),
        "lp_lr": float(chosen["lp_lr"]),
    }
    name = f"quality-{chosen['backbone']}-noise{noise:g}"
    return run_spec(config, KEY, "feature_quality", _as_reals(fields), name)


def _umap(config: Mapping[str, Any], chosen: Mapping[str, Any]) -> Spec:
    block = config[KEY]
    rates = ("noise_lp", "noise_fft", "lr_lp", "lr_fft")
    fields = {
        **{name: block[name] for name in SHARED},
        **chosen,
        **_private(config, chosen),
        **{name: float(chosen[name]) for name in rates},
    }
    name = f"umap-{chosen['data']['name']}-{chosen['backbone']}"
    return run_spec(config, KEY, "umap", _as_reals(fields), name)


def _private(config: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "data": {**chosen["data"], "n_add": 0},
        "backbone": backbone_spec(config, chosen["backbone"]).id,
    }


def _reals(values: Sequence[float]) -> list[float]:
    return [float(value) for value in values]


def _as_reals(fields: Mapping[str, Any]) -> dict[str, Any]:
    """1 and 1.0 mean the same run."""
    return {
        name: float(value) if name in REAL and value is not None else value
        for name, value in fields.items()
    }


def _theory(value: Any, name: str = "") -> Any:
    """Numbers as the reals that they stand for, but those that count something."""
    if isinstance(value, Mapping):
        return {key: _theory(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_theory(inner, name) for inner in value]
    return float(value) if isinstance(value, int) and name not in COUNTS else value


def _named(scenarios: Sequence[Mapping[str, Any]], name: str, place: str) -> Mapping[str, Any]:
    for chosen in scenarios:
        if chosen["name"] == name:
            return chosen
    allowed = "one of " + ", ".join(chosen["name"] for chosen in scenarios)
    raise InputError(place, repr(name), allowed)


def _check(config: Mapping[str, Any]) -> None:
    block = config[KEY]
    if block["relation"] == "replace_one" and block["accountant"] == "rdp":
        found = "rdp for Poisson batches under replace_one"
        raise InputError(f"{KEY}.accountant", found, "pld or auto; rdp with add_remove")
    scenarios = {
        **{f"{KEY}.scenarios.{i}": each for i, each in enumerate(block["scenarios"])},
        **{f"{KEY}.lora.{i}": each for i, each in enumerate(block["lora"])},
    }
    pictures = {
        f"{KEY}.{kind}.{i}": each
        for kind in ("feature_quality", "umap")
        for i, each in enumerate(block[kind])
    }
    for place, chosen in {**scenarios, **pictures}.items():
        _check_private(config, place, chosen)
    for place, chosen in scenarios.items():
        _check_strategies(block, place, chosen)
    _check_names(scenarios)


def _check_names(scenarios: Mapping[str, Mapping[str, Any]]) -> None:
    """One name is one scenario, with levels, runs and strategies in as many entries as it takes."""
    first: dict[str, Mapping[str, Any]] = {}
    levels = set()
    for place, chosen in scenarios.items():
        earlier = first.setdefault(chosen["name"], chosen)
        for name in sorted({*chosen, *earlier} - set(OF_ENTRY)):
            if chosen.get(name) != earlier.get(name):
                allowed = f"{earlier.get(name)}, as of the other {chosen['name']}"
                raise InputError(f"{place}.{name}", chosen.get(name), allowed)
        for kind in ("noise_multipliers", "epsilons"):
            for value in chosen[kind]:
                level = (chosen["name"], kind, float(value))
                if level in levels:
                    raise InputError(f"{place}.{kind}", f"{value:g} again", "each level once")
                levels.add(level)


def _check_private(config: Mapping[str, Any], place: str, chosen: Mapping[str, Any]) -> None:
    check_records(f"{place}.data", chosen["data"])
    n = chosen["data"]["n_train"]
    if chosen["batch"] > n:
        raise InputError(f"{place}.batch", chosen["batch"], f"at most n_train = {n}")
    check_private(config, place, chosen)


def _check_strategies(block: Mapping[str, Any], place: str, chosen: Mapping[str, Any]) -> None:
    named = chosen["strategies"]
    if not chosen["noise_multipliers"] and not chosen["epsilons"]:
        allowed = "a privacy level here or in epsilons"
        raise InputError(f"{place}.noise_multipliers", "none", allowed)
    for name in named:
        first = ALONE[STRATEGIES[name][0]]
        if first not in named:
            allowed = f"{first} too, whose rate its first phase takes"
            raise InputError(f"{place}.strategies", f"{name} without {first}", allowed)
    check_rank(f"{place}.strategies", named, chosen.get("lora_rank", block["lora_rank"]))
    lrs = chosen.get("lrs", block["lrs"])
    tried = {part: len(lrs[part]) for name in named for part in STRATEGIES[name]}
    if len(set(tried.values())) > 1:
        found = ", ".join(f"{count} for {part}" for part, count in tried.items())
        allowed = "equally many for all that is trained, so that every strategy tries as many"
        raise InputError(f"{place}.lrs", found, allowed)
