"""What the ledgers of jobs that read public data alone have in common."""

NO_PRIVATE_RECORD = {
    "neighbour_relation": "any: the output is independent of every private data set",
    "accountant": "none needed",
    "epsilon": 0.0,
    "delta": 0.0,
    "guaranteed": "epsilon 0: no private record was read",
    "claimed": None,
    "clip": None,
    "noise_multiplier": None,
    "holds_for": "backbone and record",
}
