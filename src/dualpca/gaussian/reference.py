"""What the training rows say of T² and SPE: the `Reference` of control limits, measured at fit.

The SPE of new rows is Σ λ χ²₁ with λ the variances off the axes, which are equal only where the
noise is. Three sums of them, Σλ, Σλ² and Σλ³, are enough for its tail. Where rows have missing
values, their residuals are those of the columns they have, so that the covariance of the residuals
is kept too, as a few rows F and variances ψ of columns: FᵀF + diag ψ. Nothing larger than
`EXACT_SIDE` × d is formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualpca.arrays import Array, algebra, backend
from dualpca.data import block_weights, observed_weights
from dualpca.gaussian.observed import Factors, Incomplete, drawn_imputations, each
from dualpca.operators import ColumnGram, FeatureOperator, Frame, Primal, Rescaled, Spectrum

Floats = NDArray[np.float64]

PROBES = 8
"""Random vectors that measure the residual spectrum where it cannot be had by subtraction.

Eight find Σℓ² within 8 % for spectra from flat to k^(-1/2), within 25 % for 1/k; SPE limits move by
about a fifth of that.
"""

LOST_DIGITS = 1e-12
"""Share of a sum below which a difference of two such sums has lost most of its digits."""

EXACT_SIDE = 64
"""Columns, or rows, up to which the residual covariance is known exactly."""

SKETCH = 16
"""Largest directions of residuals that are found where there are more rows and columns."""

SMALL_TABLE = 1_000_000
"""Entries up to which as many as `EXACT_SIDE` are found."""

CONSECUTIVE = 800
"""Rows, in their order, by which dependence is measured."""

ROOT_RIDGE = 1e-9
"""Share of the average variance off the axes that is added along them: a root of the covariance
then is a Cholesky factor, at a tenth of the cost."""

LOOKED_AT = 512
"""Rows of a first look at dependence; most tables need no other."""

WINDOW = 10
"""Consecutive rows that are compared with their own mean, not with that of the table: rows sorted
by a group or by a column are alike because of the order, and independent within a window."""

LONG_WINDOW = 40
"""Rows by which autocorrelation is measured, once it is there."""

LEAST_VISIBLE = 0.5
"""Smallest share of a window's variance that may be autocorrelated: less says little."""

CERTAIN = 4.0
"""Standard errors above chance from which consecutive rows count as alike."""

MOST_LIKE = 0.995
"""Largest autocorrelation of consecutive rows."""


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
        Effective number of residual directions, (Σλ)²/Σλ² over the variances λ off the axes. None:
        as many as there are, which is what equal variances give.
    tails : float
        ν, where rows follow a multivariate t with so many degrees of freedom; infinite for the
        Gaussian.
    third : float
        Σλ³ Σλ/(Σλ²)², 1 for equal variances.
    spe : float, optional
        Average SPE of the training rows, Σλ with divisor n. None: what the model's noise says.
    kept : array of shape (q,), optional
        Variances of the training rows along the axes, with divisor n. None: the model's.
    residuals : array of shape (r, d), optional
        F of the covariance of the training rows' residuals, FᵀF + diag ψ, with divisor n.
    columns : array of shape (d,), optional
        ψ; None where F is all of it.
    own_noise : bool
        The model has a noise of its own for every feature, and trusts it.
    alike : tuple of two floats
        Autocorrelation of consecutive training rows, along the axes and off them.
    shares : tuple of four floats
        What share of n rows determines variances along the axes, variances off them, the axes, and
        covariances of residuals: less than all where values are missing (`Unseen`).
    told : array of shape (q + 1, q + 1), optional
        Mean of z̃z̃ᵀ over the training rows, z̃ = (z, 1) with the posterior means of the latents,
        where values are missing. None: what complete rows tell.
    scarce : array of shape (d,), optional
        n by the number of rows that observe each feature. None: 1.
    """

    n: Annotated[float, "> 0"]
    divisor: Annotated[float, "> 0"]
    dof: Annotated[float, ">= 0, or inf"] | None = None
    tails: Annotated[float, "> 0, or inf"] = math.inf
    third: Annotated[float, ">= 1"] = 1.0
    spe: Annotated[float, ">= 0"] | None = None
    kept: Annotated[Array, "q", ">= 0"] | None = None
    residuals: Annotated[Array, "r d"] | None = None
    columns: Annotated[Array, "d", ">= 0"] | None = None
    own_noise: bool = False
    alike: tuple[Annotated[float, ">= 0, < 1"], Annotated[float, ">= 0, < 1"]] = (0.0, 0.0)
    shares: tuple[
        Annotated[float, ">= 0"],
        Annotated[float, ">= 0"],
        Annotated[float, ">= 0"],
        Annotated[float, ">= 0"],
    ] = (1.0, 1.0, 1.0, 1.0)
    told: Annotated[Array, "p p"] | None = None
    scarce: Annotated[Array, "d", "> 0"] | None = None

    @property
    def independent(self) -> float:
        """Number of independent rows that would determine the mean as well."""
        return self.n * shrunk(max(self.alike))

    def counted(self, which: int) -> float:
        """Return the same for squares along the axes (0), off them (1), of both (2 and 3).

        Lag one of squares has φ². What is counted is in the order of `shares`.
        """
        return self.n * self.shares[which] * shrunk(self.alike[min(which, 1)] ** 2)


def shrunk(phi: float) -> float:
    """Return the share of rows that as many independent ones would be: (1 − φ)/(1 + φ)."""
    return (1 - phi) / (1 + phi)


def unbiased(
    first: Floats | float, second: Floats | float, third: Floats | float, nu: Floats | float
) -> tuple[Any, Any, Any]:
    """Return Σλ, Σλ² and Σλ³ of Σ, unbiased, from those of a Wishart matrix over its ν degrees.

    E tr S² = (1 + 1/ν) tr Σ² + (tr Σ)²/ν, and likewise the third (Srivastava 2005; Letac & Massam
    2004).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def sums(S):
    ...     return [np.trace(S), np.trace(S @ S), np.trace(S @ S @ S)]
    >>> tables = [rng.normal(size=(10, 3)) for _ in range(4000)]
    >>> np.mean([unbiased(*sums(X.T @ X / 10), 10) for X in tables], axis=0).round(1)
    array([3., 3., 3.])
    """
    both = nu / (nu - 1) * (nu / (nu + 2))  # as ratios: ν may be the sum of any weights
    two = (second - first * first / nu) * both
    scale = both * (nu / (nu - 2)) * (nu / (nu + 4))
    three = scale * (third - 3 * first * second / nu + 2 * first * (first / nu) * (first / nu))
    return first, two, three


def pinned(second: Any, third: Any, nu: Any, rest: Any) -> tuple[Any, Any]:
    """Return Σλ² and Σλ³ (of Σλ = 1) as they were without a noise of its own for every feature.

    In its units residuals have the variance 1 in the training rows: its sampling error, 2/ν, is not
    in the sums.

    Examples
    --------
    >>> pinned(0.1, 0.01, 100.0, 10.0)
    (0.102, 0.0106)
    """
    return second + 2 / (nu * rest), third + 6 / (nu * rest * rest)


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


class Residuals(NamedTuple):
    """Rows F and variances ψ with Cov(e) = FᵀF + diag ψ, in units of the rows, and its sums."""

    spe: float  # Σλ: the average SPE of the training rows
    concentration: float  # Σλ²/(Σλ)², of the training rows
    third: float  # Σλ³/(Σλ)³
    rows: Array | None  # (r, d)
    columns: Array | None  # (d,); None where F is all


def reference_of(
    operator: Any,
    spectrum: Spectrum,
    n: float,
    divisor: float,
    *,
    incomplete: bool = True,
    rows: Array | None = None,
    tails: float = math.inf,
    gaps: Unseen | None = None,
    own_noise: bool = False,
) -> Reference:
    """Return what limits need to know of the training rows.

    Parameters
    ----------
    operator : Operator
        The scatter of the training rows.
    spectrum : Spectrum
        The axes of the model; `values` need not be theirs.
    n : float
        Effective number of rows.
    divisor : float
        Of the model's variances.
    incomplete : bool
        Keep the covariance of the residuals, for rows with missing values.
    rows : array of shape (m, d), optional
        The training rows in their order, if each counts once.
    tails : float
        ν of a multivariate t.
    gaps : Unseen, optional
        What the rows had before missing values were drawn.
    own_noise : bool
        The rows are in units of a noise of its own for every feature.

    Examples
    --------
    >>> from dualpca.solvers import solve
    >>> X = np.random.default_rng(0).normal(size=(5000, 4)) * [9.0, 2.0, 2.0, 1.0]
    >>> A = Primal(X)
    >>> found = reference_of(A, solve(A, 1), 5000, 5000)
    >>> round(found.dof, 1), round(found.spe, 1), found.residuals.shape
    (2.5, 9.0, (4, 4))
    """
    V = spectrum.vectors
    if not incomplete and operator.dim > EXACT_SIDE:  # two sums, which solvers know
        kept = spectrum.values / n
        alike = (0.0, 0.0) if rows is None else dependence(rows, operator.frame, V, math.inf)
        return Reference(
            n, divisor, residual_dof(operator, spectrum, n), tails, kept=kept, alike=alike
        )
    found, kept = _measured(operator, spectrum, incomplete, gaps)
    q, rest = spectrum.rank, spectrum.dim - spectrum.rank
    alike, shares = (0.0, 0.0), WHOLE if gaps is None else gaps.shares
    if rows is not None:
        alike = dependence(rows, operator.frame, V, 1 / found.concentration)
    nu = n * shares[3] * shrunk(alike[1] ** 2) - 1 - q
    dof, third = float(rest), 1.0
    if rest and found.spe > 0 and nu > 4:
        two, three = found.concentration, found.third
        if own_noise:
            two, three = pinned(two, three, nu, rest)
        _, two, three = unbiased(1.0, two, three, nu)
        two = float(np.clip(two, 1 / rest, 1.0))
        dof, third = 1 / two, float(np.clip(three, two * two, two**1.5)) / (two * two)
    return Reference(
        n,
        divisor,
        dof,
        tails,
        third=third,
        spe=found.spe,
        kept=kept,
        residuals=found.rows,
        columns=found.columns,
        own_noise=own_noise,
        alike=alike,
        shares=shares,
        told=None if gaps is None else gaps.told,
        scarce=None if gaps is None else gaps.scarce,
    )


def _measured(
    operator: Any, spectrum: Spectrum, incomplete: bool, gaps: Unseen | None
) -> tuple[Residuals, Array]:
    """Return the residuals of the rows off the axes, and the variances along them."""
    V, n = spectrum.vectors, operator.n
    small, wide = operator.dim <= EXACT_SIDE, isinstance(operator, ColumnGram)
    few = isinstance(operator, Primal) and int(operator.X.shape[0]) <= EXACT_SIDE
    if small or wide:  # over the points, where the table is wide
        S = operator.dense() / n
        SV = S @ V
        kept = backend.namespace(V).sum(V * SV, axis=0)
        R = S - SV @ V.T
        R = R - V @ (V.T @ R)
        if gaps is not None and gaps.residuals is not None:
            R = _of_observed(gaps.residuals, V, R)
        return _of_matrix((R + R.T) / 2, incomplete and not wide), kept
    if few and gaps is None:
        E = backend.namespace(V).concat([C for _, C in operator.rows.blocks()], axis=0)
        Y = E @ V
        E = (E - Y @ V.T) / n**0.5
        kept = backend.namespace(V).sum(Y * Y, axis=0) / n
        found = _of_matrix(E @ E.T, False)
        return found._replace(rows=E if incomplete else None), kept
    return _sketched(operator, spectrum, incomplete, gaps)


def _of_observed(omega: Array, V: Array, R: Array) -> Array:
    """Return the covariance of residuals in the observed entries, with the trace of drawn ones."""
    xp = backend.namespace(R)
    S = backend.asarray(omega, R)
    S = S - V @ (V.T @ S)
    S = S - (S @ V) @ V.T
    trace = float(xp.linalg.trace(S))
    return S * (float(xp.linalg.trace(R)) / trace) if trace > 0 else R


def _of_matrix(R: Array, roots: bool) -> Residuals:
    """Return the sums of the eigenvalues of a matrix, and if asked for a root of it."""
    xp = backend.namespace(R)
    first = float(xp.linalg.trace(R))
    if not first > 0:
        return Residuals(0.0, 1.0, 1.0, None, None)
    P = R / first
    squares = P @ P
    second, third = float(xp.sum(P * P)), float(xp.sum(squares * P))
    if not roots:
        return Residuals(first, second, third, None, None)
    order = int(R.shape[0])
    ridge = ROOT_RIDGE * first / order * backend.identity(order, R)
    try:
        root = xp.linalg.cholesky(R + ridge).T
    except Exception as error:
        if not backend.is_linalg_error(error):
            raise
        values, vectors = xp.linalg.eigh(R)  # residuals that are rounding errors
        root = (vectors * xp.sqrt(xp.where(values > 0, values, xp.zeros_like(values)))).T
    return Residuals(first, second, third, root, None)


def _sketched(
    operator: Any, spectrum: Spectrum, incomplete: bool, gaps: Unseen | None
) -> tuple[Residuals, Array]:
    """Return the residuals by their largest directions, from two or three products.

    Drawn entries have no covariances of residuals, so that those of the rows are smaller than they
    would be, by a share `gaps.pairs`.
    """
    V, n = spectrum.vectors, operator.n
    xp = backend.namespace(V)
    kept = xp.sum(V * (operator @ V), axis=0) / n
    first = operator.trace / n - float(xp.sum(kept))
    if not first > 0:
        return Residuals(0.0, 1.0, 1.0, None, None), kept
    size = SKETCH if n * spectrum.dim > SMALL_TABLE else EXACT_SIDE
    size = min(size, spectrum.dim - spectrum.rank)
    G = backend.normal(np.random.default_rng(0), (int(V.shape[0]), size), V)

    def off(A: Array) -> Array:
        return A - V @ (V.T @ A)

    Q = algebra.orthonormal(off(operator @ off(G)))
    values, vectors = xp.linalg.eigh(Q.T @ off(operator @ Q) / n)
    values = xp.where(values > 0, values, xp.zeros_like(values))
    rest = spectrum.dim - spectrum.rank
    average, pairs = first / rest, 1.0 if gaps is None else gaps.pairs
    values = xp.where(values > average, average + (values - average) / pairs, values)
    nu = max(n - 1 - spectrum.rank, 2.0)
    own = replace(spectrum, values=n * kept, trace=operator.trace)
    theirs, given = (backend.to_numpy(A) for A in (own.values, spectrum.values))
    if not np.allclose(theirs, given, rtol=1e-6):
        own = replace(own, concentration=None)  # that of other weights
    # Σλ² of the sample, from its unbiased estimate
    second = 1 / rest + (1 / residual_dof(operator, own, n) - 1 / rest) / pairs**2
    if gaps is not None:
        nu = max(n * gaps.shares[3] - 1 - spectrum.rank, 2.0)
    second = second * (1 + 1 / nu) + 1 / nu
    top = backend.to_numpy(values) / first
    ones, twos = max(1 - top.sum(), 0.0), max(second - np.sum(top**2), 0.0)
    twos = max(twos, ones * ones / max(rest - top.size, 1))
    third = float(np.sum(top**3)) + (twos * twos / ones if ones > 0 else 0.0)
    second = float(np.sum(top**2)) + twos
    if not incomplete:
        return Residuals(first, second, third, None, None), kept
    F = ((Q @ vectors) * xp.sqrt(values)).T
    left = operator.diag() / n - (V * V) @ kept - xp.sum(F * F, axis=0)
    return Residuals(first, second, third, F, xp.where(left > 0, left, 0 * left)), kept


# --- Dependent rows ------------------------------------------------------------------------------


def dependence(rows: Array, frame: Frame, V: Array, dof: float) -> tuple[float, float]:
    """Return the autocorrelation of consecutive rows along the axes and off them; 0 if by chance.

    Rows count as alike only where they are so within windows of `WINDOW` rows too: rows in the
    order of a group or of a column are not. At most `CONSECUTIVE` rows are read, in eight runs, and
    fewer of more than `EXACT_SIDE` columns. `dof` is the effective number of directions off the
    axes.
    """
    n, q = int(rows.shape[0]), int(V.shape[1])
    if n < 2 * WINDOW or backend.is_sparse(rows) or not _changes_little(rows, frame, V, dof):
        return 0.0, 0.0
    most = max(CONSECUTIVE * EXACT_SIDE // max(int(V.shape[0]), EXACT_SIDE), 20 * WINDOW)
    runs = 1 if n <= most else min(8, most // (2 * WINDOW))
    length = n if runs == 1 else most // runs
    starts = np.linspace(0, n - length, runs).astype(int)
    C = backend.take(rows, (starts[:, None] + np.arange(length)).ravel())
    C = _centred(C, frame)
    Y = C @ V
    along, off = backend.to_numpy(Y), backend.to_numpy(C - Y @ V.T)
    ends, same = np.arange(1, runs) * length, _repeated(along, off)
    same[ends] = False
    if same.any():  # rows that are there twice are one
        ends = ends - np.cumsum(same)[ends]
        along, off = along[~same], off[~same]
    unit, largest = np.abs(along).max(axis=0), max(float(off.max()), -float(off.min()))
    along = along / np.where(unit > 0, unit, 1.0)
    spread = np.sqrt(np.einsum("ij,ij->j", along, along) / len(along))
    along = along / np.where(spread > 0, spread, 1.0)
    found = _autocorrelation(np.split(along, ends), q) if q else 0.0
    if int(V.shape[0]) == q or not largest > 0:
        return found, 0.0
    return found, _autocorrelation(np.split(off / largest, ends), dof)


def autocorrelation(values: Floats, directions: float) -> float:
    """Return the φ of rows in their order, (n, m), as `dependence` finds it; 0 if by chance.

    `directions` is the effective number of columns.

    Examples
    --------
    >>> steps = np.random.default_rng(0).normal(size=(4000, 1))
    >>> for t in range(1, 4000):
    ...     steps[t] += 0.8 * steps[t - 1]
    >>> round(autocorrelation(steps, 1), 1)
    0.8
    """
    enough = len(values) >= 2 * WINDOW and values.shape[1] and np.any(values)
    return _autocorrelation([values], directions) if enough else 0.0


def _repeated(along: Floats, off: Floats) -> Any:
    """Return True for rows that are those before them, (n,); the first is not."""
    same = np.zeros(len(off), dtype=bool)
    one = along[:, 0] if along.shape[1] else off[:, 0]
    some = 1 + np.flatnonzero(one[1:] == one[:-1])
    for A in (along, off):
        some = some[(A[some] == A[some - 1]).all(axis=1)]
    same[some] = True
    return same


def _centred(rows: Array, frame: Frame) -> Array:
    C = backend.working(rows) - frame.mean
    return C if frame.scale is None else C / frame.scale


def _changes_little(rows: Array, frame: Frame, V: Array, dof: float) -> bool:
    """Return True if consecutive rows differ by less than any two: dependent, or in an order.

    Half the mean square of differences is a variance, along the axes and off them, unless rows
    resemble those before them (von Neumann 1941). The first rows are looked at.
    """
    q, axes = int(V.shape[1]), backend.to_numpy(V)
    first = slice(0, min(LOOKED_AT, int(rows.shape[0])))
    C = backend.to_numpy(_centred(backend.row_block(rows, first), frame))
    C = C - C.mean(axis=0)
    Y = C @ axes
    moved, there = C[1:] - C[:-1], Y[1:] - Y[:-1]
    along = np.einsum("ij,ij->j", there, there), np.einsum("ij,ij->j", Y, Y)
    off = np.vdot(moved, moved) - along[0].sum(), np.vdot(C, C) - along[1].sum()
    near = [1 - CERTAIN / 2 / np.sqrt(len(C) * max(size, 1.0)) for size in (q, dof)]
    if q and float(np.mean(along[0] / _nonzero(2 * along[1]))) < near[0]:
        return True
    rounding = 1e-9 * along[1].sum()
    return bool(off[1] > rounding and off[0] < near[1] * 2 * off[1])


def _autocorrelation(series: list[Floats], directions: float) -> float:
    """Return φ of consecutive rows in runs; 0 where it may be chance or an order.

    Columns count by their variance; `directions` is the effective number of them, (Σλ)²/Σλ².
    """
    products, squares = _within(series, WINDOW, 1)
    total = squares.sum()
    if len(squares) < 2 or not total > 0:
        return 0.0
    local = products.sum() / total
    error = np.sqrt(np.sum((products - local * squares) ** 2)) / total
    least = 1 / np.sqrt(len(squares) * WINDOW * max(directions, 1.0))
    if local + 1 / WINDOW < CERTAIN * max(error, least):
        return 0.0
    shortest = min(len(s) for s in series)
    length = LONG_WINDOW if shortest >= 4 * LONG_WINDOW else shortest
    sums = [_within(series, length, lag) for lag in (1, 2)]
    # the median: a window across the border of two groups says nothing
    first, second = (float(np.median(p / _nonzero(q))) for p, q in sums)
    return _matched(first, second, length)


def _within(series: list[Floats], length: int, lag: int) -> tuple[Floats, Floats]:
    """Return Σ e_t·e_{t+lag} and Σ e_t·e_t of windows of rows around their own means, (w,) each."""
    cut = [s[: len(s) // length * length].reshape(-1, length, s.shape[1]) for s in series]
    W = np.concatenate(cut)
    W = W - W.mean(axis=1, keepdims=True)
    ahead, behind = W[:, lag:], W[:, :-lag]
    return np.einsum("wij,wij->w", ahead, behind), np.einsum("wij,wij->w", W, W)


def _matched(first: float, second: float, length: int) -> float:
    """Return the φ whose long-run variance is that of an AR(1) and white noise with these lags.

    A share ρ of the variance has the autocorrelation ψ^k: all of it, where less than half is seen
    in a window. Means over windows are subtracted from the rows, and so they are here. With
    τ = 1 + 2ρψ/(1 − ψ), φ = (τ − 1)/(τ + 1).
    """
    grid = 1 - np.geomspace(1.0, 1 - MOST_LIKE, 60)
    apart = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    H = np.eye(length) - 1 / length
    shifts = [np.eye(length, k=k) for k in (0, 1, 2)]
    kinds = np.stack([H @ J @ H for J in shifts])  # of Σ e_t e_{t+k}
    white = np.trace(kinds, axis1=1, axis2=2)
    alike = np.stack([np.sum(kinds * psi**apart, axis=(1, 2)) for psi in grid])
    A, B = alike - white, white  # ρA + B
    share = (first * B[0] - B[1]) / _nonzero(A[:, 1] - first * A[:, 0])
    share = np.clip(share, 0.0, 1.0)
    found = share[:, None] * A + B
    visible = share * alike[:, 0] >= LEAST_VISIBLE * found[:, 0]
    share = np.where(visible, share, 1.0)
    found = share[:, None] * A + B
    off = (found[:, 1] / found[:, 0] - first) ** 2 + (found[:, 2] / found[:, 0] - second) ** 2
    best = int(np.argmin(off))
    tau = 1 + 2 * share[best] * grid[best] / (1 - grid[best])
    return float(np.clip((tau - 1) / (tau + 1), 0.0, MOST_LIKE))


def _nonzero(values: Floats) -> Floats:
    return np.where(np.abs(values) > 1e-12, values, 1e-12)


# --- Rows with missing values --------------------------------------------------------------------

WHOLE = (1.0, 1.0, 1.0, 1.0)
"""Shares of rows without missing values."""


class Unseen(NamedTuple):
    """What rows with missing values say less of than complete ones."""

    shares: tuple[float, float, float, float]  # of `Reference`
    pairs: float  # of covariances of residuals, what rows with drawn entries show
    residuals: Array | None  # (d, d), covariance of residuals in units of the noise
    told: Array  # of `Reference`
    scarce: Array

    @classmethod
    def of(cls, factors: Factors, X: Array, weights: Array | None = None) -> Unseen | None:
        """Return those of rows with NaN, None where there are none.

        With H_o = W_oᵀC_oo⁻¹W_o, what the observed entries o of a row tell of its latents, the axes
        are known as Σ s_o H_o says, s_o the share of the directions off them that the row tells
        of, and variances along them as Σ (H⁻¹H_o)². The noise has |o| − q degrees of freedom a row.

        Examples
        --------
        >>> one = Factors(np.ones((4, 1)), np.zeros(4), np.ones(4))
        >>> X = np.array([[1.0, 2.0, 3.0, np.nan], [2.0, 1.0, 4.0, 3.0]])
        >>> np.round(Unseen.of(one, X).shares, 2)
        array([1.07, 0.95, 0.94, 0.83])
        """
        xp, (d, q) = backend.namespace(X), factors.W.shape
        missing = xp.isnan(X)
        if not bool(xp.any(missing)):
            return None
        w = backend.to_numpy(block_weights(weights, slice(None), X))
        w = w / w.sum()
        count = backend.to_numpy(xp.sum(xp.astype(~missing, xp.float64), axis=1))
        share, n = count / d, float(w @ count) / d
        off = np.maximum(count - q, 0.0) / max(d - q, 1)
        pairs = max(float(w @ off**2), LEAST_SEEN)
        along, turning = _told(factors, X, w, share) if q else (n, n)
        residuals = None
        if d <= EXACT_SIDE:
            residuals = residual_covariance(factors, X, w)
        shares = along / n, float(w @ off) / n, turning / n, pairs / n
        seen = w @ backend.to_numpy(xp.astype(~missing, xp.float64))
        scarce = backend.asarray(n / np.maximum(seen, LEAST_SEEN), factors.mu)
        return cls(shares, pairs, residuals, mean_products(factors, X, w), scarce)


def mean_products(factors: Factors, X: Array, w: Floats) -> Array:
    """Return Σ w z̃z̃ᵀ over rows, z̃ = (z, 1) with the posterior means of the latents."""
    q = int(factors.W.shape[1])
    total = np.zeros((q + 1, q + 1))
    for block, found in each(factors, X):
        Z = np.column_stack([backend.to_numpy(found.mean), np.ones(len(w[block.rows]))])
        total += (Z * w[block.rows, None]).T @ Z
    return backend.asarray(total, factors.mu)


def _told(factors: Factors, X: Array, w: Floats, share: Floats) -> tuple[float, float]:
    """Return what share of complete rows determines variances along the axes, and the axes."""
    d, q = (int(size) for size in factors.W.shape)
    B = backend.to_numpy(factors.W) / np.sqrt(backend.to_numpy(factors.psi))[:, None]
    sizes, V = np.linalg.eigh(np.eye(q) - np.linalg.inv(np.eye(q) + B.T @ B))
    sizes, V = sizes[sizes > LEAST_TOLD], V[:, sizes > LEAST_TOLD]
    if not sizes.size:  # axes without any signal: as none
        n = float(w @ share)
        return n, n
    inverse = V / sizes @ V.T
    told, squares, place = np.zeros((q, q)), 0.0, 0
    for _, found in each(factors, X):
        H = np.eye(q) - backend.to_numpy(found.covariance)
        here = slice(place, place + len(H))
        ratio, known = inverse @ H, np.trace(H, axis1=1, axis2=2)
        # tr PᵀC_oo⁻¹P over the directions P off the axes, for features that are much alike
        off = share[here] - (1 - share[here]) * known / max(d - q, 1)
        told += np.tensordot(w[here] * np.maximum(off, 0.0), H, 1)
        squares += float(w[here] @ np.sum(ratio * ratio.swapaxes(1, 2), axis=(1, 2)))
        place += len(H)
    left = np.maximum(np.linalg.eigvalsh(V.T @ told @ V), LEAST_TOLD * LEAST_TOLD)
    return squares / sizes.size, float(np.sum(1 / sizes) / np.sum(1 / left))


LEAST_TOLD = 1e-9
"""What complete rows tell of an axis, of 1, below which it has no signal."""

LEAST_SEEN = 0.05
"""Smallest share of covariances of residuals that is taken to be seen."""

PAIR_STEPS = 20
"""Steps by which covariances of residuals are found: those of two features that a share p of the
rows observe keep an error of (1 − p)^20."""

PAIRED_ROWS = 500
"""Patterns of missing values over which projections are averaged."""


def residual_covariance(factors: Factors, X: Array, w: Floats) -> Array:
    """Return Ω, the covariance of x − Wz − μ over the noise, from rows with NaN, (d, d).

    In units of the noise a row has the residual A_o ε_o with A_o off the span of its loadings, and
    Σ w A_o Ω A_o is what Σ w (A_o ε_o)(A_o ε_o)ᵀ says (theory 16): solved by Jacobi's iteration
    from a multiple of the identity, so that what no row tells stays 0. Drawn entries would have no
    covariances.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.normal(size=(4000, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
    >>> e[rng.random(e.shape) < 0.3] = np.nan
    >>> one = Factors(np.zeros((2, 0)), np.zeros(2), np.ones(2))
    >>> residual_covariance(one, e, np.full(4000, 1 / 4000)).round(1)
    array([[1. , 0.8],
           [0.8, 1. ]])
    """
    W, mu, psi, rows = (
        backend.to_numpy(part) for part in (factors.W, factors.mu, factors.psi, backend.working(X))
    )
    d, q = W.shape
    B, seen = W / np.sqrt(psi)[:, None], ~np.isnan(rows)
    r = np.where(seen, (rows - mu) / np.sqrt(psi), 0.0)
    S = np.zeros((d, d))
    for cut in backend.slices(len(r), max(1, PATTERN_NUMBERS // max(d * q, 1))):
        U = _spans(B, seen[cut])
        off = r[cut] - (U @ (U.swapaxes(1, 2) @ r[cut][:, :, None]))[:, :, 0]
        S += (off * w[cut, None]).T @ off
    some = np.arange(len(r))
    if some.size > PAIRED_ROWS:
        some = np.random.default_rng(0).choice(some.size, PAIRED_ROWS, replace=False)
    kinds, place = np.unique(seen[some], axis=0, return_inverse=True)
    share = np.bincount(place.reshape(-1), w[some]) / max(w[some].sum(), 1e-300)
    U = _spans(B, kinds)
    V = U * share[:, None, None]
    flat = U.transpose(1, 0, 2).reshape(d, -1)
    both = (seen * w[:, None]).T @ seen.astype(np.float64)
    weigh = np.where(both > 0, 1 / np.maximum(both, LEAST_SEEN), 0.0)
    degrees = float(share @ np.maximum(kinds.sum(axis=1) - q, 0.0))
    omega = np.trace(S) / max(degrees, 1e-300) * np.eye(d)
    for _ in range(PAIR_STEPS):
        inner = U.swapaxes(1, 2) @ (omega @ U)  # U is 0 where nothing was observed
        half = (kinds[:, :, None] * (omega @ V)).transpose(1, 0, 2).reshape(d, -1) @ flat.T
        core = (V @ inner).transpose(1, 0, 2).reshape(d, -1) @ flat.T
        omega = omega + weigh * (S - both * omega + half + half.T - core)
    return backend.asarray((omega + omega.T) / 2, backend.working(factors.W))


def _spans(B: Floats, seen: NDArray[np.bool_]) -> Floats:
    """Return orthonormal bases of the span of B_o, (p, d, q): 0 beyond its rank, and where unseen.

    O(dq²) per mask.
    """
    Bo = B * seen[:, :, None]
    a, Q = np.linalg.eigh(Bo.swapaxes(1, 2) @ Bo)
    real = a > 1e-10 * np.sum(np.abs(a), axis=1)[:, None]
    found: Floats = (Bo @ Q) * (real / np.sqrt(np.where(real, a, 1.0)))[:, None, :]
    return found


PATTERN_NUMBERS = 1 << 20
"""Numbers that several patterns of missing values may take at once."""

NOISE_STEPS = 5
"""EM steps for the noise of every feature, given the loadings: each leaves a third of the error."""


def completed(factors: Factors, X: Array, weights: Array | None = None) -> Array:
    """Return rows whose missing entries are drawn given the others, with the noise that they show.

    The noise of every feature is estimated anew, given the loadings, so that what is drawn has the
    residuals of the rows and not those of the model. The same draw in every call.

    Parameters
    ----------
    factors : Factors
    X : array of shape (n, d)
        NaN where nothing was observed.
    weights : array of shape (n,), optional

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [2.0, np.nan], [3.0, 6.0]])
    >>> one = Factors(np.array([[0.8], [1.6]]), np.array([2.0, 4.0]), np.array([0.1, 0.1]))
    >>> completed(one, X).shape
    (3, 2)
    """
    xp, W = backend.namespace(X), factors.W
    rows = Incomplete(X, weights, int(W.shape[1]))
    psi, least = factors.psi, 1e-3 * factors.psi
    for _ in range(NOISE_STEPS):
        sums = rows.sums(replace(factors, psi=psi, dof=math.inf))
        counts = xp.where(sums.n > 0, sums.n, xp.ones_like(sums.n))
        psi = xp.where(sums.n > 0, xp.maximum(sums.off(W) / counts, least), psi)
    found = drawn_imputations(
        replace(factors, psi=psi, dof=math.inf), X, 1, np.random.default_rng(0)
    )
    return found[0, :, :]


def noisy_reference(
    factors: Factors,
    operator: FeatureOperator,
    n: float,
    rows: Array | None,
    gaps: Unseen | None = None,
) -> Reference:
    """Return what limits need to know of a model with a noise of its own for every feature.

    In units of that noise: its residuals are uncorrelated only where no factor is left out.

    Parameters
    ----------
    factors : Factors
    operator : FeatureOperator
        The scatter of the training rows.
    n : float
        Effective number of rows.
    rows : array of shape (m, d), optional
        The training rows in their order, if each counts once.
    gaps : Unseen, optional
        What the rows had before missing values were drawn.
    """
    xp = backend.namespace(factors.W)
    scale = xp.sqrt(factors.psi)
    U, s, _ = algebra.svd(factors.W / scale[:, None])
    A = Rescaled(operator, scale)
    axes = Spectrum(n * (s * s + 1), U, A.trace, A.dim)
    found = reference_of(A, axes, n, n, rows=rows, gaps=gaps, own_noise=True)
    return replace(found, kept=None)


def incomplete_reference(
    factors: Factors,
    spectrum: Spectrum,
    X: Array,
    weights: Array | None,
    n: float,
    *,
    ordered: bool = True,
    tails: float = math.inf,
) -> Reference:
    """Return what limits need to know of training rows with missing values.

    `ordered` where X are all of them, in their order; the other parameters are those of
    `completed` and `reference_of`.
    """
    X, xp, V = backend.working(X), backend.namespace(spectrum.vectors), spectrum.vectors
    w = observed_weights(X, weights)
    lengths = xp.sqrt(xp.sum((V.T @ factors.W) ** 2, axis=1))
    factors = replace(factors, W=V * lengths)  # the same density, with latents along the axes
    rows = completed(factors, X, w)
    plain = rows if ordered and w is None else None
    gaps = Unseen.of(factors, X, w)
    return reference_of(Primal(rows, w), spectrum, n, n, rows=plain, tails=tails, gaps=gaps)
