"""The figure of pretrain and the runs behind it."""

from dpatlas.core.products import figure

PRODUCTS = (figure("pretrain_samples", needs=("backbones", "transfer"), place="none: public data"),)
