"""What a fitted hidden Markov model answers: paths, probabilities, forecasts, draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import check_number, check_rows, generator
from dualpca.estimators._chain_fits import coordinates, predicted, pulled_back
from dualpca.estimators._sequences import check_lengths, joined
from dualpca.models.hidden_markov import HiddenMarkov
from dualpca.models.kernel_space import KernelSpace


class ChainMethods:
    """The methods of HiddenMarkovPCA that need a fit."""

    _model: HiddenMarkov
    n_features_in_: int
    kernel_space_: KernelSpace | None
    transitions_: Array
    state_means_: Array
    state_variances_: Array
    preimage: Any

    def _new(self, X: Any, lengths: Any, method: str) -> tuple[Array, Array, Any]:
        """Return checked rows, what the states emit of them, and lengths."""
        check_is_fitted(self)
        X, lengths = joined(X, lengths)
        X = check_rows(self, X, reset=False)
        backend.require_same_home(X, self.transitions_, f"{type(self).__name__}.{method}")
        lengths = check_lengths(lengths, int(X.shape[0]))
        return X, coordinates(self.kernel_space_, X), lengths

    def predict(self, X: Any, lengths: Any = None) -> Array:
        """Return the states of the most probable paths (Viterbi), (T,).

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
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
        xp = backend.namespace(X)
        return float(logs.sum()), xp.asarray(path, device=backend.device_of(X))

    def predict_proba(self, X: Any, lengths: Any = None) -> Array:
        """Return P(s_t | whole sequence), (T, S): smoothing.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
        X, Z, lengths = self._new(X, lengths, "predict_proba")
        return beside(self._model.smooth(Z, lengths).states, X)

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
        return beside(self._model.filter(Z, lengths, self._states(previous)), X)

    def _states(self, previous: Any) -> np.ndarray[Any, Any] | None:
        """Check a distribution over states."""
        if previous is None:
            return None
        p = np.asarray(backend.to_numpy(previous), dtype=np.float64).reshape(-1)
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
        ahead = backend.asarray(self._model.chain.after(now, int(n_steps)), X)
        mean, variance = predicted(ahead, self.state_means_, self.state_variances_)
        mean = backend.cast_like(mean, X)
        std = backend.cast_like(backend.namespace(X).sqrt(variance), X)
        return (mean, std) if return_std else mean

    def score_sequences(self, X: Any, lengths: Any = None) -> Array:
        """Return the log-likelihood of every sequence, (m,).

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
        X, Z, lengths = self._new(X, lengths, "score_sequences")
        return backend.asarray(self._model.loglikelihoods(Z, lengths), X)

    def score(self, X: Any, y: Any = None, *, lengths: Any = None) -> float:
        """Return the log-likelihood of all sequences, divided by the number of rows.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        y : ignored
        lengths : sequence of int, optional
            As in `fit`.
        """
        X, Z, lengths = self._new(X, lengths, "score")
        return float(self._model.loglikelihoods(Z, lengths).sum()) / int(X.shape[0])

    def bic(self, X: Any, lengths: Any = None) -> float:
        """Return −2 ln L + p ln T; lower is better. Not across kernels or their spaces.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
        X, Z, lengths = self._new(X, lengths, "bic")
        return self._criterion(Z, lengths, math.log(int(X.shape[0])))

    def aic(self, X: Any, lengths: Any = None) -> float:
        """Return −2 ln L + 2p; lower is better. Not across kernels or their spaces.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
        _, Z, lengths = self._new(X, lengths, "aic")
        return self._criterion(Z, lengths, 2.0)

    def _criterion(self, Z: Array, lengths: Any, price: float) -> float:
        total = float(self._model.loglikelihoods(Z, lengths).sum())
        return -2 * total + price * self._model.n_parameters()

    @property
    def covariances_(self) -> Array:
        """W_smW_smᵀ + σ_sm²I, (S, M, d, d); formed when asked for."""
        check_is_fitted(self)
        xp, (S, M) = backend.namespace(self.transitions_), self._model.shares.shape
        e, d = self._model.emissions, self._model.emissions.dim
        eye = backend.asarray(np.eye(d), e.means)
        every = [W @ W.T + s2 * eye for W, s2 in zip(e.loadings, e.noises, strict=True)]
        return backend.cast_like(xp.reshape(xp.stack(every), (S, M, d, d)), self.transitions_)

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
        xp = backend.namespace(like)
        return backend.cast_like(rows, like), xp.asarray(path, device=backend.device_of(like))


def beside(values: np.ndarray[Any, Any], X: Array) -> Array:
    """Return host values in the library, device and dtype of X."""
    return backend.cast_like(backend.asarray(np.ascontiguousarray(values), X), X)
