"""Twin kernel PCA: latent coordinates whose kernel explains the kernel of the points."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

from dualpca.arrays import Array
from dualpca.errors import expected
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import check_choice, check_number
from dualpca.estimators._kernel import KernelEstimator
from dualpca.estimators._shell import on_rows, parametrized
from dualpca.estimators._types import KernelLike, Rows, Seed
from dualpca.estimators.probabilistic_kernel import check_rho
from dualpca.kernels import RBF, Precomputed, make_kernel
from dualpca.models.twin import TwinModel, TwinRequest, fit_twin


@parametrized
class TwinKernelPCA(KernelEstimator):
    """Twin kernel PCA, which is the Gaussian process latent variable model seen from its kernel.

    The centred kernel of the points is a Wishart matrix, Kc ~ W_n(ρ, Σ/ρ), whose Σ is a kernel
    too: Σ = a k(z_i, z_j) + σ²δ_ij over latent coordinates. They are found by maximum likelihood,
    −½{ln|Σ| + tr(Σ⁻¹Kc)} per feature dimension. With the linear kernel and `feature_dim` = d this
    is Lawrence's GPLVM of the centred data, number for number; with a linear latent kernel it is
    `ProbabilisticKernelPCA`. It is a model of its own here because its likelihood has many maxima
    and no closed form: the start matters, and n beyond a few thousand is out of reach.

    Parameters
    ----------
    n_components : int, default=2
        q, the number of latent coordinates.
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable, default='linear'
        Of the points; 'precomputed' where X is a kernel matrix.
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
    latent_kernel : str, Kernel or callable, default=None
        Of the latent coordinates; by default an RBF of length scale 1. Its parameters stay as
        they are: the coordinates adapt to its scale, and its gain a is found.
    latent_params : dict, default=None
        Parameters of a named latent kernel.
    feature_dim : float, default=None
        ρ, where it is known: S = Kc/ρ in place of Kc, so that Σ is the covariance of a feature
        dimension, and constants are counted. The coordinates are the same.
    init : 'spectral', 'random' or array of shape (n, q), default='spectral'
        Start: leading eigenvectors of Kc, random numbers, or given coordinates.
    tol : float, default=1e-05
        Largest component of the gradient, divided by n, at which to stop.
    max_iter : int, default=2000
        Largest number of L-BFGS steps.
    random_state : None, int, Generator or RandomState, default=None
        For random starts. None is a fixed seed.
    n_init : int, default=3
        Number of starts, of which the most likely end is kept; the first is `init`, the others are
        random. One where coordinates are given. Ends that are maxima do not depend on rounding, so
        that every array library finds the same.
    verbose : bool, default=False
        Print on standard error how and where the model is fitted.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.

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
    gamma_ : float or None
        Of `kernel_`.
    n_parameters_ : int
        Free parameters of Σ: coordinates up to what leaves it as it is, gain and noise.
    n_samples_, n_iter_ : int
    converged_ : bool

    Notes
    -----
    Lawrence (2004, 2005); Zhang et al. 2004, section 5.2, Eq. 22. O(n³) per step, O(n²) memory: a
    few n×n arrays; features of the kernel are never formed. `transform` places a point by its
    features given those of the training points, so that a training point comes near its fitted
    coordinate in `coordinates_`, not on it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import TwinKernelPCA
    >>> X = load_iris().data[::3]
    >>> model = TwinKernelPCA(2, kernel="linear", feature_dim=4).fit(X)
    >>> model.coordinates_.shape, model.converged_
    ((50, 2), True)
    """

    _model: TwinModel = field(init=False)

    coordinates_ = attribute("coordinates")
    noise_variance_ = attribute("twin.noise")
    gain_ = attribute("twin.gain")
    latent_kernel_ = attribute("twin.kernel")
    loglikelihood_ = attribute("history.loglikelihood")
    loglikelihoods_ = attribute("history.loglikelihoods")
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")
    n_parameters_ = attribute("n_parameters")

    n_components: int = 2
    _: KW_ONLY
    kernel: KernelLike = "linear"
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] | None = None
    latent_kernel: KernelLike = None
    latent_params: dict[str, Any] | None = None
    feature_dim: float | None = None
    init: str | Array = "spectral"
    tol: float = 1e-5
    max_iter: int = 2000
    random_state: Seed = None
    n_init: int = 3
    verbose: bool = False
    device: str | None = None

    def _request(self) -> TwinRequest:
        """Check the parameters and return them for the fit."""
        check_number("tol", self.tol, 0)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("n_components", self.n_components, 1, integer=True)
        check_number("n_init", self.n_init, 1, integer=True)
        if isinstance(self.init, str):
            check_choice("init", self.init, ("spectral", "random"))
        check_rho(self.feature_dim)
        latent = RBF(length_scale=1.0) if self.latent_kernel is None else self.latent_kernel
        kernel = make_kernel(latent, **(self.latent_params or {}))
        if isinstance(kernel, Precomputed):
            what = "a kernel with a gradient, since coordinates move"
            raise ValueError(expected("latent_kernel", what, self.latent_kernel))
        return self._asked_for(TwinRequest, latent_kernel=kernel)

    def fit(self, X: Rows, y: object = None) -> TwinKernelPCA:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), list of items, or kernel matrix (n, n)
            Three items or more. Never modified.
        y : ignored, default=None

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import TwinKernelPCA
        >>> X = load_iris().data
        >>> model = TwinKernelPCA(2, kernel="linear", feature_dim=4, tol=1e-2).fit(X[::10])
        >>> model.coordinates_.shape
        (15, 2)
        """
        return self._fit_items(fit_twin, X)

    @on_rows(chunked=False)
    def transform(self, X: Array) -> Array:
        """Place points: the z that makes their features most likely given the training points'.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training items (m, n)

        Returns
        -------
        array of shape (m, q)
            By L-BFGS for each point, from the coordinate of its nearest training point; O(n²) per
            step.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import TwinKernelPCA
        >>> X = load_iris().data
        >>> model = TwinKernelPCA(2, kernel="linear", feature_dim=4, tol=1e-2).fit(X[::10])
        >>> model.transform(X[:3]).shape
        (3, 2)
        """
        return self._working.placed(X)
