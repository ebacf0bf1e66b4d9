"""Dual probabilistic principal component analysis: PPCA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import (
    check_choice,
    check_flag,
    check_number,
    check_weights,
    generator,
    publish_record,
)
from dualpca.estimators._components import is_count, is_share
from dualpca.estimators._conversions import to_primal
from dualpca.estimators._dual_fits import DualFit, fit_incomplete, fit_mapped, fit_points
from dualpca.estimators._dual_model import DualModel
from dualpca.estimators._kernel_inputs import (
    check_kernel_matrix,
    check_points,
    is_precomputed,
    kernel_of,
)
from dualpca.estimators._placing import OnDevice
from dualpca.estimators._uncertain import is_incomplete, takes_nan
from dualpca.estimators.kernel import MAPPED, SOLVERS
from dualpca.gaussian import check_noise, selection


class DualPPCA(
    OnDevice, DualModel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Probabilistic PCA in the feature space of a kernel: φ = Wh + φ̄ + ε, in dual form.

    h ~ N(0, I_q) and ε ~ N(0, σ²I_r), with W = Φcᵀ A known through A = E (I/n − σ²Λ⁻¹)^{1/2}.
    With σ² → 0 it is `KernelPCA`, with the linear kernel and `noise_dim=d` it is `PPCA`.

    Parameters
    ----------
    n_components : int, float, str or None
        q: a count; a share of the variance between 0 and 1; the name of a rule: 'evidence', 'bic',
        'parallel' or 'gavish-donoho'; 'ard' for kernel Bayesian PCA, which starts from every
        direction and switches off those that are not relevant beside the noise. None is the
        number of variances above `noise_variance` where that is given, otherwise 'evidence'.
        A smooth kernel in few dimensions has no floor of noise: its spectrum falls to 0, 'ard'
        then keeps most of it, and `noise_variance` says better what matters.
    kernel, gamma, degree, coef0, kernel_params
        As in `KernelPCA`.
    noise_variance : float, optional
        σ². None for maximum likelihood, σ² = (tr − Σ_{p≤q} λ_p)/(n (r − q)).
    center : bool
        Centre in feature space. False takes φ̄ = 0 (S0, 'Uncentered Features').
    noise_dim : int, optional
        r, the dimension of the noise. None is n, as published (with whole weights their sum), or
        the dimension of the feature map with 'nystrom', 'cholesky' and 'fourier'. n − 1 is the
        dimension of the centred span; d makes the linear kernel PPCA.
    method : {'closed', 'em'}
        From the spectrum, or by EM, accelerated and monotone: the same model.
    eigen_solver : str
        As in `KernelPCA`. 'nystrom', 'cholesky' and 'fourier' fit the model in the space of a
        finite feature map, and `X_fit_` are then the landmarks ('fourier': the rows).
    tol : float
        Relative error of the eigenvalues; with 'em' the estimated distance to the maximum at
        which to stop. 0 is machine precision, and 1e-6 with 'em'.
    max_iter : int, optional
        'em': largest number of steps, 1000 unless given.
    random_state : None, int, Generator or RandomState
        Start of EM and of block Krylov, draw of landmarks. None is a fixed seed.
    preimage, n_landmarks, landmarks, dtype, memory_limit
        As in `KernelPCA`.
    verbose : bool
        Say on standard error where and how the fit works.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

    Attributes
    ----------
    eigenvalues_ : array of shape (q,)
        λ of the centred kernel, largest first.
    explained_variance_, explained_variance_ratio_ : array of shape (q,)
        ℓ = λ/n (with 'ard' a little less: the prior shrinks them), and λ/tr Kc.
    noise_variance_ : float
    noise_dim_ : int
        r.
    coefficients_ : array of shape (n, q)
        A over the rows of `X_fit_`: W = Σ_i A_i φ(x_i). Not with 'fourier'.
    relevance_ : array
        'ard': 1/α of every direction it started from; 0 for those switched off.
    loglikelihood_ : float
        Of all points; infinite where q components explain everything.
    loglikelihoods_ : list of float
    n_components_, n_iter_, n_samples_, n_features_in_ : int
    converged_ : bool
    approximation_error_ : Approximation
        As in `KernelPCA`; exact solvers have `trace` 0.
    kernel_ : Kernel
    X_fit_ : array of shape (n, d)
        Points of positive weight, the kernel matrix, or the landmarks.
    solver_ : str

    Notes
    -----
    De Plaen & Suykens, "A dual formulation for probabilistic PCA" (2023), with its misprints
    corrected (MATH 8.1, 8.2, 14). Kernel values carry an index c where they are centred, always by
    the training means. Likelihoods of different r or of different kernels do not compare.

    Cost and memory are `KernelPCA`'s: one n×n array at most, none beyond `memory_limit`, and
    O(n(d + q)) a row afterwards. The spectrum beyond q is never formed, for samples of kernel
    values either: they take a few dozen products with the kernel (Lanczos).

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import DualPPCA
    >>> t = np.linspace(-7, 7, 20)
    >>> X = np.column_stack([t, np.sin(t)])
    >>> model = DualPPCA(3, kernel="rbf", gamma=1 / 8).fit(X)
    >>> round(float(model.explained_variance_ratio_.sum()), 6), round(model.noise_variance_, 6)
    (0.753663, 0.010482)
    >>> model.sample_kernel(2, random_state=0).shape
    (2, 20)
    """

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        kernel: Any = "rbf",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        noise_variance: float | None = None,
        center: bool = True,
        noise_dim: int | None = None,
        method: str = "closed",
        eigen_solver: str = "auto",
        tol: float = 0.0,
        max_iter: int | None = None,
        random_state: Any = None,
        preimage: Any = "auto",
        n_landmarks: int = 500,
        landmarks: str = "leverage",
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
        self.noise_variance = noise_variance
        self.center = center
        self.noise_dim = noise_dim
        self.method = method
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.preimage = preimage
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.verbose = verbose
        self.device = device

    # --- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DualPPCA:
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
        points = check_points(self, X, reset=True, allow_nan=True)
        weights = check_weights(sample_weight, backend.vector_like(points))
        self.__dict__.pop("input_model_", None)
        points, weights = _with_weight(points, weights, is_precomputed(self.kernel))
        if is_incomplete(points):
            self._require_exact("rows with NaN")
            self._publish(*fit_incomplete(self, backend.copied(points), weights))
            return self
        kernel = kernel_of(self, points)
        if is_precomputed(kernel):
            self._require_exact("a kernel matrix")
            points = check_kernel_matrix(points, center=self.center)
        fit = fit_mapped if self._solver_name in MAPPED else fit_points
        self._publish(fit(self, backend.copied(points), kernel, weights), kernel)
        return self

    def _require_exact(self, given: str) -> None:
        if self._solver_name in MAPPED:
            what = f"an exact solver ('auto', 'dense', 'krylov') with {given}"
            raise ValueError(expected("eigen_solver", what, self.eigen_solver))

    def _check_parameters(self) -> None:
        self._check_request()
        check_choice("method", self.method, ("closed", "em"))
        check_choice("eigen_solver", self.eigen_solver, tuple(SOLVERS))
        check_choice("landmarks", self.landmarks, ("leverage", "kmeans", "uniform"))
        check_number("tol", self.tol, 0)
        check_number("memory_limit", self.memory_limit, 0)
        check_number("n_landmarks", self.n_landmarks, 1, integer=True)
        check_flag("center", self.center)
        if self.noise_variance is not None:
            check_noise(self.noise_variance)
        for name in ("max_iter", "noise_dim"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, integer=True)
        if self.dtype not in (None, "float64", "float32"):
            raise ValueError(expected("dtype", "None, 'float64' or 'float32'", self.dtype))

    def _check_request(self) -> None:
        q, names = self.n_components, ["ard", *sorted(selection.RULES)]
        named = isinstance(q, str) and q in names
        if not (q is None or named or is_share(q) or (is_count(q) and q >= 1)):  # type: ignore[operator]
            what = f"None, an integer of at least 1, a share between 0 and 1, or one of {names}"
            raise ValueError(expected("n_components", what, q))
        if q == "ard" and self.method == "em":
            raise ValueError(expected("method", "'closed' with n_components='ard'", self.method))

    @property
    def _solver_name(self) -> str:
        return SOLVERS[self.eigen_solver]

    @property
    def _seed(self) -> Any:
        return 0 if self.random_state is None else generator(self.random_state)

    def _publish(self, found: DualFit, kernel: Any) -> None:
        self._forget_preimages()
        spectrum, gaussian, like = found.spectrum, found.gaussian, backend.vector_like(found.points)
        self.kernel_ = kernel
        self.eigenvalues_ = backend.cast_like(1 * spectrum.values, like)
        self.explained_variance_ = backend.cast_like(gaussian.values, like)
        self.explained_variance_ratio_ = backend.cast_like(spectrum.values / spectrum.trace, like)
        self.noise_variance_, self.noise_dim_ = gaussian.noise, gaussian.dim
        self.n_components_, self.n_samples_ = gaussian.rank, round(found.n)
        self.approximation_error_, self.solver_ = found.error, found.solver
        self.X_fit_ = found.points
        self._gaussian, self._space = gaussian, found.space
        self._projector = found.projector
        self._subspace = found.expansion or found.projector
        self._n = found.n
        for name in ("coefficients_", "relevance_"):
            self.__dict__.pop(name, None)
        if found.relevance is not None:
            self.relevance_ = backend.cast_like(found.relevance, like)
        if found.expansion is not None:
            self.coefficients_ = backend.cast_like(
                found.expansion.coefficients * gaussian.spread, like
            )
        publish_record(self, found.record)

    # --- conversions -----------------------------------------------------------------------

    def to_primal(self) -> Any:
        """Return the same model in explicit features, where the kernel has finitely many.

        Returns
        -------
        PPCA or Pipeline
            With the linear kernel a fitted `PPCA`; with polynomial kernels (and sums and multiples
            of these), 'nystrom', 'cholesky' and 'fourier' a pipeline of the feature map and a
            fitted `PPCA`. Latents, posterior and σ² are the same; so is the likelihood, where
            `noise_dim_` is the number of features.
        """
        check_is_fitted(self)
        return to_primal(self)

    @property
    def _n_features_out(self) -> int:
        return int(self.eigenvalues_.shape[0])

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes and gives."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = takes_nan(self.kernel)
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        return tags


def _with_weight(
    points: Array, weights: Array | None, precomputed: bool
) -> tuple[Array, Array | None]:
    """Return the points that count, with their weights."""
    if weights is None:
        return points, None
    used = np.flatnonzero(backend.to_numpy(weights) > 0)
    if used.size == int(weights.shape[0]):
        return points, weights
    if precomputed:
        what = "positive with a kernel matrix, whose columns are the training points"
        raise ValueError(expected("sample_weight", what, 0.0, "Leave out rows and columns."))
    if used.size < 2:
        raise ValueError(expected("sample_weight", "positive for two rows or more", used.size))
    return backend.take(points, used), backend.take(weights, used)
