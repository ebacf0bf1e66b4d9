"""Probabilistic kernel PCA: coordinates by maximum likelihood, from kernels or distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from dualpca.arrays import Array, backend
from dualpca.errors import HeywoodWarning, expected, warn
from dualpca.estimators._base import (
    Saved,
    check_choice,
    check_finite_result,
    check_flag,
    check_number,
    generator,
    publish_record,
)
from dualpca.estimators._feature_fits import (
    HEYWOOD,
    FeatureFit,
    check_count,
    check_variance,
    definite_part,
    fit_closed,
    fit_diagonal,
    fit_em,
    source_of,
    warn_of_negative,
)
from dualpca.estimators._feature_inputs import (
    check_metric,
    check_rho,
    check_training,
    kernel_rows,
    kernel_values,
    new_items,
)
from dualpca.estimators._feature_model import FeatureModel
from dualpca.estimators._kernel_inputs import is_precomputed
from dualpca.estimators._placing import OnDevice
from dualpca.gaussian import check_noise
from dualpca.models.probabilistic_kernel import FeatureScatter, per_dimension


class ProbabilisticKernelPCA(
    OnDevice, Saved, FeatureModel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Probabilistic kernel PCA, or probabilistic principal coordinates (Zhang et al. 2004).

    The ρ dimensions of feature space are the observations: each is a vector over the n points,
    g = Bw + u1 + ε with w ~ N(0, n/ρ I_q) and ε ~ N(0, n/ρ σ²I_n). Row i of B is the coordinate of
    point i. Everything follows from the centred kernel; ρ cancels and need not be known.

    Parameters
    ----------
    n_components : int, float or None
        A count, up to n − 2; a share of the variance between 0 and 1; None for the number of
        variances above `noise_variance`.
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable
        As in `KernelPCA`; 'precomputed' where X is a kernel matrix.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel, as in `KernelPCA`.
    metric : str or callable, optional
        Work with distances in place of a kernel: 'precomputed' where X holds them, or a name or
        function that `scipy.spatial.distance.cdist` takes. Leave `kernel` as it is then.
    correction : {None, 'lingoes', 'cailliez'}
        What to do with distances that are not Euclidean. None warns, and leaves their negative
        eigenvalues out; the others add the least constant that leaves none.
    noise : {'isotropic', 'diagonal'}
        One noise for all points, or one for each: kernel factor analysis.
    noise_variance : float, optional
        σ². None for maximum likelihood.
    method : {'ml', 'em'}
        Closed form from the eigenpairs, or EM (S3, Eqs. 18 and 19), which needs products with the
        kernel only: the same model. With diagonal noise, quasi-Newton or EM.
    feature_dim : float, optional
        ρ, the dimension of feature space, where it is known: adds the constant that makes
        likelihoods those of the features, and sets the scale of uncertainties.
    init : {'auto', 'pca', 'random'} or array of shape (n, q)
        Start of EM: PCA scores of the inputs, random, or given coordinates; 'auto' is PCA where
        there are inputs with enough columns.
    accelerate : bool
        False for plain EM, as in the paper: many more steps.
    tol : float
        'em': estimated relative distance to the maximum at which to stop. 'diagonal': size of the
        gradient at which quasi-Newton stops.
    max_iter : int
        Largest number of steps.
    eigen_solver : {'auto', 'dense', 'krylov'}
        For the closed form.
    random_state : None, int, Generator or RandomState
        Start of EM and of block Krylov. None is a fixed seed.
    memory_limit : float
        Bytes that a stored kernel may take; beyond, it is evaluated at every pass.
    verbose : bool
        Say on standard error where and how the fit works.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

    Attributes
    ----------
    coordinates_ : array of shape (n, q)
        B, on principal axes, the largest first.
    noise_variance_ : float or array of shape (n,)
        σ², in the units of Kc/n; ψ of every point where noise is diagonal.
    eigenvalues_ : array of shape (q,)
        ℓ of Kc/n. Not set where noise is diagonal.
    explained_variance_ : array of shape (q,)
        ℓ; with diagonal noise Σ_i B_ip².
    explained_variance_ratio_ : array of shape (q,)
        Their shares of tr Kc/n.
    loglikelihood_ : float
        Per feature dimension, −½{ln|C| + tr(C⁻¹Kc)/n}; −(n/2) ln(2πn/ρ) more where ρ is given.
    loglikelihoods_ : list of float
        At every step kept.
    correction_ : Correction
        What was done to distances, with its constant.
    heywood_ : list of int
        Points whose own noise was held at 1/10,000 of their variance (diagonal noise).
    kernel_ : Kernel
    X_fit_ : array
        The training points, kernel or distances.
    n_components_, n_samples_, n_iter_ : int
    converged_ : bool

    Notes
    -----
    S3 = Zhang, Wang, Yeung & Kwok (2004); MATH 9. Likelihoods under different kernels do not
    compare: they are densities in different spaces. Points are the dimensions of this model, not
    its observations, so it has no density for a new point: what it says of one is `posterior`,
    and how badly the coordinates explain it is `point_noise`. After EM that stopped early,
    `transform` gives training points the coordinates of the next step. With diagonal noise the
    means u stay those of the isotropic model.

    Cost: the solver's for q eigenpairs, or O(n²(d + q)) a step of EM; O(n(d + q)) a new point. One
    n×n array at most, none beyond `memory_limit` where the kernel is a function of points; the
    centred kernel and the features are never formed. Kernels and distances that are given, or may
    be indefinite, take O(n³) and an n×n array.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import ProbabilisticKernelPCA
    >>> X = load_iris().data
    >>> model = ProbabilisticKernelPCA(n_components=2, kernel="rbf", gamma=0.5).fit(X)
    >>> round(model.noise_variance_, 5), round(model.loglikelihood_, 1)
    (0.00202, 385.9)
    >>> mean, covariance = model.posterior(X[:3])
    >>> mean.shape, covariance.shape
    ((3, 2), (3, 2, 2))
    """

    def __init__(
        self,
        n_components: int | float | None = 2,
        *,
        kernel: Any = "rbf",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        metric: Any = None,
        correction: str | None = None,
        noise: str = "isotropic",
        noise_variance: float | None = None,
        method: str = "ml",
        feature_dim: float | None = None,
        init: Any = "auto",
        accelerate: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        eigen_solver: str = "auto",
        random_state: Any = None,
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
        self.metric = metric
        self.correction = correction
        self.noise = noise
        self.noise_variance = noise_variance
        self.method = method
        self.feature_dim = feature_dim
        self.init = init
        self.accelerate = accelerate
        self.tol = tol
        self.max_iter = max_iter
        self.eigen_solver = eigen_solver
        self.random_state = random_state
        self.memory_limit = memory_limit
        self.verbose = verbose
        self.device = device

    # --- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> ProbabilisticKernelPCA:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), list of items, kernel or distances (n, n)
            Three items or more. Never modified.
        y : ignored

        Returns
        -------
        self
        """
        self._check_parameters()
        points = check_training(self, X)
        check_count(self, int(points.shape[0]))
        self.correction_, values, kernel = kernel_values(self, points)
        source = source_of(self, values, kernel)
        check_variance(source)
        operator, share = definite_part(self, source, backend.vector_like(points))
        warn_of_negative(self, share)
        if self.noise == "diagonal":
            found = fit_diagonal(self, operator, points)
        else:
            found = (fit_em if self.method == "em" else fit_closed)(self, operator, points)
        self._publish(found, source, operator.trace / operator.n, points)
        return self

    def _check_parameters(self) -> None:
        check_metric(self)
        check_choice("noise", self.noise, ("isotropic", "diagonal"))
        check_choice("method", self.method, ("ml", "em"))
        check_choice("eigen_solver", self.eigen_solver, ("auto", "dense", "krylov"))
        check_flag("accelerate", self.accelerate)
        check_number("tol", self.tol, 0)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("memory_limit", self.memory_limit, 0)
        if isinstance(self.init, str):
            check_choice("init", self.init, ("auto", "pca", "random"))
        if self.feature_dim is not None:
            check_rho(self.feature_dim)
        if self.noise_variance is not None:
            check_noise(self.noise_variance)
            if self.noise == "diagonal":
                what = "None with noise='diagonal', which finds one for every point"
                raise ValueError(expected("noise_variance", what, self.noise_variance))

    def _publish(
        self, found: FeatureFit, source: FeatureScatter, total: float, points: Array
    ) -> None:
        """Set the fitted attributes; `total` is tr Kc/n."""
        like, n, order = backend.vector_like(points), source.n, source.shape[0]
        self.coordinates_ = backend.cast_like(found.B, like)
        self.explained_variance_ = backend.cast_like(found.variances, like)
        self.explained_variance_ratio_ = backend.cast_like(found.variances / total, like)
        self.n_components_, self.n_samples_ = int(found.B.shape[1]), order
        self.kernel_, self.X_fit_ = source.gram.kernel, points
        self._placement, self._psi = found.placement, found.psi
        self._subspace = found.placement.subspace(source)
        for name in ("eigenvalues_", "heywood_"):
            self.__dict__.pop(name, None)
        if self.noise == "diagonal":
            self.noise_variance_ = backend.cast_like(found.psi, like)
            self._warn_of_heywood(found)
        else:
            self.noise_variance_ = float(found.psi[0])
            self.eigenvalues_ = self.explained_variance_
        rho, record = self.feature_dim, found.record
        record.loglikelihoods = [per_dimension(v, n, order, rho) for v in record.loglikelihoods]
        publish_record(self, record)

    def _warn_of_heywood(self, found: FeatureFit) -> None:
        xp = backend.namespace(found.B)
        variance = xp.sum(found.B * found.B, axis=1) + found.psi
        held = backend.to_numpy(found.psi <= 2 * HEYWOOD * variance)
        self.heywood_ = [int(i) for i in np.flatnonzero(held)]
        if self.heywood_:
            warn(
                f"Heywood case: the coordinates explain {len(self.heywood_)} points wholly, such "
                f"as {self.heywood_[:10]}; their noise is held at 1/10,000 of their variance. Use "
                "fewer components, or noise='isotropic'.",
                HeywoodWarning,
            )

    @property
    def _seed(self) -> Any:
        return 0 if self.random_state is None else generator(self.random_state)

    @property
    def _pairwise(self) -> bool:
        if self.metric is not None:
            return isinstance(self.metric, str) and self.metric == "precomputed"
        return is_precomputed(self.kernel)

    # --- the fitted model ------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Place points: b(x) = (Λ − σ²)^{1/2}(nΛ)⁻¹Uᵀkc(x), which returns row i of B at x_i.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values or distances (m, n) against the
            training items

        Returns
        -------
        array of shape (m, q)
        """
        rows = new_items(self, X, "transform")
        b = self._subspace.coordinates(kernel_rows(self, rows))
        return backend.cast_like(check_finite_result(b, rows), backend.vector_like(rows))

    @property
    def _n_features_out(self) -> int:
        return int(self.coordinates_.shape[1])

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes and gives."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.metric is None and not self._pairwise
        tags.input_tags.positive_only = self.metric is not None and self._pairwise
        tags.input_tags.pairwise = self._pairwise
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        return tags
