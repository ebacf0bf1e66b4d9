"""Mixtures of probabilistic PCA, in the input space or in that of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.metaestimators import available_if

from dualpca.arrays import Array, algebra, backend, showing
from dualpca.data import ChunkedTable, observed_weights, refuse_infinite, refuse_nonfinite
from dualpca.errors import DegenerateError, StreamWarning, expected, warn
from dualpca.estimators._base import (
    Saved,
    average,
    check_rows,
    check_rows_count,
    check_weights,
    columns_of,
    generator,
    named_columns,
    open_parts,
    parts_of,
    publish_record,
    refuse_weights,
    used_rows,
    variances_like,
)
from dualpca.estimators._mixture_fits import (
    check_parameters,
    check_sizes,
    fit_parts,
    fit_rows,
    grown,
    kernel_of,
    warn_of_collapse,
)
from dualpca.estimators._mixture_rows import MixtureRows
from dualpca.estimators._placing import placed
from dualpca.models.driver import Record
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.mixture import Climbed, Mixture


class MixturePPCA(Saved, MixtureRows, DensityMixin, BaseEstimator):
    """Mixture of probabilistic PCA: p(x) = Σ_k π_k N(x; μ_k, W_kW_kᵀ + σ_k²I).

    Every component is a subspace of its own, so curved data become a few flat pieces. NaN is
    welcome anywhere, in `fit` and afterwards: rows count with what they observed. With a kernel
    the mixture lives in its feature space (mixture of probabilistic kernel PCA).

    Parameters
    ----------
    n_mixtures : int or str
        K. Or 'bic' or 'cv' (likelihood of held-out rows), which try 1, 2, … up to `max_mixtures`;
        or 'dirichlet': start with `max_mixtures` and let a bound on the evidence empty those that
        are not worth their parameters.
    n_components : int, sequence of K ints, or str
        Directions q_k of the components. 'bic' and 'cv' try 1, 2, … up to 10.
    kernel : str, Kernel or callable, optional
        As in `KernelPCA`. The mixture is then over ψ(x), the coordinates on the leading
        `n_directions` of feature space; densities are of ψ(x), and compare under one kernel only.
    kernel_params : dict, optional
        Parameters of a named kernel, such as {'gamma': 0.5}.
    n_directions : int
        Dimension of ψ(x).
    tied_noise : bool
        One σ² for all components.
    noise_floor : float
        Smallest σ_k², as a share of the average variance of the features. A likelihood without
        it grows beyond all bounds as a component shrinks on a point.
    on_collapse : {'floor', 'reseed', 'drop'}
        What to do with a component that reaches the floor or loses all its rows: hold it there,
        sow it again where rows are explained worst, or drop it. All with a warning.
    n_init : int
        Number of starts, of which the likeliest end is kept. Each is the best of four k-means++
        starts after ten steps of EM.
    n_jobs : int, optional
        Starts that run side by side, as threads.
    tol : float
        Estimated gain of log-likelihood a row that is left when EM stops.
    max_iter : int
        Largest number of steps of EM.
    max_mixtures : int
        Largest K that is tried.
    concentration : float
        'dirichlet': α of the process; the smaller, the fewer components.
    random_state : None, int, Generator or RandomState
        Starts. None is a fixed seed.
    verbose : bool
        Show on standard error how far the fit has come.
    checkpoint : path or Checkpoint, optional
        File that EM writes every 30 seconds (or as a `dualpca.Checkpoint` says) and goes on
        from when the same fit of the same data is started again; removed at the end.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

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
    n_mixtures_, n_iter_ : int
    n_components_ : list of int
    loglikelihood_ : float
        Of all training rows together.
    loglikelihoods_ : list of float
        At every step of EM; of the bound with 'dirichlet'. It never falls.
    lower_bound_ : float
        The last of them, a row.
    converged_ : bool
    selection_ : MixtureSelection
        After 'bic' or 'cv': `candidates` (K, q), their `scores`, and the one `chosen`.

    Notes
    -----
    Tipping & Bishop (1999b), with the closed form as M step. `partial_fit` is stepwise EM (Cappé
    & Moulines 2009): it starts from a fit of the first max(100, 20K) rows, keeps O(Kd²) numbers
    and sees every later row once; shuffle a sorted stream first.

    The bound of 'dirichlet' is variational in assignments and weights (broken sticks, Blei &
    Jordan 2006) and takes the components' parameters by Laplace's approximation, (p/2) ln n_k.

    A step costs O(ndΣq_k) for densities and O(nd²) for scatters where components are apart, K times
    that where they overlap; O(ndq²) a component with NaN. Memory O(nK + Kd²); densities never form
    anything d×d.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import MixturePPCA
    >>> X = load_iris().data
    >>> model = MixturePPCA(n_mixtures=2, n_components=2).fit(X)
    >>> model.weights_.round(2), round(model.score(X), 2)
    (array([0.67, 0.33]), -1.56)
    >>> model.predict(X[:3]), model.transform(X).shape
    (array([1, 1, 1]), (150, 4))
    """

    weights_: Array  # (K,)
    means_: Array  # (K, d)
    noise_variance_: Array  # (K,)
    components_: list[Array]
    loadings_: list[Array]
    n_features_in_: int
    loglikelihoods_: list[float]

    def __init__(
        self,
        n_mixtures: int | str = 1,
        n_components: int | Sequence[int] | str = 1,
        *,
        kernel: Any = None,
        kernel_params: dict[str, Any] | None = None,
        n_directions: int = 50,
        tied_noise: bool = False,
        noise_floor: float = 1e-6,
        on_collapse: str = "floor",
        n_init: int = 1,
        n_jobs: int | None = None,
        tol: float = 1e-6,
        max_iter: int = 500,
        max_mixtures: int = 10,
        concentration: float = 1.0,
        random_state: Any = None,
        verbose: bool = False,
        checkpoint: Any = None,
        device: str | None = None,
    ) -> None:
        self.n_mixtures = n_mixtures
        self.n_components = n_components
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.n_directions = n_directions
        self.tied_noise = tied_noise
        self.noise_floor = noise_floor
        self.on_collapse = on_collapse
        self.n_init = n_init
        self.n_jobs = n_jobs
        self.tol = tol
        self.max_iter = max_iter
        self.max_mixtures = max_mixtures
        self.concentration = concentration
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.device = device

    # --- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MixturePPCA:
        """Fit the mixture by EM.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where nothing was observed (not with a kernel). Never modified.
        y : ignored
        sample_weight : array of shape (n,), optional
            Non-negative; their sum is the effective number of rows.

        Returns
        -------
        self
        """
        check_parameters(self)
        parts = parts_of(X)
        if parts is not None:
            return self._fit_parts(parts, sample_weight)
        X = check_rows(self, X, reset=True, min_rows=2)
        refuse_infinite(X)
        w = observed_weights(X, check_weights(sample_weight, X))
        self._forget()
        rows = X if self.kernel is None else self._open_space(X, w)
        check_sizes(self, used_rows(X, w), int(rows.shape[1]))
        with showing(self.verbose), named_columns(self):
            found = fit_rows(self, rows, w)
        self._set(found, rows, w, X)
        return self

    def _fit_parts(self, parts: ChunkedTable, sample_weight: Any) -> MixturePPCA:
        """Fit a table in parts: a pass a step of EM."""
        if self.kernel is not None:
            remedy = "Fit KernelPCA(eigen_solver='nystrom') first, then a mixture of its transform."
            raise ValueError(expected("kernel", "None for data in parts", self.kernel, remedy))
        refuse_weights(sample_weight)
        open_parts(self, parts)
        self._forget()
        with showing(self.verbose), named_columns(self):
            columns, holes = columns_of(parts, "EM of a mixture, a pass a step")
            check_rows_count(self, columns.used)
            check_sizes(self, columns.used, parts.d)
            found = fit_parts(self, parts, columns, holes)
        self._set_mixture(found.mixture, parts.like)
        warn_of_collapse(self, found)
        publish_record(self, found.record)
        self.lower_bound_ = self.loglikelihoods_[-1] / columns.used
        if self.n_mixtures == "dirichlet":
            self.loglikelihood_ = average(self, parts) * columns.rows
        return self

    def _open_space(self, X: Array, weights: Array | None) -> Array:
        """Find the common kernel space and return the rows in it."""
        refuse_nonfinite(X)
        rng = generator(0 if self.random_state is None else self.random_state)
        m = int(self.n_directions)
        self._space = KernelSpace.fit(
            X, kernel_of(self, X), m, rng, n_landmarks=max(500, m), weights=weights
        )
        return self._space(X)

    @available_if(lambda self: self.kernel is None)  # type: ignore[untyped-decorator]
    @placed
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MixturePPCA:
        """Add rows to the mixture by stepwise EM; every chunk is seen once.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where nothing was observed.
        y : ignored
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self
        """
        check_parameters(self)
        stream = vars(self).get("_stream")
        if stream is None and "weights_" in vars(self):
            warn(
                "this model comes from fit, which keeps no moments: partial_fit starts anew and "
                "forgets the rows that fit saw. Give all rows to partial_fit to keep them.",
                StreamWarning,
            )
        X = check_rows(self, X, reset=stream is None)
        check_sizes(self, 2**62, int(X.shape[1]))
        stream = grown(self, stream, X, check_weights(sample_weight, X))
        self._forget()
        self._stream = stream
        self._publish_stream(X)
        return self

    def _publish_stream(self, like: Array) -> None:
        """Set the fitted attributes of a stream; rows that wait are counted in, and wait on."""
        stream = self._stream
        self.n_samples_seen_ = round(stream.n)
        if stream.rows is not None and int(stream.rows.shape[0]) < max(2, stream.K):
            return
        try:
            settled = stream.settle(lambda rows, w: fit_rows(self, rows, w))
        except DegenerateError:  # so far all rows are one, or a feature was never observed
            return
        self._set_mixture(settled.mixture, like)
        publish_record(self, Record([settled.density * stream.n], 1, False), quiet=True)
        self.lower_bound_ = settled.density

    def _forget(self) -> None:
        """Drop what an earlier fit left behind."""
        names = [k for k in vars(self) if k.endswith("_") and not k.startswith("_")]
        kept = ("n_features_in_", "feature_names_in_")
        for name in [*(k for k in names if k not in kept), "_stream", "_space"]:
            self.__dict__.pop(name, None)

    def _set(self, found: Climbed, rows: Array, weights: Array | None, like: Array) -> None:
        self._set_mixture(found.mixture, like)
        warn_of_collapse(self, found)
        publish_record(self, found.record)
        xp = backend.namespace(rows)
        n = float(rows.shape[0] if weights is None else xp.sum(weights))
        self.lower_bound_ = self.loglikelihoods_[-1] / n
        if self.n_mixtures == "dirichlet":
            density = found.mixture.log_density(rows)
            self.loglikelihood_ = float(xp.sum(density) if weights is None else weights @ density)

    def _set_mixture(self, mixture: Mixture, like: Array) -> None:
        """Set the parameters, in the dtype of `like`."""
        model = mixture.emissions
        self.weights_ = backend.cast_like(mixture.weights, like)
        self.means_ = backend.cast_like(model.means, like)
        self.noise_variance_ = variances_like(model.noises, like)
        self.loadings_ = [backend.cast_like(W, like) for W in model.loadings]
        axes = [algebra.svd(W) for W in model.loadings]
        self.components_ = [backend.cast_like(U.T, like) for U, _, _ in axes]
        self.explained_variance_ = [
            backend.cast_like(s * s + model.noises[k], like) for k, (_, s, _) in enumerate(axes)
        ]
        self.n_mixtures_, self.n_components_ = model.K, list(model.ranks)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit, then return the most probable component of every row, (n,).

        Parameters
        ----------
        X : array of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
        """
        return self.fit(X, y, sample_weight).predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        """Tell whether there is a model: a stream may still wait for rows."""
        return "weights_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes and gives."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        tags.input_tags.allow_nan = self.kernel is None
        return tags
