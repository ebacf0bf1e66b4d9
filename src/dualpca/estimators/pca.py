"""Principal component analysis, a drop-in for scikit-learn's."""

from __future__ import annotations

from dataclasses import KW_ONLY, field

from dualpca.arrays import Array, backend
from dualpca.data import Moments
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import (
    check_array_path,
    check_choice,
    check_number,
    check_numbers,
    fixed_generator,
)
from dualpca.estimators._linear import LinearEstimator
from dualpca.estimators._shell import on_rows, parametrized, request_of
from dualpca.estimators._streaming import MomentStream, by_moments, partial_fit
from dualpca.estimators._types import Path, Rows, Seed, Weights
from dualpca.models.spiked import PCARequest, SpikedModel, fit_pca, pca_of_operator
from dualpca.operators import Scatter
from dualpca.solvers import SOLVERS

SKLEARN_SOLVERS = {"auto": "auto"} | {
    alias: name for name, kind in SOLVERS.items() for alias in kind.svd_names
}


def pca_of_moments(moments: Moments, count: int, like: Array, request: PCARequest) -> SpikedModel:
    """Return the model of a stream."""
    operator = Scatter(moments, standardize=request.standardize)
    variances = backend.cast_like(operator.diag() / operator.n, like)
    return pca_of_operator(operator, count, like, request, column_variances=variances)


@parametrized
class PCA(LinearEstimator):
    """Principal component analysis: the orthogonal directions of largest variance.

    A drop-in for `sklearn.decomposition.PCA` (same parameters, attributes, shapes and signs),
    with exact streaming, sample weights and standardisation, and without copies of the data.

    Parameters
    ----------
    n_components : int, float, str or None, default=None
        How many components to keep:

        - int: that many.
        - float between 0 and 1: as many as have this share of the variance.
        - 'mle': Minka's evidence, for n ≥ d.
        - 'evidence', 'bic', 'parallel', 'white-noise', 'gavish-donoho', 'cv': other rules, as in
          `PPCA`.
        - None: all, min(n, d).

    copy : bool, default=True
        Accepted for compatibility. X is never modified, whatever it says.
    whiten : bool, default=False
        Divide each coordinate by its standard deviation in `transform`. Densities and
        covariances do not depend on it.
    svd_solver : str, default='auto'
        'auto' is the cheapest. 'full' or 'qr': QR of the rows, the most accurate.
        'covariance_eigh' or 'dense': the (d, d) scatter. 'gram': the (n, n) Gram matrix.
        'arpack', 'randomized' or 'krylov': Krylov iterations, matrix-free, with blocks of vectors,
        narrow ones where rows are sparse.
    tol : float, default=0.0
        Relative error of the eigenvalues that an iterative solver may leave. 0 is as exact as the
        rows allow: machine precision for float64; for float32 its seven digits, and axes within
        some 1e-5 radians, which is what rounding the rows to float32 costs.
    iterated_power : int or 'auto', default='auto'
        Accepted for compatibility with scikit-learn and not used: block Krylov iterates until
        `tol` holds.
    n_oversamples : int, default=10
        Accepted for compatibility with scikit-learn and not used.
    power_iteration_normalizer : str, default='auto'
        Accepted for compatibility with scikit-learn and not used.
    random_state : None, int, Generator or RandomState, default=None
        Start of block Krylov, and folds of 'cv'. None is a fixed seed: the result does not depend
        on it beyond `tol`.
    standardize : bool, default=False
        Divide every feature by its standard deviation (divisor n) first. Axes and variances are
        then those of the correlation matrix; `inverse_transform`, densities and covariances are
        in the units of X.
    verbose : bool, default=False
        Say on standard error how chunked data are read.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.
    components_out : path, default=None
        A .npy file that `fit` writes `components_` to, replacing it once the new one is complete;
        `components_` is then a read-only memory map of it. For axes larger than memory.

    Attributes
    ----------
    components_ : array of shape (q, d)
        Orthonormal axes; the entry of largest magnitude of each is positive.
    explained_variance_ : array of shape (q,)
        Divisor n − 1, as in scikit-learn.
    explained_variance_ratio_, singular_values_ : arrays of shape (q,)
    mean_ : array of shape (d,)
    scale_ : array of shape (d,) or None
        What every feature was divided by; None without `standardize`.
    noise_variance_ : float
        Average variance of the d − q other directions. scikit-learn divides by min(n, d) − q,
        which makes the noise too large where n < d (Tipping & Bishop 1999, Eq. 8).
    n_parameters_ : int
        Free parameters of the Gaussian: dq − q(q − 1)/2 + 1, and d for the mean.
    n_components_, n_samples_, n_features_in_ : int
    n_samples_seen_ : int or float
        Rows (or weight) given to `partial_fit`.

    Notes
    -----
    O(nd·min(n, d)) at most; O(ndq) per pass by block Krylov. The centred matrix is never formed,
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

    _model: SpikedModel = field(init=False)
    _stream: MomentStream = field(init=False)
    _streaming = by_moments(pca_of_moments)
    _accepts_sparse = True
    _units_in_model = True  # the operator standardises, so that sparse rows and streams can, too

    explained_variance_ = attribute("variances")
    explained_variance_ratio_ = attribute("ratios")
    singular_values_ = attribute("singular_values")
    var_ = attribute("column_variances")
    scale_ = attribute("scale", optional=True)
    n_components_ = attribute("n_components")

    n_components: int | float | str | None = None
    _: KW_ONLY
    copy: bool = True
    whiten: bool = False
    svd_solver: str = "auto"
    tol: float = 0.0
    iterated_power: int | str = "auto"
    n_oversamples: int = 10
    power_iteration_normalizer: str = "auto"
    random_state: Seed = None
    standardize: bool = False
    verbose: bool = False
    device: str | None = None
    components_out: Path = None

    def _request(self) -> PCARequest:
        """Check the parameters and return them for the fit."""
        check_choice("svd_solver", self.svd_solver, (*SKLEARN_SOLVERS, *SOLVERS))
        check_numbers(
            self,
            counts=("n_oversamples",),
            numbers=("tol",),
            flags=("copy", "whiten", "standardize"),
        )
        if self.iterated_power != "auto":
            check_number("iterated_power", self.iterated_power, 0, integer=True)
        normalizers = ("auto", "QR", "LU", "none")
        check_choice("power_iteration_normalizer", self.power_iteration_normalizer, normalizers)
        check_array_path("components_out", self.components_out)
        solver = SKLEARN_SOLVERS.get(self.svd_solver, self.svd_solver)
        seed = fixed_generator(self.random_state)
        given = {"solver": solver, "solver_given": self.svd_solver, "seed": seed}
        return request_of(self, PCARequest, **given)

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> PCA:
        """Fit the model.

        Parameters
        ----------
        X : array of shape (n, d), or a chunked table
            Two rows or more. Never modified. Chunked: `Batches`, Dask, Zarr, a path.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None
            Non-negative. A weight of 2 counts as the row twice, 0 as no row; their sum is the
            effective number of rows.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PCA
        >>> X = load_iris().data
        >>> PCA(2).fit(X).components_.shape
        (2, 4)
        """
        return self._learn(fit_pca, X, sample_weight)

    partial_fit = partial_fit

    @on_rows("n_components_", projected=True)
    def transform(self, X: Array) -> Array:
        """Project rows on the axes.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        array of shape (n, q)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PCA
        >>> X = load_iris().data
        >>> PCA(2).fit(X).transform(X).shape
        (150, 2)
        """
        return self._working.whitened(X) if self.whiten else self._working.coordinates(X)

    def inverse_transform(self, X: Rows) -> Array:
        """Return the rows whose coordinates are X, in the units of the data.

        Parameters
        ----------
        X : array of shape (n, q)

        Returns
        -------
        array of shape (n, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PCA
        >>> X = load_iris().data
        >>> PCA(2).fit(X).inverse_transform([[0.0, 0.0]]).round(2)
        array([[5.84, 3.06, 3.76, 1.2 ]])
        """
        return self._lifted(X, self._working.deviations if self.whiten else None)

    @on_rows("n_features_in_")
    def reconstruct(self, X: Array) -> Array:
        """Return the orthogonal projection of rows on the span of the axes.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        X_rec : array of shape (n, d)

        Examples
        --------
        >>> import numpy as np
        >>> X = np.array([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
        >>> PCA(1).fit(X).reconstruct([[1.0, 3.0]])
        array([[2., 2.]])
        """
        return self._working.lifted(self._working.coordinates(X))
