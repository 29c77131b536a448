"""Backbones that others trained and published, and the networks that have such weights."""

IMPORTED = {
    "imagenet": (
        "imagenet-resnet18",
        "imagenet-resnet50",
        "imagenet-mobilenet-v3",
        "imagenet-deit-tiny",
        "imagenet-alexnet",
    ),
    "moco": ("moco-v2-resnet50", "moco-v3-resnet50"),
}
# Sources whose weights lie in a file that the config names.
FROM_FILES = ("moco",)
