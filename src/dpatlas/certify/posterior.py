"""Posteriors trained on a PAC-Bayes objective, and counts of their errors.

The objective is (sqrt(R + c) + sqrt(c))^2 (Rivasplata et al., 2019), with R the mean cross-entropy
of a batch over the log of the number of classes, under one draw of the weights, and c half of the
exponent of the certificate. R may exceed 1: it is a surrogate, and certificates count errors.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dpatlas.certify.settings import CertifySettings
from dpatlas.models.mean_field import MeanField
from dpatlas.models.mean_field_passes import misclassified, noise_sizes, outputs
from dpatlas.models.network import Network

# Log-probabilities are cut off below this, so that one record cannot dominate.
SMALLEST_LOG = math.log(1e-5)
# Keeps square roots differentiable.
TINY = 1e-9
# Standard deviations whose squares float32 holds, beside those of any finite record: smaller and
# larger ones are no law that the passes below draw from.
DEVIATIONS = (1e-9, 1e5)
# Upper bounds on the pairs of a chunk of a count and on its normals.
MAX_PAIRS, MAX_NORMALS = 2000, 2**21


def train_posterior(
    network: Network,
    centre: Tensor,
    tau: float,
    x: Tensor,
    y: Tensor,
    settings: CertifySettings,
    *,
    extra: float,
    generator: torch.Generator,
    advance: Callable[[], object],
) -> MeanField | None:
    """The posterior that starts at its prior N(centre, tau^2 I); None if training diverged.

    x (n, ...), y (n,). extra: what the exponent of the certificate has beside KL, nats. `advance`
    is called after each epoch.
    """
    posterior = MeanField.around(network, centre, tau)
    mean, rho = posterior.mean.requires_grad_(), posterior.rho.requires_grad_()
    optimizer = torch.optim.Adam([mean, rho], lr=settings.lr)
    n, batch = len(x), min(settings.batch, len(x))
    # Step sizes fall to 0: steps of a constant size would leave a KL that buys nothing.
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, settings.epochs)
    for _ in range(settings.epochs):
        order = torch.randperm(n, generator=generator)
        for start in range(0, n - batch + 1, batch):
            rows = order[start : start + batch]
            logits = _outputs(posterior, x[rows], 1, generator)
            risk = F.nll_loss(F.log_softmax(logits, 1).clamp_min(SMALLEST_LOG), y[rows])
            risk = risk / math.log(logits.shape[1])
            ratio = posterior.deviation / tau
            spread = ((ratio - 1) * (ratio + 1) / 2 - ratio.log()).sum()
            kl = spread + (mean - centre).square().sum() / (2 * tau**2)
            c = (kl + extra) / (2 * n)
            objective = ((risk.clamp_min(TINY) + c).sqrt() + c.sqrt()).square()
            if not math.isfinite(objective.item()):
                return None
            optimizer.zero_grad()
            objective.backward()
            optimizer.step()
        falling.step()
        advance()
    return MeanField(network, mean.detach(), rho.detach())


@torch.no_grad()
def count_errors(
    law: MeanField, x: Tensor, y: Tensor, drawn: np.ndarray, generator: torch.Generator
) -> int:
    """Errors among pairs of record drawn[i] of x (n, ...), labels y (n,), and weights of its own.

    Independent pairs: a linear layer's outputs are drawn for each, a convolution's weights too.
    What float32 does not hold counts as an error: a layer's output, or the square of a record or of
    a deviation, on the way to it; so do ties.
    """
    least, most = law.deviation.aminmax()
    if not DEVIATIONS[0] <= float(least) <= float(most) <= DEVIATIONS[1]:
        return len(drawn)
    per_pair = sum(width for _, width in noise_sizes(law.network, 1, 1))
    chunk = max(1, min(MAX_PAIRS, MAX_NORMALS // per_pair))
    errors = 0
    for rows in torch.from_numpy(drawn).split(chunk):
        finite = torch.ones(len(rows), dtype=torch.bool)

        def look(values: Tensor, finite: Tensor = finite) -> None:
            # A square that overflows shows here; an activation may hide it from the next layer.
            finite &= values.isfinite().flatten(1).all(1)

        logits = _outputs(law, x[rows], len(rows), generator, look)
        errors += int((misclassified(logits, y[rows]) | ~finite).sum())
    return errors


def _outputs(
    law: MeanField,
    x: Tensor,
    draws: int,
    generator: torch.Generator,
    seen: Callable[[Tensor], object] | None = None,
) -> Tensor:
    normals = [
        torch.randn(size, generator=generator) for size in noise_sizes(law.network, len(x), draws)
    ]
    named = law.named(law.mean), law.named(law.deviation)
    return outputs(law.network, *named, x, normals, seen)
