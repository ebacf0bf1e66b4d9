"""Principal components through time: a hidden Markov model of subspaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from dualpca.arrays import Array, backend, showing
from dualpca.data import ChunkedTable
from dualpca.errors import CollapseWarning, StateWarning, expected, warn
from dualpca.estimators._base import (
    Saved,
    check_rows,
    check_rows_count,
    columns_of,
    named_columns,
    open_parts,
    parts_of,
    publish_record,
)
from dualpca.estimators._chain_fits import check_plan, fit_chain, fit_parts, input_moments
from dualpca.estimators._chain_methods import ChainMethods, beside
from dualpca.estimators._placing import OnDevice
from dualpca.estimators._sequences import check_lengths, joined, refuse_misplaced

UNVISITED = 0.5
"""Expected number of rows below which a state is said to explain none."""


class HiddenMarkovPCA(OnDevice, Saved, ChainMethods, BaseEstimator):
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
    prior_rows : float
        Rows that every component has seen before any other: spread evenly around its mean with
        the average variance of the features (an inverse Wishart prior with a round scale, which
        EM maximises with the likelihood). Helps where states have few rows a feature; scale the
        features alike then. 0 for none.
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
    checkpoint : path or Checkpoint, optional
        A file that a killed fit goes on from, see docs/scale.md; `n_init` must be 1.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

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
    covariances_ : array of shape (S, M, d, d)
        WWᵀ + σ²I, formed when asked for.
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

    From hmmlearn: its `n_components` are `n_states`, `startprob_` and `transmat_` are
    `start_probabilities_` and `transitions_`, `score` is divided by the number of rows, and
    `n_components` = d − 1 is a full covariance, 0 a spherical one.

    Likelihoods of different kernels, or of different kernel spaces, cannot be compared.
    A Baum–Welch step costs O(TS(dq + d² + S)); S³ a step where a sequence is longer than 200.
    Memory beyond the rows is O(T(S + d) + SMd²); the S×S sums of all T steps are never formed at
    once, but in blocks.

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
        prior_rows: float = 0.0,
        noise_floor: float = 1e-6,
        tied_noise: bool = False,
        tol: float = 1e-5,
        max_iter: int = 200,
        n_init: int = 1,
        preimage: Any = "auto",
        random_state: Any = None,
        verbose: bool = False,
        checkpoint: Any = None,
        device: str | None = None,
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
        self.prior_rows = prior_rows
        self.noise_floor = noise_floor
        self.tied_noise = tied_noise
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.preimage = preimage
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.device = device

    def fit(self, X: Any, y: Any = None, *, lengths: Any = None) -> HiddenMarkovPCA:
        """Fit by Baum–Welch.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
            Rows of all sequences, one sequence after another; or a sequence an entry. Never
            modified.
        y : ignored
        lengths : sequence of int, optional
            Rows of every sequence; a table without is one sequence.

        Returns
        -------
        self
        """
        return self._fit(X, y, lengths)

    def _fit(self, X: Any, y: Any, lengths: Any, unit: float | None = None) -> HiddenMarkovPCA:
        """Fit; `unit` is the variance that floor and prior are shares of, if not that of X."""
        check_plan(self)
        parts = parts_of(X)
        if parts is not None:
            return self._fit_parts(parts, lengths)
        X, lengths = joined(X, lengths)
        X = check_rows(self, X, reset=True, min_rows=2)
        refuse_misplaced(y, int(X.shape[0]))
        lengths = check_lengths(lengths, int(X.shape[0]))
        with named_columns(self), showing(self.verbose):
            self.kernel_space_, found = fit_chain(self, X, lengths, unit)
        self._model, record, smoothed = found
        self._publish(X, smoothed.states)
        publish_record(self, record)
        return self

    def _fit_parts(self, parts: ChunkedTable, lengths: Any) -> HiddenMarkovPCA:
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
        xp, emissions = backend.namespace(X), model.emissions
        self.start_probabilities_ = beside(model.chain.start, X)
        self.transitions_ = beside(model.chain.transitions, X)
        self.weights_ = beside(model.shares, X)
        self.means_ = backend.cast_like(xp.reshape(emissions.means, (S, M, -1)), X)
        W = [backend.cast_like(one, X) for one in emissions.loadings]
        self.loadings_ = [W[s * M : (s + 1) * M] for s in range(S)]
        self.noise_variances_ = backend.cast_like(xp.reshape(emissions.noises, (S, M)), X)
        moments = input_moments(X, states) if self.kernel_space_ else model.state_moments()
        self.state_means_, self.state_variances_ = (backend.cast_like(m, X) for m in moments)
        self.visits_ = beside(states.sum(axis=0), X)
        self._warn_of_unvisited(states.sum(axis=0))
        self._warn_of_collapsed(states.sum(axis=0))

    def _warn_of_unvisited(self, visits: np.ndarray[Any, Any]) -> None:
        empty = np.flatnonzero(visits < UNVISITED)
        if empty.size:
            warn(
                f"states {empty.tolist()} are never visited: they explain no rows, and their "
                "parameters say nothing. Use fewer states, or another random_state.",
                StateWarning,
            )

    def _warn_of_collapsed(self, visits: np.ndarray[Any, Any]) -> None:
        M = self._model.shares.shape[1]
        held = sorted({k // M for k in self._model.emissions.at_floor()})
        held = [s for s in held if visits[s] >= UNVISITED]
        if held:
            warn(
                f"the noise of states {held} is held at noise_floor: they explain single rows, "
                "copies of few, or rows in a plane. Use fewer states or components, prior_rows, "
                "tied_noise=True or a larger noise_floor.",
                CollapseWarning,
            )

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.array_api_support = True
        return tags
