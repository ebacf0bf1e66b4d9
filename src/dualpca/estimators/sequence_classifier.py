"""Classes of sequences: one hidden Markov model each."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dualpca.arrays import Array, backend
from dualpca.data import refuse_infinite
from dualpca.errors import expected
from dualpca.estimators._base import Saved, check_rows, named_columns
from dualpca.estimators._chain_fits import check_columns, check_plan, coordinates, fit_space
from dualpca.estimators._placing import OnDevice
from dualpca.estimators._sequences import check_lengths, joined
from dualpca.estimators.hidden_markov import HiddenMarkovPCA
from dualpca.models.chain import log, log_sum
from dualpca.models.kernel_space import KernelSpace


class SequenceClassifier(OnDevice, Saved, ClassifierMixin, BaseEstimator):
    """Bayes' rule over sequences: P(c | X) ∝ P(c) p(X | c), a hidden Markov model for each class.

    With a kernel all classes share one kernel space, found from all training rows: densities in
    different spaces could not be compared. For the same reason the floor of σ² and the prior are
    the same for all.

    Parameters
    ----------
    model : HiddenMarkovPCA, optional
        What to fit to each class; None for `HiddenMarkovPCA()`.
    priors : 'frequencies', 'equal' or array of shape (n_classes,)
        P(c), in the order of `classes_`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    models_ : list of HiddenMarkovPCA
        Fitted to the rows or, with a kernel, to their places in `kernel_space_`.
    priors_ : array of shape (n_classes,)
    kernel_space_ : KernelSpace or None

    Notes
    -----
    Sequences come as rows with `lengths`, as a list of tables, or as one array (m, T, d). A table
    without `lengths` holds sequences of one row each.

    Cost and memory are those of one `HiddenMarkovPCA` a class, O(TS(dq + d² + S)) a step over the
    T rows of all classes together, and a sequence is scored by every class; memory is that of the
    largest fit. A kernel of all rows is never formed: `n_landmarks` points stand for them.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import HiddenMarkovPCA, SequenceClassifier
    >>> rng = np.random.default_rng(0)
    >>> rising = [np.linspace(0, 3, 20)[:, None] + rng.normal(size=(20, 2)) for _ in range(10)]
    >>> falling = [x[::-1] for x in rising]
    >>> model = HiddenMarkovPCA(3, 1, topology="left-to-right")
    >>> rule = SequenceClassifier(model).fit(rising[:5] + falling[:5], ["up"] * 5 + ["down"] * 5)
    >>> rule.score(rising[5:] + falling[5:], ["up"] * 5 + ["down"] * 5)
    1.0
    """

    classes_: np.ndarray[Any, Any]
    models_: list[HiddenMarkovPCA]
    priors_: np.ndarray[Any, Any]
    kernel_space_: KernelSpace | None
    n_features_in_: int

    def __init__(self, model: HiddenMarkovPCA | None = None, priors: Any = "frequencies") -> None:
        self.model = model
        self.priors = priors

    @property
    def _device(self) -> str | None:
        return getattr(self.model, "device", None)

    def _share(self, twin: Any) -> None:
        super()._share(twin)
        twin.model = None if self.model is None else self.model._without_device()

    def fit(self, X: Any, y: Any, *, lengths: Any = None) -> SequenceClassifier:
        """Fit one model to the sequences of each class.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
            Never modified.
        y : array of shape (m,)
            The class of every sequence.
        lengths : sequence of int, optional

        Returns
        -------
        self
        """
        base = HiddenMarkovPCA() if self.model is None else self.model
        if not isinstance(base, HiddenMarkovPCA):
            raise ValueError(expected("model", "a HiddenMarkovPCA or None", base))
        if base.checkpoint is not None:
            what = "None: one file cannot be that of a model a class"
            raise ValueError(expected("checkpoint of the model", what, base.checkpoint))
        check_plan(base)
        X, lengths = self._sequences(X, lengths, reset=True)
        labels = self._labels(y, len(lengths))
        self.classes_, which = np.unique(labels, return_inverse=True)
        self.priors_ = self._check_priors(np.bincount(which))
        refuse_infinite(X)
        with named_columns(self):
            check_columns(X)
        self.kernel_space_ = None if base.kernel is None else fit_space(base, X)
        Z = coordinates(self.kernel_space_, X)
        self._home = Z[:1, :]
        unit = check_columns(Z)
        self._refuse_short_classes(base, np.bincount(which, weights=lengths))
        self.models_ = [
            self._fit_class(base, Z, lengths, which == c, unit) for c in np.unique(which)
        ]
        return self

    def _refuse_short_classes(self, base: HiddenMarkovPCA, rows: np.ndarray[Any, Any]) -> None:
        """Refuse a class with fewer rows than components, by its name."""
        needed = max(2, int(base.n_states) * int(base.n_mixtures))
        for name, n in zip(self.classes_.tolist(), rows.tolist(), strict=True):
            if n < needed:
                what = f"at least {needed}, as many as n_states times n_mixtures"
                remedy = "Use fewer states, or leave the class out."
                raise ValueError(expected(f"the rows of class {name!r}", what, int(n), remedy))

    @staticmethod
    def _fit_class(
        base: HiddenMarkovPCA, Z: Array, lengths: Any, mine: Any, unit: float
    ) -> HiddenMarkovPCA:
        """Fit the model of one class, its floor and its prior in the unit of all rows."""
        own = backend.take(Z, np.flatnonzero(np.repeat(mine, lengths)))
        model: HiddenMarkovPCA = clone(base).set_params(kernel=None)
        return model._fit(own, None, lengths[mine], unit)

    def _sequences(self, X: Any, lengths: Any, *, reset: bool) -> tuple[Array, Any]:
        """Return checked rows and lengths."""
        X, lengths = joined(X, lengths)
        X = check_rows(self, X, reset=reset, min_rows=2 if reset else 1)
        if lengths is None:  # rows of a frame or a list of lists, each a sequence
            lengths = np.ones(int(X.shape[0]), dtype=np.int64)
        return X, check_lengths(lengths, int(X.shape[0]))

    def _labels(self, y: Any, m: int) -> np.ndarray[Any, Any]:
        """Return the class of every sequence, on the host."""
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None.")
        labels = column_or_1d(backend.to_numpy(y) if backend.is_foreign(y) else y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        if len(labels) != m:
            what = f"one class for each of the {m} sequences"
            remedy = "Give lengths=[...] or a list of tables, a sequence each."
            raise ValueError(expected("y", what, f"{len(labels)} entries", remedy))
        return np.asarray(labels)

    def _check_priors(self, counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return P(c)."""
        if isinstance(self.priors, str) and self.priors in ("frequencies", "equal"):
            weights = counts if self.priors == "frequencies" else np.ones(len(counts))
            return np.asarray(weights / weights.sum())
        what = f"'frequencies', 'equal' or {len(counts)} probabilities that sum to 1"
        if isinstance(self.priors, str) or np.shape(self.priors) != counts.shape:
            raise ValueError(expected("priors", what, self.priors))
        p = np.asarray(self.priors, dtype=np.float64)
        if not np.all(p >= 0) or abs(p.sum() - 1) > 1e-6:
            raise ValueError(expected("priors", what, self.priors))
        return p

    def score_classes(self, X: Any, lengths: Any = None) -> np.ndarray[Any, Any]:
        """Return ln p(X | c) of every sequence under every class, (m, n_classes).

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
        check_is_fitted(self)
        X, lengths = self._sequences(X, lengths, reset=False)
        backend.require_same_home(X, self._home, f"{type(self).__name__}.score_classes")
        Z = coordinates(self.kernel_space_, X)
        scores = [backend.to_numpy(m.score_sequences(Z, lengths)) for m in self.models_]
        return np.stack(scores, axis=1)

    def predict_log_proba(self, X: Any, lengths: Any = None) -> np.ndarray[Any, Any]:
        """Return ln P(c | X) of every sequence, (m, n_classes).

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
        joint = self.score_classes(X, lengths) + log(self.priors_)
        return np.asarray(joint - log_sum(joint, 1)[:, None])

    def predict_proba(self, X: Any, lengths: Any = None) -> np.ndarray[Any, Any]:
        """Return P(c | X) of every sequence, (m, n_classes).

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
        return np.asarray(np.exp(self.predict_log_proba(X, lengths)))

    def predict(self, X: Any, lengths: Any = None) -> np.ndarray[Any, Any]:
        """Return the most probable class of every sequence, (m,).

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, optional
            As in `fit`.
        """
        best = np.argmax(self.predict_log_proba(X, lengths), axis=1)
        return np.asarray(self.classes_[best])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, lengths: Any = None) -> float:
        """Return the share of sequences that are classified as y says.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        y : array of shape (m,)
            The class of every sequence.
        lengths : sequence of int, optional
            As in `fit`.
        sample_weight : array of shape (n,), optional
        """
        from sklearn.metrics import accuracy_score  # here, because it brings much of scikit-learn

        return float(accuracy_score(y, self.predict(X, lengths), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
