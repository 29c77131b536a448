"""Small records of lp_fft's training, with the fields that its experiments write.

Accuracies are made up: without noise FFT leads, with much of it LP does.
"""

import math

import numpy as np
from figure_samples import bare_record

KEY = "lp_fft"
BACKBONE = {
    "id": "inverted-t-7a32517f",
    "sha256": "0",
    "architecture": "small_cnn",
    "source": "inverted letters",
}
COUNTS = {"n_train": 1300, "n_validation": 197, "n_test": 300}
# As of Poisson batches of 256 of 1300 records in 60 steps.
EPSILONS = {0.0: None, 1.0: 10.9, 2.0: 3.8, 4.0: 1.6, 8.0: 0.71, 16.0: 0.33}
STEPS = 60
MAIN_ARMS = (("lp", 1.0), ("fft", 0.0), ("lp-fft", 0.25), ("lp-fft", 0.5))
CONTROL_ARMS = (("lp-lp", 0.5), ("fft-fft", 0.5))
FEW_ARMS = (("lp", 1.0), ("fft", 0.0), ("lp-fft", 0.5))
LORA_ARMS = (("lp", 1.0), ("lora", 0.0), ("lp-lora", 0.5))


def expected_accuracy(share, noise):
    """Concave in the share; the best share grows with the noise."""
    best = noise / (noise + 6)
    level = 0.93 - 0.021 * noise
    return level - (0.08 + 0.004 * noise) * (share - best) ** 2


def strategies_record(
    noise=4.0,
    scenario="inverted-t",
    group="strategies",
    arms=MAIN_ARMS,
    runs=8,
    target=None,
    clip=1.0,
    rank=None,
    data="digits",
    drop=0.0,
    backbone=BACKBONE,
):
    rng = np.random.default_rng([int(8 * noise), runs, len(scenario), int(100 * clip)])
    # Runs are paired: what a run's head is worth is common to all rows.
    heads = rng.normal(0, 0.01, runs)
    rows = []
    for strategy, share in arms:
        mean = expected_accuracy(share, noise) - drop
        mean -= 0.03 * noise**0.3 * (strategy in ("lp-lp", "fft-fft"))
        mean -= 0.03 * math.log10(clip) ** 2
        values = np.clip(mean + heads + rng.normal(0, 0.012, runs), 0, 1)
        rows.append(arm(strategy, share, noise, target, clip, np.round(300 * values) / 300))
    spec = {
        "scenario": scenario,
        "group": group,
        "data": {"name": data, "classes": None, **COUNTS, "selection": 0},
        "backbone": backbone["id"],
        "level": {"epsilon": target} if target else {"noise_multiplier": noise},
        "delta": 1e-5,
        "batch": 256,
        "steps": STEPS,
        "max_grad_norm": clip,
        "head_scale": 1.0,
        "lora_rank": rank,
        "strategies": sorted({strategy for strategy, _ in arms}),
        "shares": sorted({share for _, share in arms}),
        "lrs": {"head": [0.3, 1.0, 3.0], "full": [0.1, 0.3, 1.0], "lora": [0.3, 1.0]},
        "runs": runs,
        "tuning_runs": 2,
        "relation": "add_remove",
        "accountant": "auto",
    }
    metrics = {**COUNTS, "classes": 10, "backbone": backbone, "rows": rows}
    return bare_record("strategies", metrics, key=KEY, **spec)


def arm(strategy, share, noise, target, clip, accuracies):
    phases = 1 if share in (0.0, 1.0) else 2
    first = round(share * STEPS) if phases == 2 else STEPS
    return {
        "strategy": strategy,
        "share": share,
        "target_epsilon": target,
        "noise_multiplier": noise,
        "epsilon": EPSILONS.get(noise, target) if noise else None,
        "relation": "add_remove" if noise else None,
        "guaranteed_by": "every iterate, PLD" if noise else None,
        "lrs": [3.0] if phases == 1 else [3.0, 0.3],
        "steps": [STEPS] if phases == 1 else [first, STEPS - first],
        "max_grad_norm": clip if noise else None,
        "batch": 256,
        "sampler": "poisson",
        "trained_parameters": 2570,
        "settings_tried": 3 if phases == 1 else 9,
        "validation_accuracy": float(np.mean(accuracies)),
        "accuracy": accuracies.tolist(),
    }


def strategies_records():
    """What the embedded tier trains, with a scenario for LoRA and one clip sweep."""
    leaves = {**BACKBONE, "id": "leaves-s-0123abcd", "source": "leaves"}
    few = {"arms": FEW_ARMS, "runs": 6, "drop": 0.06}
    return [
        *(
            strategies_record(noise, arms=MAIN_ARMS + CONTROL_ARMS, runs=16)
            for noise in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
        ),
        *(strategies_record(noise, "strokes-xs", **few) for noise in (0.0, 4.0, 8.0)),
        *(
            strategies_record(noise, "leaves", backbone=leaves, data="leaves-classes", **few)
            for noise in (0.0, 2.0, 16.0)
        ),
        *lora_records(),
        *clip_records(),
    ]


def lora_records():
    return [
        strategies_record(noise, "lora", "lora", LORA_ARMS, runs=6, rank=8)
        for noise in (0.0, 2.0, 8.0)
    ]


def clip_records(noise=4.0):
    return [
        strategies_record(noise, group="clip_sweep", arms=FEW_ARMS, runs=6, clip=clip)
        for clip in (0.1, 0.3, 1.0, 3.0, 10.0)
    ]


FOUR_CONDITIONS = ((1.0, 5.0), (1.0, 10.0), (4.0, 5.0), (4.0, 10.0))


def feature_record(noise=1.0, conditions=FOUR_CONDITIONS, runs=8, backbone="strokes-xs"):
    """LP first reduces the dip where head scale and rate are large, and deepens it elsewhere."""
    steps = list(range(0, 61, 5))
    rng = np.random.default_rng([int(noise), runs])
    rows = []
    for scale, rate in conditions:
        heads = rng.normal(0, 0.004, runs)
        for strategy in ("fft", "lp-fft"):
            start = 20 if strategy == "lp-fft" else 0
            depth = 0.01 + 0.003 * scale * rate
            if strategy == "lp-fft":
                depth += 0.02 if scale == 1.0 else -0.4 * depth
            depth *= 1 + 0.1 * noise
            rows.append(
                {
                    "head_scale": scale,
                    "lr": rate,
                    "strategy": strategy,
                    "steps": steps,
                    "private": _dipping(rng, steps, start, 0.985, depth, heads),
                    "public": _dipping(rng, steps, start, 0.95, 1.6 * depth, heads),
                    "accuracy": _dipping(rng, steps, 0, 0.9, 0.0, heads),
                }
            )
    metrics = {**COUNTS, "epsilon": EPSILONS[noise], "classes": 10, "rows": rows}
    spec = {
        "data": {"name": "digits"},
        "public_data": {"name": "strokes"},
        "backbone": f"{backbone}-01234567",
        "head_scales": sorted({scale for scale, _ in conditions}),
        "lrs": sorted({rate for _, rate in conditions}),
        "noise_multiplier": noise,
        "steps": 60,
        "lp_steps": 20,
        "at": steps,
        "lp_lr": 1.0,
        "runs": runs,
        "neighbours": 1,
        "batch": 256,
        "delta": 1e-5,
        "max_grad_norm": 1.0,
        "feature_scale": 0.3,
    }
    return bare_record("feature_quality", metrics, key=KEY, **spec)


def _dipping(rng, steps, start, top, depth, heads):
    """A curve per run that falls by `depth` after `start`, then recovers most of it."""
    since = np.maximum(np.array(steps) - start, 0) / 10
    shape = since * np.exp(1 - since) + 0.15 * (since > 3)
    runs = top - depth * shape + heads[:, None] * (since > 0)
    runs = runs + rng.normal(0, 0.003, runs.shape) * (since > 0)
    return np.clip(runs, 0, 1).tolist()


def umap_record(classes=10, points=200, lp_steps=(0, 10, 20), data="digits"):
    rng = np.random.default_rng([classes, points])
    labels = np.arange(points) % classes
    angles = 2 * np.pi * labels / classes
    centres = np.column_stack([np.cos(angles), np.sin(angles)])
    panels = []
    for lp in lp_steps:
        for moment, done, spread in (
            ("before", 0, 0.7),
            ("early", 5, 2.5 - 0.06 * lp),
            ("late", 40, 1.0),
        ):
            at = 6 * centres + spread * rng.normal(size=(points, 2)) + [8.0, -1.0]
            panels.append(
                {
                    "lp_steps": lp,
                    "moment": moment,
                    "fft_steps": done,
                    "x": at[:, 0].tolist(),
                    "y": at[:, 1].tolist(),
                    "knn": 1.0 - 0.05 * spread,
                    "silhouette": 0.6 - 0.2 * spread,
                    "accuracy": 0.8,
                }
            )
    metrics = {
        "classes": [str(name) for name in range(classes)],
        "labels": labels.tolist(),
        "panels": panels,
        "budgets": [{"lp_steps": lp, "epsilon": 4.0 + 0.03 * lp} for lp in lp_steps],
    }
    spec = {
        "data": {"name": data},
        "backbone": BACKBONE["id"],
        "lp_steps": list(lp_steps),
        "fft_steps": 40,
        "noise_lp": 1.0,
        "noise_fft": 2.0,
        "lr_lp": 3.0,
        "lr_fft": 0.3,
        "early": 5,
        "points": points,
        "delta": 1e-5,
    }
    return bare_record("umap", metrics, key=KEY, **spec)


RECORDS = {
    "lpfft_feature_quality": lambda: [
        feature_record(noise, conditions=((4.0, 10.0),)) for noise in (1.0, 4.0)
    ],
    "lpfft_budget_sweep": strategies_records,
    "lpfft_umap": lambda: [umap_record(points=60, lp_steps=(20,))],
    "lpfft_privacy_utility": strategies_records,
    "lpfft_strategies": strategies_records,
    "lpfft_lora": lora_records,
}
