"""Every claim of every paper can be reproduced and can be refuted."""

import functools

import pytest
from block_worlds import worlds_of
from committed_claims import CLAIMS
from judged_once import claim_rows

from dpatlas.base.records import RunsFields
from dpatlas_workflow.config.products import products_of
from dpatlas_workflow.evidence.claims import check_evidence
from dpatlas_workflow.evidence.comparisons import PaperRecords
from dpatlas_workflow.evidence.looks import LOOKS
from dpatlas_workflow.evidence.verdicts import (
    IDENTITY,
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
)
from dpatlas_workflow.registry import all_papers

WHOLES = {claim.id: claim for claim in CLAIMS.claims}
ENTRIES = [entry for claim in CLAIMS.claims for entry in claim.entries]


def by_arithmetic(entry, verdict):
    """Whether no records can give an entry another verdict, as its paper's worlds say."""
    return entry.id in getattr(worlds_of(entry.paper), f"{verdict}_BY_ARITHMETIC", ())


def of_records(other):
    """The entries whose verdict follows from records, or is fixed but not as `other`."""
    return [
        pytest.param(entry, id=entry.id) for entry in ENTRIES if not by_arithmetic(entry, other)
    ]


@functools.cache
def rows_in_true_world(key):
    return claim_rows(key, worlds_of(key).world())


def true_verdicts(key):
    return {name: row["verdict"] for name, row in rows_in_true_world(key).items()}


@pytest.mark.parametrize("entry", of_records("REFUTED"))
def test_it_is_reproduced_in_a_world_in_which_it_is_true(entry):
    best = NOT_CONTRADICTED if entry.kind == IDENTITY else REPRODUCED
    assert true_verdicts(entry.paper)[entry.id] in (best, NOT_CONTRADICTED)


@pytest.mark.parametrize("entry", of_records("PROVEN"))
def test_it_is_not_reproduced_in_a_world_in_which_it_is_false(entry):
    worlds = worlds_of(entry.paper)
    make = worlds.world if by_arithmetic(entry, "REFUTED") else worlds.FALSE[entry.id]
    claim = WHOLES[entry.claim]
    found = claim_rows(entry.paper, make(), claim)
    assert found[entry.id]["verdict"] == NOT_REPRODUCED
    # The whole of which it is a part does not stand either.
    if claim.counts(entry):
        assert found[claim.id]["verdict"] == NOT_REPRODUCED


def test_only_what_is_exact_can_be_decided_without_records():
    fixed = [e for e in ENTRIES if by_arithmetic(e, "PROVEN") or by_arithmetic(e, "REFUTED")]
    assert {entry.kind for entry in fixed} <= {"exact", IDENTITY}
    assert not [entry.id for entry in fixed if entry.id in worlds_of(entry.paper).FALSE]


@pytest.mark.parametrize("paper", all_papers().values(), ids=lambda paper: paper.key)
def test_its_evidence_is_among_the_paper_s_figures_and_tables(paper):
    products = [
        f"{product.folder}/{product.name}.{kind}"
        for product in products_of(paper)
        for kind in (("pdf", "png", "csv") if product.kind == "figure" else ("csv", "md", "tex"))
    ]
    check_evidence(CLAIMS, products, [paper.key])
    ids = [claim.id for claim in CLAIMS.claims if claim.paper == paper.key]
    assert ids == [f"{paper.prefix}-{number}" for number in range(1, len(ids) + 1)]


@pytest.mark.parametrize("key", all_papers())
def test_fewer_runs_than_the_first_look_decide_none_of_its_entries_of_runs(key):
    world, all_runs = worlds_of(key).world(), rows_in_true_world(key)
    cut = {
        name: [
            each.cut(LOOKS[0] - 1) if isinstance(each.spec, RunsFields) else each for each in group
        ]
        for name, group in world.groups.items()
    }
    rows = claim_rows(key, PaperRecords(world.settings, cut))
    statistical = {entry.id for entry in ENTRIES if entry.kind == "statistical"}
    of_runs = {name for name in statistical & all_runs.keys() if all_runs[name]["runs"] == LOOKS[0]}
    assert of_runs
    assert {rows[name]["verdict"] for name in of_runs} == {INCONCLUSIVE}


@pytest.mark.parametrize("key", all_papers())
def test_without_the_runs_that_an_entry_reads_it_is_not_run_and_says_which(key):
    rows = claim_rows(key, PaperRecords(worlds_of(key).world().settings, {}))
    for entry in (entry for entry in ENTRIES if entry.paper == key):
        row = rows[entry.id]
        assert row["verdict"] == NOT_RUN and entry.arguments["group"] in row["note"], entry.id
