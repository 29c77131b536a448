"""kl_privacy: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure("kl_vs_epochs", needs=("epochs",), place="Fig. 1"),
    figure("kl_vs_depth", needs=("depth",), place="Fig. 2a, 2b"),
    figure("kl_vs_width", needs=("width",), place="Fig. 2c"),
    figure("kl_bounds", needs=("bounds", "linearized"), place="Lemma 3.2 and Cor. 4.2"),
    figure("kl_tradeoff", needs=("linearized",), place="Sec. 6"),
    table("kl_constants", needs=("constants", "linearized"), place="Table 1"),
)
