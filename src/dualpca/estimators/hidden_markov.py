"""Principal components through time: a hidden Markov model of subspaces."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import StateWarning, expected
from dualpca.estimators._chain_fits import (
    check_plan,
    coordinates,
    fit_chain,
    fit_parts,
    input_moments,
    predicted,
    pulled_back,
)
from dualpca.estimators._convergence import publish_record
from dualpca.estimators._incomplete import named_columns
from dualpca.estimators._parts import check_rows_count, columns_of, open_parts, parts_of
from dualpca.estimators._sequences import check_lengths, refuse_misplaced
from dualpca.estimators._validation import check_number, check_rows, generator
from dualpca.hidden_markov import HiddenMarkov
from dualpca.kernel_space import KernelSpace
from dualpca.parts import Parts
from dualpca.progress import showing

UNVISITED = 0.5
"""Expected number of rows below which a state is said to explain none."""


class HiddenMarkovPCA(BaseEstimator):
    """Hidden Markov model whose states emit probabilistic PCA, or mixtures of it.

    State s emits x ~ Σ_m c_sm N(μ_sm, W_smW_smᵀ + σ_sm²I) in the input space or, with a kernel, in
    one kernel space common to all states; states follow a Markov chain. Fitted by Baum–Welch.

    Parameters
    ----------
    n_states : int
        S.
    n_components : int or sequence of int
        q, of all states or of each; below the number of features (or of `n_directions`).
    n_mixtures : int
        M, components a state.
    kernel : None, str, Kernel, Gaussian-process kernel or callable
        None for the input space. Time may enter as a column: `RBF(on=[0, 1]) * RBF(on=[2])`.
    gamma : float or str, optional
        Of a kernel given by name; None is 1/d.
    kernel_params : dict, optional
        Other parameters of a kernel given by name.
    n_directions : int
        Dimension m of the kernel space.
    n_landmarks : int
        Rows that span it where there are more than a thousand.
    topology : {'ergodic', 'left-to-right'}
        Any state after any other; or each state may only stay or go on to the next, and sequences
        start in the first.
    stickiness : float
        Pseudo-count of stays in every state: a Dirichlet prior, which EM maximises with the
        likelihood. 0 for none.
    noise_floor : float
        Smallest σ², as a share of the average variance of the features.
    tied_noise : bool
        One σ² for all states.
    tol : float
        Gain of log-likelihood a row below which Baum–Welch stops.
    max_iter : int
    n_init : int
        Starts, of which the most likely end is kept.
    preimage : str or method
        How `sample` comes back from kernel space.
    random_state : None, int, Generator or RandomState
        None is a fixed seed.
    verbose : bool

    Attributes
    ----------
    start_probabilities_ : array of shape (S,)
    transitions_ : array of shape (S, S)
    weights_ : array of shape (S, M)
        c.
    means_ : array of shape (S, M, d)
        μ, in the input space or in kernel space (m in place of d).
    loadings_ : list of S lists of M arrays of shape (d, q)
        W.
    noise_variances_ : array of shape (S, M)
        σ².
    state_means_, state_variances_ : array of shape (S, d)
        Of every input feature in every state; with a kernel, of the rows weighted by P(s | rows).
    visits_ : array of shape (S,)
        Expected number of training rows in every state.
    loglikelihood_ : float
        Of all training sequences, plus the log-density of the prior where there is one.
    loglikelihoods_ : list of float
        At every step; never falls.
    n_iter_ : int
    converged_ : bool
    kernel_space_ : KernelSpace or None

    Notes
    -----
    NaN is welcome in the input space: rows count with what they observed. With a kernel a row with
    NaN has no place in feature space and counts as not observed at all; the chain leads across it.

    Likelihoods of different kernels, or of different kernel spaces, cannot be compared.
    A Baum–Welch step costs O(TS(dq + d² + S)); S³ a step where a sequence is longer than 200.

    References
    ----------
    Rabiner (1989); Álvarez & Henao (2006).

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import HiddenMarkovPCA
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(rng.normal(size=(6, 1)) * 0 + [[0], [5], [0], [5], [0], [5]], 50, axis=0)
    >>> X = X + rng.normal(size=(300, 3)) * [2.0, 1.0, 1.0]
    >>> model = HiddenMarkovPCA(n_states=2, n_components=1).fit(X, lengths=[150, 150])
    >>> model.transitions_.diagonal().min() > 0.9
    np.True_
    >>> log_probability, states = model.decode(X, lengths=[150, 150])
    >>> len(states), bool(states[0] == states[120])
    (300, True)
    """

    _model: HiddenMarkov
    n_features_in_: int
    kernel_space_: KernelSpace | None
    transitions_: Array
    state_means_: Array
    state_variances_: Array

    def __init__(
        self,
        n_states: int = 2,
        n_components: Any = 1,
        n_mixtures: int = 1,
        kernel: Any = None,
        *,
        gamma: Any = None,
        kernel_params: dict[str, Any] | None = None,
        n_directions: int = 20,
        n_landmarks: int = 500,
        topology: str = "ergodic",
        stickiness: float = 0.0,
        noise_floor: float = 1e-6,
        tied_noise: bool = False,
        tol: float = 1e-5,
        max_iter: int = 200,
        n_init: int = 1,
        preimage: Any = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_states = n_states
        self.n_components = n_components
        self.n_mixtures = n_mixtures
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.n_directions = n_directions
        self.n_landmarks = n_landmarks
        self.topology = topology
        self.stickiness = stickiness
        self.noise_floor = noise_floor
        self.tied_noise = tied_noise
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.preimage = preimage
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, lengths: Any = None) -> HiddenMarkovPCA:
        """Fit by Baum–Welch.

        Parameters
        ----------
        X : array of shape (T, d)
            Rows of all sequences, one sequence after another. Never modified.
        y : ignored
        lengths : sequence of int, optional
            Rows of every sequence; None is one sequence.

        Returns
        -------
        self
        """
        check_plan(self)
        parts = parts_of(X)
        if parts is not None:
            return self._fit_parts(parts, lengths)
        X = check_rows(self, X, reset=True, min_rows=2)
        refuse_misplaced(y, int(X.shape[0]))
        lengths = check_lengths(lengths, int(X.shape[0]))
        with named_columns(self), showing(self.verbose):
            self.kernel_space_, found = fit_chain(self, X, lengths)
        self._model, record, smoothed = found
        self._publish(X, smoothed.states)
        publish_record(self, record)
        return self

    def _fit_parts(self, parts: Parts, lengths: Any) -> HiddenMarkovPCA:
        """Fit a table in parts; sequences do not cross them, and a part is one unless told."""
        if self.kernel is not None:
            remedy = "Fit KernelPCA(eigen_solver='nystrom') first, then a chain of its transform."
            raise ValueError(expected("kernel", "None for data in parts", self.kernel, remedy))
        open_parts(self, parts)
        with named_columns(self), showing(self.verbose):
            columns, holes = columns_of(parts, "Baum–Welch, a pass a step")
            check_rows_count(self, columns.rows)
            self._model, record, counted = fit_parts(self, parts, columns, holes, lengths)
        self.kernel_space_ = None
        self._publish(parts.like, counted.visits[None, :])
        publish_record(self, record)
        return self

    def _publish(self, X: Array, states: np.ndarray[Any, Any]) -> None:
        """Set the fitted attributes, in the dtype of X."""
        model = self._model
        S, M = model.shares.shape
        xp, emissions = _array.namespace(X), model.emissions
        self.start_probabilities_ = self._beside(model.chain.start, X)
        self.transitions_ = self._beside(model.chain.transitions, X)
        self.weights_ = self._beside(model.shares, X)
        self.means_ = _array.cast_like(xp.reshape(emissions.means, (S, M, -1)), X)
        W = [_array.cast_like(one, X) for one in emissions.loadings]
        self.loadings_ = [W[s * M : (s + 1) * M] for s in range(S)]
        self.noise_variances_ = _array.cast_like(xp.reshape(emissions.noises, (S, M)), X)
        moments = input_moments(X, states) if self.kernel_space_ else model.state_moments()
        self.state_means_, self.state_variances_ = (_array.cast_like(m, X) for m in moments)
        self.visits_ = self._beside(states.sum(axis=0), X)
        self._warn_of_unvisited(states.sum(axis=0))

    def _warn_of_unvisited(self, visits: np.ndarray[Any, Any]) -> None:
        empty = np.flatnonzero(visits < UNVISITED)
        if empty.size:
            warnings.warn(
                f"states {empty.tolist()} are never visited: they explain no rows, and their "
                "parameters say nothing. Use fewer states, or another random_state.",
                StateWarning,
                stacklevel=4,
            )

    @staticmethod
    def _beside(values: np.ndarray[Any, Any], X: Array) -> Array:
        """Return host values in the library, device and dtype of X."""
        return _array.cast_like(_array.asarray(values, X), X)

    def _new(self, X: Any, lengths: Any, method: str) -> tuple[Array, Array, Any]:
        """Return checked rows, what the states emit of them, and lengths."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        _array.require_same_home(X, self.transitions_, f"{type(self).__name__}.{method}")
        lengths = check_lengths(lengths, int(X.shape[0]))
        return X, coordinates(self.kernel_space_, X), lengths

    def predict(self, X: Any, lengths: Any = None) -> Array:
        """Return the states of the most probable paths (Viterbi), (T,)."""
        return self._decode(X, lengths, "predict")[1]

    def decode(self, X: Any, lengths: Any = None) -> tuple[float, Array]:
        """Return the most probable paths.

        Parameters
        ----------
        X : array of shape (T, d)
        lengths : sequence of int, optional

        Returns
        -------
        log_probability : float
            ln p(X, path), of all sequences together.
        states : array of shape (T,)
        """
        return self._decode(X, lengths, "decode")

    def _decode(self, X: Any, lengths: Any, method: str) -> tuple[float, Array]:
        X, Z, lengths = self._new(X, lengths, method)
        logs, path = self._model.decode(Z, lengths)
        xp = _array.namespace(X)
        return float(logs.sum()), xp.asarray(path, device=_array.device_of(X))

    def predict_proba(self, X: Any, lengths: Any = None) -> Array:
        """Return P(s_t | whole sequence), (T, S): smoothing."""
        X, Z, lengths = self._new(X, lengths, "predict_proba")
        return self._beside(self._model.smooth(Z, lengths).states, X)

    def filter(self, X: Any, lengths: Any = None, *, previous: Any = None) -> Array:
        """Return P(s_t | rows up to t), (T, S).

        One step at a time: give one row, and as `previous` the answer to the row before.

        Parameters
        ----------
        X : array of shape (T, d)
        lengths : sequence of int, optional
        previous : array of shape (S,), optional
            States one step before the first row; None starts a new sequence.
        """
        X, Z, lengths = self._new(X, lengths, "filter")
        return self._beside(self._model.filter(Z, lengths, self._states(previous)), X)

    def _states(self, previous: Any) -> np.ndarray[Any, Any] | None:
        """Check a distribution over states."""
        if previous is None:
            return None
        p = np.asarray(_array.to_numpy(previous), dtype=np.float64).reshape(-1)
        S = int(self.transitions_.shape[0])
        if p.shape != (S,) or not np.all(p >= 0) or abs(p.sum() - 1) > 1e-3:
            what = f"{S} probabilities that sum to 1, as `filter` returns for one row"
            raise ValueError(expected("previous", what, previous))
        return np.asarray(p / p.sum())

    def forecast(
        self, X: Any, n_steps: int = 1, *, previous: Any = None, return_std: bool = False
    ) -> Any:
        """Return the mean of the next rows of one sequence, (n_steps, d).

        Σ_s P(s_{T+h} | rows) E[x | s], with the standard deviation of a new row, that of the
        states included.

        Parameters
        ----------
        X : array of shape (T, d)
            The sequence until now.
        n_steps : int
        previous : array of shape (S,), optional
            As in `filter`.
        return_std : bool

        Returns
        -------
        array of shape (n_steps, d), or a pair of them
        """
        check_number("n_steps", n_steps, 1, integer=True)
        X, Z, lengths = self._new(X, None, "forecast")
        now = self._model.filter(Z, lengths, self._states(previous))[-1]
        ahead = _array.asarray(self._model.chain.after(now, int(n_steps)), X)
        mean, variance = predicted(ahead, self.state_means_, self.state_variances_)
        mean = _array.cast_like(mean, X)
        std = _array.cast_like(_array.namespace(X).sqrt(variance), X)
        return (mean, std) if return_std else mean

    def score_sequences(self, X: Any, lengths: Any = None) -> Array:
        """Return the log-likelihood of every sequence, (m,)."""
        X, Z, lengths = self._new(X, lengths, "score_sequences")
        return _array.asarray(self._model.loglikelihoods(Z, lengths), X)

    def score(self, X: Any, y: Any = None, *, lengths: Any = None) -> float:
        """Return the log-likelihood of all sequences, divided by the number of rows."""
        X, Z, lengths = self._new(X, lengths, "score")
        return float(self._model.loglikelihoods(Z, lengths).sum()) / int(X.shape[0])

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, Array]:
        """Draw one sequence.

        Returns
        -------
        X : array of shape (n_samples, d)
            With a kernel, pre-images of what was drawn in kernel space.
        states : array of shape (n_samples,)
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        rows, path = self._model.sample(int(n_samples), generator(random_state))
        if self.kernel_space_ is not None:
            rows = pulled_back(self.kernel_space_, rows, self.preimage)
        like = self.transitions_
        xp = _array.namespace(like)
        return _array.cast_like(rows, like), xp.asarray(path, device=_array.device_of(like))

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.array_api_support = True
        return tags
