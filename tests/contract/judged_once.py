"""`claim_rows` of committed_claims that judges an entry on equal records of its group once."""

import pickle

import committed_claims
from committed_claims import CLAIMS

from dpatlas_workflow.evidence import claims

JUDGED = {}


def wholes_of(name):
    """The claims with this id or an entry of it."""
    return [
        claim
        for claim in CLAIMS.claims
        if name == claim.id or name in {entry.id for entry in claim.entries}
    ]


def claim_rows(key, records, only=None):
    """As `committed_claims.claim_rows`; not where a test has changed what the claims rest on."""

    def judge_entry(of, entry, looks):
        group = records.groups.get(entry.arguments["group"])
        known = entry.id, pickle.dumps((records.settings, group))
        if known not in JUDGED:
            JUDGED[known] = claims.judge_entry(of, entry, looks)
        return JUDGED[known]

    usual = committed_claims.judge_entry
    committed_claims.judge_entry = judge_entry
    try:
        return committed_claims.claim_rows(key, records, only)
    finally:
        committed_claims.judge_entry = usual


def claim_row(key, records, name):
    """The row of one entry or claim."""
    (claim,) = wholes_of(name)
    return claim_rows(key, records, claim)[name]
