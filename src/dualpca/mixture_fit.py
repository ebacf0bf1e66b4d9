"""Mixtures of PPCA from rows alone: where EM starts, and the best of a few starts (MATH 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.checkpoints import State, Watch
from dualpca.clusters import kmeans
from dualpca.emissions import Emissions
from dualpca.holes import column_starts
from dualpca.mixture import average_variance
from dualpca.mixture_em import USUAL, Climb, Climbed, Limits
from dualpca.weighted_steps import Prior

PRIOR_ROWS, PRIOR_VARIANCE = 2.0, 0.1
"""Of a component under a Dirichlet process: without a prior the smallest would be the likeliest."""


TRIES, SHORT, LLOYD = 4, 10, 30
"""A start is the best of so many, each of so many steps of EM after so many of k-means.

k-means often puts two centres into one group and one into two; ten steps show it, and a hundred
would not mend it (Biernacki, Celeux & Govaert 2003).
"""


@dataclass(frozen=True)
class Recipe:
    """How a mixture is fitted, apart from its size: what all starts and candidates share."""

    floor: float  # smallest noise variance
    tied: bool = False
    limits: Limits = USUAL

    def fit(
        self,
        X: Array,
        weights: Array | None,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
        labels: Array | None = None,
        watch: Watch | None = None,
    ) -> Climbed:
        """Fit K components of q directions, from labels or the best of a few k-means starts.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = np.concatenate([rng.normal(size=(90, 3)), rng.normal(size=(10, 3)) + 9])
        >>> found = Recipe(floor=1e-6).fit(X, None, 2, 1, rng)
        >>> sorted(found.mixture.weights.round(2).tolist())
        [0.1, 0.9]
        """
        keeper = None
        if watch is not None:
            _, mean, variance = column_starts(X, weights)
            keeper = watch.over(int(X.shape[0]), mean, variance)
        if keeper is not None and keeper.state is not None:
            emissions, mass = self.restored(keeper.state, X)
            best = Climb(X, weights, emissions, mass, self.limits, rng)
            best.restore(*keeper.state)
        elif labels is not None:
            best = self._begin(X, weights, K, q, rng, labels)
        else:
            best = self.begin(X, weights, K, q, rng)
        # a start that was broken off is not where this fit would have gone: nothing to go on from
        best.run(self.limits.max_iter, None if best.record.interrupted else keeper)
        return best.outcome()

    def restored(self, state: State, like: Array) -> tuple[Emissions, Array]:
        """Return the components of a state, and their masses."""
        arrays, numbers = state
        prior = None if numbers["prior"] is None else Prior(*numbers["prior"])
        W = tuple(_array.asarray(arrays[f"W{k}"], like) for k in range(int(numbers["K"])))
        means, noises, mass = (
            _array.asarray(arrays[name], like) for name in ("means", "noises", "mass")
        )
        return Emissions(means, W, noises, self.floor, self.tied, prior), mass

    def begin(
        self,
        X: Array,
        weights: Array | None,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
    ) -> Climb:
        """Return the best of a few short runs, to be carried on."""
        climbs: list[Climb] = []
        for _ in range(TRIES if K > 1 else 1):
            climb = self._begin(X, weights, K, q, rng, kmeans(X, K, rng, weights, LLOYD))
            climb.run(min(SHORT, self.limits.max_iter))
            climbs = [max([*climbs, climb], key=lambda one: one.merit)]
            if climb.record.interrupted:
                climbs[0].record.interrupted = True
                break
        return climbs[0]

    def _begin(
        self,
        X: Array,
        weights: Array | None,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
        labels: Array,
    ) -> Climb:
        """Return EM at the components of clusters."""
        start = Emissions.start(
            X, K, q, rng, floor=self.floor, tied=self.tied, labels=labels, sample_weight=weights
        )
        if self.limits.alpha is not None:
            spread = PRIOR_VARIANCE * average_variance(X, weights)
            start = replace(start, prior=Prior(PRIOR_ROWS, spread))
        w = None if weights is None else _array.to_numpy(weights)
        mass = _array.asarray(np.bincount(labels, w, minlength=K), X)
        return Climb(X, weights, start, mass, self.limits, rng)
