"""Mixtures of probabilistic PCA, in the input space or in that of a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from dualpca.arrays import Array, backend
from dualpca.data import InMemoryTable, Units, chunked_table, require_in_memory
from dualpca.errors import DegenerateError, expected
from dualpca.estimators import _checks
from dualpca.estimators._attributes import attribute, unit_of_columns
from dualpca.estimators._imputations import calibration
from dualpca.estimators._shell import (
    Estimator,
    average_density,
    iterative_request,
    on_rows,
    parametrized,
)
from dualpca.estimators._streaming import Streaming
from dualpca.estimators._types import KernelLike, Resumable, Rows, Seed, Weights
from dualpca.gaussian import is_count
from dualpca.models import mixture
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.mixture import MixtureModel, MixtureRequest, MixtureStream
from dualpca.preimages import Auto, Method, Span


def _grown(
    stream: MixtureStream | None, seen: float, table: InMemoryTable, request: MixtureRequest
) -> tuple[MixtureStream, float]:
    stream = mixture.grown(stream, table, request)
    return stream, round(stream.n)


def _model_of(stream: MixtureStream, request: MixtureRequest) -> MixtureModel:
    try:
        return mixture.model_of_stream(stream, request)
    except DegenerateError as error:  # all rows are one so far, say
        raise NotFittedError(f"the stream has no model yet: {error}") from error


@parametrized
class MixturePPCA(DensityMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Mixture of probabilistic PCA: clusters, each with a subspace of its own.

    The density is p(x) = Σ_k π_k N(x; μ_k, W_kW_kᵀ + σ_k²I).

    Every component is a subspace of its own, so curved data become a few flat pieces. NaN is
    accepted anywhere, in `fit` and afterwards: rows count with what they observed. With a kernel
    the mixture is one of its feature space (mixture of probabilistic kernel PCA).

    Parameters
    ----------
    n_mixtures : int or str, default='bic'
        K. Or 'bic' or 'cv' (likelihood of held-out rows), which try 1, 2, … until larger numbers
        are worse; or 'dirichlet': start with `max_mixtures` and let a bound on the evidence empty
        those that are not worth their parameters.
    n_components : int, sequence of K ints, str or None, default=None
        How many directions q_k the components have:

        - int: as many in each.
        - a sequence of K ints: one for each.
        - 'bic', 'cv': 1, 2, … up to d − 1 are tried.
        - None: the rule of `n_mixtures`; 'bic' if that is an int, and 1 with 'dirichlet'.

    kernel : str, Kernel or callable, default=None
        As in `KernelPCA`. The mixture is then over ψ(x), the coordinates on the leading
        `n_directions` of feature space; densities are of ψ(x), and compare under one kernel only.
    kernel_params : dict, default=None
        Parameters of a named kernel, such as {'gamma': 0.5}; by default as in `KernelPCA`, with
        gamma = 1/d.
    n_directions : int, default=50
        Dimension of ψ(x).
    tied_noise : bool, default=False
        One σ² for all components.
    noise_floor : float, default=1e-06
        Smallest σ_k², as a share of the average variance of the features. A likelihood without
        it grows beyond all bounds as a component shrinks on a point.
    on_collapse : {'floor', 'reseed', 'drop'}, default='floor'
        What to do with a component that reaches the floor or loses all its rows: hold it there,
        start it again where rows are explained worst, or drop it. All with a warning.
    n_init : int, default=1
        Number of starts, of which the likeliest end is kept. Each is the best of four k-means++
        starts after ten steps of EM, of which the worse half has five; on a sample of the rows
        where there are many.
    n_jobs : int, default=None
        Starts that run at once, in threads; one after another for chunked tables.
    tol : float, default=1e-05
        Estimated gain of log-likelihood per row that is left when EM stops.
    max_iter : int, default=500
        Largest number of steps of EM.
    max_mixtures : int or None, default=None
        Largest K that is tried; None for no limit but the number of rows. With 'dirichlet' the K
        to start from, and None is 10.
    concentration : float, default=1.0
        'dirichlet': α of the process; the smaller, the fewer components.
    random_state : None, int, Generator or RandomState, default=None
        Starts. None is a fixed seed.
    standardize : {'auto', True, False}, default='auto'
        Divide every column by its standard deviation (over observed entries, divisor n; a
        constant one by 1) before the fit, so that no unit counts more than another. Rows, means,
        loadings, densities and covariances are given in the units of X all the same; axes,
        variances along them and noise are those of standardised columns. A kernel is one of
        standardised rows. 'auto' does so where columns seem to have different units, as in
        `Imputer`; `scale_` says whether it was done.
    verbose : bool, default=False
        Show the progress of the fit on standard error.
    checkpoint : path or Checkpoint, default=None
        File that EM writes every 30 seconds (or as a `dualpca.Checkpoint` says) and resumes
        from when the same fit of the same data is started again; removed at the end.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.

    Attributes
    ----------
    weights_ : array of shape (K,)
    means_ : array of shape (K, d)
        Of ψ(x), with m for d, where there is a kernel; likewise below.
    components_ : list of arrays of shape (q_k, d)
        Principal axes of each component, orthonormal, largest variance first.
    explained_variance_ : list of arrays of shape (q_k,)
        Variances ℓ_k along them.
    noise_variance_ : array of shape (K,)
        σ_k².
    loadings_ : list of arrays of shape (d, q_k)
        W_k.
    scale_ : array of shape (d,) or None
        What every column was divided by; None where columns are fitted in their own units.
    n_parameters_ : int
        Free parameters: those of every component with its mean, and K − 1 weights.
    n_mixtures_, n_iter_ : int
    n_components_ : list of int
    loglikelihood_ : float
        Of all training rows together.
    loglikelihoods_ : list of float
        At every step of EM; of the bound with 'dirichlet'. It never falls.
    lower_bound_ : float
        The last of them, per row.
    converged_ : bool
    selection_ : MixtureSelection
        After 'bic' or 'cv': `candidates` (K, q), their `scores`, and the one `chosen`.

    Notes
    -----
    A rule fits mixtures of growing K until three in a row are worse than the best; every K begins
    with the q that was best before, and one of its starts with the clusters of the mixture before,
    the widest cut in two. Beyond 8 K grows by a quarter, and numbers near the best are tried at the
    end. EM stops where sizes can be told apart; only the chosen one is fitted to `tol`. Of more
    than 5,000 rows (500 with NaN, 20,000 of chunks) a sample decides, with BIC as for all rows.

    Tipping & Bishop (1999b), with the closed form as M step. `partial_fit` is stepwise EM (Cappé
    & Moulines 2009): it starts from a fit of the first max(100, 20K) rows (1,000 where sizes are
    chosen), keeps O(Kd²) numbers and sees every later row once; shuffle a sorted stream first.
    'auto' leaves the units of a stream alone.

    Components are numbered by their means, smallest first, in the first feature in which some
    differ by more than a tenth of its standard deviation, then in the next; those alike in all by
    weight. Labels are the same for any seed, and for rows in memory, chunks, streams and GPUs. If
    `n_components` is a list, components of equal size are numbered among each other. The order of
    rows and columns does not matter, but for which rows of a large table are in a sample.

    The bound of 'dirichlet' is variational in assignments and weights (broken sticks, Blei &
    Jordan 2006) and takes the components' parameters by Laplace's approximation, (p/2) ln n_k.

    A step costs O(ndΣq_k) for densities and O(nd²) for scatters where components are apart, K times
    that where they overlap; O(ndq²) per component with NaN. Memory O(nK + Kd²); for
    densities nothing d×d is formed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import MixturePPCA
    >>> X = load_iris().data
    >>> model = MixturePPCA(n_mixtures=2, n_components=2).fit(X)
    >>> model.weights_.round(2), round(model.score(X), 2)
    (array([0.33, 0.67]), -1.56)
    >>> model.predict(X[:3]), model.transform(X).shape
    (array([0, 0, 0]), (150, 4))
    """

    _model: MixtureModel = field(init=False)
    _stream: MixtureStream = field(init=False)
    _streaming = Streaming[MixtureStream, MixtureRequest](_grown, _model_of)
    _finds_units = True

    weights_ = attribute("mixture.weights")
    means_ = attribute("mixture.emissions.means", Units.outward)
    noise_variance_ = attribute("mixture.emissions.noises")
    loadings_ = attribute("mixture.emissions.loadings", Units.loadings)
    components_ = attribute("components")
    explained_variance_ = attribute("variances")
    covariances_ = attribute("covariances", Units.covariance)
    n_mixtures_ = attribute("mixture.emissions.K")
    n_parameters_ = attribute("mixture.n_parameters")
    n_components_ = attribute("mixture.emissions.ranks")
    loglikelihood_ = attribute("loglikelihood", Units.loglikelihood)
    lower_bound_ = attribute("lower_bound", Units.loglikelihood_per_row)
    loglikelihoods_ = attribute("history.loglikelihoods", Units.loglikelihood)
    scale_ = unit_of_columns()
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")
    selection_ = attribute("selection")

    n_mixtures: int | str = "bic"
    n_components: int | Sequence[int] | str | None = None
    _: KW_ONLY
    kernel: KernelLike = None
    kernel_params: dict[str, Any] | None = None
    n_directions: int = 50
    tied_noise: bool = False
    noise_floor: float = 1e-6
    on_collapse: str = "floor"
    n_init: int = 1
    n_jobs: int | None = None
    tol: float = 1e-5
    max_iter: int = 500
    max_mixtures: int | None = None
    concentration: float = 1.0
    random_state: Seed = None
    standardize: bool | str = "auto"
    verbose: bool = False
    checkpoint: Resumable = None
    device: str | None = None

    @property
    def _accepts_nan(self) -> bool:  # type: ignore[override]
        return self.kernel is None

    @property
    def _finite(self) -> bool:  # type: ignore[override]
        return self.kernel is not None

    @property
    def _depends_on_units(self) -> bool:  # type: ignore[override]
        return self.kernel is None

    @property
    def _model_units(self) -> Units | None:
        """The units of what the mixture is over: None for the space of a kernel."""
        return self._units if self.kernel is None else None

    @property
    def _n_features_out(self) -> int:
        return sum(self.n_components_)

    # --- fitting ---------------------------------------------------------------------------

    def _request(self) -> MixtureRequest:
        """Check the parameters and return them for the fit."""
        check_sizes(self.n_mixtures, self.n_components)
        _checks.check_choice("on_collapse", self.on_collapse, mixture.COLLAPSE_RULES)
        limit = () if self.max_mixtures is None else ("max_mixtures",)
        numbers = ("noise_floor", "concentration")
        _checks.check_numbers(
            self, ("n_init", "n_directions", *limit), numbers, flags=("tied_noise",)
        )
        check_kernel_params(self.kernel_params)
        request = iterative_request(self, MixtureRequest, rng=self._seed)
        if not (self.noise_floor > 0 and self.concentration > 0):
            raise ValueError("noise_floor and concentration must be positive, got 0.")
        return request

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> MixturePPCA:
        """Fit the mixture by EM.

        Parameters
        ----------
        X : array of shape (n, d), or a chunked table
            NaN where nothing was observed (not with a kernel). Never modified. Chunked: `Batches`,
            Dask, Zarr, a path; each step of EM reads it once.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None
            Non-negative; their sum is the effective number of rows. Not for chunked tables.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X).weights_.shape
        (3,)
        """
        if chunked_table(X) is not None:
            _checks.refuse_weights(sample_weight)
        return self._learn(mixture.fit_mixture, X, sample_weight)

    @available_if(lambda self: self.kernel is None)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> MixturePPCA:
        """Add rows to the mixture by stepwise EM; every chunk is seen once.

        The model is made when it is next read, so that the first rows, which wait until there are
        enough for a start, are fitted once and not with every chunk.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where nothing was observed.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0)
        >>> model.partial_fit(X[::2]).partial_fit(X[1::2]).weights_.shape
        (3,)
        """
        self._streaming.add(self, X, sample_weight)
        return self

    def fit_predict(self, X: Rows, y: object = None, sample_weight: Weights = None) -> Array:
        """Fit, then return the most probable component of every row.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        labels : array of shape (n,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> MixturePPCA(3, 1, tol=1e-3, random_state=0).fit_predict(X).shape
        (150,)
        """
        return self.fit(X, y, sample_weight).predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True if there is a model: a stream may still wait for rows."""
        stream = vars(self).get("_stream")
        return "_model" in vars(self) or (stream is not None and stream.enough)

    def _most_components(self) -> int | None:
        return int(self.n_features_in_) if self.kernel is None else None

    def _goes_together(self) -> bool:
        """Return True if model and inputs, as read from a file, fit each other."""
        model: Any = vars(self).get("_model")
        plain = model is not None and model.space is None
        d = model.mixture.emissions.dim if plain else self.n_features_in_
        return super()._goes_together() and d == self.n_features_in_

    # --- rows ------------------------------------------------------------------------------

    @on_rows(cast=False, dtype=np.int64)
    def predict(self, X: Array) -> Array:
        """Return the most probable component of every row.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        labels : array of shape (n,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> model.predict(X).shape
        (150,)
        """
        joint = _checks.check_finite_result(self._working.joint(X), X, missing=self._accepts_nan)
        return backend.namespace(joint).argmax(joint, axis=1)

    @on_rows("n_mixtures_", options=("parameters",))
    def predict_proba(self, X: Array, *, parameters: str = "auto") -> Array:
        """Return the probability of every component given what each row observed.

        Parameters
        ----------
        X : array of shape (n, d)
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            'estimated': probabilities count that the parameters are estimates, which makes them
            less sure; the most probable component stays. 'fixed': they take them as known. 'auto':
            as estimates, unless there are so many rows that it does not show.

        Returns
        -------
        probabilities : array of shape (n, K)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> model.predict_proba(X).sum(axis=1)[:3].round(6)
        array([1., 1., 1.])
        """
        model = self._working
        return model.probabilities(X) if self._estimated(parameters) else model.responsibilities(X)

    def _estimated(self, parameters: str) -> bool:
        """Return True if answers are to count that the parameters are estimates."""
        _checks.check_choice("parameters", parameters, _checks.ESTIMATED)
        return parameters == "estimated" or (parameters == "auto" and self._working.matter)

    @on_rows(cast=False)
    def score_samples(self, X: Array) -> Array:
        """Return the log-density of what each row observed; 0 for an empty row.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        scores : array of shape (n,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> model.score_samples(X).shape
        (150,)
        """
        density, units = self._working.log_density(X), self._model_units
        return density if units is None else density - units.log_densities(X)

    def score(self, X: Rows, y: object = None, sample_weight: Weights = None) -> float:
        """Return the average log-density of the rows.

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        score : float

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> round(model.score(X), 1)
        -1.5
        """
        return average_density(self, X, sample_weight)

    def bic(self, X: Rows) -> float:
        """Return the Bayesian information criterion of rows; lower is better.

        It is −2 ln L + p ln n for p parameters.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        bic : float

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> bool(model.bic(X) > model.aic(X))
        True
        """
        return self._criterion(X, math.log)

    def aic(self, X: Rows) -> float:
        """Return Akaike's information criterion of rows; lower is better.

        It is −2 ln L + 2p for p parameters.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        aic : float

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> bool(model.aic(X) < model.bic(X))
        True
        """
        return self._criterion(X, lambda n: 2.0)

    def _criterion(self, X: Rows, price: Callable[[int], float]) -> float:
        require_in_memory(X)
        density = self.score_samples(X)
        total, n = float(backend.namespace(density).sum(density)), int(density.shape[0])
        return -2 * total + price(n) * int(self._fitted.mixture.n_parameters())

    @on_rows("_n_features_out")
    def transform(self, X: Array) -> Array:
        """Return the latents under every component, weighted by its responsibility.

        Column block k is p(k | x) E[z | x, k]. Axes of different components have nothing to do
        with each other, so the blocks stand side by side and are not added.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n, Σq_k)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> model.transform(X).shape
        (150, 3)
        """
        return self._working.coordinates(X)

    @on_rows()
    def posterior(
        self, X: Array, component: int, *, parameters: str = "auto"
    ) -> tuple[Array, Array]:
        """Return mean and covariance of the latents under one component.

        Parameters
        ----------
        X : array of shape (n, d)
        component : int
            k, from 0.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            Whether covariances count that the parameters are estimates, as in `predict_proba`.

        Returns
        -------
        mean : array of shape (n, q_k)
        covariance : array of shape (n, q_k, q_k)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> mean, covariance = model.posterior(X, 0)
        >>> mean.shape, covariance.shape
        ((150, 1), (150, 1, 1))
        """
        _checks.check_number("component", component, 0, integer=True)
        if component >= self.n_mixtures_:
            raise ValueError(f"component must be below {self.n_mixtures_}, got {component}.")
        estimated, model = self._estimated(parameters), self._working
        found: tuple[Array, Array] = model.posterior(X, int(component), estimated=estimated)
        return found

    @on_rows("n_features_in_", outward=(Units.outward,))
    def reconstruct(self, X: Array) -> Array:
        """Return the posterior mean of the noise-free signal.

        It is Σ_k p(k | x)(μ_k + W_k E[z | x, k]).

        With a kernel it is the pre-image of that point of feature space.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> model.reconstruct(X).shape
        (150, 4)
        """
        model = self._working
        return inputs_of(model.signal(X)[0], model.space, Auto())

    @available_if(lambda self: self.kernel is None)  # type: ignore[untyped-decorator]
    @on_rows("n_features_in_", framed=True, outward=(Units.filled, Units.spread))
    def impute(self, X: Array, return_std: bool = False, *, parameters: str = "auto") -> Any:
        """Fill every NaN with its expectation given what the row observed.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            NaN (null) where nothing was observed. Never modified.
        return_std : bool, default=False
            Also return the standard deviation of every entry, 0 where it was observed: that of a
            measurement, spread within components and between them.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            Whether deviations count that the parameters are estimates, as in `predict_proba`.

        Returns
        -------
        array or frame of shape (n, d), or a pair of them

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> X[0, 2] = np.nan
        >>> round(float(model.impute(X)[0, 2]), 1)
        1.5
        """
        xp, missing = backend.namespace(X), backend.namespace(X).isnan(X)
        estimated = return_std and self._estimated(parameters)
        mean, spread = self._working.signal(X, return_std, estimated=estimated)
        filled = xp.where(missing, mean, backend.working(X))
        if spread is None:
            return filled
        return filled, xp.where(missing, spread, xp.zeros_like(spread))

    calibration = available_if(lambda self: self.kernel is None)(calibration)

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> tuple[Array, Array]:
        """Draw rows and the components they come from, as scikit-learn's GaussianMixture does.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        X : array of shape (n_samples, d)
            With a kernel: pre-images of draws in feature space.
        y : array of shape (n_samples,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import MixturePPCA
        >>> X = load_iris().data
        >>> model = MixturePPCA(3, 1, tol=1e-3, random_state=0).fit(X)
        >>> rows, labels = model.sample(5, random_state=0)
        >>> rows.shape, labels.shape
        ((5, 4), (5,))
        """
        model = self._fitted
        points, labels = model.working.sample(*_checks.check_draws(n_samples, random_state))
        rows = self._outward(Units.outward, inputs_of(points, model.space, Auto()))
        return backend.cast_like(rows, model.mixture.weights), whole_numbers(labels, points)


def check_sizes(K: int | str, q: int | Sequence[int] | str | None) -> None:
    """Refuse numbers of components and of directions that no data could satisfy."""
    words = (*mixture.CRITERIA, mixture.BOUND)
    if not (K in words if isinstance(K, str) else _are_positive([K])):
        raise ValueError(expected("n_mixtures", f"a positive integer or one of {list(words)}", K))
    if q is None:
        return
    counts: Any = [q] if is_count(q) else q
    if not (q in mixture.CRITERIA if isinstance(q, str) else _are_positive(counts)):
        rules = list(mixture.CRITERIA)
        what = f"None, a positive integer, one for each of n_mixtures, or one of {rules}"
        raise ValueError(expected("n_components", what, q))
    if isinstance(counts, str):
        if isinstance(K, str) and K != q:
            raise ValueError(expected("n_components", f"an int or {K!r}, as n_mixtures", q))
    elif isinstance(q, Sequence | np.ndarray) and len(q) != K:
        remedy = "Give one int for all components, or n_mixtures as an int."
        raise ValueError(expected("n_components", f"of length {K}", q, remedy))


def _are_positive(values: Any) -> bool:
    """Return True for a sequence of positive whole numbers."""
    many = isinstance(values, Sequence | np.ndarray) and len(values) > 0
    return many and all(is_count(one) and int(one) >= 1 for one in values)


def check_kernel_params(given: object) -> None:
    """Refuse parameters of a kernel that have no names."""
    if not isinstance(given, Mapping | None):
        raise ValueError(expected("kernel_params", "a dictionary or None", given))


def inputs_of(points: Array, space: KernelSpace | None, method: Method) -> Array:
    """Return points as rows of the input space: pre-images, where there is a kernel."""
    if space is None:
        return points
    s = space.subspace
    return method.find(Span(s.points, s.kernel, s.coefficients, s.base), points).points


def whole_numbers(values: np.ndarray[Any, Any], rows: Array) -> Array:
    """Return whole numbers of the host in the library and on the device of the rows."""
    return backend.namespace(rows).asarray(values, device=backend.device_of(rows))
