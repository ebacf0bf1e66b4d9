"""What models that fill missing entries share: analyses of completed tables, and calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from dualpca.arrays import backend
from dualpca.data import Host
from dualpca.errors import expected
from dualpca.estimators import _checks
from dualpca.estimators._types import Columns, Rows, Seed, Weights

if TYPE_CHECKING:
    from dualpca.estimators._shell import Estimator
    from dualpca.gaussian.calibration import Calibration

T = TypeVar("T")

Compute: TypeAlias = Callable[[Any], Any]
"""What a passive column is, as a function of a completed table."""


def with_imputations(
    self: Estimator,
    X: Rows,
    function: Callable[[Any], T],
    n_draws: int = 20,
    random_state: Seed = None,
    *,
    delta: Mapping[Any, float] | Sequence[float] | None = None,
    passive: Mapping[Any, Compute] | None = None,
    not_predictors: Columns = None,
    parameters: str = "bootstrap",
    sample_weight: Weights = None,
) -> list[T]:
    """Call a function on completed tables, and return what it says of each.

    `dualpca.pool(model.with_imputations(X, fit))` is a pooled regression where `fit` returns one.

    Parameters
    ----------
    X : array or frame of shape (n, d)
        The training table, or one like it.
    function : callable
        Called with each completed table, a frame where X is one. `lambda table: table` gives the
        tables themselves.
    n_draws : int, default=20
    random_state : None, int, Generator or RandomState, default=None
    delta : dict from columns to numbers, or sequence of d numbers, default=None
        Added to the drawn entries of numeric columns, in their units: how far missing values are
        from those of like rows that were observed. 0 is missing at random. Other missing entries
        of the row are drawn before, and stay.
    passive : dict from columns to functions, default=None
        Columns that follow from others, such as {'bmi': lambda t: t.weight / t.height**2}: computed
        from each completed table, in every row, after `delta` and in the order of the dict. They
        impute no other columns, so that what they say is not used twice. A name that a frame does
        not have gives a new column.
    not_predictors : sequence of str or int, default=None
        Columns that are imputed and impute no others, as in `sample_imputations`.
    parameters : {'bootstrap', 'fixed'}, default='bootstrap'
        As in `sample_imputations`. 'fixed' is for looking, not for pooling.
    sample_weight : array of shape (n,), default=None
        As in `sample_imputations`.

    Returns
    -------
    list of n_draws results
        In the order of the draws. The same seed gives the same tables, whatever `delta` is.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA, pool
    >>> X = np.random.default_rng(0).normal(size=(60, 3)).cumsum(axis=1)
    >>> X[:15, 1] = np.nan
    >>> def mean(table):
    ...     return table[:, 1].mean(), table[:, 1].var(ddof=1) / 60
    >>> model = PPCA(2).fit(X)
    >>> found = pool(*zip(*model.with_imputations(X, mean, random_state=0)), dof=59)
    >>> lower = pool(*zip(*model.with_imputations(X, mean, random_state=0, delta={1: -1})), dof=59)
    >>> round(lower.estimate - found.estimate, 2)
    -0.25
    """
    from dualpca.data.kinds import column_of, replaced, shifted  # not with every model

    derived = {} if passive is None else _places(self, passive, X)
    known = [at for at in derived if isinstance(at, int)]
    shifts = _shifts(self, delta)
    if shifts.keys() & derived:
        what = "of columns that are not passive: those are computed"
        raise ValueError(expected("delta", what, delta))
    left_out = _checks.column_numbers(self, not_predictors, "not_predictors")
    tables = self.sample_imputations(
        X, n_draws, random_state, parameters=parameters, sample_weight=sample_weight,
        not_predictors=[*left_out, *known],
    )  # fmt: skip
    added = {j: _added(X, j, shift) for j, shift in shifts.items()}
    results = []
    for table in tables if isinstance(tables, list) else (tables[k, ...] for k in range(n_draws)):
        for j, shift in added.items():
            table = replaced(table, j, shifted(column_of(table, j), shift))
        for at, compute in derived.items():
            table = replaced(table, at, compute(table))
        results.append(function(table))
    return results


def calibration(
    self: Estimator,
    X: Rows,
    *,
    levels: float | Sequence[float] | None = None,
    folds: int = 10,
    random_state: Seed = 0,
) -> Calibration:
    """Hide observed entries, fill them by refits, and count how many the intervals contain.

    Parameters
    ----------
    X : array or frame of shape (n, d)
        The training table, with missing values or without. Only observed entries are hidden.
    levels : float or sequence of float, default=None
        Nominal levels of the intervals. None is 0.1, 0.2, ..., 0.9 and 0.95.
    folds : int, default=10
        The observed entries of every row are dealt to so many folds at random. Each is hidden once,
        and filled by a copy of the estimator, with as many components, that was fitted to the
        others.
    random_state : None, int, Generator or RandomState, default=0
        Which entries are hidden together.

    Returns
    -------
    Calibration
        `coverage` of every level with its standard error, column by column too, and the `factor`
        that standard deviations are to be multiplied by.

    Notes
    -----
    Costs `folds` fits. Hidden entries are missing completely at random, and fits have a share
    1/folds less to learn from: entries that are missing for a reason can be filled worse. A
    bound of which only a side is known is not hidden. Columns of categories have no intervals:
    `categories` compares the probability of the most probable level with how often it was right.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA
    >>> X = np.random.default_rng(0).normal(size=(60, 1)) + np.zeros(4)
    >>> X += 0.5 * np.random.default_rng(1).normal(size=X.shape)
    >>> PPCA(1).fit(X).calibration(X, levels=[0.5, 0.9])
    240 entries of 60 rows were hidden in 10 folds; intervals of
    level    contained          factor, 95 % interval
      50 %    50.8 ± 3.5 %      0.97   0.88 to 1.14
      90 %    89.2 ± 2.3 %      1.02   0.91 to 1.17
    90 % intervals are as wide as they should be, as far as these entries can tell.
    column  hidden  inside 90 %
    x3          60   85.0 ± 4.7 %
    x2          60   88.3 ± 4.3 %
    x0          60   91.7 ± 3.8 %
    x1          60   91.7 ± 3.8 %
    """
    from dualpca.estimators.calibrating import calibrated  # not with every model
    from dualpca.gaussian.calibration import LEVELS

    return calibrated(self, X, LEVELS if levels is None else levels, folds, random_state)


def _places(estimator: Estimator, passive: object, X: Rows) -> dict[int | str, Compute]:
    """Return the functions of passive columns, by their numbers, or the names of new ones."""
    from dualpca.data.kinds import table_names

    if not isinstance(passive, Mapping) or not all(map(callable, passive.values())):
        what = "a dict from columns to functions of a completed table"
        raise ValueError(expected("passive", what, passive))
    found: dict[int | str, Compute] = {}
    for column, compute in passive.items():
        is_new = isinstance(column, str) and column not in (table_names(X) or [column])
        at = column if is_new else _checks.column_number(estimator, column, "passive")
        found[at] = compute
    return found


def _shifts(estimator: Estimator, delta: object) -> dict[int, float]:
    """Return what is added to which columns."""
    if delta is None:
        return {}
    if isinstance(delta, Mapping):
        found = {_checks.column_number(estimator, c, "delta"): v for c, v in delta.items()}
    else:
        d = int(getattr(estimator, "n_features_in_", 0))
        if not isinstance(delta, Sequence | np.ndarray) or len(delta) != d:
            raise ValueError(
                expected("delta", f"a dict from columns to numbers, or {d} of them", delta)
            )
        found = {j: v for j, v in enumerate(delta) if v != 0}
    for shift in found.values():
        if isinstance(shift, bool) or not isinstance(shift, Real) or not np.isfinite(float(shift)):
            raise ValueError(expected("delta", "of finite numbers, one per column", shift))
    return found


def _added(X: Rows, j: int, shift: float) -> Host:
    """Return what is added to every entry of a column, (n,)."""
    from dualpca.data.kinds import cells_of, opened_table

    if backend.is_foreign(X):
        missing = np.isnan(backend.to_numpy(X)[:, j])
    else:
        cells = cells_of(opened_table(X), j)
        if cells.is_coded:
            raise ValueError(expected("delta", "of columns of numbers", f"one for column {j}"))
        missing = cells.missing
    return np.where(missing, shift, type(shift)(0))
