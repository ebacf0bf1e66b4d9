"""Weighted maximum likelihood of several spiked Gaussians at once (MATH 6.1): the M step.

Every component is a `Part` until the noise is known, since a tied noise needs all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.holes import column_starts
from dualpca.missing import Factors, Incomplete, Sums
from dualpca.missing_steps import m_step, start
from dualpca.moments import HEAD, Moments
from dualpca.representations import Primal, Scatter
from dualpca.rules import left_over
from dualpca.running import moment_sums
from dualpca.solvers import choose, solve

NEGLIGIBLE = 1e-20
"""Responsibility, relative to the largest, below which a row is left out of a component."""

EMPTY = 1e-12
"""Share of all weight below which a component has no rows and stays as it is."""

FEW, TALL = 32, 10
"""Features up to which second moments are tried first, for at least so many rows a feature."""

WELL_SPREAD = 1e-6
"""Smallest variance, as a share of Σw‖x‖²/n, that second moments hold to nine digits."""


class Prior(NamedTuple):
    """What every component has seen before any row: n rows spread evenly around its mean.

    ln p(C) = −(n/2)(ln|C| + v tr C⁻¹) up to a constant, an inverse Wishart density with a round
    scale. Eigenvectors stay, and a variance ℓ becomes (n_k ℓ + n v)/(n_k + n).
    """

    n: float
    variance: float  # v

    def moments(self, mu: Array) -> Moments:
        """Return the moments of those rows."""
        eye = _array.asarray(np.eye(mu.shape[0]), mu)
        return Moments(self.n, mu, self.n * self.variance * eye)

    def log_density(self, factors: Factors) -> float:
        """Return ln p(C) up to a constant."""
        return float(moment_sums(self.moments(factors.mu), factors).loglikelihood)


class Part(NamedTuple):
    """A component whose noise is not settled yet: W is `axes` · √(values − σ²), or W itself."""

    mu: Array  # (d,)
    axes: Array  # (d, q), principal axes; loadings where `values` is None
    values: Array | None  # (q,), variances along them
    left: float  # sum of squares off the axes, weighted
    dims: float  # weight times the number of directions that it is spread over
    n: float

    def under(self, prior: Prior | None) -> Part:
        """Return the component with the rows of a prior counted in."""
        if prior is None or self.values is None:
            return self
        n, seen = self.n + prior.n, prior.n * prior.variance
        short = self.dims / self.n
        values = (self.n * self.values + seen) / n
        return Part(self.mu, self.axes, values, self.left + short * seen, short * n, n)

    def factors(self, sigma2: float) -> Factors:
        """Return the component with noise σ²; directions of no more variance have no loading."""
        xp, W = _array.namespace(self.mu), self.axes
        if self.values is not None:
            excess = self.values - sigma2
            W = W * xp.sqrt(xp.where(excess > 0, excess, xp.zeros_like(excess)))
        return Factors(W, self.mu, xp.full_like(self.mu, sigma2))


def settle(parts: Sequence[Part | None], floor: float, tied: bool) -> list[Factors | None]:
    """Return every part with its noise: left/dims or one for all, never below the floor.

    Examples
    --------
    >>> import numpy as np
    >>> part = Part(np.zeros(3), np.eye(3)[:, :1], np.array([5.0]), 8.0, 8.0, 4.0)
    >>> settle([part], 0.0, tied=False)[0].W[0, 0]
    np.float64(2.0)
    """
    common = pooled_noise([p for p in parts if p is not None]) if tied else 0.0
    found: list[Factors | None] = []
    for part in parts:
        if part is None:
            found.append(None)
            continue
        own = part.left / part.dims if part.dims > 0 else 0.0
        found.append(part.factors(max(common if tied else own, floor)))
    return found


def pooled_noise(parts: Sequence[Part]) -> float:
    """Return the σ² that all parts share at the maximum.

    Every direction of variance ℓ ≤ σ² belongs to the noise, so the smallest are pooled one by one
    until the rest lies above.
    """
    left, dims = sum(p.left for p in parts), sum(p.dims for p in parts)
    kept = sorted(
        (float(ell), p.n)
        for p in parts
        if p.values is not None
        for ell in _array.to_numpy(p.values)
    )
    for ell, n in kept:
        if dims > 0 and ell * dims > left:
            break
        if dims > 0:
            left, dims = left + n * ell, dims + n
    return left / dims if dims > 0 else 0.0


def closed_parts(X: Array, resp: Array, ranks: Sequence[int]) -> list[Part | None]:
    """Return the maximum of Σ_n ρ_nk ln p(x_n | k) for every k: the spectrum of weighted rows.

    Rows that hardly belong to k are left out, so separate components cost O(nd²) together.
    """
    weights = _array.to_numpy(resp)
    total, found = float(np.sum(weights)), list[Part | None]()
    for k, q in enumerate(ranks):
        w, n = weights[:, k], float(np.sum(weights[:, k]))
        if not n > EMPTY * total:
            found.append(None)
            continue
        member = np.flatnonzero(w > NEGLIGIBLE * np.max(w))
        # n scales out of means and variances; weights of size 1 keep sums off underflow
        own = _array.asarray(w[member] / np.max(w), X)
        whole = member.size == w.size
        found.append(closed_part(Primal(X if whole else _array.take(X, member), own), q, n))
    return found


def closed_part(operator: Primal | Scatter, q: int, n: float) -> Part:
    """Return the component of weight n that the leading q eigenpairs make.

    Few features and many rows: from their second moments, which is faster than QR, unless the
    smallest variance would lose digits to the largest.
    """
    if isinstance(operator, Primal) and 0 < q and operator.dim <= FEW:
        if TALL * operator.dim <= operator.X.shape[0]:
            part = _leading_part(operator, q, n, "dense")
            if _keeps_digits(part, operator):
                return part
            operator = Primal(operator.X, operator.weights)  # forget the moments
    return _leading_part(operator, q, n)


def _keeps_digits(part: Part, operator: Primal) -> bool:
    """Tell whether every variance is large beside what was added and taken away to find it."""
    xp, values = _array.namespace(part.mu), _array.to_numpy(part.values)
    smallest = [float(values[-1])] if values.size else []
    smallest += [part.left / part.dims] if part.dims > 0 else []
    head = slice(0, min(HEAD, int(operator.X.shape[0])))
    gap = part.mu - xp.mean(_array.row_block(operator.X, head), axis=0)
    return min(smallest) > WELL_SPREAD * (operator.trace / operator.n + float(gap @ gap))


def _leading_part(operator: Primal | Scatter, q: int, n: float, solver: str = "auto") -> Part:
    """Return the component by one solver."""
    d = operator.dim
    count = int(operator.X.shape[0]) if isinstance(operator, Primal) else d
    solver = choose(operator, min(q, count, d)) if solver == "auto" else solver
    if solver == "dense" and isinstance(operator, Primal):
        _ = operator.moments  # all that follows can be read off them: one pass instead of two
    spectrum = solve(operator, min(q, count, d), solver)
    xp, short = _array.namespace(spectrum.values), q - spectrum.rank
    values, V = spectrum.values / operator.n, spectrum.vectors
    if short:  # fewer rows than directions: the others have no variance
        values = xp.concat([values, _array.asarray(np.zeros(short), values)])
        V = xp.concat([V, _array.asarray(np.zeros((d, short)), V)], axis=1)
    left = left_over(spectrum.trace, float(xp.sum(spectrum.values))) / operator.n
    return Part(operator.frame.mean, V, values, n * left, n * (d - q), n)


def moment_parts(moments: Sequence[Moments], ranks: Sequence[int]) -> list[Part | None]:
    """Return the components of weighted moments that are already there."""
    total = sum(m.n for m in moments)
    return [
        closed_part(Scatter(m), q, m.n) if m.n > EMPTY * total else None
        for m, q in zip(moments, ranks, strict=True)
    ]


def incomplete_parts(
    table: Incomplete, resp: Array, factors: Sequence[Factors], prior: Prior | None = None
) -> list[Part | None]:
    """Take one parameter-expanded EM step a component on rows with NaN (MATH 4, with weights).

    The rows of a prior lie around the old mean, so it holds the mean back but never lowers the
    objective, in which they lie around the new one.
    """
    xp = _array.namespace(resp)
    mass = _array.to_numpy(xp.sum(resp, axis=0))
    every = (table.weighing(resp[:, k]).sums(old) for k, old in enumerate(factors))
    return summed_parts(every, mass, factors, prior)


def summed_parts(
    every: Iterable[Sums | None], mass: Array, factors: Sequence[Factors], prior: Prior | None
) -> list[Part | None]:
    """Return the components of sums that are already there, of weights `mass` (K,)."""
    found: list[Part | None] = []
    for k, (old, sums) in enumerate(zip(factors, every, strict=True)):
        if sums is None or not mass[k] > EMPTY * np.sum(mass):
            found.append(None)
            continue
        xp = _array.namespace(old.mu)
        if prior is not None:
            sums = sums.plus(moment_sums(prior.moments(old.mu), old))
        W, mu, left = m_step(_anchored(sums, old), old)
        dims = float(xp.sum(sums.n))
        found.append(Part(mu, W, None, float(xp.sum(left)), dims, float(mass[k])))
    return found


def _anchored(sums: Sums, old: Factors) -> Sums:
    """Return the sums with the old regression for features that no row of the component observes.

    Their equations would be 0 = 0; one row at w_j with posterior N(0, I) makes them w'_j = w_j.
    """
    xp = _array.namespace(sums.n)
    blind = sums.n <= EMPTY * sums.all_n
    if not bool(xp.any(blind)):
        return sums
    eye = _array.asarray(np.eye(sums.z.shape[1]), sums.z)
    column, cube = blind[:, None], blind[:, None, None]
    return sums._replace(
        zz=xp.where(cube, eye, sums.zz),
        z=xp.where(column, xp.zeros_like(sums.z), sums.z),
        n=xp.where(blind, xp.ones_like(sums.n), sums.n),
        xz=xp.where(column, old.W, sums.xz),
        x=xp.where(blind, xp.zeros_like(sums.x), sums.x),
        xx=xp.where(blind, xp.sum(old.W * old.W, axis=1), sums.xx),
    )


def first_parts(
    X: Array, resp: Array, ranks: Sequence[int], rng: np.random.Generator
) -> list[Part | None]:
    """Return components to start EM from on rows with NaN: the span of each cluster, filled."""
    xp = _array.namespace(X)
    weights = _array.to_numpy(resp)
    _, mean, variance = column_starts(X, _array.asarray(np.sum(weights, axis=1), X))
    found: list[Part | None] = []
    for k, q in enumerate(ranks):
        member = np.flatnonzero(weights[:, k] > 0)
        if not member.size:
            found.append(None)
            continue
        rows, w = _array.take(X, member), _array.asarray(weights[member, k], X)
        seen, mu, own = column_starts(rows, w)
        # a feature observed once or never in the cluster is as in all rows
        mu, own = xp.where(seen > 0, mu, mean), xp.where(own > 0, own, variance)
        W = start(Incomplete(rows, w, q), q, mu, own, rng)
        left = float(xp.mean(own)) - float(xp.sum(W * W)) / int(X.shape[1])
        noise, n = max(left, 0.05 * float(xp.mean(own))), float(np.sum(weights[member, k]))
        found.append(Part(mu, W, None, noise * n, n, n))
    return found
