"""Classes of sequences: one hidden Markov model each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dualpca.arrays import Array, backend
from dualpca.data import Host
from dualpca.errors import expected
from dualpca.estimators._attributes import attribute, unit_of_columns
from dualpca.estimators._checks import ESTIMATED, check_choice
from dualpca.estimators._shell import Estimator, parametrized
from dualpca.estimators._types import Column, Lengths, Rows, Weights
from dualpca.estimators.hidden_markov import HiddenMarkovPCA, joined
from dualpca.models import hidden_markov
from dualpca.models.hidden_markov import HiddenMarkovRequest, SequenceClassesModel


@parametrized
class SequenceClassifier(ClassifierMixin, Estimator):
    """Bayes' rule over sequences: P(c | X) ∝ P(c) p(X | c), a hidden Markov model for each class.

    With a kernel all classes share one kernel space, found from all training rows: densities in
    different spaces could not be compared. For the same reason the floor of σ² and the prior are
    the same for all.

    Parameters
    ----------
    model : HiddenMarkovPCA, default=None
        What to fit to each class; None for `HiddenMarkovPCA()`, which chooses the numbers of states
        and of directions for every class. Columns are standardised as it says, over all classes.
    priors : 'frequencies', 'equal' or array of shape (n_classes,), default='frequencies'
        P(c), in the order of `classes_`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    models_ : list of HiddenMarkovPCA
        Fitted to the rows or, with a kernel, to their places in `kernel_space_`.
    priors_ : array of shape (n_classes,)
    certainty_ : float
        β, at most 1: P(c | X) ∝ P(c) p(X | c)^β is as sure as training sequences show that were
        left out of the fit in turn; 1 for many sequences.
    n_parameters_ : int
        Free parameters of the models of all classes.
    scale_ : array of shape (d,) or None
        What every column was divided by; None where columns are fitted in their own units.
    kernel_space_ : KernelSpace or None

    Notes
    -----
    Sequences come as rows with `lengths`, as a list of tables, or as one array (m, T, d). A table
    without `lengths` holds sequences of one row each.

    Cost and memory are those of one `HiddenMarkovPCA` per class, O(TS(dq + d² + S)) a step over the
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

    _model: SequenceClassesModel = field(init=False)
    _accepts_nan = True
    _finds_units = True

    classes_ = attribute("classes")
    priors_ = attribute("priors")
    certainty_ = attribute("certainty")
    n_parameters_ = attribute("n_parameters")
    kernel_space_ = attribute("space", optional=True)
    scale_ = unit_of_columns()

    model: HiddenMarkovPCA | None = None
    priors: str | Sequence[float] | Host = "frequencies"

    @property
    def device(self) -> str | None:  # type: ignore[override]
        """Where to work, as the model says."""
        return getattr(self.model, "device", None)

    @property
    def verbose(self) -> bool:  # type: ignore[override]
        """Whether to show progress, as the model says."""
        return bool(getattr(self.model, "verbose", False))

    @property
    def standardize(self) -> bool | str:
        """Whether columns are divided by their spread, as the model says."""
        return getattr(self._base, "standardize", False)

    @property
    def _depends_on_units(self) -> bool:  # type: ignore[override]
        return getattr(self._base, "kernel", None) is None

    @property
    def models_(self) -> list[HiddenMarkovPCA]:
        """The models of all classes."""
        shells: list[HiddenMarkovPCA] = []
        for model in self._fitted.models:
            shells.append(clone(self._base).set_params(kernel=None, device=None))
            shells[-1].n_features_in_, shells[-1]._model = int(model.state_means.shape[1]), model
            shells[-1]._set_units(self._units if self._fitted.space is None else None)
        return shells

    @property
    def _base(self) -> HiddenMarkovPCA:
        """What is fitted to each class."""
        return HiddenMarkovPCA() if self.model is None else self.model

    def fit(self, X: Rows, y: Column | None, *, lengths: Lengths = None) -> SequenceClassifier:
        """Fit one model to the sequences of each class.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
            Never modified.
        y : array of shape (m,)
            The class of every sequence.
        lengths : sequence of int, default=None

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA, SequenceClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = [rng.normal(size=(20, 2)) * (1 + 2 * (k % 2)) for k in range(6)]
        >>> y = ["calm", "wild"] * 3
        >>> SequenceClassifier(HiddenMarkovPCA(1, random_state=0)).fit(X, y).classes_
        array(['calm', 'wild'], dtype='<U4')
        """
        request = self._request()
        X, lengths = joined(X, lengths)
        with self._training(np.asarray(X) if isinstance(X, np.memmap) else X) as table:
            steps = check_sequences(lengths, int(table.n or 0))
            labels = self._labels(y, len(steps))
            model = hidden_markov.fit_sequence_classes(table, steps, labels, self.priors, request)
        self._keep(model)
        for one in self.models_:
            one._keep(one._model)  # which warns, such as of states that are never visited
        return self

    def _request(self) -> HiddenMarkovRequest:
        """Check the model of each class and return its parameters for the fit."""
        base = self._base
        if not isinstance(base, HiddenMarkovPCA):
            raise ValueError(expected("model", "a HiddenMarkovPCA or None", base))
        if base.checkpoint is not None:
            what = "None: one file cannot hold one model per class"
            raise ValueError(expected("checkpoint of the model", what, base.checkpoint))
        return base._request()

    def _goes_together(self) -> bool:
        hidden_markov.check_priors(self.priors, np.ones(len(self._model.priors)))
        return super()._goes_together()

    def _parts_with_features(self) -> list[Any]:
        model = self._model
        return [*model.models] if model.space is None else [model.space]

    def _labels(self, y: Column | None, m: int) -> np.ndarray[Any, Any]:
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

    def score_classes(self, X: Rows, lengths: Lengths = None) -> np.ndarray[Any, Any]:
        """Return the log-likelihood of every sequence under the model of every class.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.

        Returns
        -------
        log_likelihoods : array of shape (m, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA, SequenceClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = [rng.normal(size=(20, 2)) * (1 + 2 * (k % 2)) for k in range(6)]
        >>> y = ["calm", "wild"] * 3
        >>> model = SequenceClassifier(HiddenMarkovPCA(1, random_state=0)).fit(X, y)
        >>> model.score_classes(X).shape
        (6, 2)
        """
        rows, steps = self._sequences(X, lengths)
        found = np.asarray(self._working.loglikelihoods(rows, steps))
        if self._units is None or self._fitted.space is not None:
            return found
        volume = backend.to_numpy(self._units.log_densities(rows))
        return found - np.add.reduceat(volume, np.cumsum(steps) - steps)[:, None]

    def _sequences(self, X: Rows, lengths: Lengths) -> tuple[Array, Any]:
        """Return checked rows where the model works, and lengths."""
        X, lengths = joined(X, lengths)
        rows = self._asked(X, "score_classes")
        return rows, check_sequences(lengths, int(rows.shape[0]))

    def predict_log_proba(
        self, X: Rows, lengths: Lengths = None, *, parameters: str = "auto"
    ) -> np.ndarray[Any, Any]:
        """Return the logarithm of the probability of every class, for each sequence.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            'auto' and 'estimated': as sure as training sequences show that were left out of the
            fit, where they are few: likelihoods are raised to the power `certainty_`. 'fixed': as
            if the parameters were known.

        Returns
        -------
        log_probabilities : array of shape (m, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA, SequenceClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = [rng.normal(size=(20, 2)) * (1 + 2 * (k % 2)) for k in range(6)]
        >>> y = ["calm", "wild"] * 3
        >>> model = SequenceClassifier(HiddenMarkovPCA(1, random_state=0)).fit(X, y)
        >>> model.predict_log_proba(X).shape
        (6, 2)
        """
        check_choice("parameters", parameters, ESTIMATED)
        rows, steps = self._sequences(X, lengths)
        return np.asarray(self._working.log_posterior(rows, steps, fixed=parameters == "fixed"))

    def predict_proba(
        self, X: Rows, lengths: Lengths = None, *, parameters: str = "auto"
    ) -> np.ndarray[Any, Any]:
        """Return the probability of every class, for each sequence.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            'auto' and 'estimated': as sure as training sequences show that were left out of the
            fit, where they are few: likelihoods are raised to the power `certainty_`. 'fixed': as
            if the parameters were known.

        Returns
        -------
        probabilities : array of shape (m, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA, SequenceClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = [rng.normal(size=(20, 2)) * (1 + 2 * (k % 2)) for k in range(6)]
        >>> y = ["calm", "wild"] * 3
        >>> model = SequenceClassifier(HiddenMarkovPCA(1, random_state=0)).fit(X, y)
        >>> model.predict_proba(X[:2]).round(2)
        array([[1., 0.],
               [0., 1.]])
        """
        return np.asarray(np.exp(self.predict_log_proba(X, lengths, parameters=parameters)))

    def predict(self, X: Rows, lengths: Lengths = None) -> np.ndarray[Any, Any]:
        """Return the most probable class of every sequence.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        lengths : sequence of int, default=None
            As in `fit`.

        Returns
        -------
        y : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA, SequenceClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = [rng.normal(size=(20, 2)) * (1 + 2 * (k % 2)) for k in range(6)]
        >>> y = ["calm", "wild"] * 3
        >>> model = SequenceClassifier(HiddenMarkovPCA(1, random_state=0)).fit(X, y)
        >>> model.predict(X[:2])
        array(['calm', 'wild'], dtype='<U4')
        """
        best = np.argmax(self.predict_log_proba(X, lengths), axis=1)
        return np.asarray(self.classes_[best])

    def score(
        self, X: Rows, y: Column | None, sample_weight: Weights = None, *, lengths: Lengths = None
    ) -> float:
        """Return the share of sequences that are classified as y says.

        Parameters
        ----------
        X : array of shape (T, d), list of tables, or array of shape (m, T, d)
        y : array of shape (m,)
            The class of every sequence.
        lengths : sequence of int, default=None
            As in `fit`.
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        accuracy : float

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import HiddenMarkovPCA, SequenceClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = [rng.normal(size=(20, 2)) * (1 + 2 * (k % 2)) for k in range(6)]
        >>> y = ["calm", "wild"] * 3
        >>> model = SequenceClassifier(HiddenMarkovPCA(1, random_state=0)).fit(X, y)
        >>> model.score(X, y)
        1.0
        """
        from sklearn.metrics import accuracy_score  # here, because it brings much of scikit-learn

        return float(accuracy_score(y, self.predict(X, lengths), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.array_api_support = False  # classes and their probabilities are those of the host
        return tags


def check_sequences(lengths: Lengths, n: int) -> Any:
    """Return the lengths of sequences; rows of a table without are sequences of one row each."""
    return hidden_markov.check_lengths(
        np.ones(n, dtype=np.int64) if lengths is None else lengths, n
    )
