"""Kernel principal component analysis, a drop-in for scikit-learn's, at any size."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from dualpca.arrays import Array, backend, to_host
from dualpca.data import ChunkedTable, InMemoryTable, is_elsewhere, used_rows
from dualpca.errors import expected
from dualpca.estimators._attributes import attribute, nested
from dualpca.estimators._checks import (
    check_finite_result,
    check_flag,
    check_number,
    check_share,
    generator,
    refuse_weights,
)
from dualpca.estimators._kernel import (
    PreImageEstimator,
    check_diagonal,
    check_points,
    checked_components,
)
from dualpca.estimators._shell import Estimator, on_rows, parametrized
from dualpca.estimators._streaming import Streaming
from dualpca.estimators._types import Column, KernelLike, Rows, Seed, Weights
from dualpca.estimators.ppca import PPCA
from dualpca.models.kernel import (
    KernelModel,
    KernelRequest,
    KernelStream,
    fit_kernel,
    is_precomputed,
)
from dualpca.preimages import Learned, LearnedMap, Method


class counted(attribute):
    """A fitted attribute of shares, for which negative eigenvalues are counted when it is read."""

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        """Return the shares."""
        if estimator is not None and estimator._fitted.ratios is None:
            estimator._model = estimator._fitted.counted(estimator._request())
        return super().__get__(estimator, owner)


def _check_chunk(estimator: Estimator, X: Rows, reset: bool) -> Array:
    points = check_points(estimator, X, reset=reset, min_rows=1)
    if points.ndim == 1 or backend.is_sparse(points):
        what = "dense rows: a stream keeps some of them as landmarks"
        raise ValueError(expected("X", what, type(X).__name__))
    return points


def _grown(
    stream: KernelStream | None, seen: float, table: InMemoryTable, request: KernelRequest
) -> tuple[KernelStream, float]:
    if stream is None:
        stream, seen = KernelStream(request.kernel.resolved(table.rows)), 0
    seen += used_rows(table.rows, table.weights)
    return stream.add(table.rows, table.weights, request), seen


def _model_of(stream: KernelStream, request: KernelRequest) -> KernelModel:
    if stream.waiting is not None and used_rows(stream.waiting, stream.weights) < 2:
        raise NotFittedError("partial_fit has seen 1 row; at least 2 are required.")
    return stream.model(request)


@parametrized
class KernelPCA(PreImageEstimator):
    """Principal components in the feature space of a kernel.

    A drop-in for `sklearn.decomposition.KernelPCA` that accepts any number of rows, keeps the mean
    in `inverse_transform`, and reports how exact it is.

    Parameters
    ----------
    n_components : int, float or None, default=None
        A count; a share of the variance between 0 and 1; None for all non-zero ones.
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable, default='linear'
        A name ('linear', 'poly', 'rbf', 'laplacian', 'matern', 'cosine', 'chi2', …), 'precomputed'
        where X is a kernel matrix, an object of `dualpca.kernels`, or a function of two items.
    gamma : float, 'scale', 'median', 'auto' or None, default=None
        Scale of the RBF, polynomial, sigmoid, Laplacian and chi-squared kernels. None and 'auto'
        are 1/d, as in scikit-learn, with a warning where the kernel matrix is then nearly the
        identity or nearly constant; 'scale' and 'median' are found from X.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1
        Constant term of the polynomial and sigmoid kernels.
    kernel_params : dict, default=None
        Other parameters of a named kernel, or keyword arguments of a function.
    alpha : float, default=1.0
        Ridge of the inverse that `fit_inverse_transform` learns.
    fit_inverse_transform : bool, default=False
        Learn `inverse_transform` by ridge regression on the latents (Bakir et al. 2004), as
        scikit-learn does. Otherwise it is found by the method `preimage`.
    eigen_solver : str, default='auto'
        'auto' is the cheapest exact one: 'dense' for few points, Lanczos or block Krylov for more,
        QR of the rows ('qr') where the kernel is linear or the cosine; with a `tol` of 1e-2 or more
        and a kernel too large to store, 'cholesky' where that reaches it.
        'dense': eigendecomposition, n×n. 'krylov' (or 'arpack', 'randomized'): block Krylov on the
        kernel, stored if it fits, evaluated at every pass if not. 'nystrom': landmarks.
        'cholesky': landmarks by pivoted Cholesky until `tol` of the trace is left. 'fourier':
        random Fourier features.
    tol : float, default=0.0
        Relative error of the eigenvalues that block Krylov may leave; 0 for the precision of X:
        that of float64, or all that float32 rows can tell (eigenvalues to 1e-6 or better).
    max_iter : int, default=None
        Most passes of block Krylov.
    iterated_power : int or 'auto', default='auto'
        Accepted for compatibility with scikit-learn and not used.
    copy_X : bool, default=True
        Accepted for compatibility with scikit-learn and not used: X is never modified.
    n_jobs : int or None, default=None
        Accepted for compatibility with scikit-learn and not used: the fit uses BLAS's threads.
    remove_zero_eig : bool, default=False
        Drop components without variance.
    random_state : None, int, Generator or RandomState, default=None
        Start of block Krylov and draw of landmarks. None is a fixed seed.
    center : bool, default=True
        Centre in feature space. False leaves the kernel as it is (De Plaen & Suykens 2023,
        'Uncentered Features').
    preimage : str or Method, default='auto'
        How inputs are found from latents: 'auto', 'smoother', 'plain-smoother', 'fixed-point',
        'gradient', 'distance' or 'learned'.
    n_landmarks : int, default=500
        Landmarks of 'nystrom' and 'cholesky', features of 'fourier', budget of `partial_fit`.
    landmarks : {'kmeans', 'leverage', 'uniform'}, default='kmeans'
        How 'nystrom' chooses them: centres of clusters, the closest in most cases; points drawn
        by leverage, which finds rare kinds; points drawn uniformly, the cheapest.
    dtype : {'float64', 'float32'}, default=None
        Precision of kernel values in `fit`; eigenvalues come from float64 products either way.
        None is float32 where `tol` is 1e-6 or more, or 0 and X is float32 (more than 3,200 rows,
        or on a GPU), for kernels of the distance; float64 otherwise, and where the eigenvalues
        asked for are too small for it.
    memory_limit : float, default=4294967296
        Bytes that a stored kernel may take; on each of several devices or Dask workers.
    verbose : bool, default=False
        Print on standard error how and where the model is fitted.
    device : None, 'auto', 'cpu', 'cuda' or list, default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.
        ['cuda:0', 'cuda:1'] shares the products of exact solvers; all else, and `transform`, is
        done on the first one. For a Dask array, the device of every worker.

    Attributes
    ----------
    eigenvalues_ : array of shape (q,)
        λ of the centred kernel, largest first.
    eigenvectors_ : array of shape (n, q)
        Unit eigenvectors, from exact solvers.
    explained_variance_ : array of shape (q,)
        λ/n.
    explained_variance_ratio_ : array of shape (q,)
        λ/tr Kc, exact from q eigenpairs. Where the kernel has negative eigenvalues, shares are of
        the sum of the positive ones. Of more than 256 points and a kernel that is not positive
        semi-definite, such as 'sigmoid', that sum is found when the shares are first read: by all
        eigenvalues of the kernel, evaluated again, up to 1,500 points, which may take longer than
        the fit; beyond, by an estimate from 80 products with it.
    approximation_error_ : Approximation
        `trace`, the share of the variance that an approximate solver left out, and `residual`,
        the largest relative error of the eigenvalues.
    kernel_ : Kernel
        With numbers for parameters.
    gamma_ : float
    X_fit_ : array of shape (n, d)
        The training points; the landmarks with 'nystrom' and 'cholesky'.
    solver_ : str
    n_components_, n_samples_, n_features_in_ : int

    Notes
    -----
    Schölkopf, Smola & Müller (1998); theory 7.1. 'dense' costs O(n³), block Krylov O(n²(d + q)) per
    pass (O(n²q) where the kernel is stored), m landmarks or features O(nm(d + m)). The centred
    kernel is never formed: centring is implicit. One n×n array at most, none beyond `memory_limit`;
    `transform` holds a block of rows, O(n(d + q)) each. Directions without variance have
    coordinate 0.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dualpca import KernelPCA
    >>> X = load_digits().data[:300] / 16
    >>> model = KernelPCA(n_components=10, kernel="rbf", gamma="median").fit(X)
    >>> round(float(model.explained_variance_ratio_.sum()), 3)
    0.578
    >>> model.inverse_transform(model.transform(X[:2])).shape
    (2, 64)
    """

    _model: KernelModel = field(init=False)
    _stream: KernelStream = field(init=False)
    _streaming = Streaming[KernelStream, KernelRequest](_grown, _model_of, _check_chunk)
    _finds_width = False  # as in scikit-learn

    explained_variance_ratio_ = counted("ratios")
    eigenvectors_ = attribute("eigenvectors")
    input_model_ = nested("inputs", PPCA)

    n_components: int | float | None = None
    _: KW_ONLY
    kernel: KernelLike = "linear"
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] | None = None
    alpha: float = 1.0
    fit_inverse_transform: bool = False
    eigen_solver: str = "auto"
    tol: float = 0.0
    max_iter: int | None = None
    iterated_power: int | str = "auto"
    remove_zero_eig: bool = False
    random_state: Seed = None
    copy_X: bool = True
    n_jobs: int | None = None
    center: bool = True
    preimage: str | Method = "auto"
    n_landmarks: int = 500
    landmarks: str = "kmeans"
    dtype: str | None = None
    memory_limit: float = 4 * 2**30
    verbose: bool = False
    device: str | list[str] | None = None

    # --- fitting ---------------------------------------------------------------------------

    def _request(self) -> KernelRequest:
        """Check the parameters and return them for the fit."""
        q = checked_components(self.n_components)
        check_number("alpha", self.alpha, 0)
        for flag in ("fit_inverse_transform", "remove_zero_eig", "copy_X"):
            check_flag(flag, getattr(self, flag))
        if self.max_iter is not None:
            check_number("max_iter", self.max_iter, 1, integer=True)
        if self.fit_inverse_transform and is_precomputed(self.kernel):
            raise ValueError(
                "Cannot fit_inverse_transform with a precomputed kernel: there are no inputs to "
                "return to. preimage_weights gives weights over the training items."
            )
        return self._asked_for(
            KernelRequest, n_components=q, max_passes=self.max_iter, as_rows=True
        )

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> KernelPCA:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), list of items, or kernel matrix (n, n)
            Two rows or more. Never modified. Of a Dask array all rows are copied to every worker,
            which share the products. NaN is accepted with RBF, linear and polynomial
            kernels (their sums and multiples): inner products are then expectations under a PPCA
            of the inputs.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None
            Non-negative. A weight of 2 counts as the row twice, 0 as no row.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> KernelPCA(2, kernel="rbf", gamma=0.5).fit(X).eigenvalues_.round(1)
        array([42. , 20.4])
        """
        request = self._request()
        with self._training(X, sample_weight) as table:
            if isinstance(table, ChunkedTable) and request.features is not None:
                refuse_weights(sample_weight)
            model = fit_kernel(table, request)
        self._keep(model)
        if self.fit_inverse_transform:
            self._method(self._inverse_method())  # learned at once, as scikit-learn does
        return self

    def fit_transform(self, X: Rows, y: object = None, **fit_params: Any) -> Any:
        """Fit the model and return the coordinates of the training points.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), list of items, or kernel matrix (n, n)
        y : ignored, default=None
        **fit_params : object
            `sample_weight`, as in `fit`.

        Returns
        -------
        array of shape (n, q)
            What `transform` gives, to rounding; from eigenvectors, √λ e, no kernel value is
            computed again.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> Z = KernelPCA(2, kernel="rbf", gamma=0.5).fit_transform(X)
        >>> Z.shape, (Z**2).sum(axis=0).round(1)
        ((150, 2), array([42. , 20.4]))
        """
        self.fit(X, y, **fit_params)
        again = fit_params or is_elsewhere(X)  # a Dask array for a Dask array
        known = None if again else self._fitted.training_coordinates()
        return self.transform(X) if known is None else known

    @available_if(lambda self: not is_precomputed(self.kernel))  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> Any:
        """Add rows to the model, in memory of a fixed size.

        The first 4·n_landmarks rows are kept; landmarks are chosen among them by pivoted
        Cholesky, and from then on every chunk is projected on their features, whose moments are
        added up exactly. `approximation_error_.trace` says how much of the variance of the
        whole stream lies outside of the landmarks' span. Parameters such as 'median' are found
        from the first chunk. Fitted attributes are computed when they are next read.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5, n_landmarks=50)
        >>> for chunk in np.array_split(X, 3):
        ...     model = model.partial_fit(chunk)
        >>> model.n_samples_
        150
        """
        self._streaming.add(self, X, sample_weight)
        return self

    # --- points ----------------------------------------------------------------------------

    @on_rows("n_components_")
    def transform(self, X: Array) -> Array:
        """Project points on the components, in blocks.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)

        Returns
        -------
        array of shape (m, q)
            y = kc(x)ᵀA, centred with the training means.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.transform(X).shape
        (150, 2)
        """
        self._know_inputs(X)
        return self._working.coordinates(X)

    @on_rows("n_components_")
    def transform_std(self, X: Array) -> Array:
        """Return the standard deviation of the coordinates of rows with missing values.

        Missing values make the coordinates uncertain: their covariance is Aᵀ Cov[k(x, ·)] A, in
        closed form. 0 for complete rows.

        Parameters
        ----------
        X : array of shape (m, d)

        Returns
        -------
        std : array of shape (m, q)

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> rows = X[:2].copy()
        >>> rows[0, 2] = np.nan
        >>> model.transform_std(rows).shape
        (2, 2)
        """
        self._know_inputs(X)
        return self._working.coordinate_std(X)

    def novelty_threshold(self, level: float = 0.95) -> float:
        """Return the :meth:`novelty` that a share `level` of new points should not exceed.

        It is a quantile of the training points' novelty, each to a model that was fitted without
        it: their novelty to the model itself is too small, because its axes were fitted to them.
        Leaving a point out is a change of rank one of the scatter, so no model is fitted again.
        Of 0.95, new points like the training points were beyond it in 4 to 6.5 % of cases, for 60
        to 4,000 points, 2 to 50 components, and with all solvers.

        Parameters
        ----------
        level : float, default=0.95
            Between 0 and 1. With n points, levels above n/(n + 1) all give the largest value.

        Returns
        -------
        threshold : float
            Found at the first call, and kept in the model and its files: O(n³) up to 2,000 points
            and from 2,000 of them beyond; with landmarks, random features and streams at the fit.
            Never below rounding error, so that where the components explain everything no point
            is novel.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> bool(model.novelty_threshold(0.99) > model.novelty_threshold(0.9))
        True
        """
        check_share("level", level)
        if self._fitted.left_out is None:
            model = self._working.judged(self._request())
            if "_placed" in vars(self):
                self._placed = model
            self._model = to_host(model)
        return float(self._fitted.novelty_threshold(level))

    @on_rows(cast=False, dtype=np.bool_, options=("level",))
    def is_novel(self, X: Array, level: float = 0.95, diagonal: Column | None = None) -> Array:
        """Return True for points further off the components than almost all ordinary points.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
        level : float, default=0.95
            Share of new points like the training points that are not novel; see
            :meth:`novelty_threshold`. Of the training points themselves fewer are, since the
            components were fitted to them.
        diagonal : array of shape (m,), default=None
            As in `novelty`.

        Returns
        -------
        novel : array of bool, shape (m,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.is_novel([X[0], [9.0, 9.0, 9.0, 9.0]])
        array([False,  True])
        """
        self._refuse_missing(X)
        novelty = self._working.off_span(X, check_diagonal(diagonal, X))
        return check_finite_result(novelty, X) > self.novelty_threshold(level)

    def squared_eigenvalue_ratio(self) -> Array:
        """Return the share of each eigenvalue in the sum of squared eigenvalues.

        It is larger than `explained_variance_ratio_`, and overstates the fit. One pass over the
        kernel of the training points; for exact fits.

        The ratio is λ_p² / Σλ² with Σλ² = ‖Kc‖²_F. It is not a share of the variance.

        Returns
        -------
        ratio : array of shape (q,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> bool((model.squared_eigenvalue_ratio() > model.explained_variance_ratio_).all())
        False
        """
        return self._home(self._working.squared_ratios(self._request()), None)

    def sample(
        self, n_samples: int = 1, random_state: Seed = None, return_distance: bool = False
    ) -> Any:
        """Draw new inputs: coordinates from a normal distribution, and their pre-images.

        Coordinates are drawn from N(0, Λ/n).

        The generation of kernel PCA (Schreurs & Suykens 2018): that of `DualPPCA` as σ² → 0.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None
        return_distance : bool, default=False
            Also return the distance of each input's features from the point that was drawn.

        Returns
        -------
        array of shape (n_samples, d), or a pair with (n_samples,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import KernelPCA
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> KernelPCA(3, kernel="rbf", gamma=0.5).fit(X).sample(4, random_state=0).shape
        (4, 2)
        """
        check_number("n_samples", n_samples, 1, integer=True)
        Y = self._working.sample_coordinates(int(n_samples), generator(random_state))
        return self._drawn_inputs(Y, return_distance)

    # --- the inverse that scikit-learn learns ----------------------------------------------

    def _inverse_method(self) -> Any:
        if not self.fit_inverse_transform:
            return None
        return Learned(alpha=max(float(self.alpha), 1e-12), kernel=self.kernel_)

    @property
    def _learned(self) -> LearnedMap:
        """The map that `fit_inverse_transform` learns; the linear kernel has an exact inverse."""
        found = self._method(self._inverse_method()) if self.fit_inverse_transform else None
        if not isinstance(found, LearnedMap):
            raise AttributeError("the model has learned no inverse: set fit_inverse_transform=True")
        return to_host(found)

    @property
    def X_transformed_fit_(self) -> Array:
        """Coordinates of the points that the learned inverse uses, (n, q)."""
        return self._learned.centres

    @property
    def dual_coef_(self) -> Array:
        """Coefficients of the learned inverse, (n, d)."""
        return self._learned.A
