"""Every rule against runs whose truth is known, through the committed claims.yaml."""

import dataclasses

import pytest
from committed_claims import CLAIMS
from kl_sample_records import INITS
from kl_world import (
    HORIZONS,
    REFUTING,
    RUNS,
    STEPS,
    by,
    changed,
    find,
    paper,
    scaled,
    true_groups,
    verdicts,
)

from dpatlas.evidence.claims import INCONCLUSIVE, NOT_RUN, REPRODUCED


def replace(groups, group, record, other):
    """Put another record in the place of one."""
    groups[group][groups[group].index(record)] = other


def not_reproduced(rows):
    """Verdicts by claim, of those that are not reproduced."""
    return {name: row["verdict"] for name, row in rows.items() if row["verdict"] != REPRODUCED}


@pytest.mark.parametrize(
    ("group", "init", "spec", "blurred"),
    [
        ("epochs", "lecun", {}, {"kl-2"}),
        ("width", "he", {"width": 32}, {"kl-3b", "kl-3"}),
        ("depth", "lecun", {"depth": 4}, {"kl-4b", "kl-4"}),
    ],
)
def test_noise_between_runs_makes_a_claim_inconclusive_and_refutes_none(group, init, spec, blurred):
    rows = verdicts(changed(scaled(group, init, by(1.0), noise=3.0, **spec)))
    assert not_reproduced(rows) == dict.fromkeys(blurred, INCONCLUSIVE)


def test_the_error_is_shared_over_the_planned_entries_and_to_refute_over_comparisons():
    true_rows = verdicts(paper(true_groups()))
    assert CLAIMS.planned == 71
    # The slope and two neighbouring pairs; all have to hold, so none takes error from the others.
    assert true_rows["kl-3a"]["comparisons"] == 3
    for entry in ("kl-2", "kl-3a"):
        level = float(true_rows[entry]["level"])
        assert level == pytest.approx(1 - 0.05 / CLAIMS.planned, abs=1e-5)
    assert true_rows["kl-1a"]["level"] == ""
    refuted = verdicts(changed(REFUTING["kl-3d"]))["kl-3d"]
    assert float(refuted["level"]) == pytest.approx(1 - 0.05 / CLAIMS.planned / 3, abs=1e-5)


@pytest.mark.parametrize(
    ("group", "init", "spec", "touched"),
    [
        ("epochs", "ntk", {}, {"kl-1", "kl-1a", "kl-1b", "kl-1c", "kl-2"}),
        ("depth", "ntk", {"depth": 6}, {"kl-5", "kl-5c"}),
        ("bounds", "he", {}, {"kl-6", "kl-6a"}),
    ],
)
def test_a_diverged_run_makes_what_needs_it_inconclusive_and_is_named(group, init, spec, touched):
    groups = true_groups()
    record = find(groups, group, init, **spec)
    record.metrics.diverged[2] = 17
    for runs in record.metrics.kl.run_max:
        del runs[2]
    rows = verdicts(paper(groups))
    assert not_reproduced(rows) == dict.fromkeys(touched, INCONCLUSIVE)
    for entry in touched - {"kl-1", "kl-5", "kl-6"}:
        assert f"1 of {RUNS} runs of {record.id} diverged" in rows[entry]["note"]
        assert rows[entry]["runs"] == RUNS - 1


def test_kl_of_zero_is_inconclusive_and_not_an_infinite_fall():
    groups = true_groups()
    find(groups, "depth", "lecun", depth=6).metrics.kl.run_max[15][0] = 0.0
    row = verdicts(paper(groups))["kl-4b"]
    assert row["verdict"] == INCONCLUSIVE
    assert "zero" in row["note"]


def test_what_the_config_lacks_leaves_the_other_entries_standing():
    """A group, an init, the interior of a sweep, and steps up to a horizon."""
    groups = {
        name: [record for record in records if getattr(record.spec, "init", None) != "ntk"]
        for name, records in true_groups().items()
    }
    groups["depth"] = [record for record in groups["depth"] if record.spec.depth != 4]
    del groups["constants"]
    rows = verdicts(paper(groups, {**HORIZONS, "long": STEPS + 1}))
    for entry in ("kl-2", "kl-3c", "kl-4b", "kl-5a", "kl-7"):
        assert rows[entry]["verdict"] == NOT_RUN
    for entry in ("kl-3b", "kl-4a"):
        assert rows[entry]["verdict"] == REPRODUCED


def test_conditions_with_other_seeds_are_not_taken_as_pairs():
    groups = true_groups()
    for init in INITS:
        scaled("epochs", init, by(1.0), noise=1.0)(groups)
    paired = verdicts(paper(groups))["kl-2"]
    for seed, init in ((1, "lecun"), (2, "xavier")):
        record = find(groups, "epochs", init)
        spec = record.spec.model_copy(update={"seed": seed})
        replace(groups, "epochs", record, dataclasses.replace(record, spec=spec))
    unpaired = verdicts(paper(groups))["kl-2"]
    # The noise is shared by run: only pairs can subtract it.
    assert paired["verdict"] == REPRODUCED
    assert unpaired["verdict"] == INCONCLUSIVE
