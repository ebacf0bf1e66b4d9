"""Twin kernel PCA: latent coordinates whose kernel explains the kernel of the points."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import Saved, check_choice, check_number, generator, publish_record
from dualpca.estimators._components import is_count
from dualpca.estimators._feature_fits import (
    check_start,
    check_variance,
    definite_part,
    source_of,
    warn_of_negative,
)
from dualpca.estimators._feature_inputs import check_rho, check_training, kernel_values, new_items
from dualpca.estimators._kernel_inputs import is_precomputed
from dualpca.estimators._placing import OnDevice
from dualpca.gaussian import LOG_2PI
from dualpca.kernels import RBF, Kernel, Precomputed, make_kernel
from dualpca.models.probabilistic_kernel import FeatureScatter
from dualpca.models.twin import Twin, TwinPlacement, fit_twin, start_coordinates
from dualpca.solvers import solve


class TwinKernelPCA(
    OnDevice, Saved, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Twin kernel PCA, which is the Gaussian process latent variable model seen from its kernel.

    The centred kernel of the points is a Wishart matrix, Kc ~ W_n(ρ, Σ/ρ), whose Σ is a kernel
    too: Σ = a k(z_i, z_j) + σ²δ_ij over latent coordinates. They are found by maximum likelihood,
    −½{ln|Σ| + tr(Σ⁻¹Kc)} per feature dimension. With the linear kernel and `feature_dim` = d this
    is Lawrence's GPLVM of the centred data, number for number; with a linear latent kernel it is
    `ProbabilisticKernelPCA`. It is a model of its own here because its likelihood has many maxima
    and no closed form: the start matters, and n beyond a few thousand is out of reach.

    Parameters
    ----------
    n_components : int
        q, the number of latent coordinates.
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable
        Of the points; 'precomputed' where X is a kernel matrix.
    gamma, degree, coef0, kernel_params
        Its parameters, as in `KernelPCA`.
    latent_kernel : str, Kernel or callable, optional
        Of the latent coordinates; an RBF of length scale 1 unless given. Its parameters stay as
        they are: the coordinates take its scale, and its gain a is found.
    latent_params : dict, optional
        Parameters of a named latent kernel.
    feature_dim : float, optional
        ρ, where it is known: S = Kc/ρ in place of Kc, so that Σ is the covariance of a feature
        dimension, and constants are counted. The coordinates are the same.
    init : 'spectral', 'random' or array of shape (n, q)
        Start: leading eigenvectors of Kc, random numbers, or given coordinates.
    tol : float
        Largest component of the gradient, divided by n, at which to stop.
    max_iter : int
        Largest number of L-BFGS steps.
    random_state : None, int, Generator or RandomState
        For a random start. None is a fixed seed.
    verbose : bool
        Say on standard error where and how the fit works.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

    Attributes
    ----------
    coordinates_ : array of shape (n, q)
        Z.
    noise_variance_ : float
        σ², at least 1e-6 of the average variance.
    gain_ : float
        a.
    loglikelihood_ : float
        Per feature dimension; −(n/2) ln 2π included where ρ is given, so that ρ times it is the
        log-likelihood of the GPLVM.
    loglikelihoods_ : list of float
        At every step; they never fall.
    kernel_, latent_kernel_ : Kernel
    n_samples_, n_iter_ : int
    converged_ : bool

    Notes
    -----
    Lawrence (2004, 2005); S3, section 5.2, Eq. 22. O(n³) a step, O(n²) memory: a few n×n arrays;
    features of the kernel are never formed. `transform` places
    a point anew by its features given the training points', so a training point comes near its
    coordinate, not on it; `coordinates_` are the fitted ones.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import TwinKernelPCA
    >>> X = load_iris().data[::3]
    >>> model = TwinKernelPCA(2, kernel="linear", feature_dim=4).fit(X)
    >>> model.coordinates_.shape, model.converged_
    ((50, 2), True)
    """

    metric = correction = None  # distances are for ProbabilisticKernelPCA
    memory_limit = np.inf

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: Any = "linear",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        latent_kernel: Any = None,
        latent_params: dict[str, Any] | None = None,
        feature_dim: float | None = None,
        init: Any = "spectral",
        tol: float = 1e-5,
        max_iter: int = 2000,
        random_state: Any = None,
        verbose: bool = False,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.latent_kernel = latent_kernel
        self.latent_params = latent_params
        self.feature_dim = feature_dim
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any = None) -> TwinKernelPCA:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), list of items, or kernel matrix (n, n)
            Three items or more. Never modified.
        y : ignored

        Returns
        -------
        self
        """
        self._check_parameters()
        points = check_training(self, X)
        _, values, kernel = kernel_values(self, points)
        source = source_of(self, values, kernel)
        check_variance(source)
        operator, share = definite_part(self, source, backend.vector_like(points))
        warn_of_negative(self, share)
        rho = 1.0 if self.feature_dim is None else float(self.feature_dim)
        Z = self._start(operator)
        self.latent_kernel_ = self._latent_kernel().resolve(Z)
        S = operator.dense() / rho
        found, record = fit_twin(S, self.latent_kernel_, Z, self.tol, self.max_iter)
        self._publish(found, S, source, points)
        constant = 0.0 if self.feature_dim is None else -0.5 * operator.n * LOG_2PI
        record.loglikelihoods = [value + constant for value in record.loglikelihoods]
        publish_record(self, record)
        return self

    def _check_parameters(self) -> None:
        check_number("tol", self.tol, 0)
        check_number("max_iter", self.max_iter, 1, integer=True)
        if not is_count(self.n_components) or self.n_components < 1:
            raise ValueError(expected("n_components", "an integer from 1", self.n_components))
        if isinstance(self.init, str):
            check_choice("init", self.init, ("spectral", "random"))
        if self.feature_dim is not None:
            check_rho(self.feature_dim)

    def _latent_kernel(self) -> Kernel:
        kernel = RBF(length_scale=1.0) if self.latent_kernel is None else self.latent_kernel
        found = make_kernel(kernel, **(self.latent_params or {}))
        if isinstance(found, Precomputed):
            what = "a kernel with a gradient, since coordinates move"
            raise ValueError(expected("latent_kernel", what, self.latent_kernel))
        return found

    def _start(self, operator: FeatureScatter) -> Array:
        n, q = operator.shape[0], int(self.n_components)
        if q > n - 1:
            what = f"at most {n - 1} for {n} points"
            raise ValueError(expected("n_components", what, self.n_components))
        if not isinstance(self.init, str):
            return check_start(self.init, operator, q)
        rng = generator(self._seed)
        if self.init == "random":
            return backend.normal(rng, (n, q), operator.like)
        return start_coordinates(solve(operator, q, random_state=0), rng)

    def _publish(self, found: Twin, S: Array, source: FeatureScatter, points: Array) -> None:
        like = backend.vector_like(points)
        self.coordinates_ = backend.cast_like(found.Z, like)
        self.noise_variance_, self.gain_ = found.noise, found.gain
        self.kernel_, self.X_fit_ = source.gram.kernel, points
        self.n_samples_ = source.shape[0]
        self._placement = TwinPlacement(found, S)
        self._means, self._grand_mean = source.means, source.grand_mean

    def transform(self, X: Any) -> Array:
        """Place points: the z that makes their features most likely given the training points'.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training items (m, n)

        Returns
        -------
        array of shape (m, q)
            One small L-BFGS a point, from the coordinate of its nearest training point; O(n²) a
            step.
        """
        rows = new_items(self, X, "transform")
        k, squares = self._centred(rows)
        xp, rho = backend.namespace(k), float(self.feature_dim or 1.0)
        place = self._placement.place
        found = [place(k[i, :] / rho, float(squares[i]) / rho) for i in range(k.shape[0])]
        return backend.cast_like(xp.stack(found, axis=0), backend.vector_like(rows))

    def _centred(self, rows: Array) -> tuple[Array, Array]:
        """Return kernel values (m, n) and squared norms (m,), centred with the training means."""
        k = backend.working(self.kernel_(backend.points(rows), backend.points(self.X_fit_)))
        means = backend.namespace(k).mean(k, axis=1)
        diagonal = backend.working(self.kernel_.diag(backend.points(rows)))
        squares = diagonal - 2 * means + self._grand_mean
        return k - self._means[None, :] - means[:, None] + self._grand_mean, squares

    @property
    def _seed(self) -> Any:
        return 0 if self.random_state is None else generator(self.random_state)

    @property
    def _pairwise(self) -> bool:
        return is_precomputed(self.kernel)

    @property
    def _n_features_out(self) -> int:
        return int(self.coordinates_.shape[1])

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes and gives."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._pairwise
        tags.input_tags.pairwise = self._pairwise
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        return tags
