"""Each premise of a claim is tested by itself: honest code passes, and one fault fails its row."""

import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from small_trainings import (
    BATCH,
    DIMENSION,
    NOISE,
    OWN,
    RECORDS,
    STEPS,
    canary,
    claim,
    principal_component,
    training,
    x,
)

from dpatlas.audit import Claim, audit_training, plant
from dpatlas.audit.pairs import shifted_noise
from dpatlas.audit.premises import (
    GRADIENT,
    HOLDS,
    UNTESTED,
    VIOLATED,
    _lower_tail,
    _sampling,
    _shifted,
    first_step_law,
)

SEED = 5


def rows(train, claimed=None, **options):
    options = {"premises_only": True, "seed": SEED, "pairs": 40, **options}
    report = audit_training(train, claimed or claim(), **options)
    return report, {row.name: row for row in report.premises}


def test_correct_training_passes_every_premise():
    report, found = rows(training())
    assert [row.name for row in found.values() if row.status != HOLDS] == [GRADIENT]
    assert found[GRADIENT].found == "it needs run.loss_weights and plant"
    assert len(found) == 9 and report.exit_code == 0


@pytest.mark.parametrize(("steps", "most"), [(2, 40), (8, 20), (60, 0)])
def test_pairs_that_cannot_show_a_fault_do_not_count_as_holding(steps, most):
    """The canary is never drawn in (1 - 1/4)^steps of the pairs."""
    report, found = rows(training(steps=steps), claim(steps=steps))
    row = found["acts through sums only"]
    assert row.status == (HOLDS if row.could_show else UNTESTED)
    assert min(most, 1) <= row.could_show <= most
    said = " ".join(str(report).split())
    assert f"{row.could_show} of 40 pairs could show this" in said
    assert found["sensitivity"].could_show == 40 - row.could_show


def test_what_only_some_records_make_a_training_publish_is_a_change():
    def train(run):
        published = training(weighted=True)(run)
        many = int((plant(run, x, canary)[:, OWN] > 0).sum())
        return published | ({"warning": 1.0} if many > 1 else {})

    row = rows(train)[1][GRADIENT]
    assert row.status == VIOLATED and "in 20 of 20 pairs they change warning" in row.found


def test_a_loop_that_cannot_have_records_of_weight_zero_leaves_that_untested():
    def train(run):
        weights = run.loss_weights(RECORDS)
        if (weights == 0).sum() > 1:
            raise ZeroDivisionError
        return training()(run)

    report, found = rows(train)
    assert found[GRADIENT].status == UNTESTED and "end with bad input" in found[GRADIENT].found
    assert report.exit_code == 0


def test_a_canary_that_is_planted_by_hand_leaves_weight_zero_untested():
    def train(run):
        run.loss_weights(RECORDS)
        return seen_in_one_world(STEPS, STEPS)(run)

    assert rows(train)[1][GRADIENT].status == UNTESTED


@pytest.mark.parametrize("relation", ["zero_out", "add_remove", "replace_one"])
@pytest.mark.parametrize("best", [False, True])
def test_a_choice_by_private_accuracy_is_seen_also_where_the_record_is_removed(relation, best):
    removed = relation == "add_remove"
    train = training(removed=removed, weighted=True, best=best)
    report, found = rows(train, claim(relation=relation))
    assert found[GRADIENT].status == (VIOLATED if best else HOLDS), str(report)
    assert found[GRADIENT].could_show == 20 and report.exit_code == int(best)


EVERYWHERE = np.full(DIMENSION, 30.0)
# The fault, what is claimed, and the premise that it breaks.
FAULTS = [
    ({"noise": 0.4}, {}, "noise"),
    # Of one step alone.
    ({"noise": [NOISE] * 7 + [0.0]}, {}, "noise"),
    ({"period": 1}, {}, "noise at each step"),
    ({"period": 3}, {}, "noise at each step"),
    *(
        ({"noise": 3.0, "steps": 16, "period": n}, {"noise": 3, "steps": 16}, "noise at each step")
        for n in (2, 4, 8)
    ),
    *(
        ({"noise": 3.0, "coordinates": n}, {"noise": 3}, "noise in each coordinate")
        for n in (1, 2, DIMENSION // 2)
    ),
    ({"own_seed": 1}, {}, "noise"),
    ({"clip": False}, {}, "sensitivity"),
    *(
        ({"clip": False, "batch_size": n, "canary": EVERYWHERE}, {"batch": n}, "sensitivity")
        for n in (6, 16, 64)
    ),
    ({"private_mean": True}, {}, "sampling"),
    ({"private_mean": True}, {}, "sensitivity"),
    ({"sampler": "shuffled"}, {}, "sampling"),
    ({"extra_steps": 1}, {}, "steps"),
    ({"looks_at_loss": True}, {}, "acts through sums only"),
    # The settings guarantee 8.04, and 7.9 with its rounding is at most 7.94.
    ({}, {"epsilon": 7.9}, "accounting"),
]


@pytest.mark.parametrize(("fault", "claimed", "violated"), FAULTS, ids=str)
def test_a_fault_fails_the_premise_that_it_breaks(fault, claimed, violated):
    report, found = rows(training(**fault), claim(**claimed))
    assert found[violated].status == VIOLATED
    assert report.exit_code == 1 and violated in str(report).splitlines()[-1]


def test_a_record_in_the_place_of_another_may_move_a_sum_by_twice_the_clip_bound():
    """The canary's gradient is orthogonal to that of the record whose place it takes."""
    _, found = rows(training(), claim(relation="replace_one"))
    assert found["sensitivity"].status == HOLDS and "up to 1.41 C" in found["sensitivity"].found


@pytest.mark.parametrize(
    "law",
    [
        lambda draws: draws.uniform(-np.sqrt(3), np.sqrt(3), DIMENSION),
        lambda draws: draws.laplace(size=DIMENSION) / np.sqrt(2),
    ],
    ids=["uniform", "Laplace"],
)
def test_noise_of_the_stated_deviation_and_another_law_is_caught(law):
    report, _ = rows(training(law=law), pairs=100)
    assert [row.name for row in report.violated] == ["law of the noise"]


@pytest.mark.parametrize("clean", [0, 5, 20])
def test_noise_that_returns_at_other_coordinates_is_found_and_fresh_noise_is_not(clean):
    """Windows of one pool, and noise that is rolled; the clean part is the same at every step."""
    draws, size = np.random.default_rng(SEED), 3000
    part = np.cumsum(draws.normal(size=size))
    part *= clean / np.linalg.norm(part)
    pool = NOISE * draws.normal(size=size + 500)
    reused = {74: (3, 77, 250), 1: (0, 1)}
    for shift, starts in reused.items():
        cosine, at = shifted_noise([part + pool[start : start + size] for start in starts], NOISE)
        assert cosine > 0.6 and abs(at) == shift
    for _ in range(20):
        fresh = [part + NOISE * draws.normal(size=size) for _ in range(6)]
        assert shifted_noise(fresh, NOISE) == (0, 0)
    for _ in range(20):
        several = [np.tile(NOISE * draws.normal(size=600), 5) for _ in range(6)]
        assert shifted_noise(several, NOISE) == (0, 0)
    row = _shifted([SimpleNamespace(shifted=(0.9, 1.0)), SimpleNamespace(shifted=(0.0, 0.0))])
    assert (
        row.status == VIOLATED
        and "in 1 of 2 pairs" in row.found
        and "0.9, if one is shifted by 1 " in row.found
    )


def test_noise_on_a_grid_is_out_of_reach():
    """Its last digits may tell the sum; the law of the noise hardly differs."""
    report, _ = rows(training(law=lambda draws: draws.normal(size=DIMENSION).round(3)))
    assert report.exit_code == 0


def test_every_pitfall_of_the_table_has_tests_that_exist():
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    table = page.partition("## Common pitfalls")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    tests = "".join(each.read_text() for each in Path(__file__).parent.glob("test_*.py"))
    assert len(lines) == 12
    for line in lines:
        names = re.findall(r"`(test_\w+)`", line)
        assert names and all(f"def {name}(" in tests for name in names), line


def test_fewer_steps_than_claimed_break_no_premise_and_are_told():
    report, found = rows(training(), claim(steps=10))
    assert report.exit_code == 0 and "break no epsilon" in found["steps"].note


@pytest.mark.parametrize("removed", [False, True])
def test_empty_batches_that_are_skipped_break_add_remove_alone(removed):
    """Their number tells who is present, whether the canary is blanked or removed."""

    def skips(run):
        draws, there = np.random.default_rng(run.seed), np.ones(24, dtype=bool)
        there[0] = run.member or not removed
        for _ in range(24):
            if (draws.random(24) < 1 / 24)[there].any():
                run.see(draws.normal(size=5))
        return 0.0

    settings = {"n": 24, "batch": 1, "noise": 1.0, "steps": 24}
    report, found = rows(skips, claim(**settings, relation="add_remove"))
    assert report.exit_code == 1 and found["steps"].status == VIOLATED
    assert "depends on who is present" in found["steps"].found
    report, found = rows(skips, claim(**settings, relation="zero_out"))
    assert found["steps"].status == HOLDS and "must not depend" in found["steps"].note


def test_a_number_of_sums_that_varies_otherwise_is_no_evidence():
    def stops(run):
        draws = np.random.default_rng(run.seed)
        for _ in range(draws.integers(1, STEPS)):
            run.see(NOISE * draws.normal(size=5))
        return 0.0

    _, found = rows(stops, claim(relation="add_remove"))
    assert found["steps"].status == UNTESTED and "who is present" in found["steps"].note


def test_noise_of_the_operating_system_leaves_comparisons_untested_and_says_so():
    # Its noise is other in every test: at the usual level one in a hundred would be violated.
    report, found = rows(training(secret=True), level=1 - 1e-6)
    assert report.exit_code == 0
    compared = ("sensitivity", "acts through sums only", "sampling")
    assert {found[name].status for name in compared} == {UNTESTED}
    assert all(name in report.unseen[0] for name in compared)
    assert found["noise"].status == HOLDS
    assert rows(training(secret=True, noise=0.2))[1]["noise"].status == VIOLATED


UNCOUPLED = [
    ({"secret_batches": True}, {}, "does not repeat itself"),
    ({"removed": True}, {"relation": "add_remove"}, "do not give equal noise"),
    (
        {"removed": True, "noise": 3.0},
        {"relation": "add_remove", "noise": 3},
        "a blank record in its place",
    ),
]


@pytest.mark.parametrize(("how", "claimed", "reason"), UNCOUPLED, ids=str)
def test_honest_code_whose_runs_cannot_be_compared_breaks_nothing(how, claimed, reason):
    report, found = rows(training(**how), claim(**claimed))
    assert report.exit_code == 0
    assert found["sensitivity"].status == found["sampling"].status == UNTESTED
    assert reason in found["sensitivity"].found
    little = rows(training(**{**how, "noise": 0.2}), claim(**claimed))[1]
    assert little["noise"].status == VIOLATED


def removing(first, sampler, batch_size):
    """Sums of records without a clip to pass, the canary's among them only where it is in."""

    def train(run):
        batches, noises = (np.random.default_rng([run.seed, number]) for number in (0, 1))
        draws = np.random.default_rng(0)
        records = draws.normal(size=(RECORDS - 1, DIMENSION))
        records /= np.linalg.norm(records, axis=1, keepdims=True)
        if run.member:
            own = np.eye(DIMENSION)[:1]
            records = np.concatenate([own, records] if first else [records, own])
        for step in range(STEPS):
            if sampler == "poisson":
                batch = np.flatnonzero(batches.random(len(records)) < batch_size / RECORDS)
            elif sampler == "poisson by numbers":
                many = batches.binomial(RECORDS, batch_size / RECORDS)
                batch = batches.choice(len(records), min(many, len(records)), replace=False)
            else:
                place = step % (RECORDS // batch_size) * batch_size
                order = batches.permutation(len(records)) if place == 0 else order  # noqa: F821
                batch = order[place : place + batch_size]
            run.see(records[batch].sum(0) + 2 * noises.normal(size=DIMENSION))

    return train


@pytest.mark.slow
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 16])
@pytest.mark.parametrize("sampler", ["poisson", "poisson by numbers", "shuffled"])
def test_a_record_that_is_really_removed_raises_no_alarm(first, sampler, batch_size):
    kind = sampler.split()[0]
    claimed = claim(relation="add_remove", noise=2, sampler=kind, batch=batch_size, epsilon=50)
    for seed in range(3):
        _, found = rows(removing(first, sampler, batch_size), claimed, seed=seed)
        compared = ("sensitivity", "acts through sums only", "sampling")
        assert {found[name].status for name in compared} == {UNTESTED}


def with_views(run):
    """Honest sums of mirrored records; each record of a batch draws a sign before the noise is."""
    batches, numbers = (np.random.default_rng([run.seed, each]) for each in (0, 1))
    records = np.random.default_rng(0).normal(size=(RECORDS, DIMENSION))
    records /= np.linalg.norm(records, axis=1, keepdims=True)
    there = RECORDS if run.member else RECORDS - 1
    for _ in range(STEPS):
        batch = np.flatnonzero(batches.random(RECORDS) < run.claim.sample_rate)
        batch = batch[batch < there]
        views = records[batch] * numbers.choice([-1, 1], size=(len(batch), 1))
        run.see(views.sum(0) + run.claim.noise * numbers.normal(size=DIMENSION))


@pytest.mark.parametrize("pairs", [4, 40])
@pytest.mark.parametrize("noise", [0.8, 5])
@pytest.mark.parametrize("relation", ["add_remove", "zero_out"])
def test_noise_that_is_drawn_anew_where_a_removed_record_is_missing_raises_no_alarm(
    relation, noise, pairs
):
    claimed = claim(relation=relation, noise=noise, batch=6)
    for seed in range(4):
        report, found = rows(with_views, claimed, seed=seed, pairs=pairs)
        assert found["sensitivity"].status == UNTESTED and not report.violated


@pytest.mark.parametrize("batch_size", [1, 16, 40])
def test_a_blank_record_shows_a_missing_clip_under_add_remove_too(batch_size):
    claimed = claim(relation="add_remove", batch=batch_size, steps=STEPS)
    _, found = rows(training(clip=False, batch_size=batch_size), claimed)
    assert found["sensitivity"].status == VIOLATED
    report, found = rows(training(batch_size=batch_size), claimed)
    assert found["sensitivity"].status == found["sampling"].status == HOLDS
    assert report.exit_code == 0


def publishing(**more):
    """Correct training that publishes more: functions of no argument, by name."""

    def train(run):
        published = training()(run)
        return {**published, **{name: make() for name, make in more.items()}}

    return train


def test_what_a_run_on_the_same_seed_changes_is_not_compared():
    fresh = {"noisy": lambda: np.random.default_rng().normal(size=5), "seconds": time.perf_counter}
    report, found = rows(publishing(**fresh))
    assert report.exit_code == 0
    assert found["acts through sums only"].status == HOLDS
    assert found["acts through sums only"].note.endswith("changes it: noisy, seconds")

    def leaks(run):
        return {**publishing(**fresh)(run), "member": float(run.member)}

    assert rows(leaks)[1]["acts through sums only"].status == VIOLATED


@pytest.mark.parametrize("added", [np.nan, np.inf, "fresh"], ids=str)
def test_weights_that_are_no_numbers_or_no_function_of_the_seed_raise_no_alarm(added):
    def train(run):
        given = run.weights
        fresh = np.random.default_rng()
        run.weights = lambda values: given(
            np.append(values, fresh.normal() if added == "fresh" else added)
        )
        return training()(run)

    assert rows(train)[0].exit_code == 0


@pytest.mark.parametrize(("size", "broken"), [(1.0, False), (1.5, True)])
def test_the_rounding_of_large_sums_moves_no_sum_by_more_than_c(size, broken):
    records = 60_000

    def train(run):
        draws = np.random.default_rng(run.seed)
        for _ in range(3):
            clean = np.full(2, 0.7 * records) + size * np.array([0.6, 0.8]) * run.member
            run.see(clean + 20 * draws.normal(size=2))

    claimed = Claim(sampler="full-batch", n=records, noise=20, steps=3, delta=1e-5)
    assert (rows(train, claimed)[1]["sensitivity"].status == VIOLATED) is broken


@pytest.mark.parametrize("size", [1e30, 1e39, 1e160, 1e300])
def test_a_record_that_adds_a_huge_number_is_caught(size):
    def train(run):
        draws = np.random.default_rng(run.seed)
        for _ in range(3):
            run.see(draws.normal(size=3) + np.array([size, 0, 0]) * run.member)

    claimed = claim(sampler="full-batch", batch=RECORDS, steps=3, noise=1)
    assert rows(train, claimed)[1]["sensitivity"].status == VIOLATED
    assert audit_training(train, claimed, runs=20, seed=1).exit_code == 1


@pytest.mark.parametrize("pairs", [2, 3])
@pytest.mark.parametrize("how", [{"secret": True}, {"secret_batches": True}], ids=str)
def test_few_pairs_without_common_numbers_raise_no_alarm(pairs, how):
    for seed in range(20):
        assert rows(training(**how), pairs=pairs, seed=seed)[0].exit_code == 3


def test_too_few_pairs_leave_noise_and_sampling_untested_and_say_so():
    report, found = rows(training(noise=0.0), pairs=7)
    assert found["noise"].status == found["sampling"].status == UNTESTED
    assert "7 pairs of runs, and 8 are needed" in found["noise"].found
    assert "noise" in report.unseen[0]


HONEST = [
    ({"sampler": "shuffled"}, {"sampler": "shuffled"}),
    ({"noise": 1.6}, {}),
    ({}, {"batch": 2 * BATCH}),
    ({}, {"epsilon": 8.1}),
    ({"rounding": 2e-5}, {}),
    ({"frozen": 10}, {}),
    # A head is trained first, then everything.
    ({"frozen": [10] * 4 + [0] * 4}, {}),
    ({"canary": canary * 1e-6}, {}),
    ({"batch_size": 2}, {"batch": 2}),
    ({"steps": 2, "batch_size": 2}, {"batch": 2, "steps": 2}),
    ({"sampler": "shuffled", "steps": 2}, {"sampler": "shuffled", "steps": 2}),
    # Of the first phase two steps less than claimed.
    (
        {"noise": [2 * NOISE] * 4 + [NOISE] * 4},
        {
            "steps": None,
            "noise": None,
            "phases": [{"noise": 2 * NOISE, "steps": 6}, {"noise": NOISE, "steps": 4}],
        },
    ),
]


@pytest.mark.parametrize(("how", "claimed"), HONEST, ids=str)
def test_unusual_honest_code_breaks_no_premise(how, claimed):
    report, found = rows(training(**how), claim(**claimed))
    assert report.exit_code == 0, report
    assert found["noise"].status == HOLDS


def test_numbers_that_are_shown_twice_share_their_noise_by_right():
    def train(run):
        see = run.see
        run.see = lambda noisy: see(np.tile(noisy, 2) / np.sqrt(2))
        return training(noise=np.sqrt(2) * NOISE)(run)

    assert rows(train)[0].exit_code == 0


def test_phases_of_several_batch_sizes_have_no_law_of_a_first_step():
    phases = [{"batch": 8, "steps": 1}, {"batch": 32, "steps": 8}]
    assert first_step_law(claim(sampler="shuffled", batch=None, steps=None, phases=phases)) is None


def test_sums_that_push_themselves_on_are_no_reused_noise():
    for seed in range(3):
        report, _ = rows(principal_component, claim(n=2000, batch=1000), seed=seed)
        assert report.exit_code == 0, report


@pytest.mark.parametrize("seed", range(4))
def test_a_coordinate_without_noise_is_no_frozen_one_though_only_the_canary_moves_it(seed):
    report, _ = rows(training(bare=True, batch_size=1), claim(batch=1), seed=seed)
    assert "noise" in [row.name for row in report.violated], str(report)


def test_noise_that_falls_late_is_caught():
    noise = [3.0] * 16 + [0.75] * 16
    report, found = rows(training(noise=noise, steps=32), claim(noise=3, steps=32))
    assert found["noise"].status == VIOLATED
    assert "the noise of other steps than 14 of the 32" in " ".join(report.unseen)


def test_a_canary_that_hardly_acts_is_not_said_to_act_beside_the_sums():
    _, found = rows(training(steps=40, canary=canary * 5e-6), claim(steps=40))
    assert found["acts through sums only"].status != VIOLATED


def test_a_training_that_imports_torch_itself_is_seeded_before_it_is_compared(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    def late(run):
        first = "torch" not in sys.modules
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(manual_seed=lambda seed: None))
        return training(secret=first)(run)

    report, found = rows(late)
    assert report.exit_code == 0 and found["sensitivity"].status == HOLDS


def test_without_sums_nothing_can_be_said_of_them():
    report, found = rows(training(see=False))
    assert list(found) == ["noisy sums"]
    assert report.exit_code == 3 and [row.status for row in report.premises] == [UNTESTED]


def seen_in_one_world(with_canary, without):
    """A training that shows so many sums, and publishes a number that says nothing."""

    def train(run):
        draws = np.random.default_rng(run.seed)
        for _ in range(with_canary if run.member else without):
            run.see(NOISE * draws.normal(size=5))
        return 0.0

    return train


@pytest.mark.parametrize("sums", [(STEPS, 0), (0, STEPS)])
def test_sums_in_one_world_only_are_a_premise_that_fails(sums):
    report, found = rows(seen_in_one_world(*sums))
    row = found["acts through sums only"]
    assert row.status == VIOLATED and "in 40 of 40 pairs" in row.found
    assert report.exit_code == 1 and found["steps"].found == f"0 to {STEPS} sums"


def test_more_sums_than_claimed_fail_also_where_the_other_world_has_none():
    _, found = rows(seen_in_one_world(500, 0), claim(steps=3))
    assert found["steps"].status == found["acts through sums only"].status == VIOLATED


def test_pairs_without_sums_are_no_sums_of_another_size():
    def sometimes(run):
        if run.seed % 2:
            training()(run)
        return 0.0

    report, found = rows(sometimes)
    assert report.exit_code == 0 and found["steps"].status == HOLDS


def test_the_number_of_sums_contradicts_a_claim():
    def secretly(run):
        noise = np.random.default_rng()
        for _ in range(STEPS if run.member else noise.integers(STEPS)):
            run.see(noise.normal(size=5))
        return 0.0

    report = audit_training(secretly, Claim(epsilon=1, delta=1e-5), runs=300, seed=SEED)
    assert not report.violated and report.best.adversary == "number of sums"
    assert report.contradicted


@pytest.mark.parametrize("variance", [1.0, 4.0])
def test_the_test_of_the_noise_keeps_its_error_whatever_the_clean_sums_are(variance):
    draws = np.random.default_rng(3)
    failed = 0
    for _ in range(1000):
        noise = draws.normal(size=(20, 4, 30))
        clean = np.sqrt(variance - 1) * draws.normal(size=(20, 1, 1)) * np.ones((1, 4, 30))
        test = _lower_tail("noise", "deviation", (noise + clean, np.ones((4, 30), dtype=bool)))
        failed += test(0.05).status == VIOLATED
    # At most the stated 5 %, but for chance.
    assert failed <= stats.binom.ppf(0.9999, 1000, 0.05)


def test_the_test_of_the_sampling_keeps_its_error():
    """The record may have acted too often by three steps, whose tests share the error."""
    draws, claimed = np.random.default_rng(5), claim()
    # Drawn at each step with probability 1/4; the last entry is that it never acts.
    law = [0.25 * 0.75**step for step in range(STEPS)] + [0.75**STEPS]
    failed = 0
    for _ in range(1000):
        first = draws.choice([*range(1, STEPS + 1), None], size=100, p=law)
        pairs = [SimpleNamespace(acted=step) for step in first]
        failed += _sampling(claimed, pairs, "")(0.2).status == VIOLATED
    assert failed <= stats.binom.ppf(0.9999, 1000, 0.2)


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
