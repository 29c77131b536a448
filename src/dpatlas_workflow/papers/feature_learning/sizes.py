"""Memory of a run of feature_learning's simulations, and how many runs fit into memory at once."""

# Upper bounds on a block of runs that are simulated together, in single-precision numbers: on the
# features of its layer, 4 MB, which a processor's cache holds over all steps of a descent; and on
# all that it has in memory, 64 MB.
MOST_FEATURES, MOST_NUMBERS = 2**20, 2**24


def numbers_of_a_run(d: int, n: int, p: int, n_test: int) -> int:
    """Single-precision numbers in memory for one run of a condition; measured, rounded up.

    Features of two or three layers at once, their second moments in double, inputs of all data
    sets, and features of the test records.
    """
    return 4 * n * p + 7 * p * p + 2 * n_test * (p + d) + 6 * n * d


def runs_at_once(d: int, n: int, p: int, n_test: int) -> int:
    """How many runs of a condition are simulated at once; at least one."""
    return max(1, min(MOST_FEATURES // (n * p), MOST_NUMBERS // numbers_of_a_run(d, n, p, n_test)))
