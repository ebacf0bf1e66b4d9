"""Mixtures of PPCA by EM: steps, and components that collapse on the way (MATH 6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.checkpoints import Keeper, State
from dualpca.em import Record
from dualpca.emissions import Emissions, Table
from dualpca.holes import column_starts, has_missing
from dualpca.mixture import Mixture, average_variance, log_sum_exp
from dualpca.moments import block_weights
from dualpca.progress import task
from dualpca.sticks import Shares, broken_sticks, proportions

SLOWEST = 0.99
"""Largest rate of convergence that the estimate of what is left to gain believes in."""

DEAD = 1e-8
"""Share of all rows below which a component is dead."""


CollapseRules = ("floor", "reseed", "drop")


class Limits(NamedTuple):
    """When EM stops, and what it does with a component that collapses."""

    tol: float = 1e-6
    max_iter: int = 500
    on_collapse: str = "floor"
    alpha: float | None = None  # concentration of a Dirichlet process; None for likelihood


USUAL = Limits()


class Climbed(NamedTuple):
    """A mixture, how EM came to it, and which components had to be helped on the way."""

    mixture: Mixture
    record: Record
    reseeded: int
    dropped: int

    @property
    def merit(self) -> tuple[int, float]:
        """What to compare runs by."""
        return _merit(self.mixture.emissions, self.record)


class Climb:
    """Where EM is: components, weights, and the responsibilities they give.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    weights : array of shape (n,), optional
    start : Emissions
    mass : array of shape (K,)
        Weight of the rows that each component starts with.
    limits : Limits
        `tol` is the estimated gain that is left, in log-likelihood a row.
    rng : Generator
        For components that are sown again.

    Notes
    -----
    The likelihood (or bound) on record never falls; it starts anew where a component was dropped
    or sown again. Cost of a step on complete rows: O(ndΣq_k) for densities, and weighted scatters,
    O(nd²) where components are apart and K times that where they all overlap.
    """

    def __init__(
        self,
        X: Array,
        weights: Array | None,
        start: Emissions,
        mass: Array,
        limits: Limits,
        rng: np.random.Generator,
    ) -> None:
        self.X, self.limits, self.rng, self.record = X, limits, rng, Record()
        self.table: Table = start.table(X) if has_missing(X) else X
        self.w = block_weights(weights, slice(None), X)
        self.n = float(_array.namespace(X).sum(self.w))
        self.emissions, self.mass = start, mass
        self.reseeded = self.dropped = 0
        self.shares = self.share()
        self.expect()

    def run(self, max_iter: int, keeper: Keeper | None = None) -> None:
        """Step on until EM has converged or taken `max_iter` steps in all.

        An interruption by the keyboard ends it where the last whole step left it.
        """
        with task("EM step", max_iter) as tick:
            whole = self._now()
            try:
                while self.record.n_iter < max_iter and not self.record.ended:
                    self.step()
                    whole = self._now()
                    tick(f"log-likelihood {self.record.loglikelihoods[-1]:.6g}")
                    if keeper is not None:
                        keeper.offer(self.state)
            except KeyboardInterrupt:
                vars(self).update(whole)
                self.record.interrupted = True
        if keeper is not None and self.record.interrupted:
            keeper.offer(self.state, now=True)
        elif keeper is not None:
            keeper.done()

    def _now(self) -> dict[str, Any]:
        """Return all that a step changes; what it changes in place is copied."""
        return vars(self) | {"record": self.record.copy()}

    def state(self) -> State:
        """Return all that the next step depends on."""
        model = self.emissions
        arrays = {f"W{k}": _array.to_numpy(W) for k, W in enumerate(model.loadings)}
        arrays |= {"means": _array.to_numpy(model.means), "noises": _array.to_numpy(model.noises)}
        arrays |= {"mass": _array.to_numpy(self.mass)}
        arrays |= {"loglikelihoods": np.array(self.record.loglikelihoods)}
        numbers: dict[str, Any] = {"n_iter": self.record.n_iter, "K": model.K}
        numbers |= {"reseeded": self.reseeded, "dropped": self.dropped}
        numbers |= {"converged": self.record.converged}
        numbers |= {"rng": self.rng.bit_generator.state}
        numbers |= {"prior": None if model.prior is None else list(model.prior)}
        return arrays, numbers

    def restore(self, arrays: dict[str, Any], numbers: dict[str, Any]) -> None:
        """Set what a state says of the way that led to it."""
        self.record.loglikelihoods[:] = [float(v) for v in arrays["loglikelihoods"]]
        self.record.n_iter = int(numbers["n_iter"])
        self.record.converged = bool(numbers["converged"])
        self.reseeded, self.dropped = int(numbers["reseeded"]), int(numbers["dropped"])
        self.rng.bit_generator.state = numbers["rng"]

    @property
    def merit(self) -> tuple[int, float]:
        """What to compare runs by."""
        return _merit(self.emissions, self.record)

    def share(self) -> Shares:
        """Return the weights that the present masses give."""
        if self.limits.alpha is None:
            return proportions(self.mass)
        return broken_sticks(self.mass, self.limits.alpha, self.emissions.n_parameters())

    def expect(self) -> None:
        """Take the E step and note the likelihood."""
        xp = _array.namespace(self.X)
        joint = self.emissions.log_density(self.table) + self.shares.log_weights
        self.density = log_sum_exp(joint)
        self.resp = xp.exp(joint - self.density[:, None])
        rest = self.shares.constant + self.emissions.log_prior()
        self.record.add(float(self.w @ self.density) + rest)

    def step(self) -> None:
        """Take one M step and one E step."""
        self.record.n_iter += 1
        self.maximise()
        if self.limits.on_collapse != "floor":
            self.rescue()
        self.shares = self.share()
        self.expect()
        self.record.converged = _left(self.record.loglikelihoods) <= self.limits.tol * self.n

    def maximise(self) -> None:
        """Take the M step."""
        self.emissions = self.emissions.update(self.table, self.resp, self.w)
        self.mass = self.w @ self.resp

    def rescue(self) -> None:
        """Drop or sow again what collapsed, as long as something else is left."""
        bad = self.collapsed()
        if not bad or len(bad) == self.emissions.K:
            return
        self.record.loglikelihoods.clear()
        if self.limits.on_collapse == "reseed" and self.reseeded < 2 * self.emissions.K:
            self.reseed(bad)
            return
        keep = [k for k in range(self.emissions.K) if k not in bad]
        self.emissions, self.mass = (
            self.emissions.take(keep),
            _array.take(self.mass, np.array(keep)),
        )
        self.dropped += len(bad)

    def collapsed(self) -> list[int]:
        """Return components whose noise is at the floor, or that no row belongs to."""
        mass = np.asarray(_array.to_numpy(self.mass))
        dead = [int(k) for k in np.flatnonzero(mass < DEAD * self.n)]
        if self.limits.alpha is not None:  # components are meant to die
            dead = []
        return sorted({*dead, *self.emissions.at_floor()})

    def reseed(self, bad: list[int]) -> None:
        """Sow components again, round and wide, at rows that the others explain worst."""
        xp, model = _array.namespace(self.X), self.emissions
        order = np.argsort(
            np.where(_array.to_numpy(self.w) > 0, _array.to_numpy(self.density), np.inf)
        )
        worst = order[: max(2 * len(bad), len(order) // 20)]
        mean = column_starts(self.X, self.w)[1]
        unit = average_variance(self.X, self.w)
        means, loadings = [model.means[k, :] for k in range(model.K)], list(model.loadings)
        for k, i in zip(bad, self.rng.choice(worst, len(bad), replace=False), strict=True):
            row = _array.working(self.X[int(i), :])
            means[k] = xp.where(xp.isnan(row), mean, row)
            loadings[k] = 0.1 * unit**0.5 * _array.normal(self.rng, model.loadings[k].shape, mean)
        fresh = np.isin(np.arange(model.K), bad)
        mask = _array.asarray(fresh.astype(float), self.mass)
        noises = model.noises * (1 - mask) + unit * mask
        self.emissions = replace(
            model, means=xp.stack(means), loadings=tuple(loadings), noises=noises
        )
        self.mass = self.mass * (1 - mask) + mask * self.n / model.K
        self.reseeded += len(bad)

    def outcome(self) -> Climbed:
        """Return the mixture; one under a Dirichlet process without its empty components."""
        weights, emissions = self.shares.weights, self.emissions
        if self.limits.alpha is not None:
            mass = np.asarray(_array.to_numpy(self.mass))
            keep = [int(k) for k in np.argsort(-mass, kind="stable") if mass[k] >= 1] or [0]
            weights, emissions = _array.take(weights, np.array(keep)), emissions.take(keep)
        weights = weights / _array.namespace(weights).sum(weights)
        return Climbed(Mixture(weights, emissions), self.record, self.reseeded, self.dropped)


def _merit(emissions: Emissions, record: Record) -> tuple[int, float]:
    """Return what to compare runs by: few collapsed components, then the likelihood."""
    return -len(emissions.at_floor()), record.loglikelihoods[-1]


def _left(values: list[float]) -> float:
    """Estimate how much likelihood is left to gain, as of a geometric sequence of gains."""
    if len(values) < 2:
        return np.inf
    gain = max(values[-1] - values[-2], 0.0)
    if gain <= 1e-13 * abs(values[-1]):
        return 0.0
    if len(values) < 3:
        return np.inf
    before = max(values[-2] - values[-3], 0.0)
    rate = min(gain / before, SLOWEST) if before > 0 else SLOWEST
    return gain / (1 - rate)
