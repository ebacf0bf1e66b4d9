"""Mixtures of PPCA from tables in parts: a step of EM is one pass (MATH 6)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualpca._typing import Array
from dualpca.checkpoints import Keeper
from dualpca.em import Record
from dualpca.emission_sums import EmissionSums, shares
from dualpca.emissions import Emissions
from dualpca.errors import expected
from dualpca.holes import observed_weights
from dualpca.mixture import log_sum_exp
from dualpca.mixture_em import Climb, Climbed, Limits
from dualpca.mixture_fit import Recipe
from dualpca.parts import Host, Parts

START_ROWS = 20_000
"""Rows of the sample on which EM starts."""


class Expected(NamedTuple):
    """One pass of the E step: the likelihood, and what the M step needs."""

    loglikelihood: float
    sums: EmissionSums

    def plus(self, other: Expected) -> Expected:
        """Join two disjoint sets of rows."""
        return Expected(self.loglikelihood + other.loglikelihood, self.sums.plus(other.sums))


class PartsClimb(Climb):
    """EM over a table in parts, from where a climb over a sample of its rows has come."""

    def __init__(
        self,
        parts: Parts,
        holes: bool,
        n: float,
        start: tuple[Emissions, Array],
        limits: Limits,
        rng: np.random.Generator,
    ) -> None:
        if limits.on_collapse == "reseed":
            remedy = "Sowing again looks for the rows explained worst."
            what = "'floor' or 'drop' for data in parts"
            raise ValueError(expected("on_collapse", what, "reseed", remedy))
        self.parts, self.holes, self.n, self.limits = parts, holes, n, limits
        (self.emissions, self.mass), self.rng = start, rng
        self.reseeded = self.dropped = 0
        self.record = Record()
        self.shares = self.share()
        self.expect()

    def expect(self) -> None:
        """Take the E step in one pass, and note the likelihood."""
        emissions, log_weights, holes = self.emissions, self.shares.log_weights, self.holes

        def of(rows: Host) -> Expected:
            return expectation(emissions, log_weights, rows, holes)

        found = self.parts.reduce(of, Expected.plus)
        self.sums = found.sums
        rest = self.shares.constant + self.emissions.log_prior()
        self.record.add(found.loglikelihood + rest)

    def maximise(self) -> None:
        """Take the M step."""
        self.emissions, self.mass = self.sums.maximise(self.emissions), self.sums.mass


def expectation(emissions: Emissions, log_weights: Array, rows: Host, holes: bool) -> Expected:
    """Take the E step over one part."""
    joint = emissions.log_density(rows) + log_weights
    density = log_sum_exp(joint)
    resp = np.exp(joint - density[:, None])
    if holes:
        resp = shares(resp, rows)
        density = np.where(np.isnan(rows).all(axis=1), 0.0, density)
    return Expected(float(density.sum()), EmissionSums.of(emissions, rows, resp, holes))


def fit_mixture_parts(
    parts: Parts,
    holes: bool,
    used: int,
    recipe: Recipe,
    K: int,
    q: int | list[int],
    rng: np.random.Generator,
    keeper: Keeper | None = None,
) -> Climbed:
    """Fit K components of q directions: EM begins on a sample of rows and ends on all of them.

    With fewer rows than the sample has room for, it is the fit in memory.
    """
    n, limits = float(used), recipe.limits
    if keeper is not None and keeper.state is not None:
        begun = recipe.restored(keeper.state, np.empty(0))
        climb = PartsClimb(parts, holes, n, begun, limits, rng)
        climb.restore(*keeper.state)
    else:
        sample = parts.sample(START_ROWS, seed=0)
        start = recipe.begin(sample, observed_weights(sample, None), K, q, rng)
        mass = start.mass * (n / start.n)
        climb = PartsClimb(parts, holes, n, (start.emissions, mass), limits, rng)
        if len(sample) < START_ROWS:  # these were all rows: EM has begun already
            climb.restore(*start.state())
        climb.record.interrupted = start.record.interrupted
    # a start that was broken off is not where this fit would have gone: nothing to go on from
    climb.run(limits.max_iter, None if climb.record.interrupted else keeper)
    return climb.outcome()
