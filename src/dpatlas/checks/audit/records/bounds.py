"""What an attack showed, as `dpatlas.privacy.audit_statistics` found it."""

from dpatlas.core.records import Typed


class Rates(Typed):
    """Errors of a test of D against D' that was fixed before it saw the runs counted here.

    It says D where score >= threshold if `above`, else where score < threshold. runs: all of them,
    those that chose the test included.
    """

    runs: int
    threshold: float
    above: bool
    false_positives: int
    tested_without: int
    false_negatives: int
    tested_with: int
    fpr_limit: float
    fnr_limit: float


class Guesses(Typed):
    """How many canaries were guessed in or out, and how many of the guesses were right."""

    canaries: int
    guesses: int
    correct: int


class Bound(Typed):
    """epsilon is at least `epsilon` at `delta`, with confidence `level`.

    ceiling: the largest bound that any mechanism could have shown with as many runs.
    """

    epsilon: float
    delta: float
    level: float
    runs: int
    ceiling: float
    method: str
    evidence: Rates | Guesses


class Excess(Typed):
    """By how many nats error rates exceed a privacy profile, with confidence `level`.

    epsilon, delta: the point of the profile at which they show it. ceiling: the largest excess that
    as many runs could have shown.
    """

    excess: float
    epsilon: float
    delta: float
    level: float
    runs: int
    ceiling: float
    evidence: Rates
