"""Analyses of several completed tables as one: Rubin's rules."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dualpca.data import Host
from dualpca.errors import expected

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
        given: Any = level
        if isinstance(given, bool) or not isinstance(given, Real) or not 0 < float(given) < 1:
            raise ValueError(expected("level", "a number between 0 and 1, both excluded", level))
        width = stats.t.ppf(0.5 + float(level) / 2, np.maximum(self.dof, LEAST_DOF))
        half = (width if isinstance(self.estimate, np.ndarray) else float(width)) * self.std
        return self.estimate - half, self.estimate + half


def pool(estimates: Any, variances: Any, *, dof: float | None = None) -> Pooled:
    """Pool the estimates from m completed tables by Rubin's rules.

    T = Ū + (1 + 1/m)B (theory 4.3). With r = (1 + 1/m)B/Ū the degrees of freedom are
    (m − 1)(1 + 1/r)², or those of Barnard & Rubin (1999) where the analysis has only `dof` on
    complete rows; the fraction of missing information is (r + 2/(ν + 3))/(r + 1).

    Parameters
    ----------
    estimates : array of shape (m,) or (m, k)
        One number, or k of them, from each of m ≥ 2 tables.
    variances : array of the same shape
        Their squared standard errors.
    dof : float, default=None
        Degrees of freedom that the analysis has on complete rows: n − 1 for a mean, n − p for a
        regression with p coefficients. None for many rows.

    Returns
    -------
    Pooled
        `estimate`, `variance`, `within`, `between`, `dof`, `missing_information`, and
        `interval(level)`. The same numbers as `pool.scalar` of R's mice.

    Notes
    -----
    Draw the tables with `sample_imputations` and its default, parameters='bootstrap': draws at
    fixed parameters are too alike, and what is pooled from them is too sure.

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
