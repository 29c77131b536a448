"""feature_learning: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure("feature_overlap", needs=("links", "axes"), place="Sec. 3 (nothing is plotted there)"),
    figure("feature_risk", needs=("links", "axes"), place="Theorem 1 (nothing is plotted there)"),
    table(
        "feature_risk_table",
        needs=("links", "axes", "table"),
        place="Theorem 1 (nothing is printed there)",
    ),
)
