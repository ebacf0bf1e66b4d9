"""T² and SPE of rows, and their control limits, which are frozen at fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dualpca.arrays import EPS, Array, backend, outer, pack, unpack
from dualpca.gaussian.observed import NO_INFORMATION, Factors, joined, readable
from dualpca.gaussian.reference import PATTERN_NUMBERS, Floats, Reference, pinned, shrunk, unbiased
from dualpca.gaussian.spiked import SpikedGaussian
from dualpca.operators import Frame

# --- Limits for new rows, frozen at fit: what T² and SPE may be for ordinary rows ---------


class Law(NamedTuple):
    """What a statistic of ordinary rows follows, row by row.

    statistic / scale ~ F(dfn, dfd), or, with a second set of directions, of dfn₂ and scale₂, the
    sum α χ²_dfn + β χ²_dfn₂ with scale = α·dfn and scale₂ = β·dfn₂. dfd is then what each direction
    was estimated from, and p-values come by Lugannani & Rice (1980), within some per cent.
    """

    scale: Floats  # (n,)
    dfn: Floats  # (n,)
    dfd: Floats  # (n,)
    scale2: Floats | None = None  # (n,), 0 where there is one set
    dfn2: Floats | None = None  # (n,)
    tails: float = math.inf

    def limit(self, level: float | Floats) -> Floats:
        """Return the values that a share `level` (of all rows, or row by row) stays below, (n,).

        0 where there is nothing to measure, infinity where the training rows leave nothing to
        judge by (as many components as rows).
        """
        judged, dfn, dfd = self._judged
        nothing = np.where(self.dfn <= 0, 0.0, np.inf)
        found = np.where(judged, self.scale * special.fdtri(dfn, dfd, level), nothing)
        two = self._two
        if two is not None:
            given = np.broadcast_to(np.asarray(level, dtype=np.float64), found.shape)[two]
            kinds, place = np.unique(
                np.column_stack([*self._sets(two), given]), axis=0, return_inverse=True
            )
            found[two] = _two_sets_limit(kinds, self.tails)[place.reshape(-1)]
        return found

    def pvalue(self, statistic: Floats) -> Floats:
        """Return the share of ordinary rows with a larger statistic, (n,)."""
        judged, dfn, dfd = self._judged
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(statistic > 0, statistic / self.scale, 0.0)
        tail = np.where(np.isinf(ratio), 0.0, special.fdtrc(dfn, dfd, np.minimum(ratio, 1e300)))
        found = np.where(judged, tail, 1.0)
        two = self._two
        if two is not None:
            found[two] = _two_sets_tail(statistic[two], self._sets(two), self.tails)
        return found

    @property
    def judges(self) -> NDArray[np.bool_]:
        """Rows that F judges, (n,): there is something to measure, and something to judge by."""
        return (self.dfn > 0) & (self.dfd > 0)

    @property
    def _two(self) -> NDArray[np.bool_] | None:
        """Rows with two sets of directions, (n,); None if no row has."""
        if self.scale2 is None:
            return None
        two = self.judges & (self.scale2 > 0)
        return two if two.any() else None

    def _sets(self, two: NDArray[np.bool_]) -> tuple[Floats, ...]:
        """Return α, its number, β, its number and the size of the estimate, of some rows."""
        assert self.scale2 is not None and self.dfn2 is not None
        one, other = self.dfn[two], self.dfn2[two]
        return self.scale[two] / one, one, self.scale2[two] / other, other, self.dfd[two]

    @property
    def _judged(self) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Rows that F judges, and degrees of freedom, with 1 for the others."""
        judged = self.judges
        return judged, np.where(judged, self.dfn, 1.0), np.where(judged, self.dfd, 1.0)


UNSURE_SHAPE = 0.75
"""Share of the rows behind two sets of directions that counts: how many there are of each is
estimated too. Set by simulation, 50 to 500 rows, 5 to 30 columns, equal to very unequal noise."""


def _two_sets_tail(x: Floats, sets: Sequence[Floats], tails: float) -> Floats:
    """Return P(α χ²_m + β χ²_k > x), (n,), with α and β estimated from ν rows; sets are α, m, …, ν.

    The sum is compared with x·χ²_D/D. D is what ν rows know of α and β as far as each matters for
    exceeding x: 1/D = Σ share²/(ν·number), with the shares that each has of a sum of x (those of
    the tilted law). The saddlepoint of such a ratio is the root of a quadratic.
    """
    one, m, two, k, nu = sets
    unit = one * m + two * k
    x, one, two = np.maximum(x / unit, 1e-12), one / unit, two / unit
    large = ~np.isfinite(x)
    x = np.minimum(np.where(large, 1.0, x), 1e10)  # beyond it s rounds to a pole
    # m α/(1 − 2αs) + k β/(1 − 2βs) = x
    first, second = 1.0, -2 * one * two * (m + k)
    s = _root(first - x, second + 2 * x * (one + two), -4 * x * one * two)
    share = m * one / (1 - 2 * one * s) / x
    D = UNSURE_SHAPE * nu / (share**2 / m + (1 - share) ** 2 / k)
    D = _with_tails(D, tails)
    g = x / D
    c1, c2 = second + 2 * g + 2 * x * (one + two), 2 * g * second - 4 * x * one * two
    s = _root(first - x, c1, c2)
    a, b, c = 1 - 2 * one * s, 1 - 2 * two * s, 1 + 2 * g * s
    # −K(s), whose terms in s cancel but for s(x − 1)
    bends = m * _log_bend(-2 * one * s) + k * _log_bend(-2 * two * s) + D * _log_bend(2 * g * s)
    height = 0.5 * bends + s * (x - 1)
    curve = 2 * (m * (one / a) ** 2 + k * (two / b) ** 2 + D * (g / c) ** 2)
    w, u = np.sign(s) * np.sqrt(np.maximum(2 * height, 0.0)), s * np.sqrt(curve)
    near = np.abs(w) < AT_THE_MEAN
    w_or_1, u_or_1 = np.where(near, 1.0, w), np.where(near, 1.0, u)
    curve = 2 * (m * one**2 + k * two**2 + D * g**2)
    skew = 8 * (m * one**3 + k * two**3 - D * g**3) / curve**1.5
    heavy = 48 * (m * one**4 + k * two**4 + D * g**4) / curve**2
    middle = w * (5 * skew**2 / 24 - heavy / 8) - skew / 6  # 1/u − 1/w to first order
    both = np.where(near, middle, 1 / u_or_1 - 1 / w_or_1)
    tail = special.ndtr(-w) + np.exp(-0.5 * w * w) / np.sqrt(2 * np.pi) * both
    found = np.clip(tail, 0.0, 1.0)
    return np.where(large, 0.0, found)


AT_THE_MEAN = 1e-5
"""Distance from the mean, in deviations, below which 1/u − 1/w is taken from its expansion."""


def _log_bend(y: Floats) -> Floats:
    """Return ln(1 + y) − y without cancellation."""
    near = np.abs(y) < 0.03
    z = np.where(near, y, 0.0)
    series = np.zeros_like(z)
    for power in range(11, 1, -1):
        series = z * (series + (-1) ** (power + 1) / power)
    return np.where(near, z * series, np.log1p(np.where(near, 0.0, y)) - y)


def _root(c0: Floats, c1: Floats, c2: Floats) -> Floats:
    """Return the root nearest to 0 of c₀ + c₁s + c₂s², for c₁ > 0."""
    return -2 * c0 / (c1 + np.sqrt(np.maximum(c1 * c1 - 4 * c2 * c0, 0.0)))


def _two_sets_limit(kinds: Floats, tails: float) -> Floats:
    """Return the values of which each kind (α, m, β, k, ν, level) has its tail beyond, (n,).

    The logarithm of the tail is nearly straight in that of the value: Newton's method on it, and
    halves where that leaves the bracket.
    """
    *sets, level = kinds.T
    unit, aim = sets[0] * sets[1] + sets[2] * sets[3], np.log1p(-level)

    def log_tail(x: Floats) -> Floats:
        tail: Floats = np.log(np.maximum(_two_sets_tail(np.exp(x) * unit, sets, tails), 1e-300))
        return tail

    low, high = np.full(level.size, -30.0), np.full(level.size, 30.0)
    x, step, done = np.zeros(level.size), 1e-4, np.zeros(level.size, dtype=np.bool_)
    for _ in range(60):
        here = log_tail(x)
        done |= np.abs(here - aim) <= 1e-10 * (1 + np.abs(aim))  # and stays, whatever the others do
        if np.all(done):
            break
        low, high = np.where(here > aim, x, low), np.where(here > aim, high, x)
        slope = np.minimum((log_tail(x + step) - here) / step, -1e-8)
        new = x + np.clip((aim - here) / slope, -2.0, 2.0)
        new = np.where((new > low) & (new < high), new, (low + high) / 2)
        x = np.where(done, x, new)
    found: Floats = np.exp(x) * unit
    return found


# --- T² and SPE: how far a row is from the mean within the model's span, and how far off it ----
#
# T² = yᵀ Var(y)⁻¹ y of a row's coordinates (Hotelling 1931), SPE = the squared residual (Jackson &
# Mudholkar 1979). Under the model the two are independent, T² ~ χ²_q and SPE/σ² ~ χ²_{d−q}, and
# T² + SPE/σ² is the squared Mahalanobis distance from the mean: what `score_samples` measures.


class Degrees(NamedTuple):
    """What each row can be judged by: what new rows are expected to have."""

    k: Floats  # (n,), latent dimensions that the row's features determine
    weight: Floats  # (n,), variance of a new row along them, in units of the model's
    rest: Floats  # (n,), residual directions
    mean: Floats  # (n,), expected SPE, Σλ
    second: Floats  # (n,), Σλ²/(Σλ)²
    third: Floats  # (n,), Σλ³/(Σλ)³

    @property
    def dof(self) -> Floats:
        """Effective number of residual directions, (Σλ)²/Σλ², (n,)."""
        return np.where(self.rest > 0, 1 / np.maximum(self.second, 1e-300), 0.0)


class Measured(NamedTuple):
    """What the training rows had, of which new rows have more or less."""

    spe: Floats  # (n,), average SPE with divisor n, Σλ
    second: Floats  # (n,), Σλ²/(Σλ)², unbiased
    third: Floats  # (n,), Σλ³/(Σλ)³
    rest: Floats  # (n,), residual directions
    variances: Floats  # (n, q), along the axes, with divisor n; 0 where nothing is known
    ratios: Floats  # (n, q), of them and the model's
    noise: Floats | None = None  # (n, q), what residuals contribute to these, where rows miss some


MOST_TURNED = 0.5
"""Smallest share of a variance along an axis that is taken to be there for new rows."""

NEAREST = 0.2
"""Smallest distance, as a share of a variance along an axis, of variances off it."""


def for_new_rows(reference: Reference, found: Measured) -> Degrees:
    """Return what new rows have, given what the rows had that the axes were fitted to.

    A residual of variance λ gives λ/(n − 1 − k)·ℓ/(ℓ − λ) to an axis of variance ℓ by chance. With
    m(ℓ) the sum of λ/((n − 1 − k)(ℓ − λ)), an axis has g²ℓ for new rows, 1/g = 1 + m (Bai & Ding
    2012; Ledoit & Péché 2011). Half of what it loses the residuals had lost; the other half, mℓ,
    lies in one direction. The λ are those of two sets with the three sums of the training rows.
    Theory 16.
    """
    known = found.variances > 0
    k = known.sum(axis=1).astype(np.float64)
    _, nu, turning, pairs = (np.maximum(part, 2.0) for part in _left(reference, k))
    some = found.spe > 0
    scale = np.where(some, found.spe, 1.0)  # in units of the residual
    ell = (np.where(known, found.variances, 1.0) / scale[:, None])[:, :, None]
    size, count = _sizes(found)
    size = np.where(some[:, None], size, 0.0)
    # as the rows have them, spread by chance
    spread = np.where(some[:, None], size + (size + 1) / pairs[:, None], 0.0)
    gap = np.maximum(ell - spread[:, None, :], NEAREST * ell)
    taken = np.where(known[:, :, None], (size / turning[:, None])[:, None, :] / gap, 0.0)
    chance = np.sum(count[:, None, :] * taken, axis=2)
    ell = ell[:, :, 0]
    with np.errstate(over="ignore"):
        turned = np.maximum(1 / (1 + chance), MOST_TURNED) ** 2
    n = [max(reference.n * shrunk(phi), 2.0) for phi in reference.alike]
    unit = n[1] / (n[1] - 1)
    lost = np.where(known, ell * (1 - turned), 0.0).sum(axis=1)
    mean = (1 + 1 / n[1]) * unit * (1 + lost)
    leaks = ell * chance
    signal = np.maximum(ell - np.sum(count * size * spread, axis=1)[:, None], 0.0)
    leaks = leaks * signal / np.maximum(signal + leaks, 1e-300)  # no more than there is
    second, third = _with_leaks(mean, unit * leaks, size, count, ell[:, :, None] * taken)
    rest = np.maximum(found.rest, 1.0)
    second = np.clip(second / mean**2, 1 / rest, 1.0)
    third = np.clip(third / mean**3, second * second, second**1.5)
    mean = mean * found.spe
    if reference.own_noise:  # each estimated from the residuals of its own feature
        counted = max(reference.n * reference.shares[1], 1.0)
        share = np.minimum((k + found.rest - 1) / (rest * counted), 0.3)
        mean = mean * (1 + share) / (1 - share)
        over = np.maximum(nu - 2, 6.0)  # moments of ν/χ²_ν
        second = np.minimum(second * over / (over - 2), 1.0)
        third = np.minimum(third * over**2 / ((over - 2) * (over - 4)), second**1.5)
    own = 0.0 if found.noise is None else found.noise
    ratios = turned * (found.ratios - own) + (1 + (1 + k) / nu)[:, None] * own
    # noise is there whichever way the axes turned
    ratios = np.maximum(ratios, np.minimum(1 / (rest[:, None] * ell), 1.0) * found.ratios)
    weight = np.where(known, ratios, 0.0).sum(axis=1) / np.maximum(k, 1.0)
    return Degrees(k, weight, found.rest, mean, second, third)


def _sizes(found: Measured) -> tuple[Floats, Floats]:
    """Return the sizes of two sets of residual variances, whose sum is 1, and their numbers."""
    one = np.ones_like(found.rest)
    parts = _two_sets(Degrees(one, one, found.rest, one, found.second, found.third))
    high, m, low, k = parts
    return np.stack([high, low], axis=1), np.stack([m, np.where(low > 0, k, 0.0)], axis=1)


def _with_leaks(
    mean: Floats, leaks: Floats, size: Floats, count: Floats, taken: Floats
) -> tuple[Floats, Floats]:
    """Return Σλ² and Σλ³ of new rows, whose sum is `mean`: residuals, and a direction per axis.

    `leaks` (n, q) are the variances of these, `taken` (n, q, 2) the share of each size of residuals
    that an axis had taken.
    """
    one = leaks.sum(axis=1)
    leaks = leaks * np.minimum(1.0, 0.9 * mean / np.where(one > 0, one, 1.0))[:, None]
    one = leaks.sum(axis=1)
    ratio = np.where(size[:, None, :] > 0, taken / np.where(size > 0, size, 1.0)[:, None, :], 0.0)
    whole = size * (1 + ratio.sum(axis=1))
    total = (count * whole).sum(axis=1)
    whole = (
        whole * np.where(total > 0, (mean - one) / np.where(total > 0, total, 1.0), 0.0)[:, None]
    )
    shares = count[:, None, :] * taken
    shares = shares / np.maximum(shares.sum(axis=2), 1e-300)[:, :, None]
    along, squares = (np.sum(shares * whole[:, None, :] ** p, axis=2) for p in (1, 2))
    second = np.sum(count * whole**2, axis=1) + np.sum(leaks * (2 * along + leaks), axis=1)
    third = np.sum(leaks * (3 * squares + 3 * leaks * along + leaks**2), axis=1)
    return second, np.sum(count * whole**3, axis=1) + third


def _left(reference: Reference, k: Floats) -> tuple[Floats, ...]:
    """Return degrees of freedom that k axes leave for each of `Reference.shares`."""
    found = []
    for which, mean in enumerate((0, 1, 1, 1)):  # along the axes the mean is in Hotelling's factor
        left = reference.n - mean - k
        counted = np.maximum(reference.counted(which) - mean - k, np.minimum(left, 2.0))
        found.append(np.where(left > 0, counted, left))
    return tuple(found)


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
        NaN for a row with nothing observed (`empty`).

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
    def empty(self) -> Array:
        """Rows with nothing observed, (n,): not flagged, and not judged either."""
        xp = backend.namespace(self.t2_pvalue)
        return xp.isnan(self.t2_pvalue) & xp.isnan(self.spe_pvalue)

    @property
    def expected(self) -> float:
        """Number of flagged rows if all are ordinary: (1 − level)·n.

        Rows that nothing can be said of (nothing observed) are not counted.
        """
        limits = np.stack([backend.to_numpy(part) for part in (self.t2_limit, self.spe_limit)])
        judged = np.any((limits > 0) & np.isfinite(limits), axis=0)
        return (1 - self.level) * int(np.count_nonzero(judged))


class Maps(NamedTuple):
    """Matrices of p patterns of missing values, for centred rows with 0 where nothing is known."""

    scores: Floats  # (p, q, d), A with T² = ‖Ax‖²: Ax ~ N(0, I) where all directions are known
    residuals: Floats  # (p, d, d), E with SPE = ‖Ex‖²
    known: Floats  # (p, q, q), projection on the directions that the features determine
    degrees: Degrees


@dataclass(frozen=True)
class SpikedJudge:
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
        gaussian, reference = self.gaussian, self.reference
        known = backend.to_numpy(self._inverse) > 0
        ell = backend.to_numpy(gaussian.values) * known
        found = complete_rows(reference, ell, gaussian.noise, gaussian.dim - gaussian.rank)
        one = for_new_rows(reference, found)
        return Degrees(*(np.full(n, float(part[0])) for part in one))

    def statistics(self, X: Array) -> Statistics:
        """Return T² and SPE of rows, dense or sparse; O(dq) per row."""
        xp = backend.namespace(self.V)
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
class FactorJudge:
    """Rows with missing values, or a separate noise for every feature: x = Wz + μ + ε.

    With r = Ψ_o^{-1/2}(x_o − μ_o) and Ψ_o^{-1/2}W_o = U S Qᵀ over the observed entries,
    T² = Σ (u_pᵀr)²/(1 + s_p²) and SPE = unit·‖r − UUᵀr‖²: z̄ᵀ Var(z̄)⁻¹ z̄ of the posterior mean, and
    the residual of generalised least squares. They are independent, T² ~ χ²_k and SPE/unit ~
    χ²_{|o|−k} with k = rank W_o, whatever is missing; for PPCA's complete rows both are those of
    `SpikedJudge`.

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
        return self._degrees(ones, *self._directions(ones))

    def _degrees(self, masks: Array, a: Array, Q: Array) -> Degrees:
        """Return those of every mask, (p,)."""
        seen, a, Q = (backend.to_numpy(part) for part in (masks, a, Q))
        reference, unit = self.reference, self.unit
        k, observed = (a > 0).sum(axis=1), seen.sum(axis=1)
        rest = np.maximum(observed - k, 0.0)
        ml = reference.divisor / reference.n
        ell = unit * np.where(a > 0, 1 + a, 0.0)
        share = 1 / np.maximum(rest, 1.0)
        plain = Measured(unit * ml * rest, share, share**2, rest, ml * ell, np.full(a.shape, ml))
        if reference.residuals is None:
            return for_new_rows(reference, plain)
        return for_new_rows(reference, self._of_residuals(plain, seen, a, Q))

    def _of_residuals(self, plain: Measured, seen: Floats, a: Floats, Q: Floats) -> Measured:
        """Return what the training rows had in the columns of every mask.

        Their residuals there are A_o e_o, since A_o annihilates what the axes explain, and the best
        fit is that of all columns and the part of e_o within the span of the loadings.
        """
        reference = self.reference
        assert reference.residuals is not None
        # in units of the noise
        F = backend.to_numpy(reference.residuals) / self.unit**0.5
        B = backend.to_numpy(self._loadings)
        psi = None if reference.columns is None else backend.to_numpy(reference.columns) / self.unit
        spread = np.sum(B * B, axis=0) * self.unit  # of the model, ℓ − σ²
        signal = np.divide(self._kept(spread), spread, out=np.zeros_like(spread), where=spread > 0)
        sums, ratios, own = np.zeros((3, len(seen))), np.zeros(a.shape), np.zeros(a.shape)
        step = max(1, PATTERN_NUMBERS // F.size)
        for cut in backend.slices(len(seen), step):
            inverse = np.where(a[cut] > 0, 1 / np.where(a[cut] > 0, a[cut], 1.0), 0.0)
            M = (Q[cut] * inverse[:, None, :]) @ Q[cut].swapaxes(1, 2)
            sums[:, cut], inside = residual_sums(F, psi, B, M, seen[cut])
            # T² = Σ a z²/(1 + a) of the coordinates z = Qᵀ(BᵀB)⁻¹Bᵀr
            turned = Q[cut].swapaxes(1, 2)
            noise = np.sum((turned @ inside) * turned, axis=2)
            share = np.where(a[cut] > 0, a[cut] / (1 + a[cut]), 0.0)
            own[cut] = share * noise
            ratios[cut] = share * ((turned**2) @ signal + noise)
        nu = np.maximum(_left(reference, (a > 0).sum(axis=1).astype(np.float64))[3], 5.0)
        first = np.where(sums[0] > 1e-90, sums[0], 1.0)  # the cube is a number
        second, third = sums[1] / first**2, sums[2] / first**3
        rest = np.maximum(plain.rest, 1.0)
        if psi is None:
            if reference.own_noise:
                second, third = pinned(second, third, nu, rest)
            _, second, third = unbiased(1.0, second, third, nu)
        else:
            second, third = self._unspread(second, third, F, psi, B)
        second = np.clip(second, 1 / rest, 1.0)
        third = np.clip(third, second * second, second**1.5)
        spe = np.where(plain.rest > 0, self.unit * sums[0], 0.0)
        whole = seen.all(axis=1)
        if whole.any():  # known more exactly
            one = complete_rows(reference, np.zeros(1), self.unit, float(rest[whole][0]))
            spe[whole], second[whole], third[whole] = one.spe[0], one.second[0], one.third[0]
        own[whole] = 0.0
        variances = ratios * self.unit * (1 + a)
        return Measured(spe, second, third, plain.rest, variances, ratios, own)

    def _unspread(
        self, second: Floats, third: Floats, F: Floats, psi: Floats, B: Floats
    ) -> tuple[Floats, Floats]:
        """Return Σλ² and Σλ³ (of Σλ = 1) less what chance adds to the directions that are kept.

        A sample spreads them in every selection of columns by the same share of (Σλ)², that of all.
        """
        reference, q = self.reference, B.shape[1]
        M: Floats = np.zeros((1, q, q))
        if q:
            M[0] = np.linalg.pinv(B.T @ B, hermitian=True)
        sums = residual_sums(F, psi, B, M, np.ones((1, len(B))))[0][:, 0]
        if reference.dof is None or not sums[0] > 1e-90:
            return second, third
        two = 1 / max(reference.dof, 1.0)
        three = reference.third * two * two
        return second - (sums[1] / sums[0] ** 2 - two), third - (sums[2] / sums[0] ** 3 - three)

    def _kept(self, spread: Floats) -> Floats:
        """Return the variances of the training rows along the axes, (q,)."""
        if self.reference.kept is None:
            return (spread + self.unit) * self.reference.divisor / self.reference.n
        return backend.to_numpy(self.reference.kept)

    @property
    def _loadings(self) -> Array:
        """Ψ^{-1/2}W, (d, q)."""
        return self.factors.W / backend.namespace(self.factors.W).sqrt(self.factors.psi)[:, None]

    def _directions(self, masks: Array) -> tuple[Array, Array]:
        """Return s² (p, q), 0 where there is no information, and Q (p, q, q) of every mask."""
        return self._axes_of(masks @ pack(outer(self._loadings)))

    def _axes_of(self, packed: Array) -> tuple[Array, Array]:
        """Return the same of packed matrices BᵀB over what every mask observes."""
        xp = backend.namespace(packed)
        a, Q = xp.linalg.eigh(unpack(packed, int(self.factors.W.shape[1])))
        real = a > NO_INFORMATION * xp.sum(xp.abs(a), axis=1)[:, None]
        return xp.where(real, a, xp.zeros_like(a)), Q

    def _parts(self, X: Array) -> Iterator[tuple[Array, Array, Degrees]]:
        """Yield the roots of each block's contributions, and what its rows can be judged by."""
        xp, B = backend.namespace(X), self._loadings
        for block in readable(self.factors, X).blocks(self.factors.mu):
            masks = block.mask if block.first is None else backend.take(block.mask, block.first)
            a, Q = self._directions(masks)
            degrees = self._degrees(masks, a, Q)
            if block.pattern is not None:  # found once for rows that miss the same features
                a, Q = backend.take(a, block.pattern), backend.take(Q, block.pattern)
                place = backend.to_numpy(block.pattern)
                degrees = Degrees(*(part[place] for part in degrees))
            r = block.R / xp.sqrt(self.factors.psi)
            # z = S⁻² Qᵀ Bᵀ r, so that U Uᵀ r = B Q z
            z = ((r @ B)[:, None, :] @ Q)[:, 0, :] / xp.where(a > 0, a, xp.ones_like(a))
            z = xp.where(a > 0, z, xp.zeros_like(z))
            inside, fitted = (
                block.mask * ((Q @ part[:, :, None])[:, :, 0] @ B.T)
                for part in (z / xp.sqrt(1 + a), z)
            )
            some = backend.asarray(degrees.rest > 0, B)[:, None]
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

    def maps(self, masks: Floats) -> Maps:
        """Return what centred rows that observe these features are multiplied with, on the host.

        O(d²q + q³) per mask, (p, d), after which a row costs O(d²). What is found for a mask does
        not depend on the others, to the last bit: there is no product across masks.
        """
        a, Q = self._axes_of((masks[:, None, :] @ pack(outer(self._loadings)))[:, 0, :])
        degrees = self._degrees(masks, a, Q)
        B, root = self._loadings, 1 / np.sqrt(self.factors.psi)
        known = a > 0
        size = np.where(known, a, 1.0)
        turned = Q.swapaxes(1, 2) @ (B.T * masks[:, None, :]) * root  # QᵀBᵀΨ^{-1/2}
        scores = Q @ ((known / np.sqrt(size * (1 + size)))[:, :, None] * turned)
        fitted = masks[:, :, None] * (B @ (Q @ ((known / size)[:, :, None] * turned)))
        off = (masks * root)[:, :, None] * np.eye(masks.shape[1]) - fitted
        some = (self.unit**0.5 * (degrees.rest > 0))[:, None, None]
        return Maps(scores, some * off, Q * known[:, None, :] @ Q.swapaxes(1, 2), degrees)


Judge = SpikedJudge | FactorJudge


def complete_rows(reference: Reference, ell: Floats, noise: float, rest: float) -> Measured:
    """Return what the training rows had, for rows that miss nothing, (1,).

    `ell` are the variances of the model, (q,), 0 where there is none.
    """
    ml = reference.divisor / reference.n
    kept = ml * ell if reference.kept is None else backend.to_numpy(reference.kept) * (ell > 0)
    spe = ml * noise * rest if reference.spe is None else reference.spe
    second = 1 / max(rest if reference.dof is None else reference.dof, 1.0)
    ratios = kept / np.where(ell > 0, ell, 1.0)
    third = reference.third * second**2
    one, two, three, four = np.asarray([spe, second, third, rest], dtype=np.float64)[:, None]
    return Measured(one, two, three, four, kept[None, :], ratios[None, :])


def residual_sums(
    F: Floats, psi: Floats | None, B: Floats, M: Floats, masks: Floats
) -> tuple[Floats, Floats]:
    """Return Σλ, Σλ², Σλ³ of A_o (FᵀF + diag ψ)_oo A_o, (3, p), and M B_oᵀ(…)_oo B_o M, (p, q, q).

    A_o = I − B_o M B_oᵀ with M = (B_oᵀB_o)⁺, (p, q, q). O(r²|o| + |o|q²) per mask.

    Examples
    --------
    >>> F, B = np.diag([1.0, 2.0, 3.0]), np.array([[1.0], [0.0], [0.0]])
    >>> residual_sums(F, None, B, np.ones((1, 1, 1)), np.array([[1.0, 1.0, 0.0]]))[0][:, 0]
    array([ 4., 16., 64.])
    """
    Y = F * masks[:, None, :]
    FB = Y @ B
    Y = Y - (FB @ M) @ (B.T * masks[:, None, :])
    K = Y @ Y.swapaxes(1, 2)
    first, squares = np.trace(K, axis1=1, axis2=2), K @ K
    second, third = np.sum(K * K, axis=(1, 2)), np.sum(squares * K, axis=(1, 2))
    cross = FB.swapaxes(1, 2) @ FB
    if psi is not None:
        own = masks * psi
        T1, T2, T3 = (M @ (B.T @ (own[:, :, None] ** power * B)) for power in (1, 2, 3))
        YY = (Y * own[:, None, :]) @ Y.swapaxes(1, 2)
        YB = (Y * own[:, None, :]) @ B
        first = first + own.sum(axis=1) - np.trace(T1, axis1=1, axis2=2)
        third = third + 3 * np.sum(K * YY, axis=(1, 2))
        third = third + 3 * np.sum(Y * Y * own[:, None, :] ** 2, axis=(1, 2))
        third = third - 3 * np.sum((YB @ M) * YB, axis=(1, 2))
        third = third + np.sum(own**3, axis=1) - 3 * np.trace(T3, axis1=1, axis2=2)
        third = third + np.trace(3 * T1 @ T2 - T1 @ T1 @ T1, axis1=1, axis2=2)
        second = second + 2 * np.trace(YY, axis1=1, axis2=2) + np.sum(own**2, axis=1)
        second = second + np.trace(T1 @ T1 - 2 * T2, axis1=1, axis2=2)
        cross = cross + B.T @ (own[:, :, None] * B)
    return np.stack([first, second, third]), M @ cross @ M


def laws(reference: Reference, degrees: Degrees) -> tuple[Law, Law]:
    """Return the laws of T² and SPE for rows that were not fitted to (theory 16.2 and 16.3).

    T² ~ weight · k (n + 1)/(n − k) F_{k, n−k} (Hotelling 1931; Jackson 1991). SPE = Σ λ χ²₁ is
    taken as α χ²_m + β χ²_{d−q−m} with the same Σλ, Σλ² and Σλ³, each from n − 1 − k rows.
    Under a t with ν degrees of freedom the inverse degrees of freedom below, of the estimate and of
    the tails, add. Rows that resemble those before them count as fewer.
    """
    k, tails = degrees.k, reference.tails
    along, off = _left(reference, k)[:2]
    rows = max(reference.n * shrunk(reference.alike[0]), 2.0)
    grown = (rows + 1) / (rows - 1) * (along + k - 1) / np.maximum(along, 1e-300)
    t2 = Law(degrees.weight * k * grown, k, _with_tails(along, tails))
    high, m, low, rest = _two_sets(degrees)
    dfd = np.where(low > 0, off, _with_tails(m * off, tails))
    return t2, Law(high * m, m, dfd, low * rest, rest, tails)


def _two_sets(degrees: Degrees) -> tuple[Floats, ...]:
    """Return α, m, β and k with the three sums of `degrees`, m + k = its directions, each (n,).

    Where no two such sizes exist (and for equal ones) β = 0, and α and m have the first two sums.
    """
    rest, mean = degrees.rest, degrees.mean
    safe = np.maximum(rest, 1.0)
    variance = np.maximum(degrees.second * safe - 1, 0.0)  # of λ, in units of its average
    spread = np.sqrt(variance)
    moment = degrees.third * safe**2 - 3 * degrees.second * safe + 2
    skew = moment / np.where(variance > EQUAL, spread**3, 1.0)
    p = (1 - skew / np.sqrt(4 + skew * skew)) / 2
    p = np.clip(p, 1 / np.maximum(safe, 2.0), 1 - 1 / np.maximum(safe, 2.0))  # a direction at least
    high = 1 + spread * np.sqrt((1 - p) / p)
    low = 1 - spread * np.sqrt(p / (1 - p))
    two = (variance > EQUAL) & (low > 0) & (rest > 1)
    alone = np.where(rest > 0, 1 / np.maximum(degrees.second, 1e-300), 0.0)
    average = mean / safe
    return (
        np.where(two, average * high, mean / np.maximum(alone, 1e-300)),
        np.where(two, p * rest, alone),
        np.where(two, average * low, 0.0),
        np.where(two, (1 - p) * rest, 1.0),
    )


EQUAL = 1e-6
"""Relative variance of residual variances below which they are equal."""


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
    >>> degrees = Degrees(*np.array([2.0, 1.0, 3.0, 3.0, 1 / 3, 1 / 9])[:, None])
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
    limit at `level`. p-values of rows with nothing observed are NaN.

    Examples
    --------
    >>> degrees = Degrees(*np.array([2.0, 1.0, 3.0, 3.0, 1 / 3, 1 / 9])[:, None])
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
    empty = (found.degrees.k == 0) & (found.degrees.rest == 0)
    for law, statistic in zip(both, found[:2], strict=True):
        limits.append(backend.asarray(law.limit(each), statistic))
        pvalue = np.where(empty, np.nan, law.pvalue(backend.to_numpy(statistic)))
        pvalues.append(backend.asarray(pvalue, statistic))
    flagged = (found.t2 > limits[0]) | (found.spe > limits[1])
    return Outliers(flagged, found.t2, found.spe, *limits, *pvalues).at(level)
