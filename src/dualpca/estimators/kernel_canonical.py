"""Kernel canonical correlation analysis, with posterior."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, MultiOutputMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dualpca import data
from dualpca.arrays import Array, backend
from dualpca.data import InMemoryTable
from dualpca.errors import expected
from dualpca.estimators import _checks
from dualpca.estimators._attributes import attribute
from dualpca.estimators._shell import Estimator, iterative_request, on_rows, parametrized
from dualpca.estimators._types import Column, KernelLike, Rows, Seed, Weights
from dualpca.estimators.canonical import asked_second, check_second
from dualpca.models.kernel import KernelChoice, is_precomputed
from dualpca.models.kernel_canonical import (
    KernelCanonicalModel,
    KernelCanonicalRequest,
    coordinates_in,
    fit_kernel_canonical,
)


@parametrized
class KernelCCA(MultiOutputMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Kernel canonical correlation analysis of two tables with the same rows.

    Curved functions u(x) and v(y), one of each table, that are correlated as much as possible. It
    is :class:`CCA` of the coordinates of both tables in the feature spaces of their kernels.

    Parameters
    ----------
    n_components : int or None, default=None
        q, the number of pairs of functions. None is 2, or 1 where a view has one direction only.
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable, default='rbf'
        Of X, as in :class:`KernelPCA`; no kernel matrix.
    y_kernel : str, Kernel or callable, default=None
        Of y. None is that of X, with a width of its own where widths are found.
    gamma : float, 'scale', 'median', 'auto' or None, default=None
        Scale of named kernels, of both tables. None finds the width of each from its rows, as
        :class:`DualPPCA` does.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1
        Constant term of the polynomial and sigmoid kernels.
    regularization : float or None, default=None
        Share of the whole variance of a view in its feature space that is added to the variance of
        every direction. Without it an RBF, which has as many directions as there are rows, finds
        correlations of 1 between any two tables. None chooses among 1, 0.1, 0.01, 0.001 and 0.0001
        by 5-fold cross-validation: the largest whose correlations on rows left out are within 1/√n
        of the best, and 1 where the best are within 2/√n of 0. It is 0.1 where fewer than 20
        rows have both views.
    n_directions : int, default=200
        Most directions of each feature space, the leading ones. All are found exactly for up to
        1000 rows, in the span of 500 landmarks for more.
    tol : float, default=1e-06
        With missing views: estimated relative distance to the maximum at which EM stops.
    max_iter : int, default=1000
        With missing views: largest number of EM steps.
    random_state : None, int, Generator or RandomState, default=None
        Folds and landmarks. None is a fixed seed.
    verbose : bool, default=False
        Print to standard error how the fit runs.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit, as in :class:`CCA`.

    Attributes
    ----------
    correlations_ : array of shape (q,)
        ρ of the regularised model, largest first; below the correlations of its variates.
    held_out_correlations_ : array of shape (q,) or None
        Correlations of the variates of each fifth of the rows under a fit to the other four fifths,
        given directions, widths and regularization, which all rows chose. Near 0 where the tables
        have nothing in common. Of the 100 leading directions. NaN for components that fits to four
        fifths do not have; None where fewer than 20 rows have both views.
    regularization_ : float
    kernel_, y_kernel_ : Kernel
        With numbers for parameters.
    loglikelihood_ : float
        Of the coordinates of all training rows; infinity where a correlation is 1.
    n_components_, n_iter_, n_samples_, n_features_in_ : int
    converged_ : bool

    Notes
    -----
    Bach & Jordan (2002, 2005); Hardoon, Szedmak & Shawe-Taylor (2004). With u and v in
    the feature spaces it maximises the correlation of u and v under variances to which
    regularization times their squared norms is added. With linear kernels and regularization=0 it
    is `CCA`. Cost: the eigendecompositions of both kernels, O(n³) for up to 1000 rows and O(nl²)
    with l = 500 landmarks for more, then `CCA` of m coordinates each, O(nm²), 30 times with
    cross-validation. Beyond 1000 rows nothing n×n is formed.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import CCA, KernelCCA
    >>> rng = np.random.default_rng(0)
    >>> t = rng.uniform(-1, 1, size=(300, 1))
    >>> X, Y = np.hstack([t, rng.normal(size=(300, 1))]), t**2 + 0.1 * rng.normal(size=(300, 1))
    >>> bool(CCA(1).fit(X, Y).correlations_[0] < 0.2)
    True
    >>> bool(KernelCCA(1).fit(X, Y).held_out_correlations_[0] > 0.8)
    True
    """

    _model: KernelCanonicalModel = field(init=False)
    _accepts_nan = True

    correlations_ = attribute("correlations")
    held_out_correlations_ = attribute("held_out", optional=True)
    regularization_ = attribute("ridge")
    kernel_ = attribute("x.kernel")
    y_kernel_ = attribute("y.kernel")
    loglikelihood_ = attribute("loglikelihood")
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")
    n_components_ = attribute("n_components")
    n_samples_ = attribute("n_rows")

    n_components: int | None = None
    _: KW_ONLY
    kernel: KernelLike = "rbf"
    y_kernel: KernelLike | None = None
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    regularization: float | None = None
    n_directions: int = 200
    tol: float = 1e-6
    max_iter: int = 1000
    random_state: Seed = None
    verbose: bool = False
    device: str | None = None

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = False  # only rows that are NaN throughout
        return tags

    def _request(self) -> KernelCanonicalRequest:
        """Check the parameters and return them for the fit."""
        ridge = self.regularization
        if ridge is not None:
            _checks.check_number("regularization", ridge, 0)
        _checks.check_number("n_directions", self.n_directions, 1, integer=True)
        kernels = [self.kernel, self.kernel if self.y_kernel is None else self.y_kernel]
        if any(is_precomputed(kernel) for kernel in kernels):
            remedy = "Give rows, and the kernel as a function of two of them."
            raise ValueError(expected("kernel", "one of rows", "precomputed", remedy))
        choices = [
            KernelChoice(kernel, self.gamma, self.degree, self.coef0, finds_width=True)
            for kernel in kernels
        ]
        for choice in choices:
            choice.check()
        about = dict(zip(("kernel", "y_kernel"), choices, strict=True))
        return iterative_request(
            self, KernelCanonicalRequest, ridge=ridge, common=True, seed=self._seed, **about
        )

    def fit(self, X: Rows, y: Column | None = None, sample_weight: Weights = None) -> KernelCCA:
        """Fit the model.

        Parameters
        ----------
        X : array or frame of shape (n, d_x)
        y : array or frame of shape (n, d_y) or (n,), default=None
            The second view. A row of NaN in either where that view was not observed; rows of which
            only a part is missing are refused. Never modified.
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import KernelCCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> KernelCCA(1, kernel="linear", regularization=0).fit(X, Y).correlations_.round(2)
        array([0.8])
        """
        request = self._request()
        data.require_in_memory(X, "X")
        with self._training(X, sample_weight) as table:
            assert isinstance(table, InMemoryTable)
            data.refuse_infinite(table.rows, "X")
            Y, _ = check_second(y, table.rows, self._where, "KernelCCA")
            data.refuse_infinite(Y, "y")
            model = fit_kernel_canonical(table, InMemoryTable(Y), request)
        return self._keep(model)

    def _asked_second(self, y: Column | None, rows: Array | None, method: str) -> Array:
        """Return the second view that the model is asked about, checked, where it works."""
        width = int(self._fitted.y.subspace.points.shape[1])
        return asked_second(self, y, rows, method, width)

    @on_rows("n_components_", cast=False)
    def transform(self, X: Array, y: Column | None = None) -> Any:
        """Return the canonical variates of X, and those of y where it is given.

        They are u(x), and v(y) likewise.

        Parameters
        ----------
        X : array of shape (n, d_x)
        y : array of shape (n, d_y), default=None

        Returns
        -------
        array of shape (n, q), or a pair of them
            Of mean 0 on the training rows, and of variance 1 with what regularization adds to it.
            0, as expected of any row, for rows of NaN.

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import KernelCCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = KernelCCA(1).fit(X, Y)
        >>> model.transform(X).shape
        (20, 1)
        """
        data.refuse_infinite(X, "X")
        xp, model, views = backend.namespace(X), self._working, [("X", X)]
        if y is not None:
            views.append(("y", self._asked_second(y, X, "transform")))
        found = []
        for name, rows in views:
            space, view = (getattr(part, name.lower()) for part in (model, model.canonical))
            off = coordinates_in(space, rows, name) - view.mu
            off = xp.where(xp.isnan(off), xp.zeros_like(off), off)
            variates = _checks.check_finite_result(off @ view.directions, rows, missing=True)
            found.append(backend.cast_like(variates, rows))
        return found[0] if y is None else tuple(found)

    def posterior(self, X: Rows | None = None, y: Column | None = None) -> tuple[Array, Array]:
        """Return mean and covariance of the shared latents.

        Parameters
        ----------
        X : array of shape (n, d_x), default=None
        y : array of shape (n, d_y), default=None
            One view or both; rows of NaN where a view was not observed.

        Returns
        -------
        mean : array of shape (n, q)
            √ρ u given X alone, √ρ(u + v)/(1 + ρ) given both.
        covariance : array of shape (n, q, q)

        Examples
        --------
        >>> from sklearn.datasets import load_linnerud
        >>> from dualpca import KernelCCA
        >>> X, Y = load_linnerud(return_X_y=True)
        >>> model = KernelCCA(1).fit(X, Y)
        >>> mean, covariance = model.posterior(X, Y)
        >>> mean.shape, covariance.shape
        ((20, 1), (20, 1, 1))
        """
        check_is_fitted(self)
        if X is None and y is None:
            raise ValueError("KernelCCA.posterior needs at least one view, got neither X nor y.")
        rows = None if X is None else self._asked(X, "posterior")
        if rows is not None:
            data.refuse_infinite(rows, "X")
        other = None if y is None else self._asked_second(y, rows, "posterior")
        like, origin = (other, y) if rows is None else (rows, X)
        model = self._working
        with np.errstate(over="ignore", invalid="ignore"):
            found = model.canonical.latent(*model.coordinates(rows, other))
        _checks.check_finite_result(found[0], like, missing=True)
        mean, covariance = (self._home(backend.cast_like(part, like), origin) for part in found)
        return mean, covariance
