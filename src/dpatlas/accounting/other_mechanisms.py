"""Releases that are no Gaussian sums, composed by dp-accounting's privacy loss distributions.

Laplace noise, its discrete version, discrete Gaussian noise, randomised response, and Gaussian sums
of truncated Poisson batches (arXiv:2508.15089). The package has no balls in bins, and no record
replaced on a sample of what is not Gaussian.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpatlas.accounting.accountants import (
    CELLS_PER_DEVIATION,
    COARSEST_INTERVAL,
    FINEST_INTERVAL,
    HOPELESS_INTERVAL,
    Mechanism,
    fft_error,
    loss_interval,
    sensitivity,
)
from dpatlas.accounting.gaussian_dp import amplified

# Losses of one step have so many cells at least: the grid is then a small part of their deviation.
CELLS = 2000
# Relative rounding error of a logarithm, generously.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Release(Mechanism):
    """`count` releases of one `kind`, each on a sample drawn by `sampler`, Poisson or full batch.

    noise_multiplier: scale of the noise over what one record moves; of randomised response the
    probability in (0, 1] of an answer at random. size: number of answers, or of records that a
    truncated batch keeps.
    """

    kind: str = "laplace"
    size: int = 1

    @property
    def is_gaussian(self) -> bool:
        """Never: releases of equal noise do not equal one."""
        return False


def pure_epsilon(releases: Sequence[Mechanism], relation: str) -> float:
    """Epsilon at delta 0, the sum over all releases; infinite where one has none.

    relation: replace_one, or add_remove, which stands for zero_out as well. Of noise scale b the
    loss is sensitivity / b, of randomised response with k answers log(1 + k (1 - p) / p) replacing
    one, and the larger of log(k (1 - p) + p) and -log p against uniform answers; on a sample of
    rate q it is log(1 + q (e^epsilon - 1)) (Balle, Barthe, Gaboardi 2018, Thm. 8).
    """
    return sum(each.count * _largest_loss(each, relation) for each in releases)


def _largest_loss(release: Mechanism, relation: str) -> float:
    p, rate = release.noise_multiplier, release.sampler.sample_rate
    kind, k = getattr(release, "kind", "gaussian"), getattr(release, "size", 0)
    if kind in ("laplace", "discrete-laplace"):
        loss = sensitivity(relation) / p
    elif kind == "randomized-response":
        special = max(math.log(k * (1 - p) + p), -math.log(p))
        loss = math.log1p(k * (1 - p) / p) if relation == "replace_one" else special
        loss *= 1 + ROUNDING
    else:
        return math.inf
    return loss if rate == 1 else float(amplified(loss, rate)) * (1 + ROUNDING)


@functools.lru_cache(maxsize=1024)
def mixed_pld_epsilon(releases: tuple[Mechanism, ...], delta: float, relation: str) -> float:
    """Epsilon at delta of all releases together, by privacy loss distributions rounded upward.

    Gaussian mechanisms of Poisson and full batches may be among them. Infinite where the grid would
    have to be as coarse as an epsilon of millions.
    """
    widths = []
    for each in releases:
        widest = _largest_loss(each, relation)
        cells = min(CELLS, CELLS_PER_DEVIATION / math.sqrt(each.count))
        free = math.isinf(widest)
        widths.append(loss_interval([each], relation) if free else widest / cells)
    interval = max(min(*widths, COARSEST_INTERVAL), max(widths) / 100, FINEST_INTERVAL)
    if interval > HOPELESS_INTERVAL:
        return math.inf
    parts = (_losses(each, relation, interval) for each in releases)
    composed = functools.reduce(lambda first, second: first.compose(second), parts)
    return float(composed.get_epsilon_for_delta(delta - fft_error(releases)))


def _losses(release: Mechanism, relation: str, interval: float) -> Any:
    """dp-accounting's distribution of the loss of all `count` releases."""
    from dp_accounting import NeighboringRelation as Relation
    from dp_accounting.pld import privacy_loss_distribution as pld

    noise, rate, count = release.noise_multiplier, release.sampler.sample_rate, release.count
    kind, size = getattr(release, "kind", "gaussian"), getattr(release, "size", 0)
    replaced = relation == "replace_one"
    common: dict[str, Any] = {"value_discretization_interval": interval}
    neighbours = Relation.REPLACE_ONE if replaced else Relation.ADD_OR_REMOVE_ONE
    if kind == "gaussian":
        if release.is_gaussian:
            noise, count = noise / math.sqrt(count), 1
        common |= {"sampling_prob": rate, "neighboring_relation": neighbours}
        losses = pld.from_gaussian_mechanism(noise, **common)
    elif kind == "truncated-poisson":
        common |= {"neighboring_relation": neighbours}
        losses = pld.from_truncated_subsampled_gaussian_mechanism(
            release.sampler.n, rate, size, noise, **common
        )
    elif kind == "randomized-response":
        if noise == 1:
            return pld.identity(**common)
        # The package's accountant composes it once, whatever the count.
        special = Relation.REPLACE_ONE if replaced else Relation.REPLACE_SPECIAL
        losses = pld.from_randomized_response(noise, size, neighboring_relation=special, **common)
    else:
        make, scale = {
            "laplace": (pld.from_laplace_mechanism, noise),
            "discrete-laplace": (pld.from_discrete_laplace_mechanism, 1 / noise),
            "discrete-gaussian": (pld.from_discrete_gaussian_mechanism, noise),
        }[kind]
        common |= {"sampling_prob": rate, "use_connect_dots": True}
        losses = make(scale, sensitivity(relation), **common)
    return losses.self_compose(count)
