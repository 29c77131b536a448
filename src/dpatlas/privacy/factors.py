"""Norms and weighted sums of gradients that are stored as factors, g = sum_t delta_t a_t^T.

The Gram form of a squared norm, G = <delta delta^T, a a^T>, loses every digit where the terms of
the positions cancel, as they do when activations share a large offset. The loss is bounded. With

    S = sum_t |delta_t| |a_t|,    gamma_n = n u / (1 - n u),

u the unit roundoff of the records' type, every entry of a product of Gram matrices errs by at most
gamma_n |delta_s| |delta_t| |a_s| |a_t| for n roundings on the way to it (Higham 2002, section 3.1,
for any order of summation), so G errs by at most gamma_n S^2; and the weighted sum of T positions
errs by at most gamma_(T + 3) S times the weight. A record is therefore clipped by

    ||g|| <= sqrt(max(G, 0) + gamma_n S^2) + gamma_(T + 3) S.

Where that bound is not tight, the record's gradient is multiplied out in float64 (in which the
factors are exact), and so is its term of the sum. The choice depends on the record's factors alone.

On a GPU, whose host must not wait to learn which records those are, every gradient is multiplied
out in the records' type instead, a few records at a time, and clipped by

    ||g|| <= |g~| + (gamma_T + gamma_(T + 3)) S,

g~ being what was computed. The products are matrix products in both places, for the bounds and for
the sum: the transforms by which a GPU's convolutions save multiplications round by more.
"""

import math

import torch
from torch import Tensor

from dpatlas.models.precision import exact
from dpatlas.privacy import clipping
from dpatlas.privacy.clipping import SUM_BLOCK
from dpatlas.privacy.norms import in_blocks, rounding, rows_norm2, stored_sum

# The bound is used where it exceeds the squared norm by at most this share of it (or of the largest
# squared norm that is not clipped); the gradient is then clipped by half that share too far.
SLACK = 0.01
# Inner products are split into blocks of this length: roundings add up within a block, and once for
# every further block.
INNER = 512
# Upper bound on the number of gradient entries that are multiplied out in float64 at a time; and of
# numbers that records are multiplied out from, or to, on a GPU.
MULTIPLIED, GPU_CHUNK = 2**24, 2**25


class Factored:
    """Gradients of one weight: `stored` for every record, or their factors `inputs` and `delta`.

    weight: the parameter as the operation has it, for its shape and type. Records are the first
    dimension of everything. `loose`: indices of the records that are multiplied out in float64;
    None for none. A bound on a norm holds for what the record adds to the computed sum, rounding
    included: for stored gradients their own norm, for factors the norm of their rounded product.
    """

    weight: Tensor
    stored: Tensor | None = None
    inputs: Tensor | None = None
    delta: Tensor | None = None
    loose: Tensor | None = None

    def hold(self, factors: bool, inputs: Tensor, delta: Tensor) -> None:
        """Keep the factors, or the gradient of every record that they multiply out to."""
        if factors:
            self.inputs, self.delta = inputs, delta
        else:
            with exact():
                self.stored = self.multiplied_out(inputs, delta)

    def norms2(self, small: float) -> Tensor:
        """Upper bounds on ||g_i||^2, float64 (records,).

        `small`: squared norms up to it are not clipped. A bound exceeds the squared norm by a small
        share of the larger of the norm and `small`.
        """
        return self.factored_norms2(small) if self.stored is None else rows_norm2(self.stored)

    def weighted(self, factors: Tensor) -> Tensor:
        """sum_i c_i g_i in the shape of `weight`, from factors c (records,) in float64."""
        if self.stored is None:
            return self.weighted_factors(factors.to(self.gradient_factors()[1].dtype))
        return stored_sum(factors.to(self.stored.dtype), self.stored)

    def each(self) -> Tensor:
        """The gradient of every record, (records, *weight.shape)."""
        if self.stored is not None:
            return self.stored
        with exact():
            return self.multiplied_out(*self.gradient_factors())

    def multiplied_out(self, inputs: Tensor, delta: Tensor) -> Tensor:
        """`each`, from the factors."""
        raise NotImplementedError

    def gradient_factors(self) -> tuple[Tensor, Tensor]:
        """`inputs` and `delta`, where they are kept."""
        assert self.inputs is not None and self.delta is not None
        return self.inputs, self.delta

    def pairs(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """a (rows, positions, in) and delta (rows, positions, out) of these records."""
        raise NotImplementedError

    def grams(self) -> tuple[Tensor, Tensor, int]:
        """Gram matrices (records, positions, positions) of a and delta, which may be overwritten.

        And the number of roundings of an entry, summed over both.
        """
        raise NotImplementedError

    def factored_norms2(self, small: float) -> Tensor:
        """Upper bounds on ||g_i||^2 of the weight, float64, where factors are stored."""
        if not clipping.may_look(self.gradient_factors()[1]):
            return self._bounds2_by_products()
        inputs, outputs, roundings = self.grams()
        positions, kind = inputs.shape[1], torch.finfo(inputs.dtype)
        # A square that underflows counts as the smallest normal number.
        lengths2 = [
            gram.diagonal(dim1=1, dim2=2).clamp_min(kind.tiny).double()
            for gram in (inputs, outputs)
        ]
        spread = (lengths2[0] * lengths2[1]).sqrt_().sum(1)
        # Rows are summed in the records' type, their sums in float64.
        norms2 = inputs.mul_(outputs).sum(2).sum(1, dtype=torch.float64).clamp_min_(0)
        error = rounding(roundings + positions, inputs.dtype)
        bounds = (norms2 + error * spread.square()).sqrt_()
        bounds = bounds.add_(spread, alpha=rounding(positions + 3, inputs.dtype)).square_()
        # Negated, so that NaN counts as loose.
        loose = ~(bounds - norms2 <= SLACK * norms2.clamp_min(small))
        if not loose.any():
            return bounds
        self.loose = loose.nonzero()[:, 0]
        norms = self._norms(self.loose) + rounding(positions, torch.float64) * spread[self.loose]
        return bounds.index_copy(0, self.loose, norms.square_())

    def weighted_factors(self, factors: Tensor) -> Tensor:
        """sum_i c_i g_i of the weight; the records in `loose` are multiplied out in float64."""
        inputs, output_gradients = self.gradient_factors()
        if not clipping.may_look(output_gradients):
            products = self.in_weight_shape(self._weighted_by_products(factors))
            return products.to(inputs.dtype).contiguous()
        ordinary = factors if self.loose is None else factors.index_fill(0, self.loose, 0)
        scaled = output_gradients * ordinary.view(-1, *[1] * (output_gradients.dim() - 1))
        total = in_blocks(self.product, self.positions(), scaled, inputs)
        if self.loose is None:
            return total
        in_float64 = total.new_zeros(len(total), total[0].numel(), dtype=torch.float64)
        for rows in self.loose.split(self._at_once()):
            a, delta = (factor.double() for factor in self.pairs(rows))
            delta = delta * factors[rows, None, None].double()
            in_float64.addmm_(delta.flatten(0, 1).T, a.flatten(0, 1))
        return (total + self.in_weight_shape(in_float64)).to(total.dtype)

    def product(self, delta: Tensor, inputs: Tensor) -> Tensor:
        """sum_it delta_it a_it^T in the records' type, in the shape of the weight."""
        raise NotImplementedError

    def in_weight_shape(self, gradient: Tensor) -> Tensor:
        """A sum of products of `pairs`, (out, in), in the shape of the weight."""
        return gradient

    def positions(self) -> int:
        """Number of positions of a record."""
        raise NotImplementedError

    def discard(self, bad: Tensor) -> None:
        """Zero the gradients of the records in the mask `bad`: 0 times infinity would be NaN.

        Factors are copied, because `inputs` may be the caller's records.
        """
        for key in ("stored", "inputs", "delta"):
            if (factor := getattr(self, key)) is not None:
                mask = bad.view(-1, *[1] * (factor.dim() - 1))
                setattr(self, key, torch.where(mask, 0, factor))

    def _at_once(self) -> int:
        return max(1, MULTIPLIED // self.weight.numel())

    def _norms(self, rows: Tensor) -> Tensor:
        norms = []
        for chunk in rows.split(self._at_once()):
            a, delta = (factor.double() for factor in self.pairs(chunk))
            gradients = torch.bmm(delta.transpose(1, 2), a)
            norms.append(torch.linalg.vector_norm(gradients.flatten(1), dim=1))
        return torch.cat(norms)

    def _bounds2_by_products(self) -> Tensor:
        """Upper bounds on ||g_i||^2, float64, from products in the records' type."""
        weight, bounds = self.weight, []
        numbers = max(weight.numel(), self.positions() * weight[0].numel())
        for rows in slices(len(self.gradient_factors()[1]), numbers):
            a, delta = self.pairs(rows)
            norms = rows_norm2(torch.bmm(delta.transpose(1, 2), a)).sqrt_()
            spread = (_lengths(a) * _lengths(delta)).sum(1)
            errors = (rounding(a.shape[1] + more, a.dtype) for more in (0, 3))
            bounds.append(norms.add_(spread, alpha=sum(errors)).square_())
        return torch.cat(bounds)

    def _weighted_by_products(self, factors: Tensor) -> Tensor:
        """sum_i c_i g_i, float64 (out, in), from products in the records' type.

        In blocks as `in_blocks` has them, as many as fit into memory at a time.
        """
        weight, positions = self.weight, self.positions()
        size = max(1, SUM_BLOCK // positions)
        numbers = max(weight.numel() // size, positions * weight[0].numel())
        total = weight.new_zeros(len(weight), weight[0].numel(), dtype=torch.float64)
        for rows in slices(len(factors), numbers, size):
            a, delta = self.pairs(rows)
            whole = len(a) // size * size
            pair = delta * factors[rows, None, None], a
            delta, a = (each[:whole].reshape(-1, size * positions, each.shape[2]) for each in pair)
            total += torch.bmm(delta.transpose(1, 2), a).sum(0, dtype=torch.float64)
            delta, a = (each[whole:].flatten(0, 1) for each in pair)
            total += delta.T @ a
        return total


def slices(records: int, numbers: int, size: int = 1) -> list[slice]:
    """Records in parts of at most GPU_CHUNK numbers, of which each needs so many.

    Where a part has at least `size` records, it has a multiple of that.
    """
    count = max(1, GPU_CHUNK // numbers)
    count = count // size * size or count
    return [slice(start, start + count) for start in range(0, records, count)]


def _lengths(rows: Tensor) -> Tensor:
    """Upper bounds on lengths of (records, positions, features), float64 (records, positions)."""
    features = rows.shape[2]
    # What vanishes as it is squared, and what rounding loses.
    vanished = features * torch.finfo(rows.dtype).tiny
    lengths2 = torch.linalg.vector_norm(rows, dim=2).square_() + vanished
    return lengths2.double().mul_(1 + rounding(features + 5, rows.dtype)).sqrt_()


def multiplied(delta: Tensor, a: Tensor) -> Tensor:
    """g_i = sum_t delta_it a_it^T of every record, (records, out, in).

    The rounding of a batched product depends on where a record lies in memory, so a gradient would
    move when another record is removed. On a CPU, records are multiplied again in float64 where
    that may be more than SLACK of the gradient; a GPU rounds every record alike.
    """
    gradients = torch.bmm(delta.transpose(1, 2), a)
    spread = (torch.linalg.vector_norm(delta, dim=2) * torch.linalg.vector_norm(a, dim=2)).sum(1)
    error = rounding(delta.shape[1], a.dtype) * spread
    loose = ~(error <= SLACK * torch.linalg.vector_norm(gradients.flatten(1), dim=1))
    if clipping.may_look(loose) and loose.any():
        # One by one: if every record is affected, a float64 batch would take twice the memory.
        for row in loose.nonzero()[:, 0].tolist():
            gradients[row] = delta[row].double().T @ a[row].double()
    return gradients


def gram(rows: Tensor) -> Tensor:
    """rows rows^T of (records, positions, features), inner products in blocks of at most INNER."""
    first, *others = rows.chunk(math.ceil(rows.shape[2] / INNER), -1)
    total = torch.bmm(first, first.transpose(1, 2))
    for block in others:
        total += torch.bmm(block, block.transpose(1, 2))
    return total


def gram_roundings(features: int) -> int:
    """Number of roundings in an entry of `gram`."""
    return min(features, INNER) + math.ceil(features / INNER) - 1
