"""The claims of all papers as they are committed, and their verdicts on records of one paper."""

from dpatlas.evidence.claims import judge_claims, read_claims

CLAIMS = read_claims()


def claim_rows(key, records):
    """Rows of claims.csv on one paper, by claim."""
    rows = judge_claims(CLAIMS, {key: records}, "test")
    return {row["claim"]: row for row in rows if row["paper"] == key}


def with_verdict(rows, verdict):
    return {name for name, row in rows.items() if row["verdict"] == verdict}


def record_change(function):
    """Make of f(records, *settings) an f(*settings) that returns a function of the records."""
    return lambda *settings, **keys: lambda records: function(records, *settings, **keys)
