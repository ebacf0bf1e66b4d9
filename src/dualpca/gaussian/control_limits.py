"""T² and SPE of rows, and their control limits, which are frozen at fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dualpca.arrays import EPS, Array, backend, outer, pack, unpack
from dualpca.gaussian.observed import NO_INFORMATION, Factors, joined, readable
from dualpca.gaussian.spiked import SpikedGaussian
from dualpca.operators import Frame, Spectrum

# --- Limits for new rows, frozen at fit: what T² and SPE may be for ordinary rows ---------

Floats = NDArray[np.float64]

PROBES = 8
"""Random vectors that measure the residual spectrum where it cannot be had by subtraction.

Eight find Σℓ² within 8 % for spectra from flat to k^(-1/2), within 25 % for 1/k; SPE limits move by
about a fifth of that.
"""

LOST_DIGITS = 1e-12
"""Share of a sum below which a difference of two such sums has lost most of its digits."""


@dataclass(frozen=True)
class Reference:
    """What limits need to know of the training rows, and no other fitted attribute says.

    Parameters
    ----------
    n : float
        Effective number of rows: the sum of the weights; with missing values, the observed
        entries over the number of features.
    divisor : float
        Of the model's variances: n, or n − 1.
    dof : float, optional
        Effective number of residual directions, (Σℓ)²/Σℓ² over the discarded variances. None: as
        many as there are, which is what equal variances give.
    tails: float
        ν, where rows follow a multivariate t with so many degrees of freedom; infinite for the
        Gaussian.
    """

    n: Annotated[float, "> 0"]
    divisor: Annotated[float, "> 0"]
    dof: Annotated[float, ">= 0, or inf"] | None = None
    tails: Annotated[float, "> 0, or inf"] = math.inf


class Law(NamedTuple):
    """statistic / scale ~ F(dfn, dfd), row by row."""

    scale: Floats  # (n,)
    dfn: Floats  # (n,)
    dfd: Floats  # (n,)

    def limit(self, level: float | Floats) -> Floats:
        """Return the values that a share `level` (of all rows, or row by row) stays below, (n,).

        0 where there is nothing to measure, infinity where the training rows leave nothing to
        judge by (as many components as rows).
        """
        judged, dfn, dfd = self._judged
        nothing = np.where(self.dfn <= 0, 0.0, np.inf)
        return np.where(judged, self.scale * special.fdtri(dfn, dfd, level), nothing)

    def pvalue(self, statistic: Floats) -> Floats:
        """Return the share of ordinary rows with a larger statistic, (n,)."""
        judged, dfn, dfd = self._judged
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(statistic > 0, statistic / self.scale, 0.0)
        tail = np.where(np.isinf(ratio), 0.0, special.fdtrc(dfn, dfd, np.minimum(ratio, 1e300)))
        return np.where(judged, tail, 1.0)

    @property
    def judges(self) -> NDArray[np.bool_]:
        """Rows that F judges, (n,): there is something to measure, and something to judge by."""
        return (self.dfn > 0) & (self.dfd > 0)

    @property
    def _judged(self) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Rows that F judges, and degrees of freedom, with 1 for the others."""
        judged = self.judges
        return judged, np.where(judged, self.dfn, 1.0), np.where(judged, self.dfd, 1.0)


def residual_dof(operator: Any, spectrum: Spectrum, n: float) -> float:
    """Return (Σℓ)²/Σℓ² over the discarded variances, without computing them.

    Σλ² of all is ‖A‖²_F, which direct solvers know and block Krylov extrapolates if a product
    with A is expensive; that of the discarded ones is the difference, or else (or where the
    difference is lost) a mean over random probes. An excess of θ₁²/ν that sampling adds to Σℓ² is
    subtracted (Srivastava 2005), ν = n − 1 − q.

    Parameters
    ----------
    operator : Operator
        A, the scatter of the training rows.
    spectrum : Spectrum
        Its q leading eigenpairs.
    n : float
        Effective number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.operators import Primal
    >>> from dualpca.solvers import solve
    >>> X = np.random.default_rng(0).normal(size=(5000, 4)) * [9.0, 2.0, 2.0, 1.0]
    >>> A = Primal(X)
    >>> round(residual_dof(A, solve(A, 1), 5000), 1)  # (4 + 4 + 1)² / (16 + 16 + 1) = 2.45
    2.5
    """
    rest, nu = spectrum.dim - spectrum.rank, n - 1 - spectrum.rank
    if rest == 0 or not spectrum.trace > 0 or nu <= 1:
        return float(rest)
    p = spectrum.values / spectrum.trace  # shares of the variance: their squares cannot overflow
    first = 1 - float(backend.namespace(p).sum(p))
    if not first > LOST_DIGITS:
        return float(rest)
    everything, kept = spectrum.concentration, float(backend.namespace(p).sum(p * p))
    if everything is not None and everything - kept > LOST_DIGITS * everything:
        second = everything - kept
    else:
        second = _probed_squares(operator, spectrum, first)
    second = (second - first * first / nu) * nu * nu / ((nu - 1) * (nu + 2))
    return float(np.clip(first * first / max(second, 1e-300), 1.0, rest))


def _probed_squares(operator: Any, spectrum: Spectrum, first: float) -> float:
    """Return tr R² of A/tr A off the eigenvectors: Hutchinson's estimate, scaled by the known tr R.

    E gᵀR²g = tr R² and E gᵀRg = tr R for g ~ N(0, I); their errors go together, and for a flat
    spectrum cancel. One product of A with `PROBES` vectors.
    """
    V = spectrum.vectors
    xp = backend.namespace(V)
    G = backend.normal(np.random.default_rng(0), (int(V.shape[0]), PROBES), V)
    G = G - V @ (V.T @ G)
    R = (operator @ G) / spectrum.trace
    R = R - V @ (V.T @ R)
    return first * float(xp.sum(R * R)) / float(xp.sum(G * R))


# --- T² and SPE: how far a row is from the mean within the model's span, and how far off it ----
#
# T² = yᵀ Var(y)⁻¹ y of a row's coordinates (Hotelling 1931), SPE = the squared residual (Jackson &
# Mudholkar 1979). Under the model the two are independent, T² ~ χ²_q and SPE/σ² ~ χ²_{d−q}, and
# T² + SPE/σ² is the squared Mahalanobis distance from the mean: what `score_samples` measures.


class Degrees(NamedTuple):
    """What each row can be judged by."""

    k: Floats  # (n,), latent dimensions that the row's features determine
    dof: Floats  # (n,), effective number of residual directions
    mean: Floats  # (n,), expected SPE


class Statistics(NamedTuple):
    """Both statistics of every row, and what they are to be compared with."""

    t2: Array  # (n,)
    spe: Array  # (n,)
    degrees: Degrees


class _Judged(NamedTuple):
    """The fields of `Outliers`."""

    flagged: Array
    t2: Array
    spe: Array
    t2_limit: Array
    spe_limit: Array
    t2_pvalue: Array
    spe_pvalue: Array


class Outliers(_Judged):
    """Which rows are unusual, and why.

    Of ordinary rows a share 1 − `level` is flagged, by one statistic or the other: `expected` is
    that number of rows, to be compared with the number found.

    Parameters
    ----------
    flagged : array of bool, shape (n,)
        T² or SPE above its limit.
    t2, spe : arrays of shape (n,)
    t2_limit, spe_limit : arrays of shape (n,)
        Each row's own: a row with NaN has fewer directions, and lower limits. Each is at √level,
        so that both together hold at `level`; at `level` itself where the other statistic has
        nothing to measure.
    t2_pvalue, spe_pvalue : arrays of shape (n,)
        Share of ordinary rows further out: comparable between rows with different missing values.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(2000, 6))
    >>> found = PPCA(2).fit(X[:1000]).outliers(X[1000:])
    >>> int(found.flagged.sum()), round(found.expected)
    (53, 50)
    """

    level: float = math.nan
    """Share of ordinary rows that is not flagged."""

    def at(self, level: float) -> Outliers:
        """Return the same findings, with the level they were found at.

        Parameters
        ----------
        level : float
            Share of ordinary rows that is not flagged.

        Returns
        -------
        found : Outliers

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).outliers(X).at(0.95).level
        0.95
        """
        found = Outliers(*self)
        found.level = level
        return found

    @property
    def expected(self) -> float:
        """Number of flagged rows if all are ordinary: (1 − level)·n.

        Rows that nothing can be said of (nothing observed) are not counted.
        """
        limits = np.stack([backend.to_numpy(part) for part in (self.t2_limit, self.spe_limit)])
        judged = np.any((limits > 0) & np.isfinite(limits), axis=0)
        return (1 - self.level) * int(np.count_nonzero(judged))


@dataclass(frozen=True)
class SpikedMonitor:
    """Complete rows under N(μ, Σ (ℓ − σ²) v vᵀ + σ²I): PCA and PPCA.

    T² = Σ y_p²/ℓ_p over the axes that vary, SPE = ‖x − μ‖² − Σ y_p² (theory 16.1), in the units
    of the frame.

    Parameters
    ----------
    gaussian : SpikedGaussian
    frame : Frame
    V : array of shape (d, q)
    reference : Reference
    floor : float
        Rounding error of V: a residual below this share of its row counts as zero.
    """

    gaussian: SpikedGaussian
    frame: Frame
    V: Array
    reference: Reference
    floor: float

    @property
    def _inverse(self) -> Array:
        """1/ℓ, and 0 for a direction without variance, (q,)."""
        xp, ell = backend.namespace(self.V), self.gaussian.values
        if not self.gaussian.rank:
            return ell
        # as in PCA's whitening: below this there is only rounding error
        least = EPS * float(xp.max(ell)) * max(self.V.shape)
        varies = ell > least
        return xp.where(varies, 1 / xp.where(varies, ell, xp.ones_like(ell)), xp.zeros_like(ell))

    def degrees(self, n: int = 1) -> Degrees:
        """Return those of complete rows: the same for every row."""
        rest = self.gaussian.dim - self.gaussian.rank
        k = float(np.count_nonzero(backend.to_numpy(self._inverse)))
        dof = float(rest) if self.reference.dof is None else self.reference.dof
        return Degrees(*(np.full(n, value) for value in (k, dof, self.gaussian.noise * rest)))

    def statistics(self, X: Array) -> Statistics:
        """Return T² and SPE of rows, dense or sparse; O(dq) per row."""
        xp = backend.namespace(X)
        Y, residual = self.frame.project(self.V, X)
        squares = Y * Y
        size = xp.sum(squares, axis=1) + residual + float(self.frame.mean @ self.frame.mean)
        seen = (residual > self.floor**2 * size) & (self.gaussian.rank < self.gaussian.dim)
        # what is not finite is kept, for the caller to find
        residual = xp.where(seen | ~xp.isfinite(residual), residual, xp.zeros_like(residual))
        return Statistics(squares @ self._inverse, residual, self.degrees(int(X.shape[0])))

    def roots(self, X: Array) -> tuple[Array, Array]:
        """Return the signed roots of the contributions to T² and SPE, (n, d) each.

        V L^{-1/2} Vᵀ(x − μ), and the residual: their squares sum to T² and to SPE.
        """
        C = self.frame.center(backend.row_block(backend.rowwise(X), slice(None)))
        Y = C @ self.V
        inside = (Y * backend.namespace(Y).sqrt(self._inverse)) @ self.V.T
        outside = C - Y @ self.V.T
        return inside, outside if self.gaussian.rank < self.gaussian.dim else 0 * outside


@dataclass(frozen=True)
class FactorMonitor:
    """Rows with missing values, or a separate noise for every feature: x = Wz + μ + ε.

    With r = Ψ_o^{-1/2}(x_o − μ_o) and Ψ_o^{-1/2}W_o = U S Qᵀ over the observed entries,
    T² = Σ (u_pᵀr)²/(1 + s_p²) and SPE = unit·‖r − UUᵀr‖²: z̄ᵀ Var(z̄)⁻¹ z̄ of the posterior mean, and
    the residual of generalised least squares. They are independent, T² ~ χ²_k and SPE/unit ~
    χ²_{|o|−k} with k = rank W_o, whatever is missing; for PPCA's complete rows both are those of
    `SpikedMonitor`.

    Parameters
    ----------
    factors : Factors
    reference : Reference
    unit : float
        σ² for PPCA, whose SPE is in the units of the data; 1 where features differ in noise.
    """

    factors: Factors
    reference: Reference
    unit: float = 1.0

    def degrees(self) -> Degrees:
        """Return those of complete rows."""
        ones = backend.asarray(np.ones((1, int(self.factors.W.shape[0]))), self.factors.W)
        return self._degrees(ones, self._directions(ones)[0])

    def _degrees(self, mask: Array, a: Array) -> Degrees:
        k = backend.to_numpy(a > 0).sum(axis=1).astype(np.float64)
        dof = backend.to_numpy(mask).sum(axis=1) - k
        return Degrees(k, dof, self.unit * dof)

    @property
    def _loadings(self) -> Array:
        """Ψ^{-1/2}W, (d, q)."""
        return self.factors.W / backend.namespace(self.factors.W).sqrt(self.factors.psi)[:, None]

    def _directions(self, masks: Array) -> tuple[Array, Array]:
        """Return s² (p, q), 0 where there is no information, and Q (p, q, q) of every mask."""
        xp, B = backend.namespace(masks), self._loadings
        a, Q = xp.linalg.eigh(unpack(masks @ pack(outer(B)), int(B.shape[1])))
        real = a > NO_INFORMATION * xp.sum(xp.abs(a), axis=1)[:, None]
        return xp.where(real, a, xp.zeros_like(a)), Q

    def _parts(self, X: Array) -> Iterator[tuple[Array, Array, Degrees]]:
        """Yield the roots of each block's contributions, and what its rows can be judged by."""
        xp, B = backend.namespace(X), self._loadings
        for block in readable(self.factors, X).blocks(self.factors.mu):
            masks = block.mask if block.first is None else backend.take(block.mask, block.first)
            a, Q = self._directions(masks)
            if block.pattern is not None:  # found once for rows that miss the same features
                a, Q = backend.take(a, block.pattern), backend.take(Q, block.pattern)
            r = block.R / xp.sqrt(self.factors.psi)
            # z = S⁻² Qᵀ Bᵀ r, so that U Uᵀ r = B Q z
            z = ((r @ B)[:, None, :] @ Q)[:, 0, :] / xp.where(a > 0, a, xp.ones_like(a))
            z = xp.where(a > 0, z, xp.zeros_like(z))
            inside, fitted = (
                block.mask * ((Q @ part[:, :, None])[:, :, 0] @ B.T)
                for part in (z / xp.sqrt(1 + a), z)
            )
            degrees = self._degrees(block.mask, a)
            some = backend.asarray(degrees.dof > 0, B)[:, None]
            yield inside, self.unit**0.5 * some * (r - fitted), degrees

    def statistics(self, X: Array) -> Statistics:
        """Return T² and SPE of each row's observed entries.

        O(dq + q²) per row, O(dq² + q³) per pattern of missing values.
        """
        xp, found, degrees = backend.namespace(X), [], []
        for *roots, one in self._parts(X):
            found.append([xp.sum(part * part, axis=1) for part in roots])
            degrees.append(one)
        t2, spe = joined(found)
        return Statistics(t2, spe, Degrees(*joined(degrees)))

    def roots(self, X: Array) -> tuple[Array, Array]:
        """Return the roots of the contributions, (n, d) each; 0 where nothing was observed."""
        inside, outside = joined([part[:2] for part in self._parts(X)])
        return inside, outside


Monitor = SpikedMonitor | FactorMonitor


def laws(reference: Reference, degrees: Degrees) -> tuple[Law, Law]:
    """Return the laws of T² and SPE for rows that were not fitted to (theory 16.2 and 16.3).

    T² ~ k (n² − 1)/(n (n − k)) F_{k, n−k} for variances with divisor n − 1 (Hotelling 1931;
    Jackson 1991), and n/(n − 1) times that for divisor n. Axes count as known.

    SPE ~ mean/dof χ²_dof (Box 1954), with an F in place of χ² since the mean is estimated from
    (n − 1 − k)·dof squares. The axes fit their own rows too well and new ones too little: training
    residuals are smaller by (n − 1 − k)/divisor, new ones larger by (1 + 1/n)(1 + k/n).

    Under a t with ν degrees of freedom T²/k ~ F_{k,ν} and SPE/mean ~ F_{dof,ν}: the inverse degrees
    of freedom below, of the estimate and of the tails, add.
    """
    (k, dof, mean), n, divisor = degrees, reference.n, reference.divisor
    left = n - 1 - k
    scale = divisor * k * (n + 1) / (n * np.maximum(n - k, 1e-300))
    grown = divisor / np.maximum(left, 1e-300) * (1 + 1 / n) * (1 + k / n)
    below = (_with_tails(dfd, reference.tails) for dfd in (n - k, dof * left))
    return Law(scale, k, next(below)), Law(mean * grown, dof, next(below))


def _with_tails(dfd: Floats, tails: float) -> Floats:
    """Return degrees of freedom below F, where an ordinary row has ν of its own."""
    if math.isinf(tails):
        return dfd
    return np.where(dfd > 0, 1 / (1 / np.maximum(dfd, 1e-300) + 1 / tails), dfd)


NODES = 64
"""Points of the quadrature over the scale of a row."""


def each_level(level: float, degrees: Degrees, tails: float) -> Floats:
    """Return the level of each of two limits that hold at `level` together, (n,).

    √level for the Gaussian, where T² and SPE are independent. Under a t they are so given the
    row's u ~ Gamma(ν/2, ν/2), over which their joint probability is integrated.

    Examples
    --------
    >>> degrees = Degrees(np.array([2.0]), np.array([3.0]), np.array([3.0]))
    >>> [each_level(0.95, degrees, tails).round(4) for tails in (3.0, np.inf)]
    [array([0.9684]), array([0.9747])]
    """
    both = (degrees.k > 0) & (degrees.dof > 0)
    found = np.where(both, level**0.5, level)
    if math.isinf(tails):
        return found
    x, weights = np.polynomial.legendre.leggauss(NODES)
    u = special.gammaincinv(tails / 2, (x + 1) / 2) * 2 / tails
    pairs = np.stack([degrees.k, degrees.dof], axis=1)[both]
    kinds, place = np.unique(pairs, axis=0, return_inverse=True)

    def together(p: float, k: float, dof: float) -> float:
        reach = (m * special.fdtri(m, tails, p) * u for m in (k, dof))
        inside = [special.chdtr(m, x) for m, x in zip((k, dof), reach, strict=True)]
        return float(weights @ (inside[0] * inside[1]) / 2)

    levels = []
    for k, dof in kinds:
        low, high = level, level**0.5
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if together(middle, k, dof) < level else (low, middle)
        levels.append(high)
    found[both] = np.asarray(levels)[place.reshape(-1)] if levels else found[both]
    return found


def judge(reference: Reference, found: Statistics, level: float) -> Outliers:
    """Compare every row's statistics with its limits.

    T² and SPE are independent for ordinary rows, so limits at √level flag a share 1 − level of
    them, by either (`each_level` says where under a t). A row with one statistic only has its
    limit at `level`.

    Examples
    --------
    >>> degrees = Degrees(np.array([2.0]), np.array([3.0]), np.array([3.0]))
    >>> found = Statistics(np.array([20.0]), np.array([3.0]), degrees)
    >>> one = judge(Reference(1000, 1000), found, 0.95)
    >>> one.flagged, one.t2_limit.round(2), one.spe_pvalue.round(2)
    (array([ True]), array([7.4]), array([0.39]))
    """
    limits, pvalues, both = [], [], laws(reference, found.degrees)
    judging = sum(law.judges.astype(np.float64) for law in both)
    if math.isinf(reference.tails):
        each = level ** (1 / np.maximum(judging, 1.0))
    else:
        each = each_level(level, found.degrees, reference.tails)
    for law, statistic in zip(both, found[:2], strict=True):
        limits.append(backend.asarray(law.limit(each), statistic))
        pvalues.append(backend.asarray(law.pvalue(backend.to_numpy(statistic)), statistic))
    flagged = (found.t2 > limits[0]) | (found.spe > limits[1])
    return Outliers(flagged, found.t2, found.spe, *limits, *pvalues).at(level)
