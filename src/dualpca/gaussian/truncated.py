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


class TruncatedMoments(NamedTuple):
    """Of x ~ N(0, 1) given low < x ≤ high."""

    log_mass: Vector  # ln P(low < x ≤ high)
    mean: Vector
    variance: Vector


def truncated_moments(low: Vector, high: Vector) -> TruncatedMoments:
    """Return ln P(low < x ≤ high) of x ~ N(0, 1), and mean and variance of x given that.

    With p = φ/(Φ(b) − Φ(a)): mean p(a) − p(b), variance 1 + a p(a) − b p(b) − mean². Intervals are
    reflected to the right, where 1 − Φ keeps its digits; one Φ and one exponential per bound.
    Narrow and remote intervals are integrated by Gauss–Legendre rules.

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
    open_ended = np.isinf(low) | np.isinf(high)
    if open_ended.all():
        return _half_lines(low, high)
    if not open_ended.any():
        return _intervals(low, high)
    found = TruncatedMoments(*(np.empty(np.shape(low)) for _ in range(3)))
    for here, of in ((open_ended, _half_lines), (~open_ended, _intervals)):
        for whole, part in zip(found, of(low[here], high[here]), strict=True):
            whole[here] = part
    return found


def _half_lines(low: Vector, high: Vector) -> TruncatedMoments:
    """Return the same where at least one bound is infinite: one Φ and one exponential each."""
    flip = low == -np.inf
    a = np.where(flip, -high, low)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        mass = special.ndtr(-a)
        mean = np.exp(-0.5 * a * a)
        mean /= ROOT_2PI * mass
        variance = 1.0 - mean * (mean - np.maximum(a, -NOTHING))
        log_mass = np.log(mass)
    far = a > FAR
    if far.any():
        log_mass[far], mean[far], variance[far] = _integrated(a[far], np.full(far.sum(), np.inf))
    return TruncatedMoments(log_mass, np.where(flip, -mean, mean), np.maximum(variance, 0.0))


def _intervals(low: Vector, high: Vector) -> TruncatedMoments:
    """Return the same where both bounds are finite."""
    flip = low < -high
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        mass = special.ndtr(-a)
        mass -= special.ndtr(-b)
        scale = 1.0 / (ROOT_2PI * mass)
        pa, pb = np.exp(-0.5 * a * a) * scale, np.exp(-0.5 * b * b) * scale
        mean = pa - pb
        variance = 1.0 + a * pa - b * pb - mean * mean
        log_mass = np.log(mass)
        hard = (a > FAR) | ((b - a) * np.maximum(1.0, b) < NARROW)  # here b ≥ |a|
    if hard.any():
        log_mass[hard], mean[hard], variance[hard] = _integrated(a[hard], b[hard])
    return TruncatedMoments(log_mass, np.where(flip, -mean, mean), np.maximum(variance, 0.0))


def log_probability(low: Vector, high: Vector) -> Vector:
    """Return ln P(low < x ≤ high) of x ~ N(0, 1); 0 where both bounds are infinite.

    Examples
    --------
    >>> log_probability(np.array([-np.inf, 10.0]), np.array([np.inf, 10.1])).round(4)
    array([  0.    , -53.6815])
    """
    return truncated_moments(low, high).log_mass


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
