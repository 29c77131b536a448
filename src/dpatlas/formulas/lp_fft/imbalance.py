"""Imbalance and layer gradients of the linear network of lp_fft (App. E.2-E.6, Figs. 9 and 10).

Notation of `formulas.linear`. D = v v^T - B B^T is constant under gradient flow. Noise is `uniform`
(Eq. 122, sqrt(2 sigma2) dQ in both layers) or `layer-wise` (Eq. 127, sqrt(2 sigma2 d) dQ in v).

Formulas raise `InputError` for what lies outside the declared domains.
"""

import numpy as np

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, integer, one_of, real
from dpatlas.errors import InputError

CONVENTIONS = ("exact", "paper")
NOISES = ("uniform", "layer-wise")


@bound("imbalance-drift", source="lp_fft Eqs. 125, 183 and 190")
@checked(
    d=integer(ge=1),
    sigma2=real(ge=0),
    noise=one_of(*NOISES),
    convention=one_of(*CONVENTIONS),
)
def imbalance_drift(d, sigma2, noise="uniform", convention="exact"):
    """Coefficient of I_h in dE[D]/dt during FFT, hence d/dt of the mean expected eigenvalue.

    2 (1 - d) sigma2 under uniform noise, where the paper prints (1 - d) sigma2; 0 under layer-wise
    noise. Eq. 190 states this drift for each single eigenvalue; by Jensen's inequality the largest
    one does not fall faster than that in expectation, nor the smallest more slowly.
    """
    if noise == "layer-wise":
        return np.zeros(np.broadcast_shapes(np.shape(d), np.shape(sigma2)))[()]
    factor = 2.0 if convention == "exact" else 1.0
    return factor * (1.0 - d) * sigma2


@checked(v=real(), B=real())
def imbalance_matrix(v, B):
    """D = v v^T - B B^T, shape (..., h, h), for v (..., h) and B (..., h, d): Eq. 124."""
    return v[..., :, None] * v[..., None, :] - B @ np.swapaxes(B, -1, -2)


def imbalance_eigenvalues(v, B):
    """Eigenvalues of `imbalance_matrix`, ascending, shape (..., h).

    For B B^T = I they are -1, h - 1 times, and ||v||^2 - 1 (Lemma E.16).
    """
    return np.linalg.eigvalsh(imbalance_matrix(v, B))


@checked(eigenvalues=real())
def jensen_gap(eigenvalues):
    """Relative gap (E u - E[sqrt u]^2) / E[sqrt u]^2 of u = max(0, -eigenvalue).

    The means are over the last axis. It is the squared coefficient of variation of sqrt u, which
    Conjecture E.22 takes to be small.
    The printed numerator has the eigenvalue where u is meant. InputError where no u is positive.
    """
    u = np.maximum(-eigenvalues, 0.0)
    lower = np.mean(np.sqrt(u), axis=-1) ** 2
    if not np.all(lower > 0):
        raise InputError("eigenvalues", "no negative one", "at least one negative eigenvalue")
    return np.mean(u, axis=-1) / lower - 1


@checked(B=real(), x=real(), y=real(), head_var=real(ge=0))
def expected_layer_gradients(B, x, y, head_var):
    """(E ||grad_v l_i||^2, E ||grad_B l_i||^2) of the records' losses at v ~ N(0, head_var I_h).

    What Fig. 9 simulates. With z = B x_i these are ||z||^2 (head_var ||z||^2 + y_i^2) and
    ||x_i||^2 head_var ((h + 2) head_var ||z||^2 + h y_i^2). B: (h, d), x: (n, d), y: (n,); each of
    shape (n,). Their ratio is near ||z||^2 / (h head_var ||x_i||^2), about 1 / (d head_var) for
    random features: the head has the larger gradient for a head variance below 1 / d.
    """
    h = B.shape[0]
    z_norm2, x_norm2 = np.sum((x @ B.T) ** 2, axis=1), np.sum(x**2, axis=1)
    head = z_norm2 * (head_var * z_norm2 + y**2)
    backbone = x_norm2 * head_var * ((h + 2) * head_var * z_norm2 + h * y**2)
    return head, backbone
