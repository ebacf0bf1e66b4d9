"""Fill missing values inside a scikit-learn pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array
from dualpca.errors import expected
from dualpca.estimators._base import (
    Saved,
    as_frame,
    check_choice,
    check_flag,
    is_elsewhere,
    refuse_frames,
)
from dualpca.estimators.bayesian import BayesianPCA
from dualpca.estimators.ppca import PPCA

MODELS: dict[str, Any] = {"ppca": PPCA, "bayesian": BayesianPCA}


class Imputer(Saved, TransformerMixin, BaseEstimator):
    """Fill NaN with the expectations of a probabilistic PCA, as a scikit-learn imputer.

    Parameters
    ----------
    n_components : int, 'cv' or None
        Number of latents of the model; 'cv' takes the one that best predicts hidden entries. With
        model='bayesian' the number to start from, and None for `BayesianPCA`'s own choice.
    model : {'ppca', 'bayesian'}
        `PPCA`, or `BayesianPCA`, which finds the number of latents itself.
    add_indicator : bool
        Append one column of zeros and ones for every feature that missed values in `fit`.
    tol, max_iter, random_state, n_init, verbose
        As in `PPCA`.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

    Attributes
    ----------
    model_ : PPCA or BayesianPCA
        The fitted model; it has the uncertainty of every filled entry (`impute`, `conditional`).
    indicator_ : MissingIndicator or None
    n_features_in_, n_iter_ : int

    Notes
    -----
    Cost and memory are those of `model_`: O(ndq²) a step of EM and O(q³) a pattern of holes;
    nothing d×d is formed, and X is never modified.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import Imputer
    >>> X = np.outer(np.arange(1.0, 31.0), [1.0, 2.0, 3.0])
    >>> X += 0.01 * np.random.default_rng(0).normal(size=X.shape)
    >>> X[2, 1] = np.nan
    >>> Imputer(n_components=1).fit_transform(X)[2].round(1)
    array([3., 6., 9.])
    """

    def __init__(
        self,
        n_components: int | str | None = 2,
        *,
        model: str = "ppca",
        add_indicator: bool = False,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
        n_init: int = 1,
        verbose: bool = False,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.model = model
        self.add_indicator = add_indicator
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_init = n_init
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Imputer:
        """Fit the model to the observed entries.

        Parameters
        ----------
        X : array or frame of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self
        """
        check_flag("add_indicator", self.add_indicator)
        check_choice("model", self.model, tuple(MODELS))
        self._check_parts(X)
        names = ["tol", "max_iter", "random_state", "verbose", "device"]
        if self.model == "ppca":
            names.append("n_init")
        options: Any = {name: getattr(self, name) for name in names}
        model = MODELS[self.model](self.n_components, **options)
        self.model_ = model.fit(X, sample_weight=sample_weight)
        self.n_features_in_, self.n_iter_ = self.model_.n_features_in_, self.model_.n_iter_
        if hasattr(self.model_, "feature_names_in_"):
            self.feature_names_in_ = self.model_.feature_names_in_
        self.indicator_ = _indicator().fit(X) if self.add_indicator else None
        return self

    def transform(self, X: Any) -> Array:
        """Return the completed table, with the indicators appended if they were asked for.

        Parameters
        ----------
        X : array or frame of shape (n, d)

        Returns
        -------
        array of shape (n, d) or more
        """
        check_is_fitted(self)
        self._check_parts(X)
        if is_elsewhere(X):
            refuse_frames(self, "transform")
        filled = self.model_.impute(X)
        if self.indicator_ is None:
            return filled
        table = np.asarray(filled)
        table = np.hstack([table, self.indicator_.transform(X).astype(table.dtype)])
        return as_frame(table, X, names=self.get_feature_names_out())

    def _check_parts(self, X: Any) -> None:
        """Refuse what would gather a table in parts."""
        if is_elsewhere(X) and self.add_indicator:
            what = "False for data in parts"
            raise ValueError(expected("add_indicator", what, self.add_indicator))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the columns: the features', then the indicators'.

        Parameters
        ----------
        input_features : sequence of str, optional

        Returns
        -------
        array of str
        """
        check_is_fitted(self)
        default = [f"x{j}" for j in range(self.n_features_in_)]
        names = np.asarray(getattr(self, "feature_names_in_", default), dtype=object)
        if input_features is not None:
            given = np.asarray(input_features, dtype=object)
            named = hasattr(self, "feature_names_in_")
            if given.shape != names.shape or (named and not np.array_equal(given, names)):
                raise ValueError(
                    f"input_features is not equal to feature_names_in_ {list(names)}, got "
                    f"{list(given)}."
                )
            names = given
        if self.indicator_ is None:
            return names
        return np.concatenate([names, self.indicator_.get_feature_names_out(names)])

    def _packed(self) -> dict[str, Any]:
        """Return everything to be saved; of the indicator, the features it was found for."""
        state = super()._packed()
        indicator = state.get("indicator_")
        if indicator is not None:
            state["indicator_"] = indicator.features_
        return state

    def _unpack(self, state: dict[str, Any]) -> None:
        """Set the fitted attributes; the indicator is fitted to a row that misses its features."""
        features = state.pop("indicator_")
        super()._unpack(state)
        self.indicator_ = None
        if features is not None:
            row = np.zeros((1, self.n_features_in_))
            row[0, features] = np.nan
            self.indicator_ = _indicator().fit(row)
            if "feature_names_in_" in state:
                self.indicator_.feature_names_in_ = state["feature_names_in_"]

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that NaN is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _indicator() -> Any:
    """Return scikit-learn's indicator; imported here because it brings half of scikit-learn."""
    from sklearn.impute import MissingIndicator

    return MissingIndicator(error_on_new=False)
