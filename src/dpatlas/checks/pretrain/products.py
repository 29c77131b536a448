"""pretrain: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure

PRODUCTS = (figure("pretrain_samples", needs=("backbones", "transfer"), place="none: public data"),)
