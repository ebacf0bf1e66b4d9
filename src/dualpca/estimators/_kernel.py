"""What the kernel models share: points of any kind, solvers, and the way back to inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from dualpca.arrays import Array, backend, showing, to_host
from dualpca.data import ChunkedTable, Host, InMemoryTable, is_on_workers, refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import (
    check_choice,
    check_finite_result,
    check_flag,
    check_matrix,
    check_number,
    check_rows,
)
from dualpca.estimators._shell import Estimator, T, on_rows, request_of
from dualpca.estimators._types import Column, Rows
from dualpca.kernels import (
    ALIASES,
    KERNELS,
    Function,
    Kernel,
    accepts_nan,
    is_gaussian_process_kernel,
)
from dualpca.models.kernel import KernelChoice, fit_inputs, is_incomplete, is_precomputed
from dualpca.models.spiked import SpikedModel
from dualpca.solvers import KERNEL_SOLVERS, LANDMARKS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance as Model

    # only kernel models need them, and they take time to import
    from dualpca.preimages import Method, PreImage, Span


ASYMMETRY = 1e-8
"""Largest |K − Kᵀ| that counts as rounding, relative to the largest entry."""


SYMMETRY_TILE = 128
"""Points on either side of a tile of a kernel matrix that is compared with its mirror image."""


LEAST_LEARNED = 500
"""Points that a learned pre-image map may always use: 2 MB."""


class KernelEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Base of the kernel models: rows, sparse rows, items of any kind, or a kernel matrix.

    Their model has `points`, what new points are compared with, and `n_components`.
    """

    _allow_nan = False  # where the kernel has expectations
    _finds_width = True  # of a named kernel, where none is given

    kernel_ = attribute("kernel")
    X_fit_ = attribute("points")
    n_samples_ = attribute("n_rows")

    @property
    def gamma_(self) -> Any:
        """The rate of the kernel; None if it has none, or every column a width of its own."""
        return getattr(self.kernel_, "gamma", None)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        kernel = self.kernel
        if isinstance(kernel, str):
            kernel = ALIASES.get(kernel) or KERNELS.get(kernel)
        tags.input_tags.sparse = bool(getattr(kernel, "sparse", False))
        tags.input_tags.allow_nan = self._allow_nan and accepts_nan(self.kernel)
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._kernel_choice.check()

    @property
    def _kernel_choice(self) -> KernelChoice:
        """The kernel that the parameters ask for."""
        given = (self.kernel, self.gamma, self.degree, self.coef0, self.kernel_params)
        return KernelChoice(*given, self._finds_width, judges_width=True)

    def _asked_for(self, request: type[T], **given: Any) -> T:
        """Return a request; fields that are not given are the parameters of the same name."""
        return request_of(self, request, kernel=self._kernel_choice, seed=self._seed, **given)

    def _checked(self, X: Rows, *, reset: bool, min_rows: int = 1) -> Array:
        """Return points: items, dense or sparse rows (as in the fit), or a kernel matrix."""
        allow_nan = self._allow_nan
        points = check_points(self, X, reset=reset, min_rows=min_rows, allow_nan=allow_nan)
        if reset:
            matrix, center = is_precomputed(self.kernel), getattr(self, "center", False)
            return check_kernel_matrix(points, center=center) if matrix else points
        fitted = self._fitted.points
        if backend.is_sparse(fitted) == backend.is_sparse(points) or points.ndim == 1:
            return points
        return type(fitted)(points) if backend.is_sparse(fitted) else points.toarray()

    def _fit_items(self, fit: Callable[[InMemoryTable, Any], Model], X: Rows) -> Self:
        """Fit a model of three items or more to all of them at once."""
        request = self._request()
        with showing(self.verbose):
            self._choose_device(X, None)
            table = self._placed_table(self._checked(X, reset=True, min_rows=3), None)
            return self._keep(fit(table, request))


class PreImageEstimator(KernelEstimator):
    """Base of the kernel models whose `subspace` expands over points: the way back to inputs.

    Also what else they share: solvers, and rows with missing values. Subclasses define
    `input_model_`.
    """

    _allow_nan = True
    _shares_products = True

    eigenvalues_ = attribute("eigenvalues")
    explained_variance_ = attribute("variances")
    explained_variance_ratio_ = attribute("ratios")
    n_components_ = attribute("n_components")
    approximation_error_ = attribute("error")
    solver_ = attribute("solver")

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        solver = KERNEL_SOLVERS.get(self.eigen_solver)
        tags.input_tags.allow_nan &= solver is None or not solver.approximate
        return tags

    def _asked_for(self, request: type[T], **given: Any) -> T:
        """Check the parameters of solvers, and return the request."""
        method_of(self.preimage)
        check_choice("eigen_solver", self.eigen_solver, ("auto", *KERNEL_SOLVERS))
        check_choice("landmarks", self.landmarks, LANDMARKS)
        check_number("tol", self.tol, 0)
        check_number("memory_limit", self.memory_limit, 0)
        check_number("n_landmarks", self.n_landmarks, 1, integer=True)
        check_flag("center", self.center)
        if self.dtype not in (None, "float64", "float32"):
            raise ValueError(expected("dtype", "None, 'float64' or 'float32'", self.dtype))
        return super()._asked_for(request, cluster=cluster_centres, **given)

    def _leaves_to_workers(self, chunks: ChunkedTable) -> bool:
        solver = KERNEL_SOLVERS.get(self.eigen_solver)
        exact = solver is None or not solver.approximate
        if not (is_on_workers(chunks) and exact):
            return False
        if not isinstance(self.device, str):
            what = "one device for a Dask array, on which each worker works"
            raise ValueError(expected("device", what, self.device))
        return True

    def _know_inputs(self, rows: Array) -> None:
        """Fit a model of the inputs when rows with missing values first come in."""
        if not is_incomplete(rows) or self._fitted.inputs is not None:
            return
        inputs = fit_inputs(self._working.points)
        self._judge_inputs(inputs)
        if "_placed" in vars(self):
            self._placed = replace(self._placed, inputs=inputs)
        self._model = replace(self._fitted, inputs=to_host(inputs))

    def _judge_inputs(self, inputs: SpikedModel | None) -> None:
        """Warn where the EM of the inputs stopped early, as their own estimator would."""
        if inputs is not None and inputs.history is not None:
            type(self).input_model_.shell()._warn_unless_converged(inputs.history)

    def _keep(self, model: Model) -> Self:
        self._judge_inputs(getattr(model, "inputs", None))
        return super()._keep(model)

    def _refuse_missing(self, rows: Array) -> None:
        """Refuse missing values in methods that have no expectations of them."""
        if is_incomplete(rows):
            refuse_nonfinite(rows)

    @on_rows(cast=False)
    def novelty(self, X: Array, diagonal: Column | None = None) -> Array:
        """Return the squared distance of features off the components (Hoffmann 2007).

        s(x) − Σy² with s(x) = ‖φ(x) − φ̄‖²: large for points unlike the training points.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
        diagonal : array of shape (m,), default=None
            k(x, x) of every row, where X holds kernel values, which do not tell it.

        Returns
        -------
        distance : array of shape (m,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.novelty([X[0], [9.0, 9.0, 9.0, 9.0]]).round(2)
        array([0.05, 1.28])
        """
        self._refuse_missing(X)
        return self._working.off_span(X, check_diagonal(diagonal, X))

    def jacobian(self, X: Rows) -> Array:
        """Return the derivatives of `transform` with respect to the entries of each row.

        Parameters
        ----------
        X : array of shape (m, d)
            Complete rows.

        Returns
        -------
        array of shape (m, q, d)
            Of a kernel known only through its values, by central differences. O(mnqd).

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import KernelPCA
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> KernelPCA(2, kernel="rbf", gamma=0.1).fit(X).jacobian(X[:5]).shape
        (5, 2, 3)
        """
        rows = self._asked(X, "jacobian")
        self._refuse_missing(rows)
        self._span()  # says why there is none
        found = self._working.subspace.jacobian(rows) * self._posterior_scale()
        return self._home(backend.cast_like(check_finite_result(found, rows), rows), X)

    def latent_covariance(self, X: Rows, noise: float | Column) -> Array:
        """Return the covariance of the latents of rows whose entries were measured with an error.

        It is J S Jᵀ, with S the covariance of the errors and J the `jacobian` at each row.

        Parameters
        ----------
        X : array of shape (m, d)
            Complete rows, as measured.
        noise : float, array of shape (d,) or array of shape (d, d)
            Standard deviation of the error of an entry, of each column, or the covariance S.

        Returns
        -------
        covariance : array of shape (m, q, q)
            To first order in the error. `transform(X)` ± 1.645 roots of the diagonal holds the
            latents of the row without its error in about 90 % of rows, where the map bends little
            within the error.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import KernelPCA
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> model = KernelPCA(2, kernel="linear").fit(X)
        >>> covariance = model.latent_covariance(X[:5], 0.1)  # of a rotation: as large as it was
        >>> covariance.shape, bool(np.allclose(covariance, 0.01 * np.eye(2)))
        ((5, 2, 2), True)
        """
        J = self.jacobian(X)
        root = _noise_root(noise, int(J.shape[2]))
        half = J @ backend.asarray(root, J)
        return half @ backend.namespace(half).matrix_transpose(half)

    def _posterior_scale(self) -> Any:
        """Return what coordinates are multiplied by to be what `transform` returns, (q, 1)."""
        return 1.0

    # --- pre-images ------------------------------------------------------------------------

    def _span(self) -> Span:
        """Return the directions as pre-image methods need them; cached from the first use."""
        found: Span | None = vars(self).get("_span_")
        if found is not None:
            return found
        subspace = self._working.subspace
        points = getattr(subspace, "points", None)
        if points is None:
            raise NotFittedError(
                "random Fourier features have no points to come back from: pre-images need "
                "eigen_solver='nystrom', 'cholesky' or an exact one."
            )
        if is_precomputed(self.kernel) or points.ndim == 1 or backend.is_sparse(points):
            raise NotFittedError(
                "pre-images need training points with real coordinates: a kernel matrix, sparse "
                "rows or other items have none. `preimage_weights` gives weights over them."
            )
        from dualpca.preimages import Span

        self._span_ = Span(points, subspace.kernel, subspace.coefficients, subspace.base)
        return self._span_

    def _method(self, name: Any = None) -> Method:
        """Return a pre-image method, prepared; cached from the first use."""
        from dualpca.preimages import Learned

        method = method_of(self.preimage if name is None else name)
        if isinstance(method, Learned):
            method = replace(method, limit=max(LEAST_LEARNED, int((self.memory_limit / 8) ** 0.5)))
        kept: dict[Method, Method] = self.__dict__.setdefault("_methods_", {})
        if method not in kept:
            kept[method] = method.prepare(self._span())
        return kept[method]

    def _inverse_method(self) -> Any:
        """Return the method of `inverse_transform`; None for the parameter `preimage`."""
        return None

    def _latent_scale(self) -> Any:
        """Return the coordinates on the unit directions that latents of 1 stand for."""
        return 1.0

    def _latent_coordinates(self, X: Rows, method: str) -> tuple[Array, Array]:
        """Return latents as checked, and the coordinates they stand for in float64."""
        Z = self._asked_latents(X, method, self._n_features_out)
        return Z, check_finite_result(backend.working(Z), Z) * self._latent_scale()

    def _kernel_rows(self, K: Rows, size: int, method: str) -> Array:
        """Return kernel values of points with those of `X_fit_`, checked, where the model works."""
        values = check_matrix(K, "K")
        if values.shape[1] != size:
            what = f"of shape (m, {size}), a column for every row of X_fit_"
            raise ValueError(expected("K", what, tuple(values.shape)))
        return self._beside_model(values, method)

    def preimages(self, X: Rows, method: Any = None, start: Rows | None = None) -> PreImage:
        """Return inputs whose features are close to the points of latent coordinates X.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents, as `transform` returns them.
        method : str or Method, default=None
            'smoother', 'plain-smoother', 'fixed-point', 'gradient', 'distance', 'learned' or
            'auto' (the best for each row); the parameter `preimage` by default.
        start : array of shape (m, d), default=None
            Where iterations start, beside their own guesses.

        Returns
        -------
        PreImage
            `points` (m, d), `distance` (m,), the distance in feature space that is left, and
            `iterations` (m,).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> found = model.preimages(model.transform(X[:3]))
        >>> found.points.shape, found.distance.shape
        ((3, 4), (3,))
        """
        Z, Y = self._latent_coordinates(X, "preimages")
        start = None if start is None else self._asked(start, "preimages")
        found = self._method(method).find(self._span(), Y, start)
        points = backend.cast_like(found.points, Z)
        return self._home(found._replace(points=points), X)  # type: ignore[no-any-return]

    def _drawn_inputs(self, Y: Array, return_distance: bool) -> Any:
        """Return the pre-images of drawn coordinates, and how far these are from them."""
        found = self._method(self._inverse_method()).find(self._span(), Y, None)
        points = backend.cast_like(found.points, self._working.eigenvalues)
        points, distance = self._home((points, found.distance), None)
        return (points, distance) if return_distance else points

    def preimage_of_kernel(
        self, K: Rows, method: Any = None, start: Rows | None = None, *, centered: bool = False
    ) -> PreImage:
        """Return inputs whose features are close to the points with given kernel values.

        Parameters
        ----------
        K : array of shape (m, n)
            ⟨φ(x_i), P⟩ for the rows x_i of `X_fit_`, of any points P of feature space.
        method : str or Method, default=None
            As in `preimages`, and `dualpca.preimages.PlainSmoother` ('plain-smoother'), the mean
            of the training points weighted by K itself (De Plaen & Suykens 2023, Eq. 19).
        start : array of shape (m, d), default=None
            Where iterations start, beside their own guesses.
        centered : bool, default=False
            K holds ⟨φ(x_i) − φ̄, P − φ̄⟩, as `DualPPCA.sample_kernel` and `reconstruct_kernel` give
            them.

        Returns
        -------
        PreImage
            As `preimages`. P, which need not lie on the components, is the point on the span of
            the training points that has these values; the closest one, if none has. To find it
            costs O(n³) once. Beyond 5000 points only 'plain-smoother', 'smoother' and 'learned'
            (which sees the projection of P) are there, and `distance` is NaN.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> values = model.kernel_(X[:3], X)
        >>> model.preimage_of_kernel(values).points.shape
        (3, 4)
        """
        check_flag("centered", centered)
        span = self._span()
        values = self._kernel_rows(K, span.size, "preimage_of_kernel")
        start = None if start is None else self._asked(start, "preimage_of_kernel")
        found = self._method(method).find_values(span, values, start, centered=centered)
        points = backend.cast_like(found.points, values)
        return self._home(found._replace(points=points), K)  # type: ignore[no-any-return]

    def inverse_transform(self, X: Rows) -> Array:
        """Return inputs whose features are close to the points of latent coordinates X.

        Parameters
        ----------
        X : array of shape (m, q)

        Returns
        -------
        array of shape (m, d)
            With the linear kernel the exact inverse, mean included. `preimages` also says how
            close they are.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.inverse_transform(model.transform(X[:3])).shape
        (3, 4)
        """
        return self.preimages(X, self._inverse_method()).points

    def reconstruct(self, X: Rows) -> Array:
        """Project rows on the components and return the pre-images of the projections.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)

        Returns
        -------
        X_rec : array of shape (m, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.reconstruct(X[:3]).shape
        (3, 4)
        """
        return self.inverse_transform(self.transform(X))

    def denoise(self, X: Rows, method: Any = None) -> Array:
        """Project rows on the components and come back, starting from the rows themselves.

        Parameters
        ----------
        X : array of shape (m, d)
        method : str or Method, default=None

        Returns
        -------
        array of shape (m, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.denoise(X[:3]).shape
        (3, 4)
        """
        self._refuse_missing(self._asked(X, "denoise"))
        return self.preimages(self.transform(X), method, start=X).points

    def preimage_weights(self, X: Rows) -> Array:
        """Return weights over the training points whose sum is the point of feature space meant.

        For kernels of items without coordinates (kernel matrices, strings), where it takes the
        place of a pre-image.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents, as `transform` returns them.

        Returns
        -------
        weights : array of shape (m, n)
            Row i holds the weights of the training points.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelPCA
        >>> X = load_iris().data
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> weights = model.preimage_weights(model.transform(X[:3]))
        >>> weights.shape, weights.sum(axis=1).round(6)
        ((3, 150), array([1., 1., 1.]))
        """
        subspace = self._working.subspace
        Y = self._latent_coordinates(X, "preimage_weights")[1]
        if not hasattr(subspace, "points"):
            raise NotFittedError("random Fourier features are no expansion over points.")
        return self._home(Y @ subspace.coefficients.T + subspace.base, X)


def _noise_root(noise: float | Column, d: int) -> Host:
    """Return R, (d, d), with RRᵀ the covariance of errors that were given by it or by its roots."""
    S: Host = np.asarray(backend.to_numpy(noise), dtype=np.float64)
    if S.shape not in ((), (d,), (d, d)) or not np.isfinite(S).all():
        what = f"a finite number, {d} of them or a covariance of shape ({d}, {d})"
        raise ValueError(expected("noise", what, S if S.ndim == 0 else S.shape))
    if S.ndim < 2:
        if (S < 0).any():
            raise ValueError(expected("noise", "standard deviations of at least 0", S.min()))
        return np.diag(np.broadcast_to(S, (d,)))
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    if not np.allclose(S, S.T) or values[0] < -ASYMMETRY * abs(values[-1]):
        raise ValueError(expected("noise", "symmetric and positive semi-definite", values[0]))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0)))


def checked_components(wanted: object, rules: Sequence[str] = ()) -> int | float | str | None:
    """Return a number of components, a share of the variance, the name of a rule, or None."""
    if wanted is None or (isinstance(wanted, str) and wanted in rules):
        return wanted
    if not isinstance(wanted, bool) and isinstance(wanted, Integral) and int(wanted) >= 1:
        return int(wanted)
    if isinstance(wanted, Real) and 0 < float(wanted) < 1:
        return float(wanted)
    what = "None, an integer of at least 1 or a share of the variance between 0 and 1"
    what += f", or one of {list(rules)}" if rules else ""
    raise ValueError(expected("n_components", what, wanted))


def method_of(asked: Any) -> Method:
    """Return the pre-image method that is meant by a name or an object."""
    from dualpca.preimages import PREIMAGES, Method

    method = PREIMAGES[asked]() if isinstance(asked, str) and asked in PREIMAGES else asked
    if not isinstance(method, Method):
        what = f"one of {sorted(PREIMAGES)} or a pre-image method"
        raise ValueError(expected("preimage", what, asked))
    return method


def check_points(
    estimator: Estimator, X: Rows, *, reset: bool, min_rows: int = 2, allow_nan: bool = False
) -> Array:
    """Return the points as a kernel can see them; never modified, checked to be finite.

    NaN is let through where `allow_nan` says so and the kernel has an expectation.
    """
    items = _are_items(estimator.kernel, X)
    if not reset and items == ("n_features_in_" in vars(estimator)):
        what = "a list of items, as in fit" if not items else "rows of numbers, as in fit"
        raise ValueError(expected("X", what, type(X)))
    min_rows = min_rows if reset else 1
    if items:
        return _items(estimator, X, min_rows)
    if is_precomputed(estimator.kernel) and backend.is_sparse(X):
        raise ValueError(expected("X", "a dense kernel matrix", type(X), "Give X.toarray()."))
    rows = check_rows(estimator, X, reset=reset, min_rows=min_rows, accept_sparse=True)
    rows = rows.tocsr() if backend.is_sparse(rows) else rows
    if not (allow_nan and accepts_nan(estimator.kernel) and is_incomplete(rows)):
        refuse_nonfinite(rows)
    return rows


def _items(estimator: Estimator, X: Array, min_rows: int) -> Host:
    """Return items as a vector of objects; they have no features."""
    estimator.__dict__.pop("n_features_in_", None)
    estimator.__dict__.pop("feature_names_in_", None)
    if len(X) < min_rows:
        raise ValueError(expected("X", f"at least {min_rows} items", X))
    found: Host = np.empty(len(X), dtype=object)
    for i, item in enumerate(X):
        found[i] = item
    return found


def _are_items(kernel: object, X: Array) -> bool:
    """Return True if X holds strings, graphs or the like, for a function of two of them."""
    named = isinstance(kernel, Kernel) or is_gaussian_process_kernel(kernel)
    if not (isinstance(kernel, Function) if named else callable(kernel)):
        return False
    if backend.is_foreign(X) or backend.is_sparse(X):
        return False
    if hasattr(X, "shape"):  # an array, a table or a column of one
        return len(X.shape) == 1 and np.asarray(X).dtype.kind in "OUST"
    if not hasattr(X, "__getitem__") or isinstance(X, str | bytes | Mapping) or len(X) == 0:
        return False
    return not isinstance(X[0], list | tuple | np.ndarray | Real)


def check_diagonal(diagonal: Column | None, rows: Array) -> Array | None:
    """Return k(x, x) of every new item, (m,), where it is given."""
    if diagonal is None:
        return None
    values = np.asarray(backend.to_numpy(diagonal), dtype=np.float64)
    if values.shape != (rows.shape[0],) or not np.isfinite(values).all():
        what = f"{rows.shape[0]} finite numbers, k(x, x) of every row"
        raise ValueError(expected("diagonal", what, values))
    return backend.asarray(values, backend.vector_like(rows))


def check_kernel_matrix(K: Array, *, center: bool) -> Array:
    """Return a square kernel matrix that is symmetric, at least once it is centred.

    Constants of its rows are taken away until it is symmetric as it stands. Those of columns
    stay, for rows of new items have them too; centring removes both.
    """
    n, xp = int(K.shape[0]), backend.namespace(K)
    if K.shape[1] != n:
        what = "a square kernel matrix, (n, n), with kernel='precomputed'"
        raise ValueError(expected("X", what, tuple(K.shape)))
    worst = largest_asymmetry(K)
    if worst <= ASYMMETRY * float(xp.max(xp.abs(xp.linalg.diagonal(K)))):
        return K
    size = max(float(xp.max(xp.abs(K[rows, :]))) for rows in backend.row_slices(K))
    if worst <= ASYMMETRY * size:
        return K
    gap = K - K.T
    means = xp.mean(gap, axis=0)
    left = float(xp.max(xp.abs(gap - means[None, :] + means[:, None])))
    if not center or left > ASYMMETRY * size:
        i, j = np.unravel_index(int(xp.argmax(xp.abs(gap))), (n, n))
        raise ValueError(
            f"X must be a symmetric kernel matrix, got X[{i}, {j}] = {float(K[i, j]):g} and "
            f"X[{j}, {i}] = {float(K[j, i]):g}. "
            "If they should be equal, give (X + X.T) / 2."
        )
    return K + means[:, None]


def largest_asymmetry(K: Array) -> float:
    """Return the largest |K − Kᵀ|, from tiles above the diagonal, which the cache holds."""
    xp, n, worst = backend.namespace(K), int(K.shape[0]), 0.0
    tile = SYMMETRY_TILE if not backend.is_foreign(K) else backend.block_rows(n, K)
    for rows in backend.slices(n, tile):
        for columns in backend.slices(rows.stop, tile):
            gap = K[columns, rows] - K[rows, columns].T
            worst = max(worst, float(xp.max(gap)), -float(xp.min(gap)))
    return worst


def cluster_centres(X: Array, m: int, seed: int) -> Array:
    """Return the centres of m clusters of rows, as landmarks."""
    from sklearn.cluster import MiniBatchKMeans

    rows = X if backend.is_sparse(X) else backend.to_numpy(X)
    means = MiniBatchKMeans(m, random_state=seed, n_init=1, batch_size=max(1024, m)).fit(rows)
    centres = means.cluster_centers_
    return type(X)(centres) if backend.is_sparse(X) else backend.asarray(centres, X)
