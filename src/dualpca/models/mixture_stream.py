"""A mixture from chunks, each seen once: stepwise EM (Cappé & Moulines 2009).

Of the rows only expected moments are kept, one weighted mean and scatter per component. They fade
as the parameters they were taken at grow old, s ← (1 − γ)s + γ s̄(chunk), and the components are
the closed form of what is kept (theory 2). A missing entry enters through its conditional mean and
covariance, so chunks with and without NaN are treated alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import (
    InMemoryTable,
    Moments,
    block_weights,
    has_missing,
    observed_weights,
    refuse_infinite,
)
from dualpca.errors import expected
from dualpca.gaussian import Factors, latents
from dualpca.models.driver import History
from dualpca.models.emissions import Emissions
from dualpca.models.mixture import (
    Mixture,
    MixtureModel,
    MixtureRequest,
    Surveyed,
    best_mixture,
    check_sizes,
    log_sum_exp,
    model_of,
)

FORGET = 0.6
"""γ is the chunk's share of all rows to this power; above 1/2 it converges."""

FEWEST_ROWS, ROWS_A_COMPONENT = 100, 20
"""Rows wait until there are so many: the start is a fit of those, and all depends on it."""

First = Callable[[Array, Array], Mixture]
"""Rows and weights ↦ the mixture that the stream starts from."""


@dataclass(frozen=True)
class MixtureStream:
    """What a stream remembers. Adding a chunk returns a new one.

    Parameters
    ----------
    K : int
        Number of components, for how many rows wait.

    Notes
    -----
    Memory O(Kd²) and fewer than max(100, 20K) rows that wait.

    Examples
    --------
    >>> import numpy as np
    >>> rng, first = np.random.default_rng(0), first_fit(MixtureRequest(2, 1))
    >>> stream = MixtureStream(2)
    >>> for _ in range(20):
    ...     X = rng.normal(size=(100, 3)) + 4 * rng.choice([-1, 1], size=(100, 1))
    ...     stream = stream.add(X, None, first)
    >>> np.abs(stream.mixture.emissions.means.round(0)[:, 0])
    array([4., 4.])
    """

    K: int
    rows: Annotated[Array, "b d"] | None = None  # waiting
    weights: Annotated[Array, "b"] | None = None
    kept: Mixture | None = None
    moments: tuple[Moments, ...] = ()  # a unit of weight in all
    n: float = 0.0  # weight of all rows, waiting ones included
    density: float = 0.0  # running average of ln p per row, as the rows came
    like: Annotated[Array, "0 d"] | None = None  # no rows, of the last chunk's kind

    def add(self, X: Array, weights: Array | None, first: First) -> MixtureStream:
        """Return the stream with one more chunk."""
        refuse_infinite(X)
        xp, w, like = backend.namespace(X), _some(X, weights), X[:0, :]
        X = backend.working(X)
        if self.kept is not None:
            return replace(self._absorb(X, w), like=like)
        if self.rows is not None:
            X, w = xp.concat([self.rows, X], axis=0), xp.concat([self.weights, w], axis=0)
        waiting = replace(self, rows=X, weights=w, n=float(xp.sum(w)), like=like)
        enough = int(X.shape[0]) >= max(FEWEST_ROWS, ROWS_A_COMPONENT * self.K)
        return waiting.settle(first) if enough else waiting

    def settle(self, first: First) -> MixtureStream:
        """Return the stream after the fit of the rows that wait, if any do."""
        if self.rows is None or self.weights is None:
            return self
        found = first(self.rows, self.weights)
        moments, density = expected_moments(found, self.rows, self.weights)
        scaled = tuple(_times(m, 1 / self.n) for m in moments)
        return replace(
            self, rows=None, weights=None, kept=found, moments=scaled, density=density / self.n
        )

    @property
    def enough(self) -> bool:
        """True if there are rows for a mixture, be it that they still wait."""
        return self.rows is None or int(self.rows.shape[0]) >= max(2, self.K)

    @property
    def mixture(self) -> Mixture:
        """The mixture so far, of a stream that has settled."""
        if self.kept is None:
            raise ValueError("the stream has not settled yet: give it more rows.")
        return self.kept

    def _absorb(self, X: Array, w: Array) -> MixtureStream:
        """Take one step of EM on what is remembered and on a chunk."""
        model, mass = self.mixture, float(backend.namespace(w).sum(w))
        if mass == 0:
            return self
        n = self.n + mass
        gamma = (mass / n) ** FORGET
        chunk, density = expected_moments(model, X, w)
        moments = tuple(
            _times(old, 1 - gamma).merge(_times(new, gamma / mass)) if new.n > 0 else old
            for old, new in zip(self.moments, chunk, strict=True)
        )
        weights = backend.asarray(np.array([m.n for m in moments]), model.weights)
        emissions = model.emissions.of_moments(moments)
        kept = Mixture(weights / backend.namespace(weights).sum(weights), emissions)
        running = self.density + gamma * (density / mass - self.density)
        return replace(self, kept=kept, moments=moments, n=n, density=running)


def first_fit(request: MixtureRequest) -> First:
    """Return what fits the rows that a stream starts from."""

    def first(rows: Array, weights: Array) -> Mixture:
        return best_mixture(Surveyed.of(InMemoryTable(rows, weights)), request)[0].mixture

    return first


def grown(
    stream: MixtureStream | None, table: InMemoryTable, request: MixtureRequest
) -> MixtureStream:
    """Return a stream with one more chunk."""
    K = request.n_mixtures
    if isinstance(K, str) or isinstance(request.n_components, str):
        what = "ints where partial_fit is used: rows are not kept for a choice"
        got = (K, request.n_components)
        raise ValueError(expected("n_mixtures and n_components", what, got))
    check_sizes(request, sys.maxsize, table.d)
    old = MixtureStream(int(K)) if stream is None else stream
    if old.K != K:
        what, remedy = f"{old.K}, as when the stream began", "Give all chunks to a new model."
        raise ValueError(expected("n_mixtures", what, K, remedy))
    return old.add(table.rows, table.weights, first_fit(request))


def model_of_stream(stream: MixtureStream, request: MixtureRequest) -> MixtureModel:
    """Return the model of a stream; rows that wait are counted in, and the stream is as before."""
    settled = stream.settle(first_fit(request))
    like = settled.mixture.weights if stream.like is None else stream.like
    value = settled.density * stream.n
    history = History((value,), 1, converged=False, endless=True)
    return model_of(settled.mixture, like, value, settled.density, history=history)


def _some(X: Array, weights: Array | None) -> Array:
    """Return a weight for every row, 0 for those that observe nothing."""
    return block_weights(observed_weights(X, weights), slice(None), X)


def _times(m: Moments, factor: float) -> Moments:
    return Moments(m.n * factor, m.mean, m.scatter * factor)


def expected_moments(model: Mixture, X: Array, w: Array) -> tuple[list[Moments], float]:
    """Return the moments of every component's share of the rows, and Σ w ln p.

    A row with NaN counts as its distribution given what it observed: conditional means for missing
    values, and their conditional covariance added to the scatter. O(nd²) per component, and q times
    that for rows with NaN.
    """
    joint = model.joint(X)
    density, holes = log_sum_exp(joint), has_missing(X)
    resp = backend.namespace(joint).exp(joint - density[:, None]) * w[:, None]
    every = range(model.emissions.K)
    moments = [_component(model.emissions, k, X, resp[:, k], holes) for k in every]
    return moments, float(w @ density)


def _component(emissions: Emissions, k: int, X: Array, w: Array, holes: bool) -> Moments:
    xp, factors = backend.namespace(w), emissions.factors(k)
    n = float(xp.sum(w))
    if not n > 0:
        return Moments(0.0, factors.mu, 0 * factors.mu[:, None] * factors.mu[None, :])
    R, extra = _filled(emissions, factors, X, w) if holes else (X - factors.mu, 0.0)
    shift = w @ R / n
    scatter = algebra.gram(R * xp.sqrt(w)[:, None]) - n * shift[:, None] * shift[None, :]
    return Moments(n, factors.mu + shift, scatter + extra)


def _filled(emissions: Emissions, factors: Factors, X: Array, w: Array) -> tuple[Array, Array]:
    """Return rows around μ with expectations for missing values, and their summed covariances."""
    xp, table = backend.namespace(X), emissions.table(X)
    W, rows, d = factors.W, [], int(X.shape[1])
    extra = backend.asarray(np.zeros((d, d)), X)
    for block in table.blocks(factors.mu):
        found, own = latents(factors, block), w[block.rows]
        hole = 1 - block.mask
        rows.append(block.R + hole * (found.mean @ W.T))
        F = hole[:, :, None] * (W @ xp.linalg.cholesky(found.covariance))
        F = xp.permute_dims(F * xp.sqrt(own)[:, None, None], (0, 2, 1))
        extra = extra + algebra.gram(xp.reshape(F, (-1, d)))
        extra = extra + backend.asarray(np.eye(d), X) * (own @ hole) * factors.psi[0]
    return xp.concat(rows, axis=0), extra
