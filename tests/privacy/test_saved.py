"""What a training leaves for others: weights without pickle, ledger, card; and its progress."""

import json
import re

import numpy as np
import pytest
import torch
from small_training import N, data, network, phase, training, weights
from torch import nn

from dpatlas.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon, gaussian_mu
from dpatlas.accounting.samplers import Poisson
from dpatlas.base import progress
from dpatlas.base.rounding import rounded_up
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy import saved
from dpatlas.privacy.saved import CARD, CONFIG, LEDGER, WEIGHTS, load_model, load_weights


def trained(steps=3, phases=None, model=None, **options):
    run = training(phases or [phase()], model or network("mlp"), Noise(), **options)
    for _ in range(steps):
        run.step()
    return run


@pytest.mark.parametrize("averaged", [False, True])
def test_three_lines_load_what_was_trained(tmp_path, averaged):
    run = trained(ema_decay=0.5 if averaged else None)
    stated = run.save(tmp_path / "model")
    model = network("mlp", run=1)
    ledger = load_weights(tmp_path / "model", model)
    expected = run.ema if averaged else weights(run.model)
    assert all(torch.equal(value, expected[name]) for name, value in model.named_parameters())
    assert ledger == stated == json.loads((tmp_path / "model" / LEDGER).read_text())
    released = "the average of the iterates" if averaged else "the last iterate"
    assert ledger == run.ledger(released=released) and ledger["steps"] == 3
    # A header in JSON and raw numbers: nothing that is executed when it is read.
    content = (tmp_path / "model" / WEIGHTS).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert set(header) - {"__metadata__"} == set(model.state_dict())


def test_a_frozen_tie_and_a_buffer_are_saved(tmp_path):
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 5))
    model[1].weight = model[0].weight
    model.register_buffer("scale", torch.tensor([2.0]))
    run = trained(phases=[phase(trainable=("2",))], model=model)
    run.save(tmp_path / "model")
    other = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 5))
    other.register_buffer("scale", torch.zeros(1))
    load_weights(tmp_path / "model", other)
    assert torch.equal(other[1].weight, model[0].weight) and other.scale == 2


def card_of(run, folder, **facts):
    run.save(folder, **facts)
    return (folder / CARD).read_text()


def test_the_card_states_the_guarantee_in_words_and_what_it_leaves_out(tmp_path):
    run = trained()
    card = card_of(run, tmp_path / "m", data="made-up digits", accuracy="0.913 on 300 records")
    ledger = run.ledger()
    # It stopped after 3 of 6 steps.
    assert len(ledger["warnings"]) == 1 and f"- {ledger['warnings'][0]}." in card
    assert "Warnings" not in card_of(trained(6), tmp_path / "whole")
    for text in (
        f"Differentially private per record: {ledger['guaranteed']}",
        ledger["neighbour_relation"],
        f"{rounded_up(np.exp(ledger['epsilon']), 3)} (e to the epsilon)",
        ledger["holds_for"],
        "unknown: nobody said how the settings were chosen",
        "their epsilons add up, and their deltas",
        "what was computed from the records before training",
        ledger["floats"],
        "of k records of one, k epsilon holds at a delta of k e^((k - 1) epsilon) times this one",
        "| data | made-up digits |",
        "| accuracy | 0.913 on 300 records |",
        "| steps | 3 |",
        "| lr of phase 1 | 0.3 |",
        "from dpatlas.privacy import load_weights",
    ):
        assert text in card


@pytest.mark.parametrize("k", [2, 3, 10])
def test_k_records_of_a_person_cost_more_than_k_epsilon_at_the_same_delta(k):
    # Of full batches, whose sum k records move by k clip bounds.
    epsilon, delta = 2.0, 1e-5
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_epsilon(k * mu, delta) > 1.09 * k * epsilon
    assert gaussian_delta(k * mu, k * epsilon) <= k * np.exp((k - 1) * epsilon) * delta


def test_the_card_of_persons_and_of_a_training_without_noise_say_so(tmp_path):
    persons = np.arange(N) // 2
    run = trained(phases=[phase(Poisson(12, 3))], groups=persons)
    card = card_of(run, tmp_path / "persons")
    assert "Differentially private per person" in card and "k records" not in card
    assert "one person with all of their records" in card
    card = card_of(trained(phases=[phase(noise_multiplier=0.0)]), tmp_path / "silent")
    assert "**not private**: nothing: no noise" in card and "e to the epsilon" not in card


def test_a_folder_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    run = trained()
    run.save(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    run.step()

    def fails(*arguments):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(saved, "model_card", fails)
        for name, replace in (("model", True), ("new", False)):
            with pytest.raises(OSError, match="no space left"):
                run.save(tmp_path / name, replace=replace)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()} == before
    with pytest.raises(InputError, match="which exists; allowed: a new folder, or replace=True"):
        run.save(tmp_path / "model")
    run.save(tmp_path / "model", replace=True)
    assert json.loads((tmp_path / "model" / LEDGER).read_text())["steps"] == 4


def test_a_network_of_this_package_is_built_from_its_config(tmp_path):
    run = trained()
    config = {"network": "mlp", "image_shape": [1, 8, 8], "outputs": 5}
    run.save(tmp_path / "model", config=config)
    model = load_model(tmp_path / "model")
    x, _ = data()
    assert torch.equal(model(x), run.model(x)) and not model.training
    assert json.loads((tmp_path / "model" / CONFIG).read_text()) == config
    assert "load_model(FOLDER)" in (tmp_path / "model" / CARD).read_text()


def damaged(folder):
    (folder / WEIGHTS).write_bytes(b"not weights")


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda folder: load_weights(folder / "none", network("mlp")), "none/model.safetensors"),
        (lambda folder: load_weights(folder, network("linear")), "head.weight of shape"),
        (lambda folder: load_weights(folder, nn.Linear(2, 2)), "bias of shape none"),
        (lambda folder: load_model(folder), "config.json"),
        (lambda folder: (damaged(folder), load_weights(folder, network("mlp"))), "weights that we"),
    ],
)
def test_weights_of_another_model_are_refused(tmp_path, load, message):
    trained().save(tmp_path / "model")
    with pytest.raises(InputError, match=message):
        load(tmp_path / "model")


def test_progress_shows_time_left_and_epsilon_and_no_loss(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    run = trained(0)
    seen = []
    run.run(lambda done: seen.append(run.guarantee().epsilon), progress=True)
    lines = capsys.readouterr().err.splitlines()
    first = re.match(r"training: 1/6 \(17%, .* left\) epsilon (\S+) so far", lines[0])
    assert float(first[1]) == pytest.approx(seen[0], rel=1e-2)
    assert not any("loss" in line for line in lines)


def test_epsilon_is_not_asked_at_every_step(monkeypatch):
    now, asked = [0.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def epsilon():
        asked.append(step)
        now[0] += 2.0
        return 1.0

    note = progress.EpsilonSoFar(epsilon, lambda: step)
    for step in range(300):
        now[0] = max(now[0], float(step))
        said = note()
        # What is kept from an earlier step says from which.
        since = "so far" if asked[-1] == step else f"at step {asked[-1]}"
        assert said == f"epsilon 1 {since}"
    assert len(asked) == 3
