"""T² and SPE of rows, and their control limits, which are frozen at fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dualpca.arrays import Array, backend, outer, pack, unpack
from dualpca.gaussian.observed import Block, Factors, readable
from dualpca.gaussian.spiked import SpikedGaussian
from dualpca.operators import Frame, Spectrum

# --- Limits for new rows, frozen at fit: what T² and SPE may be if a row is like the others ------

Floats = NDArray[np.float64]

PROBES = 8
"""Random vectors that measure the residual spectrum where it cannot be had by subtraction.

Eight find Σℓ² within 8 % for spectra from flat to k^(-1/2), within 25 % for 1/k; SPE limits move by
about a fifth of that.
"""

LOST = 1e-12
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
    """

    n: float
    divisor: float
    dof: float | None = None


class Law(NamedTuple):
    """statistic / scale ~ F(dfn, dfd), row by row."""

    scale: Floats  # (n,)
    dfn: Floats  # (n,)
    dfd: Floats  # (n,)

    def limit(self, level: float) -> Floats:
        """Return the values that a share `level` of rows stays below, (n,).

        0 where there is nothing to measure, infinity where the training rows leave nothing to
        judge by (as many components as rows).
        """
        usual = self.scale * special.fdtri(*self._degrees, level)
        return np.where(self.dfn <= 0, 0.0, np.where(self.dfd <= 0, np.inf, usual))

    def pvalue(self, statistic: Floats) -> Floats:
        """Return the share of ordinary rows with a larger statistic, (n,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(statistic > 0, statistic / self.scale, 0.0)
        tail = np.where(
            np.isinf(ratio), 0.0, special.fdtrc(*self._degrees, np.minimum(ratio, 1e300))
        )
        return np.where((self.dfn > 0) & (self.dfd > 0), tail, 1.0)

    @property
    def _degrees(self) -> tuple[Floats, Floats]:
        """Degrees of freedom, with 1 where there are none: those rows are not judged by F."""
        judged = (self.dfn > 0) & (self.dfd > 0)
        return np.where(judged, self.dfn, 1.0), np.where(judged, self.dfd, 1.0)


def t2_law(reference: Reference, k: Floats) -> Law:
    """Return the law of T² in k latent dimensions for a row that was not fitted to.

    T² ~ k (n² − 1)/(n (n − k)) F_{k, n−k} for variances with divisor n − 1 (Hotelling 1931;
    Jackson 1991), and n/(n − 1) times that for divisor n. Axes count as known.
    """
    n, left = reference.n, reference.n - k
    scale = reference.divisor * k * (n + 1) / (n * np.maximum(left, 1e-300))
    return Law(scale, k, left)


def spe_law(reference: Reference, mean: Floats, dof: Floats, k: Floats) -> Law:
    """Return the law of SPE for a row that was not fitted to.

    SPE ~ mean/dof χ²_dof (Box 1954), with an F in place of χ² since the mean is estimated from
    (n − 1 − k)·dof squares. The axes fit their own rows too well and new ones too little: training
    residuals are smaller by (n − 1 − k)/divisor, new ones larger by (1 + 1/n)(1 + k/n).

    Parameters
    ----------
    reference : Reference
    mean : array of shape (n,)
        Expected SPE, as the fit says.
    dof : array of shape (n,)
        Effective number of residual directions.
    k : array of shape (n,)
        Number of directions that were fitted.
    """
    n, left = reference.n, reference.n - 1 - k
    grown = reference.divisor / np.maximum(left, 1e-300) * (1 + 1 / n) * (1 + k / n)
    return Law(mean * grown, dof, dof * left)


def residual_dof(operator: Any, spectrum: Spectrum, n: float) -> float:
    """Return (Σℓ)²/Σℓ² over the discarded variances, without computing them.

    Σλ² of all is ‖A‖²_F, which direct solvers know and block Krylov extrapolates if a product
    with A is dear; that of the discarded ones is the difference, or else (or where the difference
    is lost) a mean over random probes. An excess of θ₁²/ν that sampling adds to Σℓ² is taken off
    (Srivastava 2005), ν = n − 1 − q.

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
    if not first > LOST:
        return float(rest)
    second = _residual_squares(operator, spectrum, p, first)
    second = (second - first * first / nu) * nu * nu / ((nu - 1) * (nu + 2))
    return float(np.clip(first * first / max(second, 1e-300), 1.0, rest))


def _residual_squares(operator: Any, spectrum: Spectrum, p: Array, first: float) -> float:
    """Return Σp² over the discarded shares."""
    everything = spectrum.concentration
    kept = float(backend.namespace(p).sum(p * p))
    if everything is not None and everything - kept > LOST * everything:
        return everything - kept
    return _probed_squares(operator, spectrum, first)


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


# --- T² and SPE: how far a row lies from the mean within the model's span, and how far off it ----
#
# T² = yᵀ Var(y)⁻¹ y of a row's coordinates (Hotelling 1931), SPE = the squared residual (Jackson &
# Mudholkar 1979). Under the model the two are independent, T² ~ χ²_q and SPE/σ² ~ χ²_{d−q}, and
# T² + SPE/σ² is the squared Mahalanobis distance from the mean: what `score_samples` measures.

NO_INFORMATION = 1e-11
"""Share of Σa below which a direction's information is rounding error."""


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


class Roots(NamedTuple):
    """Signed roots of the contributions: their squares sum to T² and to SPE."""

    t2: Array  # (n, d)
    spe: Array  # (n, d)


class Outliers(NamedTuple):
    """Which rows are unusual, and why.

    Parameters
    ----------
    flagged : array of bool, shape (n,)
        T² or SPE above its limit.
    t2, spe : arrays of shape (n,)
    t2_limit, spe_limit : arrays of shape (n,)
        Each row's own: a row with NaN has fewer directions, and lower limits.
    t2_pvalue, spe_pvalue : arrays of shape (n,)
        Share of ordinary rows that lie further out: comparable between rows, whatever they miss.
    """

    flagged: Array
    t2: Array
    spe: Array
    t2_limit: Array
    spe_limit: Array
    t2_pvalue: Array
    spe_pvalue: Array


@dataclass(frozen=True)
class SpikedMonitor:
    """Complete rows under N(μ, Σ (ℓ − σ²) v vᵀ + σ²I): PCA and PPCA.

    T² = Σ y_p²/ℓ_p over the axes that vary, SPE = ‖x − μ‖² − Σ y_p², in the units of the frame.

    Parameters
    ----------
    gaussian : SpikedGaussian
    frame : Frame
    V : array of shape (d, q)
    reference : Reference
    floor : float
        Rounding of V: what is smaller beside a row is not a residual.
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
        least = float(np.finfo(np.float64).eps) * float(xp.max(ell)) * max(self.V.shape)
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

    def roots(self, X: Array) -> Roots:
        """Return the roots of the contributions: V L^{-1/2} Vᵀ(x − μ), and the residual."""
        C = self.frame.center(backend.row_block(backend.rowwise(X), slice(None)))
        Y = C @ self.V
        inside = (Y * backend.namespace(Y).sqrt(self._inverse)) @ self.V.T
        outside = C - Y @ self.V.T
        return Roots(inside, outside if self.gaussian.rank < self.gaussian.dim else 0 * outside)


@dataclass(frozen=True)
class FactorMonitor:
    """Rows with missing values, or a noise of its own in every feature: x = Wz + μ + ε.

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

    def degrees(self, n: int = 1) -> Degrees:
        """Return those of complete rows."""
        ones = backend.asarray(np.ones((1, int(self.factors.W.shape[0]))), self.factors.W)
        one = self._degrees(ones, self._directions(ones)[0] > 0)
        return Degrees(*(np.repeat(part, n) for part in one))

    def _degrees(self, mask: Array, found: Array) -> Degrees:
        k = backend.to_numpy(found).sum(axis=1).astype(np.float64)
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

    def _parts(self, block: Block) -> tuple[Roots, Degrees]:
        """Return the roots of a block's contributions, and what its rows can be judged by."""
        xp, B = backend.namespace(block.R), self._loadings
        a, Q = self._directions_of_rows(block)
        found = a > 0
        r = block.R / xp.sqrt(self.factors.psi)
        # z = S⁻² Qᵀ Bᵀ r, so that U Uᵀ r = B Q z
        z = ((r @ B)[:, None, :] @ Q)[:, 0, :] / xp.where(found, a, xp.ones_like(a))
        z = xp.where(found, z, xp.zeros_like(z))
        inside, fitted = (
            block.mask * ((Q @ part[:, :, None])[:, :, 0] @ B.T) for part in (z / xp.sqrt(1 + a), z)
        )
        degrees = self._degrees(block.mask, found)
        some = backend.asarray(degrees.dof > 0, B)[:, None]
        return Roots(inside, self.unit**0.5 * some * (r - fitted)), degrees

    def _directions_of_rows(self, block: Block) -> tuple[Array, Array]:
        """Return s² (b, q) and Q (b, q, q): found once for rows that miss the same features."""
        if block.first is None or block.pattern is None:
            return self._directions(block.mask)
        a, Q = self._directions(backend.take(block.mask, block.first))
        return backend.take(a, block.pattern), backend.take(Q, block.pattern)

    def statistics(self, X: Array) -> Statistics:
        """Return T² and SPE of what each row observed.

        O(dq + q²) per row, O(dq² + q³) per pattern of missing values.
        """
        xp, found = backend.namespace(X), []
        for block in readable(self.factors, X).blocks(self.factors.mu):
            roots, degrees = self._parts(block)
            t2, spe = (xp.sum(part * part, axis=1) for part in roots)
            found.append((t2, spe, *degrees))
        t2, spe, *rest = zip(*found, strict=True)
        degrees = Degrees(*(np.concatenate(part) for part in rest))
        return Statistics(xp.concat(list(t2)), xp.concat(list(spe)), degrees)

    def roots(self, X: Array) -> Roots:
        """Return the roots of the contributions; 0 where nothing was observed."""
        blocks = readable(self.factors, X).blocks(self.factors.mu)
        parts = [self._parts(block)[0] for block in blocks]
        xp = backend.namespace(X)
        return Roots(*(xp.concat(list(part), axis=0) for part in zip(*parts, strict=True)))


Monitor = SpikedMonitor | FactorMonitor


def laws(reference: Reference, degrees: Degrees) -> tuple[Law, Law]:
    """Return the laws of T² and SPE, row by row."""
    k, dof, mean = degrees
    return t2_law(reference, k), spe_law(reference, mean, dof, k)


def judge(reference: Reference, found: Statistics, level: float) -> Outliers:
    """Compare every row's statistics with its limits.

    Examples
    --------
    >>> degrees = Degrees(np.array([2.0]), np.array([3.0]), np.array([3.0]))
    >>> found = Statistics(np.array([20.0]), np.array([3.0]), degrees)
    >>> one = judge(Reference(1000, 1000), found, 0.95)
    >>> one.flagged, one.t2_limit.round(2), one.spe_pvalue.round(2)
    (array([ True]), array([6.03]), array([0.39]))
    """
    limits, pvalues = [], []
    for law, statistic in zip(laws(reference, found.degrees), found[:2], strict=True):
        limits.append(backend.asarray(law.limit(level), statistic))
        pvalues.append(backend.asarray(law.pvalue(backend.to_numpy(statistic)), statistic))
    flagged = (found.t2 > limits[0]) | (found.spe > limits[1])
    return Outliers(flagged, found.t2, found.spe, *limits, *pvalues)
