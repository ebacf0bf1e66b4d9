"""A mixture from chunks, each seen once: stepwise EM (Cappé & Moulines 2009).

Of the rows only expected moments are kept, one weighted mean and scatter per component. They fade
as the parameters they were taken at grow old, s ← (1 − γ)s + γ s̄(chunk), where γ is the chunk's
share of all rows to the power `FORGET`, and the components are the closed form of what is kept
(theory 2). A missing value enters through its conditional mean and covariance, so chunks with and
without NaN are treated alike.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend, log_sum_exp
from dualpca.data import InMemoryTable, Moments, has_missing, refuse_infinite
from dualpca.errors import expected
from dualpca.gaussian import Factors, Incomplete, latents
from dualpca.models.driver import History
from dualpca.models.emissions import Observations, Surveyed
from dualpca.models.mixture.fit import BOUND, MixtureRequest, best_mixture, check_sizes, row_weights
from dualpca.models.mixture.model import Mixture, MixtureModel, model_of
from dualpca.models.streaming import FORGET, after_waiting

FIRST_ROWS, FIRST_ROWS_PER_COMPONENT, FIRST_ROWS_TO_CHOOSE = 100, 20, 1000
"""Rows wait until there are so many: the start is a fit of those, and all depends on it.

The last where sizes are to be chosen.
"""


@dataclass(frozen=True)
class MixtureStream:
    """What a stream remembers. Adding a chunk returns a new one.

    Parameters
    ----------
    K : int
        Number of components, for how many rows wait.

    Notes
    -----
    Memory O(Kd²) and fewer than max(100, 20K) rows that wait, 1,000 where sizes are chosen.

    Examples
    --------
    >>> import numpy as np
    >>> rng, request, stream = np.random.default_rng(0), MixtureRequest(2, 1), MixtureStream(2)
    >>> for _ in range(20):
    ...     X = rng.normal(size=(100, 3)) + 4 * rng.choice([-1, 1], size=(100, 1))
    ...     stream = stream.add(X, None, request)
    >>> np.abs(stream.kept.emissions.means.round(0)[:, 0])
    array([4., 4.])
    """

    _together: ClassVar = ("rows weights", "kept moments")  # in files
    _one_of: ClassVar = ("rows", "kept")

    K: Annotated[int, ">= 1, == K"]
    rows: Annotated[Array, "b d", "or nan"] | None = None  # waiting
    weights: Annotated[Array, "b", ">= 0"] | None = None
    kept: Annotated[Mixture, "K d"] | None = None
    moments: tuple[Annotated[Moments, "d=p"], ...] = ()  # a unit of weight in all
    n: Annotated[float, ">= 0"] = 0.0  # weight of all rows, waiting ones included
    density: float = 0.0  # running average of ln p per row, as the rows came
    like: Annotated[Array, "0 d"] | None = None  # no rows, of the last chunk's library and dtype

    def add(self, X: Array, weights: Array | None, request: MixtureRequest) -> MixtureStream:
        """Return the stream with one more chunk; the rows that it starts from are fitted."""
        refuse_infinite(X)
        xp, w, like = backend.namespace(X), row_weights(X, weights), X[:0, :]
        X = backend.working(X)
        if self.kept is not None:
            return replace(self, like=like)._absorb(self.kept, X, w)
        X, w = after_waiting(self.rows, self.weights, X, w)
        waiting = replace(self, rows=X, weights=w, n=float(xp.sum(w)), like=like)
        least = max(FIRST_ROWS, FIRST_ROWS_PER_COMPONENT * self.K)
        least = least if request.criterion is None else max(least, FIRST_ROWS_TO_CHOOSE)
        return waiting.settle(request) if int(X.shape[0]) >= least else waiting

    def settle(self, request: MixtureRequest) -> MixtureStream:
        """Return the stream after the fit of the rows that wait, if any do."""
        if self.rows is None or self.weights is None:
            return self
        data = Surveyed.of(InMemoryTable(self.rows, self.weights))
        kept = best_mixture(data, request)[0].mixture
        found, density = expected_moments(kept, self.rows, self.weights)
        moments, density = tuple(_times(m, 1 / self.n) for m in found), density / self.n
        known: dict[str, Any] = {"kept": kept, "moments": moments, "density": density}
        return replace(self, K=kept.emissions.K, rows=None, weights=None, **known)

    @property
    def enough(self) -> bool:
        """True if there are rows for a mixture, even if they still wait."""
        return self.rows is None or int(self.rows.shape[0]) >= max(2, self.K)

    def _absorb(self, old: Mixture, X: Array, w: Array) -> MixtureStream:
        """Take one step of EM on what is remembered and on a chunk."""
        mass = float(backend.namespace(w).sum(w))
        if mass == 0:
            return self
        n = self.n + mass
        gamma = (mass / n) ** FORGET
        chunk, density = expected_moments(old, X, w)
        moments = tuple(
            _times(kept, 1 - gamma).merge(_times(new, gamma / mass)) if new.n > 0 else kept
            for kept, new in zip(self.moments, chunk, strict=True)
        )
        weights = backend.asarray(np.array([m.n for m in moments]), old.weights)
        weights = weights / backend.namespace(weights).sum(weights)
        mixture = Mixture(weights, old.emissions.of_moments(moments))
        running = self.density + gamma * (density / mass - self.density)
        return replace(self, kept=mixture, moments=moments, n=n, density=running)


def grown(
    stream: MixtureStream | None, table: InMemoryTable, request: MixtureRequest
) -> MixtureStream:
    """Return a stream with one more chunk."""
    K = request.n_mixtures
    if K == BOUND:
        what = "an int, 'bic' or 'cv' where partial_fit is used: rows are not kept for a bound"
        raise ValueError(expected("n_mixtures", what, K))
    check_sizes(request, sys.maxsize, table.d, "features")
    old = MixtureStream(1 if isinstance(K, str) else int(K)) if stream is None else stream
    if not isinstance(K, str) and old.K != K:
        what, remedy = f"{old.K}, as when the stream began", "Give all chunks to a new model."
        raise ValueError(expected("n_mixtures", what, K, remedy))
    return old.add(table.rows, table.weights, request)


def model_of_stream(stream: MixtureStream, request: MixtureRequest) -> MixtureModel:
    """Return the model of a stream; waiting rows are included, and the stream is as before."""
    settled = stream.settle(request)
    if settled.kept is None:
        raise ValueError("the stream has no rows yet: give it some.")
    like = settled.kept.weights if stream.like is None else stream.like
    value = settled.density * stream.n
    history = History((value,), 1, converged=False, endless=True)
    found, n = settled.kept.numbered(), float(stream.n)
    return model_of(found, like, value, settled.density, history=history, n_rows=n)


def _times(m: Moments, factor: float) -> Moments:
    return Moments(m.n * factor, m.mean, m.scatter * factor)


def expected_moments(model: Mixture, X: Array, w: Array) -> tuple[list[Moments], float]:
    """Return the moments of every component's share of the rows, and Σ w ln p.

    A row with NaN counts as its distribution given what it observed: conditional means for missing
    values, and their conditional covariance added to the scatter. O(nd²) per component, and q times
    that for rows with NaN.
    """
    emissions, rows = model.emissions, model.emissions.table(X) if has_missing(X) else X
    density, resp = log_sum_exp(model.joint(rows))
    every = [(emissions.factors(k), resp[:, k] * w) for k in range(emissions.K)]
    return [_component_moments(rows, *each) for each in every], float(w @ density)


def _component_moments(rows: Observations, factors: Factors, w: Array) -> Moments:
    xp, mu = backend.namespace(w), factors.mu
    n = float(xp.sum(w))
    if not n > 0:
        return Moments(0.0, mu, 0 * mu[:, None] * mu[None, :])
    R, extra = _filled(rows, factors, w) if isinstance(rows, Incomplete) else (rows - mu, 0.0)
    shift = w @ R / n
    scatter = algebra.gram(R * xp.sqrt(w)[:, None]) - n * shift[:, None] * shift[None, :]
    return Moments(n, mu + shift, scatter + extra)


def _filled(table: Incomplete, factors: Factors, w: Array) -> tuple[Array, Array]:
    """Return rows around μ with expectations for missing values, and their summed covariances."""
    xp, W, rows, d = backend.namespace(w), factors.W, [], int(factors.mu.shape[0])
    extra = backend.asarray(np.zeros((d, d)), w)
    for block in table.blocks(factors.mu):
        found, own, missing = latents(factors, block), w[block.rows], 1 - block.mask
        rows.append(block.R + missing * (found.mean @ W.T))
        F = missing[:, :, None] * (W @ algebra.covariance_root(found.covariance))
        F = xp.permute_dims(F * xp.sqrt(own)[:, None, None], (0, 2, 1))
        extra = extra + algebra.gram(xp.reshape(F, (-1, d)))
        extra = extra + backend.asarray(np.eye(d), w) * (own @ missing) * factors.psi[0]
    return xp.concat(rows, axis=0), extra
