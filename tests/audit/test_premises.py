"""Each premise of a claim is tested by itself: honest code passes, and one fault fails its row."""

import numpy as np
import pytest
from scipy import stats
from small_trainings import BATCH, RECORDS, claim, training

from dpatlas.audit import audit_training
from dpatlas.audit.premises import HOLDS, UNTESTED, VIOLATED, _lower_tail, first_step_law

SEED = 5


def rows(train, claimed=None, **options):
    report = audit_training(
        train, claimed or claim(), premises_only=True, seed=SEED, **{"pairs": 40, **options}
    )
    return report, {row.name: row for row in report.premises}


def test_correct_training_passes_every_premise():
    report, found = rows(training())
    assert {row.status for row in found.values()} == {HOLDS}
    assert len(found) == 7 and report.exit_code == 0


@pytest.mark.parametrize(
    ("fault", "violated"),
    [
        ({"noise": 0.4}, "noise"),
        ({"same_coordinates": True}, "noise in each coordinate"),
        ({"same_noise": True}, "noise at each step"),
        ({"own_seed": 1}, "noise"),
        ({"clip": False}, "sensitivity"),
        ({"private_mean": True}, "sampling"),
        ({"private_mean": True}, "sensitivity"),
        ({"sampler": "shuffled"}, "sampling"),
        ({"extra_steps": 1}, "steps"),
        ({"looks_at_loss": True}, "acts through sums only"),
    ],
    ids=str,
)
def test_a_fault_fails_the_premise_that_it_breaks(fault, violated):
    report, found = rows(training(**fault))
    assert found[violated].status == VIOLATED
    assert report.exit_code == 1 and violated in str(report).splitlines()[-1]


def test_shuffled_batches_pass_where_they_are_claimed():
    report, _ = rows(training(sampler="shuffled"), claim(sampler="shuffled"))
    assert report.exit_code == 0


def test_more_noise_fewer_steps_and_a_smaller_rate_break_no_premise():
    assert rows(training(noise=1.6))[0].exit_code == 0
    report, found = rows(training(), claim(steps=10))
    assert report.exit_code == 0 and "break no epsilon" in found["steps"].note
    assert rows(training(), claim(batch=2 * BATCH))[0].exit_code == 0


def test_an_epsilon_that_the_settings_do_not_support_is_a_premise_that_fails():
    report, found = rows(training(), claim(epsilon=3))
    assert found["accounting"].status == VIOLATED and report.exit_code == 1
    assert rows(training(), claim(epsilon=8.1))[0].exit_code == 0


def test_noise_of_the_operating_system_leaves_comparisons_untested_and_says_so():
    report, found = rows(training(secret=True))
    assert report.exit_code == 0
    assert found["sensitivity"].status == UNTESTED
    assert "acts through sums only" not in found and "sampling" not in found
    assert found["noise"].status == HOLDS
    assert rows(training(secret=True, noise=0.2))[1]["noise"].status == VIOLATED


def test_without_sums_nothing_can_be_said_of_them():
    report, found = rows(training(see=False))
    assert list(found) == ["noisy sums"]
    assert report.exit_code == 3 and [row.status for row in report.premises] == [UNTESTED]


@pytest.mark.parametrize("variance", [1.0, 4.0])
def test_the_test_of_the_noise_keeps_its_error_whatever_the_clean_sums_are(variance):
    draws = np.random.default_rng(3)
    failed = 0
    for _ in range(1000):
        noise = draws.normal(size=(20, 4, 30))
        clean = np.sqrt(variance - 1) * draws.normal(size=(20, 1, 1)) * np.ones((1, 4, 30))
        test = _lower_tail("noise", "deviation", noise + clean)
        failed += test(0.05).status == VIOLATED
    # At most the stated 5 %, but for chance.
    assert failed <= stats.binom.ppf(0.9999, 1000, 0.05)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [({}, 8), ({"sampler": "shuffled"}, 8), ({"sampler": "shuffled", "batch": 24, "steps": 9}, 9)],
)
def test_the_first_step_of_a_record_has_the_law_that_sampling_gives(settings, steps):
    claimed = claim(**settings)
    law = first_step_law(claimed)
    assert len(law) == steps + 1 and law.sum() == pytest.approx(1)
    draws, counts = np.random.default_rng(1), np.zeros(steps + 1)
    batch = claimed.batch
    for _ in range(4000):
        first = steps
        for step in range(steps):
            per_epoch = -(-RECORDS // batch)
            if claimed.sampler == "shuffled":
                if step % per_epoch == 0:
                    place = draws.permutation(RECORDS).tolist().index(0)
                drawn = place // batch == step % per_epoch
            else:
                drawn = draws.random() < batch / RECORDS
            if drawn:
                first = step
                break
        counts[first] += 1
    expected = 4000 * law
    kept = expected > 0
    assert counts[~kept].sum() == 0
    chi2 = ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    assert chi2 < stats.chi2.ppf(0.9999, kept.sum() - 1)


def test_dropped_batches_delay_a_record():
    law = first_step_law(claim(sampler="shuffled", batch=24, steps=4, drop_last=True))
    share, waits = 24 / 64, 16 / 64
    expected = [share, share, waits * share, waits * share, waits**2]
    assert law == pytest.approx(expected)
