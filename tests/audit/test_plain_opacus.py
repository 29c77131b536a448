"""A plain Opacus script with its own loop (docs/examples/plain_opacus.py), and faults in it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from dpatlas.audit import Claim, audit_training, plant, watch_opacus
from dpatlas.audit.run import Run
from dpatlas.audit.script import load
from dpatlas.errors import InputError

TEXT = (Path(__file__).parents[2] / "docs" / "examples" / "plain_opacus.py").read_text()
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3)))


def slow_but(first, names):
    """The names as parameters, all but one of them slow."""
    return [name if name == first else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture
def audited(tmp_path):
    """A function that audits the script after replacements in its text."""

    def audit(*changes, seed=1, pairs=16):
        text = TEXT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "plain.py"
        path.write_text(text)
        train, claim, _ = load(str(path))
        return audit_training(train, claim, premises_only=True, pairs=pairs, seed=seed)

    return audit


def test_an_audit_needs_ten_lines_at_most():
    assert TEXT.count("  # audit") <= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_the_honest_script_breaks_no_premise(audited, seed):
    report = audited(seed=seed)
    assert report.exit_code == 0, str(report)
    found = {row.name: row for row in report.premises}
    assert found["acts through its gradient only"].could_show == 8
    facts = report.facts
    assert facts["divisor of a sum"] == (16, 16, 16) and facts["processes"] == (1, 1, 1)
    assert facts["noise multiplier of each process"] == pytest.approx((0.8, 0.8, 0.8))
    # Of 16 expected records, in parts of at most 8.
    assert 14 < facts["records of a step"][1] < 18 and 0.22 < facts["rate drawn"][1] < 0.28
    assert facts["batches of a step"][0] >= 1 and facts["batches of a step"][2] >= 3
    assert "records read outside of steps" not in facts
    assert found["sensitivity"].could_show > 10


VALIDATION = (
    "        schedule.step()",
    "        schedule.step()\n"
    "        rows = [data[number] for number in range(64)]\n"
    "        x, y = (torch.stack(part) for part in zip(*rows))\n"
    "        with torch.no_grad():\n"
    "            loss = float(nn.functional.cross_entropy(model(x), y))\n"
    "        if loss < best:\n"
    "            best, kept = loss, [each.detach().clone() for each in model.parameters()]",
)
VALIDATED = (("    schedule =", "    best = float('inf')\n    schedule ="), VALIDATION)


PUBLISHED = (("return model", "return {'weights': kept}"),)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("used", [True, False])
def test_a_validation_on_training_records_is_told_in_every_seed(audited, seed, used):
    report = audited(*VALIDATED, *(PUBLISHED if used else ()), seed=seed)
    assert report.facts["records read outside of steps"] == (128, 128, 128)
    found = {row.name: row for row in report.premises}["acts through its gradient only"]
    assert "read outside of steps" in found.note and found.could_show == 8
    assert found.status == ("violated" if used else "holds"), str(report)
    assert report.exit_code == int(used)


FAULTS = {
    "half the noise": (("noise_multiplier=0.8", "noise_multiplier=0.4"), "noise"),
    "shuffled": (("max_grad_norm=1.0", "max_grad_norm=1.0, poisson_sampling=False"), "sampling"),
    "another step": (("range(2)", "range(3)"), "steps"),
    # Opacus takes the noise from the clip bound: a larger one alone is no fault.
    "a larger clip": (
        (
            "    schedule =",
            "    optimizer.max_grad_norm, optimizer.noise_multiplier = 9, .8 / 9\n    schedule =",
        ),
        "noise",
    ),
    "momentum of sums without noise": (
        (
            "                optimizer.step()\n",
            "                optimizer.step()\n"
            "                for each in optimizer.params:\n"
            "                    each.data -= 0.01 * each.summed_grad.view_as(each)\n",
        ),
        "acts through sums only",
    ),
    "the last part of a batch without a clip": (
        (
            "    watch_opacus(run, optimizer)",
            "    own = optimizer.clip_and_accumulate\n\n"
            "    def clip_parts():\n"
            "        skipped = optimizer._step_skip_queue[0]\n"
            "        optimizer.max_grad_norm = 1.0 if skipped else 1e6\n"
            "        own()\n"
            "        optimizer.max_grad_norm = 1.0\n\n"
            "    optimizer.clip_and_accumulate = clip_parts\n"
            "    watch_opacus(run, optimizer)",
        ),
        "sensitivity",
    ),
}
BEFORE = "                optimizer.zero_grad()"
HONEST = {
    "rows left out": "inputs, labels = inputs[labels != 9], labels[labels != 9]",
    "rows in another order": "inputs, labels = inputs.flip(0), labels.flip(0)",
    "records read between": "[data[number] for number in range(8, 16)]",
}
KEYWORDS = (
    ("    model, optimizer", "    model = Keywords(model)\n    model, optimizer"),
    ("model(inputs)", "model(pixels=inputs)"),
    (
        "\n\ndef train(",
        "\n\nclass Keywords(nn.Module):\n"
        "    def __init__(self, network):\n"
        "        super().__init__()\n"
        "        self.network = network\n\n"
        "    def forward(self, pixels):\n"
        "        return self.network(pixels)\n"
        "\n\ndef train(",
    ),
)


@pytest.mark.parametrize("loop", slow_but("rows left out", HONEST))
def test_a_loop_may_sort_leave_out_and_look_at_records(audited, loop):
    report = audited((BEFORE, f"                {HONEST[loop]}\n{BEFORE}"), pairs=10)
    assert not report.violated, str(report)


def test_a_loop_may_name_the_inputs_of_the_network(audited):
    report = audited(
        (BEFORE, f"                {HONEST['rows in another order']}\n{BEFORE}"), *KEYWORDS
    )
    assert not report.violated, str(report)


@pytest.mark.slow
def test_a_clip_bound_that_follows_a_noisy_count_is_no_leak(audited):
    adaptive = (
        "max_grad_norm=1.0, clipping='adaptive', target_unclipped_quantile=0.5, max_clipbound=10.0,"
        "min_clipbound=0.1, clipbound_learning_rate=0.2, unclipped_num_std=5.0,"
    )
    report = audited(("max_grad_norm=1.0,", adaptive), pairs=10)
    assert not report.violated, str(report)


def test_more_rows_than_records_drawn_are_refused_with_what_to_write_instead(audited):
    views = "inputs, labels = torch.cat([inputs + 1, inputs + 2]), labels.repeat(2)"
    with pytest.raises(InputError, match=r"rows for \d+ records drawn; .*run.loss_weights"):
        audited((BEFORE, f"                {views}\n{BEFORE}"), pairs=2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", slow_but("half the noise", FAULTS))
def test_a_fault_in_the_script_is_found(audited, fault, seed):
    change, violated = FAULTS[fault]
    report = audited(change, seed=seed, pairs=24)
    assert violated in [row.name for row in report.violated], str(report)


def test_a_script_without_a_claim_is_told_which_lines_to_add(tmp_path):
    path = tmp_path / "plain.py"
    path.write_text("def main():\n    return 1.0\n")
    for target in (f"{path}", f"{path}:main"):
        with pytest.raises(InputError, match=r"plant\(run, data, canary\) \| watch_opacus"):
            load(target)


def test_items_of_a_data_set_are_planted_in_its_types():
    images = [(np.full((2, 2), number, dtype=np.float32), number) for number in range(3)]
    canary = (np.ones((2, 2)) * 7, 5)
    claim = Claim(sampler="poisson", n=3, batch=1, noise=1, steps=1, delta=1e-5)
    for member, first, label in ((True, 7, 5), (False, 0, 0)):
        planted = plant(Run(claim, 1, np.array([member])), images, canary)
        (place,) = planted.planted
        image, number = planted[place]
        assert image.dtype == np.float32 and image[0, 0] == first and number == label
        others = {0, 1, 2} - {place}
        assert {planted[other][1] for other in others} == others and len(planted) == 3
    places = {
        min(plant(Run(claim, n, np.array([True])), images, canary).planted) for n in range(20)
    }
    assert places == {0, 1, 2}
    own = Claim(epsilon=1, delta=1e-5, relation="replace_one")
    planted = plant(Run(own, 1, np.array([False])), images[1:], canary)
    assert [planted[0][1], planted[1][1]] == [1, 2] and not len(planted.blank)


def test_copies_of_the_canary_take_the_places_of_records_of_weight_zero():
    """Equal records of a data set have the same weight, so a loop may sort them."""
    claim = Claim(sampler="poisson", n=64, batch=16, noise=1, steps=1, delta=1e-5)
    runs = [Run(claim, 7, np.array([False]), silenced=each) for each in (False, True)]
    arrays = [plant(run, np.arange(64.0), np.array(99.0)) for run in runs]
    weights = [run.loss_weights(64) for run in runs]
    assert np.array_equal(*weights) and weights[0][0] == 0 and 20 < weights[0].sum() < 44
    assert np.array_equal(arrays[1] == 99, (weights[0] == 0) & (np.arange(64) > 0))
    assert np.array_equal(arrays[0][1:], np.arange(1.0, 64))
    items = [(np.array([number % 16, 1.0]), number) for number in range(64)]
    planted = [plant(run, items, (np.array([99.0, 0]), 5)) for run in runs]
    labels = [[each[number][1] for number in range(64)] for each in planted]
    drawn = [np.array(each.drawn) for each in planted]
    (place,) = planted[0].planted
    others = np.arange(64) != place
    assert np.array_equal(*drawn) and labels[0][place] == labels[1][place] == 0
    by_content = drawn[0].reshape(4, 16)
    assert all(len({*column}) == 1 for column in np.delete(by_content, place % 16, axis=1).T)
    assert 0 < drawn[0].sum() < 64
    silent = drawn[0] & others
    assert np.array_equal(np.array(labels[1])[silent], np.full(silent.sum(), 5))
    kept = others & ~silent
    assert np.array_equal(np.array(labels[0])[kept], np.array(labels[1])[kept])


def test_what_cannot_be_watched_is_refused():
    claim = Claim(epsilon=1, delta=1e-5)
    run = Run(claim, 1, np.array([True]))
    data = TensorDataset(torch.zeros(4, 2), torch.zeros(4))
    with pytest.raises(InputError, match="canary: found parts of shape"):
        plant(run, data, (torch.zeros(3), torch.tensor(1)))
    with pytest.raises(InputError, match="records and canary: found dict"):
        plant(run, [{"x": 1}, {"x": 2}], {"x": 3})
    plant(run, data, (torch.zeros(2), torch.tensor(1)))
    with pytest.raises(InputError, match="optimizer: found SimpleNamespace"):
        watch_opacus(run, SimpleNamespace())


def test_records_that_workers_draw_are_refused(audited):
    with pytest.raises(InputError, match=r"data loader.*one loader without workers"):
        audited(("batch_size=16)", "batch_size=16, num_workers=1)"), pairs=2)
