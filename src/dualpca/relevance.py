"""Automatic relevance determination from the spectrum: PCA that finds its own dimension (MATH 5).

Every column of W has a prior of its own, w_i ~ N(0, α_i⁻¹ I_r), and α_i = r/w_iᵀw_i is re-estimated
between EM steps (Bishop 1999). From a start on the eigenvectors a step never leaves them, so EM is
a map on the squared lengths u_i = w_iᵀw_i and on σ². With ρ = r/n its fixed points solve

    (1 + ρ) u² − (ℓ − (1 + 2ρ) σ²) u + ρ σ⁴ = 0,    r σ² = tr/n − Σ_kept ((1 + ρ) u_i + 2ρ σ²).

The quadratic has a root only where ℓ ≥ (√ρ + √(1 + ρ))² σ²: a direction below is switched off.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import DegenerateError
from dualpca.gaussian import LOG_2PI, SpikedGaussian
from dualpca.rules import check_noise, left_over
from dualpca.spectrum import Spectrum

Host = np.ndarray[Any, np.dtype[np.float64]]

NEWTON_STEPS = 100
"""Largest number of Newton steps between two switches; quadratic convergence takes a handful."""


class Lengths(NamedTuple):
    """Squared lengths of the columns of W along the eigenvectors, and the noise."""

    u: Host  # (q,), wᵀw; 0 for a direction that is switched off
    sigma2: float
    n_iter: int = 0

    @property
    def kept(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True for the directions that are not switched off, (q,)."""
        return self.u > 0

    def gaussian(self, dim: int, like: Array) -> SpikedGaussian:
        """Return the Gaussian of the directions kept, with variances u + σ²."""
        values = _array.asarray(self.u[self.kept] + self.sigma2, like)
        return SpikedGaussian(values, self.sigma2, dim)


def threshold(n: float, dim: int) -> float:
    """Return (√ρ + √(1 + ρ))², ρ = r/n: the ℓ/σ² below which a direction is switched off.

    Examples
    --------
    >>> round(threshold(300, 10), 4)
    1.4379
    """
    return _threshold(dim / n)


def fit_relevance(spectrum: Spectrum, n: float, noise: float | None = None) -> Lengths:
    """Return the fixed point of MATH 5.1, EM with α re-estimated, reached from maximum likelihood.

    From there σ² only rises and lengths only fall (the map is monotone), so the limit is the
    smallest σ² that reproduces itself. Between two switches that equation is convex in σ²: Newton
    climbs to its first root from the left and never leaps over it; where there is none, the
    weakest direction is switched off and the climb goes on.

    Parameters
    ----------
    spectrum : Spectrum
        The directions to start from: features or kernel alike; its vectors are not read.
    n : float
        Effective number of points.
    noise : float, optional
        Fixed σ².

    Returns
    -------
    Lengths

    Notes
    -----
    O(q) a Newton step, on the host. Bishop (1999), "Bayesian PCA", section 3.

    Examples
    --------
    >>> import numpy as np
    >>> s = Spectrum(np.array([500.0, 400.0, 110.0, 100.0]), np.eye(5)[:, :4], 1200.0, 5)
    >>> found = fit_relevance(s, n=100)
    >>> found.kept, round(found.sigma2, 3)
    (array([ True,  True, False, False]), 1.011)
    """
    unit = spectrum.trace / n  # squares of ℓ would overflow in the units of large data
    ell = _array.to_numpy(spectrum.values).astype(np.float64) / spectrum.trace
    rho, rest = spectrum.dim / n, spectrum.dim - ell.size
    if noise is not None:
        check_noise(noise)
        return Lengths(lengths(ell, noise / unit, rho) * unit, noise)
    sigma2 = left_over(1.0, float(ell.sum())) / rest if rest else 0.0
    if sigma2 <= 0:
        refuse_no_noise(ell.size)
    sigma2, steps = _least_fixed_point(ell, sigma2, rho, spectrum.dim)
    return Lengths(lengths(ell, sigma2, rho) * unit, sigma2 * unit, steps)


def refuse_no_noise(q: int) -> None:
    """Raise because q directions explain everything."""
    raise DegenerateError(
        f"{q} directions leave no variance for noise, so nothing is irrelevant beside it. Start "
        "from fewer components (below the rank of the data), or give noise_variance."
    )


def _least_fixed_point(ell: Host, sigma2: float, rho: float, dim: int) -> tuple[float, int]:
    """Climb to the smallest σ² that reproduces itself, in units of tr/n; count the steps."""
    k, kept, steps = _threshold(rho), ell, 0
    while True:
        kept = kept[kept > k * sigma2]
        edge = float(kept.min()) / k if kept.size else math.inf
        for _ in range(NEWTON_STEPS):
            steps += 1
            excess, slope = _excess(kept, sigma2, rho, dim)
            moved = sigma2 - excess / slope if slope < 0 else math.inf
            if excess <= 0 or moved <= sigma2 * (1 + 1e-15):
                return sigma2, steps
            if moved >= edge:  # convex and positive so far: no root before the edge
                break
            sigma2 = moved
        sigma2, kept = max(sigma2, edge), kept[kept > kept.min()]


def _excess(kept: Host, sigma2: float, rho: float, dim: int) -> tuple[float, float]:
    """Return 1 − Σ ((1 + ρ) u + 2ρσ²) − rσ², where tr/n = 1, and its derivative by σ²."""
    root = np.sqrt(_discriminant(kept, sigma2, rho))
    bend = np.where(root > 0, (sigma2 - (1 + 2 * rho) * kept) / np.where(root > 0, root, 1), -1e300)
    grown = 0.5 * (kept - (1 + 2 * rho) * sigma2 + root) + 2 * rho * sigma2
    slope = 0.5 * (bend - (1 + 2 * rho)) + 2 * rho
    return 1.0 - float(grown.sum()) - dim * sigma2, -float(slope.sum()) - dim


def _discriminant(ell: Host, sigma2: float, rho: float) -> Host:
    """Return (ℓ − σ²)² − 4ρℓσ², the discriminant of the quadratic in u; 0 where it is negative."""
    return np.maximum((ell - sigma2) ** 2 - 4 * rho * ell * sigma2, 0.0)


def lengths(ell: Host, sigma2: float, rho: float) -> Host:
    """Return the stable squared lengths u given σ², (q,): the larger root; 0 where there is none.

    The smaller root is the watershed: from below it EM switches the direction off.
    """
    root = np.sqrt(_discriminant(ell, sigma2, rho))
    u = (ell - (1 + 2 * rho) * sigma2 + root) / (2 * (1 + rho))
    return np.where(ell > _threshold(rho) * sigma2, u, 0.0)


def _threshold(rho: float) -> float:
    return (math.sqrt(rho) + math.sqrt(1 + rho)) ** 2


def loglikelihood(spectrum: Spectrum, n: float, at: Lengths) -> float:
    """Return Σ ln p(x) of the n points, −n/2 {r ln 2π + Σ ln m + (r−q) ln σ² + tr(C⁻¹S)}. O(q)."""
    ell, m = _array.to_numpy(spectrum.values).astype(np.float64) / n, at.u + at.sigma2
    logdet = float(np.log(m).sum()) + (spectrum.dim - m.size) * math.log(at.sigma2)
    inside = float((ell / m).sum()) + (spectrum.trace / n - float(ell.sum())) / at.sigma2
    return -0.5 * n * (spectrum.dim * LOG_2PI + logdet + inside)


def penalty(u: Host, dim: int) -> float:
    """Return −½Σ α_i u_i + (r/2) Σ ln α_i at α_i = r/u_i, over the directions kept.

    The log-likelihood plus this is what EM raises at every step. A direction on its way out raises
    it without bound, which is why those switched off are left out.
    """
    u = u[u > 0]
    return 0.5 * dim * float(np.sum(np.log(dim / u) - 1))
