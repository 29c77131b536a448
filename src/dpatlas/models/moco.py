"""ResNet50 trained by momentum contrast (He et al., 2020): the weights in its authors' checkpoints.

Both v2 (Chen et al., 2020) and v3 (Chen et al., 2021) are read as their authors use them: the
encoder that learns by gradients, without its projection, the predictor, the momentum encoder and
the queue.
"""

from collections.abc import Mapping

from torch import Tensor

from dpatlas.errors import InputError

# Entry of the published file that holds the tensors.
ENTRY = "state_dict"
# Prefix of every name after training on several devices.
WRAPPER = "module."
ENCODERS = {"moco-v2-resnet50": "encoder_q.", "moco-v3-resnet50": "base_encoder."}
# Prefix of the projection's names, and the last layer of a network that classifies or of MoCo-v1.
PROJECTION, SINGLE_LAYER = "fc.", "fc.weight"


def encoder(model: str, path: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The encoder's weights, by torchvision's names of its ResNet50, without a last layer.

    state: as the checkpoint at `path` holds it, or the encoder's alone, with its projection or
    without it.

    Raises InputError for a checkpoint of the other version, and for one with a single last layer.
    """
    named = {name.removeprefix(WRAPPER): value for name, value in state.items()}
    versions = {other for other, prefix in ENCODERS.items() if _behind(prefix, named)}
    if versions - {model}:
        raise InputError(path, f"a checkpoint of {', '.join(sorted(versions))}", f"one of {model}")
    weights = _behind(ENCODERS[model], named) or named
    if SINGLE_LAYER in weights:
        outputs = " x ".join(map(str, weights[SINGLE_LAYER].shape))
        single = f"a single last layer ({outputs}), as of a network for classes or of MoCo-v1"
        raise InputError(path, single, f"a checkpoint of {model} as its authors publish it")
    return {name: value for name, value in weights.items() if not name.startswith(PROJECTION)}


def _behind(prefix: str, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts = {name: value for name, value in named.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): value for name, value in parts.items()}
