"""Principal component analysis, a drop-in for scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.estimators._components import check_request, leading
from dualpca.estimators._linear import LinearGaussian, publish_axes
from dualpca.estimators._parts import by_parts
from dualpca.estimators._validation import (
    check_choice,
    check_finite_result,
    check_flag,
    check_number,
    generator,
    latent_rows,
    variances_like,
)
from dualpca.gaussian import Reference, maximum_likelihood, residual_dof
from dualpca.operators import Primal, Scatter, Spectrum
from dualpca.solvers import SOLVERS

NEGLIGIBLE = 1e-10
"""Share of the largest variance below which another may be rounding error."""

SKLEARN_SOLVERS = {
    "auto": "auto",
    "full": "qr",
    "covariance_eigh": "dense",
    "arpack": "krylov",
    "randomized": "krylov",
}


class PCA(LinearGaussian):
    """Principal component analysis: the orthogonal directions of largest variance.

    A drop-in for `sklearn.decomposition.PCA` (same parameters, attributes, shapes and signs),
    with exact streaming, sample weights and standardisation, and without copies of the data.

    Parameters
    ----------
    n_components : int, float, str or None
        A count; a share of the variance between 0 and 1; 'mle' (Minka's evidence, for n ≥ d) or
        the name of another rule ('evidence', 'bic', 'parallel', 'gavish-donoho', 'cv'); None for
        min(n, d).
    copy : bool
        Accepted for compatibility. X is never modified, whatever it says.
    whiten : bool
        Divide each coordinate by its standard deviation in `transform`. Densities and
        covariances do not depend on it.
    svd_solver : str
        'auto' takes the cheapest. 'full' or 'qr': QR of the rows, the most accurate.
        'covariance_eigh' or 'dense': the (d, d) scatter. 'gram': the (n, n) Gram matrix.
        'arpack', 'randomized' or 'krylov': block Krylov, matrix-free.
    tol : float
        Relative error of the eigenvalues that block Krylov may leave; 0 for machine precision.
    iterated_power, n_oversamples, power_iteration_normalizer
        Accepted for compatibility: block Krylov iterates until `tol` holds.
    random_state : None, int, Generator or RandomState
        Start of block Krylov, and folds of 'cv'. None is a fixed seed: the result does not depend
        on it beyond `tol`.
    standardize : bool
        Divide every feature by its standard deviation (divisor n) first. Axes and variances are
        then those of the correlation matrix; `inverse_transform`, densities and covariances are
        in the units of X.
    verbose : bool
        Say on standard error how data in parts are read.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

    Attributes
    ----------
    components_ : array of shape (q, d)
        Orthonormal axes; the entry of largest magnitude of each is positive.
    explained_variance_ : array of shape (q,)
        Divisor n − 1, as in scikit-learn.
    explained_variance_ratio_, singular_values_ : arrays of shape (q,)
    mean_ : array of shape (d,)
    scale_ : array of shape (d,), with `standardize`
    noise_variance_ : float
        Average variance of the d − q other directions. scikit-learn divides by min(n, d) − q,
        which makes the noise too large where n < d (Tipping & Bishop 1999, Eq. 8).
    n_components_, n_samples_, n_features_in_ : int
    n_samples_seen_ : int or float
        Rows (or weight) given to `partial_fit`.

    Notes
    -----
    O(nd·min(n, d)) at most; O(ndq) a pass by block Krylov. The centred matrix is never formed,
    and sums run in float64 for float32 rows too.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PCA
    >>> X = np.array([[-1, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> pca = PCA(n_components=2).fit(X)
    >>> pca.explained_variance_ratio_.round(4)
    array([0.9924, 0.0076])
    >>> pca.singular_values_.round(4)
    array([6.3006, 0.5498])
    """

    _fitted_names = (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "mean_",
        "var_",
        "scale_",
        "noise_variance_",
        "n_components_",
        "n_samples_",
        "_reference",
    )
    _accepts_sparse = True

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        tol: float = 0.0,
        iterated_power: int | str = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
        standardize: bool = False,
        verbose: bool = False,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.standardize = standardize
        self.verbose = verbose
        self.device = device

    @property
    def _standardize(self) -> bool:
        return bool(self.standardize)

    @property
    def _solver_in_parts(self) -> str:
        return self.svd_solver

    def _check_parameters(self) -> None:
        check_choice("svd_solver", self.svd_solver, (*SKLEARN_SOLVERS, *SOLVERS))
        check_number("tol", self.tol, 0)
        check_number("n_oversamples", self.n_oversamples, 1, integer=True)
        if self.iterated_power != "auto":
            check_number("iterated_power", self.iterated_power, 0, integer=True)
        normalizers = ("auto", "QR", "LU", "none")
        check_choice("power_iteration_normalizer", self.power_iteration_normalizer, normalizers)
        for flag in ("copy", "whiten", "standardize"):
            check_flag(flag, getattr(self, flag))

    def _publish(self, operator: Primal | Scatter, count: int, like: Array) -> None:
        check_request(self.n_components, count, operator.dim, self.svd_solver)
        name = SKLEARN_SOLVERS.get(self.svd_solver, self.svd_solver)
        seed = 0 if self.random_state is None else generator(self.random_state)
        spectrum = leading(self.n_components, operator, count, solver=name, tol=self.tol, seed=seed)
        self._set(operator, spectrum, count, like)

    def _set(self, operator: Primal | Scatter, spectrum: Spectrum, count: int, like: Array) -> None:
        divisor = operator.n - 1
        if not divisor > 0:
            raise ValueError(
                f"sample_weight must sum to more than 1, got {operator.n:.6g}: it is the effective "
                "number of rows. Multiply the weights by the number of rows they stand for."
            )
        gaussian = maximum_likelihood(spectrum, divisor, spectrum.rank)
        xp = backend.namespace(spectrum.values)
        publish_axes(self, operator.frame.mean, spectrum, like)
        self.explained_variance_ = variances_like(gaussian.values, like, NEGLIGIBLE)
        self.singular_values_ = backend.cast_like(xp.sqrt(spectrum.values), like)
        self.noise_variance_ = gaussian.noise
        self.n_samples_ = count
        dof = residual_dof(operator, spectrum, operator.n)
        self._reference = Reference(operator.n, divisor, dof)
        if operator.frame.scale is not None:
            self.scale_ = backend.cast_like(operator.frame.scale, like)
        if "_stream" in vars(self):
            self.var_ = backend.cast_like(operator.diag() / operator.n, like)

    @by_parts("n_components_")
    def transform(self, X: Any) -> Array:
        """Project rows on the axes.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        array of shape (n, q)
        """
        X = self._new_rows(X, "transform")
        Y = self._coordinates(X)
        if self.whiten:
            Y = Y * _inverse(self._deviations)
        return backend.cast_like(Y, X) if not backend.is_sparse(X) else Y.astype(X.dtype)

    @property
    def _deviations(self) -> Array:
        """Standard deviations along the axes; 0 where there is only rounding error."""
        xp = backend.namespace(self.components_)
        values = backend.working(self.explained_variance_)
        if values.shape[0] == 0:
            return values
        eps = float(np.finfo(np.float64).eps)
        floor = eps * float(xp.max(values)) * max(self.components_.shape)
        return xp.sqrt(xp.where(values > floor, values, xp.zeros_like(values)))

    def inverse_transform(self, X: Any) -> Array:
        """Return the rows whose coordinates are X, in the units of the data.

        Parameters
        ----------
        X : array of shape (n, q)

        Returns
        -------
        array of shape (n, d)
        """
        Z = latent_rows(self, X, "inverse_transform")
        Y = backend.working(Z)
        if self.whiten:
            Y = Y * self._deviations
        return backend.cast_like(check_finite_result(self._frame.lift(self._axes, Y), Z), Z)

    @by_parts("n_features_in_")
    def reconstruct(self, X: Any) -> Array:
        """Return the orthogonal projection of rows on the span of the axes, (n, d).

        Parameters
        ----------
        X : array of shape (n, d)

        Examples
        --------
        >>> import numpy as np
        >>> X = np.array([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> PCA(1).fit(X).reconstruct([[1.0, 3.0]])
        array([[2., 2.]])
        """
        return self.inverse_transform(self.transform(X))


def _inverse(deviations: Array) -> Array:
    """Return 1/x, and 0 for 0: a direction without variance whitens to nothing."""
    xp = backend.namespace(deviations)
    positive = xp.where(deviations > 0, deviations, xp.ones_like(deviations))
    return xp.where(deviations > 0, 1 / positive, xp.zeros_like(deviations))
