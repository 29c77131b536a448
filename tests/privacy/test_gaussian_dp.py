"""Gaussian DP's conversions against values computed with 800 decimal digits."""

import pytest

from dpatlas.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon, gaussian_mu

# (mu, eps, delta): Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) of these doubles, by mpmath 1.3
# at mp.dps = 800 with Phi(t) = erfc(-t / sqrt(2)) / 2, rounded to a double.
PROFILE = [
    (1e-300, 0.0, 3.9894228040143265e-301),
    (1e-300, 2e-301, 3.0689463586327648e-301),
    (1e-300, 1e-300, 8.33154705876863e-302),
    (1e-100, 0.0, 3.989422804014327e-101),
    (1e-100, 1e-100, 8.33154705876863e-102),
    (1e-100, 6e-100, 1.5635697959709665e-110),
    (1e-100, 2.5e-99, 1.218797046299099e-239),
    (1e-16, 0.0, 3.9894228040143264e-17),
    (1e-16, 1e-16, 8.33154705876863e-18),
    (1e-16, 6e-16, 1.563569795970967e-26),
    (1e-16, 2.5e-15, 1.2187970462990233e-155),
    (1e-14, 1e-14, 8.331547058768672e-16),
    (1e-10, 0.0, 3.989422804014327e-11),
    (1e-10, 2e-11, 3.0689463586634545e-11),
    (1e-10, 6e-10, 1.56356979644004e-20),
    (1e-05, 0.0, 3.989422803997704e-06),
    (1e-05, 1e-05, 8.331588716541962e-07),
    (1e-05, 0.00025, 1.218949405436931e-144),
    (0.01, 0.0, 0.003989406181481645),
    (0.01, 0.001, 0.0035110920258420984),
    (0.01, 0.06, 1.6111683919538318e-12),
    (0.01, 0.25, 1.3810607788825272e-141),
    (0.5, 0.0, 0.19741265136584746),
    (0.5, 0.001, 0.19701154383917252),
    (0.5, 0.225, 0.11772371238919455),
    (0.5, 3.0, 3.400911735673529e-10),
    (0.5, 12.6, 2.091127173375082e-139),
    (0.99, 0.0, 0.3793998794910244),
    (0.99, 0.5, 0.23443235232394313),
    (0.99, 3.0, 0.0013694274098110914),
    (0.99, 25.2, 3.1990843060314902e-139),
    (1.0, 0.0, 0.3829249225480262),
    (1.0, 0.5, 0.23842170813487662),
    (1.0, 3.0, 0.0015371853694009549),
    (1.0, 25.5, 1.1721315463125465e-139),
    (1.0, 37.0, 1.476469534442528e-293),
    (1.01, 0.0, 0.38644116402228473),
    (1.01, 0.5, 0.2424110649432323),
    (1.01, 3.0, 0.0017202815064073715),
    (1.01, 25.8, 4.385249347334925e-140),
    (2.0, 0.0, 0.6826894921370859),
    (2.0, 2.4, 0.2674801363206089),
    (2.0, 14.0, 2.3845226121375636e-10),
    (2.0, 52.0, 2.257806205305918e-139),
    (7.0, 0.0, 0.9995347418419289),
    (7.0, 31.5, 0.12886092357047063),
    (7.0, 66.5, 5.219298802518897e-10),
    (7.0, 200.0, 1.1102111730830184e-139),
    (20.0, 200.0, 0.48010238435167296),
    (20.0, 700.0, 1.356662127752497e-138),
    (37.0, 700.0, 0.32787878357153566),
    (50.0, 0.0, 1.0),
    (50.0, 1250.0, 0.492024342108007),
    (50.0, 1800.0, 1.5634054285996948e-28),
    (50.0, 2900.0, 2.4452518461996453e-239),
]


@pytest.mark.parametrize("mu, eps, delta", PROFILE)
def test_delta_has_twelve_digits_and_the_others_are_rounded_to_the_safe_side(mu, eps, delta):
    assert gaussian_delta(mu, eps) == pytest.approx(delta, rel=1e-12, abs=0)
    if delta < 0.99:
        assert mu * (1 - 1e-11) < gaussian_mu(eps, delta) <= mu
        # By a share of eps + mu: at eps = 0 delta hardly depends on eps.
        assert eps <= gaussian_epsilon(mu, delta) < eps + 1e-11 * (eps + mu)


@pytest.mark.parametrize("mu, delta", [(1e-16, 1e-24), (1e-10, 1e-13), (3e-300, 1e-300)])
def test_epsilon_of_a_delta_below_that_of_zero_is_positive(mu, delta):
    eps = gaussian_epsilon(mu, delta)
    assert delta * (1 - 1e-11) < gaussian_delta(mu, eps) <= delta


@pytest.mark.parametrize(
    "eps, delta", [(0.0, 1e-20), (1e-12, 1e-50), (1e-300, 1e-300), (700.0, 1e-9)]
)
def test_mu_meets_a_small_delta(eps, delta):
    mu = gaussian_mu(eps, delta)
    assert gaussian_delta(mu, eps) <= delta < gaussian_delta(mu * (1 + 1e-11), eps)


def test_the_ends_of_the_doubles_have_values():
    smallest = 5e-324
    assert 0 < gaussian_mu(0.0, smallest) < 1e-322
    assert 1.4e150 < gaussian_mu(1e300, 1e-300) < 1.5e150
    assert gaussian_epsilon(smallest, smallest) == 0
    assert gaussian_delta(smallest, 1e308) == 0
