"""Maximum likelihood from incomplete rows: accelerated, parameter-expanded EM (MATH 4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.checkpoints import Keeper, State, Tape, Watch
from dualpca.em import Record, descend, maximize
from dualpca.errors import DegenerateError, EmptyColumnError, ScaleError
from dualpca.holes import refuse_infinite
from dualpca.missing import Factors, Incomplete, Sums
from dualpca.missing_parts import IncompleteParts
from dualpca.missing_steps import m_step, start
from dualpca.moments import SMALLEST_TRACE
from dualpca.parts import Summable

LEAST_NOISE = 1e-11
"""Smallest noise, as a share of the average variance: below it a row's posterior is lost."""

EM_FIRST = 30
"""Steps of EM before quasi-Newton takes over, in factor analysis."""


def observed(X: Array | Summable, weights: Array | None, q: int) -> Incomplete | IncompleteParts:
    """Return rows with NaN as EM sees them, once it is sure that none is infinite."""
    if isinstance(X, Summable):
        return IncompleteParts(X, q)
    refuse_infinite(X)
    return Incomplete(X, weights, q)


class Fit:
    """The EM map on vectors θ = (W, μ − μ₀, ln ψ), in units of standard deviations.

    Parameters
    ----------
    X : array of shape (n, d) or Summable
    weights : array of shape (n,) or None
        None for a table in parts, which has its own.
    q : int
    noise : float or None
        Fixed noise variance σ².
    diagonal : bool
        One ψ_j a feature (factor analysis) instead of a common σ² (PPCA).
    floor : float
        Smallest ψ_j, as a share of the feature's variance; of the average one, if it is constant.
    """

    def __init__(
        self,
        X: Array,
        weights: Array | None,
        q: int,
        noise: float | None,
        diagonal: bool,
        floor: float = 0.0,
    ) -> None:
        self.data: Any = observed(X, weights, q)
        self.q, self.noise, self.diagonal = q, noise, diagonal
        self.seen, self.origin, self.variance = self.columns(X, weights)
        xp, self.d = _array.namespace(self.origin), int(self.origin.shape[0])
        refuse_empty_columns(self.seen)
        self.unit = float(xp.mean(self.variance))
        check_unit(self.unit, X, self.origin)
        # factor analysis does not depend on the features' units: nor do its path and its bounds
        own = xp.where(self.variance > 0, self.variance, 0 * self.variance + self.unit)
        self.root = xp.sqrt(own if diagonal else 0 * own + self.unit)
        self.square = own if diagonal else 0 * own[:1] + self.unit
        smallest = own * floor if diagonal else 0 * own[:1]
        least = LEAST_NOISE * self.square
        self.smallest = xp.where(smallest > least, smallest, least)

    def columns(self, X: Array, weights: Array | None) -> tuple[Array, Array, Array]:
        """Return each feature's observed weight, mean and variance."""
        found: tuple[Array, Array, Array] = self.data.columns()
        return found

    def sums(self, factors: Factors) -> Sums:
        """Take the E step."""
        found: Sums = self.data.sums(factors)
        return found

    def pack(self, factors: Factors) -> Array:
        """Return θ."""
        xp = _array.namespace(factors.W)
        psi = factors.psi if self.diagonal else factors.psi[:1]
        psi = xp.where(psi > self.smallest, psi, self.smallest)
        W = xp.reshape(factors.W / self.root[:, None], (-1,))
        return xp.concat([W, (factors.mu - self.origin) / self.root, xp.log(psi / self.square)])

    def unpack(self, theta: Array) -> Factors:
        """Return the density of θ."""
        xp, size = _array.namespace(theta), self.d * self.q
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
            if not _array.is_linalg_error(error):
                raise
            raise DegenerateError(
                "a posterior cannot be computed in floating point: the noise is too small beside "
                "the loadings. Use fewer components (the data may have a lower rank)."
            ) from error

    def slope(self, theta: Array) -> tuple[float, Array]:
        """Return the log-likelihood of θ and its gradient, by Fisher's identity from the E step."""
        xp, factors = _array.namespace(theta), self.unpack(theta)
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

        Stops when no component of the gradient of the log-likelihood a row exceeds `tol`.
        """
        n, size = self.data.n, self.d * (self.q + 1)
        low = _array.to_numpy(_array.namespace(theta).log(self.smallest / self.square))

        def objective(x: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
            value, slope = self.slope(_array.asarray(x, theta))
            return -value / n, -_array.to_numpy(slope) / n

        def note(value: float) -> None:
            record.add(-n * value)

        bounds: list[Any] = [(None, None)] * size + [(b, 50.0) for b in low]
        cost = objective if keeper is None else Tape(objective, keeper, _before(theta, record))
        found = descend(cost, _array.to_numpy(theta), bounds, note, tol, max_iter)
        record.n_iter += found.n_iter
        record.converged, record.interrupted = found.converged, found.interrupted
        return _array.asarray(found.x, theta)

    def _noise(self, left: Array, n: Array) -> Array:
        xp = _array.namespace(left)
        if self.noise is not None:
            return xp.full_like(left, self.noise)
        return left / n if self.diagonal else xp.full_like(left, float(xp.sum(left) / xp.sum(n)))

    def begin(self, rng: np.random.Generator, psi: Array | None = None) -> Array:
        """Return θ to start from: the span of the rows filled with means, and noise ψ."""
        xp = _array.namespace(self.origin)
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
        W = 0.5 * self.root[:, None] * _array.normal(rng, (self.d, self.q), self.origin)
        psi = 0 * self.root + self.square if self.noise is None else 0 * self.root + self.noise
        return self.pack(Factors(W, self.origin, psi))

    def merit(self, run: tuple[Factors, Record]) -> tuple[bool, float]:
        """Return what to compare runs by: a noise that did not vanish, then the likelihood."""
        smallest = float(_array.namespace(run[0].psi).min(run[0].psi / self.square))
        return smallest > 10 * LEAST_NOISE, run[1].loglikelihoods[-1]


def fit_incomplete(
    X: Array | Summable,
    weights: Array | None,
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
) -> tuple[Factors, Record]:
    """Fit x = Wz + μ + ε to rows with NaN by the exact likelihood of what was observed.

    With a ψ of its own for every feature, EM is followed by quasi-Newton on the same likelihood;
    `psi` is the noise to start from. Of `n_init` starts, the first from the span of the rows
    filled with means and the others random, the one that ends most likely is kept. With a
    `watch` there is one start, and a checkpoint of it.

    Cost of a step: O(|X| q²/2) for the products with the mask and O(q³) a pattern; memory one
    block of rows beyond X.
    """
    fit = Fit(X, weights, q, noise, diagonal, floor)
    if watch is not None:
        return _watched(fit, watch, rng, psi, tol, max_iter)
    best = _run(fit, fit.begin(rng, psi), tol, max_iter)
    for _ in range(n_init - 1):
        if best[1].interrupted:
            break
        try:
            other = _run(fit, fit.begin_anywhere(rng), tol, max_iter)
        except DegenerateError:
            continue
        best = max(best, other, key=fit.merit)
    return best


def _watched(
    fit: Fit,
    watch: Watch,
    rng: np.random.Generator,
    psi: Array | None,
    tol: float,
    max_iter: int,
) -> tuple[Factors, Record]:
    """Climb with a checkpoint, from where an earlier fit came to if there is one."""
    keeper = watch.over(fit.data.n, fit.origin, fit.variance)
    theta = fit.begin(rng, psi) if keeper.state is None else fit.origin
    found = _run(fit, theta, tol, max_iter, keeper)
    if not found[1].interrupted:
        keeper.done()
    return found


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
    return {"theta": _array.to_numpy(theta), "loglikelihoods": values}, {"n_iter": record.n_iter}


def _after_em(state: State, like: Array) -> tuple[Array, Record]:
    """Return where EM had left off in a fit that was killed later."""
    arrays, numbers = state
    values = [float(v) for v in arrays["loglikelihoods"]]
    return _array.asarray(arrays["theta"], like), Record(values, int(numbers["n_iter"]))


def check_unit(unit: float, X: Array, origin: Array) -> None:
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


def _largest_offset(X: Array | Summable, origin: Array) -> float:
    """Return the largest |x − origin| of what was observed."""
    if isinstance(X, Summable):
        return X.reduce(lambda rows, weights=None: _largest_offset(rows, origin), max)
    xp = _array.namespace(X)
    off = xp.where(xp.isnan(X), xp.zeros_like(X), X - _array.cast_like(origin, X))
    return float(xp.max(xp.abs(off)))


def refuse_empty_columns(seen: Array) -> None:
    """Raise if a feature was never observed, naming it."""
    empty = np.flatnonzero(_array.to_numpy(seen) == 0)
    if empty.size:
        raise EmptyColumnError([int(j) for j in empty])
