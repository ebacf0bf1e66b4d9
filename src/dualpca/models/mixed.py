"""A table of columns of any kind: kinds, margins and the factors behind them (theory 15).

`fit_mixed` reads a table, gives every column its margin and fits the latent factors. `MixedModel`
translates: entries become what is known of latent coordinates, laws of coordinates become values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from scipy import special

from dualpca.arrays import cached_property, note
from dualpca.data import Host
from dualpca.data.kinds import Entries, Level, TableKinds, asked_kinds, labels_of, table_names
from dualpca.errors import EmptyColumnError, expected
from dualpca.gaussian import Factors, Outliers, Reference, Selection, judge
from dualpca.gaussian.control_limits import FactorMonitor
from dualpca.models.copula import (
    CopulaFactors,
    CopulaRequest,
    LatentRows,
    choose_latents,
    fit_copula,
)
from dualpca.models.driver import History
from dualpca.models.margins import Frequencies, Margin, fit_frequencies, fit_margin
from dualpca.models.ordering import is_out_of_order

MIXED_REFIT_STEPS = 10
"""Steps that refit the factors to a bootstrap, from the maximum."""

JUDGING_SEED = 0
"""Of the draws within intervals by which `outliers` judges a row."""


@dataclass(frozen=True)
class MixedModel:
    """Columns of any kind: x_j = f_j(z_j), z = Wt + ε."""

    kinds: TableKinds
    margins: tuple[Margin | Frequencies, ...]  # of every column
    factors: CopulaFactors  # of columns that vary: those with an order, then nominal ones
    n_rows: Annotated[float, "> 0"]  # sum of the weights
    selection: Selection | None = None

    def __post_init__(self) -> None:
        """Refuse parts that do not go together."""
        sizes = tuple(len(margin.shares) for _, margin in self._nominal)
        if len(self.margins) != len(self.kinds.columns) or sizes != self.factors.sizes:
            raise ValueError("a margin for every column is needed")
        if self.factors.s != len(self._ordered):
            raise ValueError("a latent coordinate for every column that varies is needed")

    @cached_property
    def _ordered(self) -> list[tuple[int, Margin]]:
        """Columns with an order that vary, and their margins."""
        pairs = enumerate(self.margins)
        return [(j, one) for j, one in pairs if isinstance(one, Margin) and one.varies]

    @cached_property
    def _nominal(self) -> list[tuple[int, Frequencies]]:
        """Nominal columns that vary, and their margins."""
        pairs = enumerate(self.margins)
        return [(j, one) for j, one in pairs if isinstance(one, Frequencies) and one.varies]

    # --- what attributes show ----------------------------------------------------------------

    @property
    def n_components(self) -> int:
        """The number of latents."""
        return self.factors.q

    @property
    def history(self) -> History | None:
        """How the fit went."""
        return self.factors.history

    @property
    def coordinates(self) -> list[tuple[int, int | None]]:
        """Column and level of every latent coordinate, in the order of the columns.

        The level is None where a column has one coordinate.
        """
        found: list[tuple[int, int | None]] = []
        for j, margin in enumerate(self.margins):
            many = isinstance(margin, Frequencies)
            found += [(j, k) for k in range(len(margin.shares))] if many else [(j, None)]  # type: ignore[union-attr]
        return found

    def _spread(self, values: Host) -> Host:
        """Return what the factors say of coordinates in the order of columns; 0 if constant."""
        place: dict[tuple[int, int | None], int] = {}
        for i, (j, _) in enumerate(self._ordered):
            place[j, None] = i
        start = self.factors.s
        for j, margin in self._nominal:
            for k in range(len(margin.shares)):
                place[j, k] = start + k
            start += len(margin.shares)
        at = np.array([place.get(one, -1) for one in self.coordinates])
        return np.where((at >= 0).reshape(-1, *[1] * (values.ndim - 1)), values[at], 0.0)

    @property
    def loadings(self) -> Host:
        """W in the order of the columns, (D, q); 0 for a constant column."""
        return self._spread(np.asarray(self.factors.W))

    @property
    def noise(self) -> Host:
        """ψ in the order of the columns, (D,); 1 for a constant column."""
        constant = self._spread(np.ones(len(self.factors.psi))) == 0
        return np.where(constant, 1.0, self._spread(np.asarray(self.factors.psi)))

    @property
    def correlation(self) -> Host:
        """Of the coordinates of columns with an order, (s, s), in their order."""
        ordered = [j for j, margin in enumerate(self.margins) if isinstance(margin, Margin)]
        found, known = np.eye(len(ordered)), [ordered.index(j) for j, _ in self._ordered]
        found[np.ix_(known, known)] = self.factors.correlation
        return found

    def levels(self, column: int) -> list[Level] | None:
        """Return the levels of a column in order; None for numbers without levels."""
        kind, margin = self.kinds.columns[column], self.margins[column]
        if kind.levels is not None:
            return list(kind.levels)
        if kind.kind not in ("ordinal", "count") or isinstance(margin, Frequencies):
            return None
        return [int(v) if kind.whole else float(v) for v in margin.low]

    # --- entries and latent rows -------------------------------------------------------------

    def latent(self, entries: Entries) -> LatentRows:
        """Return what rows know of the latent coordinates."""
        n = int(entries.low.shape[0])
        low, high = np.empty((n, len(self._ordered))), np.empty((n, len(self._ordered)))
        for i, (j, margin) in enumerate(self._ordered):
            low[:, i], high[:, i] = margin.coordinates(entries.low[:, j], entries.high[:, j])
        levels = np.full((n, len(self._nominal)), -1, dtype=np.int64)
        for c, (j, _) in enumerate(self._nominal):
            codes = entries.low[:, j]
            levels[:, c] = np.where(np.isnan(codes), -1, codes).astype(np.int64)
        return LatentRows(low, high, levels, self.factors.sizes)

    def values(self, z: Host, levels: Host) -> Entries:
        """Return the entries at coordinates z, (n, s), and levels, (n, c); NaN and −1 give NaN."""
        n = int(z.shape[0])
        low = np.empty((n, len(self.margins)))
        for j, margin in enumerate(self.margins):  # the one value of constant columns
            low[:, j] = margin.low[np.argmax(margin.masses)] if isinstance(margin, Margin) else 0.0
        high = low.copy()
        for i, (j, margin) in enumerate(self._ordered):
            low[:, j], high[:, j] = margin.values(z[:, i])
        for c, (j, _) in enumerate(self._nominal):
            low[:, j] = high[:, j] = np.where(levels[:, c] < 0, np.nan, levels[:, c])
        return Entries(low, high)

    def at_latents(self, t: Host) -> Entries:
        """Return the median, or the most probable level, of every column at latents t, (n, q)."""
        means, s = t @ np.asarray(self.factors.W).T, self.factors.s
        levels = np.empty((len(t), len(self._nominal)), dtype=np.int64)
        for c, ends in enumerate(itertools.pairwise(np.cumsum([s, *self.factors.sizes]))):
            shift = np.asarray(self.factors.shifts)[ends[0] - s : ends[1] - s]
            levels[:, c] = np.argmax(means[:, slice(*ends)] + shift, axis=1)
        return self.values(means[:, :s], levels)

    # --- what is said of missing entries -----------------------------------------------------

    def quantiles(self, entries: Entries, shares: tuple[float, ...]) -> list[Entries]:
        """Return quantiles of every entry given the others of its row, one table per share.

        Levels in words have their most probable one at 0.5; nominal columns NaN elsewhere.
        """
        found = self.factors.conditional(self.latent(entries))
        deviation = np.sqrt(found.variance)
        modes = [np.argmax(p, axis=1) for p in found.probabilities]
        best = np.stack(modes, axis=1) if modes else np.empty((len(deviation), 0), dtype=np.int64)
        tables = [
            self.values(
                found.mean + special.ndtri(share) * deviation,
                best if share == 0.5 else np.full_like(best, -1),
            )
            for share in shares
        ]
        for table in (tables[k] for k, share in enumerate(shares) if share == 0.5):
            for i, (j, margin) in enumerate(self._ordered):
                if self.kinds.columns[j].in_words:
                    p = margin.probabilities(found.mean[:, i], found.variance[:, i])
                    table.low[:, j] = table.high[:, j] = margin.low[np.argmax(p, axis=1)]
        return tables

    def probabilities(self, entries: Entries, column: int) -> Host:
        """Return the probability of every level of a column given the rest of each row, (n, K).

        The column itself is hidden from EP, which would not quite forget it otherwise.
        """
        n, margin = int(entries.low.shape[0]), self.margins[column]
        if not margin.varies:
            share = margin.masses if isinstance(margin, Margin) else margin.shares
            return np.tile(share, (n, 1))
        low = entries.low.copy()
        low[:, column] = np.nan
        found = self.factors.conditional(self.latent(Entries(low, entries.high)))
        if isinstance(margin, Frequencies):
            return found.probabilities[[j for j, _ in self._nominal].index(column)]
        i = [j for j, _ in self._ordered].index(column)
        return margin.probabilities(found.mean[:, i], found.variance[:, i])

    def drawn(self, entries: Entries, rng: np.random.Generator) -> Entries:
        """Return entries drawn jointly given what each row knows."""
        return self.values(*self.factors.draw(self.latent(entries), rng))

    def sample(self, n: int, rng: np.random.Generator) -> Entries:
        """Return new rows."""
        return self.values(*self.factors.sample(n, rng))

    # --- unusual rows ------------------------------------------------------------------------

    def outliers(self, entries: Entries, level: float) -> Outliers:
        """Return T² and SPE of the latent coordinates of columns with an order, and their limits.

        Where an entry is known by an interval, its coordinate is drawn in it given the row
        (randomised residuals; Dunn & Smyth 1996): the law of ordinary rows is then exactly normal,
        whatever the kinds of the columns.
        """
        rows, s = self.latent(entries), self.factors.s
        z, _ = self.factors.draw(rows, np.random.default_rng(JUDGING_SEED))
        z = np.where(rows.known()[0], z, np.nan)
        W, psi = np.asarray(self.factors.W)[:s], np.asarray(self.factors.psi)[:s]
        if s == 0:  # nominal columns only: nothing to measure
            W, psi, z = np.zeros((1, self.n_components)), np.ones(1), np.full((rows.n, 1), np.nan)
        reference = Reference(self.n_rows, self.n_rows)
        monitor = FactorMonitor(Factors(W, np.zeros(len(psi)), psi), reference)
        return judge(reference, monitor.statistics(z), level)

    # --- parameters of their own for every draw ----------------------------------------------

    def refits(
        self,
        entries: Entries,
        weights: Host | None,
        n_draws: int,
        rng: np.random.Generator,
        request: CopulaRequest,
    ) -> Iterator[MixedModel]:
        """Yield models refitted to Bayesian bootstraps of rows: margins, then factors (theory 4).

        Rows are weighted at random, by a Dirichlet law in proportion to their weights (Rubin 1981),
        so that no level of a column is lost.
        """
        n = int(entries.low.shape[0])
        w = np.ones(n) if weights is None else weights
        asked = replace(request, n_components=self.n_components, begin=self.factors, watch=None)
        asked = replace(asked, max_iter=MIXED_REFIT_STEPS)
        for _ in range(n_draws):
            drawn = rng.standard_gamma(w)
            drawn *= w.sum() / drawn.sum()
            margins = fit_margins(self.kinds, entries, drawn)
            pairs = zip(margins, self.margins, strict=True)
            kept = tuple(new if new.varies == old.varies else old for new, old in pairs)
            model = replace(
                self, margins=tuple(_held_as(*p) for p in zip(kept, self.margins, strict=True))
            )
            factors = fit_copula(model.latent(entries), frequencies_of(model.margins), asked, drawn)
            yield replace(model, factors=factors)


def _held_as(new: Margin | Frequencies, old: Margin | Frequencies) -> Margin | Frequencies:
    """Return a margin of the same values whose points and intervals are those of another."""
    if isinstance(new, Margin) and isinstance(old, Margin) and np.array_equal(new.low, old.low):
        return replace(new, held=old.held)
    return new


def frequencies_of(margins: tuple[Margin | Frequencies, ...]) -> tuple[Host, ...]:
    """Return the shares of levels of the nominal columns that vary."""
    return tuple(one.shares for one in margins if isinstance(one, Frequencies) and one.varies)


def fit_margins(
    kinds: TableKinds, entries: Entries, weights: Host | None
) -> tuple[Margin | Frequencies, ...]:
    """Return the margin of every column; one that no weighted row observes is refused."""
    known = ~entries.missing if weights is None else ~entries.missing & (weights > 0)[:, None]
    empty = [int(j) for j in np.flatnonzero(~known.any(axis=0))]
    if empty:
        raise EmptyColumnError(empty)
    found: list[Margin | Frequencies] = []
    for j, column in enumerate(kinds.columns):
        low, high = entries.low[:, j], entries.high[:, j]
        levels = len(column.levels or ())
        if column.is_unordered:
            found.append(fit_frequencies(low, levels, weights))
        else:
            found.append(fit_margin(low, high, kind=column.kind, weights=weights, n_levels=levels))
    return tuple(found)


def fit_mixed(
    table: Any, column_kinds: Any, request: CopulaRequest, wanted: Any, weights: Host | None
) -> MixedModel:
    """Fit a model to a table of columns of any kind.

    Parameters
    ----------
    table : frame of pandas or polars, or array (n, d)
    column_kinds : None, mapping or sequence
        As in `data.kinds.asked_kinds`.
    request : CopulaRequest
    wanted : int, 'cv' or None
        Number of latents; None is 'cv'.
    weights : array of shape (n,), optional
    """
    kinds, entries = TableKinds.read(table, column_kinds)
    margins = fit_margins(kinds, entries, weights)
    s = sum(isinstance(one, Margin) and one.varies for one in margins)
    shares = frequencies_of(margins)
    sizes = tuple(len(one) for one in shares)
    nothing = CopulaFactors(
        np.zeros((s + sum(sizes), 0)),
        np.ones(s + sum(sizes)),
        np.zeros(sum(sizes)),
        np.concatenate([*shares, np.zeros(0)]),
        sizes,
    )
    n_rows = float(len(entries.low) if weights is None else weights.sum())
    model = MixedModel(kinds, margins, nothing, n_rows)
    rows, most = model.latent(entries), s + sum(K - 1 for K in sizes) - 1
    selection, q = None, wanted
    if wanted is None or wanted == "cv":
        q = 0
        if most > 0:
            selection = choose_latents(rows, shares, request, weights)
            q = selection.chosen
            note(f"{q} components by cross-validation")
    elif not 0 <= q <= max(most, 0):
        d = len(margins)
        what = f"at most {max(most, 0)} for these columns (n_features = {d}), 'cv' or None"
        raise ValueError(expected("n_components", what, wanted))
    request = replace(request, n_components=int(q))
    model = replace(model, factors=fit_copula(rows, shares, request, weights), selection=selection)
    if selection is None:
        return model
    asked = asked_kinds(column_kinds, len(margins), table_names(table))
    bent = []
    for i, (j, margin) in enumerate(model._ordered):
        if asked[j] is None and kinds.columns[j].in_words:
            codes = np.where(np.isnan(entries.low[:, j]), -1, entries.low[:, j]).astype(np.int64)
            if is_out_of_order(model.factors, rows, i, codes, margin, request, weights):
                bent.append(j)
    if not bent:
        return model
    note("nominal by cross-validation: " + ", ".join(labels_of(table)[j] for j in bent))
    asked = ["nominal" if j in bent else kind for j, kind in enumerate(asked)]
    return fit_mixed(table, asked, request, wanted, weights)
