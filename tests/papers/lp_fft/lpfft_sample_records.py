"""Small records of lp_fft's training, as its jobs write them; and what figures are drawn from.

Accuracies are made up: without noise FFT leads, with much of it LP does.
"""

import math

import numpy as np
from figure_samples import sample_record

from dpatlas.core.facts import BackboneUsed
from dpatlas.papers.lp_fft.records import feature_quality, strategies, umap

BACKBONE = BackboneUsed(
    id="inverted-t-7a32517f", sha256="0", architecture="small_cnn", source="inverted letters"
)
COUNTS = {"n_train": 1300, "n_validation": 197, "n_test": 300}
# As of Poisson batches of 256 of 1300 records in 60 steps.
EPSILONS = {0.0: None, 1.0: 10.9, 2.0: 3.8, 4.0: 1.6, 8.0: 0.71, 16.0: 0.33}
STEPS = 60
MAIN_ARMS = (("lp", 1.0), ("fft", 0.0), ("lp-fft", 0.25), ("lp-fft", 0.5))
CONTROL_ARMS = (("lp-lp", 0.5), ("fft-fft", 0.5))
FEW_ARMS = (("lp", 1.0), ("fft", 0.0), ("lp-fft", 0.5))
LORA_ARMS = (("lp", 1.0), ("lora", 0.0), ("lp-lora", 0.5))


def private_fields(kind, backbone=BACKBONE.id, data="digits", **fields):
    """What a spec of a private training says, with the fields of its kind."""
    return {
        "key": "lp_fft",
        "kind": kind,
        "seed": 0,
        "noise_source": "keyed",
        "data": {"name": data, **COUNTS, "n_add": 0},
        "backbone": backbone,
        "batch": 256,
        "delta": 1e-5,
        "relation": "add_remove",
        "accountant": "auto",
        "max_grad_norm": 1.0,
        "max_physical_batch": None,
        **fields,
    }


def arm(strategy, share, noise, accuracy, target=None, clip=1.0, epsilon=None):
    """A row of a strategy. accuracy: of the runs."""
    private, one_phase = noise > 0, share in (0.0, 1.0)
    first = STEPS if one_phase else round(share * STEPS)
    epsilon = (epsilon or EPSILONS.get(noise, target)) if private else None
    return strategies.Row(
        method=strategy,
        strategy=strategy,
        share=share,
        lrs=[3.0] if one_phase else [3.0, 0.3],
        steps=[STEPS] if one_phase else [first, STEPS - first],
        noise_multiplier=noise,
        max_grad_norm=clip if private else None,
        target_epsilon=target,
        epsilon=epsilon,
        relation="add_remove" if private else None,
        guaranteed_by="every iterate, PLD" if private else None,
        batch=256,
        sampler="poisson",
        trained_parameters=2570,
        settings_tried=3 if one_phase else 9,
        trials=6 if one_phase else 24,
        with_tuning_epsilon=epsilon and 2 * epsilon,
        all_runs_epsilon=epsilon and 4 * epsilon,
        validation_accuracy=float(np.mean(accuracy)),
        accuracy=list(map(float, accuracy)),
    )


def trained(rows, level, backbone=BACKBONE, **fields):
    """The record of a privacy level with these rows."""
    spec = {
        "group": "strategies",
        "scenario": "inverted-t",
        "level": level,
        "steps": STEPS,
        "strategies": sorted({row.strategy for row in rows}),
        "shares": sorted({row.share for row in rows}),
        "control_shares": [0.5],
        "lrs": {"head": [0.3, 1.0, 3.0], "full": [0.1, 0.3, 1.0], "lora": [0.3, 1.0]},
        "runs": len(rows[0].accuracy),
        "tuning_runs": 2,
        "head_scale": 1.0,
        "augmentation": None,
        "ema_decay": None,
        "lora_rank": None,
        **fields,
    }
    metrics = strategies.Metrics(
        **COUNTS, classes=10, backbone=backbone, features=None, rows=list(rows)
    )
    fields = private_fields("strategies", backbone.id, **spec)
    return sample_record(strategies.Spec(**fields), metrics)


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
        rows.append(arm(strategy, share, noise, np.round(300 * values) / 300, target, clip))
    level = {"epsilon": target} if target else {"noise_multiplier": noise}
    names = {"scenario": scenario, "group": group, "data": data}
    return trained(rows, level, backbone, max_grad_norm=clip, lora_rank=rank, **names)


def strategies_records():
    """What the embedded tier trains, with a scenario for LoRA and one clip sweep."""
    leaves = BACKBONE.model_copy(update={"id": "leaves-s-0123abcd", "source": "leaves"})
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


def followed(rows, noise, **fields):
    """The record of features followed at one noise multiplier."""
    spec = {
        "public_data": {"name": "strokes"},
        "noise_multiplier": noise,
        "head_scales": sorted({row.head_scale for row in rows}),
        "feature_scale": 0.3,
        "lrs": sorted({row.lr for row in rows}),
        "lp_lr": 1.0,
        "steps": 60,
        "lp_steps": 20,
        "at": rows[0].steps,
        "runs": len(rows[0].private),
        "neighbours": 1,
        "public_known": 100,
        "public_asked": 50,
        **fields,
    }
    fields = private_fields("feature_quality", **spec)
    metrics = feature_quality.Metrics(
        n_train=COUNTS["n_train"],
        n_test=COUNTS["n_test"],
        backbone=BACKBONE,
        public=feature_quality.PublicTask(name="strokes", sha256="0"),
        epsilon=EPSILONS[noise],
        rows=rows,
    )
    return sample_record(feature_quality.Spec(**fields), metrics)


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
                feature_quality.Row(
                    head_scale=scale,
                    lr=rate,
                    strategy=strategy,
                    steps=steps,
                    private=_dipping(rng, steps, start, 0.985, depth, heads),
                    public=_dipping(rng, steps, start, 0.95, 1.6 * depth, heads),
                    accuracy=_dipping(rng, steps, 0, 0.9, 0.0, heads),
                )
            )
    return followed(rows, noise, backbone=f"{backbone}-01234567")


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
                umap.Panel(
                    lp_steps=lp,
                    moment=moment,
                    fft_steps=done,
                    x=at[:, 0].tolist(),
                    y=at[:, 1].tolist(),
                    knn=1.0 - 0.05 * spread,
                    silhouette=0.6 - 0.2 * spread,
                    accuracy=0.8,
                )
            )
    metrics = umap.Metrics(
        n_train=COUNTS["n_train"],
        n_test=COUNTS["n_test"],
        backbone=BACKBONE,
        classes=[str(name) for name in range(classes)],
        labels=labels.tolist(),
        panels=panels,
        budgets=[umap.Spent(lp_steps=lp, epsilon=4.0 + 0.03 * lp) for lp in lp_steps],
    )
    spec = {
        "lp_steps": list(lp_steps),
        "fft_steps": 40,
        "early": 5,
        "noise_lp": 1.0,
        "noise_fft": 2.0,
        "lr_lp": 3.0,
        "lr_fft": 0.3,
        "head_scale": 1.0,
        "feature_scale": 1.0,
        "neighbours": 15,
        "points": points,
    }
    return sample_record(umap.Spec(**private_fields("umap", data=data, **spec)), metrics)


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
