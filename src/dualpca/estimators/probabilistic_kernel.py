"""Probabilistic kernel PCA: coordinates by maximum likelihood, from kernels or distances."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import (
    check_choice,
    check_flag,
    check_matrix,
    check_number,
    check_rows,
    generator,
)
from dualpca.estimators._kernel import KernelEstimator, check_diagonal, check_kernel_matrix
from dualpca.estimators._shell import on_rows, parametrized
from dualpca.estimators._types import Column, KernelLike, Rows, Seed
from dualpca.gaussian import check_noise
from dualpca.models.kernel import KernelChoice, is_precomputed
from dualpca.models.probabilistic_kernel import (
    FeatureScatter,
    Metric,
    ProbabilisticKernelModel,
    ProbabilisticKernelRequest,
    check_new_distances,
    distances,
    fit_probabilistic_kernel,
)
from dualpca.solvers import SOLVERS


def check_rho(rho: Any) -> None:
    """Refuse what is neither None nor a number of feature dimensions, ρ."""
    if rho is None:
        return
    check_number("feature_dim", rho, 1)
    if not np.isfinite(rho):
        raise ValueError(expected("feature_dim", "finite, or None where it is not known", rho))


class LatentPosterior(NamedTuple):
    """W | F of probabilistic kernel PCA: latents of every dimension of feature space.

    Attributes
    ----------
    weights : array of shape (q, n)
        E[W | F] = weights (F − 1uᵀ).
    mean : array of shape (q, k) or None
        E[W | F], of the dimensions given.
    covariance : array of shape (q, q)
        Of every column of W.
    second_moment : array of shape (q, q)
        E[WWᵀ | F], over all dimensions.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import ProbabilisticKernelPCA
    >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(load_iris().data)
    >>> model.latent_posterior().second_moment.shape
    (2, 2)
    """

    weights: Array
    mean: Array | None
    covariance: Array
    second_moment: Array


@parametrized
class ProbabilisticKernelPCA(KernelEstimator):
    """Probabilistic kernel PCA, or probabilistic principal coordinates (Zhang et al. 2004).

    The ρ dimensions of feature space are the observations: each is a vector over the n points,
    g = Bw + u1 + ε with w ~ N(0, n/ρ I_q) and ε ~ N(0, n/ρ σ²I_n). Row i of B is the coordinate of
    point i. Everything follows from the centred kernel; ρ cancels and need not be known.

    Parameters
    ----------
    n_components : int, float, str or None, default=2
        How many components to keep:

        - int: that many, up to n − 2.
        - float between 0 and 1: as many as have this share of the variance.
        - 'bic', 'evidence', 'ard', 'white-noise', 'gavish-donoho': by the spectrum. They count the
          ρ feature dimensions as observations of n variables: ρ is `feature_dim`, or the number of
          features of a kernel that has finitely many (linear, polynomial), or else n, the dimension
          of the span of n points. The fit is then the maximum of likelihood with that number, with
          'ard' too.
        - None: the number of variances above `noise_variance`.

    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable, default='rbf'
        As in `KernelPCA`; 'precomputed' where X is a kernel matrix.
    gamma : float, 'scale', 'median', 'auto' or None, default=None
        Scale of the RBF, polynomial, sigmoid, Laplacian and chi-squared kernels. 'auto' is 1/d;
        'scale' and 'median' are found from X. None finds the width of a named RBF, Matérn, rational
        quadratic, Laplacian or chi-squared kernel: the one at which the values of the kernel over
        pairs of rows vary the most, in steps of 2^(1/4) about the median distance, from at most 400
        rows, evenly spaced. Where columns are of unlike units (the variance of one is more than 100
        times that of another), the first three get a width for every column, a multiple of its
        standard deviation. It is 1/d for polynomial and sigmoid kernels. `kernel_` has the width.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1
        Constant term of the polynomial and sigmoid kernels.
    kernel_params : dict or None, default=None
        Other parameters of a named kernel, or keyword arguments of a function.
    metric : str or callable, default=None
        Work with distances in place of a kernel: 'precomputed' where X holds them, or a name or
        function that `scipy.spatial.distance.cdist` accepts. Leave `kernel` at its default then.
    correction : {None, 'lingoes', 'cailliez'}, default=None
        What to do with distances that are not Euclidean. None warns, and leaves their negative
        eigenvalues out; the others add the least constant that leaves none.
    noise : {'isotropic', 'diagonal'}, default='isotropic'
        One noise for all points, or one for each: kernel factor analysis.
    noise_variance : float, default=None
        σ². None for maximum likelihood.
    method : {'ml', 'em'}, default='ml'
        Closed form from the eigenpairs, or EM (Zhang et al. 2004, Eqs. 18 and 19), which needs
        products with the kernel only: the same model. With diagonal noise, quasi-Newton or EM.
    feature_dim : float, default=None
        ρ, the dimension of feature space, where it is known: adds the constant that makes
        likelihoods those of the features, and sets the scale of uncertainties and what rules for
        `n_components` count.
    init : {'auto', 'pca', 'random'} or array of shape (n, q), default='auto'
        Start of EM: PCA scores of the inputs, random, or given coordinates; 'auto' is PCA where
        there are inputs with enough columns.
    accelerate : bool, default=True
        False for plain EM, as in the paper: many more steps.
    tol : float, default=1e-06
        'em': estimated relative distance to the maximum at which to stop. 'diagonal': size of the
        gradient at which quasi-Newton stops.
    max_iter : int, default=1000
        Largest number of steps.
    eigen_solver : {'auto', 'dense', 'krylov'}, default='auto'
        For the closed form.
    random_state : None, int, Generator or RandomState, default=None
        Start of EM and of block Krylov. None is a fixed seed.
    memory_limit : float, default=4294967296
        Bytes that a stored kernel may take; beyond, it is evaluated at every pass.
    verbose : bool, default=False
        Print on standard error how and where the model is fitted.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.

    Attributes
    ----------
    coordinates_ : array of shape (n, q)
        B, on principal axes, the largest first.
    em_coordinates_ : array of shape (n, q)
        B where EM ended, before it was turned to principal axes. Not set after the closed form, nor
        where noise is diagonal.
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
        With the width that was found or given.
    gamma_ : float or None
        Its gamma; None if it has none, or every column a width of its own.
    X_fit_ : array
        The training points, kernel or distances.
    n_parameters_ : int
        Free parameters of C: nq − q(q − 1)/2 and the noise (1, or n). A given `noise_variance` is
        none; the means u, one per feature dimension, are not counted.
    n_components_, n_samples_, n_iter_ : int
    converged_ : bool

    Notes
    -----
    Zhang, Wang, Yeung & Kwok (2004); theory 9. Likelihoods under different kernels do not
    compare: they are densities in different spaces. Points are the dimensions of this model, not
    its observations, so it has no density for a new point. `posterior` gives its coordinates,
    and `point_noise` how badly they explain it. After EM that stopped early,
    `transform` gives training points the coordinates of the next step. With diagonal noise the
    means u stay those of the isotropic model.

    Cost: the solver's for q eigenpairs, or O(n²(d + q)) per step of EM; O(n(d + q)) per new point.
    One n×n array at most, none beyond `memory_limit` where the kernel is a function of points; the
    centred kernel and the features are never formed. Kernels and distances that are given, or may
    be indefinite, need O(n³) and an n×n array.

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

    _model: ProbabilisticKernelModel = field(init=False)

    coordinates_ = attribute("coordinates")
    em_coordinates_ = attribute("em_coordinates")
    noise_variance_ = attribute("noise")
    eigenvalues_ = attribute("eigenvalues")
    explained_variance_ = attribute("variances")
    explained_variance_ratio_ = attribute("ratios")
    loglikelihood_ = attribute("history.loglikelihood")
    loglikelihoods_ = attribute("history.loglikelihoods")
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")
    correction_ = attribute("correction")
    heywood_ = attribute("heywood")
    n_components_ = attribute("n_components")

    n_components: int | float | str | None = 2
    _: KW_ONLY
    kernel: KernelLike = "rbf"
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] | None = None
    metric: Metric | None = None
    correction: str | None = None
    noise: str = "isotropic"
    noise_variance: float | None = None
    method: str = "ml"
    feature_dim: float | None = None
    init: str | Array = "auto"
    accelerate: bool = True
    tol: float = 1e-6
    max_iter: int = 1000
    eigen_solver: str = "auto"
    random_state: Seed = None
    memory_limit: float = 4 * 2**30
    verbose: bool = False
    device: str | None = None

    @property
    def n_parameters_(self) -> int:
        """The number of free parameters; a noise that was given is none."""
        return int(self._fitted.n_parameters(fixed_noise=self.noise_variance is not None))

    def _request(self) -> ProbabilisticKernelRequest:
        """Check the parameters and return them for the fit."""
        self._check_metric()
        check_choice("noise", self.noise, ("isotropic", "diagonal"))
        check_choice("method", self.method, ("ml", "em"))
        solvers = ("auto", *(name for name, kind in SOLVERS.items() if kind.on_kernels))
        check_choice("eigen_solver", self.eigen_solver, solvers)
        check_flag("accelerate", self.accelerate)
        check_number("tol", self.tol, 0)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("memory_limit", self.memory_limit, 0)
        if isinstance(self.init, str):
            check_choice("init", self.init, ("auto", "pca", "random"))
        check_rho(self.feature_dim)
        if self.noise_variance is not None:
            check_noise(self.noise_variance)
            if self.noise == "diagonal":
                what = "None with noise='diagonal', which finds one for every point"
                raise ValueError(expected("noise_variance", what, self.noise_variance))
        return self._asked_for(ProbabilisticKernelRequest)

    def _check_metric(self) -> None:
        """Refuse parameters of distances that contradict one another."""
        metric: object = self.metric
        if metric is None:
            if self.correction is not None:
                what = "None without a metric: it is distances that it corrects"
                raise ValueError(expected("correction", what, self.correction))
            return
        if not (isinstance(metric, str) or callable(metric)):
            what = "None, 'precomputed', or a name or function that scipy's cdist accepts"
            raise ValueError(expected("metric", what, metric))
        plain = isinstance(self.kernel, str) and self.kernel == "rbf"
        if not plain or self.gamma is not None or self.kernel_params:
            what = "left at its default, and gamma too, beside a metric: distances have their own"
            raise ValueError(expected("kernel", what, self.kernel))

    def fit(self, X: Rows, y: object = None) -> ProbabilisticKernelPCA:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), list of items, kernel or distances (n, n)
            Three items or more. Never modified.
        y : ignored, default=None

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import ProbabilisticKernelPCA
        >>> X = load_iris().data
        >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.coordinates_.shape
        (150, 2)
        """
        return self._fit_items(fit_probabilistic_kernel, X)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        if self.metric is not None:
            tags.input_tags.sparse = False
            tags.input_tags.pairwise = is_precomputed(self.metric)
            tags.input_tags.positive_only = is_precomputed(self.metric)
        return tags

    def _checked(self, X: Rows, *, reset: bool, min_rows: int = 1) -> Array:
        pairwise = is_precomputed(self.metric) or is_precomputed(self.kernel)
        if self.metric is None and not pairwise:
            return super()._checked(X, reset=reset, min_rows=min_rows)
        refuse_nonfinite(check_matrix(X, "X"))  # before their number is compared with the fit's
        rows = check_rows(self, X, reset=reset, min_rows=min_rows)
        return check_kernel_matrix(rows, center=False) if reset and self.metric is None else rows

    def _values(self, rows: Array) -> Array:
        """Return what the fitted kernel is evaluated on: rows, or kernel values of distances."""
        if self.metric is None:
            return rows
        D = distances(rows, self._working.points, self.metric)
        check_new_distances(D)
        values: Array = self._working.correction.kernel(D)
        return values

    @on_rows("n_components_", chunked=False)
    def transform(self, X: Array) -> Array:
        """Return coordinates of points among the training points.

        They are b(x) = (Λ − σ²)^{1/2}(nΛ)⁻¹Uᵀkc(x), which is row i of B at a training point x_i.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values or distances (m, n) against the
            training items

        Returns
        -------
        array of shape (m, q)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import ProbabilisticKernelPCA
        >>> X = load_iris().data
        >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.transform(X[:3]).shape
        (3, 2)
        """
        return self._working.subspace.coordinates(self._values(X))

    @on_rows(chunked=False)
    def posterior(
        self, X: Array, diagonal: Column | None = None, *, parameters: str = "auto"
    ) -> tuple[Array, Array]:
        """Return the coordinates of points, and how certain they are.

        A point's features are a regression on the training points' latents, with coefficients b.
        The covariance is that of the errors of b(x): the point's own noise (`point_noise`), and
        what is not known of the map. More features make it more certain: ρ is `feature_dim`, by
        default n, the dimension of the span of n points.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values or distances (m, n)
        diagonal : array of shape (m,), default=None
            k(x, x), where X are kernel values of new items.
        parameters : {'auto', 'fixed'}, default='auto'
            'fixed': where a point lies on this map, among `coordinates_`. 'auto' adds the error of
            the map itself, the same for all points: its axes may turn into each other, and its
            lengths are known to a share of about 1/√(2ρ).

        Returns
        -------
        mean : array of shape (m, q)
        covariance : array of shape (m, q, q)

        Notes
        -----
        With ψ(x) the noise of the point, R = ⟨W⟩⟨W⟩ᵀ/n, G = ⟨WWᵀ⟩/n (the identity at the maximum)
        and c = (R⁻¹G − I) b(x), the covariance with 'fixed' is ψ(x)/(ρ − q) · R⁻¹ + ccᵀ. A point
        that was not in the fit is shrunk by c; for those that were, ccᵀ is a margin that matters
        where features are many (ρ ≫ n) and the signal weak. 'auto' adds the errors of angles and
        lengths (Anderson 1963); axes of nearly equal length turn freely. O(mq²) beyond `transform`.

        Calibrated where ρ is the number of features and their noise is white, as the model says.
        Otherwise ρ only sets the scale.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import ProbabilisticKernelPCA
        >>> X = load_iris().data
        >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> mean, covariance = model.posterior(X[:3])
        >>> mean.shape, covariance.shape
        ((3, 2), (3, 2, 2))
        """
        model: ProbabilisticKernelModel = self._working
        rho = float(model.n_rows if self.feature_dim is None else self.feature_dim)
        check_choice("parameters", parameters, ("auto", "fixed"))
        given, fixed = check_diagonal(diagonal, X), parameters == "fixed"
        return model.posterior(self._values(X), rho, given, fixed=fixed)

    @on_rows(chunked=False)
    def point_noise(self, X: Array, diagonal: Column | None = None) -> Array:
        """Return the noise that is a point's own, what the coordinates do not explain.

        Large for points that the coordinates explain badly. The training points' have the mean σ²
        (isotropic noise), or are ψ_i themselves (diagonal noise). Where distances are not Euclidean
        it can be negative; the average over the training points replaces it then.

        It is ψ(x) = ‖f(x) − f̄‖²/n − b(x)ᵀG b(x).

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values or distances (m, n)
        diagonal : array of shape (m,), default=None
            k(x, x), where X are kernel values of new items.

        Returns
        -------
        noise : array of shape (m,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import ProbabilisticKernelPCA
        >>> X = load_iris().data
        >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.point_noise(X[:3]).shape
        (3,)
        """
        return self._working.placed(self._values(X), check_diagonal(diagonal, X))[1]

    def latent_posterior(
        self, F: Rows | None = None, feature_dim: float | None = None
    ) -> LatentPosterior:
        """Return the posterior of the latents W given the features, W | F.

        F = BW + 1uᵀ + E, with one column per dimension of feature space (Zhang et al. 2004,
        Eqs. 12 to 15): E[W | F] = D⁻¹Bᵀ(F − 1uᵀ) with D = BᵀB + σ²I, and every column has the
        covariance (n/ρ) σ²D⁻¹. The coordinates B count as known: these are latents on this map,
        whose axes and lengths are estimates too (`posterior`).

        Parameters
        ----------
        F : array of shape (n, k), default=None
            Features of the training points, all or some dimensions: with the linear kernel the
            rows themselves. Columns are centred here. Where features are not at hand,
            `weights` says which sums of the points' features the latents are.
        feature_dim : float, default=None
            ρ. By default that of the model, the number of columns of F, or n.

        Returns
        -------
        LatentPosterior
            `weights` (q, n) with E[W | F] = weights (F − 1uᵀ), `mean` (q, k) or None, `covariance`
            (q, q) of every column of W, and `second_moment` (q, q), E[WWᵀ | F], for which the
            kernel is all that is needed: nI at the maximum.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import ProbabilisticKernelPCA
        >>> X = load_iris().data
        >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.latent_posterior().second_moment.shape
        (2, 2)
        """
        check_rho(feature_dim)
        model, mean, width = self._working, None, None
        weights, shape = model.latents()
        if F is not None:
            rows = self._beside_model(check_matrix(F, "F"), "latent_posterior")
            if rows.shape[0] != model.n_rows:
                what = f"of shape ({model.n_rows}, k), a row for every training point"
                raise ValueError(expected("F", what, tuple(rows.shape)))
            refuse_nonfinite(rows)
            G, width = backend.working(rows), int(rows.shape[1])
            mean = weights @ (G - backend.namespace(G).mean(G, axis=0))
        known = (feature_dim, self.feature_dim, width, model.n_rows)
        rho = float(next(value for value in known if value is not None))
        n = float(model.n_rows)
        parts = (weights, mean, n / rho * shape, n * model.placement.moment)
        like = model.coordinates
        cast = [None if part is None else backend.cast_like(part, like) for part in parts]
        found = LatentPosterior(*cast)
        return self._home(found, F)  # type: ignore[no-any-return]

    def get_covariance(self) -> Array:
        """Return the covariance of a feature dimension over the training points.

        It is C = BBᵀ + diag ψ; a feature dimension has the covariance n/ρ C.

        Returns
        -------
        covariance : array of shape (n, n)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import ProbabilisticKernelPCA
        >>> X = load_iris().data
        >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.get_covariance().shape
        (150, 150)
        """
        return self._fitted.covariance()

    def log_wishart(self, K: Rows | None = None, feature_dim: float | None = None) -> float:
        """Return the log-density of a kernel matrix, as a whole, under the model.

        QᵀKQ ~ W_{n−1}(ρ, n/ρ QᵀCQ), where the columns of Q are an orthonormal basis of what is
        orthogonal to 1: the means u are free, so nothing is said along it. The singular density
        where ρ < n − 1 (see `log_wishart`). As a function of σ² it is highest at
        (n − q)/(n − 1 − q) times the estimate of the paper, which counts the direction 1 as well.

        Parameters
        ----------
        K : array of shape (n, n), default=None
            A kernel over the training points; by default the one that was fitted.
        feature_dim : float, default=None
            ρ; that of the model by default.

        Returns
        -------
        log_density : float

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import ProbabilisticKernelPCA
        >>> X = load_iris().data
        >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(X[::5])
        >>> type(model.log_wishart(feature_dim=200.0)).__name__
        'float'
        """
        model = self._working if K is None else self._fitted
        rho, n = self._rho(feature_dim), model.n_rows
        if K is None:
            about = (KernelChoice(model.kernel), self.metric, self.correction, self.memory_limit)
            source = FeatureScatter.of(model.points, *about)
            values = source.definite_part(self._seed)[0].dense()
        else:
            values = check_kernel_matrix(check_matrix(K, "K"), center=False)
        if values.shape[0] != n:
            raise ValueError(expected("K", f"a kernel over the {n} training points", values.shape))
        value: float = model.log_wishart(values, rho)
        return value

    def sample_kernel(self, feature_dim: int | None = None, random_state: Seed = None) -> Array:
        """Draw a centred kernel matrix from the model.

        HFFᵀH with F = BW + E: ρ feature dimensions, each with covariance n/ρ C.

        Its mean is nC, centred.

        Parameters
        ----------
        feature_dim : int, default=None
            ρ; that of the model by default.
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        K : array of shape (n, n)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import ProbabilisticKernelPCA
        >>> X = load_iris().data
        >>> model = ProbabilisticKernelPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.sample_kernel(10, random_state=0).shape
        (150, 150)
        """
        model, rho = self._fitted, self._rho(feature_dim)
        if rho % 1:
            raise ValueError(expected("feature_dim", "an integer, to be drawn from", rho))
        return model.sample_kernel(int(rho), generator(random_state))

    def _rho(self, given: Any) -> float:
        """Return ρ, given to a method or to the constructor."""
        rho = self.feature_dim if given is None else given
        if rho is None:
            what = "given, here or to the constructor: kernels of no dimension have no distribution"
            raise ValueError(expected("feature_dim", what, None))
        check_rho(rho)
        return float(rho)
