"""How far chains can be trusted: effective sample size and split R̂ (Vehtari et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dualpca.errors import expected

LEAST = 4
"""Draws a chain below which neither number means anything."""


def effective_sample_size(draws: np.ndarray) -> np.ndarray:
    """Return how many independent draws the chains are worth: mn / (1 + 2 Σ_t ρ_t).

    Autocorrelations ρ_t come from within and between chains, split in halves; their sum ends
    where pairs ρ_2t + ρ_2t+1 cease to be positive, and pairs are made to fall (Geyer 1992).

    Parameters
    ----------
    draws : array of shape (n, m) or (n, m, q)
        n draws of each of m chains.

    Returns
    -------
    float or array of shape (q,)

    Notes
    -----
    Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Eqs. 10 to 13.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 4))
    >>> bool(3000 < effective_sample_size(x) < 5000)
    True
    """
    return _by_coordinate(draws, _effective)


def r_hat(draws: np.ndarray) -> np.ndarray:
    """Return √(var⁺/W) over chains split in halves: 1 where they agree, more where they do not.

    W is the mean variance within half chains of n draws, B/n the variance between their means, and
    var⁺ = (n − 1)/n · W + B/n.

    Parameters
    ----------
    draws : array of shape (n, m) or (n, m, q)

    Returns
    -------
    float or array of shape (q,)
        NaN where a coordinate never moved.

    Notes
    -----
    Gelman & Rubin (1992), split as in Vehtari et al. (2021), Eqs. 1 to 4.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 4))
    >>> bool(r_hat(x) < 1.01), bool(r_hat(x + [0, 0, 0, 3]) > 1.5)
    (True, True)
    """
    return _by_coordinate(draws, _shrinking)


def _by_coordinate(draws: np.ndarray, measure: Callable[[np.ndarray], float]) -> np.ndarray:
    """Apply a measure of (n, m) half chains to each coordinate."""
    x = np.asarray(draws, dtype=np.float64)
    if x.ndim not in (2, 3) or x.shape[0] < LEAST:
        what = f"of shape (n, m) or (n, m, q) with {LEAST} draws a chain or more"
        raise ValueError(expected("draws", what, x.shape))
    half = x.shape[0] // 2
    x = np.concatenate([x[:half], x[x.shape[0] - half :]], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a coordinate that never moved is NaN
        if x.ndim == 2:
            return np.asarray(measure(x))
        return np.array([measure(x[:, :, p]) for p in range(x.shape[2])])


def _shrinking(x: np.ndarray) -> float:
    within = _within(x)
    return math.sqrt(_pooled(x) / within) if within > 0 else math.nan


def _within(x: np.ndarray) -> float:
    return float(x.var(axis=0, ddof=1).mean())


def _pooled(x: np.ndarray) -> float:
    """Return var⁺, the variance with the means of the chains counted in."""
    n = len(x)
    return (n - 1) / n * _within(x) + float(x.mean(axis=0).var(ddof=1))


def _effective(x: np.ndarray) -> float:
    n, m = x.shape
    pooled = _pooled(x)
    rho = 1 - (_within(x) - n / (n - 1) * _autocovariance(x).mean(axis=1)) / pooled
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(~(pairs > 0))
    pairs = np.minimum.accumulate(pairs[: ends[0] if ends.size else None])
    tau = max(2 * float(pairs.sum()) - 1, 1 / math.log10(n * m))
    return float(n * m / tau) if pooled > 0 else math.nan


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """Return the autocovariances (divisor n) of every chain at all lags, (n, m), by FFT."""
    n = x.shape[0]
    f = np.fft.rfft(x - x.mean(axis=0), n=2 * n, axis=0)
    return np.asarray(np.fft.irfft(np.abs(f) ** 2, n=2 * n, axis=0)[:n] / n)
