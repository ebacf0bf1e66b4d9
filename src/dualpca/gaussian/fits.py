"""Fitted regressions of other packages, read by what they offer: statsmodels, lifelines and others.

None of these packages is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, optimize, special

from dualpca.data import Host
from dualpca.errors import expected

FAR_FROM_MAXIMUM = 0.05
"""Standard errors that coefficients may be off the maximum of the likelihood they are read by."""

SAME_LIKELIHOOD = 1e-6
"""Relative difference at which two log-likelihoods count as the same function."""

READABLE = (
    "results of statsmodels (params, cov_params), fitters of lifelines (params_, variance_matrix_) "
    "or, with X= and y=, linear models of scikit-learn (coef_, intercept_)"
)


class FittedRegression(NamedTuple):
    """What one fitted regression says."""

    terms: tuple[str, ...]
    estimate: Host  # (k,)
    covariance: Host  # (k, k), of the estimates
    dof: float | None = None  # on complete rows; None for many
    loglikelihood: Callable[[Host], float] | None = None  # at any coefficients, (k,)
    intercept: int | None = None  # which term is it

    def at(self, coefficients: Host) -> float:
        """Return the log-likelihood at any coefficients, (k,)."""
        assert self.loglikelihood is not None
        return self.loglikelihood(coefficients)


def read_fits(fits: Any, X: Any = None, y: Any = None) -> list[FittedRegression]:
    """Return what m fitted regressions say of the same terms.

    Parameters
    ----------
    fits : sequence of m objects
        Results of statsmodels, fitters of lifelines, or linear models of scikit-learn.
    X, y : sequences of m tables and of m columns, default=None
        What linear models of scikit-learn were fitted to. One y serves all tables.

    Returns
    -------
    list of FittedRegression
    """
    if not isinstance(fits, Iterable) or isinstance(fits, str | np.ndarray):
        what = f"a list of fits, {READABLE}; or estimates and, as second argument, their variances"
        raise TypeError(expected("estimates", what, fits))
    models = list(fits)
    if len(models) < 2:
        raise ValueError(expected("fits", "of m = 2 completed tables or more", len(models)))
    if all(hasattr(fit, "coef_") for fit in models):
        found = _with_tables(models, X, y)
    else:
        found = [_read(fit) for fit in models]
    _check_alike(found)
    return found


def _read(fit: Any) -> FittedRegression:
    """Return what one result of statsmodels, or one fitter of lifelines, says."""
    if hasattr(fit, "params") and callable(getattr(fit, "cov_params", None)):
        return _read_result(fit)
    if hasattr(fit, "params_") and hasattr(fit, "variance_matrix_"):
        return _read_fitter(fit)
    raise TypeError(expected("fits", READABLE, type(fit).__name__))


def _read_result(fit: Any) -> FittedRegression:
    """Return what a result of statsmodels says: of linear, generalised linear and Cox models.

    A Cox model counts events, not rows, as R's mice does.
    """
    model = getattr(fit, "model", None)
    names = getattr(fit.params, "index", getattr(model, "exog_names", None))
    estimate, covariance = _numbers(fit.params), _numbers(fit.cov_params())
    status = getattr(model, "status", None)
    dof = getattr(fit, "df_resid", None) if status is None else _dof_of_events(status, estimate)
    return FittedRegression(
        _named(names, estimate), estimate, covariance, _positive(dof), _likelihood_of(fit),
        _constant(getattr(model, "exog", None), estimate.size),
    )  # fmt: skip


def _likelihood_of(fit: Any) -> Callable[[Host], float] | None:
    """Return the log-likelihood at any coefficients, if it is the one that the fit reports."""
    model: Any = getattr(fit, "model", None)
    if not callable(getattr(model, "loglike", None)):
        return None
    try:
        own, reported = float(model.loglike(_numbers(fit.params))), float(fit.llf)
    except (TypeError, ValueError, AttributeError, NotImplementedError):
        return None  # none, or of other parameters than the coefficients alone
    if not abs(own - reported) <= SAME_LIKELIHOOD * max(abs(reported), 1.0):
        return None
    return partial(_likelihood_at, model.loglike)


def _likelihood_at(loglike: Callable[[Host], float], at: Host) -> float:
    """Return a log-likelihood as a number; a function of its own, so that results are pickled."""
    return float(loglike(at))


def _read_fitter(fit: Any) -> FittedRegression:
    """Return what a fitter of lifelines says; it counts events, as Cox models of R's mice do."""
    estimate = _numbers(fit.params_)
    events = getattr(fit, "event_observed", None)
    dof = None if events is None else _dof_of_events(events, estimate)
    names = getattr(fit.params_, "index", None)
    return FittedRegression(_named(names, estimate), estimate, _numbers(fit.variance_matrix_), dof)


def _dof_of_events(events: Any, estimate: Host) -> float:
    """Return the number of events less that of coefficients, 1 at least."""
    return max(float(np.sum(np.asarray(events, dtype=np.float64))) - estimate.size, 1.0)


def _positive(dof: Any) -> float | None:
    """Return the degrees of freedom that a result names, None where there are none."""
    return float(dof) if dof is not None and np.isfinite(dof) and dof > 0 else None


def _numbers(values: Any) -> Host:
    found: Host = np.asarray(values, dtype=np.float64)
    return found


def _named(names: Any, estimate: Host) -> tuple[str, ...]:
    """Return the names of terms, x0, x1 … where there are none."""
    if names is None or len(names) != estimate.size:
        return tuple(f"x{j}" for j in range(estimate.size))
    parts = [name if isinstance(name, tuple) else (name,) for name in names]
    return tuple(": ".join(map(str, part)) for part in parts)


def _constant(exog: Any, k: int) -> int | None:
    """Return which column of k is the same in every row, and not 0."""
    rows = None if exog is None else np.asarray(exog)
    if rows is None or rows.ndim != 2 or rows.shape[1] != k:
        return None
    constant = np.flatnonzero((np.ptp(rows, axis=0) == 0) & (rows[0] != 0))
    return int(constant[0]) if constant.size else None


def _check_alike(fits: Sequence[FittedRegression]) -> None:
    """Refuse fits of different terms, and what is no table of coefficients."""
    first = fits[0]
    for number, fit in enumerate(fits, 1):
        if fit.estimate.ndim != 1:
            what = "of one coefficient for every term"
            raise ValueError(expected("fits", what, f"coefficients of shape {fit.estimate.shape}"))
        if set(fit.terms) ^ set(first.terms) or len(fit.terms) != len(first.terms):
            odd = sorted(set(fit.terms) ^ set(first.terms))
            remedy = "A level that some table lacks gives one: fix the levels before the fit."
            what = f"of the same terms; {odd} are not in both fit 1 and fit {number}"
            raise ValueError(expected("fits", what, list(fit.terms), remedy))
        if fit.terms != first.terms:
            raise ValueError(expected("terms", f"in one order, {first.terms}", fit.terms))
        if not (np.isfinite(fit.estimate).all() and np.isfinite(fit.covariance).all()):
            what = "with finite coefficients and covariances"
            raise ValueError(expected("fits", what, f"NaN or infinity in fit {number}"))


# --- Linear models of scikit-learn, which keep no covariance -------------------------------------


def _with_tables(models: list[Any], X: Any, y: Any) -> list[FittedRegression]:
    """Return what linear models say, with the covariance of maximum likelihood in their tables."""
    if X is None or y is None:
        remedy = "Give the m completed tables that they were fitted to, pool(fits, X=tables, y=y)."
        what = "there for linear models of scikit-learn, which keep no standard errors"
        raise ValueError(expected("X and y", what, None, remedy))
    tables, targets, m = list(X), list(y), len(models)
    if len(tables) != m:
        raise ValueError(expected("X", f"{m} tables, one per fit", f"{len(tables)} of them"))
    columns = [y] * m if np.ndim(targets[0]) == 0 else targets
    if len(columns) != m:
        raise ValueError(expected("y", f"one column, or {m} of them", f"{len(columns)} of them"))
    every = zip(models, tables, columns, strict=True)
    return [_linear_fit(k, fit, table, target) for k, (fit, table, target) in enumerate(every)]


def _linear_fit(k: int, fit: Any, table: Any, target: Any) -> FittedRegression:
    """Return what a linear or logistic regression says, fitted without a penalty."""
    rows, slopes = _numbers(table), np.ravel(_numbers(fit.coef_))
    with_constant = bool(getattr(fit, "fit_intercept", True))
    n = rows.shape[0]
    names = getattr(fit, "feature_names_in_", getattr(table, "columns", None))
    if rows.ndim != 2 or rows.shape[1] != slopes.size or np.shape(target)[:1] != (n,):
        shapes = f"{rows.shape} and {np.shape(target)}"
        what = f"of shapes (n, {slopes.size}) and (n,) in each table, for one target"
        raise ValueError(expected("X and y", what, shapes))
    terms, estimate = _named(names, slopes), slopes
    if with_constant:
        rows = np.column_stack([np.ones(n), rows])
        estimate = np.concatenate([np.ravel(_numbers(fit.intercept_)), slopes])
        terms = ("intercept", *terms)
    classes = getattr(fit, "classes_", None)
    likelihood: Any = (
        _Normal(rows, _target(target)) if classes is None else _binary(rows, target, classes)
    )
    covariance = likelihood.covariance(estimate)
    off = covariance @ likelihood.gradient(estimate) / np.sqrt(np.diag(covariance))
    if not np.max(np.abs(off)) <= FAR_FROM_MAXIMUM:
        raise ValueError(
            "fits of scikit-learn must have no penalty, as LinearRegression and LogisticRegression("
            f"C=numpy.inf), and be those of the tables X; {type(fit).__name__} number {k + 1} is "
            f"{np.max(np.abs(off)):.2g} standard errors off the maximum of the likelihood. "
            "Penalised coefficients have no standard errors that could be pooled."
        )
    dof = _positive(n - estimate.size)
    return FittedRegression(
        terms, estimate, covariance, dof, likelihood, 0 if with_constant else None
    )


def _target(target: Any) -> Host:
    found: Host = np.ravel(_numbers(target))
    return found


def _binary(rows: Host, target: Any, classes: Any) -> _Logistic:
    """Return the likelihood of a logistic regression of two classes."""
    if len(classes) != 2:
        what = "of two classes, or results of statsmodels"
        raise ValueError(expected("logistic regressions", what, f"{len(classes)} classes"))
    return _Logistic(rows, (np.ravel(np.asarray(target)) == classes[1]).astype(np.float64))


class _Normal(NamedTuple):
    """Log-likelihood of a linear regression, at its best variance."""

    rows: Host  # (n, k)
    target: Host  # (n,)

    def _left(self, at: Host) -> tuple[Host, float]:
        """Return residuals and the variance of the noise, with divisor n − k."""
        left = self.target - self.rows @ at
        return left, max(float(left @ left), np.finfo(float).tiny) / max(
            len(left) - self.rows.shape[1], 1
        )

    def covariance(self, at: Host) -> Host:
        """Return s²(XᵀX)⁻¹."""
        return _inverse(self.rows.T @ self.rows) * self._left(at)[1]

    def gradient(self, at: Host) -> Host:
        """Return Xᵀ(y − Xβ)/s²."""
        left, variance = self._left(at)
        found: Host = self.rows.T @ left / variance
        return found

    def __call__(self, at: Host) -> float:
        """Return −n/2 (ln 2π RSS/n + 1)."""
        left, n = self.target - self.rows @ at, len(self.target)
        return float(-n / 2 * (np.log(2 * np.pi * (left @ left) / n) + 1))


class _Logistic(NamedTuple):
    """Log-likelihood of a logistic regression."""

    rows: Host  # (n, k)
    target: Host  # (n,), 0 and 1

    def covariance(self, at: Host) -> Host:
        """Return (Xᵀ diag(p(1 − p)) X)⁻¹."""
        p = special.expit(self.rows @ at)
        return _inverse(self.rows.T @ (self.rows * (p * (1 - p))[:, None]))

    def gradient(self, at: Host) -> Host:
        """Return Xᵀ(y − p)."""
        found: Host = self.rows.T @ (self.target - special.expit(self.rows @ at))
        return found

    def __call__(self, at: Host) -> float:
        """Return Σ ln p(y)."""
        eta = self.rows @ at
        return float(np.sum(self.target * eta - np.logaddexp(0, eta)))


def _inverse(information: Host) -> Host:
    """Return a covariance; refuse columns that are sums of each other."""
    try:
        found: Host = linalg.cho_solve(linalg.cho_factor(information), np.eye(len(information)))
    except linalg.LinAlgError:
        what = "columns of which none is a combination of the others"
        raise ValueError(expected("X", what, "such columns")) from None
    return found


# --- The highest log-likelihood where some coefficients are given --------------------------------


def highest(fit: FittedRegression, start: Host, free: Sequence[int]) -> Host:
    """Return coefficients of largest likelihood, (k,): those that are not free stay as in `start`.

    Climbs in coordinates in which the likelihood around the estimates is round.
    """
    found, free = np.array(start), list(free)
    if not free:
        return found
    precision = np.linalg.inv(fit.covariance)
    inside, rest = precision[np.ix_(free, free)], (start - fit.estimate).copy()
    rest[free] = 0  # what is given, as far as it is off the estimates
    centre = fit.estimate[free] - np.linalg.solve(inside, precision[free] @ rest)
    root = np.linalg.cholesky(np.linalg.inv(inside))

    def placed(at: Host) -> Host:
        found[free] = centre + root @ at
        return found

    def loss(at: Any) -> float:
        return -fit.at(placed(at))

    reached = optimize.minimize(loss, np.zeros(len(free)), method="BFGS", jac="3-point")
    return placed(reached.x)
