"""Memory of a run of feature_learning's simulations, and how many runs fit into memory at once."""

# Largest block of runs that are simulated together, 16 MB in single precision: all steps of a
# descent read the same features, which a processor's cache then holds.
MOST_NUMBERS = 2**22


def numbers_of_a_run(d: int, n: int, p: int, n_test: int) -> int:
    """Single-precision numbers in memory for one run of a condition; measured, rounded up.

    Features of two or three layers at once, their second moments in double, inputs of all data
    sets, and features of the test records.
    """
    return 4 * n * p + 7 * p * p + 2 * n_test * (p + d) + 6 * n * d


def runs_at_once(d: int, n: int, p: int, n_test: int) -> int:
    """How many runs of a condition are simulated at once; at least one."""
    return max(1, MOST_NUMBERS // numbers_of_a_run(d, n, p, n_test))
