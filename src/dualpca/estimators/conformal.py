"""Conformal intervals and p-values: they hold for any law of the rows, whatever the model.

Models are fitted to some rows and asked about the others. How far these are off says how far new
rows will be, by ranks alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dualpca.arrays import backend
from dualpca.data import require_in_memory
from dualpca.data.kinds import library_of, opened_table
from dualpca.errors import expected
from dualpca.estimators import _checks
from dualpca.estimators._types import Column, Rows, Seed, Shaped
from dualpca.estimators.calibrating import filler, floats_of, quietly, without

if TYPE_CHECKING:
    from dualpca.estimators._shell import Estimator

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Opened: TypeAlias = Shaped | list[Any]
"""An array or a frame, or a list of sequences."""

Novelty: TypeAlias = Callable[[Any, Any], Column]
"""How unusual rows are to a fitted model, one number each; larger is more unusual."""

METHODS = ("cv+", "jackknife+", "split")
SORTED_AT_ONCE = 2**22
"""Numbers that are sorted at once."""


def conformal(
    model: Estimator,
    X: Rows,
    *,
    level: float = 0.9,
    method: str = "cv+",
    folds: int = 10,
    novelty: Novelty | None = None,
    random_state: Seed = 0,
) -> Conformal:
    """Return intervals and p-values that hold for any law of the rows, in small tables too.

    Copies of the model are fitted to some of the rows and judged on those that they have not seen.

    Parameters
    ----------
    model : estimator
        Fitted or not: only its parameters are used. `impute` is for `PPCA`, `FactorAnalysis`,
        `BayesianPCA`, `RobustPPCA`, `MixturePPCA` and `Imputer` around one of them; `reconstruct`
        for every model that has it; p-values for every model with densities or `novelty`.
    X : array or frame of shape (n, d), or a list of sequences for `HiddenMarkovPCA`
        Rows to fit and to calibrate with; NaN where the model accepts it.
    level : float, default=0.9
        Of the intervals.
    method : {'cv+', 'jackknife+', 'split'}, default='cv+'
        'cv+': every fold of the rows calibrates the fit to the others. 'jackknife+': every row
        does, n fits. 'split': half of the rows fit one model and the other half calibrate it.
    folds : int, default=10
        Of 'cv+'.
    novelty : callable, default=None
        Called with a fitted model and rows, it returns how unusual each is: `lambda m, X: m.spe(X)`
        for example. By default the model's `novelty`, or minus its log-density (that of a sequence
        per row of it).
    random_state : None, int, Generator or RandomState, default=0
        Which rows are left out together.

    Returns
    -------
    Conformal
        With `impute`, `reconstruct` and `p_values`.

    Notes
    -----
    **What is assumed.** Rows, with their gaps, are exchangeable: any order of those of X and a new
    one is as likely as any other, as when all are drawn independently from one law. Rows that
    follow one another in time are not; whole sequences can be. For `impute`, entries of a column
    are missing completely at random: whether one is missing depends neither on the values of its
    row nor on which others are missing. Nothing is assumed of the model; a better one gives
    shorter intervals.

    **What is promised.** The interval of an entry of a new row contains it with a probability of at
    least `level` with 'split' (Papadopoulos et al. 2002; Lei et al. 2018), and of at least
    2 level − 1 with 'jackknife+', a little less with 'cv+' (Barber et al. 2021): `guarantee` is the
    number. In practice both cover about `level`, with shorter intervals, as all rows fit and
    calibrate. Likewise p-values are at most α with a probability of at most α, or 2α
    (cross-conformal: Vovk 2015). These are averages over tables and rows, column by column: not
    probabilities given what this row observed.

    An interval has ⌈level (m + 1)⌉ of the m calibrating entries on its inner side, and is infinite
    where that is more than m: a column needs level/(1 − level) of them, 9 at a level of 0.9.

    Costs one fit per fold; `impute` calls the model once more per column and fold.

    Examples
    --------
    >>> import numpy as np
    >>> import dualpca
    >>> X = np.random.default_rng(0).standard_t(3, size=(100, 1)) + np.zeros(4)
    >>> X += np.random.default_rng(1).standard_t(3, size=X.shape)
    >>> found = dualpca.conformal(dualpca.PPCA(1), X)
    >>> found
    Conformal(PPCA, level=0.9, method='cv+'): 10 fits, 100 rows calibrate, covers 71.8 % or more
    >>> filled, low, high = found.impute([[1.0, np.nan, 0.5, 0.0]])
    >>> bool(low[0, 1] < filled[0, 1] < high[0, 1])
    True
    >>> bool(found.p_values([[1.0, 1.0, -30.0, 1.0]])[0] < 0.05)
    True
    """
    _checks.check_share("level", level)
    _checks.check_choice("method", method, METHODS)
    _checks.check_number("folds", folds, 2, integer=True)
    if getattr(model, "kernel", None) == "precomputed":
        raise ValueError(expected("model", "one of rows, not of kernel='precomputed'", model))
    table = _opened(model, X)
    n = len(table) if isinstance(table, list) else int(table.shape[0])
    order = _checks.generator(random_state).permutation(n)
    if method == "split":
        held = [np.sort(order[: n // 2])]
    else:
        k = n if method == "jackknife+" else min(int(folds), n)
        held = [np.sort(part) for part in np.array_split(order, k)]
    fold = np.full(n, -1, dtype=np.intp)
    for k, part in enumerate(held):
        fold[part] = k
    m, least = int(np.sum(fold >= 0)), least_for(level)
    if m < least:
        rows = 2 * least if method == "split" else least
        raise ValueError(
            f"intervals of level {level:g} need {least} rows that calibrate, so X with {rows} rows "
            f"or more with method={method!r}; got {n}. Give more rows, or a lower level."
        )
    models = []
    with quietly():
        for k in range(len(held)):
            models.append(clone(model).fit(_rows_at(table, np.flatnonzero(fold != k))))
    return Conformal(float(level), method, fold, tuple(models), table, novelty or unusualness)


@dataclass(frozen=True, eq=False, repr=False)
class Conformal:
    """Fits to some of the rows of a table, with what the others say of how far off they are.

    What `dualpca.conformal` returns.

    Parameters
    ----------
    level : float
        Of the intervals.
    method : str
        'cv+', 'jackknife+' or 'split'.
    fold : array of int, shape (n,)
        Number of the fit that left each row out, and that the row calibrates; −1 for rows that only
        fit (with 'split').
    models : tuple of estimators
        The fits, in that order.
    X : table
        The rows.
    novelty : callable
        How unusual rows are to a model.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA, conformal
    >>> X = load_iris().data
    >>> found = conformal(PPCA(2), X, method="split", level=0.95)
    >>> len(found.models), found.n_calibrating, found.guarantee
    (1, 75, 0.95)
    """

    level: float
    method: str
    fold: Ints  # (n,)
    models: tuple[Any, ...]
    X: Opened
    novelty: Novelty
    _known: dict[str, Floats] = field(init=False, default_factory=dict)

    @property
    def n_calibrating(self) -> int:
        """Number of rows that calibrate."""
        return int(np.sum(self.fold >= 0))

    @property
    def guarantee(self) -> float:
        """Smallest probability with which intervals of new rows contain, for any law."""
        if self.method == "split":
            return self.level
        n, k = self.n_calibrating, len(self.models)
        off = 2 * (1 - self.level)
        if k < n:
            off += min(2 * (1 - 1 / k) / (n / k + 1), (1 - k / n) / (k + 1))
        return max(0.0, 1 - off)

    @property
    def scores(self) -> Floats:
        """How unusual each row is to the fit that left it out, (n,); NaN for those that only fit.

        Larger is more unusual: what p-values compare new rows with.
        """
        return self._scores("novelty", 0)

    def impute(self, X: Rows | None = None) -> tuple[Any, Any, Any]:
        """Fill missing entries, each with an interval that contains it in a share `level`.

        Parameters
        ----------
        X : array or frame of shape (m, d), default=None
            New rows. None for the table itself: each row is then filled by the fit that left it
            out. Fits that judge other rows have seen what it observes, so that its intervals hold
            approximately, not by the guarantee.

        Returns
        -------
        filled, low, high : arrays or frames of shape (m, d)
            The average of the fits, and the ends of the intervals: x̂ ± r·std with quantiles of the
            scores ``r = |x − x̂|/std`` of known entries of the column that were hidden from their
            row, one by one. Infinite where too few entries calibrate. Known entries stay as they
            are.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, conformal
        >>> X = load_iris().data
        >>> X[:40, 2] = np.nan
        >>> filled, low, high = conformal(PPCA(2), X).impute()
        >>> round(float((high - low)[:40, 2].mean()), 1)
        1.2
        """
        self._check_able("impute")
        table = self.X if X is None else _opened(self.models[0], X)
        values = self._numbers(table)
        filled, low, high = values.copy(), values.copy(), values.copy()
        answers = [self._imputed(k, table) for k in range(len(self.models))]
        for j in np.flatnonzero(np.isnan(values).any(axis=0)).tolist():
            at = np.flatnonzero(np.isnan(values[:, j]))
            means, stds = (np.stack([one[i][at, j] for one in answers]) for i in (0, 1))
            ends = self._interval(self._scores("impute", j), means, stds, at if X is None else None)
            filled[at, j], low[at, j], high[at, j] = ends
        like = self.X if X is None else X
        return tuple(_checks.as_frame(part, like) for part in (filled, low, high))

    def reconstruct(self, X: Rows | None = None) -> tuple[Any, Any, Any]:
        """Return rows as the model reconstructs them, with intervals for what is measured.

        A known entry outside its interval is further from its reconstruction than a share `level`
        of such entries.

        Parameters
        ----------
        X : array or frame of shape (m, d), default=None
            New rows; None for the table itself, each row by the fit that left it out.

        Returns
        -------
        signal, low, high : arrays or frames of shape (m, d)
            The average of the fits, and the ends of the intervals: x̂ ± a quantile of ``|x − x̂|`` of
            the column.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PCA, conformal
        >>> X = load_iris().data
        >>> signal, low, high = conformal(PCA(2), X).reconstruct()
        >>> bool(((low <= X) & (X <= high)).mean() > 0.88)
        True
        """
        self._check_able("reconstruct")
        table = self.X if X is None else _opened(self.models[0], X)
        answers = np.stack([floats_of(one.reconstruct(table)) for one in self.models])
        found = np.empty((3, *answers.shape[1:]))
        for j in range(answers.shape[2]):
            means = answers[:, :, j]
            at = np.arange(means.shape[1]) if X is None else None
            scores = self._scores("reconstruct", j)
            found[:, :, j] = self._interval(scores, means, np.ones_like(means), at)
        like = self.X if X is None else X
        return tuple(_checks.as_frame(part, like) for part in found)

    def p_values(self, X: Rows | None = None) -> Floats:
        """Return the p-value of every row: how many ordinary rows would be as unusual.

        Rows of which it is at most 0.05 are a limit of 95 %, for any model with a density or a
        novelty: no row is judged by a model that has seen it.

        Parameters
        ----------
        X : array or frame of shape (m, d), or a list of sequences, default=None
            New rows; None for the table itself, each row among all of them.

        Returns
        -------
        array of shape (m,)
            (1 + the number of calibrating rows that are as unusual to a fit that left them out as
            the new row is to that fit) / (n + 1), which is never below 1/(n + 1). Of the table
            itself, (the number of rows as unusual as this one)/n, which for an ordinary row is at
            most α with a probability of at most α.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA, conformal
        >>> X = load_iris().data
        >>> found = conformal(MixturePPCA(3, 1, random_state=0), X)
        >>> found.p_values([[9.0, 9.0, 9.0, 9.0]]).round(3)
        array([0.007])
        """
        known = self.scores
        if X is None:
            if self.method == "split":
                self._refuse_split()
            above = np.sort(known)
            return np.asarray((known.size - np.searchsorted(above, known)) / known.size)
        table, count = _opened(self.models[0], X), np.ones(1)
        for k, one in enumerate(self.models):
            own = np.sort(known[self.fold == k])
            count = count + own.size - np.searchsorted(own, self._unusual(one, table))
        return np.asarray(count / (self.n_calibrating + 1))

    def __repr__(self) -> str:
        """Return what it is in a line."""
        fits = f"{len(self.models)} fit{'s' * (len(self.models) > 1)}"
        return (
            f"Conformal({type(self.models[0]).__name__}, level={self.level:g}, "
            f"method={self.method!r}): {fits}, {self.n_calibrating:,} rows calibrate, covers "
            f"{100 * self.guarantee:.3g} % or more"
        )

    # --- scores ------------------------------------------------------------------------------

    def _check_able(self, what: str) -> None:
        """Refuse models that do not fill, or reconstruct, entries of numbers."""
        one = filler(self.models[0])
        if hasattr(one, "column_kinds_"):
            raise TypeError(
                f"Conformal.{what} needs a model of numbers with standard deviations, and "
                f"{type(one).__name__} has neither for all columns. Its calibration(X) counts how "
                "often its own intervals hold."
            )
        if not hasattr(one, what) or isinstance(self.X, list):
            raise TypeError(
                f"Conformal.{what} needs a model with {what}, got {type(one).__name__}."
            )

    def _refuse_split(self) -> None:
        what = "new rows with method='split': those of the table have fitted the model"
        raise ValueError(expected("X", what, None, "Or use method='cv+'."))

    def _numbers(self, table: Opened) -> Floats:
        """Return rows as numbers on the host; NaN where they are missing."""
        return floats_of(filler(self.models[0])._given(table, "impute"))

    def _imputed(self, k: int, table: Opened) -> tuple[Floats, Floats]:
        """Return means and deviations of the entries of rows by a fit: each row for itself."""
        one = filler(self.models[k])
        mean, std = one.impute(table, return_std=True, parameters="fixed")
        return floats_of(mean), np.maximum(floats_of(std), np.finfo(float).tiny)

    def _unusual(self, model: Estimator, table: Opened) -> Floats:
        found = floats_of(self.novelty(model, table))
        n = len(table) if isinstance(table, list) else int(table.shape[0])
        if found.shape != (n,):
            raise ValueError(
                expected("novelty", "a function that returns one number per row", found.shape)
            )
        return found

    def _scores(self, what: str, j: int) -> Floats:
        """Return the scores of all rows by the fits that left them out, (n,); NaN for the rest."""
        key = f"impute {j}" if what == "impute" else what
        if key not in self._known:
            parts = [self._judged(k, what, j) for k in range(len(self.models))]
            found = np.full((self.fold.size, parts[0].shape[1]), np.nan)
            for k, part in enumerate(parts):
                found[self.fold == k] = part
            self._known[key] = found
        known = self._known[key]
        return np.asarray(known[:, j if what == "reconstruct" else 0])

    def _judged(self, k: int, what: str, j: int) -> Floats:
        """Return the scores of the rows that a fit left out: of column j, or of all, (n_k, ·)."""
        rows = _rows_at(self.X, np.flatnonzero(self.fold == k))
        if what == "novelty":
            return self._unusual(self.models[k], rows)[:, None]
        values = self._numbers(rows)
        if what == "reconstruct":
            return np.abs(values - floats_of(self.models[k].reconstruct(rows)))
        hidden = np.zeros(values.shape, dtype=bool)
        hidden[:, j] = ~np.isnan(values[:, j])
        mean, std = self._imputed(k, without(rows, hidden))
        return (np.abs(values - mean) / std)[:, [j]]

    def _interval(
        self, scores: Floats, means: Floats, stds: Floats, own: Ints | None
    ) -> tuple[Floats, Floats, Floats]:
        """Return centre and ends for rows, given what every fit says of them, (k, m) each.

        `own` are the numbers of the rows where they are those of the table, None for new ones.
        """
        some = np.flatnonzero(~np.isnan(scores))
        if own is not None:
            if self.method == "split":
                self._refuse_split()
            k, at = self.fold[own], np.arange(own.size)
            centre, reach = means[k, at], stds[k, at] * ranked(scores[some], self.level)
            return centre, centre - reach, centre + reach
        low, high = (np.empty(means.shape[1]) for _ in range(2))
        which, r = self.fold[some], scores[some][:, None]
        for cut in backend.slices(means.shape[1], max(1, SORTED_AT_ONCE // max(1, some.size))):
            x, s = means[which, cut], stds[which, cut]
            high[cut] = ranked(x + r * s, self.level)
            low[cut] = -ranked(r * s - x, self.level)
        return means.mean(axis=0), low, high


# --- Ranks ----------------------------------------------------------------------------------------


def ranked(scores: Floats, level: float) -> Any:
    """Return the ⌈level (m + 1)⌉-th smallest of m scores along the first axis; infinite beyond m.

    A new score, exchangeable with them, is no larger with a probability of at least `level`.

    Examples
    --------
    >>> scores = np.arange(1.0, 20.0)
    >>> float(ranked(scores, 0.9)), float(ranked(scores, 0.95)), float(ranked(scores, 0.96))
    (18.0, 19.0, inf)
    """
    m = scores.shape[0]
    rank = math.ceil(level * (m + 1) - 1e-9)
    if rank > m:
        return np.full(scores.shape[1:], np.inf)[()]
    return np.partition(scores, rank - 1, axis=0)[rank - 1]


def least_for(level: float) -> int:
    """Return the fewest scores of which some rank is an interval of a level.

    Examples
    --------
    >>> least_for(0.9), least_for(0.95), least_for(0.99)
    (9, 19, 99)
    """
    return math.ceil(level / (1 - level) - 1e-9)


def unusualness(model: Estimator, X: Opened) -> Floats:
    """Return how unusual rows are: their novelty, or minus their log-density."""
    if hasattr(model, "score_sequences") and isinstance(X, list):
        lengths = np.array([len(one) for one in X])
        return np.asarray(-floats_of(model.score_sequences(X)) / lengths)
    if hasattr(model, "novelty"):
        return floats_of(model.novelty(X))
    if hasattr(model, "score_samples"):
        return np.asarray(-floats_of(model.score_samples(X)))
    raise TypeError(
        f"p-values need a model with novelty or score_samples, got {type(model).__name__}. Give "
        "novelty=, a function of a fitted model and rows."
    )


# --- Rows -----------------------------------------------------------------------------------------


def _opened(model: Estimator, X: Rows) -> Opened:
    """Return a table that rows can be taken from: an array, a frame, or a list of sequences."""
    require_in_memory(X)
    if hasattr(model, "score_sequences"):
        found = list(X) if isinstance(X, Sequence | np.ndarray) else []
        if not found or not all(_checks.is_table(one) for one in found):
            what = "a list of sequences: rows of one sequence are not exchangeable"
            raise ValueError(expected("X", what, type(X).__name__))
        return found
    return cast(Opened, X if backend.is_foreign(X) else opened_table(X))


def _rows_at(table: Opened, index: Ints) -> Any:
    """Return some rows of a table, or some of several sequences."""
    if isinstance(table, list):
        return [table[i] for i in index.tolist()]
    if backend.is_foreign(table):
        return backend.take(table, index)
    rows = opened_table(table)
    if library_of(rows) == "pandas":
        return rows.iloc[index]
    return rows[index]
