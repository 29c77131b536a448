"""max_information: the ledger of jobs without data."""

LEDGER = {"mechanism": "none: nothing is trained and nothing of any data is released"}
