"""The table of audit and the runs behind it."""

from dpatlas.core.products import table

PRODUCTS = (
    table("audit", needs=("mechanisms", "canaries", "training"), place="none: our own code"),
)
