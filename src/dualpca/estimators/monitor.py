"""A process through time: limits from a wanted run length, alarms as episodes, live."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, field, replace

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from dualpca import arrays
from dualpca.arrays import Array, backend, to_host
from dualpca.data import Host, refuse_infinite, refuse_nonfinite
from dualpca.errors import MonitorWarning, expected, warn
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import as_frame, check_choice, check_flag, check_number
from dualpca.estimators._linear import LinearEstimator
from dualpca.estimators._shell import Estimator, parametrized
from dualpca.estimators._types import Column, Rows, Seed
from dualpca.estimators.robust import RobustPPCA
from dualpca.models.monitoring import WORDS, Chart, Episode, MonitorModel, goes_together
from dualpca.models.phase_one import BaselineFit, MonitorRequest, fit_phase_one, learn
from dualpca.models.spiked import SpikedModel

DYNAMICS = ("auto", "none", "ar")

RUN_RULE = re.compile(r"(\d+) (?:of (\d+)|in a row)")
"""A run rule in words."""

LEAST_LENGTH = 2
"""Smallest run length that can be asked for."""

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
    error that it leaves in mean and variances, and the rows after it. O(d²) per row, and O(d³) for
    a new pattern of missing values; rows that were judged are never kept.

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
    model_: LinearEstimator = field(init=False)
    _accepts_nan = True

    phase_one_ = attribute("phase_one")
    limits_ = attribute("limits")
    arl_ = attribute("record.lengths")
    n_seen_ = attribute("state.seen")

    model: LinearEstimator | None = None
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
            Of every row: numbers, text or dates, for charts and episodes.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Monitor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=(200, 4))
        >>> X[50:60, 2] += 4.0  # a sensor was off
        >>> [episode] = Monitor().fit(X).set_aside_
        >>> episode.start, episode.end, episode.sensors[0][0]
        (50, 60, 'x2')
        """
        self._check_parameters()
        rows = self._host(self._checked(X, reset=True, min_rows=2))
        times = checked_time(time, len(rows))
        kind = self._kind()
        if not kind._accepts_nan:
            refuse_nonfinite(rows)
        request = self._request()
        fitted: list[LinearEstimator] = []

        def fit(part: Host) -> BaselineFit:
            fitted[:] = [clone(kind).fit(part)]
            return fit_of(fitted[0])

        with arrays.showing(self.verbose):
            found = fit_phase_one(rows, fit, request, times)
        self._keep(found.model)
        self.model_ = fitted[0]
        if found.refused:
            warn(
                f"{found.refused} of {len(rows)} rows of phase I seem to be in bad episodes: too "
                "many to set them aside, so they are not. Phase I has to be one ordinary process: "
                "give rows of one product or season, or dynamics='ar' where it wanders.",
                MonitorWarning,
            )
        return self

    def partial_fit(self, X: Rows, y: object = None, *, forgetting: float = 0.999) -> Monitor:
        """Go on learning means and covariances from ordinary rows; the limits stay.

        Rows in alarm are not learned, nor those of an episode that is not over. The centre goes no
        further from that of phase I than the errors of both allow: a slow drift is not learned, and
        a `MonitorWarning` names its sensors. What `update` has seen stays as it is.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            The rows that come next. Before a `fit` they are phase I.
        y : ignored, default=None
        forgetting : float, default=0.999
            What a row counts by the time the next one comes; 1 forgets nothing.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Monitor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(400, 1)) + 0.5 * rng.normal(size=(400, 4))
        >>> monitor = Monitor().fit(X[:200]).partial_fit(X[200:])
        >>> monitor.chart(X[200:]).alarms.sum() <= 3
        np.True_
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        check_number("forgetting", forgetting, 0)
        if not 0 < forgetting <= 1:
            raise ValueError(expected("forgetting", "above 0 and at most 1", forgetting))
        rows = self._next(X)
        model, moved = learn(self._fitted, rows, float(forgetting))
        self._model = model
        if moved is not None:
            off = ", ".join(
                f"{model.plan.names[j]} ({z:+.1f} standard errors)"
                for j, z in zip(moved.sensors[:5], moved.errors, strict=False)
            )
            warn(
                f"the process has moved from phase I further than chance takes it: {off}. The "
                "centre is held there. Look for a drift; if this is the new ordinary, fit phase I "
                "again.",
                MonitorWarning,
            )
        return self

    def update(self, rows: Rows, time: Column | object = None) -> Chart:
        """Judge the rows that come next, and go on from where the last call stopped.

        However rows are cut into calls, every number is the same to the last bit.

        Parameters
        ----------
        rows : array or frame of shape (n, d), or one row of shape (d,)
            NaN where nothing was observed. A row without any reading is not judged.
        time : array of shape (n,), or one time, default=None

        Returns
        -------
        Chart
            Of these rows; an episode that began before them is among its episodes.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Monitor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 4))
        >>> monitor = Monitor().fit(X[:200])
        >>> for row in X[200:]:
        ...     chart = monitor.update(row)
        >>> monitor.n_seen_, chart.first
        (100, 99)
        """
        X = self._next(rows)
        found: tuple[Chart, MonitorModel] = self._fitted.update(X, checked_time(time, len(X)))
        chart, self._model = found
        return chart

    def chart(self, X: Rows, time: Column | None = None) -> Chart:
        """Judge rows from a fresh start; what `update` has seen stays as it is.

        Parameters
        ----------
        X : array or frame of shape (n, d)
        time : array of shape (n,), default=None

        Returns
        -------
        Chart

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Monitor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 4))
        >>> X[250:, 1] += 2.0
        >>> episode = Monitor().fit(X[:200]).chart(X[200:]).episodes[-1]
        >>> episode.end is None, episode.sensors[0][0]
        (True, 'x1')
        """
        rows = self._next(X)
        found: Chart = self._fitted.chart(rows, checked_time(time, len(rows)))
        return found

    def contributions(self, X: Rows) -> Array:
        """Return the reconstruction-based contributions of the sensors, row by row.

        Parameters
        ----------
        X : array or frame of shape (n, d)

        Returns
        -------
        array or frame of shape (n, d)
            What xᵀΦx, Φ the precision of what the row observed, falls by if the reading is replaced
            by its expectation given the others; with the sign of its deviation, and by what the
            sensor shows on average in phase I. 0 where nothing was observed.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Monitor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 4))
        >>> odd = X[:1] - [[0.0, 0.0, 5.0, 0.0]]
        >>> found = Monitor().fit(X).contributions(odd)
        >>> int(abs(found).argmax()), bool(found[0, 2] < 0)
        (2, True)
        """
        return as_frame(self._fitted.contributions(self._next(X)), X)

    def reset(self) -> Monitor:
        """Forget the rows that `update` has seen: averages, episodes, row numbers.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Monitor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(100, 1)) + 0.5 * rng.normal(size=(100, 4))
        >>> monitor = Monitor().fit(X)
        >>> chart = monitor.update(X)
        >>> monitor.n_seen_, monitor.reset().n_seen_
        (100, 0)
        """
        self._model = self._fitted.reset()
        return self

    @property
    def episodes_(self) -> tuple[Episode, ...]:
        """Episodes that `update` has seen so far; the last one may be open."""
        found: tuple[Episode, ...] = self._fitted.episodes
        return found

    @property
    def set_aside_(self) -> tuple[Episode, ...]:
        """Bad episodes of phase I, and why."""
        found: tuple[Episode, ...] = self._fitted.set_aside
        return found

    # --- files -----------------------------------------------------------------------------

    def _goes_together(self) -> bool:
        model, fitted, d = self._model, vars(self).get("model_"), int(self.n_features_in_)
        plan = model.plan
        if not isinstance(fitted, LinearEstimator):
            return False
        if not super()._goes_together() or not goes_together(model):
            return False
        return fitted.n_features_in_ == d * (plan.lags + 1) and len(plan.names) == d

    # --- rows in ---------------------------------------------------------------------------

    def _next(self, rows: Rows) -> Host:
        """Return rows to judge, checked; one row may have one dimension."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # raises
        given = one_row(rows, self.n_features_in_)
        if not is_plain_table(given, self.n_features_in_):
            given = self._checked(given, reset=False)
        X = self._host(given)
        if not self.model_._accepts_nan:
            refuse_nonfinite(X)
        return X

    def _host(self, rows: Array) -> Host:
        """Return rows on the host in float64, none of them infinite."""
        found = np.ascontiguousarray(backend.to_numpy(rows), dtype=np.float64)
        if np.isinf(found).any():
            refuse_infinite(found)
        return found

    def _kind(self) -> LinearEstimator:
        """Return the estimator to fit clones of."""
        kind: object = RobustPPCA(standardize=True) if self.model is None else self.model
        if not isinstance(kind, LinearEstimator):
            what = "one of PPCA, RobustPPCA, FactorAnalysis, BayesianPCA, PCA, or None"
            raise ValueError(expected("model", what, kind))
        return kind

    def _check_parameters(self) -> None:
        self._kind()
        self._request()

    def _request(self) -> MonitorRequest:
        """Check the parameters and return them for the fit."""
        known = getattr(self, "feature_names_in_", None)
        d = getattr(self, "n_features_in_", 0)
        names = [f"x{j}" for j in range(d)] if known is None else [str(name) for name in known]
        check_number("arl", self.arl, LEAST_LENGTH)
        if not self.arl < np.inf:
            raise ValueError(
                expected("arl", f"a finite number of at least {LEAST_LENGTH}", self.arl)
            )
        check_number("smoothing", self.smoothing, 0)
        if not 0 < self.smoothing <= 1:
            raise ValueError(expected("smoothing", "above 0 and at most 1", self.smoothing))
        check_number("lags", self.lags, 0, integer=True)
        check_choice("dynamics", self.dynamics, DYNAMICS)
        check_flag("trim", self.trim)
        seed = self._seed
        return MonitorRequest(
            arl=float(self.arl),
            statistics=asked_for(self.statistics),
            smoothing=float(self.smoothing),
            lags=int(self.lags),
            dynamics=self.dynamics,
            trim=bool(self.trim),
            rules=tuple(rule_of(rule) for rule in words_of("rules", self.rules)),
            names=tuple(names),
            seed=seed if isinstance(seed, int) else int(seed.integers(2**31)),
        )


def words_of(name: str, value: object) -> tuple[str, ...]:
    """Return words that were given one after another."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError(expected(name, "a list or tuple of words", value))
    return tuple(value)


def asked_for(statistics: object) -> tuple[str, ...]:
    """Return the statistics that were asked for, in the order of the charts.

    Examples
    --------
    >>> asked_for(["mewma", "t2"])
    ('t2', 'mewma')
    """
    given = words_of("statistics", statistics)
    if not given or set(given) - set(WORDS):
        raise ValueError(expected("statistics", f"some of {list(WORDS)}", statistics))
    return tuple(name for name in WORDS if name in given)


def rule_of(rule: str) -> tuple[int, int]:
    """Return k and m of a run rule, k of the last m rows.

    Examples
    --------
    >>> rule_of("2 of 3"), rule_of("8 in a row")
    ((2, 3), (8, 8))
    """
    found = RUN_RULE.fullmatch(rule) if isinstance(rule, str) else None
    if found is not None:
        k, m = int(found[1]), int(found[2] or found[1])
        if 2 <= k <= m <= LONGEST_RULE:
            return k, m
    what = f"words such as '2 of 3' or '8 in a row', of 2 to {LONGEST_RULE} rows"
    raise ValueError(expected("rules", what, rule))


def fit_of(estimator: LinearEstimator) -> BaselineFit:
    """Return a fitted estimator as a monitor asks for it."""
    model, units = to_host(estimator._fitted), estimator._units
    factors, scale = model.factors, getattr(model, "scale", None)
    w = len(factors.mu)
    if units is not None:
        of_units = backend.to_numpy(units.mean), backend.to_numpy(units.scale)
    elif scale is not None:  # axes in units of the model's own, its mean in those of the rows
        of_units = factors.mu, backend.working(scale)
        factors = replace(factors, mu=np.zeros(w))
    else:
        of_units = np.zeros(w), np.ones(w)
    unit = float(model.noise) if isinstance(model, SpikedModel) else 1.0
    return BaselineFit(factors, model.reference, unit, of_units)


def one_row(rows: Rows, d: int) -> Rows:
    """Return a row of d readings as a table of one row; anything else as it is.

    Examples
    --------
    >>> one_row([1.0, 2.0, np.nan], 3)
    array([[ 1.,  2., nan]])
    """
    if isinstance(rows, list | tuple) and rows and np.ndim(rows[0]) == 0:
        rows = np.asarray(rows, dtype=np.float64)
    if tuple(getattr(rows, "shape", ())) != (d,):
        return rows
    given = backend.to_numpy(rows) if backend.is_foreign(rows) else np.asarray(rows)
    return given.astype(np.float64).reshape(1, -1)


def is_plain_table(rows: Rows, d: int) -> bool:
    """Return True for an array of numbers of the right width: live rows need no names."""
    if not isinstance(rows, np.ndarray) or rows.dtype.kind != "f" or rows.ndim != 2:
        return False
    return len(rows) > 0 and int(rows.shape[1]) == d


def checked_time(time: Column | object, n: int) -> Host | None:
    """Return the times of n rows."""
    if time is None:
        return None
    found = np.asarray(time)
    found = found.reshape(1) if found.ndim == 0 else found
    if found.shape != (n,):
        raise ValueError(expected("time", f"one for each of the {n} rows", found.shape))
    return found
