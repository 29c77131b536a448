"""The clipped sum that private training takes, by plain autograd, one record after the other."""

import torch
import torch.nn.functional as F


def clipped_loop(network, x, labels, clip):
    """Norms (records,) of the records' gradients, and the sum of the clipped ones by parameter."""
    trained = {name: value for name, value in network.named_parameters() if value.requires_grad}
    total, norms = {name: torch.zeros_like(value) for name, value in trained.items()}, []
    for row, label in zip(x, labels, strict=True):
        loss = F.cross_entropy(network(row[None]), label[None])
        gradients = torch.autograd.grad(loss, list(trained.values()))
        norms.append(torch.stack([gradient.norm() for gradient in gradients]).norm())
        for name, gradient in zip(trained, gradients, strict=True):
            total[name] += gradient * (clip / norms[-1]).clamp_max(1)
    return torch.stack(norms), total
