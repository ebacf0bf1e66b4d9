"""Fill missing values inside a scikit-learn pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from dualpca.arrays import Array, backend
from dualpca.data import InMemoryTable, Table, is_elsewhere
from dualpca.errors import expected
from dualpca.estimators._base import (
    Estimator,
    as_frame,
    attribute,
    check_choice,
    check_flag,
    on_rows,
    refuse_frames,
)
from dualpca.estimators.bayesian import BayesianPCA
from dualpca.estimators.ppca import PPCA
from dualpca.gaussian import imputed
from dualpca.models.bayesian import BayesianModel
from dualpca.models.driver import History
from dualpca.models.spiked import SpikedModel

MODELS: dict[str, Any] = {"ppca": PPCA, "bayesian": BayesianPCA}


@dataclass(frozen=True)
class ImputerModel:
    """The model that fills missing values, and the features with missing values in `fit`."""

    model: SpikedModel | BayesianModel
    indicated: Annotated[Array, "whole k"] | None = None  # numbers of features

    @property
    def history(self) -> History | None:
        """How the fit went."""
        return self.model.history


class Imputer(OneToOneFeatureMixin, TransformerMixin, Estimator):
    """Fill NaN with the expectations of a probabilistic PCA, as a scikit-learn imputer.

    Parameters
    ----------
    n_components : int, 'cv' or None
        Number of latents of the model; 'cv' chooses the one that best predicts hidden entries. With
        model='bayesian' the number to start from, and None for `BayesianPCA`'s own choice.
    model : {'ppca', 'bayesian'}
        `PPCA`, or `BayesianPCA`, which finds the number of latents itself.
    add_indicator : bool
        Append one column of zeros and ones for every feature with missing values in `fit`.
    tol, max_iter, random_state, n_init, verbose
        As in `PPCA`.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a GPU if they are worth it; there. Host arrays go
        there and results come back, so the fitted model is one of the host.

    Attributes
    ----------
    model_ : PPCA or BayesianPCA
        The fitted model; it has the uncertainty of every filled entry (`impute`, `conditional`).
    indicator_ : MissingIndicator or None
    n_features_in_, n_iter_ : int

    Notes
    -----
    Cost and memory are those of `model_`: O(ndq²) per step of EM and O(q³) per pattern of missing
    values; nothing d×d is formed, and X is never modified.

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

    _model: ImputerModel
    _accepts_nan = True

    n_iter_ = attribute("history.n_iter")

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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
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
        self._refuse_chunked_indicator(X)
        inner = self._estimator(MODELS[self.model])
        request = inner._request()
        with self._training(X, sample_weight) as table:
            model = ImputerModel(inner._fit(table, request), self._indicated(table))
        self.__dict__.pop("model_", None)
        return self._keep(model)

    def _estimator(self, kind: Any) -> Any:
        """Return the estimator that fits the model, with these parameters."""
        names = ["tol", "max_iter", "random_state", "verbose", "device"]
        names += ["n_init"] if kind is PPCA else []
        return kind(self.n_components, **{name: getattr(self, name) for name in names})

    def _indicated(self, table: Table) -> Array | None:
        """Return the features with missing values, if `add_indicator`."""
        if not self.add_indicator or not isinstance(table, InMemoryTable):
            return None
        xp = backend.namespace(table.rows)
        return np.flatnonzero(backend.to_numpy(xp.any(xp.isnan(table.rows), axis=0)))

    @cached_property
    def model_(self) -> Any:
        """The fitted `PPCA` or `BayesianPCA`."""
        model = self._fitted.model
        found = self._estimator(BayesianPCA if isinstance(model, BayesianModel) else PPCA)
        found._model = model
        if "_placed" in vars(self):
            found._placed, found._where = self._working.model, self._where
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(found, name, getattr(self, name))
        return found

    @property
    def indicator_(self) -> Any:
        """scikit-learn's indicator of missing values; None without `add_indicator`."""
        features = self._fitted.indicated
        if features is None:
            return None
        from sklearn.impute import MissingIndicator  # it brings half of scikit-learn

        row = np.zeros((1, self.n_features_in_))
        row[0, features] = np.nan
        found = MissingIndicator(error_on_new=False).fit(row)
        if hasattr(self, "feature_names_in_"):
            found.feature_names_in_ = self.feature_names_in_
        return found

    def transform(self, X: Any) -> Array:
        """Return the completed table, with the indicators appended if `add_indicator`.

        Parameters
        ----------
        X : array or frame of shape (n, d)

        Returns
        -------
        array of shape (n, d) or more
        """
        indicator = self.indicator_
        self._refuse_chunked_indicator(X)
        if is_elsewhere(X):
            refuse_frames(self, "transform")
        filled = self._transform(X)
        if indicator is None:
            return filled
        table = np.asarray(filled)
        table = np.hstack([table, indicator.transform(X).astype(table.dtype)])
        return as_frame(table, X, names=self.get_feature_names_out())

    @on_rows("n_features_in_", framed=True)
    def _transform(self, X: Any) -> Array:
        return imputed(self._working.model.factors, X)[0]

    def _refuse_chunked_indicator(self, X: Any) -> None:
        """Refuse indicators of a chunked table."""
        if is_elsewhere(X) and self.add_indicator:
            what = "False for a chunked table"
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
        names, indicator = super().get_feature_names_out(input_features), self.indicator_
        if indicator is None:
            return names
        return np.concatenate([names, indicator.get_feature_names_out(names)])

    def _parts_with_features(self) -> list[Any]:
        return [self._model.model]

    def _model_of(self, state: dict[str, Any]) -> ImputerModel:
        """Return the model of attributes as format 1 names them."""
        return ImputerModel(state["model_"]._fitted, state["indicator_"])
