"""Analyses of several completed tables as one: Rubin's rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, overload

import numpy as np
from scipy import stats

from dualpca.data import Host
from dualpca.errors import expected
from dualpca.gaussian.fits import FittedRegression, highest, read_fits

LEAST_DOF = 1e-2
"""Fewer degrees of freedom count as this many: intervals are then without practical limits."""


class Pooled(NamedTuple):
    """Estimates pooled over several completed tables: numbers, or arrays of k quantities.

    Parameters
    ----------
    estimate : float or array of shape (k,)
        Mean of the estimates, Q̄.
    variance : float or array of shape (k,)
        Total variance T of the pooled estimate.
    within : float or array of shape (k,)
        Mean of the squared standard errors, Ū.
    between : float or array of shape (k,)
        Variance of the estimates between the tables, B.
    dof : float or array of shape (k,)
        Degrees of freedom of the t interval.
    missing_information : float or array of shape (k,)
        Fraction of the information that is missing.

    Examples
    --------
    >>> from dualpca import pool
    >>> found = pool([[1.2, 0.4], [1.5, 0.5], [0.9, 0.6]], [[0.1, 0.02], [0.1, 0.02], [0.1, 0.02]])
    >>> found.estimate.round(2), found.variance.round(3)
    (array([1.2, 0.5]), array([0.22 , 0.033]))
    """

    estimate: Any  # Q̄, the mean of the estimates
    variance: Any  # T = Ū + (1 + 1/m)B
    within: Any  # Ū, the mean of the variances: what complete rows would leave unsure
    between: Any  # B, the variance of the estimates: what the missing values add
    dof: Any  # ν, degrees of freedom of (Q̄ − Q)/√T; infinite where B = 0 and none were given
    missing_information: Any  # the share of the information that is missing

    @property
    def std(self) -> Any:
        """Standard error √T."""
        return self.variance**0.5

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of the interval that holds the true value with probability `level`.

        Q̄ ± t_ν √T.

        Parameters
        ----------
        level : float, default=0.95
            Between 0 and 1.

        Returns
        -------
        low, high : floats, or arrays of shape (k,)

        Examples
        --------
        >>> from dualpca import pool
        >>> low, high = pool([1.0, 1.2, 0.9], [0.04, 0.05, 0.04]).interval()
        >>> round(float(low), 2), round(float(high), 2)
        (0.44, 1.63)
        """
        half = _width(level, self.dof) * self.std
        return self.estimate - half, self.estimate + half


def _width(level: Any, dof: Any) -> Any:
    """Return how many standard errors an interval reaches to both sides."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ValueError(expected("level", "a number between 0 and 1, both excluded", level))
    width = stats.t.ppf(0.5 + float(level) / 2, np.maximum(dof, LEAST_DOF))
    return width if isinstance(dof, np.ndarray) else float(width)


class JointTest(NamedTuple):
    """A test that several coefficients are zero, pooled over completed tables.

    Parameters
    ----------
    statistic : float
        F distributed, with `df` and `dof` degrees of freedom, if they are.
    df : int
        Number of coefficients.
    dof : float
        Degrees of freedom of the denominator.
    p_value : float
    relative_increase : float
        How much of their variance missing values add, (1 + 1/m)B/Ū on average.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from dualpca import PPCA, pool
    >>> X = np.random.default_rng(0).normal(size=(60, 3)).cumsum(axis=1)
    >>> y, X[:15, 1] = X[:, 2].copy(), np.nan
    >>> tables = PPCA(2).fit(X).sample_imputations(X, 20, random_state=0)
    >>> fits = [LinearRegression().fit(table[:, :2], y) for table in tables]
    >>> found = pool(fits, X=tables[:, :, :2], y=y).test(["x0", "x1"])
    >>> round(found.statistic), found.df, round(found.dof), found.p_value < 0.001
    (66, 2, 54, True)
    """

    statistic: float
    df: int
    dof: float
    p_value: float
    relative_increase: float


@dataclass(frozen=True, eq=False, repr=False)
class PooledModel:
    """A regression pooled over several completed tables: one entry for each of k terms.

    Parameters
    ----------
    terms : tuple of str
        Names of the coefficients.
    estimate : array of shape (k,)
        Mean of the estimates, Q̄.
    variance : array of shape (k,)
        Total variance T.
    within : array of shape (k,)
        Mean of the squared standard errors, Ū.
    between : array of shape (k,)
        Variance of the estimates between the tables, B.
    dof : array of shape (k,)
        Degrees of freedom of the t tests and intervals.
    missing_information : array of shape (k,)
        Fraction of the information that is missing.
    complete_dof : float or None
        Degrees of freedom of the regression on complete rows; None for many.
    fits : tuple
        What was read off the fit of each table.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from dualpca import PPCA, pool
    >>> X = np.random.default_rng(0).normal(size=(60, 3)).cumsum(axis=1)
    >>> y, X[:15, 1] = X[:, 2].copy(), np.nan
    >>> tables = PPCA(2).fit(X).sample_imputations(X, 20, random_state=0)
    >>> fits = [LinearRegression().fit(table[:, :2], y) for table in tables]
    >>> pool(fits, X=tables[:, :, :2], y=y)
               estimate  std. error   2.5 %  97.5 %   dof       p  missing
    intercept     0.206       0.132  -0.060   0.472  49.6   0.127     12 %
    x0            0.187       0.201  -0.216   0.590  49.4   0.356     12 %
    x1            0.945       0.155   0.633   1.256  51.2  <0.001     10 %
    20 tables, 57 degrees of freedom on complete rows
    """

    terms: tuple[str, ...]
    estimate: Host  # (k,)
    variance: Host
    within: Host
    between: Host
    dof: Host
    missing_information: Host
    complete_dof: float | None
    fits: tuple[FittedRegression, ...]

    @property
    def std(self) -> Host:
        """Standard errors √T, (k,)."""
        found: Host = np.sqrt(self.variance)
        return found

    def interval(self, level: float = 0.95) -> tuple[Host, Host]:
        """Return the ends of the intervals that hold the true values with probability `level`.

        Parameters
        ----------
        level : float, default=0.95
            Between 0 and 1.

        Returns
        -------
        low, high : arrays of shape (k,)

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import LinearRegression
        >>> from dualpca import PPCA, pool
        >>> X = np.random.default_rng(0).normal(size=(60, 3)).cumsum(axis=1)
        >>> y, X[:15, 1] = X[:, 2].copy(), np.nan
        >>> tables = PPCA(2).fit(X).sample_imputations(X, 20, random_state=0)
        >>> fits = [LinearRegression().fit(table[:, :2], y) for table in tables]
        >>> low, high = pool(fits, X=tables[:, :, :2], y=y).interval()
        >>> low.round(1)
        array([-0.1, -0.2,  0.6])
        """
        half = _width(level, self.dof) * self.std
        return self.estimate - half, self.estimate + half

    @property
    def p_value(self) -> Host:
        """Probability of an estimate as far from zero, if its coefficient is zero, (k,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(self.estimate / self.std)
        found: Host = np.asarray(2 * stats.t.sf(t, np.maximum(self.dof, LEAST_DOF)))
        return found

    def test(self, terms: str | Iterable[str], method: str = "D1") -> JointTest:
        """Test that the coefficients of several terms are all zero.

        Parameters
        ----------
        terms : str or sequence of str
            Names in `terms`. The name of a factor of a formula, such as 'C(site)', stands for
            all its levels.
        method : {'D1', 'D3'}, default='D1'
            'D1': the Wald test of the pooled coefficients (Li et al. 1991), with
            Reiter's degrees of freedom (2007). 'D3': the likelihood ratio (Meng & Rubin 1992), for
            models of scikit-learn, and of statsmodels where the log-likelihood is one of the
            coefficients alone: OLS, Logit, Cox models, GLMs without a scale. Not for fitters of
            lifelines, robust regressions, and GLMs with a scale: fit a Gaussian one by OLS.

        Returns
        -------
        JointTest
            `statistic`, `df`, `dof`, `p_value`, `relative_increase`. The numbers of `D1` and `D3`
            of R's mice; for D3, as there, intercept and noise are fitted anew in every table.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import LinearRegression
        >>> from dualpca import PPCA, pool
        >>> X = np.random.default_rng(0).normal(size=(60, 3)).cumsum(axis=1)
        >>> y, X[:15, 1] = X[:, 2].copy(), np.nan
        >>> tables = PPCA(2).fit(X).sample_imputations(X, 20, random_state=0)
        >>> fits = [LinearRegression().fit(table[:, :2], y) for table in tables]
        >>> found = pool(fits, X=tables[:, :, :2], y=y).test(["x0", "x1"])
        >>> found.df, found.p_value < 0.001
        (2, True)
        """
        if method not in ("D1", "D3"):
            raise ValueError(expected("method", "'D1' or 'D3'", method))
        asked = self._numbers_of([terms] if isinstance(terms, str) else list(terms))
        if method == "D1":
            return _wald(self.fits, asked, self.complete_dof)
        if any(fit.loglikelihood is None for fit in self.fits):
            what = (
                "'D1' for these fits, which offer no log-likelihood of the coefficients alone (a "
                "Gaussian GLM has a scale beside them: fit it by OLS)"
            )
            raise ValueError(expected("method", what, method))
        return _likelihood_ratio(self.fits, asked)

    def _numbers_of(self, names: list[str]) -> list[int]:
        """Return where terms stand, and all levels of factors."""
        found: list[int] = []
        for name in names:
            level = re.compile(re.escape(str(name)) + r"(\[[^\]]*\])?")
            exact = [j for j, term in enumerate(self.terms) if term == name]
            fits = exact or [j for j, term in enumerate(self.terms) if level.fullmatch(term)]
            if not fits:
                raise ValueError(expected("terms", f"of {list(self.terms)}", name))
            found += [j for j in fits if j not in found]
        if not found:
            raise ValueError(expected("terms", "one or more names of terms", names))
        return found

    def to_frame(self, level: float = 0.95) -> Any:
        """Return the table as a pandas frame, one row per term.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals.

        Returns
        -------
        pandas.DataFrame
            With columns 'estimate', 'std', 'dof', 'p_value', 'low', 'high' and
            'missing_information'.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import LinearRegression
        >>> from dualpca import PPCA, pool
        >>> X = np.random.default_rng(0).normal(size=(60, 3)).cumsum(axis=1)
        >>> y, X[:15, 1] = X[:, 2].copy(), np.nan
        >>> tables = PPCA(2).fit(X).sample_imputations(X, 20, random_state=0)
        >>> fits = [LinearRegression().fit(table[:, :2], y) for table in tables]
        >>> list(pool(fits, X=tables[:, :, :2], y=y).to_frame().index)
        ['intercept', 'x0', 'x1']
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas.") from error
        low, high = self.interval(level)
        columns = {
            "estimate": self.estimate, "std": self.std, "dof": self.dof, "p_value": self.p_value,
            "low": low, "high": high, "missing_information": self.missing_information,
        }  # fmt: skip
        return pd.DataFrame(columns, index=list(self.terms))

    def __repr__(self) -> str:
        """Return the table of terms."""
        low, high = self.interval()
        numbers = np.column_stack([self.estimate, self.std, low, high])
        rows = [["", "estimate", "std. error", "2.5 %", "97.5 %", "dof", "p", "missing"]]
        beside = zip(self.dof, self.p_value, self.missing_information, strict=True)
        for term, values, (dof, p, missing) in zip(self.terms, numbers, beside, strict=True):
            places = _decimals_for(values[1])
            small = "<0.001" if p < 0.001 else f"{p:.3f}"
            rest = [f"{dof:.1f}", small, f"{100 * missing:.0f} %"]
            rows.append([term, *(f"{value:.{places}f}" for value in values), *rest])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [row[0].ljust(widths[0]) + "  " + _right(row[1:], widths[1:]) for row in rows]
        many = "many" if self.complete_dof is None else f"{self.complete_dof:g}"
        lines += [f"{len(self.fits)} tables, {many} degrees of freedom on complete rows"]
        return "\n".join(lines)


def _right(entries: Sequence[str], widths: Sequence[int]) -> str:
    """Return entries of a line of the table, set to the right."""
    return "  ".join(e.rjust(width) for e, width in zip(entries, widths, strict=True))


def _decimals_for(std: float) -> int:
    """Return how many decimals show three digits of a standard error."""
    return int(np.clip(2 - math.floor(math.log10(std)), 0, 9)) if std > 0 else 4


@overload
def pool(estimates: Any, variances: Any, *, dof: float | None = None) -> Pooled: ...


@overload
def pool(
    estimates: Iterable[Any], *, dof: float | None = None, X: Any = None, y: Any = None
) -> PooledModel: ...


def pool(
    estimates: Any,
    variances: Any = None,
    *,
    dof: float | None = None,
    X: Any = None,
    y: Any = None,
) -> Pooled | PooledModel:
    """Pool the analyses of m completed tables by Rubin's rules: fits, or estimates.

    T = Ū + (1 + 1/m)B (theory 4.3). With r = (1 + 1/m)B/Ū the degrees of freedom are
    (m − 1)(1 + 1/r)², or those of Barnard & Rubin (1999) where the analysis has only `dof` on
    complete rows; the fraction of missing information is (r + 2/(ν + 3))/(r + 1).

    Parameters
    ----------
    estimates : sequence of m fits, or array of shape (m,) or (m, k)
        Alone, m ≥ 2 fitted regressions, one per table: results of statsmodels (linear, logistic
        and other generalised linear models, Cox's), fitters of lifelines, or with `X` and `y`
        scikit-learn's LinearRegression and LogisticRegression without a penalty. With `variances`:
        one number, or k of them, from each table.
    variances : array of the same shape, default=None
        Squared standard errors of estimates.
    dof : float, default=None
        Degrees of freedom that the analysis has on complete rows: n − 1 for a mean, n − p for a
        regression with p coefficients. None for what fits say of themselves (survival models: the
        number of events less p), and for many rows where estimates are given.
    X : sequence of m tables, default=None
        For fits of scikit-learn, which keep no standard errors: the features that each was fitted
        to. The covariance is that of maximum likelihood, s²(XᵀX)⁻¹ or (Xᵀ diag(p(1 − p))X)⁻¹; a
        fit with a penalty, or to other tables, is refused.
    y : array of shape (n,), or sequence of m of them, default=None
        Their targets.

    Returns
    -------
    PooledModel or Pooled
        Of fits a table of `terms` that prints itself, with `test` for several of them and
        `to_frame`. Of numbers a `Pooled`. Both have `estimate`, `variance`, `within`, `between`,
        `dof`, `missing_information`, `std` and `interval(level)`. The same numbers as `pool` and
        `pool.scalar` of R's mice.

    Notes
    -----
    Draw the tables with `sample_imputations` and its default, parameters='bootstrap': draws at
    fixed parameters are too alike, and what is pooled from them is too sure. `with_imputations`
    draws and analyses in one call.

    References
    ----------
    Rubin (1987), Multiple imputation for nonresponse in surveys; Barnard & Rubin (1999),
    Small-sample degrees of freedom with multiple imputation.

    Examples
    --------
    >>> import dualpca
    >>> found = dualpca.pool([1.2, 1.5, 0.9, 1.1, 1.4], [0.10, 0.12, 0.09, 0.11, 0.10], dof=38)
    >>> round(found.estimate, 3), round(found.variance, 4), round(found.dof, 3)
    (1.22, 0.1724, 11.735)
    >>> [round(end, 3) for end in found.interval(0.95)]
    [0.313, 2.127]
    """
    if variances is None:
        return _pooled_fits(read_fits(estimates, X, y), dof)
    if X is not None or y is not None:
        raise ValueError(expected("X and y", "None for estimates and variances", "tables"))
    return _pooled(estimates, variances, dof)


def _pooled_fits(fits: list[FittedRegression], dof: float | None) -> PooledModel:
    """Return the pooled table of fits; the fewest degrees of freedom of any count for all."""
    known = [fit.dof for fit in fits if fit.dof is not None]
    dof = min(known, default=None) if dof is None else dof
    estimates = [fit.estimate for fit in fits]
    found = _pooled(estimates, [np.diag(fit.covariance) for fit in fits], dof)
    return PooledModel(fits[0].terms, *found, None if dof is None else float(dof), tuple(fits))


def _pooled(estimates: Any, variances: Any, dof: float | None) -> Pooled:
    """Return estimates pooled by Rubin's rules."""
    Q, U = _checked("estimates", estimates), _checked("variances", variances)
    if Q.shape != U.shape:
        raise ValueError(expected("variances", f"of the shape of estimates, {Q.shape}", U.shape))
    if np.any(U < 0):
        what = "not negative: squared standard errors"
        raise ValueError(expected("variances", what, float(U[U < 0][0])))
    m = Q.shape[0]
    within, between = U.mean(axis=0), Q.var(axis=0, ddof=1)
    added = (1 + 1 / m) * between
    total = within + added
    share = np.divide(added, total, out=np.zeros_like(total), where=total > 0)
    with np.errstate(divide="ignore"):
        nu = (m - 1) / share**2
    if dof is not None:
        nu = _barnard_rubin(nu, share, _checked_dof(dof))
    # (r + 2/(ν + 3))/(r + 1) with r/(r + 1) = share, which is finite where Ū = 0 too
    missing = share + (1 - share) * 2 / (nu + 3)
    found = (Q.mean(axis=0), total, within, between, nu, missing)
    return Pooled(*(float(value) if Q.ndim == 1 else value for value in found))


def _barnard_rubin(nu: Host, share: Host, dof: float) -> Host:
    """Return 1/(1/ν + 1/ν_obs) with ν_obs = (ν_com + 1)/(ν_com + 3) ν_com (1 − share)."""
    weight = 1.0 if math.isinf(dof) else (dof + 1) / (dof + 3)
    seen = weight * dof * (1 - share)
    with np.errstate(divide="ignore"):
        found: Host = 1 / (1 / nu + 1 / seen)
    return found


def _checked(name: str, values: Any) -> Host:
    """Return estimates or variances as an array, one row per table."""
    found: Host = np.asarray(values)
    if found.dtype.kind not in "biuf":
        raise ValueError(expected(name, "real numbers", found.dtype))
    found = found.astype(np.float64)
    if found.ndim not in (1, 2) or found.shape[0] < 2:
        what = "of shape (m,) or (m, k), from m = 2 tables or more"
        raise ValueError(expected(name, what, found.shape))
    if not np.all(np.isfinite(found)):
        raise ValueError(expected(name, "finite", float(found[~np.isfinite(found)][0])))
    return found


def _checked_dof(dof: Any) -> float:
    """Return the degrees of freedom on complete rows."""
    if isinstance(dof, bool) or not isinstance(dof, Real) or not float(dof) > 0:
        raise ValueError(expected("dof", "a positive number or None", dof))
    return float(dof)


# --- Several coefficients at once ----------------------------------------------------------------


def _wald(fits: Sequence[FittedRegression], asked: list[int], dof: float | None) -> JointTest:
    """Return D1 = Q̄ᵀŪ⁻¹Q̄/(k(1 + r)), r = (1 + 1/m) tr(BŪ⁻¹)/k."""
    m, k = len(fits), len(asked)
    Q = np.array([fit.estimate[asked] for fit in fits])
    U = np.mean([fit.covariance[np.ix_(asked, asked)] for fit in fits], axis=0)
    B = np.atleast_2d(np.cov(Q.T))
    r = (1 + 1 / m) * float(np.trace(np.linalg.solve(U, B))) / k
    mean = Q.mean(axis=0)
    statistic = float(mean @ np.linalg.solve(U, mean)) / (k * (1 + r))
    return _joint(statistic, k, _reiter(r, k * (m - 1), k, dof), r)


def _likelihood_ratio(fits: Sequence[FittedRegression], asked: list[int]) -> JointTest:
    """Return D3: the deviance at pooled coefficients, and what it loses by pooling them."""
    m, k = len(fits), len(asked)
    others = [j for j in range(len(fits[0].terms)) if j not in asked]
    null = [fit.estimate.copy() for fit in fits]
    for at in null:
        at[asked] = 0
    null = [highest(fit, at, others) for fit, at in zip(fits, null, strict=True)]
    full = [fit.estimate for fit in fits]
    own = _deviance(fits, full, null)
    pooled = _deviance(fits, *(_shared(fits, each, asked) for each in (full, null)))
    r = max((m + 1) / (k * (m - 1)) * (own - pooled), 0.0)
    return _joint(pooled / (k * (1 + r)), k, _li(r, k * (m - 1), k), r)


def _shared(fits: Sequence[FittedRegression], each: list[Host], asked: list[int]) -> list[Host]:
    """Return the mean of coefficients for every table, with an intercept of its own."""
    mean = np.mean(each, axis=0)
    free = [[fit.intercept] if fit.intercept is not None else [] for fit in fits]
    every = zip(fits, free, strict=True)
    return [highest(fit, mean, [j for j in own if j not in asked]) for fit, own in every]


def _deviance(fits: Sequence[FittedRegression], full: list[Host], null: list[Host]) -> float:
    """Return twice the mean gain of the log-likelihood from null to full coefficients."""
    every = zip(fits, full, null, strict=True)
    return float(np.mean([2 * (fit.at(a) - fit.at(b)) for fit, a, b in every]))


def _joint(statistic: float, k: int, dof: float, r: float) -> JointTest:
    """Return a test by F with k and `dof` degrees of freedom; χ²/k where these are infinite."""
    many = math.isinf(dof)
    p = stats.chi2.sf(k * statistic, k) if many else stats.f.sf(statistic, k, dof)
    return JointTest(float(statistic), k, float(dof), float(p), float(r))


def _li(r: float, t: int, k: int) -> float:
    """Return the degrees of freedom of Li et al. (1991); t = k(m − 1)."""
    if r == 0:
        return math.inf
    if t > 4:
        return 4 + (t - 4) * (1 + (1 - 2 / t) / r) ** 2
    return t * (1 + 1 / k) * (1 + 1 / r) ** 2 / 2


def _reiter(r: float, t: int, k: int, dof: float | None) -> float:
    """Return the degrees of freedom of Reiter (2007), which are at most those on complete rows.

    They need t > 4 and more rows than missing values use up; elsewhere they are the smaller of
    those for many rows and those on complete rows.
    """
    if dof is None or math.isinf(dof):
        return _li(r, t, k)
    seen = (dof + 1) / (dof + 3) * dof
    a = r * t / (t - 2) if t > 2 else math.inf
    c1, c2 = seen - 2 * (1 + a), seen - 4 * (1 + a)
    if t <= 4 or c2 <= 0:
        return min(_li(r, t, k), seen)
    u, c0 = a / (1 + a), 1 / (t - 4)
    sums = u**2 * c1 / c2 + 8 * u * a * c1 / c2**2 + 4 * u * a / c2
    sums += 4 * a**2 / (c2 * c1) + 16 * a**2 * c1 / c2**3 + 8 * a**2 / c2**2
    return 4 + 1 / (1 / c2 + c0 * sums)
