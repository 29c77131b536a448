"""max_information: what the jobs without data have in common."""

LEDGER = {"mechanism": "none: nothing is trained and nothing of any data is released"}
