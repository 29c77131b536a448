"""Lower bounds on epsilon in a record.

These are the results of `dpatlas.accounting.audit_statistics` as strictly typed parts of a record:
who reads a record loads neither scipy nor the attack's code.
"""

from dpatlas.core.records import Typed


class Rates(Typed):
    """Error counts of a test that tells D from D', fixed before it saw the runs counted here.

    The test says D where score >= threshold if `above`, else where score < threshold. runs: number
    of all runs, those that selected the test included. fpr_limit, fnr_limit: joint upper limits of
    the two error rates.
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
    """Number of canaries, of those guessed in or out, and of correct guesses."""

    canaries: int
    guesses: int
    correct: int


class Bound(Typed):
    """A lower bound `epsilon` on the mechanism's epsilon at `delta`, with confidence `level`.

    ceiling: the largest bound that an attack on any mechanism could reach with as many runs.
    """

    epsilon: float
    delta: float
    level: float
    runs: int
    ceiling: float
    method: str
    evidence: Rates | Guesses


class Excess(Typed):
    """By how many nats the true epsilon exceeds a privacy profile, with confidence `level`.

    A negative excess refutes nothing. epsilon, delta: the point of the profile where the excess is
    largest. ceiling: the largest excess that as many runs could show.
    """

    excess: float
    epsilon: float
    delta: float
    level: float
    runs: int
    ceiling: float
    evidence: Rates


class OneRun(Typed):
    """Test of a privacy profile by the guesses of one run, with confidence `level`.

    needed: the smallest number of correct guesses that rejects the profile, None if none does.
    p_value: of the correct guesses; least_p_value: if all guesses had been correct.
    """

    canaries: int
    guesses: int
    correct: int
    needed: int | None
    p_value: float
    least_p_value: float
    level: float
