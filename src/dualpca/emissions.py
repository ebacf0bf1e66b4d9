"""K Gaussians with a few stretched directions each: what mixtures and hidden chains emit (MATH 6).

Densities and weighted maximum likelihood; who weighs the rows (a mixture, a chain) is not known
here. Rows with NaN count with what they observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.clusters import kmeans
from dualpca.errors import ScaleError
from dualpca.gaussian import free_parameters
from dualpca.holes import has_missing
from dualpca.missing import Factors, Incomplete, Latents, Sums, latents
from dualpca.moments import Moments
from dualpca.spiked_density import log_densities
from dualpca.weighted_steps import (
    Part,
    Prior,
    closed_parts,
    first_parts,
    incomplete_parts,
    moment_parts,
    settle,
    summed_parts,
)

Table = Array | Incomplete
"""Rows as they are, or cut into blocks once so that patterns of NaN are not found again."""


@dataclass(frozen=True)
class Emissions:
    """N(μ_k, W_kW_kᵀ + σ_k²I) for k = 1 … K, each with q_k directions of its own.

    Parameters
    ----------
    means : array of shape (K, d)
        μ_k.
    loadings : tuple of arrays of shape (d, q_k)
        W_k.
    noises : array of shape (K,)
        σ_k².
    floor : float
        Smallest noise that `update` may return: without it a component can collapse on a point.
    tied : bool
        One σ² for all components.
    prior : Prior, optional
        Counted in by `update`, which then maximises the posterior density.

    Notes
    -----
    Tipping & Bishop (1999b). Densities of complete rows cost O(ndq) a component, and nothing d×d
    is formed for them.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(50, 3)) - 5, rng.normal(size=(50, 3)) + 5])
    >>> model = Emissions.start(X, 2, 1, rng)
    >>> sorted(model.means[:, 0].round(0).tolist()), model.log_density(X).shape
    ([-5.0, 5.0], (100, 2))
    """

    means: Array  # (K, d)
    loadings: tuple[Array, ...]  # K of (d, q_k)
    noises: Array  # (K,)
    floor: float = 0.0
    tied: bool = False
    prior: Prior | None = None

    @classmethod
    def start(
        cls,
        X: Table,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
        *,
        floor: float = 0.0,
        tied: bool = False,
        labels: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Emissions:
        """Return the components of clusters: given labels, or k-means from a k-means++ start.

        Parameters
        ----------
        X : array of shape (n, d) or Incomplete
        K : int
        q : int or sequence of K ints
        rng : Generator
        floor, tied
            As above.
        labels : array of int of shape (n,), optional
            On the host, from 0 to K − 1.
        sample_weight : array of shape (n,), optional
        """
        rows = X.X if isinstance(X, Incomplete) else X
        if labels is None:
            labels = kmeans(rows, K, rng, sample_weight)
        members = _array.asarray(np.equal.outer(labels, np.arange(K)).astype(float), rows)
        resp = members if sample_weight is None else members * sample_weight[:, None]
        counts = [q] * K if isinstance(q, int) else [int(one) for one in q]
        if isinstance(X, Incomplete) or has_missing(X):
            parts = first_parts(rows, resp, counts, rng)
        else:
            parts = closed_parts(rows, resp, counts)
        return cls._blank(counts, rows, floor, tied)._with(parts)

    @classmethod
    def _blank(cls, ranks: Sequence[int], like: Array, floor: float, tied: bool) -> Emissions:
        """Return components at 0 without directions, for those that no row belongs to."""
        K, d = len(ranks), int(like.shape[1])
        means = _array.asarray(np.zeros((K, d)), like)
        loadings = tuple(_array.asarray(np.zeros((d, q)), like) for q in ranks)
        noises = _array.asarray(np.full(K, max(floor, 1e-300)), like)
        return cls(means, loadings, noises, floor, tied)

    @property
    def K(self) -> int:
        """Number of components."""
        return int(self.means.shape[0])

    @property
    def dim(self) -> int:
        """d, the number of features."""
        return int(self.means.shape[1])

    @property
    def ranks(self) -> tuple[int, ...]:
        """q_k."""
        return tuple(int(W.shape[1]) for W in self.loadings)

    def factors(self, k: int) -> Factors:
        """Return component k as (W, μ, ψ)."""
        xp = _array.namespace(self.means)
        return Factors(
            self.loadings[k], self.means[k, :], xp.broadcast_to(self.noises[k], (self.dim,))
        )

    def log_density(self, X: Table) -> Array:
        """Return ln p(x_i | k) of what each row observed, (n, K); −∞ for no row under every k."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._log_density(X)
        refuse_nowhere(found)
        return found

    def _log_density(self, X: Table) -> Array:
        xp = _array.namespace(self.means)
        if not isinstance(X, Incomplete):
            if not has_missing(X):
                return log_densities(self.means, self.loadings, self.noises, X)
            X = self.table(X)
        columns = [
            xp.concat([found.log_density for found in self._latents(X, k)]) for k in range(self.K)
        ]
        return xp.stack(columns, axis=1)

    def table(self, X: Array) -> Incomplete:
        """Return rows with NaN cut into blocks, their patterns found once for all calls."""
        return Incomplete(X, None, max(self.ranks))

    def _latents(self, X: Incomplete, k: int) -> list[Latents]:
        factors = self.factors(k)
        return [latents(factors, block) for block in X.blocks(factors.mu)]

    def posterior(self, X: Table, k: int) -> Latents:
        """Return the posterior of z under component k: means, covariances and log-densities."""
        X = X if isinstance(X, Incomplete) else self.table(X)
        xp, found = _array.namespace(self.means), self._latents(X, k)
        return Latents(*(xp.concat(list(part), axis=0) for part in zip(*found, strict=True)))

    def update(self, X: Table, resp: Array, sample_weight: Array | None = None) -> Emissions:
        """Return the components that maximise Σ ρ_nk ln p(x_n | k) (MATH 2 with weights).

        With NaN it is one parameter-expanded EM step a component, which never lowers that sum.

        Parameters
        ----------
        X : array of shape (n, d) or Incomplete
        resp : array of shape (n, K)
            ρ, not negative. A component that no row belongs to stays as it is.
        sample_weight : array of shape (n,), optional
            Multiplies ρ.

        Returns
        -------
        Emissions
            With no σ_k² below `floor`; directions whose variance is below it have no loading.
        """
        resp = resp if sample_weight is None else resp * sample_weight[:, None]
        if isinstance(X, Incomplete) or has_missing(X):
            table = X if isinstance(X, Incomplete) else self.table(X)
            every = [self.factors(k) for k in range(self.K)]
            return self._with(incomplete_parts(table, resp, every, self.prior))
        return self._with(closed_parts(X, resp, self.ranks))

    def of_moments(self, moments: Sequence[Moments]) -> Emissions:
        """Return the components that maximise the likelihood of moments, one for each k."""
        return self._with(moment_parts(moments, self.ranks))

    def of_sums(self, sums: Sequence[Sums | None], mass: Array) -> Emissions:
        """Return the components after one EM step on sums of rows with NaN, of weights `mass`."""
        every = [self.factors(k) for k in range(self.K)]
        return self._with(summed_parts(sums, mass, every, self.prior))

    def _with(self, parts: list[Part | None]) -> Emissions:
        """Return the components that the parts found, old ones where a part found nothing."""
        xp = _array.namespace(self.means)
        counted = [p if p is None else p.under(self.prior) for p in parts]
        found = settle(counted, self.floor, self.tied)
        old = [self.factors(k) for k in range(self.K)]
        new = [f if g is None else g for f, g in zip(old, found, strict=True)]
        noises = xp.stack([f.psi[0] for f in new])
        if self.tied and any(g is not None for g in found):
            noises = noises * 0 + next(float(g.psi[0]) for g in found if g is not None)
        return replace(
            self,
            means=xp.stack([f.mu for f in new]),
            loadings=tuple(f.W for f in new),
            noises=noises,
        )

    def log_prior(self) -> float:
        """Return the log-density of the components under the prior, up to a constant."""
        if self.prior is None:
            return 0.0
        return sum(self.prior.log_density(self.factors(k)) for k in range(self.K))

    def take(self, index: Sequence[int]) -> Emissions:
        """Return some of the components."""
        return replace(
            self,
            means=_array.take(self.means, np.asarray(index)),
            loadings=tuple(self.loadings[k] for k in index),
            noises=_array.take(self.noises, np.asarray(index)),
        )

    def sample(self, which: np.ndarray[Any, Any], rng: np.random.Generator) -> Array:
        """Draw a row of each of these components, (n, d)."""
        counts = np.bincount(which, minlength=self.K)
        drawn = [self._sample(k, int(count), rng) for k, count in enumerate(counts)]
        place = np.argsort(np.argsort(which, kind="stable"), kind="stable")
        return _array.take(_array.namespace(self.means).concat(drawn, axis=0), place)

    def _sample(self, k: int, n: int, rng: np.random.Generator) -> Array:
        """Draw n rows of component k, (n, d)."""
        W = self.loadings[k]
        z = _array.normal(rng, (n, int(W.shape[1])), W)
        noise = _array.normal(rng, (n, self.dim), W)
        return z @ W.T + self.means[k, :] + float(self.noises[k]) ** 0.5 * noise

    def at_floor(self) -> list[int]:
        """Return the components whose smallest variance is held at the floor.

        That is their noise, unless q_k = d leaves no direction for it.
        """
        smallest = _array.to_numpy(self.noises).copy()
        for k, W in enumerate(self.loadings):
            if int(W.shape[1]) == self.dim:
                smallest[k] += float(_algebra.svd(W)[1][-1]) ** 2
        return [int(k) for k in np.flatnonzero(smallest <= self.floor * (1 + 1e-9))]

    def n_parameters(self) -> list[int]:
        """Return the number of free parameters of every component, its mean included.

        A tied noise is counted with the first.
        """
        count = [free_parameters(q, self.dim) + self.dim for q in self.ranks]
        return [c - 1 if self.tied and k else c for k, c in enumerate(count)]


def refuse_nowhere(logs: Array) -> None:
    """Raise if a row's density is 0 in float64 under every component: no one could be told."""
    xp = _array.namespace(logs)
    held = xp.isfinite(xp.max(logs, axis=1))
    if not bool(xp.all(held)):
        row = int(np.flatnonzero(~_array.to_numpy(held))[0])
        raise ScaleError(
            f"row {row} lies so far from every component that its density is beyond float64. "
            "Divide X by a constant before the fit, or leave the row out."
        )
