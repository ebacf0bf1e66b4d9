"""Kernel principal component analysis, a drop-in for scikit-learn's, at any size."""

from __future__ import annotations

from typing import Any

from dualpca.arrays import Array, backend, showing
from dualpca.data import ChunkedTable, refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._base import (
    check_choice,
    check_flag,
    check_number,
    check_weights,
    generator,
    open_parts,
    parts_of,
    refuse_weights,
    tell_route,
    used_rows,
)
from dualpca.estimators._kernel_fits import fit_auto, fit_exact, fit_incomplete
from dualpca.estimators._kernel_inputs import (
    check_kernel_matrix,
    check_points,
    is_precomputed,
    kernel_of,
    takes_sparse,
)
from dualpca.estimators._kernel_projection import KernelProjection
from dualpca.estimators._kernel_results import KernelFit, check_request
from dualpca.estimators._kernel_stream import PATIENCE, KernelStream
from dualpca.estimators._mapped_fits import SAMPLE_ROWS, fit_mapped, fit_mapped_parts
from dualpca.estimators._preimages import PreImages, method_of
from dualpca.estimators._uncertain import is_incomplete, takes_nan
from dualpca.preimages import Learned, LearnedMap

SOLVERS = {
    "auto": "auto",
    "dense": "dense",
    "krylov": "krylov",
    "arpack": "krylov",
    "randomized": "krylov",
    "nystrom": "nystrom",
    "cholesky": "cholesky",
    "fourier": "fourier",
}
MAPPED = ("nystrom", "cholesky", "fourier")


class KernelPCA(KernelStream, PreImages, KernelProjection):
    """Principal components in the feature space of a kernel.

    A drop-in for `sklearn.decomposition.KernelPCA` that takes any number of rows, keeps the mean
    when it comes back, and says how exact it is.

    Parameters
    ----------
    n_components : int, float or None
        A count; a share of the variance between 0 and 1; None for all non-zero ones.
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable
        A name ('linear', 'poly', 'rbf', 'laplacian', 'matern', 'cosine', 'chi2', …), 'precomputed'
        where X is a kernel matrix, an object of `dualpca.kernels`, or a function of two items.
    gamma, degree, coef0
        Parameters of named kernels. gamma None is 1/d; 'scale' and 'median' are found from X.
    kernel_params : dict, optional
        Other parameters of a named kernel, or keyword arguments of a function.
    alpha : float
        Ridge of the inverse that `fit_inverse_transform` learns.
    fit_inverse_transform : bool
        Learn `inverse_transform` by ridge regression on the latents (Bakir et al. 2004), as
        scikit-learn does. Otherwise it is found by the method `preimage`.
    eigen_solver : str
        'auto' takes the cheapest exact one; with a `tol` of 1e-2 or more and a kernel too large
        to store, 'cholesky' where that reaches it. 'dense': eigendecomposition, n×n. 'krylov' (or
        'arpack', 'randomized'): block Krylov on the kernel, stored if it fits, evaluated at every
        pass if not. 'nystrom': landmarks. 'cholesky': landmarks by pivoted Cholesky until `tol`
        of the trace is left. 'fourier': random Fourier features.
    tol : float
        Relative error of the eigenvalues that block Krylov may leave; 0 for machine precision.
    max_iter : int, optional
        Most passes of block Krylov.
    iterated_power, copy_X, n_jobs
        Accepted for compatibility. X is never modified; threads are those that BLAS may use.
    remove_zero_eig : bool
        Drop components without variance.
    random_state : None, int, Generator or RandomState
        Start of block Krylov and draw of landmarks. None is a fixed seed.
    center : bool
        Centre in feature space. False keeps the kernel as it is (S0, 'Uncentered Features').
    preimage : str or Method
        How to come back: 'auto', 'smoother', 'fixed-point', 'gradient', 'distance', 'learned'.
    n_landmarks : int
        Landmarks of 'nystrom' and 'cholesky', features of 'fourier', budget of `partial_fit`.
    landmarks : {'kmeans', 'leverage', 'uniform'}
        How 'nystrom' chooses them: centres of clusters, the closest in most cases; points drawn
        by leverage, which sees rare kinds; points drawn evenly, the cheapest.
    dtype : {'float64', 'float32'}, optional
        Precision of kernel values in `fit`; eigenvalues come from float64 products either way.
        None is float32 where `tol` is 1e-6 or more.
    memory_limit : float
        Bytes that a stored kernel may take.
    verbose : bool
        Say on standard error where and how the fit works.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

    Attributes
    ----------
    eigenvalues_ : array of shape (q,)
        λ of the centred kernel, largest first.
    eigenvectors_ : array of shape (n, q)
        Unit eigenvectors, from exact solvers.
    explained_variance_ : array of shape (q,)
        λ/n.
    explained_variance_ratio_ : array of shape (q,)
        λ/tr Kc, exact from q eigenpairs.
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
    Schölkopf, Smola & Müller (1998); MATH 7.1. 'dense' costs O(n³), block Krylov O(n²(d + q)) a
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

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        kernel: Any = "linear",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        alpha: float = 1.0,
        fit_inverse_transform: bool = False,
        eigen_solver: str = "auto",
        tol: float = 0.0,
        max_iter: int | None = None,
        iterated_power: int | str = "auto",
        remove_zero_eig: bool = False,
        random_state: Any = None,
        copy_X: bool = True,
        n_jobs: int | None = None,
        center: bool = True,
        preimage: Any = "auto",
        n_landmarks: int = 500,
        landmarks: str = "kmeans",
        dtype: str | None = None,
        memory_limit: float = 4 * 2**30,
        verbose: bool = False,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.iterated_power = iterated_power
        self.remove_zero_eig = remove_zero_eig
        self.random_state = random_state
        self.copy_X = copy_X
        self.n_jobs = n_jobs
        self.center = center
        self.preimage = preimage
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.verbose = verbose
        self.device = device

    # --- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KernelPCA:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), list of items, or kernel matrix (n, n)
            Two rows or more. Never modified. NaN is taken with RBF, linear and polynomial kernels
            (their sums and multiples): a PPCA of the inputs says what may have been there, and
            inner products are expectations under it.
        y : ignored
        sample_weight : array of shape (n,), optional
            Non-negative. A weight of 2 counts as the row twice, 0 as no row.

        Returns
        -------
        self
        """
        self._check_parameters()
        parts = parts_of(X)
        if parts is not None:
            return self._fit_parts(parts, sample_weight)
        points = check_points(self, X, reset=True, allow_nan=True)
        w = check_weights(sample_weight, backend.vector_like(points))
        self._forget()
        if is_incomplete(points):
            self._publish(*fit_incomplete(self, points, w), points)
            self.n_samples_ = used_rows(points, w)
            return self
        kernel = kernel_of(self, points)
        if is_precomputed(kernel):
            points = check_kernel_matrix(points, center=self.center)
        elif self.copy_X:
            points = backend.copied(points)
        self._publish(self._fit_points(points, kernel, w), kernel, points)
        self.n_samples_ = used_rows(points, w)
        return self

    def _fit_parts(self, parts: ChunkedTable, sample_weight: Any) -> KernelPCA:
        """Fit a table in parts through landmarks or random features, whose moments add."""
        if self._solver_name not in ("nystrom", "cholesky", "fourier") or is_precomputed(
            self.kernel
        ):
            what = "'nystrom', 'cholesky' or 'fourier' with a kernel of rows, for data in parts"
            raise ValueError(expected("eigen_solver", what, self.eigen_solver))
        refuse_weights(sample_weight)
        open_parts(self, parts)
        self._forget()
        with showing(self.verbose):
            sizes = f"{self.n_landmarks} landmarks or features"
            tell_route(parts, f"moments of a map by {self._solver_name!r}, {sizes}, two passes")
        sample = parts.sample(max(SAMPLE_ROWS, PATIENCE * self.n_landmarks), seed=0)
        refuse_nonfinite(sample)
        kernel = kernel_of(self, sample)
        self._publish(fit_mapped_parts(self, parts, sample, kernel), kernel, parts.like)
        return self

    def _fit_points(self, points: Array, kernel: Any, weights: Array | None) -> KernelFit:
        if self._solver_name == "auto":
            return fit_auto(self, points, kernel, weights)
        if self._solver_name not in MAPPED:
            return fit_exact(self, points, kernel, weights)
        if is_precomputed(kernel):
            what = "an exact solver ('auto', 'dense', 'krylov') with a kernel matrix"
            raise ValueError(expected("eigen_solver", what, self.eigen_solver))
        return fit_mapped(self, points, kernel, weights)

    def _check_parameters(self) -> None:
        check_request(self.n_components)
        method_of(self.preimage)
        check_choice("eigen_solver", self.eigen_solver, tuple(SOLVERS))
        check_choice("landmarks", self.landmarks, ("leverage", "kmeans", "uniform"))
        check_number("tol", self.tol, 0)
        check_number("alpha", self.alpha, 0)
        check_number("memory_limit", self.memory_limit, 0)
        check_number("n_landmarks", self.n_landmarks, 1, integer=True)
        for flag in ("fit_inverse_transform", "remove_zero_eig", "copy_X", "center"):
            check_flag(flag, getattr(self, flag))
        if self.max_iter is not None:
            check_number("max_iter", self.max_iter, 1, integer=True)
        if self.dtype not in (None, "float64", "float32"):
            raise ValueError(expected("dtype", "None, 'float64' or 'float32'", self.dtype))
        if self.fit_inverse_transform and is_precomputed(self.kernel):
            raise ValueError(
                "Cannot fit_inverse_transform with a precomputed kernel: there are no inputs to "
                "come back to. preimage_weights gives weights over the training items."
            )

    @property
    def _solver_name(self) -> str:
        return SOLVERS[self.eigen_solver]

    @property
    def _seed(self) -> Any:
        return 0 if self.random_state is None else generator(self.random_state)

    def _publish(self, found: KernelFit, kernel: Any, points: Array) -> None:
        spectrum, like = found.spectrum, backend.vector_like(points)
        xp = backend.namespace(spectrum.values)
        zero = 0 * spectrum.values
        ratio = spectrum.values / spectrum.trace if spectrum.trace > 0 else zero
        self.kernel_ = kernel
        self.gamma_ = getattr(kernel, "gamma", None)
        self.eigenvalues_ = backend.cast_like(xp.asarray(spectrum.values, copy=True), like)
        self.explained_variance_ = backend.cast_like(spectrum.values / found.n, like)
        self.explained_variance_ratio_ = backend.cast_like(ratio, like)
        self.n_components_ = spectrum.rank
        self.n_samples_ = round(found.n)
        self.approximation_error_ = found.error
        self.solver_ = found.solver
        self._subspace = found.subspace
        self._residual, self._novelty = found.training_residual, found.novelty
        if found.training_residual is not None:
            self.eigenvectors_ = backend.cast_like(spectrum.vectors, like)
        self.X_fit_ = getattr(found.subspace, "points", points)
        if self.fit_inverse_transform:
            self._fit_inverse()

    def _fit_inverse(self) -> None:
        """Learn the way back at once, as scikit-learn does."""
        learned = self._method(self._inverse_method())
        if isinstance(learned, LearnedMap):  # the linear kernel has an exact inverse instead
            self.X_transformed_fit_, self.dual_coef_ = learned.centres, learned.A

    def _inverse_method(self) -> Any:
        if not self.fit_inverse_transform:
            return None
        return Learned(alpha=max(float(self.alpha), 1e-12), kernel=self.kernel_)

    @property
    def _n_features_out(self) -> int:
        return int(self.eigenvalues_.shape[0])

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes and gives."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.kernel)
        exact = SOLVERS.get(self.eigen_solver) not in MAPPED
        tags.input_tags.allow_nan = exact and takes_nan(self.kernel)
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        return tags
