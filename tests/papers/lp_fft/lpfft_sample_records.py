"""Small records of lp_fft; their specs are the smoke tier's, with changes.

Those of training are made up: without noise FFT is the most accurate, with much noise LP is. The
theory is simulated, in this process.
"""

import copy
import functools
import importlib
import math

import numpy as np
from figure_samples import sample_record, tables_of

from dpatlas.base.records import checked_fields, rows_of
from dpatlas.base.specs import Spec
from dpatlas.jobs.job import Job
from dpatlas_workflow.config.load import load_tier
from dpatlas_workflow.papers.lp_fft.records import feature_quality, strategies, umap
from dpatlas_workflow.papers.lp_fft.settings import groups

BACKBONE = {"id": "inverted-t-7a32517f", "sha256": "0", "architecture": "small_cnn"}
BACKBONE["source"] = "inverted letters"
COUNTS = {"n_train": 1150, "n_test": 287}
# By noise multiplier, as of some sampler and number of steps.
EPSILONS = {0.0: None, 1.0: 10.9, 2.0: 3.8, 4.0: 1.6, 8.0: 0.71, 16.0: 0.33}
STEPS = 60
MAIN_ARMS = (("lp", 1.0), ("fft", 0.0), ("lp-fft", 0.25), ("lp-fft", 0.5))
CONTROL_ARMS = (("lp-lp", 0.5), ("fft-fft", 0.5))
FEW_ARMS = (("lp", 1.0), ("fft", 0.0), ("lp-fft", 0.5))
LORA_ARMS = (("lp", 1.0), ("lora", 0.0), ("lp-lora", 0.5))


@functools.cache
def smoke_fields():
    """Fields of the smoke tier's first spec of every group."""
    specs = groups(load_tier("smoke"))
    return {group: members[0].fields for group, members in specs.items() if members}


def record_of_kind(types, metrics, **changes):
    """A record of the kind with these classes, whose spec is the smoke tier's with changes."""
    kind = types.__name__.rpartition(".")[2]
    return sample_record(types.RECORD.spec(**{**smoke_fields()[kind], **changes}), metrics)


def arm(strategy, share, noise, accuracy, target=None, clip=1.0, epsilon=None):
    """An arm; accuracy: of each run."""
    first = round(share * STEPS)
    phases = {"lrs": [3.0, 0.3], "steps": [first, STEPS - first]}
    if share in (0.0, 1.0):
        phases = {"lrs": [3.0], "steps": [STEPS]}
    private = {"max_grad_norm": clip, "epsilon": epsilon or EPSILONS.get(noise, target)}
    private |= {"relation": "add_remove", "guaranteed_by": "every iterate, PLD"}
    return {
        **{"strategy": strategy, "share": share, "noise_multiplier": noise},
        **{"target_epsilon": target, "batch": 256, "sampler": "poisson"},
        **{"trained_parameters": 2570, "accuracy": list(map(float, accuracy))},
        **phases,
        **(private if noise > 0 else dict.fromkeys(private)),
    }


def trained(arms, level, backbone=BACKBONE, **changes):
    """The record of a privacy level with these arms."""
    changes |= {"strategies": sorted({each["strategy"] for each in arms}), "level": level}
    changes["runs"] = len(arms[0]["accuracy"])
    facts = {**COUNTS, "classes": 10, "backbone": backbone, "features": None}
    tables = tables_of(arms, strategies.RECORD)
    return record_of_kind(strategies, facts | tables, backbone=backbone["id"], **changes)


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
    # Runs are paired: the effect of a run's random head is common to all rows.
    heads = rng.normal(0, 0.01, runs)
    rows = []
    for strategy, share in arms:
        # Concave in the share; the best share grows with the noise.
        below = (0.08 + 0.004 * noise) * (share - noise / (noise + 6)) ** 2
        mean = 0.93 - 0.021 * noise - below - drop
        mean -= 0.03 * noise**0.3 * (strategy in ("lp-lp", "fft-fft"))
        mean -= 0.03 * math.log10(clip) ** 2
        values = np.clip(mean + heads + rng.normal(0, 0.012, runs), 0, 1)
        rows.append(arm(strategy, share, noise, np.round(300 * values) / 300, target, clip))
    level = {"epsilon": target} if target else {"noise_multiplier": noise}
    names = {"scenario": scenario, "group": group, "data": {"name": data}}
    return trained(rows, level, backbone, max_grad_norm=clip, lora_rank=rank, **names)


def strategies_records():
    """Three scenarios with and without privacy; the first has the controls."""
    leaves = BACKBONE | {"id": "leaves-s-0123abcd", "source": "leaves"}
    few = {"arms": FEW_ARMS, "runs": 6, "drop": 0.06}
    return [
        *(strategies_record(noise, arms=MAIN_ARMS + CONTROL_ARMS) for noise in (0.0, 1.0, 4.0)),
        *(strategies_record(noise, "strokes-xs", **few) for noise in (0.0, 8.0)),
        strategies_record(16.0, "leaves", backbone=leaves, data="leaves-classes", **few),
    ]


def lora_records():
    return [
        strategies_record(noise, "lora", "lora", LORA_ARMS, runs=6, rank=8)
        for noise in (0.0, 2.0, 8.0)
    ]


def clip_records():
    return [
        strategies_record(4.0, group="clip_sweep", arms=FEW_ARMS, runs=6, clip=clip)
        for clip in (0.1, 0.3, 1.0, 3.0, 10.0)
    ]


def curves(head_scale, lr, strategy, steps, **measured):
    """Rows of a condition; measured: (runs, steps) by name."""
    of = {"head_scale": head_scale, "lr": lr, "strategy": strategy}
    runs = range(len(measured["private"]))
    return [of | each for each in rows_of({"run": runs, "step": steps}, **measured)]


def followed(rows, noise, backbone=BACKBONE["id"], lp_steps=20):
    """The record of feature quality at one noise multiplier."""
    steps = sorted({row["step"] for row in rows})
    spec = {"steps": steps[-1], "at": steps, "runs": 1 + max(row["run"] for row in rows)}
    spec |= {"backbone": backbone, "noise_multiplier": noise, "lp_steps": lp_steps}
    facts = {**COUNTS, "backbone": BACKBONE, "public": {"name": "strokes", "sha256": "0"}}
    facts |= {"epsilon": EPSILONS[noise], "curves": rows}
    return record_of_kind(feature_quality, facts, **spec)


def feature_record(noise, backbone="strokes-xs"):
    """At a large head scale and rate LP first reduces the dip."""
    steps, runs, scale, rate = list(range(0, 61, 5)), 8, 4.0, 10.0
    rng = np.random.default_rng([int(noise), runs])
    heads = rng.normal(0, 0.004, runs)
    rows = []
    for strategy, start, share in (("fft", 0, 1.0), ("lp-fft", 20, 0.6)):
        depth = share * (0.01 + 0.003 * scale * rate) * (1 + 0.1 * noise)
        rows += curves(
            *(scale, rate, strategy, steps),
            private=_dipping(rng, steps, start, 0.985, depth, heads),
            public=_dipping(rng, steps, start, 0.95, 1.6 * depth, heads),
            accuracy=_dipping(rng, steps, 0, 0.9, 0.0, heads),
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
        moments = ("before", 0, 0.7), ("early", 5, 2.5 - 0.06 * lp), ("late", 40, 1.0)
        for moment, done, spread in moments:
            at = 6 * centres + spread * rng.normal(size=(points, 2)) + [8.0, -1.0]
            panel = {"run": 0, "lp_steps": lp, "moment": moment, "fft_steps": done}
            panel |= {"x": at[:, 0].tolist(), "y": at[:, 1].tolist(), "accuracy": 0.8}
            panels.append(panel | {"knn": 1 - 0.05 * spread, "silhouette": 0.6 - 0.2 * spread})
    metrics = {**COUNTS, "backbone": BACKBONE, "classes": [*map(str, range(classes))]}
    metrics |= {"labels": [{"run": 0, "labels": labels.tolist()}], "panels": panels}
    metrics["budgets"] = [{"lp_steps": lp, "epsilon": 4.0 + 0.03 * lp} for lp in lp_steps]
    spec = {"data": {"name": data}, "lp_steps": list(lp_steps), "fft_steps": 40, "early": 5}
    return record_of_kind(umap, metrics, **spec)


def run_theory(fields):
    """The outcome of the theory job with these fields."""
    kind = fields["kind"]
    spec = Spec.of(fields, kind)
    job_kind = importlib.import_module(f"dpatlas_workflow.papers.lp_fft.jobs.{kind}").KIND
    checked = checked_fields(job_kind.record.spec, spec.fields, "--spec: ")
    return job_kind.run(Job(spec, checked, None, "cpu", checkpoints=None, stopwatch=None))


@functools.cache
def _simulated(kind):
    types = importlib.import_module(f"dpatlas_workflow.papers.lp_fft.records.{kind}")
    return record_of_kind(types, run_theory(smoke_fields()[kind]).metrics)


def theory_record(kind):
    """A record of the kind that a test may change."""
    return copy.deepcopy(_simulated(kind))


RECORDS = {
    "lpfft_feature_quality": lambda: [feature_record(noise) for noise in (1.0, 4.0)],
    "lpfft_budget_sweep": lambda: [*strategies_records(), *lora_records(), *clip_records()],
    "lpfft_umap": lambda: [umap_record(points=60, lp_steps=(20,))],
    "lpfft_privacy_utility": lambda: [*strategies_records(), *lora_records()],
    "lpfft_strategies": strategies_records,
    "lpfft_lora": lora_records,
    "lpfft_theory": lambda: [theory_record("dynamics")],
    "lpfft_distortion": lambda: [theory_record("distortion")],
    "lpfft_sensitivity": lambda: [theory_record("sensitivity")],
    "lpfft_imbalance": lambda: [theory_record("imbalance")],
}
