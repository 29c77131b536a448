"""Every claim of every paper can be reproduced and can be refuted."""

import functools

import pytest
from block_worlds import worlds_of
from committed_claims import CLAIMS, claim_rows

from dpatlas_workflow.config.products import products_of
from dpatlas_workflow.evidence.claims import check_evidence
from dpatlas_workflow.evidence.verdicts import (
    IDENTITY,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
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


def verdicts(key, records):
    return {name: row["verdict"] for name, row in claim_rows(key, records).items()}


@functools.cache
def true_verdicts(key):
    return verdicts(key, worlds_of(key).world())


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
