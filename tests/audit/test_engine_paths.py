"""Audits of the engine's own paths: premises hold on each, and half the noise fails on each."""

from dataclasses import replace

import pytest
import torch
from small_networks import Net
from torch import nn
from torch.nn.functional import cross_entropy

from dpatlas.audit import Claim, audit_training, plant
from dpatlas.privacy import (
    AdaptiveClip,
    LayerBounds,
    Noise,
    ParameterGroup,
    Poisson,
    PrivateTraining,
    TrainingPhase,
    WarmupCosine,
)

UNITS, BATCH, STEPS, NOISE, BOUND = 48, 16, 6, 0.8, 0.5
PHASE = TrainingPhase(Poisson(UNITS, BATCH), NOISE, BOUND, STEPS, lr=0.3)
ADAPTIVE = AdaptiveClip(quantile=0.5, count_noise=1.5, lr=0.2)
x = torch.randn(UNITS, 12, generator=torch.Generator().manual_seed(1))
x[:, 0] = 0
y = torch.arange(UNITS) % 3
canary = torch.zeros(12)
canary[0] = 20.0
# Of persons with two records each; the first person has both canaries.
persons = torch.arange(2 * UNITS) // 2


def network():
    return nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))


def attend(self, rows):
    """Attention over three positions, with a position embedding of its own."""
    rows = rows.unflatten(1, (3, 4)) + self.position
    seen, _ = self.attention(rows, rows, rows, need_weights=False)
    return self.head(self.norm((rows + seen).flatten(1)))


def attending():
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    position = nn.Parameter(torch.zeros(1, 3, 4))
    parts = {"position": position, "norm": nn.RMSNorm(12), "head": nn.Linear(12, 3)}
    return Net(attend, attention=attention, **parts)


def recurrent():
    """A cell without a rule, passed through record by record."""
    return Net(
        lambda self, rows: self.head(self.cell(rows.unflatten(1, (3, 4)))[0][:, -1]),
        cell=nn.GRU(4, 6, batch_first=True),
        head=nn.Linear(6, 3),
    )


NETWORKS = {"attention": attending, "record by record": recurrent}


def loss(outputs, labels):
    """A label of -1 marks a blank record, which has no gradient."""
    return cross_entropy(outputs, labels.clamp(min=0), reduction="none") * (labels >= 0)


PATHS = {
    "plain": PHASE,
    "adamw": replace(PHASE, optimizer="adamw", lr=0.02, weight_decay=0.01),
    "groups of parameters": replace(PHASE, parameter_groups=(ParameterGroup("2", lr=0.1),)),
    "schedule": replace(PHASE, lr_schedule=WarmupCosine(2, STEPS)),
    "by layer": replace(PHASE, clipping=LayerBounds({"0": 0.4, "2": 0.3})),
    "each layer": replace(PHASE, clipping="per-layer"),
    "adaptive": replace(PHASE, clipping=ADAPTIVE),
    "micro-batches": replace(PHASE, max_physical_batch=3),
    "average": PHASE,
    "persons": PHASE,
    "attention": PHASE,
    "record by record": PHASE,
}

# The others take some ten seconds each.
FAST = ("plain", "by layer", "adaptive", "persons")
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PATHS]


def audited(name):
    """The training of a path, and what it claims."""
    phase = PATHS[name]
    noise = ADAPTIVE.joint_noise(NOISE) if name == "adaptive" else NOISE
    # A blank record counts as one within the adaptive bound, so blanking is replacing there.
    relation = "replace_one" if name == "adaptive" else "zero_out"
    settings = {"sampler": "poisson", "n": UNITS, "batch": BATCH, "noise": noise, "steps": STEPS}
    claim = Claim(**settings, delta=1e-5, relation=relation)

    def train(run):
        records, labels = plant(run, x, canary), plant(run, y + 1, torch.tensor(2)) - 1
        groups = None
        if name == "persons":
            # A second record for everyone; the canary's is a copy of its first.
            records, labels = records.repeat_interleave(2, 0), labels.repeat_interleave(2)
            groups = persons
        model = NETWORKS.get(name, network)()
        training = PrivateTraining(
            model,
            [phase],
            records,
            labels,
            noise=Noise(f"audit {run.seed}", source="keyed"),
            shared_noise="the pairs of an audit",
            loss=loss,
            ema_decay=0.9 if name == "average" else None,
            groups=groups,
            on_update=lambda step, sums: run.see(in_units(sums, training)),
        )

        def in_units(sums, training):
            if name != "adaptive":
                return {key: each / BOUND for key, each in sums.items()}
            *gradients, count = sums.values()
            bound = training._max_grad_norm
            scaled = [each / (bound * NOISE) for each in gradients]
            return [noise * each for each in (*scaled, count / ADAPTIVE.count_noise)]

        training.run(after_step=lambda step: run.weights(model.parameters()))
        return {"weights": training.ema or list(model.parameters())}

    return train, claim


pytestmark = pytest.mark.filterwarnings("ignore::dpatlas.privacy.per_record.PerRecordWarning")


@pytest.mark.parametrize("name", NAMES)
def test_the_premises_of_a_path_hold(name):
    train, claim = audited(name)
    report = audit_training(train, claim, premises_only=True, pairs=24, seed=2)
    assert report.exit_code == 0, str(report)
    status = {each.name: each.status for each in report.premises}
    assert status["sensitivity"] == status["noise"] == status["sampling"] == "holds"


@pytest.mark.parametrize("name", NAMES)
def test_half_the_noise_fails_on_a_path(name, half_the_noise):
    train, claim = audited(name)
    report = audit_training(train, claim, premises_only=True, pairs=24, seed=2)
    assert "noise" in [each.name for each in report.violated], str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adaptive", "persons"])
def test_a_path_is_not_contradicted(name):
    train, claim = audited(name)
    report = audit_training(train, claim, runs=100, seed=2)
    assert report.exit_code == 0, str(report)
