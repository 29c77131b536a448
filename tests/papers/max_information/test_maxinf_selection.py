"""Which prior is selected, and among which the selection is allowed."""

import pytest
from maxinf_sample_records import PRIORS, certificates_record, spec_priors, typed

from dpatlas.errors import InputError
from dpatlas_workflow.papers.max_information.selection import RIGOROUS, settings_of


def row(prior="dp-sgd", run=0, bound=0.5, tau=0.05, proven=0.5, **keys):
    """A row of the samples with another prior, run and tau, and made-up certificates."""
    tuples = {"zeta": 0.01, "sigma": 1.0, "m": 100, "E": 1, "lr": 5.0}
    if prior == "independent":
        tuples = dict.fromkeys(tuples)
    changes = {**tuples, **keys, "prior": prior, "run": run, "tau": tau}
    changes |= {"certificate_posterior": bound, "certificate_rigorous": proven}
    return certificates_record(runs=1)["metrics"]["rows"][0] | changes


def record(*rows, name="a", **fields):
    content = certificates_record(**{"K1": 2, "K2": 1, **fields})
    content["id"] = name
    content["metrics"]["rows"] = list(rows)
    # Records of a setting differ in their priors alone.
    content["spec"]["priors"] = spec_priors(PRIORS[:1] if name == "a" else PRIORS[:2])
    (read,) = typed([content])
    return read


def chosen(setting, kind, *by):
    """Run and epochs of the selected rows."""
    return list(setting.selected(kind, *by)[["run", "E"]].itertuples(index=False, name=None))


def test_every_run_selects_its_own_least_certificate_of_a_kind_and_of_equal_ones_the_first():
    rows = [
        *(row(run=1, bound=0.4), row(run=1, bound=0.3, E=5, proven=0.9), row(run=0, bound=0.2)),
        *(row(run=0, bound=0.2, E=5), row("independent", run=0, bound=0.1)),
    ]
    (setting,) = settings_of([record(*rows)])
    assert chosen(setting, "dp-sgd") == [(0, 1), (1, 5)]
    assert chosen(setting, "dp-sgd", RIGOROUS) == [(0, 1), (1, 1)]
    assert chosen(setting, "noise-only") == []
    assert setting.kinds == ["independent", "dp-sgd"]
    # Kinds are counted apart: a certificate is paid for by the tuples of its own kind.
    assert setting.tried("dp-sgd") == (2, 1)


def test_records_that_differ_in_priors_alone_are_one_setting():
    pair = [record(row(bound=0.4)), record(row(bound=0.3, E=5), name="b")]
    (setting,) = settings_of(pair)
    assert setting.blocks == ["a", "b"] and setting.name == "a and 1 more"
    assert chosen(setting, "dp-sgd") == [(0, 5)]
    assert len(settings_of([pair[0], record(row(), name="b", seed=1)])) == 2


def test_of_records_with_other_numbers_of_runs_the_common_runs_are_read():
    rows = [row(run=run, bound=0.4 + run / 10) for run in range(3)]
    others = [row(run=run, bound=0.3 + run / 10, E=5) for run in range(2)]
    (setting,) = settings_of([record(*rows, runs=3), record(*others, name="b", runs=2)])
    assert setting.spec.runs == 2 and len(setting.rows) == 4
    assert chosen(setting, "dp-sgd") == [(0, 5), (1, 5)]


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (record(row(lr=1.0), row(lr=2.0), name="b"), "K1: found 2; .* >= 3"),
        (record(row(tau=0.06), name="b"), "K2: found 1; .* >= 2"),
        (record(row(bound=0.3), name="b"), "a and b: found a prior twice"),
    ],
)
def test_what_the_union_bound_does_not_pay_for_is_refused(other, complaint):
    with pytest.raises(InputError, match=complaint):
        settings_of([record(row()), other])
