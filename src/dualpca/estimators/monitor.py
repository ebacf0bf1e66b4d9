"""A process through time: limits from a wanted run length, alarms as episodes, live."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, field
from typing import Any

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone

from dualpca.arrays import Array, backend
from dualpca.data import Host, refuse_infinite, refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._checks import as_frame, check_choice, check_flag, check_number
from dualpca.estimators._linear import LinearEstimator
from dualpca.estimators._shell import Estimator, parametrized
from dualpca.estimators._types import Column, Rows, Seed
from dualpca.estimators.robust import RobustPPCA
from dualpca.models.monitoring import Chart, Episode, MonitorModel, State
from dualpca.models.phase_one import Fit, MonitorRequest, fit_phase_one

DYNAMICS = ("auto", "none", "ar")

RULE = re.compile(r"(\d+) (?:of (\d+)|in a row)")
"""A run rule in words."""

LONGEST_RULE = 50
"""Rows that a run rule may look back."""


@parametrized
class Monitor(MetaEstimatorMixin, Estimator):
    """Watch a process through time, with limits that give a wanted number of false alarms.

    A linear model is fitted to rows of normal operation (phase I); `update` judges the rows that
    come next, one or many, and resumes where it stopped.

    Parameters
    ----------
    model : estimator, default=None
        `PPCA`, `RobustPPCA`, `FactorAnalysis`, `BayesianPCA`, or `PCA` for complete rows; a clone
        of it is fitted. None is ``RobustPPCA(standardize=True)``.
    arl : float, default=370.0
        Mean number of ordinary rows until a false alarm, of all statistics together.
    statistics : sequence of str, default=('t2', 'spe', 'mewma', 'residual')
        't2' (Hotelling) and 'spe' judge every row by itself. 'mewma' (an exponentially weighted
        moving average of the scores) and 'residual' (the largest moving average of what a sensor
        deviates from what the others say of it) find small shifts that last; so do 'cusum'
        (Crosier's, of the scores) and 'residual_cusum' (of each sensor).
    smoothing : float, default=0.1
        λ of the moving averages: the weight of the latest row. 1 has no memory.
    lags : int, default=0
        Rows before each row that are part of it (dynamic PCA).
    dynamics : {'auto', 'none', 'ar'}, default='auto'
        'auto' finds from phase I how much consecutive rows are alike, and has limits that hold
        then. 'none' takes rows as independent. 'ar' makes statistics with a memory of what a row
        shows beyond what the one before it tells (the innovations of an AR(1)).
    trim : bool, default=True
        Look for bad episodes in phase I, set them aside and fit again, until none is left.
    rules : sequence of str, default=()
        Run rules for T² and SPE, such as "2 of 3" or "8 in a row": so many of the last rows are
        less usual than a limit, which follows from `arl` too.
    random_state : None, int, Generator or RandomState, default=None
        Of the simulated rows that limits come from. None is a fixed seed.
    verbose : bool, default=False
        Show the progress of the fit on standard error.

    Attributes
    ----------
    model_ : estimator
        The fitted model.
    phase_one_ : Chart
        Of the training rows.
    set_aside_ : tuple of Episode
        Bad episodes of phase I, and why.
    limits_ : dict of str to float
        Of a complete row.
    arl_ : dict of str to float
        Rows between false alarms of each statistic alone.
    episodes_ : tuple of Episode
        That `update` has seen so far.
    n_seen_ : int
        Rows that `update` has judged.
    n_features_in_ : int

    Notes
    -----
    Hotelling (1931); Jackson & Mudholkar (1979); Lowry et al. (1992) for MEWMA, Crosier (1988) for
    CUSUMs, Alcala & Qin (2009) for contributions. Limits are found by simulating phase I, with the
    error it leaves in mean and variances, and the rows after it. O(d²) per row.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import Monitor
    >>> rng = np.random.default_rng(0)
    >>> relation = rng.normal(size=(2, 6))
    >>> def rows(n):
    ...     return rng.normal(size=(n, 2)) @ relation + 0.4 * rng.normal(size=(n, 6))
    >>> monitor = Monitor().fit(rows(300))
    >>> later = rows(60)
    >>> later[20:, 3] += 1.5
    >>> chart = monitor.update(later)
    >>> monitor.episodes_[0].sensors[0][0]
    'x3'
    """

    _model: MonitorModel = field(init=False)
    model_: Any = field(init=False)
    _accepts_nan = True

    model: Any = None
    _: KW_ONLY
    arl: float = 370.0
    statistics: tuple[str, ...] | list[str] = ("t2", "spe", "mewma", "residual")
    smoothing: float = 0.1
    lags: int = 0
    dynamics: str = "auto"
    trim: bool = True
    rules: tuple[str, ...] | list[str] = ()
    random_state: Seed = None
    verbose: bool = False

    def fit(self, X: Rows, y: object = None, time: Column | None = None) -> Monitor:
        """Fit the model to phase I, find its bad episodes, and the limits.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            Rows of normal operation in their order, NaN where nothing was observed.
        y : ignored, default=None
        time : array of shape (n,), default=None
            Of every row, for charts and episodes.

        Returns
        -------
        self
        """
        self._check_parameters()
        rows = self._host(self._checked(X, reset=True, min_rows=2))
        times = checked_time(time, len(rows))
        kind = self._kind()
        if not kind._accepts_nan:
            refuse_nonfinite(rows)
        request = self._request()
        fitted: list[Any] = []

        def fit(part: Host) -> Fit:
            fitted[:] = [clone(kind).fit(part)]
            return fit_of(fitted[0])

        found = fit_phase_one(rows, fit, request, times)
        self._keep(found.model)
        self.model_ = fitted[0]
        self._phase_one = found
        return self

    def update(self, rows: Rows, time: Any = None) -> Chart:
        """Judge the rows that come next, and go on from where the last call stopped."""
        X = self._next(rows)
        chart, self._model = self._fitted.update(X, checked_time(time, len(X)))
        return chart

    def chart(self, X: Rows, time: Column | None = None) -> Chart:
        """Judge rows from a fresh start, without touching the state."""
        rows = self._next(X)
        return self._fitted.chart(rows, checked_time(time, len(rows)))

    def contributions(self, X: Rows) -> Any:
        """Return the reconstruction-based contributions of the sensors, row by row."""
        rows = self._next(X)
        return as_frame(self._fitted.chart(rows).contributions, X)

    def reset(self) -> Monitor:
        """Forget the rows that `update` has seen."""
        from dataclasses import replace

        self._model = replace(self._fitted, state=State.fresh(self._fitted.plan))
        return self

    @property
    def episodes_(self) -> tuple[Episode, ...]:
        """Episodes that `update` has seen so far."""
        return self._fitted.episodes

    @property
    def n_seen_(self) -> int:
        """Rows that `update` has judged."""
        return self._fitted.state.seen

    @property
    def phase_one_(self) -> Chart:
        """Chart of the training rows."""
        return self._phase_one.chart

    @property
    def set_aside_(self) -> tuple[Episode, ...]:
        """Bad episodes of phase I."""
        return self._phase_one.set_aside

    @property
    def arl_(self) -> dict[str, float]:
        """Rows between false alarms of each statistic alone."""
        return self._phase_one.lengths

    @property
    def limits_(self) -> dict[str, float]:
        """Limits of a complete row."""
        plan = self._fitted.plan
        key = np.ones(len(plan.watch.center), dtype=np.bool_).tobytes()
        both = dict(zip(("t2", "spe"), plan.row_limits([key])[0].tolist(), strict=True))
        return {name: both.get(name, plan.limits.get(name)) for name in plan.statistics}

    # --- rows in ---------------------------------------------------------------------------

    def _next(self, rows: Any) -> Host:
        """Return rows to judge, checked; one row may have one dimension."""
        self._fitted
        if getattr(rows, "ndim", 2) == 1 and hasattr(rows, "reshape"):
            rows = rows.reshape(1, -1)
        elif isinstance(rows, list | tuple) and rows and not hasattr(rows[0], "__len__"):
            rows = np.asarray(rows, dtype=np.float64).reshape(1, -1)
        X = self._host(self._checked(rows, reset=False))
        if not self.model_._accepts_nan:
            refuse_nonfinite(X)
        return X

    def _host(self, rows: Array) -> Host:
        found = np.ascontiguousarray(backend.to_numpy(rows), dtype=np.float64)
        if np.isinf(found).any():
            refuse_infinite(found)
        return found

    def _kind(self) -> Any:
        kind = RobustPPCA(standardize=True) if self.model is None else self.model
        if not isinstance(kind, LinearEstimator):
            what = "one of PPCA, RobustPPCA, FactorAnalysis, BayesianPCA, PCA, or None"
            raise ValueError(expected("model", what, kind))
        return kind

    def _check_parameters(self) -> None:
        self._request()

    def _request(self) -> MonitorRequest:
        """Check the parameters and return them for the fit."""
        names = getattr(self, "feature_names_in_", None)
        d = getattr(self, "n_features_in_", 0)
        names = [f"x{j}" for j in range(d)] if names is None else [str(name) for name in names]
        check_number("arl", self.arl, 2)
        check_number("smoothing", self.smoothing, 0)
        check_number("lags", self.lags, 0, integer=True)
        check_choice("dynamics", self.dynamics, DYNAMICS)
        check_flag("trim", self.trim)
        return MonitorRequest(
            float(self.arl),
            tuple(self.statistics),
            float(self.smoothing),
            int(self.lags),
            self.dynamics,
            bool(self.trim),
            tuple(rule_of(rule) for rule in self.rules),
            tuple(names),
            0,
        )


def rule_of(rule: str) -> tuple[int, int]:
    """Return k and m of a run rule, k of the last m rows.

    Examples
    --------
    >>> rule_of("2 of 3"), rule_of("8 in a row")
    ((2, 3), (8, 8))
    """
    found = RULE.fullmatch(rule) if isinstance(rule, str) else None
    if found is not None:
        k, m = int(found[1]), int(found[2] or found[1])
        if 2 <= k <= m <= LONGEST_RULE:
            return k, m
    what = f"words such as '2 of 3' or '8 in a row', of 2 to {LONGEST_RULE} rows"
    raise ValueError(expected("rules", what, rule))


def fit_of(estimator: Any) -> Fit:
    """Return a fitted estimator as a monitor asks for it."""
    model, units = estimator._fitted, estimator._units
    factors = model.factors
    w = len(factors.mu)
    if units is not None:
        center, scale = backend.to_numpy(units.mean), backend.to_numpy(units.scale)
    else:
        scale = getattr(model, "scale", None)
        center = np.zeros(w)
        scale = np.ones(w) if scale is None else backend.to_numpy(backend.working(scale))
        if scale is not None and getattr(model, "scale", None) is not None:
            center, factors = factors.mu, factors.__class__(factors.W, 0 * factors.mu, factors.psi)
    unit = model.judge_for(None)
    unit = float(model.noise) if hasattr(unit, "gaussian") else 1.0
    return Fit(factors, model.reference, unit, (center, scale))


def checked_time(time: Any, n: int) -> Host | None:
    """Return the times of n rows."""
    if time is None:
        return None
    found = np.asarray(time)
    found = found.reshape(1) if found.ndim == 0 else found
    if found.shape != (n,):
        raise ValueError(expected("time", f"one for each of the {n} rows", found.shape))
    return found
