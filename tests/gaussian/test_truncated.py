"""The truncated normal: values in many digits are the judge."""

import numpy as np
import pytest

from dualpca.gaussian.truncated import (
    interval_moments,
    log_interval,
    log_probability,
    log_tail,
    tail_moments,
    truncated_draws,
    truncated_moments,
)

INF = np.inf
# bounds: log mass, mean and variance, computed in 60 digits
EXACT = {
    (-INF, 0.3): (-0.4814101615884812, -0.6172208536127345, 0.4338721617817471),
    (0.3, INF): (-0.9621028181688507, 0.9981659688584833, 0.3031144892703503),
    (-INF, -5.0): (-15.064998393988725, -5.186503967125842, 0.032696434617112226),
    (-1.0, 2.0): (-0.2001662943244626, 0.22963717909132897, 0.5197625392115339),
    (-2.0, 1.0): (-0.2001662943244626, -0.22963717909132897, 0.5197625392115339),
    (0.1, 0.10000000000100001): (-28.554954015293646, 0.10000000000050001, 8.333427231189404e-26),
    (0.1, 0.15): (-3.9225858416171318, 0.1249739605203578, 0.00020831556593540435),
    (0.1, 0.11): (-5.529625339915141, 0.10499912500293275, 8.33330509621801e-06),
    (-3.0, -2.999999): (-19.23444759102896, -2.99999949999975, 8.333333335658938e-14),
    (5.9, 5.905): (-23.636973775560268, 5.902487703313751, 2.08324087269353e-06),
    (6.1, 6.105): (-24.837471274558062, 6.102487286666197, 2.0832346205520783e-06),
    (5.9, 6.2): (-20.29461034360702, 6.007052772505789, 0.006395545286309302),
    (8.0, 9.0): (-35.01361859343715, 8.121188992979796, 0.014148542782748111),
    (8.0, INF): (-35.01343715991455, 8.121368112236112, 0.014324883443340911),
    (35.0, 36.0): (-616.9751012619225, 35.028524970596685, 0.0008123551683822614),
    (-40.0, -39.0): (-765.0831565643775, -39.02560741993011, 0.0006548827702932775),
    (100.0, INF): (-5005.524208694205, 100.00999800099926, 9.994004994826346e-05),
    (-INF, -300.0): (-45006.62273211866, -300.0033332592634, 1.1110370438949582e-05),
    (100.0, 100.001): (-5007.876277342747, 100.00049166801386, 8.329168000591893e-08),
    (-10.0, 60.0): (-7.619853024160525e-24, 7.694598626706419e-23, 1.0),
    (-0.02, 0.02): (-4.137881022961785, 0.0, 0.00013332622235767558),
    (2.0, INF): (-3.783184333682032, 2.373215532822841, 0.11427910041408125),
    (-INF, -7.0): (-27.384307498811076, -7.137545613226504, 0.01826191169662223),
    (9.0, 9.5): (-43.637491414572416, 9.103881436762306, 0.009208233636197),
    (-1.0, 0.5): (-0.6295956325528635, -0.206631218061533, 0.17277325908649324),
}


@pytest.mark.parametrize(("low", "high"), EXACT)
def test_moments_keep_their_digits(low, high):
    found = truncated_moments(np.array([low]), np.array([high]))
    expected = EXACT[low, high]
    got = [float(part[0]) for part in found]
    assert got[0] == pytest.approx(expected[0], rel=1e-12, abs=1e-12)
    assert got[1] == pytest.approx(expected[1], rel=1e-9, abs=1e-12)
    assert got[2] == pytest.approx(expected[2], rel=2e-7)


def test_nothing_known_is_the_standard_normal():
    log_mass, mean, variance = truncated_moments(np.array([-INF]), np.array([INF]))
    assert (log_mass[0], mean[0], variance[0]) == pytest.approx((0.0, 0.0, 1.0), abs=1e-15)
    assert log_probability(np.array([-INF]), np.array([INF]))[0] == 0.0


def test_reflection_is_exact():
    rng = np.random.default_rng(0)
    low = rng.normal(scale=5, size=200)
    high = low + rng.exponential(size=200)
    one, two = truncated_moments(low, high), truncated_moments(-high, -low)
    np.testing.assert_array_equal(one.mean, -two.mean)
    np.testing.assert_array_equal(one.variance, two.variance)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 0.5), (2.0, INF), (-INF, -7.0), (9.0, 9.5)])
def test_draws_have_the_moments(low, high):
    x = truncated_draws(np.full(20000, low), np.full(20000, high), np.random.default_rng(0))
    assert ((x > low) & (x <= high)).all()
    _, mean, variance = EXACT[low, high]
    assert x.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / x.size))
    assert x.var() == pytest.approx(variance, rel=0.06)


def test_tables_agree_with_what_is_computed():
    a = np.linspace(-12, 14, 5001)
    exact = truncated_moments(a, np.full(a.size, INF))
    mean, variance = tail_moments(a)
    np.testing.assert_allclose(mean, exact.mean, atol=1e-12)
    np.testing.assert_allclose(variance, exact.variance, atol=1e-11)
    np.testing.assert_allclose(log_tail(a), exact.log_mass, rtol=1e-10, atol=1e-13)
    rng = np.random.default_rng(0)
    low = rng.normal(scale=4, size=20000)
    high = low + rng.exponential(size=20000) ** 3
    exact = truncated_moments(low, high)
    mean, variance = interval_moments(low, high)
    np.testing.assert_allclose(mean, exact.mean, atol=1e-8)
    np.testing.assert_allclose(variance, exact.variance, atol=1e-8)
    np.testing.assert_allclose(log_interval(low, high), exact.log_mass, rtol=1e-9, atol=1e-9)
    assert [float(x[0]) for x in tail_moments(np.array([-INF]))] == pytest.approx([0.0, 1.0])
