"""The claims of all papers as they are committed, and their verdicts on records of one paper."""

from dataclasses import replace

from dpatlas_workflow.evidence.claims import RecordsByLook, judge_claims, judge_entry, read_claims

CLAIMS = read_claims()


def claim_rows(key, records, only=None):
    """Rows of claims.csv on one paper, or on `only` this claim of it, by claim."""
    claims = [only] if only else [claim for claim in CLAIMS.claims if claim.paper == key]
    entries = [entry for claim in claims for entry in claim.entries]
    # The error is shared among all of them.
    looks = RecordsByLook(records)
    judged = {entry.id: judge_entry(CLAIMS, entry, looks) for entry in entries}
    rows = judge_claims(replace(CLAIMS, claims=tuple(claims)), {}, "test", judged=judged)
    return {row["claim"]: row for row in rows}


def with_verdict(rows, verdict):
    return {name for name, row in rows.items() if row["verdict"] == verdict}


def record_change(function):
    """Make of f(records, *settings) an f(*settings) that returns a function of the records."""
    return lambda *settings, **keys: lambda records: function(records, *settings, **keys)
