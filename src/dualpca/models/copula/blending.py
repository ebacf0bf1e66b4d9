"""Missing entries told by the copula and by regressions on the others, weighed by hidden entries.

The copula and one or two Gaussian processes give every missing entry a law of its own. They are
blended to the law in proportion to Π_k p_k^{w_k}: of normal laws of a coordinate, precisions and
precisions times means add up; of levels, logarithms. The weights of a column, none negative, are
those that give its hidden entries the largest probability, drawn towards equal ones as much as
`EQUAL_ENTRIES` entries could draw (theory 15.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from scipy import optimize, special, stats

from dualpca.arrays import Array
from dualpca.data import FOLDS, Host
from dualpca.data.kinds import Entries
from dualpca.gaussian.truncated import log_probability, truncated_moments
from dualpca.models.copula.law import CopulaConditional, CopulaFactors
from dualpca.models.copula.propagation import LOOSEST_EP, LatentRows
from dualpca.models.copula.regressions import (
    TUNED_ROWS,
    Features,
    Rates,
    found_rates,
    regressed,
)

if TYPE_CHECKING:
    from dualpca.models.copula.choosing import Held
    from dualpca.models.copula.columns import Margin, MixedModel

MOST_COLUMNS, MOST_ROWS, ROWS_AT_ONCE = 40, 800, 20_000
"""Columns of a table up to which it is blended, rows of a regression, and rows told at once."""

SCENARIOS = 6
"""Completions of a row over which a regression is averaged; an even number."""

FARTHEST_NUMBER = 6.0
"""Standard deviations from the mean beyond which a number as it is counts as that."""

LEAST_VARIANCE, LEAST_PRECISION = 1e-6, 1e-3
"""Of a coordinate that is told."""

BY_CHANCE = 0.01
"""Share of entries that follow their column alone: a single one far off decides nothing."""

EQUAL_ENTRIES, LARGEST_WEIGHT = 20.0, 4.0
"""Precision of a weight around equal ones before anything is known, and its upper bound."""

BLENDING_SEED = 0
"""Of draws that complete training rows, and of scenarios."""


@dataclass(frozen=True)
class ColumnRegression:
    """One column as a function of the others: of its coordinate, its numbers or its levels."""

    raw: bool  # of numbers as they are
    rates: Rates
    rows: Annotated[Array, "whole k"]  # of the training rows that know the column
    targets: Annotated[Array, "k p"]  # in units of `scale`, around `centre`
    variances: Annotated[Array, "k", "> 0"]  # of the noise of each row
    centre: Annotated[Array, "p"]
    scale: Annotated[float, "> 0"]

    def told(self, blend: Blend, column: int, at: Features) -> tuple[Host, Host]:
        """Return the mean (m, p) and the variance (m,) of the target at complete rows."""
        rows = np.asarray(self.rows)
        seen = blend.features.take(rows).without(column)
        Y, variances = np.asarray(self.targets), np.asarray(self.variances)
        mean, variance = regressed(self.rates, seen, Y, variances, at.without(column))
        return self.centre + self.scale * mean, self.scale**2 * variance


@dataclass(frozen=True)
class ColumnBlend:
    """The regressions of one column, and the weights of the copula and of each of them."""

    column: Annotated[int, ">= 0"]  # of the table
    regressions: tuple[ColumnRegression, ...]
    weights: Annotated[Array, "w", ">= 0"]


@dataclass(frozen=True)
class Blend:
    """Training rows, completed, and for every column that is blended what tells it."""

    raw: Annotated[Array, "n r"]
    coordinates: Annotated[Array, "n p"]
    raw_of: Annotated[Array, "whole r"]
    coordinates_of: Annotated[Array, "whole p"]
    middle: Annotated[Array, "r"]  # of numbers as they are
    spread: Annotated[Array, "r", "> 0"]
    columns: tuple[ColumnBlend, ...] = ()

    @property
    def features(self) -> Features:
        """What regressions see of the training rows."""
        parts = (self.raw, self.coordinates, self.raw_of, self.coordinates_of)
        return Features(*map(np.asarray, parts))

    def told(
        self, model: MixedModel, entries: Entries, asked: dict[int, Host]
    ) -> dict[int, list[tuple[Host, Host]]]:
        """Return mean and variance of a missing column by each of its regressions, by rows.

        Parameters
        ----------
        model : MixedModel
            Whose factors complete the rows.
        entries : Entries
        asked : dict
            Column to the numbers of rows, (m,), that miss it.

        Returns
        -------
        dict
            Column to mean, (m, p), and variance, (m, p), of each of its regressions: over the
            scenarios of what else the row misses. A row that misses nothing else has one.
        """
        found: dict[int, list[tuple[Host, Host]]] = {}
        gaps = entries.missing.sum(axis=1)
        tables = [self._features(model, one) for one in scenarios(model, entries)]
        for one in self.columns:
            rows = asked.get(one.column, np.empty(0, dtype=np.int64))
            if not rows.size:
                continue
            unsure = np.flatnonzero(gaps[rows] > 1)
            parts = [tables[0].take(rows), *(table.take(rows[unsure]) for table in tables[1:])]
            at = parts[0]._replace(
                raw=np.concatenate([part.raw for part in parts]),
                coordinates=np.concatenate([part.coordinates for part in parts]),
            )
            found[one.column] = [
                _averaged(*regression.told(self, one.column, at), rows.size, unsure)
                for regression in one.regressions
            ]
        return found

    def _features(self, model: MixedModel, entries: Entries) -> Features:
        """Return what regressions see of complete rows."""
        rows = model.latent(entries)
        levels = [
            (rows.levels[:, c][:, None] == np.arange(K)) - frequencies
            for c, K in enumerate(rows.sizes)
            for frequencies in [model.factors.frequencies[model.factors.parts[c]]]
        ]
        raw = (entries.low[:, np.asarray(self.raw_of)] - self.middle) / self.spread
        return self.features._replace(
            raw=np.clip(raw, -FARTHEST_NUMBER, FARTHEST_NUMBER),
            coordinates=np.concatenate([centres(rows), *levels], axis=1),
        )

    def blended(
        self, model: MixedModel, entries: Entries, alone: CopulaConditional
    ) -> CopulaConditional:
        """Return the laws of missing entries as all tell them together; of others, as they were."""
        gaps, cuts = entries.missing, range(0, len(entries.low), ROWS_AT_ONCE)
        result = CopulaConditional(
            alone.mean.copy(), alone.variance.copy(), tuple(p.copy() for p in alone.probabilities)
        )
        for cut in (slice(a, a + ROWS_AT_ONCE) for a in cuts):
            asked = {one.column: np.flatnonzero(gaps[cut, one.column]) for one in self.columns}
            told = self.told(model, entries.rows(cut), asked)
            for one in self.columns:
                if (rows := asked[one.column]).size:
                    self._put(result, model, one, rows + cut.start, told[one.column])
        return result

    def _put(
        self,
        result: CopulaConditional,
        model: MixedModel,
        one: ColumnBlend,
        rows: Host,
        told: list[tuple[Host, Host]],
    ) -> None:
        """Put the blended laws of one column into those of all."""
        (c, margin), w = model.place_of(one.column), np.asarray(one.weights)
        if margin is None:
            logs = level_laws_of(result.probabilities[c][rows], told, len(self.raw))
            result.probabilities[c][rows] = np.exp(blended_levels(w, logs))
            return
        means, variances = normal_laws(
            margin, one, result.mean[rows, c], result.variance[rows, c], told
        )
        result.mean[rows, c], result.variance[rows, c] = blended_normal(w, means, variances)


def _averaged(mean: Host, variance: Host, m: int, unsure: Host) -> tuple[Host, Host]:
    """Return mean and variance, (m, p) each, over the scenarios of the rows that have several."""
    first, spread = mean[:m].copy(), np.repeat(variance[:m, None], mean.shape[1], axis=1)
    if unsure.size:
        others = mean[m:].reshape(SCENARIOS - 1, unsure.size, -1)
        means = np.concatenate([mean[:m][unsure][None], others])
        own = np.concatenate([variance[:m][unsure], variance[m:]]).reshape(SCENARIOS, -1)
        first[unsure] = means.mean(axis=0)
        spread[unsure] = own.mean(axis=0)[:, None] + means.var(axis=0)
    return first, spread


# --- Complete rows -------------------------------------------------------------------------------


def centres(rows: LatentRows) -> Host:
    """Return the coordinates of complete rows, (n, s): the mean within an interval."""
    z, inside = np.array(rows.low), rows.low < rows.high
    z[inside] = truncated_moments(rows.low[inside], rows.high[inside]).mean
    return z


def completed(model: MixedModel, entries: Entries, z: Host, levels: Host) -> Entries:
    """Return entries whose missing ones have the values at coordinates and levels."""
    values, gaps = model.values(z, levels), entries.missing
    pairs = zip(values, entries, strict=True)
    return Entries(*(np.where(gaps, value, known) for value, known in pairs))


def scenarios(model: MixedModel, entries: Entries) -> Iterator[Entries]:
    """Yield complete rows, at the same few points of the law of what each row misses.

    So that what is said of a row does not depend on the rows beside it.
    """
    factors = model.factors
    size = (SCENARIOS // 2, factors.q + len(factors.psi))
    half = np.random.default_rng(BLENDING_SEED).standard_normal(size)
    for z, levels in factors.at_points(model.latent(entries), np.concatenate([half, -half])):
        yield completed(model, entries, z, levels)


# --- Laws of one column --------------------------------------------------------------------------


def normal_laws(
    margin: Margin, one: ColumnBlend, mean: Host, variance: Host, told: list[tuple[Host, Host]]
) -> tuple[Host, Host]:
    """Return means and variances of a coordinate by the copula and each regression, (k, m)."""
    means, variances = [mean], [variance]
    for regression, (centre, spread) in zip(one.regressions, told, strict=True):
        at, deviation = centre[:, 0], np.sqrt(spread[:, 0])
        if regression.raw:
            low, at, high = (margin.positions(at + k * deviation) for k in (-1, 0, 1))
            deviation = (high - low) / 2
        means.append(at)
        variances.append(deviation**2)
    return np.array(means), np.maximum(np.array(variances), LEAST_VARIANCE)


def level_laws_of(p: Host, told: list[tuple[Host, Host]], n: int) -> Host:
    """Return logarithms of the probabilities of levels by each, (k, m, K)."""
    found = [np.maximum(p, 1e-12)]
    for centre, _ in told:
        share = np.maximum(centre, 1.0 / n)
        found.append(share / share.sum(axis=1, keepdims=True))
    return np.asarray(np.log(np.array(found)))


def blended_normal(w: Host, means: Host, variances: Host) -> tuple[Host, Host]:
    """Return mean and variance of the normal law in proportion to Π_k N(mean_k, variance_k)^{w_k}.

    Examples
    --------
    >>> mean, variance = blended_normal(
    ...     np.array([0.5, 0.5]), np.array([[0.0], [1.0]]), np.ones((2, 1))
    ... )
    >>> float(mean[0]), float(variance[0])
    (0.5, 1.0)
    """
    precision = np.maximum((w[:, None] / variances).sum(axis=0), LEAST_PRECISION)
    return (w[:, None] * means / variances).sum(axis=0) / precision, 1.0 / precision


def blended_levels(w: Host, logs: Host) -> Host:
    """Return logarithms of the probabilities in proportion to Π_k p_k^{w_k}, (m, K).

    Examples
    --------
    >>> logs = np.log([[[0.5, 0.5]], [[0.9, 0.1]]])
    >>> np.exp(blended_levels(np.array([1.0, 1.0]), logs)).round(3)
    array([[0.9, 0.1]])
    """
    total = np.tensordot(w, logs, axes=1)
    return np.asarray(total - special.logsumexp(total, axis=1, keepdims=True))


# --- Weights -------------------------------------------------------------------------------------


class HiddenCoordinates(NamedTuple):
    """Hidden entries of a column with an order: what each says of them, and where they are."""

    means: Host  # (k, m)
    variances: Host  # (k, m)
    low: Host  # (m,)
    high: Host  # (m,)

    def scores(self, w: Host) -> Host:
        """Return ln of the probability, or density, of each, (m,)."""
        mean, variance = blended_normal(w, self.means, self.variances)
        return _either(_log_normal(self.low, self.high, mean, variance), self._alone)

    @property
    def _alone(self) -> Host:
        return _log_normal(self.low, self.high, np.zeros(self.low.shape), np.ones(self.low.shape))


class HiddenLevels(NamedTuple):
    """Hidden levels of a nominal column: what each says of them, and which they are."""

    logs: Host  # (k, m, K)
    levels: Host  # (m,)

    def scores(self, w: Host) -> Host:
        """Return ln of the probability of each, (m,)."""
        found = blended_levels(w, self.logs)
        own = found[np.arange(self.levels.size), self.levels]
        return _either(own, np.full(own.shape, -math.log(found.shape[1])))


def _either(told: Host, alone: Host) -> Host:
    """Return ln of the probability where a few entries follow nothing but their column."""
    return np.logaddexp(math.log1p(-BY_CHANCE) + told, math.log(BY_CHANCE) + alone)


def _log_normal(low: Host, high: Host, mean: Host, variance: Host) -> Host:
    """Return ln of the density where low == high, of the probability of the interval elsewhere."""
    inside, deviation = low < high, np.sqrt(variance)
    found = np.asarray(stats.norm.logpdf(np.where(inside, 0.0, low), mean, deviation))
    a, b = ((end[inside] - mean[inside]) / deviation[inside] for end in (low, high))
    found[inside] = log_probability(a, b)
    return found


def blend_weights(hidden: HiddenCoordinates | HiddenLevels, weights: Host | None = None) -> Host:
    """Return the weights, (k,), none negative, that tell hidden entries best.

    They are drawn to equal ones by a normal law of precision `EQUAL_ENTRIES` each.

    Parameters
    ----------
    hidden : HiddenCoordinates or HiddenLevels
    weights : array of shape (m,), optional
        Of the entries.
    """
    k = len(hidden[0])
    equal = np.full(k, 1.0 / k)

    def loss(w: Host) -> float:
        scores = hidden.scores(w)
        gain = scores.sum() if weights is None else weights @ scores
        return float(0.5 * EQUAL_ENTRIES * ((w - equal) ** 2).sum() - gain)

    bounds = [(0.0, LARGEST_WEIGHT)] * k
    return np.asarray(optimize.minimize(loss, equal, method="L-BFGS-B", bounds=bounds).x)


# --- The fit -------------------------------------------------------------------------------------


def fit_blend(
    model: MixedModel, entries: Entries, held: Held, laws: Sequence[CopulaFactors]
) -> Blend | None:
    """Fit regressions of every column on the others, and weigh them by hidden entries.

    Parameters
    ----------
    model : MixedModel
    entries : Entries
        Of the rows of `held`.
    held : Held
        Rows, their weights, and the entries that each fold hides.
    laws : list of CopulaFactors
        Fitted without what each fold hides.

    Returns
    -------
    Blend or None
        None for tables of more columns than `MOST_COLUMNS`.

    Notes
    -----
    O(n³) a column and fold for n rows, 800 at most; O(d) times as much for rates, on 250 rows.
    """
    if not 2 <= len(model.margins) <= MOST_COLUMNS:
        return None
    blend = _trained(model, entries, held.weights, None)
    if not blend.columns:
        return None
    hidden: dict[int, list[HiddenCoordinates | HiddenLevels]] = {}
    weights: dict[int, list[Host]] = {}
    for (scalars, levels), factors in zip(held.folds, laws, strict=True):
        shown = model.hiding(entries, scalars, levels)
        without = replace(model, factors=factors)
        part = _trained(without, shown, held.weights, blend)
        asked = _masked(model, scalars, levels)
        alone = factors.conditional(held.rows.hiding(scalars, levels), None, LOOSEST_EP)
        told = part.told(without, shown, asked)
        for one in part.columns:
            if not (rows := asked[one.column]).size:
                continue
            about = _hidden(model, one, held.rows, rows, alone, told[one.column])
            hidden.setdefault(one.column, []).append(about)
            own = np.ones(rows.size) if held.weights is None else held.weights[rows]
            weights.setdefault(one.column, []).append(own)
    return replace(
        blend,
        columns=tuple(
            replace(one, weights=blend_weights(joined(hidden[one.column]), own))
            for one in blend.columns
            if one.column in hidden
            for own in [np.concatenate(weights[one.column])]
        ),
    )


def joined(
    parts: Sequence[HiddenCoordinates | HiddenLevels],
) -> HiddenCoordinates | HiddenLevels:
    """Return the hidden entries of all folds."""
    kind = type(parts[0])
    axes = (1, 1, 0, 0) if kind is HiddenCoordinates else (1, 0)
    return kind(
        *(
            np.concatenate(arrays, axis)
            for arrays, axis in zip(zip(*parts, strict=True), axes, strict=True)
        )
    )


def _masked(model: MixedModel, scalars: Host, levels: Host) -> dict[int, Host]:
    """Return the rows that masks of coordinates and nominal columns hide, by column."""
    places = {j: model.place_of(j) for j in model.varying}
    return {
        j: np.flatnonzero(levels[:, c] if margin is None else scalars[:, c])
        for j, (c, margin) in places.items()
    }


def _hidden(
    model: MixedModel,
    one: ColumnBlend,
    truth: LatentRows,
    rows: Host,
    alone: CopulaConditional,
    told: list[tuple[Host, Host]],
) -> HiddenCoordinates | HiddenLevels:
    """Return what the copula and every regression say of the hidden entries of a column."""
    c, margin = model.place_of(one.column)
    if margin is None:
        logs = level_laws_of(alone.probabilities[c][rows], told, truth.n)
        return HiddenLevels(logs, truth.levels[rows, c])
    laws = normal_laws(margin, one, alone.mean[rows, c], alone.variance[rows, c], told)
    return HiddenCoordinates(*laws, truth.low[rows, c], truth.high[rows, c])


def _trained(
    model: MixedModel, entries: Entries, weights: Host | None, before: Blend | None
) -> Blend:
    """Return regressions on rows that the model completes, with rates of before or new ones."""
    rng = np.random.default_rng(BLENDING_SEED)
    rows = model.latent(entries)
    full = completed(model, entries, *model.factors.draw(rows, rng))
    raw_of = np.array([j for j in model.varying if _has_numbers(model, j)], dtype=np.int64)
    middle, spread = _moments(model, raw_of)
    seen = np.ones(rows.n) if weights is None else weights
    blend = Blend(
        raw=np.zeros((rows.n, raw_of.size)),
        coordinates=np.zeros((rows.n, 0)),
        raw_of=raw_of,
        coordinates_of=model.coordinates_of,
        middle=middle,
        spread=spread,
    )
    noises = 1.0 / np.where(seen > 0, seen, 1.0)
    features = blend._features(model, full)
    blend = replace(blend, raw=features.raw, coordinates=features.coordinates)
    known = {j: np.flatnonzero(~entries.missing[:, j] & (seen > 0)) for j in model.varying}
    old = {} if before is None else {one.column: one for one in before.columns}
    columns = []
    for j in model.varying if before is None else old:
        chosen = known[j]
        if chosen.size < (2 * FOLDS if before is None else 2):
            continue
        if chosen.size > MOST_ROWS:
            chosen = np.sort(rng.choice(chosen, MOST_ROWS, replace=False))
        targets = _targets(model, rows, entries, j)
        rates = [one.rates for one in old[j].regressions] if old else [None] * len(targets)
        found = tuple(
            _regression(blend, j, raw, Y[chosen], chosen, given, noises, entries.missing)
            for (raw, Y), given in zip(targets, rates, strict=True)
        )
        columns.append(ColumnBlend(j, found, np.full(len(found) + 1, 1.0 / (len(found) + 1))))
    return replace(blend, columns=tuple(columns))


def _moments(model: MixedModel, columns: Host) -> tuple[Host, Host]:
    """Return means and standard deviations of columns of numbers."""
    margins = [margin for j in columns for _, margin in [model.place_of(j)] if margin is not None]
    means = np.array([one.masses @ one.low for one in margins])
    pairs = zip(margins, means, strict=True)
    return means, np.sqrt([one.masses @ (one.low - mean) ** 2 for one, mean in pairs])


def _has_numbers(model: MixedModel, column: int) -> bool:
    """Return True for a column of numbers of which sums can be taken: three values or more."""
    kind, (_, margin) = model.kinds.columns[column], model.place_of(column)
    of_numbers = kind.kind in ("continuous", "count", "ordinal") and kind.sort == "number"
    return of_numbers and margin is not None and len(margin.low) > 2


def _targets(
    model: MixedModel, rows: LatentRows, entries: Entries, column: int
) -> list[tuple[bool, Host]]:
    """Return what regressions of a column are of, (n, p), and whether it is numbers as they are."""
    c, margin = model.place_of(column)
    if margin is None:
        return [(False, (rows.levels[:, c][:, None] == np.arange(rows.sizes[c])).astype(float))]
    found = [(False, centres(rows)[:, [c]])]
    return [*found, (True, entries.low[:, [column]])] if _has_numbers(model, column) else found


def _regression(
    blend: Blend,
    column: int,
    raw: bool,
    Y: Host,
    rows: Host,
    rates: Rates | None,
    noises: Host,
    filled: Host,
) -> ColumnRegression:
    """Return one regression; rates are found on some of the rows if they are not given."""
    centre = Y.mean(axis=0)
    scale = math.sqrt(float(((Y - centre) ** 2).sum(axis=1).mean())) or 1.0
    targets = (Y - centre) / scale
    if rates is None:
        some = np.arange(rows.size)
        if rows.size > TUNED_ROWS:
            rng = np.random.default_rng(BLENDING_SEED)
            some = np.sort(rng.choice(some, TUNED_ROWS, replace=False))
        seen, at = blend.features.take(rows[some]).without(column), rows[some]
        rates = found_rates(seen, targets[some], noises[at], filled[at])
    variances = rates.variances(noises[rows], filled[rows])
    return ColumnRegression(raw, rates, rows, targets, variances, centre, scale)
