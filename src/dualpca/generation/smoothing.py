"""The bandwidth of a kernel density estimate by leave-one-out likelihood."""

from __future__ import annotations

import math

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import DegenerateError, expected
from dualpca.generation.densities import (
    LOG_2PI,
    KernelDensity,
    covariance_factor,
    log_sum_exp,
    solve_lower,
)

LEFT_OUT = 2000
"""Rows that are left out in turn, evenly spaced; all others remain centres."""

COARSE, FINE, ROUNDS = 17, 7, 3
"""Bandwidths tried in the first round and in each of the finer ones, and their number."""

SMALLEST, LARGEST = 1e-3, 8.0
"""Of Silverman's rule of thumb, and of the standard deviation."""


def fit_kernel_density(Z: Array, width: float | None = None, shrink: bool = True) -> KernelDensity:
    """Return the kernel density estimate over rows, with bumps of covariance h² · cov(Z).

    Bumps alone make the variance 1 + h² times too large, 1.2 times in 15 dimensions. Shrunk, all
    is divided by √(1 + h²) about the mean, so that mean and covariance are those of the rows: the
    empirical distribution for h → 0, the Gaussian for h → ∞.

    Parameters
    ----------
    Z : array of shape (n, q)
    width : float, optional
        h; by leave-one-out likelihood (`bandwidth`) unless given.
    shrink : bool

    Notes
    -----
    Duin, "On the choice of smoothing parameters for Parzen estimators" (1976); Silverman & Young,
    "The bootstrap: to smooth or not to smooth?" (1987).

    Examples
    --------
    >>> import numpy as np
    >>> kde = fit_kernel_density(np.array([[-1.0], [1.0]]), width=1.0)
    >>> kde.centres.round(4), kde.factor.round(4)
    (array([[-0.7071], [ 0.7071]]), array([[0.7071]]))
    """
    Z = _array.working(Z)
    if Z.shape[0] < 2:
        raise ValueError(expected("Z", "two rows or more", tuple(Z.shape)))
    mean = _array.namespace(Z).mean(Z, axis=0)
    F = covariance_factor(Z - mean)
    if width is None:
        width = bandwidth(solve_lower(F, (Z - mean).T).T, shrink)
    elif not 0 < width < math.inf:
        raise ValueError(expected("bandwidth", "a positive number", width))
    c = _shrinkage(width) if shrink else 1.0
    return KernelDensity(mean + c * (Z - mean), c * float(width) * F)


def bandwidth(U: Array, shrink: bool = True) -> float:
    """Return h of the largest leave-one-out likelihood with bumps N(0, h²I), to about 2 %.

    A grid from next to nothing to next to a Gaussian, then three finer ones around the best: four
    passes over the distances, which are formed in blocks. O(min(n, 2000) · n · q) a pass.

    Parameters
    ----------
    U : array of shape (n, q)
        White rows: mean 0 and covariance I.
    shrink : bool
        As in `fit_kernel_density`.

    Examples
    --------
    >>> import numpy as np
    >>> U = np.random.default_rng(0).normal(size=(1000, 1))
    >>> 0.1 < bandwidth(U, shrink=False) < 0.4 < bandwidth(U)
    True
    """
    n, q = map(int, U.shape)
    thumb = (4 / (n * (q + 2))) ** (1 / (q + 4))
    low, high, count = math.log(SMALLEST * thumb), math.log(LARGEST), COARSE
    for turn in range(1 + ROUNDS):
        tried = np.exp(np.linspace(low, high, count))
        best = int(np.argmax(leave_one_out(U, tried, shrink)))
        if turn == 0 and best == 0:
            raise DegenerateError(
                "rows repeat each other, and the likelihood of leaving one out grows without end "
                "as the bandwidth shrinks. Give a bandwidth, or leave out repeated rows."
            )
        low, high = np.log(tried[max(best - 1, 0)]), np.log(tried[min(best + 1, count - 1)])
        count = FINE
    return float(tried[best])


def leave_one_out(U: Array, widths: np.ndarray, shrink: bool = True) -> np.ndarray:
    """Return the mean of ln π₋ᵢ(u_i) for every bandwidth, π₋ᵢ being the estimate without u_i.

    ln π₋ᵢ(u_i) = ln Σ_{j≠i} exp(−‖u_i − c u_j‖²/2b²) − ln(n − 1) − q ln b − q/2 ln 2π, with
    b = ch and c = 1/√(1 + h²) if shrunk, 1 if not; mean and covariance stay those of all rows.
    Of many rows 2000, evenly spaced, are left out in turn. All bandwidths share the products.

    Parameters
    ----------
    U : array of shape (n, q)
        White rows.
    widths : array of shape (k,)
    shrink : bool

    Examples
    --------
    >>> import numpy as np
    >>> leave_one_out(np.array([[0.0], [1.0]]), np.array([1.0, 2.0]), shrink=False).round(4)
    array([-1.4189, -1.7371])
    """
    n, q = map(int, U.shape)
    held, norms = np.arange(0, n, -(-n // LEFT_OUT)), _algebra.squared_norms(U)
    c = np.array([_shrinkage(h) if shrink else 1.0 for h in widths])
    totals = np.zeros(len(widths))
    for rows in _array.slices(len(held), _array.block_rows(n, U)):
        P = _without(_array.take(U, held[rows]) @ U.T, held[rows])
        own = _array.take(norms, held[rows])[:, None]
        for k, (a, b) in enumerate(zip(c.tolist(), (c * widths).tolist(), strict=True)):
            E = (2 * a * P - own - a * a * norms) / (2 * b * b)
            totals[k] += float(_sum(log_sum_exp(E)[0]))
    constant = math.log(n - 1) + 0.5 * q * LOG_2PI
    return np.asarray(totals / len(held) - constant - q * np.log(c * widths))


def _shrinkage(h: float) -> float:
    """Return 1/√(1 + h²)."""
    return 1 / math.sqrt(1 + h * h)


def _without(P: Array, own: np.ndarray) -> Array:
    """Return products with −∞ where a row meets itself: it is infinitely far."""
    xp = _array.namespace(P)
    same = xp.asarray(own[:, None] == np.arange(int(P.shape[1])), device=_array.device_of(P))
    return xp.where(same, xp.full_like(P, -math.inf), P)


def _sum(values: Array) -> Array:
    return _array.namespace(values).sum(values)
