"""The Gaussian of phase I, as rows are compared with it, whatever they have observed.

Of a row x, centred, in units of the fit:

- T² and SPE as everywhere (`gaussian.FactorJudge`), with the laws of that pattern;
- whitened scores y, T² = ‖y‖²: N(0, I_q) under the model, whatever is missing;
- standardised leave-one-out residuals r_i = (Φx)_i/√Φ_ii, Φ = C_oo⁻¹: how far sensor i is from what
  the others say of it (theory 19.1). r_i² is the reconstruction-based contribution of the sensor
  (Alcala & Qin 2009): by so much xᵀΦx falls if its value is replaced by its expectation given the
  others.

All of them are one product with a matrix that is kept for every pattern of missing values: O(w²).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualpca.arrays import Array, cached_property
from dualpca.errors import DegenerateError
from dualpca.gaussian import (
    FactorJudge,
    Factors,
    Incomplete,
    Law,
    Reference,
    completed,
    laws,
    whiteners,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CACHED_NUMBERS = 1 << 25
"""Numbers that the matrices of patterns of missing values may take."""

MAPPED_NUMBERS = 1 << 22
"""Numbers of such matrices that are made at once."""


class Seen(NamedTuple):
    """What a pattern of missing values is multiplied with, and the laws of its T² and SPE."""

    matrix: Floats  # (q + w + d, w), of scores, SPE's residuals, leave-one-out residuals
    known: Floats | None  # (q, q), projection on the directions that are determined; None: all
    laws: tuple[Law, Law]  # of one row


class Measures(NamedTuple):
    """What rows show by themselves, without a memory."""

    scores: Floats  # (n, q), whitened
    residuals: Floats  # (n, d), standardised, NaN where nothing was observed
    t2: Floats  # (n,)
    spe: Floats  # (n,)
    keys: tuple[bytes, ...]  # the pattern of each row
    judged: Flags  # (n,), something was observed

    def backwards(self) -> Measures:
        """Return the same, last row first."""
        y, r, t2, spe = (A[::-1] for A in self[:4])
        return Measures(y, r, t2, spe, self.keys[::-1], self.judged[::-1])


WITHOUT_NOISE = (
    "the noise of a sensor is nothing beside that of others, so that rows have no density. Fit the "
    "monitor again, without sensors that follow exactly from others."
)


@contextmanager
def refusing_singular() -> Iterator[None]:
    """Say that rows have no density where a matrix is singular."""
    try:
        yield
    except np.linalg.LinAlgError:
        raise DegenerateError(WITHOUT_NOISE) from None


@dataclass(frozen=True)
class Baseline:
    """The Gaussian of phase I, as rows are compared with it.

    Parameters
    ----------
    center, scale : arrays of shape (w,)
        Rows minus the one, over the other, have the density `factors`, of mean 0.
    factors : Factors
    reference : Reference
    unit : float
        Of SPE: σ², or 1 where sensors differ in noise.
    noise : array of shape (w,)
        Of every sensor given the loadings, for leave-one-out residuals: also where the model takes
        it to be the same in all.
    spread : array of shape (d,)
        Standard deviation of the leave-one-out residuals in phase I, which is 1 under the model.
    """

    center: Annotated[Array, "d"]
    scale: Annotated[Array, "d", "> 0"]
    factors: Annotated[Factors, "d q"]
    reference: Reference
    unit: Annotated[float, "> 0"]
    noise: Annotated[Array, "d", "> 0"]
    spread: Annotated[Array, "s", "> 0"]

    @property
    def q(self) -> int:
        """Number of causes."""
        return int(self.factors.W.shape[1])

    @property
    def d(self) -> int:
        """Number of sensors; `w` counts those of earlier rows too."""
        return int(self.spread.shape[0])

    @cached_property
    def _seen(self) -> dict[bytes, Seen]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave prepared matrices behind."""
        return {name: value for name, value in vars(self).items() if name != "_seen"}

    def inward(self, rows: Floats) -> Floats:
        """Return rows around the centre in units of the fit."""
        found: Floats = (rows - self.center) / self.scale
        return found

    def seen(self, keys: Sequence[bytes]) -> list[Seen]:
        """Return what each of some patterns is multiplied with; made once for every pattern."""
        known, w = self._seen, len(self.center)
        new = [key for key in dict.fromkeys(keys) if key not in known]
        size = w * (self.q + w + self.d)
        if new and (len(known) + len(new)) * size > CACHED_NUMBERS:
            known.clear()
            new = list(dict.fromkeys(keys))
        step = max(1, MAPPED_NUMBERS // size)
        found: dict[bytes, Seen] = {}
        for i in range(0, len(new), step):
            found |= self._made(new[i : i + step])
        if len(found) * size <= CACHED_NUMBERS:
            known.update(found)
            found = known
        return [found[key] for key in keys]

    def _made(self, keys: list[bytes]) -> dict[bytes, Seen]:
        """Return what some patterns are multiplied with."""
        masks = np.stack([np.frombuffer(key, dtype=np.bool_) for key in keys]).astype(np.float64)
        with refusing_singular():
            maps = FactorJudge(self.factors, self.reference, self.unit).maps(masks)
            J, _ = whiteners(self.covariance, masks)
        if not all(np.isfinite(part).all() for part in (J, maps.scores, maps.residuals)):
            raise DegenerateError(WITHOUT_NOISE)
        phi = J.swapaxes(1, 2) @ J
        own = np.sqrt(np.maximum(np.diagonal(phi, axis1=1, axis2=2), 1e-300))
        d = self.d
        left_out = phi[:, :d] / (own[:, :d] * self.spread)[:, :, None]
        both, known = laws(self.reference, maps.degrees), maps.degrees.k >= self.q
        found = {}
        for i, key in enumerate(keys):
            matrix = np.concatenate([maps.scores[i], maps.residuals[i], left_out[i]])
            projection = None if known[i] else maps.known[i]
            found[key] = Seen(
                np.ascontiguousarray(matrix), projection, (_law_of(both[0], i), _law_of(both[1], i))
            )
        return found

    @property
    def covariance(self) -> Floats:
        """WWᵀ + noise, (w, w)."""
        found: Floats = self.factors.W @ self.factors.W.T + np.diag(self.noise)
        return found

    def measured(self, rows: Floats) -> Measures:
        """Return what rows (n, w) in the units of the user show; every row by itself.

        A row is one product with a vector, so that what is found does not depend on the rows that
        it comes with.
        """
        X = self.inward(rows)
        there = ~np.isnan(X)
        X = np.where(there, X, 0.0)
        keys = tuple(row.tobytes() for row in there)
        q, w, d = self.q, len(self.center), self.d
        found = np.empty((len(X), q + w + d))
        for i, seen in enumerate(self.seen(keys)):
            np.dot(seen.matrix, X[i], out=found[i])
        judged: Flags = np.any(there[:, :d], axis=1)
        y, e, r = found[:, :q], found[:, q : q + w], found[:, q + w :]
        t2, spe = (np.einsum("ij,ij->i", A, A) for A in (y, e))
        r = np.where(there[:, :d], r, np.nan)
        return Measures(y, r, where_judged(judged, t2), where_judged(judged, spe), keys, judged)


def _law_of(law: Law, i: int) -> Law:
    """Return the law of one of several patterns."""
    two = law.scale2, law.dfn2
    one, other = (None if part is None else part[i : i + 1] for part in two)
    return Law(law.scale[i : i + 1], law.dfn[i : i + 1], law.dfd[i : i + 1], one, other, law.tails)


def joined_law(found: Sequence[Law]) -> Law:
    """Return the law of several rows, one after another."""
    scale, dfn, dfd = (np.concatenate([law[k] for law in found]) for k in range(3))
    two = [
        None if found[0][k] is None else np.concatenate([law[k] for law in found]) for k in (3, 4)
    ]
    return Law(scale, dfn, dfd, two[0], two[1], found[0].tails)


def where_judged(judged: Flags, values: Floats) -> Floats:
    """Return values of rows, NaN for those that are not judged."""
    return np.where(judged, values, np.nan)


NOISELESS = 1e-10
"""Noise that a model without any is given, by its smallest variance."""

LEAST_NOISE_SHARE = 0.01
"""Smallest noise of a sensor, by the average."""

NOISE_ROUNDS = 20
"""EM steps for the noise of every sensor, given the loadings."""


def baseline_of(
    factors: Factors,
    reference: Reference | None,
    unit: float,
    units: tuple[Floats, Floats],
    rows: Floats,
    d: int,
) -> tuple[Baseline, Floats]:
    """Return the Gaussian of phase I as rows are compared with it, and what its rows showed.

    Parameters
    ----------
    factors : Factors
        In units of the fit.
    reference : Reference, optional
    unit : float
        Of SPE.
    units : pair of arrays of shape (w,)
        What rows are subtracted and divided by to have the units of the fit.
    rows : array of shape (n, w)
        Phase I, in the units of the user.
    d : int
        Number of sensors; the other columns are those of earlier rows.

    Returns
    -------
    baseline : Baseline
    shown : array of shape (n, q + d + w)
        Scores, leave-one-out residuals and SPE's residuals of the rows, with what is missing drawn.
    """
    factors, unit = _with_noise(factors, unit)
    center, scale = units[0] + units[1] * factors.mu, units[1]
    factors = replace(factors, mu=np.zeros_like(factors.mu))
    baseline = Baseline(
        center=center,
        scale=scale,
        factors=factors,
        reference=reference or Reference(float(len(rows)), float(len(rows))),
        unit=unit,
        noise=factors.psi,
        spread=np.ones(d),
    )
    X = baseline.inward(rows)
    q, w = baseline.q, len(center)
    if q < w:
        baseline = replace(baseline, noise=_noise_of(factors, X))
    r = baseline.measured(rows).residuals
    spread = np.sqrt(np.nanmean(r * r, axis=0))
    baseline = replace(baseline, spread=np.where(spread > LEAST_SPREAD, spread, 1.0))
    if np.isnan(X).any():
        X = completed(replace(factors, psi=baseline.noise), X)
    [seen] = baseline.seen([np.ones(w, dtype=np.bool_).tobytes()])
    shown = X @ seen.matrix.T
    return baseline, np.concatenate([shown[:, :q], shown[:, q + w :], shown[:, q : q + w]], axis=1)


def _with_noise(factors: Factors, unit: float) -> tuple[Factors, float]:
    """Return a density with a little noise where a model of all components has none."""
    if np.all(factors.psi > 0):
        return factors, unit
    d, q = factors.W.shape
    sizes = np.sum(factors.W**2, axis=0)
    if q < d or not sizes.min() > NOISELESS * sizes.max():
        raise DegenerateError(
            "the model leaves no noise beside its components, so that nothing off them can be "
            "judged. Fit with fewer components, or leave out columns that others determine."
        )
    least = NOISELESS * float(sizes.min())
    return replace(factors, psi=np.full(d, least)), least


def _noise_of(factors: Factors, X: Floats) -> Floats:
    """Return the noise of every sensor given the loadings, from the rows, (w,)."""
    psi: Floats = factors.psi
    if not np.all(psi == psi[0]):
        return psi  # a model of it
    rows = Incomplete(X, None, int(factors.W.shape[1]))
    least = LEAST_NOISE_SHARE * float(psi.mean())
    for _ in range(NOISE_ROUNDS):
        sums = rows.sums(replace(factors, psi=psi, dof=math.inf))
        found = sums.off(factors.W) / np.maximum(sums.n, 1.0)
        psi = np.where(sums.n > 0, np.maximum(found, least), psi)
    return psi


LEAST_SPREAD = 1e-6
"""Deviation of leave-one-out residuals below which a sensor did not vary in phase I."""
