"""What lp_fft says of the privacy of Langevin diffusion (Sec. 4, Thm 4.1).

    d theta = -grad L dt + sqrt(2 sigma^2) dQ

for a time T on one of two neighbouring data sets, whose gradients differ by at most
`gradient_difference` = Delta_g everywhere. Formulas work elementwise and raise `InputError` outside
the declared domains.
"""

import numpy as np

from dpatlas.base.formulas import bound
from dpatlas.base.guard import checked, one_of, real
from dpatlas.formulas.lp_fft.linear import CONVENTIONS


@bound("langevin-epsilon", source="lp_fft Thm 4.1, Eq. 19")
@checked(
    gradient_difference=real(gt=0),
    T=real(gt=0),
    sigma=real(gt=0),
    delta=real(gt=0, lt=1),
    convention=one_of(*CONVENTIONS),
)
def langevin_epsilon(gradient_difference, T, sigma, delta, convention="exact"):
    """Epsilon of the whole trajectory at `delta`, the least over orders alpha > 1.

    alpha r + log(1 / delta) / (alpha - 1) with r = Delta_g^2 T / (4 sigma^2), by Girsanov's
    theorem. The paper prints Delta_g in the place of its square: too little where it exceeds 1.
    """
    power = 2.0 if convention == "exact" else 1.0
    rate = np.power(gradient_difference, power) * T / (4 * np.square(np.asarray(sigma, float)))
    return (rate + 2 * np.sqrt(rate * np.log(1 / np.asarray(delta, float))))[()]
