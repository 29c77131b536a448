"""`dpatlas train --arms`: the same training without privacy and with its parts one by one."""

import json
from dataclasses import replace

import pytest
import torch
from own_trainings import SETTINGS, run, write

from dpatlas.base.scripts import named_function
from dpatlas.base.seeds import Noise
from dpatlas.commands.train import _where_lost
from dpatlas.errors import InputError
from dpatlas.privacy import Poisson, PrivateTraining, TrainingPhase, cross_entropy
from dpatlas.train.training import ARMS

WARNING = "arms without noise ran on these records"


def record_in(folder):
    (path,) = folder.glob("mine-*/record.json")
    return json.loads(path.read_text())


def test_each_arm_is_the_training_with_one_part_more(tmp_path, capsys):
    path = write(tmp_path, max_grad_norm=0.1)
    assert run(path, "--arms", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["arms"]
    assert [row["arm"] for row in rows] == list(ARMS) and not list(tmp_path.glob("*/mine-*/model"))
    assert run(path) == 0
    record = record_in(tmp_path / "trained")
    # With keyed noise the last arm is the training that the file describes.
    assert [row["epsilon"] for row in rows] == [None, None, None, record["ledger"]["epsilon"]]
    assert rows[3]["loss"] == record["metrics"]["loss"]
    make, module, _ = named_function(f"{tmp_path / 'mine.py'}:network", "")
    x, y = module.held_out()
    phase = TrainingPhase(Poisson(40, 10), 0.0, max_grad_norm=0.1, steps=6, lr=0.5)
    # No gradient of these records is longer than 100.
    for row, bound in ((rows[1], 100.0), (rows[2], 0.1)):
        torch.manual_seed(0)
        model = make()
        noise = Noise(record["spec_digest"], "keyed")
        phases = [replace(phase, max_grad_norm=bound)]
        PrivateTraining(model, phases, *module.records(), noise=noise).run()
        with torch.no_grad():
            assert row["loss"] == pytest.approx(float(cross_entropy(model(x), y).mean()), rel=1e-6)
    assert rows[0]["loss"] != rows[1]["loss"] != rows[2]["loss"] != rows[3]["loss"]


def test_the_ledger_of_a_later_training_on_the_same_records_says_that_arms_ran(tmp_path, capsys):
    path = write(tmp_path)
    assert run(path, "--arms") == 0
    said = capsys.readouterr()
    assert "warning: arms without noise spend privacy that no epsilon counts" in said.err
    assert len(said.out.splitlines()) == 6
    assert run(write(tmp_path, lr=0.25)) == 0
    assert WARNING in capsys.readouterr().err
    assert any(WARNING in each for each in record_in(tmp_path / "trained")["ledger"]["warnings"])
    # Canaries beside them do not make them other records.
    assert run(write(tmp_path, canaries={"number": 10})) == 0
    assert WARNING in capsys.readouterr().err
    # Records of one name may be those, read otherwise.
    source = (tmp_path / "mine.py").read_text()
    path = write(tmp_path, test=None)
    (tmp_path / "mine.py").write_text(source.replace("return X[:40], Y", "return X[:40] / 2, Y"))
    assert run(path) == 0
    said = capsys.readouterr().err
    assert "arms without noise ran on mine.py:records (perhaps these records):" in said
    assert "was trained on mine.py:records (perhaps these records) with other settings" in said
    other = write(tmp_path / "other", data="mine.npz", batch=4)
    assert run(other) == 0
    warnings = record_in(tmp_path / "other" / "trained")["ledger"]["warnings"]
    assert not any(WARNING in each for each in warnings)


def rows_of(*accuracies, majority=0.5, loss=(1.0, 1.0, 1.0, 1.0)):
    return [
        {"arm": arm, "accuracy": value, "majority": majority, "loss": each, "n_test": 1000}
        for arm, value, each in zip(ARMS, accuracies, loss, strict=True)
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (rows_of(0.9, 0.9, 0.7, 0.6), "accuracy falls most by the clip: from 0.9 to 0.7"),
        (rows_of(0.9, 0.9, 0.9, 0.6), "accuracy falls most by the noise: from 0.9 to 0.6"),
        (rows_of(0.9, 0.89, 0.9, 0.89), "no part costs accuracy beyond what chance"),
        (rows_of(0.9, 0.8, 0.7, 0.6, majority=0.89), "nothing is learnt even without privacy"),
        (rows_of(*[None] * 4, loss=(1, 1, 1.5, 3)), "loss rises most by the noise: from 1.5 to 3"),
        (rows_of(*[None] * 4, loss=(None, 1, 1, 1)), "no loss that is finite: no privacy"),
    ],
)
def test_one_sentence_says_where_accuracy_is_lost(rows, said):
    assert said in _where_lost(rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"test": None},
        {"noise_multiplier": 0.0},
        {"canaries": {"number": 2}, "delta": 1e-4},
    ],
)
def test_settings_without_arms_to_compare_are_refused(tmp_path, changes):
    assert set(changes) - set(SETTINGS) <= {"canaries"}
    with pytest.raises(InputError, match="--arms: found other settings; allowed: noise and test"):
        run(write(tmp_path, **changes), "--arms")
