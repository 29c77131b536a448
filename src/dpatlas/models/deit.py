"""DeiT-tiny as published with weights for ImageNet (Touvron et al., 2021), for records of any size.

Its LayerNorms keep no statistics, so nothing is folded: the weights only change their names.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from dpatlas.models.imagenet import SIDE, on_images, renamed
from dpatlas.models.network import Network
from dpatlas.models.vit import vit

# Entry of the published file that holds the tensors.
ENTRY = "model"
PATCH, DIM, DEPTH, HEADS, MLP_RATIO = 16, 192, 12, 3, 4
NORM_EPSILON = 1e-6
# The same as arguments of torchvision's VisionTransformer, whose LayerNorms have that epsilon.
LAYOUT = {
    "image_size": SIDE,
    "patch_size": PATCH,
    "num_layers": DEPTH,
    "num_heads": HEADS,
    "hidden_dim": DIM,
    "mlp_dim": MLP_RATIO * DIM,
}

# From the file's names to ours, and to those of torchvision's VisionTransformer, as patterns.
OURS = {
    "cls_token": "body.class_token.value",
    "pos_embed": "body.position.value",
    r"patch_embed\.proj": "body.patches",
    r"blocks\.(\d+)\.norm([12])": r"body.blocks.\1.norm\2",
    r"blocks\.(\d+)\.attn\.qkv": r"body.blocks.\1.attention.qkv",
    r"blocks\.(\d+)\.attn\.proj": r"body.blocks.\1.attention.out",
    r"blocks\.(\d+)\.mlp\.fc([12])": r"body.blocks.\1.linear\2",
    "norm": "body.norm",
    "head": "head",
}
LAYER = r"encoder.layers.encoder_layer_\1."
TORCHVISION = {
    "cls_token": "class_token",
    "pos_embed": "encoder.pos_embedding",
    r"patch_embed\.proj": "conv_proj",
    r"blocks\.(\d+)\.norm([12])": LAYER + r"ln_\2",
    r"blocks\.(\d+)\.attn\.qkv\.(weight|bias)": LAYER + r"self_attention.in_proj_\2",
    r"blocks\.(\d+)\.attn\.proj": LAYER + "self_attention.out_proj",
    r"blocks\.(\d+)\.mlp\.fc1": LAYER + "mlp.0",
    r"blocks\.(\d+)\.mlp\.fc2": LAYER + "mlp.3",
    "norm": "encoder.ln",
    "head": "heads.head",
}


def imagenet_deit_tiny(image_shape: Sequence[int] = (3, 224, 224), outputs: int = 1000) -> Network:
    """DeiT-tiny without distillation: 192 features, 5.72 million parameters with 1,000 outputs.

    Takes grey or colour images as shares of their grey levels, as `imagenet_resnet18` does. Not
    torchvision's VisionTransformer, whose attention holds one parameter for three linear layers,
    for which there is no rule for per-record gradients.

    Raises InputError for images with other than 1 or 3 channels.
    """
    layout = {"patch": PATCH, "dim": DIM, "depth": DEPTH, "heads": HEADS, "mlp_ratio": MLP_RATIO}
    network = on_images(image_shape, vit((3, SIDE, SIDE), outputs, **layout).named_children())
    for part in network.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = NORM_EPSILON
    return network


def to_ours(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `imagenet_deit_tiny` from those of the file."""
    # The file gives token and positions a dimension of records too.
    shapes = {"cls_token": (-1,), "pos_embed": (-1, DIM)}
    flat = {name: published[name].reshape(shape) for name, shape in shapes.items()}
    return renamed({**published, **flat}, OURS)


def to_torchvision(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of torchvision's VisionTransformer of this layout from those of the file."""
    return renamed(published, TORCHVISION)
