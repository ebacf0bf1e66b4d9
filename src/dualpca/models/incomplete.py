"""PPCA and factor analysis from rows with missing values: accelerated, parameter-expanded EM."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import SMALLEST_TRACE, Columns, Table, observed_weights
from dualpca.errors import DegenerateError, EmptyColumnError, ScaleError
from dualpca.gaussian import LEAST_NOISE, Factors, Incomplete, Sums, has_vanished
from dualpca.models.driver import Keeper, Record, State, Tape, Watch, descend, maximize
from dualpca.operators import deterministic_signs

# --- The rows, as EM sees them: sums over a table ------------------------------------------------


class Observed(Protocol):
    """Rows with missing values that EM can start from: `Incomplete`, or an `IncompleteTable`."""

    @property
    def n(self) -> float:
        """Effective number of rows, the sum of the weights."""

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""


class IncompleteTable:
    """A table with missing values; rows that observe nothing count nothing.

    Parameters
    ----------
    table : Table
    q : int
        Number of latents, for the size of the blocks within a chunk.
    columns : Columns, optional
        Of the table, where they are known; otherwise they are read in one pass.
    """

    def __init__(self, table: Table, q: int, columns: Columns | None = None) -> None:
        def prepare(rows: Array, weights: Array | None) -> Incomplete:
            return Incomplete(rows, observed_weights(rows, weights), q)

        self.columns = table.reduce(Columns.of, Columns.merge) if columns is None else columns
        self.rows = table.prepared(prepare)

    @property
    def n(self) -> float:
        """Effective number of rows, the sum of the weights of those that observe something."""
        return self.columns.weight

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""
        return self.rows.reduce(lambda chunk: chunk.filled_product(mu, V), lambda a, b: a + b)

    def sums(self, factors: Factors, unsure: Array | None = None) -> Sums:
        """Take the E step; O(dq²) numbers are all that leaves a chunk."""
        return self.rows.reduce(lambda chunk: chunk.sums(factors, unsure), Sums.plus)


# --- EM, but for the E step: where it starts, and the M step -------------------------------------

RIDGE = 1e-14
"""Share of a matrix's trace that is added to its diagonal before it is factored."""


def start(
    data: Observed,
    q: int,
    mu: Array,
    variance: Array,
    rng: np.random.Generator,
    units: Array | None = None,
) -> Array:
    """Return loadings to start from: the span of the rows filled with the mean.

    With `units` (d,) that span is found among features measured in them.
    """
    xp = backend.namespace(mu)
    d = int(mu.shape[0])
    V, ell = filled_axes(data, q, mu, rng, units)
    unit = float(xp.mean(variance if units is None else variance / units / units))
    spread = xp.sqrt(xp.where(ell > 0.05 * unit, ell, 0 * ell + 0.05 * unit))
    # features with no loading at all would keep none: zero is a saddle of the likelihood
    W = V * spread + 0.1 * unit**0.5 * backend.normal(rng, (d, q), mu)
    return W if units is None else W * units[:, None]


def filled_axes(
    data: Observed, q: int, mu: Array, rng: np.random.Generator, units: Array | None = None
) -> tuple[Array, Array]:
    """Return axes (d, q) and variances (q,) of the rows filled with the mean, in `units`.

    A few subspace iterations. Missing entries count as the mean, which shrinks the variances but
    leads to the right span.
    """
    d, n = int(mu.shape[0]), float(data.n)

    def product(V: Array) -> Array:
        if units is None:
            return data.filled_product(mu, V)
        return data.filled_product(mu, V / units[:, None]) / units[:, None]

    V = algebra.orthonormal(backend.normal(rng, (d, min(d, q + 4)), mu))
    for _ in range(3):
        V, s, _ = algebra.svd(product(V))
    # rounding decides the signs that a singular value decomposition gives
    return deterministic_signs(V[:, :q]), s[:q] / n


def m_step(sums: Sums, factors: Factors, prior: Array | None = None) -> tuple[Array, Array, Array]:
    """Return new loadings and mean, and each feature's left-over sum of squares (theory 4.2).

    w̃_j = (Σ E[z̃z̃ᵀ])⁻¹ Σ x E[z̃] with z̃ = (z, 1), for all features in one batch; then the latents'
    own mean ν and covariance Γ are folded back, μ ← μ + Wν, W ← WΓ^{1/2} (parameter expansion).

    A `prior` (q,) is added to the diagonal of Σ E[zzᵀ]: σ²α, where column i of W has the prior
    N(0, α_i⁻¹I). With α_i = d/w_iᵀw_i re-estimated the prior sees Γ as −(d/2) ln|Γ|, so the best
    Γ is n/(n + d) times as large.
    """
    xp = backend.namespace(sums.x)
    last = xp.concat([sums.z, sums.n[:, None]], axis=1)[:, None, :]
    G = xp.concat([xp.concat([sums.zz, sums.z[:, :, None]], axis=2), last], axis=1)
    rhs = xp.concat([sums.xz, sums.x[:, None]], axis=1)
    n, d, share, pull = sums.all_n, sums.x.shape[0], 1.0, 0 * rhs[:1, :]
    if prior is not None:
        share = n / (n + d)
        pull = xp.concat([prior, 0 * prior[:1]])[None, :]
    G = G + pull[:, :, None] * backend.asarray(np.eye(G.shape[-1]), G)
    both = xp.linalg.solve(_ridged(G), rhs[:, :, None])[:, :, 0]
    left = sums.xx - xp.sum((rhs + pull * both) * both, axis=1)
    W, mu = both[:, :-1], factors.mu + both[:, -1]
    nu, root = latent_frame(sums)
    return share**0.5 * (W @ root), mu + W @ nu, xp.where(left > 0, left, 0 * left)


def latent_frame(sums: Sums) -> tuple[Array, Array]:
    """Return the latents' own mean ν (q,) and a root of their covariance Γ^{1/2} (q, q)."""
    xp = backend.namespace(sums.x)
    nu = sums.all_z / sums.all_n
    gamma = sums.all_zz / sums.all_n - nu[:, None] * nu[None, :]
    return nu, xp.linalg.cholesky(_ridged(gamma[None, :, :]))[0, :, :]


def _ridged(A: Array) -> Array:
    """Return positive semi-definite matrices (n, k, k) lifted off singularity by rounding size."""
    xp = backend.namespace(A)
    size = xp.sum(xp.linalg.diagonal(A), axis=1)[:, None, None]
    return A + RIDGE * size * backend.asarray(np.eye(A.shape[-1]), A)


# --- Maximum likelihood: accelerated, parameter-expanded EM --------------------------------------

EM_FIRST = 30
"""Steps of EM before quasi-Newton takes over, in factor analysis."""


class Fit:
    """The EM map on vectors θ = (W, μ − μ₀, ln ψ), in units of standard deviations.

    Parameters
    ----------
    table : Table
    q : int
    noise : float, optional
        Fixed noise variance σ².
    diagonal : bool
        One ψ_j per feature (factor analysis) instead of a common σ² (PPCA).
    floor : float
        Smallest ψ_j, as a share of the feature's variance; of the average one, if it is constant.
    columns : Columns, optional
        Of the table, where they are known.
    """

    def __init__(
        self,
        table: Table,
        q: int,
        noise: float | None = None,
        *,
        diagonal: bool = False,
        floor: float = 0.0,
        columns: Columns | None = None,
    ) -> None:
        self.data = IncompleteTable(table, q, columns)
        self.q, self.noise, self.diagonal = q, noise, diagonal
        self.seen, self.origin, self.variance = self.starts()
        xp, self.d = backend.namespace(self.origin), int(self.origin.shape[0])
        refuse_empty_columns(self.seen)
        self.unit = float(xp.mean(self.variance))
        check_unit(self.unit, table, self.origin)
        # factor analysis does not depend on the features' units: nor do its path and its bounds
        own = xp.where(self.variance > 0, self.variance, 0 * self.variance + self.unit)
        self.root = xp.sqrt(own if diagonal else 0 * own + self.unit)
        self.square = own if diagonal else 0 * own[:1] + self.unit
        smallest = own * floor if diagonal else 0 * own[:1]
        least = LEAST_NOISE * self.square
        self.smallest = xp.where(smallest > least, smallest, least)

    def starts(self) -> tuple[Array, Array, Array]:
        """Return each feature's observed weight, mean and variance."""
        return self.data.columns[:3]

    def sums(self, factors: Factors) -> Sums:
        """Take the E step."""
        return self.data.sums(factors)

    def pack(self, factors: Factors) -> Array:
        """Return θ."""
        xp = backend.namespace(factors.W)
        psi = factors.psi if self.diagonal else factors.psi[:1]
        psi = xp.where(psi > self.smallest, psi, self.smallest)
        W = xp.reshape(factors.W / self.root[:, None], (-1,))
        return xp.concat([W, (factors.mu - self.origin) / self.root, xp.log(psi / self.square)])

    def unpack(self, theta: Array) -> Factors:
        """Return the density of θ."""
        xp, size = backend.namespace(theta), self.d * self.q
        W = xp.reshape(theta[:size], (self.d, self.q)) * self.root[:, None]
        mu = self.origin + theta[size : size + self.d] * self.root
        logs = theta[size + self.d :]
        low, high = xp.log(self.smallest / self.square), 50.0
        logs = xp.where(logs < low, low, xp.where(logs > high, 0 * logs + high, logs))
        psi = xp.exp(logs) * self.square if self.noise is None else xp.full_like(logs, self.noise)
        return Factors(W, mu, psi if self.diagonal else xp.broadcast_to(psi, (self.d,)))

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the log-likelihood of θ."""
        factors = self.unpack(theta)
        sums = self.expectations(factors)
        W, mu, left = m_step(sums, factors)
        return self.pack(Factors(W, mu, self._noise(left, sums.n))), float(sums.loglikelihood)

    def expectations(self, factors: Factors) -> Sums:
        """Take the E step, or say why it cannot be taken."""
        try:
            return self.sums(factors)
        except Exception as error:
            if not backend.is_linalg_error(error):
                raise
            raise DegenerateError(
                "a posterior cannot be computed in floating point: the noise is too small beside "
                "the loadings. Use fewer components (the data may have a lower rank)."
            ) from error

    def slope(self, theta: Array) -> tuple[float, Array]:
        """Return the log-likelihood of θ and its gradient, by Fisher's identity from the E step."""
        xp, factors = backend.namespace(theta), self.unpack(theta)
        sums = self.sums(factors)
        W, psi = factors.W, factors.psi
        Wzz = (sums.zz @ W[:, :, None])[:, :, 0]
        to_W = (sums.xz - Wzz) / psi[:, None]
        to_mu = (sums.x - xp.sum(W * sums.z, axis=1)) / psi
        off = sums.xx - xp.sum(W * (2 * sums.xz - Wzz), axis=1)
        to_logs = 0.5 * (off / psi - sums.n)
        parts = [xp.reshape(to_W * self.root[:, None], (-1,)), to_mu * self.root, to_logs]
        return float(sums.loglikelihood), xp.concat(parts)

    def polish(
        self,
        theta: Array,
        record: Record,
        tol: float,
        max_iter: int,
        keeper: Keeper | None = None,
    ) -> Array:
        """Climb on by quasi-Newton within the bounds of ψ: EM crawls near a Heywood case.

        Stops when no component of the gradient of the log-likelihood per row exceeds `tol`.
        """
        n, size = self.data.n, self.d * (self.q + 1)
        low = backend.to_numpy(backend.namespace(theta).log(self.smallest / self.square))

        def objective(x: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
            value, slope = self.slope(backend.asarray(x, theta))
            return -value / n, -backend.to_numpy(slope) / n

        def note(value: float) -> None:
            record.add(-n * value)

        bounds: list[Any] = [(None, None)] * size + [(b, 50.0) for b in low]
        cost = objective if keeper is None else Tape(objective, keeper, _before(theta, record))
        found = descend(cost, backend.to_numpy(theta), bounds, note, tol, max_iter)
        record.n_iter += found.n_iter
        record.converged, record.interrupted = found.converged, found.interrupted
        return backend.asarray(found.x, theta)

    def _noise(self, left: Array, n: Array) -> Array:
        xp = backend.namespace(left)
        if self.noise is not None:
            return xp.full_like(left, self.noise)
        return left / n if self.diagonal else xp.full_like(left, float(xp.sum(left) / xp.sum(n)))

    def begin(self, rng: np.random.Generator, psi: Array | None = None) -> Array:
        """Return θ to start from: the span of the rows filled with means, and noise ψ."""
        xp = backend.namespace(self.origin)
        units = self.root if self.diagonal else None
        W = start(self.data, self.q, self.origin, self.variance, rng, units)
        left = self.variance - xp.sum(W * W, axis=1)
        floor = 0.05 * self.square
        left = xp.where(left > floor, left, 0 * left + floor)
        if psi is None:
            psi = left if self.diagonal else xp.full_like(left, float(xp.mean(left)))
        psi = psi if self.noise is None else xp.full_like(left, self.noise)
        return self.pack(Factors(W, self.origin, psi))

    def begin_anywhere(self, rng: np.random.Generator) -> Array:
        """Return a random θ to start from."""
        W = 0.5 * self.root[:, None] * backend.normal(rng, (self.d, self.q), self.origin)
        psi = 0 * self.root + self.square if self.noise is None else 0 * self.root + self.noise
        return self.pack(Factors(W, self.origin, psi))

    def merit(self, run: tuple[Factors, Record]) -> tuple[bool, float]:
        """Return what to compare runs by: a noise that did not vanish, then the likelihood."""
        smallest = float(backend.namespace(run[0].psi).min(run[0].psi / self.square))
        return not has_vanished(smallest, 1.0), run[1].loglikelihoods[-1]


def fit_incomplete(
    table: Table,
    q: int,
    rng: np.random.Generator,
    *,
    noise: float | None = None,
    diagonal: bool = False,
    floor: float = 0.0,
    psi: Array | None = None,
    tol: float = 1e-4,
    max_iter: int = 1000,
    n_init: int = 1,
    watch: Watch | None = None,
    columns: Columns | None = None,
) -> tuple[Factors, Record]:
    """Fit x = Wz + μ + ε to rows with missing values by the exact likelihood of what was observed.

    With a ψ of its own for every feature, EM is followed by quasi-Newton on the same likelihood;
    `psi` is the noise to start from. Of `n_init` starts, the first from the span of the rows
    filled with means and the others random, the one that ends most likely is kept. With a
    `watch` there is one start, and a checkpoint of it.

    Cost of a step: O(|X| q²/2) for the products with the mask and O(q³) per pattern; memory one
    block of rows beyond X.
    """
    fit = Fit(table, q, noise, diagonal=diagonal, floor=floor, columns=columns)
    keeper = None if watch is None else watch.over(fit.data.n, fit.origin, fit.variance)
    fresh = keeper is None or keeper.state is None
    best = _run(fit, fit.begin(rng, psi) if fresh else fit.origin, tol, max_iter, keeper)
    if keeper is not None:
        if not best[1].interrupted:
            keeper.done()
        return best
    for _ in range(n_init - 1):
        if best[1].interrupted:
            break
        try:
            other = _run(fit, fit.begin_anywhere(rng), tol, max_iter)
        except DegenerateError:
            continue
        best = max(best, other, key=fit.merit)
    return best


def _run(
    fit: Fit, theta: Array, tol: float, max_iter: int, keeper: Keeper | None = None
) -> tuple[Factors, Record]:
    """Climb from one start."""
    steps = min(max_iter, EM_FIRST) if fit.diagonal else max_iter
    if keeper is not None and keeper.state is not None and "values" in keeper.state[0]:
        theta, record = _after_em(keeper.state, theta)
    else:
        theta, record = maximize(fit.step, theta, tol=tol, max_iter=steps, keeper=keeper)
    if steps < max_iter and not (record.converged or record.interrupted):
        theta = fit.polish(theta, record, tol, max_iter - steps, keeper)
    factors = fit.unpack(theta)
    record.add(float(fit.sums(factors).loglikelihood))
    return factors, record


def _before(theta: Array, record: Record) -> State:
    """Return where EM left off and quasi-Newton begins."""
    values = np.array(record.loglikelihoods)
    return {"theta": backend.to_numpy(theta), "loglikelihoods": values}, {"n_iter": record.n_iter}


def _after_em(state: State, like: Array) -> tuple[Array, Record]:
    """Return where EM had left off in a fit that was killed later."""
    arrays, numbers = state
    values = [float(v) for v in arrays["loglikelihoods"]]
    return backend.asarray(arrays["theta"], like), Record(values, int(numbers["n_iter"]))


def check_unit(unit: float, X: Array | Table, origin: Array) -> None:
    """Raise where the average variance is no usable number, saying why."""
    if not math.isfinite(unit):
        raise ScaleError(
            "X is too large: its variance overflows float64. Divide X by a constant first."
        )
    if unit < SMALLEST_TRACE:
        if _largest_offset(X, origin) > 0:
            raise ScaleError(
                "X varies too little: its variance underflows float64. Multiply X by a constant."
            )
        raise DegenerateError(
            "every feature is constant where it is observed: there is nothing to model."
        )


def _largest_offset(X: Array | Table, origin: Array) -> float:
    """Return the largest |x − origin| of what was observed."""
    if isinstance(X, Table):
        return X.reduce(lambda rows, weights=None: _largest_offset(rows, origin), max)
    xp = backend.namespace(X)
    off = xp.where(xp.isnan(X), xp.zeros_like(X), X - backend.cast_like(origin, X))
    return float(xp.max(xp.abs(off)))


def refuse_empty_columns(seen: Array) -> None:
    """Raise if a feature was never observed, naming it."""
    empty = np.flatnonzero(backend.to_numpy(seen) == 0)
    if empty.size:
        raise EmptyColumnError([int(j) for j in empty])
