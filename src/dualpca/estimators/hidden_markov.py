"""Principal components through time: a hidden Markov model of subspaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, field
from typing import Any, Self

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import Host, Table, Units, is_elsewhere
from dualpca.errors import CollapseWarning, StateWarning, expected, warn
from dualpca.estimators._attributes import attribute, unit_of_columns
from dualpca.estimators._checks import (
    check_choice,
    check_draws,
    check_number,
    check_numbers,
    is_table,
)
from dualpca.estimators._kernel import method_of
from dualpca.estimators._shell import Estimator, iterative_request, parametrized
from dualpca.estimators._types import Column, KernelLike, Lengths, Resumable, Rows, Seed
from dualpca.estimators.mixture import check_kernel_params, inputs_of, whole_numbers
from dualpca.models import hidden_markov
from dualpca.models.hidden_markov import HiddenMarkovModel, HiddenMarkovRequest
from dualpca.preimages import Method

TOPOLOGIES = ("ergodic", "left-to-right")

RULE = "bic"
"""The rule that chooses numbers of states and of directions."""


@parametrized
class HiddenMarkovPCA(Estimator):
    """Hidden Markov model whose states emit probabilistic PCA, or mixtures of it.

    State s emits x ~ Σ_m c_sm N(μ_sm, W_smW_smᵀ + σ_sm²I) in the input space or, with a kernel, in
    one kernel space common to all states; states follow a Markov chain. Fitted by Baum–Welch.

    Parameters
    ----------
    n_states : int or 'bic', default='bic'
        S. 'bic' tries 1, 2, … until larger numbers are worse, and 20 at most, with a warning.
    n_components : int, sequence of int, 'bic' or None, default=None
        q, of all states or of each; below the number of features (or of `n_directions`). 'bic'
        tries 0, 1, …, and None is 'bic'.
    n_mixtures : int, default=1
        M, components per state.
    kernel : None, str, Kernel, Gaussian-process kernel or callable, default=None
        None for the input space. Time may enter as a column: `RBF(on=[0, 1]) * RBF(on=[2])`.
    gamma : float or str, default=None
        Of a kernel given by name; None is 1/d.
    kernel_params : dict, default=None
        Other parameters of a kernel given by name.
    n_directions : int, default=20
        Dimension m of the kernel space.
    n_landmarks : int, default=500
        Rows that span it where there are more than a thousand.
    topology : {'ergodic', 'left-to-right'}, default='ergodic'
        Any state after any other; or each state may only stay or move to the next, and sequences
        start in the first.
    stickiness : float, default=0.0
        Pseudo-count of stays in every state: a Dirichlet prior, which EM maximises with the
        likelihood. 0 for none.
    prior_rows : float, default=0.0
        Pseudo-rows counted in for every component: spread evenly around its mean with
        the average variance of the features (an inverse Wishart prior with a round scale, which
        EM maximises with the likelihood). Helps where states have few rows per feature; scale
        the features alike then. 0 for none.
    noise_floor : float, default=1e-06
        Smallest σ², as a share of the average variance of the features.
    tied_noise : bool, default=False
        One σ² for all states.
    tol : float, default=1e-05
        Gain of log-likelihood per row below which Baum–Welch stops.
    max_iter : int, default=200
    n_init : int, default=1
        Starts, of which the most likely end is kept.
    preimage : str or method, default='auto'
        How `sample` comes back from kernel space.
    random_state : None, int, Generator or RandomState, default=None
        None is a fixed seed.
    standardize : {'auto', True, False}, default='auto'
        Divide every column by its standard deviation (over observed entries, divisor n; a
        constant one by 1) before the fit, so that no unit counts more than another. Rows, means,
        loadings, densities and covariances are given in the units of X all the same; axes,
        variances along them and noise are those of standardised columns. A kernel is one of
        standardised rows. 'auto' does so where columns seem to have different units, as in
        `Imputer`; `scale_` says whether it was done.
    verbose : bool, default=False
    checkpoint : path or Checkpoint, default=None
        A file that a killed fit resumes from, see docs/guide/large-data.md; `n_init` must be 1.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.

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
    scale_ : array of shape (d,) or None
        What every column was divided by; None where columns are fitted in their own units.
    visits_ : array of shape (S,)
        Expected number of training rows in every state.
    loglikelihood_ : float
        Of all training sequences, plus the log-density of the prior where there is one.
    loglikelihoods_ : list of float
        At every step; never falls.
    n_parameters_ : int
        Free parameters: chain, shares, and those of every component with its mean.
    n_states_ : int
    n_components_ : list of S lists of M ints
    selection_ : MixtureSelection
        After 'bic': `candidates` (S, q), their `scores`, and the one `chosen`.
    n_iter_ : int
    converged_ : bool
    kernel_space_ : KernelSpace or None

    Notes
    -----
    Sizes are chosen as those of `MixturePPCA`, by BIC over all rows (the first 20,000 of chunks):
    one fit with a loose `tol` for every candidate. Give `n_states` where states are known.

    NaN is accepted in the input space: rows count with what they observed. With a kernel a row with
    NaN has no place in feature space and counts as not observed at all; the chain leads across it.

    States, and the components of each, are numbered by their means, smallest first, as those of
    `MixturePPCA`; from left to right, by time.

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

    _model: HiddenMarkovModel = field(init=False)
    _accepts_nan = True
    _finds_units = True

    start_probabilities_ = attribute("start")
    transitions_ = attribute("transitions")
    weights_ = attribute("shares")
    means_ = attribute("means", Units.outward)
    loadings_ = attribute("loadings", Units.loadings)
    noise_variances_ = attribute("noises")
    covariances_ = attribute("covariances", Units.covariance)
    state_means_ = attribute("state_means", Units.outward, inputs=True)
    state_variances_ = attribute("state_variances", Units.variances, inputs=True)
    visits_ = attribute("visits")
    n_parameters_ = attribute("density.n_parameters")
    loglikelihood_ = attribute("history.loglikelihood", Units.loglikelihood)
    loglikelihoods_ = attribute("history.loglikelihoods", Units.loglikelihood)
    kernel_space_ = attribute("space", optional=True)
    scale_ = unit_of_columns()
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")
    n_states_ = attribute("density.chain.n_states")
    n_components_ = attribute("n_components")
    selection_ = attribute("selection")

    n_states: int | str = "bic"
    n_components: int | Sequence[int] | str | None = None
    n_mixtures: int = 1
    kernel: KernelLike = None
    _: KW_ONLY
    gamma: float | str | None = None
    kernel_params: dict[str, Any] | None = None
    n_directions: int = 20
    n_landmarks: int = 500
    topology: str = "ergodic"
    stickiness: float = 0.0
    prior_rows: float = 0.0
    noise_floor: float = 1e-6
    tied_noise: bool = False
    tol: float = 1e-5
    max_iter: int = 200
    n_init: int = 1
    preimage: str | Method = "auto"
    random_state: Seed = None
    standardize: bool | str = "auto"
    verbose: bool = False
    checkpoint: Resumable = None
    device: str | None = None

    @property
    def _depends_on_units(self) -> bool:  # type: ignore[override]
        return self.kernel is None

    @property
    def _model_units(self) -> Units | None:
        """The units of what states emit: None for the space of a kernel."""
        return self._units if self.kernel is None else None

    def _request(self) -> HiddenMarkovRequest:
        """Check the parameters and return them for the fit."""
        check_choice("topology", self.topology, TOPOLOGIES)
        method_of(self.preimage)
        known = () if isinstance(self.n_states, str) else ("n_states",)
        counts = (*known, "n_mixtures", "n_directions", "n_landmarks", "n_init")
        check_rules(self.n_states, self.n_components)
        numbers = ("stickiness", "prior_rows", "noise_floor")
        check_numbers(self, counts, numbers, flags=("tied_noise",))
        check_kernel_params(self.kernel_params)
        return iterative_request(self, HiddenMarkovRequest, rng=self._seed)

    def fit(self, X: Rows, y: object = None, *, lengths: Lengths = None) -> HiddenMarkovPCA:
        """Fit by Baum–Welch.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, array of shape (m, T, d), or a chunked table
            Rows of all sequences, one sequence after another; or one sequence per entry. Never
            modified. Chunked: `Batches`, Dask, Zarr, a path; sequences may not cross chunks.
        y : ignored, default=None
        lengths : sequence of int, default=None
            Rows of every sequence. Without, a table is one sequence, and so is every chunk.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> HiddenMarkovPCA(2, random_state=0).fit(X).transitions_.shape
        (2, 2)
        """
        X, lengths = joined(X, lengths)

        def fit(table: Table, request: HiddenMarkovRequest) -> HiddenMarkovModel:
            refuse_misplaced(y, table.n)
            return hidden_markov.fit_hidden_markov(table, lengths, request)

        return self._learn(fit, X)

    def _keep(self, model: HiddenMarkovModel) -> Self:  # type: ignore[override]
        """Keep a fitted model; warn of states without meaning."""
        empty, held = model.unvisited(), model.collapsed()
        if empty:
            warn(
                f"states {empty} are never visited: they explain no rows, and their parameters "
                "are meaningless. Use fewer states, or another random_state.",
                StateWarning,
            )
        if held:
            warn(
                f"the noise of states {held} is held at noise_floor: they explain single rows, "
                "copies of few, or rows in a plane. Use fewer states or components, prior_rows, "
                "tied_noise=True or a larger noise_floor.",
                CollapseWarning,
                degenerate=True,
            )
        return super()._keep(model)

    def _sequences(self, X: Rows, lengths: Lengths, method: str) -> tuple[Array, Host, Rows]:
        """Return checked rows where the model works, lengths, and what the rows came as."""
        X, lengths = joined(X, lengths)
        rows = self._asked(X, method)
        return rows, hidden_markov.check_lengths(lengths, int(rows.shape[0])), X

    def predict(self, X: Rows, lengths: Lengths = None) -> Array:
        """Return the most probable path of states (Viterbi).

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.

        Returns
        -------
        states : array of shape (T,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> np.flatnonzero(np.diff(model.predict(X)))
        array([39, 79])
        """
        return self._most_probable(X, lengths, "predict")[1]

    def decode(self, X: Rows, lengths: Lengths = None) -> tuple[float, Array]:
        """Return the most probable paths.

        Parameters
        ----------
        X : array of shape (T, d)
        lengths : sequence of int, default=None

        Returns
        -------
        log_probability : float
            ln p(X, path), of all sequences together.
        states : array of shape (T,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> value, path = model.decode(X)
        >>> path.shape
        (120,)
        """
        return self._most_probable(X, lengths, "decode")

    def _most_probable(self, X: Rows, lengths: Lengths, method: str) -> tuple[float, Array]:
        rows, steps, X = self._sequences(X, lengths, method)
        logs, path = self._working.decode(rows, steps)
        total = float(logs.sum() - self._log_volumes(rows, steps).sum())
        return total, self._home(whole_numbers(path, rows), X)

    def _log_volumes(self, rows: Array, lengths: Host) -> Host:
        """Return what the log-density of every sequence changes by in the units of X, (m,)."""
        units = self._model_units
        if units is None:
            return np.zeros(len(lengths))
        each, ends = backend.to_numpy(units.log_densities(rows)), np.cumsum(lengths)[:-1]
        return np.array([float(part.sum()) for part in np.split(each, ends)])

    def predict_proba(self, X: Rows, lengths: Lengths = None) -> Array:
        """Return the probability of every state given the whole sequence (smoothing).

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.

        Returns
        -------
        probabilities : array of shape (T, S)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> model.predict_proba(X).shape
        (120, 2)
        """
        rows, steps, X = self._sequences(X, lengths, "predict_proba")
        return self._home(beside(self._working.smooth(rows, steps).states, rows), X)

    def filter(self, X: Rows, lengths: Lengths = None, *, previous: Column | None = None) -> Array:
        """Return the probability of every state given the rows so far.

        One step at a time: give one row, and as `previous` the answer to the row before.

        Parameters
        ----------
        X : array of shape (T, d)
        lengths : sequence of int, default=None
        previous : array of shape (S,), default=None
            States one step before the first row; None starts a new sequence.

        Returns
        -------
        probabilities : array of shape (T, S)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> model.filter(X).shape
        (120, 2)
        """
        rows, steps, X = self._sequences(X, lengths, "filter")
        found = self._working.filter(rows, steps, self._states(previous))
        return self._home(beside(found, rows), X)

    def _states(self, previous: Column | None) -> Host | None:
        """Check a distribution over states."""
        if previous is None:
            return None
        p = np.asarray(backend.to_numpy(previous), dtype=np.float64).reshape(-1)
        S = int(self.state_means_.shape[0])
        if p.shape != (S,) or not np.all(p >= 0) or abs(p.sum() - 1) > 1e-3:
            what = f"{S} probabilities that sum to 1, as `filter` returns for one row"
            raise ValueError(expected("previous", what, previous))
        return np.asarray(p / p.sum())

    def forecast(
        self, X: Rows, n_steps: int = 1, *, previous: Column | None = None, return_std: bool = False
    ) -> Any:
        """Return the mean of the next rows of one sequence.

        Σ_s P(s_{T+h} | rows) E[x | s], with the standard deviation of a new row, that of the
        states included.

        Parameters
        ----------
        X : array of shape (T, d)
            The sequence until now.
        n_steps : int, default=1
        previous : array of shape (S,), default=None
            As in `filter`.
        return_std : bool, default=False

        Returns
        -------
        array of shape (n_steps, d), or a pair of them

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> model.forecast(X, 3).shape
        (3, 3)
        """
        check_number("n_steps", n_steps, 1, integer=True)
        rows, _, X = self._sequences(X, None, "forecast")
        mean, variance = self._working.forecast(rows, int(n_steps), self._states(previous))
        deviation = backend.namespace(variance).sqrt(variance)
        both = (self._outward(Units.outward, mean), self._outward(Units.spread, deviation))
        found = tuple(self._home(backend.cast_like(values, rows), X) for values in both)
        return found if return_std else found[0]

    def score_sequences(self, X: Rows, lengths: Lengths = None) -> Array:
        """Return the log-likelihood of every sequence.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.

        Returns
        -------
        scores : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> model.score_sequences(X, lengths=[60, 60]).shape
        (2,)
        """
        rows, steps, X = self._sequences(X, lengths, "score_sequences")
        logs = self._working.loglikelihoods(rows, steps) - self._log_volumes(rows, steps)
        return self._home(backend.asarray(logs, rows), X)

    def score(self, X: Rows, y: object = None, *, lengths: Lengths = None) -> float:
        """Return the log-likelihood of all sequences, divided by the number of rows.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        y : ignored, default=None
        lengths : sequence of int, default=None
            As in `fit`.

        Returns
        -------
        score : float

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> round(model.score(X), 1)
        -4.3
        """
        total, n = self._total(X, lengths, "score")
        return total / n

    def bic(self, X: Rows, lengths: Lengths = None) -> float:
        """Return the Bayesian information criterion; lower is better.

        It is −2 ln L + p ln T for p parameters and T rows. Models with different kernels cannot be
        compared by it.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.

        Returns
        -------
        bic : float

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> one = HiddenMarkovPCA(1, random_state=0).fit(X)
        >>> bool(model.bic(X) < one.bic(X))
        True
        """
        total, n = self._total(X, lengths, "bic")
        return -2 * total + math.log(n) * int(self._fitted.density.n_parameters())

    def aic(self, X: Rows, lengths: Lengths = None) -> float:
        """Return Akaike's information criterion; lower is better.

        It is −2 ln L + 2p for p parameters. Models with different kernels cannot be compared by it.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.

        Returns
        -------
        aic : float

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> bool(model.aic(X) < model.bic(X))
        True
        """
        total, _ = self._total(X, lengths, "aic")
        return -2 * total + 2 * int(self._fitted.density.n_parameters())

    def _total(self, X: Rows, lengths: Lengths, method: str) -> tuple[float, int]:
        """Return the log-likelihood of all sequences together, and the number of rows."""
        rows, steps, X = self._sequences(X, lengths, method)
        logs = self._working.loglikelihoods(rows, steps) - self._log_volumes(rows, steps)
        return float(logs.sum()), int(rows.shape[0])

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> tuple[Array, Array]:
        """Draw one sequence.

        Parameters
        ----------
        n_samples : int, default=1
            Length of the sequence.
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        X : array of shape (n_samples, d)
            With a kernel, pre-images of what was drawn in kernel space.
        states : array of shape (n_samples,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA
        >>> states = np.repeat([0, 1, 0], 40)
        >>> X = np.random.default_rng(0).normal(size=(120, 3)) + 4.0 * states[:, None]
        >>> model = HiddenMarkovPCA(2, random_state=0).fit(X)
        >>> rows, path = model.sample(5, random_state=0)
        >>> rows.shape, path.shape
        ((5, 3), (5,))
        """
        model = self._fitted
        points, path = model.density.sample(*check_draws(n_samples, random_state))
        points = inputs_of(points, model.space, method_of(self.preimage))
        rows = self._outward(Units.outward, points)
        return backend.cast_like(rows, model.state_means), whole_numbers(path, rows)


def beside(values: Host, rows: Array) -> Array:
    """Return host values in the library, device and dtype of the rows."""
    return backend.cast_like(backend.asarray(np.ascontiguousarray(values), rows), rows)


# --- Sequences as they come in: rows with lengths, lists of tables, blocks of equal lengths ------


def refuse_misplaced(y: object, n: int | None) -> None:
    """Refuse a second argument that is neither None nor one label per row: lengths go by name."""
    if y is None or n is None or not hasattr(y, "__len__") or len(y) == n:
        return
    remedy = "The lengths of sequences are given by name: fit(X, lengths=[...])."
    raise ValueError(expected("y", f"None, or one entry for each of {n} rows", y, remedy))


def check_rules(n_states: Any, n_components: Any) -> None:
    """Refuse words that are not the rule, and numbers of directions for unknown states."""
    if isinstance(n_states, str) and n_states != RULE:
        raise ValueError(expected("n_states", f"a positive integer or {RULE!r}", n_states))
    if isinstance(n_components, str) and n_components != RULE:
        what = f"None, {RULE!r}, a whole number, or one for each state"
        raise ValueError(expected("n_components", what, n_components))
    if isinstance(n_states, str) and isinstance(n_components, list | tuple):
        remedy = "Give n_states as an int, or one whole number for all states."
        raise ValueError(
            expected("n_components", f"no list with n_states={RULE!r}", n_components, remedy)
        )


def joined(X: Rows, lengths: Lengths) -> tuple[Rows, Lengths]:
    """Return sequences as rows, one after another, and their lengths.

    A list of tables, or one array (m, T, d), holds one sequence per entry. Anything else stays as
    it is: rows, with `lengths` or without, or a chunked table.
    """
    if lengths is not None or is_elsewhere(X):
        return X, lengths
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 3:
        steps = [int(shape[1])] * int(shape[0])
        return backend.namespace(X).reshape(X, (-1, shape[2])), steps
    several = list(X) if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 else X
    if isinstance(several, list | tuple) and several and is_table(several[0]):
        return _stacked([x if hasattr(x, "shape") else np.asarray(x) for x in several])
    return several, lengths


def _stacked(tables: list[Array]) -> tuple[Array, list[int]]:
    """Return tables one below another, and their lengths."""
    width = tables[0].shape[-1]
    for i, table in enumerate(tables):
        if table.ndim != 2 or table.shape[1] != width or table.shape[0] < 1:
            what = f"a table of at least one row and {width} columns, as the first"
            raise ValueError(expected(f"sequence {i}", what, tuple(table.shape)))
    rows = backend.namespace(tables[0]).concat(tables, axis=0)
    return rows, [int(x.shape[0]) for x in tables]
