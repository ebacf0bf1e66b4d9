"""Which rows are unusual, and because of which features: T², SPE and their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.data import observed_part
from dualpca.errors import expected
from dualpca.estimators._base import (
    by_parts,
    check_choice,
    check_finite_result,
    check_share,
    new_rows,
)
from dualpca.gaussian import FactorMonitor, Monitor, Outliers, Statistics, judge, laws

STATISTICS = ("t2", "spe")


class Diagnostics:
    """Hotelling's T² and the squared prediction error, with limits that are frozen at fit.

    Subclasses provide `_monitor`, which takes rows (or None, for complete ones).
    """

    _accepts_sparse = False

    def _monitor(self, X: Array | None = None) -> Monitor:
        raise TypeError(expected("a model", "a class that defines _monitor", type(self)))

    def _judged(self, X: Any, method: str) -> tuple[Monitor, Statistics]:
        rows = new_rows(self, X, method, accept_sparse=self._accepts_sparse)
        monitor = self._monitor(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            found = monitor.statistics(rows)
        for statistic in (found.t2, found.spe):
            check_finite_result(statistic, observed_or_all(rows, monitor))
        return monitor, found

    @by_parts(None)
    def hotelling_t2(self, X: Any) -> Array:
        """Return Hotelling's T² of every row: how far from the mean it lies along the components.

        Parameters
        ----------
        X : array of shape (n, d)
            With NaN where the model takes it.

        Returns
        -------
        array of shape (n,)
            Σ y²/ℓ over the components. For rows with NaN z̄ᵀ Var(z̄)⁻¹ z̄, with the posterior mean z̄
            of the latents and its variance over rows that observe the same features; 0 for a row
            with nothing observed.
        """
        return self._judged(X, "hotelling_t2")[1].t2

    @by_parts(None)
    def spe(self, X: Any) -> Array:
        """Return the squared prediction error (Q) of every row: its squared distance off the span.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n,)
            ‖x − μ‖² − Σ y², in the units of X squared (of standardised features where those were
            fitted); for factor analysis Σ e²/ψ, without unit. For rows with NaN, that of the
            observed entries given their best fit: 0 where no more are observed than components.
        """
        return self._judged(X, "spe")[1].spe

    def t2_limit(self, level: float = 0.95) -> float:
        """Return the T² that a share `level` of complete new rows stays below.

        q (n² − 1)/(n (n − q)) F_{q, n−q}, for variances with divisor n − 1: it depends on the fit
        alone, never on the rows judged.

        Parameters
        ----------
        level : float

        Returns
        -------
        float
        """
        return self._limit(0, level)

    def spe_limit(self, level: float = 0.95) -> float:
        """Return the SPE that a share `level` of complete new rows stays below.

        Parameters
        ----------
        level : float

        Returns
        -------
        float
            From Box's g·χ²_h. `PCA` takes h = (Σℓ)²/Σℓ² of the discarded variances, equal or not;
            the other models trust their noise, h = d − q. 0 where nothing is discarded; infinite
            where the training rows leave no residual to judge by (q ≥ n − 1).

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from dualpca import PCA
        >>> model = PCA(3, standardize=True).fit(load_wine().data)
        >>> round(model.t2_limit(), 2), round(model.spe_limit(), 2)
        (8.11, 9.01)
        """
        return self._limit(1, level)

    def _limit(self, which: int, level: float) -> float:
        check_is_fitted(self)
        check_share("level", level)
        monitor = self._monitor()
        return float(laws(monitor.reference, monitor.degrees())[which].limit(level)[0])

    def contributions(self, X: Any, to: str = "spe", signed: bool = False) -> Array:
        """Return what each feature contributes to a row's SPE or T².

        Parameters
        ----------
        X : array of shape (n, d)
        to : {'spe', 't2'}
        signed : bool
            Give each the sign of its deviation: negative where the feature is less than expected.

        Returns
        -------
        array of shape (n, d)
            Not negative unless signed; a row's magnitudes sum to its statistic; 0 where nothing
            was observed.

        Notes
        -----
        SPE: the squared residual of the feature. T²: its complete decomposition, the squares of
        D^{1/2}(x − μ) with T² = (x − μ)ᵀD(x − μ), D = V L⁻¹ Vᵀ (Alcala & Qin 2009).

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PPCA
        >>> X = np.random.default_rng(0).normal(size=(200, 1)) * [1.0, 1.0, 1.0]
        >>> model = PPCA(1).fit(X + 0.1 * np.random.default_rng(1).normal(size=X.shape))
        >>> odd = [[0.0, 0.0, 3.0]]
        >>> model.contributions(odd).argmax(), bool(model.outliers(odd).flagged[0])
        (np.int64(2), True)
        """
        check_choice("to", to, STATISTICS)
        rows = new_rows(self, X, "contributions", accept_sparse=self._accepts_sparse)
        monitor = self._monitor(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            roots = monitor.roots(rows)[STATISTICS.index(to)]
            parts = roots * (backend.namespace(roots).abs(roots) if signed else roots)
        check_finite_result(parts, observed_or_all(rows, monitor))
        return parts if backend.is_sparse(rows) else backend.cast_like(parts, rows)

    def outliers(self, X: Any, level: float = 0.95) -> Outliers:
        """Say which rows are unusual: T² or SPE above the limit for what the row observed.

        Parameters
        ----------
        X : array of shape (n, d)
        level : float
            Of each limit: of ordinary rows about 1 − level² are flagged by one or the other.

        Returns
        -------
        Outliers
            `flagged` (n,) and beside it T², SPE, their limits and p-values, row by row.
        """
        check_share("level", level)
        monitor, found = self._judged(X, "outliers")
        return judge(monitor.reference, found, float(level))


def observed_or_all(rows: Array, monitor: Monitor) -> Array:
    """Return the rows in which infinity is to blame: NaN too, where the model does not take it."""
    return observed_part(rows) if isinstance(monitor, FactorMonitor) else rows
