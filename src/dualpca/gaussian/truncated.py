"""The standard normal between two bounds: probability, mean, variance, draws.

All functions work on arrays of any one shape, and keep their digits in both tails and for intervals
that are narrow. An interval is the usual (low, high] with low < high; bounds may be infinite.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special

Vector = np.ndarray[Any, np.dtype[np.float64]]

NARROW = 0.05
"""Width, times max(1, |middle|), below which differences of Φ lose too many digits."""

FAR = 6.0
"""Bound beyond which a tail is integrated directly: 1 + aλ − λ² loses the digits of 1/a²."""

NOTHING = 40.0
"""−ln of a density, relative to its largest, that is nothing."""

NARROW_NODES, FAR_NODES = 6, 40
"""Nodes of Gauss–Legendre rules."""

ROOT_2PI = float(np.sqrt(2 * np.pi))

LEFT, RIGHT, PER_UNIT = -9.0, 10.0, 32
"""Range of the table of φ/(1 − Φ), and its nodes per unit: quintic pieces, good to 1e-13."""

TABLE_END = 4.0
"""Bound beyond which `interval_moments` integrates: 1 − Φ from its table loses digits there."""


class TruncatedMoments(NamedTuple):
    """Of x ~ N(0, 1) given low < x ≤ high."""

    log_mass: Vector  # ln P(low < x ≤ high)
    mean: Vector
    variance: Vector


def truncated_moments(low: Vector, high: Vector) -> TruncatedMoments:
    """Return ln P(low < x ≤ high) of x ~ N(0, 1), and mean and variance of x given that.

    Parameters
    ----------
    low, high : arrays of one shape
        With low < high.

    Examples
    --------
    >>> low, high = np.array([0.0, 9.0]), np.array([np.inf, np.inf])
    >>> log_mass, mean, variance = truncated_moments(low, high)
    >>> log_mass.round(2), mean.round(3), variance.round(5)
    (array([ -0.69, -43.63]), array([0.798, 9.109]), array([0.36338, 0.01151]))
    """
    found = TruncatedMoments(log_probability(low, high), *(np.empty(np.shape(low)) for _ in "mv"))
    one_sided = np.isinf(low) | np.isinf(high)
    side = np.where(low[one_sided] == -np.inf, -1.0, 1.0)
    mean, found.variance[one_sided] = tail_moments(_edges(low[one_sided], high[one_sided]))
    found.mean[one_sided] = side * mean
    both = ~one_sided
    found.mean[both], found.variance[both] = interval_moments(low[both], high[both])
    return found


def _edges(low: Vector, high: Vector) -> Vector:
    """Return the finite bounds of intervals that have one, reflected to the right."""
    return np.where(low == -np.inf, -high, low)


def log_probability(low: Vector, high: Vector) -> Vector:
    """Return ln P(low < x ≤ high) of x ~ N(0, 1); 0 where both bounds are infinite.

    Examples
    --------
    >>> log_probability(np.array([-np.inf, 10.0]), np.array([np.inf, 10.1])).round(4)
    array([  0.    , -53.6815])
    """
    found, one_sided = np.empty(np.shape(low)), np.isinf(low) | np.isinf(high)
    found[one_sided] = log_tail(_edges(low[one_sided], high[one_sided]))
    found[~one_sided] = log_interval(low[~one_sided], high[~one_sided])
    return found


def tail_moments(a: Vector) -> tuple[Vector, Vector]:
    """Return mean and variance of x ~ N(0, 1) given x > a, from a table; −inf is no bound.

    λ = φ(a)/(1 − Φ(a)) is the mean and 1 − λ(λ − a) the variance. Several times faster than
    `truncated_moments`, and good to about 1e-12.

    Examples
    --------
    >>> mean, variance = tail_moments(np.array([0.0, 9.0]))
    >>> mean.round(3), variance.round(5)
    (array([0.798, 9.109]), array([0.36338, 0.01151]))
    """
    clipped = np.clip(a, LEFT, RIGHT)
    mean = _hazard(clipped)
    variance = mean - clipped
    variance *= mean
    np.subtract(1.0, variance, out=variance)
    if a.size and a.max() > RIGHT:
        far = a > RIGHT
        _, mean[far], variance[far] = _integrated(a[far], np.full(far.sum(), np.inf))
    return mean, variance


def interval_moments(low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Return mean and variance of x ~ N(0, 1) given low < x ≤ high, both finite, from a table.

    Examples
    --------
    >>> mean, variance = interval_moments(np.array([-2.0, 0.1]), np.array([1.0, 0.15]))
    >>> mean.round(4), variance.round(6)
    (array([-0.2296,  0.125 ]), array([0.519763, 0.000208]))
    """
    a, b, pa, pb, mass, hard = _Right.of(low, high)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        pa /= mass
        pb /= mass
        mean = pa - pb
        pa *= a
        pb *= b
        pa -= pb
        pa += 1.0
        pa -= mean * mean
    if hard.any():
        _, mean[hard], pa[hard] = _integrated(*_reflected(low[hard], high[hard]))
    return np.copysign(mean, low + high, out=mean), pa


def log_tail(a: Vector) -> Vector:
    """Return ln P(x > a) of x ~ N(0, 1), from a table.

    Examples
    --------
    >>> log_tail(np.array([0.0, 9.0])).round(2)
    array([ -0.69, -43.63])
    """
    mass = _beyond(a, _density(a))
    far = a > TABLE_END
    if not far.any():
        return np.log(mass, out=mass)
    np.log(mass, out=mass, where=~far)
    mass[far] = special.log_ndtr(-a[far])
    return mass


def log_interval(low: Vector, high: Vector) -> Vector:
    """Return ln P(low < x ≤ high) of x ~ N(0, 1), both finite, from a table.

    Examples
    --------
    >>> log_interval(np.array([-2.0, 0.1]), np.array([1.0, 0.15])).round(4)
    array([-0.2002, -3.9226])
    """
    _, _, _, _, mass, hard = _Right.of(low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(mass, out=mass)
    if hard.any():
        found[hard] = _integrated(*_reflected(low[hard], high[hard]))[0]
    return found


def _reflected(low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """Return intervals reflected to the right, without rounding."""
    flip = low < -high
    return np.where(flip, -high, low), np.where(flip, -low, high)


class _Right(NamedTuple):
    """Intervals reflected to the right: bounds a < b, |a| ≤ b, densities there and probability."""

    a: Vector
    b: Vector
    pa: Vector
    pb: Vector
    mass: Vector
    hard: np.ndarray[Any, np.dtype[np.bool_]]  # where the probability has lost its digits

    @classmethod
    def of(cls, low: Vector, high: Vector) -> _Right:
        b, half = low + high, high - low
        half *= 0.5
        b *= 0.5
        np.abs(b, out=b)
        a = b - half
        b += half
        pa, pb = _density(a), _density(b)
        mass = _beyond(a, pa)
        mass -= _beyond(b, pb)
        half *= np.maximum(b, 1.0)
        return cls(a, b, pa, pb, mass, (half < 0.5 * NARROW) | (a > TABLE_END))


def _density(x: Vector) -> Vector:
    """Return φ."""
    y = x * x
    y *= -0.5
    np.exp(y, out=y)
    y *= 1.0 / ROOT_2PI
    return y


def _beyond(x: Vector, density: Vector) -> Vector:
    """Return 1 − Φ(x) of x and φ(x), with the absolute error of 1/2."""
    y = np.abs(x)
    np.minimum(y, RIGHT, out=y)
    np.divide(density, _hazard(y), out=y)
    np.subtract(0.5, y, out=y)
    np.copysign(y, x, out=y)
    return np.subtract(0.5, y, out=y)


@cache
def _hazard_pieces() -> tuple[Vector, ...]:
    """Return the coefficients of λ in pieces: quintic, with λ' = λ(λ − x) and λ'' at the nodes."""
    x = np.linspace(LEFT, RIGHT, round((RIGHT - LEFT) * PER_UNIT) + 1)
    f = np.exp(-0.5 * x * x - special.log_ndtr(-x)) / ROOT_2PI
    slope = f * (f - x)
    d, s = slope / PER_UNIT, (slope * (2 * f - x) - f) / PER_UNIT**2
    rise, turn, bend = f[1:] - f[:-1] - d[:-1] - 0.5 * s[:-1], d[1:] - d[:-1] - s[:-1], np.diff(s)
    return (
        f[:-1].copy(),
        d[:-1].copy(),
        0.5 * s[:-1],
        10 * rise - 4 * turn + 0.5 * bend,
        -15 * rise + 7 * turn - bend,
        6 * rise - 3 * turn + 0.5 * bend,
    )


def _hazard(x: Vector) -> Vector:
    """Return λ(x) = φ(x)/(1 − Φ(x)) for x from LEFT to RIGHT."""
    pieces = _hazard_pieces()
    u = x - LEFT
    u *= PER_UNIT
    whole = np.floor(u)
    np.minimum(whole, pieces[0].size - 1, out=whole)
    u -= whole
    i = whole.astype(np.intp)
    y = pieces[-1].take(i, mode="clip")
    for piece in pieces[-2::-1]:
        y *= u
        y += piece.take(i, mode="clip", out=whole)
    return y


def _integrated(a: Vector, b: Vector) -> tuple[Vector, Vector, Vector]:
    """Return the same for intervals that are narrow or to the right of FAR, by quadrature."""
    width = np.minimum(b - a, NOTHING / np.maximum(a, 1.0))
    log_mass, mean, variance = (np.empty_like(a) for _ in range(3))
    wide = width * np.maximum(1.0, np.abs(a)) > 2 * NARROW
    for count, here in ((NARROW_NODES, ~wide), (FAR_NODES, wide)):
        if here.any():
            nodes, weights = _rule(count)
            start, y = a[here, None], width[here, None] * nodes
            density = np.exp(-y * (start + 0.5 * y)) * weights  # relative to that at a
            total = density.sum(axis=1)
            share = density / total[:, None]
            centre = (share * y).sum(axis=1)
            variance[here] = (share * (y - centre[:, None]) ** 2).sum(axis=1)
            mean[here] = a[here] + centre
            log_mass[here] = np.log(total * width[here] / ROOT_2PI) - 0.5 * a[here] ** 2
    return log_mass, mean, variance


@cache
def _rule(count: int) -> tuple[Vector, Vector]:
    """Return nodes and weights of a Gauss–Legendre rule on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def truncated_draws(low: Vector, high: Vector, rng: np.random.Generator) -> Vector:
    """Draw x ~ N(0, 1) given low < x ≤ high, one per interval, by inversion.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = truncated_draws(np.full(3, 30.0), np.full(3, np.inf), rng)
    >>> bool((x > 30).all()), bool((x < 31).all())
    (True, True)
    """
    flip = low < -high
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    u = 1.0 - rng.random(np.shape(a))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        top, bottom = special.ndtr(-a), special.ndtr(-b)
        x = -special.ndtri(bottom + u * (top - bottom))
        far = a > FAR
        if far.any():  # x = a + y with density exp(−ay − y²/2): exponential, then corrected
            log_top = special.log_ndtr(-a[far])
            ratio = np.exp(special.log_ndtr(-b[far]) - log_top)
            x[far] = -special.ndtri_exp(log_top + np.log(ratio + u[far] * (1 - ratio)))
    x = np.clip(x, a, b)
    return np.asarray(np.where(flip, -x, x))
