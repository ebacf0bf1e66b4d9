"""Rows with NaN in parts: the E step and what it starts from, as sums over the parts (MATH 4)."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.holes import column_starts, observed_weights
from dualpca.holes import refuse_infinite as refuse_infinite_rows
from dualpca.missing import Factors, Incomplete, Sums
from dualpca.parts import Host, Summable


class Columns(NamedTuple):
    """What is known of every feature before EM: sums over the rows that observe it."""

    n: Array  # (d,), number (weight) of them
    mean: Array  # (d,)
    variance: Array  # (d,)
    rows: int
    used: int  # rows that observe something, and weigh something
    weight: float  # theirs

    @classmethod
    def of(cls, rows: Host, weights: Host | None = None) -> Columns:
        """Read one part; infinity is refused."""
        refuse_infinite_rows(rows)
        w = np.ones(len(rows)) if weights is None else weights
        w = np.where(np.isnan(rows).all(axis=1), 0.0, w)
        starts = column_starts(rows, weights)
        return cls(*starts, len(rows), int((w > 0).sum()), float(w.sum()))

    def merge(self, other: Columns) -> Columns:
        """Join two disjoint sets of rows (Chan, Golub & LeVeque 1983), feature by feature.

        Examples
        --------
        >>> a = Columns.of(np.array([[1.0, np.nan], [3.0, np.nan]]))
        >>> b = Columns.of(np.array([[5.0, 7.0]]))
        >>> a.merge(b).mean, a.merge(b).n
        (array([3., 7.]), array([2., 1.]))
        """
        n = self.n + other.n
        safe = np.where(n > 0, n, 1.0)
        mine, theirs = self.n / safe, other.n / safe
        delta = other.mean - self.mean
        # a feature not seen on one side has no mean there: the other's is taken as it is
        mean = np.where(self.n > 0, self.mean + delta * theirs, other.mean)
        between = np.where((self.n > 0) & (other.n > 0), mine * theirs * delta * delta, 0.0)
        variance = mine * self.variance + theirs * other.variance + between
        rows, used = self.rows + other.rows, self.used + other.used
        return Columns(n, mean, variance, rows, used, self.weight + other.weight)


class IncompleteParts:
    """A table in parts with NaN, in the role of `Incomplete`: every sum is a pass over the parts.

    Parameters
    ----------
    parts : Parts
    q : int
        Number of latents, for the size of blocks within a part.
    survey : Columns, optional
        Read by an earlier pass.
    """

    def __init__(self, parts: Summable, q: int, survey: Columns | None = None) -> None:
        self.parts, self.q = parts, q
        if survey is not None:
            self.survey = survey

    @cached_property
    def survey(self) -> Columns:
        """What is known of every feature, by one pass unless it was given."""
        return self.parts.reduce(Columns.of, Columns.merge)

    @property
    def n(self) -> float:
        """Effective number of rows, the sum of the weights of those that observe something."""
        return self.survey.weight

    def columns(self) -> tuple[Array, Array, Array]:
        """Return each feature's number of observations, mean and variance."""
        return self.survey.n, self.survey.mean, self.survey.variance

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""
        q = self.q

        def of(rows: Host, weights: Host | None = None) -> Array:
            return as_table(rows, weights, q).filled_product(mu, V)

        return self.parts.reduce(of, np.add)

    def sums(self, factors: Factors, unsure: Array | None = None) -> Sums:
        """Take the E step over all parts; O(dq²) numbers are all that leaves one."""
        q = self.q

        def of(rows: Host, weights: Host | None = None) -> Sums:
            return as_table(rows, weights, q).sums(factors, unsure)

        return self.parts.reduce(of, Sums.plus)


def as_table(rows: Host, weights: Host | None, q: int) -> Incomplete:
    """Return one part cut into blocks; rows that observe nothing count nothing."""
    rows = _array.working(rows)
    return Incomplete(rows, observed_weights(rows, weights), q)
