"""The figure of pretrain and the runs behind it."""

from dpatlas.core.products import figure

PRODUCTS = (
    figure(
        "pretrain_samples",
        needs=("backbones", "transfer"),
        place="none: public data",
        caption="Training images of the public backbones, with real digits for comparison, and the "
        "accuracy that their frozen features reach. Above: images of every source, of each class "
        "in turn; all but the digits are generated, so a backbone reveals nothing about any "
        "private record. Below: accuracy on the real digits of each backbone's own head (where its "
        "classes cover the ten digits), of 20 nearest neighbours and of logistic regression on the "
        "frozen features, compared with raw pixels; mean and standard error over random splits, "
        "without privacy, for information only: nothing is selected by these numbers. The "
        "skeletons of the strokes were drawn by someone who knows what such digits look like, and "
        "the pen's smallest radius was raised once, after one look at real ones.",
        paper_shows="No such figure; backbones are taken as published.",
    ),
)
