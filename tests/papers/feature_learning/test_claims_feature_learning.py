"""feature_learning's rules against runs whose truth is known, through the committed claims.yaml."""

import numpy as np
import pytest
from committed_claims import CLAIMS
from feature_records import change as change_part
from feature_world import (
    EXACT,
    FALSE,
    PARTS,
    RUNS,
    SWEEPS,
    named,
    record,
    row_of,
    verdicts,
    with_verdict,
    world,
)

from dpatlas.errors import InputError
from dpatlas.evidence.claims import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    check_evidence,
    judge_claims,
)

ENTRIES = {f"feat-{number}{letter}" for number, own in PARTS.items() for letter in own}
STATISTICAL = ENTRIES - EXACT
MOST = max(SWEEPS["n"])


def test_a_world_in_which_every_claim_is_true_reproduces_every_claim():
    rows = verdicts(world())
    assert set(rows) == named(*(name.removeprefix("feat-") for name in ENTRIES))
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE
    assert with_verdict(rows, REPRODUCED) == set(rows) - FALSE
    assert {rows[name]["runs"] for name in STATISTICAL} == {RUNS}


def test_evidence_is_what_the_paper_s_figures_and_tables_are():
    products = [f"figures/{name}.pdf" for name in ("feature_overlap", "feature_risk")]
    products.append("tables/feature_risk_table.csv")
    check_evidence(CLAIMS, products, ["feature_learning"])
    for name in products:
        with pytest.raises(InputError, match=name):
            check_evidence(
                CLAIMS, [each for each in products if each != name], ["feature_learning"]
            )


def test_a_run_without_the_paper_says_so():
    rows = [row for row in judge_claims(CLAIMS, {}, "test") if row["paper"] == "feature_learning"]
    assert {row["verdict"] for row in rows} == {NOT_RUN}
    notes = {row["note"] for row in rows if row["claim"] in ENTRIES}
    assert notes == {"feature_learning is not part of this run"}


def shift(measure, by, *place):
    """The change that moves a measure of all runs; `place` as `row_of` takes it."""

    def change(groups):
        values = getattr(row_of(groups, *place), measure)
        values[:] = (np.array(values) + by).tolist()

    return change


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        # A dip between two values, and at the last one, of any link of exponent 1.
        (shift("overlap", -0.25, "private", 5000), {"1a"}),
        (shift("overlap", -0.25, "private", MOST, "n", "odd"), {"1a"}),
        (shift("overlap", 0.06, "private", MOST, "n", "even"), {"1b"}),
        (shift("overlap", -0.06, "private", MOST, "n", "even"), {"1b"}),
        (shift("overlap", 0.06, "random", MOST, "n", "even"), {"1b"}),
        (shift("risk_private", -0.3, "random", MOST), {"2a"}),
        (shift("risk_private", -0.3, "random", MOST, "n", "odd"), {"2a"}),
        (shift("risk_private", -0.25, "random-both", MOST), {"2b"}),
        (shift("risk_private", 0.2, "direction", MOST, "n", "odd"), {"2c"}),
        (shift("risk_private", -0.12, "private", 1000), {"3a", "3b"}),
        (shift("risk_private", 0.1, "private", 5000, "n", "odd"), {"3b"}),
        (shift("risk_private", 0.1, "private", 256, "p"), {"4a"}),
        (shift("risk_private", 0.1, "private", 128, "p"), {"4a"}),
        (shift("risk_private", 0.1, "direction", 128, "p"), {"4b"}),
        (shift("risk", 0.1, "nonprivate", 128, "p"), {"4c"}),
        (shift("cosine", 0.06, "printed", MOST), {"5a"}),
        (shift("cosine", -0.06, "printed", MOST, "n", "odd"), {"5a"}),
    ],
)
def test_a_claim_made_false_is_refuted_and_the_others_stand(change, refuted):
    groups = world()
    change(groups)
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == named(*refuted) | FALSE
    assert with_verdict(rows, REPRODUCED) == set(rows) - named(*refuted) - FALSE


@pytest.mark.parametrize(
    "change",
    [
        # Below the largest n; of a link of exponent 2 where 1 is asked for, and the reverse.
        shift("risk_private", -0.9, "random", 5000),
        shift("risk_private", 0.9, "direction", 1000),
        shift("cosine", 0.9, "printed", 5000),
        shift("overlap", 0.9, "private", 5000, "n", "even"),
        shift("risk_private", -0.9, "random", MOST, "n", "even"),
        shift("risk_private", 0.9, "private", MOST, "n", "even"),
        shift("cosine", 0.9, "printed", MOST, "n", "even"),
        # Along other axes.
        shift("risk_private", 0.9, "private", 128, "d"),
        shift("risk_private", 0.9, "direction", 8.0, "epsilon"),
        shift("overlap", -0.9, "private", 256, "p"),
    ],
)
def test_what_no_claim_asks_about_changes_no_verdict(change):
    groups = world()
    change(groups)
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE
    assert with_verdict(rows, REPRODUCED) == set(rows) - FALSE


def test_what_is_observed_is_the_smallest_change_between_pairs():
    groups = world()
    rows = verdicts(groups)

    def curves(measure):
        """Means over runs, (links, values)."""
        places = [[("private", n, "n", link) for n in SWEEPS["n"]] for link in ("mixed", "odd")]
        return np.array(
            [[np.mean(getattr(row_of(groups, *at), measure)) for at in own] for own in places]
        )

    risks = curves("risk_private")
    for part, changes, place in (
        ("1a", np.diff(curves("overlap")), "n 5000 to 20000"),
        ("3a", risks[:, :1] - risks[:, -1:], "n 1000 to 20000"),
        ("3b", -np.diff(risks), "n 5000 to 20000"),
    ):
        row = rows[f"feat-{part}"]
        assert row["comparisons"] == changes.size
        assert np.abs(changes - row["observed"]).min() < 1e-12
        assert row["observed"] == pytest.approx(changes.min(), abs=2e-3)
        assert place in row["note"]


@pytest.mark.parametrize(
    ("measure", "place", "blurred"),
    [
        ("overlap", ("private", 5000), {"1a"}),
        ("overlap", ("private", MOST, "n", "even"), {"1b"}),
        ("risk_private", ("random", MOST), {"2a"}),
        ("risk_private", ("random-both", MOST, "n", "odd"), {"2b"}),
        ("risk_private", ("direction", MOST), {"2c"}),
        ("risk_private", ("private", MOST), {"2a", "2b", "2c", "3a", "3b"}),
        ("risk_private", ("private", 1000), {"3a", "3b"}),
        ("risk_private", ("private", 5000, "n", "odd"), {"3b"}),
        ("risk_private", ("private", 128, "p"), {"4a"}),
        ("risk_private", ("direction", 32, "p"), {"4b"}),
        ("risk", ("nonprivate", 256, "p"), {"4c"}),
        ("cosine", ("printed", MOST, "n", "odd"), {"5a"}),
    ],
)
def test_noise_between_runs_leaves_a_claim_open(measure, place, blurred):
    groups = world()
    shift(measure, 0.2 * (-1.0) ** np.arange(RUNS), *place)(groups)
    rows = verdicts(groups)
    assert with_verdict(rows, INCONCLUSIVE) == named(*blurred)
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE


def test_a_single_run_leaves_every_claim_on_runs_open():
    rows = verdicts(world(runs=1))
    assert with_verdict(rows, INCONCLUSIVE) & ENTRIES == STATISTICAL
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE


def test_what_conditions_and_kinds_of_features_of_a_run_share_is_subtracted():
    groups = world()
    shared = np.linspace(-0.5, 0.5, RUNS)
    for each in groups["links"] + groups["axes"]:
        for row in each.metrics.rows:
            for name in ("overlap", "risk_private", "risk"):
                if values := getattr(row, name):
                    values[:] = (np.array(values) + shared).tolist()
    rows = verdicts(groups)
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE
    assert with_verdict(rows, REPRODUCED) == set(rows) - FALSE
    # With the same means, pairs that do not belong together show nothing.
    for features, axis, value, measure in (
        ("private", "n", 5000, "overlap"),
        ("direction", "n", MOST, "risk_private"),
        ("nonprivate", "p", 128, "risk"),
    ):
        getattr(row_of(groups, features, value, axis), measure).reverse()
    assert with_verdict(verdicts(groups), INCONCLUSIVE) == named("1a", "2c", "4c")


def test_runs_without_a_partner_are_refused():
    groups = world()
    row_of(groups, "private", 5000).overlap.pop()
    with pytest.raises(InputError, match=r"pairs: found (5 and 6|6 and 5) runs"):
        verdicts(groups)


@pytest.mark.parametrize(
    ("group", "missing", "standing"),
    [
        ("links", {"1a", "1b", "2a", "2b", "2c", "3a", "3b", "5a", "6a", "6b"}, {"5b"}),
        ("axes", {"4a", "4b", "4c", "5b"}, {"5a"}),
    ],
)
def test_a_group_that_the_config_lacks_is_not_run(group, missing, standing):
    rows = verdicts({name: each for name, each in world().items() if name != group})
    assert with_verdict(rows, NOT_RUN) == named(*missing)
    assert all(rows[f"feat-{part}"]["verdict"] == REPRODUCED for part in standing)
    for part in missing:
        assert rows[f"feat-{part}"]["note"] == f"the config has no runs of group {group}"


def drop_link(*links):
    def change(groups):
        groups["links"] = [each for each in groups["links"] if each.spec.link not in links]

    return change


def one_value(axis, link="mixed"):
    def change(groups):
        for name, records in groups.items():
            groups[name] = [
                record(link, axis, [max(SWEEPS[axis])])
                if (each.spec.axis, each.spec.link) == (axis, link)
                else each
                for each in records
            ]

    return change


def drop_p(groups):
    groups["axes"] = [each for each in groups["axes"] if each.spec.axis != "p"]


def not_taken(measure, *place):
    def change(groups):
        change_part(row_of(groups, *place), **{measure: None})

    return change


def both_layers_share_one_data_set(groups):
    """There are no others to read random features out of."""
    for each in groups["links"] + groups["axes"]:
        rows = each.metrics.rows
        rows[:] = [row for row in rows if row.features != "random-both"]


@pytest.mark.parametrize(
    ("change", "missing", "note"),
    [
        (drop_link("even"), {"1b"}, "no link of information exponent 2 or more"),
        (one_value("n", "odd"), {"1a", "3a", "3b"}, "odd-n has one value of n"),
        (one_value("p"), {"4a", "4b", "4c"}, "mixed-p has one value of p"),
        (drop_p, {"4a", "4b", "4c"}, "along p"),
        (
            drop_link("mixed", "odd"),
            {"1a", "2a", "2b", "2c", "3a", "3b", "5a"},
            "no link of information exponent 1 along n",
        ),
        (
            not_taken("overlap", "private", 5000, "n", "odd"),
            {"1a"},
            "odd-n has no overlap of private features",
        ),
        (
            not_taken("risk", "nonprivate", 128, "p"),
            {"4c"},
            "mixed-p has no risk of nonprivate features",
        ),
        (
            not_taken("cosine", "printed", MOST),
            {"5a"},
            "mixed-n has no cosine of printed features",
        ),
        (
            both_layers_share_one_data_set,
            {"2b"},
            "mixed-n has no private risk of random-both features",
        ),
    ],
)
def test_what_the_records_lack_is_not_run_and_named(change, missing, note):
    groups = world()
    change(groups)
    rows = verdicts(groups)
    without = {name for name in with_verdict(rows, NOT_RUN) & ENTRIES if note in rows[name]["note"]}
    assert without >= {f"feat-{part}" for part in missing}
    # What one value on the axis would do for is free to be judged.
    if "one value" not in note:
        assert with_verdict(rows, NOT_RUN) == named(*missing)
    assert with_verdict(rows, NOT_REPRODUCED) == FALSE
