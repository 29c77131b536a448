"""The jobs: a spec in, a record out."""

# Packages whose versions a record of any kind names.
PACKAGES = ("torch", "numpy", "scipy", "dp-accounting")
# The ledger of kinds without private data.
NOTHING_RELEASED = {"mechanism": "none: nothing is trained and nothing of any data is released"}
