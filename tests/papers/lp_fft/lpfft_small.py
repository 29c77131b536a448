"""Small data, a small backbone and small specs of lp_fft's trained kinds; watched trainings."""

import functools
import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml
from sgld_small import BACKBONE, CLASSES, SCALE, save_backbone, save_data, save_features
from small_jobs import arguments, labelled

from dpatlas.accounting import guarantees as accounting
from dpatlas.accounting import ledger
from dpatlas.base.specs import Spec
from dpatlas.data import prepared
from dpatlas.jobs import job
from dpatlas.privacy.training import PrivateTraining
from dpatlas_workflow.papers.lp_fft import cost
from dpatlas_workflow.records import parse_spec
from dpatlas_workflow.run import private_plan
from dpatlas_workflow.run.command import main

COMMON = yaml.safe_load("""
{key: lp_fft, seed: 0, noise_source: keyed, delta: 1.0e-5, batch: 6, relation: add_remove,
 accountant: auto, max_grad_norm: 1.0, max_physical_batch: null}
""")
STRATEGIES = yaml.safe_load("""
{group: strategies, scenario: small, level: {noise_multiplier: 2.0}, steps: 4,
 strategies: [fft, lp-fft, lp, lp-lp, fft-fft], shares: [0.0, 0.25, 0.5, 1.0],
 control_shares: [0.5], head_scale: 2.0, augmentation: null, ema_decay: null, lora_rank: null}
""")
# Rates of every arm that a small spec may have, by its name; LP-LP keeps LP's rate.
CHOSEN = yaml.safe_load("""
fft: {lrs: [1.0]}
lp: {lrs: [9.0]}
lora: {lrs: [0.5]}
"lp-fft, share 0.25": {lrs: [9.0, 0.1]}
"lp-fft, share 0.5": {lrs: [9.0, 1.0]}
"lp-lp, share 0.5": {lrs: [9.0, 9.0]}
"fft-fft, share 0.5": {lrs: [1.0, 0.1]}
"lp-lora, share 0.5": {lrs: [9.0, 0.5]}
""")
KINDS = {
    "strategies": {**STRATEGIES, "tuning": "small-tuning", "chosen": CHOSEN},
    "strategies_tuning": {
        **STRATEGIES,
        "lrs": {"head": [0.3, 9.0], "full": [0.1, 1.0], "lora": [0.1, 1.0]},
        "tuning_runs": 1,
    },
    **yaml.safe_load("""
feature_quality:
  {public_data: {name: public}, noise_multiplier: 2.0, head_scales: [1.0, 4.0], lrs: [3.0],
   lp_lr: 1.0, feature_scale: 0.5, steps: 4, lp_steps: 2, at: [0, 1, 2, 3, 4], neighbours: 3,
   public_known: 20, public_asked: 10}
umap:
  {head_scale: 1.0, feature_scale: 1.0, lp_steps: [0, 2], fft_steps: 3, early: 1, noise_lp: 2.0,
   noise_fft: 3.0, lr_lp: 1.0, lr_fft: 1.0, neighbours: 4, points: 12}
"""),
}
DEALT = {"data": {"name": "small", "redeal": True}, "first_run": 0, "runs": 2}
FIELDS = {
    kind: {
        **COMMON,
        "backbone": BACKBONE,
        "kind": kind,
        **({"data": {"name": "small"}} if kind == "strategies_tuning" else DEALT),
        **fields,
    }
    for kind, fields in KINDS.items()
}
VIEWS = {"views": 2, "padding": 1, "flip": True}


@dataclass(frozen=True)
class Given:
    """What a job reads: manifests of its data sets, and folders of its backbone and features.

    Without features, a job that wants them has them taken first.
    """

    data: Path
    public: Path
    backbone: Path
    features: Path | None = None


@dataclass(frozen=True)
class Watched:
    """A training, and the weights of its model before it and after each of its steps."""

    training: PrivateTraining
    iterates: list


def spec_of(kind, **changes):
    return Spec.of({**FIELDS[kind], **changes}, "small")


def takes_features(spec):
    """Whether its job takes features, were the small set one of the project's."""
    if not spec.fields["kind"].startswith("strategies"):
        return False
    known = {**spec.fields, "data": {**spec.fields["data"], "name": "digits"}}
    return cost.takes_features(parse_spec(known, "--spec"))


def given_in(folder, **poison):
    """Data, public images and the backbone that was trained on these."""
    public = folder / "public"
    arrays = labelled({"train": 30, "add": 0, "test": 15, "validation": 0}, margin=4)
    facts = {"classes": CLASSES, "image_shape": [1, 4, 4], "preprocessing": SCALE}
    sha256 = prepared.save(public, arrays, {"name": "public", **facts})["sha256"]
    backbone = save_backbone(folder / "backbone", sha256=sha256)
    data = save_data(folder / "data", **poison)
    features = save_features(data, backbone, folder / "features")
    return Given(data, public / "manifest.json", backbone, features)


def run(spec, given, folder, tuning=None):
    """The record's bytes. tuning: path of the record whose outcome the spec waits for."""
    words = arguments(spec, given.data, folder, [given.backbone])
    if takes_features(spec):
        features = given.features
        if features is None:
            features = save_features(given.data, given.backbone, folder / "features")
        words += ["--features", str(features)]
    if "public_data" in spec.fields and given.public is not None:
        words += ["--public-data", str(given.public)]
    if tuning is not None:
        words += ["--tuning", str(tuning)]
    main(words)
    return (folder / "record.json").read_bytes()


def record_of(*arguments, **named):
    return json.loads(run(*arguments, **named))


@pytest.fixture(autouse=True, scope="module", name="guarantee")
def a_guarantee_that_remembers():
    """Jobs ask a `guarantee` that remembers: to be killed often is to ask often."""

    @functools.cache
    def known(phases, delta, relation, accountant):
        return accounting.guarantee(phases, delta, relation, accountant)

    def remembered(phases, delta, relation, accountant="auto"):
        return known(tuple(phases), delta, relation, accountant)

    with pytest.MonkeyPatch.context() as patch:
        for module in (private_plan, ledger):
            patch.setattr(module, "guarantee", remembered)
        yield remembered


@pytest.fixture(scope="module", name="given")
def what_jobs_are_given(tmp_path_factory):
    return given_in(tmp_path_factory.mktemp("given"))


@contextmanager
def saved_at_every_step():
    """Within, no step is without a checkpoint, and none waits for a disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        patch.setattr("os.fsync", lambda file: None)
        yield


@contextmanager
def watched_trainings():
    """The list of all trainings made within."""
    seen = {}
    real_init, real_step = PrivateTraining.__init__, PrivateTraining.step

    def weights(training):
        return {name: value.clone() for name, value in training.model.state_dict().items()}

    def init(training, *arguments, **named):
        real_init(training, *arguments, **named)
        seen[training] = Watched(training, [weights(training)])

    def step(training):
        real_step(training)
        seen[training].iterates.append(weights(training))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateTraining, "__init__", init)
        patch.setattr(PrivateTraining, "step", step)
        found = []
        yield found
        found += seen.values()


def body_of(weights):
    """All but the head's."""
    return {name: value for name, value in weights.items() if not name.startswith("head.")}


def equal(one, two):
    """Whether both have the same weights, bit for bit."""
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
