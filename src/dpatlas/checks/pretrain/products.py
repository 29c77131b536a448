"""The figure of pretrain and the runs behind it."""

from dpatlas.core.products import figure

PRODUCTS = (
    figure(
        "pretrain_samples",
        needs=("backbones", "transfer"),
        place="none: public data",
        caption="What the public backbones were trained on, beside real digits, and what their "
        "frozen features are worth. Above: images of every source, of each class in turn; all but "
        "the digits are generated, so a backbone tells nothing of any private record. Below: "
        "accuracy on the real digits of each backbone's head as it is (where its classes cover the "
        "ten digits), of 20 nearest neighbours and of logistic regression on the frozen features, "
        "against raw pixels; mean and standard error over random splits, without privacy, for the "
        "reader only: nothing is chosen by these numbers. The skeletons of the strokes were drawn "
        "by someone who knows what such digits look like, and the pen's least radius was raised "
        "once, after one look at real ones.",
        paper_shows="Nothing of the kind; backbones are taken as published.",
    ),
)
