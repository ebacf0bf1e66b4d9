"""What the M step of mixtures and hidden chains needs of rows, as sums over parts (MATH 6)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.emissions import Emissions
from dualpca.missing import Sums
from dualpca.moments import Moments
from dualpca.parts import Host
from dualpca.weighted_steps import NEGLIGIBLE

FAINT = 1e-200
"""Weight below which a component has no share in a part."""


class EmissionSums(NamedTuple):
    """Weighted moments of every component, or sums of its E step where values are missing.

    None for a component that no row so far belongs to.
    """

    mass: Host  # (K,)
    each: tuple[Moments | Sums | None, ...]  # K of them

    @classmethod
    def of(cls, emissions: Emissions, rows: Host, resp: Array, holes: bool) -> EmissionSums:
        """Gather one part; `resp` (b, K) are the rows' shares in the components."""
        mass = resp.sum(axis=0)
        found: list[Moments | Sums | None]
        if holes:
            table = emissions.table(rows)
            found = [
                table.weighing(resp[:, k]).sums(emissions.factors(k)) if mass[k] > FAINT else None
                for k in range(emissions.K)
            ]
        else:
            found = [_moments(rows, resp[:, k]) for k in range(emissions.K)]
        return cls(mass, tuple(found))

    def plus(self, other: EmissionSums) -> EmissionSums:
        """Join two disjoint sets of rows."""
        pairs = zip(self.each, other.each, strict=True)
        return EmissionSums(self.mass + other.mass, tuple(_join(a, b) for a, b in pairs))

    def maximise(self, emissions: Emissions) -> Emissions:
        """Return the components of largest expected log-likelihood, as `Emissions.update`."""
        if any(isinstance(one, Sums) for one in self.each):
            return emissions.of_sums(self.each, self.mass)  # type: ignore[arg-type]
        d = emissions.dim
        nothing = Moments(0.0, np.zeros(d), np.zeros((d, d)))
        found = [one if isinstance(one, Moments) else nothing for one in self.each]
        return emissions.of_moments(found)


def _moments(rows: Host, w: Array) -> Moments | None:
    """Return weighted moments; weights of size 1 keep sums off underflow on the way."""
    top = float(np.max(w, initial=0.0))
    if not top > FAINT:
        return None
    member = np.flatnonzero(w > NEGLIGIBLE * top)
    found = Moments.of(rows if member.size == len(rows) else rows[member], w[member] / top)
    return Moments(top * found.n, found.mean, top * found.scatter)


def _join(a: Moments | Sums | None, b: Moments | Sums | None) -> Moments | Sums | None:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, Moments) and isinstance(b, Moments):
        return a.merge(b)
    if isinstance(a, Sums) and isinstance(b, Sums):
        return a.plus(b)
    raise TypeError(f"sums of {type(a).__name__} and {type(b).__name__} do not add.")


def shares(weights: Array, rows: Host) -> Host:
    """Return resp with 0 for rows that observe nothing: they say nothing of any component."""
    empty = np.all(np.isnan(rows), axis=1, keepdims=True)
    return np.where(empty, 0.0, _array.to_numpy(weights))
