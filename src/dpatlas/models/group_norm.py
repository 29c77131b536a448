"""From BatchNorm, which mixes records, to GroupNorm, which does not."""

from torch import nn

from dpatlas.base.guard import checked, integer
from dpatlas.errors import InputError

CONVERTED = (nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
REFUSED = (nn.BatchNorm1d, nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d)
# Of classes that normalise and do nothing else.
PLAIN = (nn.BatchNorm2d.forward, nn.SyncBatchNorm.forward)
# The fewest channels in a group. With one pixel a channel, a group of one channel always normalises
# to 0, and a group of two to plus and minus 1.
CHANNELS = 4


@checked(groups=integer(ge=1))
def to_group_norm(model: nn.Module, groups: int = 32) -> nn.Module:
    """Replace every BatchNorm of `model`, in place and under its name, and return the model.

    A layer of c channels becomes a GroupNorm with the largest divisor of c that is at most `groups`
    and leaves `CHANNELS` channels or more in each group; one group of all where there is none. A
    layer does not know how many pixels its channels have. After global pooling it is one, and a
    group of a single channel would then give the bias for every record. Weight and bias are
    taken over as they are. What is lost is the running mean and variance, so a trained network
    computes something else afterwards and has to be trained further; what is gained is that a
    record's output and gradient depend on that record alone, in training mode too.

    timm's BatchNormAct2d becomes the GroupNorm, then the dropout and activation that it had.

    Raises InputError, before anything is replaced, for BatchNorm1d (a batch of vectors has one
    position per channel), for a lazy layer, which has no channels yet, for a single channel, and
    for any other class with a `forward` of its own.
    """
    # A module that is registered twice is listed twice, and stays one module.
    layers = list(model.named_modules(remove_duplicate=False))
    for path, layer in layers:
        found, allowed = f"{path or 'the model'}: {type(layer).__name__}", ""
        if isinstance(layer, REFUSED):
            allowed = "BatchNorm2d or BatchNorm3d; put a LayerNorm or GroupNorm there by hand"
        elif not isinstance(layer, CONVERTED):
            continue
        elif layer.num_features < 2:
            found += " of one channel"
            allowed = "two or more; a GroupNorm(1, 1) by hand where the channel has many pixels"
        elif not (type(layer).forward in PLAIN or _acts(layer)):
            found += " with a forward of its own"
            allowed = "torch's BatchNorm; replace the others by hand"
        if allowed:
            raise InputError("model", found, allowed)
    replaced: dict[int, nn.Module] = {}
    for path, layer in layers:
        if isinstance(layer, CONVERTED):
            norm = replaced.setdefault(id(layer), _replaced(layer, groups))
            if not path:
                return norm
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, norm)
    return model


def _acts(layer: nn.Module) -> bool:
    """Whether a layer is timm's BatchNorm with dropout and activation behind it."""
    parts = [name for name, _ in layer.named_children()]
    return type(layer).__name__ == "BatchNormAct2d" and parts == ["drop", "act"]


def _replaced(layer: nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm, groups: int) -> nn.Module:
    channels = layer.num_features
    most = max(1, min(groups, channels // CHANNELS))
    divisor = max(g for g in range(1, most + 1) if channels % g == 0)
    norm = nn.GroupNorm(divisor, channels, eps=layer.eps, affine=layer.affine)
    # The parameters themselves move over: device, type, requires_grad and ties stay as they are.
    norm.weight, norm.bias = layer.weight, layer.bias
    norm.train(layer.training)
    return nn.Sequential(norm, *layer.children()) if _acts(layer) else norm
