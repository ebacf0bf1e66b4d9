"""T² and SPE: how far a row lies from the mean within the model's span, and how far off it.

T² = yᵀ Var(y)⁻¹ y of a row's coordinates (Hotelling 1931), SPE = the squared residual (Jackson &
Mudholkar 1979). Under the model the two are independent, T² ~ χ²_q and SPE/σ² ~ χ²_{d−q}, and
T² + SPE/σ² is the squared Mahalanobis distance from the mean: what `score_samples` measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._algebra import outer, pack, unpack
from dualpca._typing import Array
from dualpca.gaussian import SpikedGaussian
from dualpca.limits import Floats, Law, Reference, spe_law, t2_law
from dualpca.missing import Block, Factors, readable
from dualpca.rows import Frame

SMALLEST = 1e-11
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
        xp, ell = _array.namespace(self.V), self.gaussian.values
        if not self.gaussian.rank:
            return ell
        # as in PCA's whitening: below this there is only rounding error
        least = float(np.finfo(np.float64).eps) * float(xp.max(ell)) * max(self.V.shape)
        varies = ell > least
        return xp.where(varies, 1 / xp.where(varies, ell, xp.ones_like(ell)), xp.zeros_like(ell))

    def degrees(self, n: int = 1) -> Degrees:
        """Return those of complete rows: the same for every row."""
        rest = self.gaussian.dim - self.gaussian.rank
        k = float(np.count_nonzero(_array.to_numpy(self._inverse)))
        dof = float(rest) if self.reference.dof is None else self.reference.dof
        return Degrees(*(np.full(n, value) for value in (k, dof, self.gaussian.noise * rest)))

    def statistics(self, X: Array) -> Statistics:
        """Return T² and SPE of rows, dense or sparse; O(dq) a row."""
        xp = _array.namespace(X)
        Y, residual = self.frame.project(self.V, X)
        squares = Y * Y
        size = xp.sum(squares, axis=1) + residual + float(self.frame.mean @ self.frame.mean)
        seen = (residual > self.floor**2 * size) & (self.gaussian.rank < self.gaussian.dim)
        # what is not finite is kept, for the caller to find
        residual = xp.where(seen | ~xp.isfinite(residual), residual, xp.zeros_like(residual))
        return Statistics(squares @ self._inverse, residual, self.degrees(int(X.shape[0])))

    def roots(self, X: Array) -> Roots:
        """Return the roots of the contributions: V L^{-1/2} Vᵀ(x − μ), and the residual."""
        C = self.frame.center(_array.row_block(_array.rowwise(X), slice(None)))
        Y = C @ self.V
        inside = (Y * _array.namespace(Y).sqrt(self._inverse)) @ self.V.T
        outside = C - Y @ self.V.T
        return Roots(inside, outside if self.gaussian.rank < self.gaussian.dim else 0 * outside)


@dataclass(frozen=True)
class FactorMonitor:
    """Rows with holes, or with noise of their own in every feature: x = Wz + μ + ε.

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
        ones = _array.asarray(np.ones((1, int(self.factors.W.shape[0]))), self.factors.W)
        one = self._degrees(ones, self._directions(ones)[0] > 0)
        return Degrees(*(np.repeat(part, n) for part in one))

    def _degrees(self, mask: Array, found: Array) -> Degrees:
        k = _array.to_numpy(found).sum(axis=1).astype(np.float64)
        dof = _array.to_numpy(mask).sum(axis=1) - k
        return Degrees(k, dof, self.unit * dof)

    @property
    def _loadings(self) -> Array:
        """Ψ^{-1/2}W, (d, q)."""
        return self.factors.W / _array.namespace(self.factors.W).sqrt(self.factors.psi)[:, None]

    def _directions(self, masks: Array) -> tuple[Array, Array]:
        """Return s² (p, q), 0 where there is no information, and Q (p, q, q) of every mask."""
        xp, B = _array.namespace(masks), self._loadings
        a, Q = xp.linalg.eigh(unpack(masks @ pack(outer(B)), int(B.shape[1])))
        real = a > SMALLEST * xp.sum(xp.abs(a), axis=1)[:, None]
        return xp.where(real, a, xp.zeros_like(a)), Q

    def _parts(self, block: Block) -> tuple[Roots, Degrees]:
        """Return the roots of a block's contributions, and what its rows can be judged by."""
        xp, B = _array.namespace(block.R), self._loadings
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
        some = _array.asarray(degrees.dof > 0, B)[:, None]
        return Roots(inside, self.unit**0.5 * some * (r - fitted)), degrees

    def _directions_of_rows(self, block: Block) -> tuple[Array, Array]:
        """Return s² (b, q) and Q (b, q, q): found once for rows that miss the same features."""
        if block.first is None or block.pattern is None:
            return self._directions(block.mask)
        a, Q = self._directions(_array.take(block.mask, block.first))
        return _array.take(a, block.pattern), _array.take(Q, block.pattern)

    def statistics(self, X: Array) -> Statistics:
        """Return T² and SPE of what each row observed; O(dq + q²) a row, O(dq² + q³) a pattern."""
        xp, found = _array.namespace(X), []
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
        xp = _array.namespace(X)
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
        limits.append(_array.asarray(law.limit(level), statistic))
        pvalues.append(_array.asarray(law.pvalue(_array.to_numpy(statistic)), statistic))
    flagged = (found.t2 > limits[0]) | (found.spe > limits[1])
    return Outliers(flagged, found.t2, found.spe, *limits, *pvalues)
