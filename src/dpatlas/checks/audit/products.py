"""audit: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import table

PRODUCTS = (
    table("audit", needs=("mechanisms", "canaries", "training"), place="none: our own code"),
)
