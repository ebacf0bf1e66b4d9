"""From a spectrum to a Gaussian: how many directions, how much noise, which are relevant."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError, SelectionWarning, expected, warn
from dualpca.gaussian.selection import PARALLEL, apply_rule, request_names, simulated_horn
from dualpca.gaussian.spiked import LOG_2PI, VARIANCE_ROUNDING, SpikedGaussian
from dualpca.operators import Scatter, Spectrum
from dualpca.solvers import solve

# --- From a spectrum to a Gaussian: how much noise -----------------------------------------------

NEGLIGIBLE_EXCESS = 1e-6
"""Share of the trace that an excess of the noise must have to be more than lost digits."""

NO_NOISE = 1e-15
"""Smallest noise of complete rows, as a share of the average variance: below is rounding error."""

NULL_VARIANCE = 1e-12
"""Share of the largest variance below which a direction has none, where the noise is 0."""

LEAST_NOISE = 1e-11
"""The same where values are missing: below it posteriors lose their digits."""

HEYWOOD = 1e-4
"""Smallest noise of a single feature, as a share of its variance (Heywood cases)."""


def has_vanished(noise: float, unit: float, least: float = LEAST_NOISE) -> bool:
    """Return True if an estimated noise is so close to its floor that it may be zero.

    `unit` is the average variance, `least` the floor as a share of it.
    """
    return noise <= 10 * least * unit


def left_over(trace: float, explained: float) -> float:
    """Return the variance that is not explained; 0 where only rounding error is left."""
    rest = trace - explained
    return rest if rest > VARIANCE_ROUNDING * trace else 0.0


def spiked_gaussian(
    spectrum: Spectrum, n: float, *, noise: float | None = None, q: int | None = None
) -> SpikedGaussian:
    """Return the Gaussian of a spectrum: where every closed-form model gets its σ², and its q.

    Parameters
    ----------
    spectrum : Spectrum
    n : float
        Effective number of points, or another divisor of the variances.
    noise : float, optional
        σ²; that of maximum likelihood by default.
    q : int, optional
        Number of directions. By default all that the spectrum holds, or, where `noise` is given,
        those whose variance exceeds it.
    """
    if noise is None:
        return maximum_likelihood(spectrum, n, spectrum.rank if q is None else q)
    return given_noise(spectrum, n, noise, q)


def maximum_likelihood(spectrum: Spectrum, n: float, q: int) -> SpikedGaussian:
    """Return the model of q directions with the noise of maximum likelihood.

    σ² = (tr − Σ_{p≤q} λ_p) / (n (r − q)) (theory 2.2; Tipping & Bishop 1999, Eq. 8): the discarded
    spectrum is never computed. Noise 0 means that the q directions explain everything.

    Examples
    --------
    >>> import numpy as np
    >>> s = Spectrum(np.array([6.0]), np.eye(3)[:, :1], trace=10.0, dim=3)
    >>> maximum_likelihood(s, n=2, q=1).noise
    1.0
    """
    most = min(spectrum.rank, spectrum.dim)
    if not 0 <= q <= most:
        raise ValueError(expected("the number of components", f"between 0 and {most}", q))
    values, rest = spectrum.values[:q], spectrum.dim - q
    explained = float(backend.namespace(values).sum(values))
    noise = left_over(spectrum.trace, explained) / (n * rest) if rest else 0.0
    smallest = float(values[-1]) / n if q else math.inf
    # Noise above ℓ_q is an error of the solver, or rounding: a centred kernel has lost digits,
    # since centring subtracts squared norms. Only an excess that is a real share of the variance
    # says that the space is too small for the operator.
    slack = 1e-3 * smallest + (spectrum.error + NEGLIGIBLE_EXCESS) * spectrum.trace / n
    if noise - smallest > slack:
        raise ValueError(
            f"the noise of maximum likelihood, {noise:.6g}, exceeds the smallest variance kept, "
            f"{smallest:.6g}: dim={spectrum.dim} is below the rank of the operator. Raise dim."
        )
    return SpikedGaussian(values / n, min(noise, smallest), spectrum.dim)


def given_noise(spectrum: Spectrum, n: float, noise: float, q: int | None = None) -> SpikedGaussian:
    """Return the model of noise σ²; by default q is the number of ℓ_p > σ².

    De Plaen & Suykens 2023, Eq. 6.

    Examples
    --------
    >>> import numpy as np
    >>> s = Spectrum(np.array([6.0, 3.0, 1.0]), np.eye(3), trace=10.0, dim=3)
    >>> given_noise(s, n=1, noise=2.0).rank
    2
    """
    check_noise(noise, zero=True)
    values = spectrum.values / n
    least = noise if noise > 0 else NULL_VARIANCE * float(values[0] if spectrum.rank else 0.0)
    above = int(backend.to_numpy(values > least).sum())
    if above == 0:
        largest = float(values[0]) if spectrum.rank else 0.0
        what = f"below the largest variance {largest:.6g}"
        raise ValueError(expected("noise_variance", what, noise))
    if q is not None and q > above:
        raise ValueError(
            f"only {above} directions have a variance above noise_variance={noise:.6g}, but "
            f"{q} components were asked for. Lower one of the two."
        )
    return SpikedGaussian(values[: above if q is None else q], float(noise), spectrum.dim)


def check_noise(noise: Any, *, zero: bool = False) -> None:
    """Refuse a noise variance that is not a positive number, or 0 if `zero` is a model too."""
    real = isinstance(noise, Real) and not isinstance(noise, bool)
    if not real or not (math.isfinite(noise) and (noise > 0 or (zero and noise == 0))):
        what = "a positive number, 0 or None" if zero else "a positive number or None"
        raise ValueError(expected("noise_variance", what, noise))


# --- How many components a user asked for: a count, a share of the variance, or a rule -----------


def leading(
    request: Any, operator: Any, count: int, *, solver: str, tol: float = 0.0, seed: Any = 0
) -> Spectrum:
    """Return the eigenpairs asked for: as many as the request says, or as its rule finds.

    Parameters
    ----------
    request : int, float, str or None
        None is all of them, min(n, d). What needs rows is a number by now: cross-validation, and
        'parallel' but for a stream, of which there are moments alone.
    operator : Primal or Scatter
    count : int
        Number of rows.
    solver, tol, seed
        As in `dualpca.solvers.solve`.
    """
    if request == PARALLEL:
        scaled = Scatter(operator.moments, standardize=True)
        request = at_least_one(PARALLEL, simulated_horn(scaled))
    rank = max(int(request), 1) if is_count(request) else min(count, operator.dim)
    spectrum = solve(operator, rank, solver, tol, seed)
    if request is None:
        return spectrum
    if is_count(request):
        return spectrum.head(int(request))
    if is_share(request):
        return spectrum.head(share_count(float(request), spectrum))
    positive = int((backend.to_numpy(spectrum.values) > VARIANCE_ROUNDING * spectrum.trace).sum())
    if request == "mle" and positive < spectrum.dim:
        return spectrum.head(max(positive, 1))  # no noise: the evidence of the rank is infinite
    name = "evidence" if request == "mle" else request
    about = (spectrum.values, spectrum.trace, spectrum.dim, operator.n)
    return spectrum.head(at_least_one(name, apply_rule(name, *about)))


def check_request(request: Any, count: int, d: int, solver: str) -> None:
    """Refuse a request that no data could satisfy, or that `count` rows of d features cannot."""
    known = request is None or is_count(request) or is_share(request)
    if not known and request not in request_names():
        what = f"None, an int, a share between 0 and 1, or one of {list(request_names())}"
        raise ValueError(expected("n_components", what, request))
    if is_count(request) and not 0 <= request <= min(count, d):
        raise ValueError(
            f"n_components={request} must be between 0 and min(n_samples, n_features)="
            f"{min(count, d)} with svd_solver={solver!r}"
        )
    if request == "mle" and count < d:
        raise ValueError(
            "n_components='mle' is only supported if n_samples >= n_features, got "
            f"{count} and {d}. Use 'evidence', 'parallel' or 'cv'."
        )


def is_count(request: Any) -> bool:
    """Return True if the request is a whole number."""
    if type(request) is int:
        return True
    return isinstance(request, Integral) and not isinstance(request, bool | np.bool_)


def is_share(request: Any) -> bool:
    """Return True if the request is a share of the variance."""
    return isinstance(request, Real) and not is_count(request) and 0 < float(request) < 1


def share_count(share: float, spectrum: Spectrum) -> int:
    """Return the smallest q whose share of the variance is greater than the one asked for."""
    if spectrum.trace == 0:
        return min(1, spectrum.rank)
    ratios = np.cumsum(backend.to_numpy(spectrum.values)) / spectrum.trace
    return min(int(np.searchsorted(ratios, share, side="right")) + 1, spectrum.rank)


def at_least_one(name: str, q: int) -> int:
    """Return q, or 1 with a warning where a rule finds nothing above the noise."""
    if q < 1:
        what = f"the rule {name!r} finds no component above the noise; one is kept."
        warn(what, SelectionWarning)
    return max(q, 1)


# --- Automatic relevance determination from the spectrum: PCA that finds its own dimension -------
#
# Every column of W has its own prior, w_i ~ N(0, α_i⁻¹ I_r), and α_i = r/w_iᵀw_i is
# re-estimated between EM steps (Bishop 1999). From a start on the eigenvectors a step never leaves
# them, so EM is a map on the squared lengths u_i = w_iᵀw_i and on σ². With ρ = r/n its fixed points
# solve
#
#     (1 + ρ) u² − (ℓ − (1 + 2ρ) σ²) u + ρ σ⁴ = 0,    r σ² = tr/n − Σ_kept ((1 + ρ) u_i + 2ρ σ²).
#
# The quadratic has a root only where ℓ ≥ (√ρ + √(1 + ρ))² σ²: a direction below is switched off.

Host = np.ndarray[Any, np.dtype[np.float64]]

NEWTON_STEPS = 100
"""Largest number of Newton steps between two switches; quadratic convergence needs a handful."""


class SquaredLengths(NamedTuple):
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
        values = backend.asarray(self.u[self.kept] + self.sigma2, like)
        return SpikedGaussian(values, self.sigma2, dim)


def threshold(rho: float) -> float:
    """Return (√ρ + √(1 + ρ))², ρ = r/n: the ℓ/σ² below which a direction is switched off.

    Examples
    --------
    >>> round(threshold(10 / 300), 4)
    1.4379
    """
    return (math.sqrt(rho) + math.sqrt(1 + rho)) ** 2


def fit_relevance(spectrum: Spectrum, n: float, noise: float | None = None) -> SquaredLengths:
    """Return the fixed point of EM with α re-estimated (theory 5.1), from maximum likelihood on.

    From there σ² only rises and lengths only fall (the map is monotone), so the limit is the
    smallest σ² that reproduces itself. Between two switches that equation is convex in σ²: Newton
    climbs to its first root from the left and never passes it; where there is none, the
    weakest direction is switched off and the climb continues.

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
    SquaredLengths

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
    ell = backend.to_numpy(spectrum.values).astype(np.float64) / spectrum.trace
    rho, rest = spectrum.dim / n, spectrum.dim - ell.size
    if noise is not None:
        check_noise(noise)
        return SquaredLengths(lengths(ell, noise / unit, rho) * unit, noise)
    sigma2 = left_over(1.0, float(ell.sum())) / rest if rest else 0.0
    if sigma2 <= 0:
        refuse_no_noise(ell.size)
    sigma2, steps = _least_fixed_point(ell, sigma2, rho, spectrum.dim)
    return SquaredLengths(lengths(ell, sigma2, rho) * unit, sigma2 * unit, steps)


def refuse_no_noise(q: int) -> None:
    """Raise because q directions explain everything."""
    raise DegenerateError(
        f"{q} directions leave no variance for noise, so nothing is irrelevant beside it. Start "
        "from fewer components (below the rank of the data), or give noise_variance."
    )


def _least_fixed_point(ell: Host, sigma2: float, rho: float, dim: int) -> tuple[float, int]:
    """Climb to the smallest σ² that reproduces itself, in units of tr/n; count the steps."""
    k, kept, steps = threshold(rho), ell, 0
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

    From below the smaller root EM switches the direction off.
    """
    root = np.sqrt(_discriminant(ell, sigma2, rho))
    u = (ell - (1 + 2 * rho) * sigma2 + root) / (2 * (1 + rho))
    return np.where(ell > threshold(rho) * sigma2, u, 0.0)


def loglikelihood(spectrum: Spectrum, n: float, at: SquaredLengths) -> float:
    """Return Σ ln p(x) of the n points, −n/2 {r ln 2π + Σ ln m + (r−q) ln σ² + tr(C⁻¹S)}. O(q)."""
    ell, m = backend.to_numpy(spectrum.values).astype(np.float64) / n, at.u + at.sigma2
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
