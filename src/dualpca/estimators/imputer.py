"""Fill missing values inside a scikit-learn pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import repeat
from typing import Annotated, Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from dualpca import data
from dualpca.arrays import Array, backend
from dualpca.data import InMemoryTable, Table, Units
from dualpca.data.frames import is_frame
from dualpca.data.kinds import has_other_columns, library_of
from dualpca.errors import expected
from dualpca.estimators import _checks
from dualpca.estimators._attributes import attribute, unit_of_columns
from dualpca.estimators._imputations import calibration, with_imputations
from dualpca.estimators._linear import drawn_parameters, drawn_tables
from dualpca.estimators._shell import AUTO, Estimator, on_rows, parametrized
from dualpca.estimators._types import Column, Columns, Kinds, Rows, Seed, Weights
from dualpca.estimators.bayesian import BayesianPCA
from dualpca.estimators.copula import CopulaPPCA
from dualpca.estimators.ppca import PPCA
from dualpca.gaussian import Factors, imputed, is_count, predicted
from dualpca.models.bayesian import BayesianModel, BayesianRequest, fit_bayesian
from dualpca.models.completing import Donors, bounds_of, kept_within, whole_columns
from dualpca.models.copula import MixedModel
from dualpca.models.driver import History
from dualpca.models.spiked import PPCARequest, SpikedModel, fit_ppca

MODELS: dict[str, Any] = {AUTO: PPCA, "ppca": PPCA, "bayesian": BayesianPCA, "copula": CopulaPPCA}
"""Names of models; 'auto' is the copula where columns are of other kinds, or skewed."""

COPULA_TOLERANCE = 2e-3
"""Smallest `tol` of model='copula', whose likelihood is approximate."""

FEATURES = ("n_features_in_", "feature_names_in_")

OF_ALL_ROWS = {"add_indicator": False, "method": "expectation", "bounds": None, "rounding": None}
"""Parameters that need all rows at once, and what they are without."""

OF_NUMBERS: dict[str, tuple[tuple[Any, ...], str]] = {
    "method": (("expectation",), "which fills values of the column already"),
    "bounds": ((None,), "which never leaves the range of the column"),
    "rounding": ((None,), "which fills values of the column already"),
    "standardize": (("auto", False), "which does not depend on units"),
    "n_init": ((1,), "which has one start"),
    "device": ((None,), "which works on the CPU"),
}
"""Parameters that mean nothing to model='copula': what they may be, and why.

Anything but the first makes 'auto' take PPCA.
"""


@dataclass(frozen=True)
class ImputerModel:
    """The model that fills missing values, and the features with missing values in `fit`."""

    model: SpikedModel | BayesianModel | MixedModel
    indicated: Annotated[Array, "whole k"] | None = None  # numbers of features
    whole: Annotated[Array, "whole w"] | None = None  # features whose values are rounded
    donors: Donors | None = None

    @property
    def history(self) -> History | None:
        """How the fit went."""
        return self.model.history


@parametrized
class Imputer(OneToOneFeatureMixin, TransformerMixin, Estimator):
    """Fill missing values by a probabilistic PCA, as a scikit-learn imputer.

    Expectations for tables of numbers; medians and most probable levels where columns are skewed
    or of any other kind, told by a copula and by regressions on the other columns together, see
    `model`. Tables come back as they came.

    Parameters
    ----------
    n_components : int, str or None, default=None
        How many latents the model has:

        - int: that many. With model='bayesian' the number to start from.
        - a name: a rule, as in `PPCA`.
        - None: 'cv'. Entries are hidden (rows, if none is missing), and the smallest number that
          predicts them as well as the best, within one standard error, is taken (the best one,
          where regressions help); `model_.n_components_` is what was chosen, and
          `model_.selection_` the curve behind it. With model='bayesian', `BayesianPCA`'s own
          choice.

    model : {'auto', 'ppca', 'bayesian', 'copula'}, default='auto'
        `PPCA`; `BayesianPCA`, which finds the number of latents itself; `CopulaPPCA`, for columns
        of any kind: text, categories, yes/no, counts, numbers with long tails. 'auto' is 'copula'
        for frames with columns that are not numbers, and for numbers (NumPy arrays and frames of
        up to 256 columns) of which some column is highly skewed: a skewness beyond 1, in its
        quantiles as well. With up to 40 columns, and without a number of latents, regressions help
        it then (see Notes), which model='copula' does not ask for. Otherwise it is 'ppca', as it is
        where a parameter is given that the copula has no use for: method, bounds, rounding,
        standardize, n_init, device, or a rule for n_components. `model_` shows which it was.
    add_indicator : bool, default=False
        Append one column of zeros and ones for every feature with missing values in `fit`.
    method : {'expectation', 'matching'}, default='expectation'
        What fills an entry: its expectation given the rest of the row, or a value that was observed
        in its column, of one of the 5 training rows whose expectations are closest (predictive mean
        matching; Little 1988). 'matching' keeps the training rows.
    bounds : (low, high), one such pair per feature, or a dict from features to pairs, default=None
        Lowest and highest values of what is filled in; None in a pair is no bound. In the units of
        X; observed entries stay as they are.
    rounding : {None, 'auto'}, default=None
        'auto' fills whole numbers into features whose observed values in `fit` are all whole.
    tol : float, default=1e-06
        Relative distance to the maximum at which EM stops.
    max_iter : int, default=1000
        Largest number of EM steps.
    random_state : None, int, Generator or RandomState, default=None
        Seed of EM's start and of draws. None is a fixed seed for the fit.
    n_init : int, default=1
        Number of starts of EM; the most likely end is kept.
    verbose : bool, default=False
        Show the progress of the fit on standard error.
    standardize : {'auto', True, False}, default='auto'
        Divide every column by its standard deviation (over observed entries, divisor n; a
        constant one by 1) before the fit, so that no unit counts more than another. Filled
        values, their standard deviations and draws are in the units of X all the same. 'auto'
        does so where columns seem to have different units: the variance of one is more than 100
        times that of another, apart from columns that mostly hold one value, such as pixels at
        the edge of images. `scale_` says whether it was done.
    column_kinds : dict or sequence, default=None
        What columns hold, as in `CopulaPPCA`, where it is not to be guessed; 'auto' is then
        'copula'.
    device : None, 'auto', 'cpu' or 'cuda', default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host.

    Attributes
    ----------
    model_ : PPCA, BayesianPCA or CopulaPPCA
        The fitted model; it has the uncertainty of every filled entry (`impute`, `conditional`).
    indicator_ : MissingIndicator or None
    scale_ : array of shape (d,) or None
        What every column was divided by; None where columns are fitted in their own units.
    n_features_in_, n_iter_ : int

    Notes
    -----
    Cost and memory are those of `model_`: O(ndq²) per step of EM and O(q³) per pattern of missing
    values; nothing d×d is formed, and X is never modified. To choose the number of latents of a
    small table takes `CopulaPPCA` longer than `PPCA`.

    What a copula cannot follow (sums of columns as they are, curves, clusters) is left to
    regressions: with model='auto' every column of a table for `CopulaPPCA` has Gaussian processes
    on the others, of 800 rows at most, and what fills an entry is the law that they and the copula
    give together, ∝ Π_k p_k^{w_k}. The weights of every column are those that tell hidden entries
    best. `model_` knows that law: its medians, intervals and probabilities are those of `transform`
    and of draws. Its loadings, latents and densities are the copula's.

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

    _model: ImputerModel = field(init=False)
    _accepts_nan = True
    _depends_on_units = True
    _finds_units = True

    n_iter_ = attribute("history.n_iter")
    scale_ = unit_of_columns()

    n_components: int | str | None = None
    _: KW_ONLY
    model: str = AUTO
    add_indicator: bool = False
    method: str = "expectation"
    bounds: Column | Mapping[Any, object] | None = None
    rounding: str | None = None
    tol: float = 1e-6
    max_iter: int = 1000
    random_state: Seed = None
    n_init: int = 1
    standardize: bool | str = "auto"
    verbose: bool = False
    device: str | None = None
    column_kinds: Kinds = None

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> Any:
        """Fit the model to the observed entries.

        Parameters
        ----------
        X : array or frame of shape (n, d)
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import Imputer
        >>> X = load_iris().data
        >>> X[0, 2] = np.nan
        >>> Imputer(2).fit(X).n_features_in_
        4
        """
        self._check_words()
        other = self.column_kinds is not None or has_other_columns(X)
        if self.model == "copula" or (self.model == AUTO and other):
            return self._fit_table(X, sample_weight)
        if self.column_kinds is not None:
            what = "None, except with model='copula'"
            raise ValueError(expected("column_kinds", what, self.column_kinds))
        self._refuse_chunked(X)
        request = self._request()
        with self._training(X, sample_weight) as table:
            self._bounds()
            model = None
            if self.model != AUTO or not self._suits_copula(X, table):
                bayesian = isinstance(request, BayesianRequest)
                found = fit_bayesian(table, request) if bayesian else fit_ppca(table, request)
                extra = self._finishing(X, table, found)
                model = ImputerModel(found, self._indicated(table), *extra)
        if model is None:
            rows = X if library_of(X) else self._checked(X, reset=False)
            return self._fit_table(rows, sample_weight)
        return self._keep(model)

    def _suits_copula(self, X: Rows, table: Table) -> bool:
        """Return True for numbers in memory of which some are skewed, and no wish of PPCA's own."""
        q, host = self.n_components, isinstance(getattr(table, "rows", None), np.ndarray)
        if not host or (is_frame(X) and not library_of(X)):
            return False
        if not (q is None or q == "cv" or is_count(q)):
            return False
        for name, (allowed, _) in OF_NUMBERS.items():
            given = getattr(self, name)
            if given is not allowed[0] and not (
                isinstance(given, str | int) and given == allowed[0]
            ):
                return False
        return (
            table.d <= data.MOST_RANKED
            and data.skewed_columns(table, data.HIGHLY_SKEWED).columns.size > 0
        )

    def _check_words(self) -> None:
        """Refuse what is not one of the words that parameters accept."""
        _checks.check_flag("add_indicator", self.add_indicator)
        _checks.check_choice("model", self.model, tuple(MODELS))
        _checks.check_choice("method", self.method, ("expectation", "matching"))
        if self.rounding is not None:
            _checks.check_choice("rounding", self.rounding, ("auto",))
        self._standardizes()

    def _check_parameters(self) -> None:
        self._check_words()
        super()._check_parameters()
        self._estimator(MODELS[self.model])._check_parameters()

    def _fit_table(self, X: Rows, sample_weight: Weights) -> Any:
        """Fit to a table of columns of any kind, as it came."""
        for name, (allowed, why) in OF_NUMBERS.items():
            if not any(getattr(self, name) == one for one in allowed):
                what = f"{allowed[0]!r} with model='copula', {why}"
                raise ValueError(expected(name, what, getattr(self, name)))
        inner = self._estimator(CopulaPPCA)._fit(X, sample_weight, filling=self.model == AUTO)
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update({name: vars(inner)[name] for name in FEATURES if name in vars(inner)})
        self._set_units(None)
        missing = inner._read(X)[2].missing if self.add_indicator else None
        indicated = None if missing is None else np.flatnonzero(missing.any(axis=0))
        self._model = ImputerModel(inner._model, indicated)
        return self

    def _completed(self, X: Rows) -> Any:
        """Return a table of columns of any kind, completed as it came."""
        inner, features = self.model_, self._fitted.indicated
        if features is None:
            return inner.impute(X)
        self._refuse_chunked(X)
        filled, missing = inner.impute(X), inner._read(X)[2].missing[:, features]
        names = self.get_feature_names_out()[self.n_features_in_ :]
        return with_columns(filled, names, missing)

    def _finishing(
        self, X: Rows, table: Table, model: SpikedModel
    ) -> tuple[Array | None, Donors | None]:
        """Return the features to round, and the rows whose values are filled in."""
        if not isinstance(table, InMemoryTable) or not (self.rounding or self.method == "matching"):
            return None, None
        rows = self._checked(X, reset=False)
        whole = None if self.rounding is None else whole_columns(rows)
        if self.method == "expectation":
            return whole, None
        predictions = backend.to_numpy(predicted(model.factors, table.rows))
        return whole, Donors(np.array(backend.to_numpy(rows)), predictions)

    def _bounds(self) -> Any:
        """Return the lowest and highest values of each feature, (2, d), or None."""
        names = getattr(self, "feature_names_in_", None)
        return bounds_of(self.bounds, self.n_features_in_, names)

    def _estimator(self, kind: Any) -> Any:
        """Return the estimator that fits the model, with these parameters."""
        own = {*self._get_param_names()} - {"method", "standardize"}  # which mean something else
        options = {name: getattr(self, name) for name in own & {*kind._get_param_names()}}
        if kind is not CopulaPPCA:
            return kind(standardize=self._units is not None, **options)
        _checks.check_number("tol", self.tol, 0)
        return CopulaPPCA(**options | {"tol": max(self.tol, COPULA_TOLERANCE)})

    def _request(self) -> Any:
        """Check the parameters of the model and return them for its fit."""
        request = self._estimator(MODELS[self.model])._request()
        if not isinstance(request, PPCARequest):
            return request
        return replace(request, rule="cv")  # what fills best, where no number is given

    def _indicated(self, table: Table) -> Array | None:
        """Return the features with missing values, if `add_indicator`."""
        if not self.add_indicator or not isinstance(table, InMemoryTable):
            return None
        xp = backend.namespace(table.rows)
        return np.flatnonzero(backend.to_numpy(xp.any(xp.isnan(table.rows), axis=0)))

    @property
    def model_(self) -> Any:
        """The fitted `PPCA`, `BayesianPCA` or `CopulaPPCA`."""
        model = self._fitted.model
        kinds = {BayesianModel: BayesianPCA, MixedModel: CopulaPPCA}
        found = self._estimator(kinds.get(type(model), PPCA))
        found._model = model
        found._set_units(self._units)
        if "_placed" in vars(self):
            found._placed, found._where = self._working.model, self._where
        found.__dict__.update({name: vars(self)[name] for name in FEATURES if name in vars(self)})
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

    def transform(self, X: Rows) -> Array:
        """Return the completed table, with the indicators appended if `add_indicator`.

        Parameters
        ----------
        X : array or frame of shape (n, d)

        Returns
        -------
        array of shape (n, d) or more, or a frame as X came

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import Imputer
        >>> X = load_iris().data
        >>> X[0, 2] = np.nan
        >>> round(float(Imputer(2).fit(X).transform(X)[0, 2]), 1)
        1.6
        """
        if isinstance(self._fitted.model, MixedModel):
            return self._completed(X)
        indicator = self.indicator_
        self._refuse_chunked(X)
        if data.is_elsewhere(X):
            _checks.refuse_frames(self, "transform")
            return self._transform(X)
        filled = self._transform(X)
        if self._fitted.donors is not None:
            rng = _checks.generator(0 if self.random_state is None else self.random_state)
            filled = self._matched(X, self._working.model.factors, filled, rng)
        filled = self._kept_within(filled, X)
        if indicator is None:
            return _checks.as_frame(filled, X)
        table = np.asarray(filled)
        table = np.hstack([table, indicator.transform(X).astype(table.dtype)])
        return _checks.as_frame(table, X, names=self.get_feature_names_out())

    @on_rows("n_features_in_", outward=(Units.filled,))
    def _transform(self, X: Array) -> Array:
        return imputed(self._working.model.factors, X)[0]

    def _matched(self, X: Rows, factors: Factors, filled: Array, rng: np.random.Generator) -> Array:
        """Return a table whose missing entries have values of rows with like expectations."""
        predictions = backend.to_numpy(predicted(factors, self._asked(X, "transform")))
        rows = self._checked(X, reset=False)
        missing = backend.namespace(rows).isnan(rows)
        found = self._fitted.donors.matched(predictions, backend.to_numpy(missing), rng)
        return backend.namespace(filled).where(missing, backend.constants(found, filled), filled)

    def _kept_within(self, filled: Array, X: Rows) -> Array:
        """Return completed tables, (..., n, d), within bounds and rounded as asked for."""
        ends, whole = self._bounds(), self._fitted.whole
        if ends is None and whole is None:
            return filled
        rows = self._checked(X, reset=False)
        return kept_within(filled, backend.namespace(rows).isnan(rows), ends, whole)

    def sample_imputations(
        self,
        X: Rows,
        n_draws: int = 5,
        random_state: Seed = None,
        *,
        parameters: str = "bootstrap",
        sample_weight: Weights = None,
        not_predictors: Columns = None,
    ) -> Any:
        """Draw completed tables for multiple imputation; pool with `dualpca.pool`.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            The training table, or one like it.
        n_draws : int, default=5
        random_state : None, int, Generator or RandomState, default=None
        parameters : {'bootstrap', 'fixed'}, default='bootstrap'
            As in `PPCA.sample_imputations`: whether every draw has parameters of its own.
        sample_weight : array of shape (n,), default=None
        not_predictors : sequence of str or int, default=None
            Columns that are imputed and impute no others: draws are from the fitted model, given
            what is observed in the other columns alone.
            Refused with method='matching', which compares expectations given all columns.

        Returns
        -------
        array of shape (n_draws, n, d), or a list of frames for a frame
            With method='matching' the values are those of training rows; bounds and rounding hold
            for every table.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Imputer
        >>> X = np.outer(np.arange(1.0, 31.0), [1.0, 2.0, 3.0])
        >>> X += 0.5 * np.random.default_rng(0).normal(size=X.shape)
        >>> X[2, 1] = np.nan
        >>> imputer = Imputer(1, bounds=(0, None)).fit(X)
        >>> imputer.sample_imputations(X, 3, random_state=0).shape
        (3, 30, 3)
        """
        n_draws, rng = _checks.check_draws(n_draws, random_state, "n_draws")
        inner = self.model_
        hidden = _checks.column_numbers(self, not_predictors, "not_predictors")
        if hidden and self._fitted.donors is not None:
            what = "None with method='matching', which compares expectations given all columns"
            raise ValueError(expected("not_predictors", what, not_predictors))
        if isinstance(self._fitted.model, MixedModel):
            tables = inner.sample_imputations(
                X, n_draws, rng, parameters=parameters, sample_weight=sample_weight,
                not_predictors=not_predictors,
            )  # fmt: skip
            return np.stack(tables) if isinstance(tables[0], np.ndarray) else tables
        if self._fitted.donors is None:
            tables = drawn_tables(inner, X, n_draws, rng, parameters, sample_weight, hidden)
        else:
            rows, base = inner._asked(X, "sample_imputations"), self._transform(X)
            found = drawn_parameters(inner, rows, n_draws, rng, parameters, sample_weight)
            found = repeat(inner._working.factors, n_draws) if found is None else found
            tables = [self._matched(X, factors, base, rng) for factors in found]
            tables = backend.namespace(base).stack(tables)
        return _checks.as_frames(self._kept_within(tables, X), X)

    with_imputations = with_imputations
    calibration = calibration

    def _refuse_chunked(self, X: Rows) -> None:
        """Refuse what needs all rows of a chunked table."""
        for name, default in OF_ALL_ROWS.items():
            if data.is_elsewhere(X) and getattr(self, name) != default:
                what = f"{default!r} for a chunked table"
                raise ValueError(expected(name, what, getattr(self, name)))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the columns: the features', then the indicators'.

        Parameters
        ----------
        input_features : sequence of str, default=None

        Returns
        -------
        array of str

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import Imputer
        >>> X = load_iris().data
        >>> X[0, 2] = np.nan
        >>> Imputer(2, add_indicator=True).fit(X).get_feature_names_out()
        array(['x0', 'x1', 'x2', 'x3', 'missingindicator_x2'], dtype=object)
        """
        names, indicator = super().get_feature_names_out(input_features), self.indicator_
        if indicator is None:
            return names
        return np.concatenate([names, indicator.get_feature_names_out(names)])

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        any_kind = self.model == "copula"
        tags.array_api_support &= not any_kind
        tags.input_tags.categorical = tags.input_tags.string = any_kind
        return tags

    def _goes_together(self) -> bool:
        model, d = self._model.model, int(self.n_features_in_)
        known = [part for part in (self._model.indicated, self._model.whole) if part is not None]
        donors = self._model.donors
        if any(np.any((part < 0) | (part >= d)) for part in known):
            return False
        if donors is not None and donors.values.shape[1] != d:
            return False
        self._bounds()
        if isinstance(model, MixedModel):
            return len(model.kinds.columns) == d
        return super()._goes_together()

    def _parts_with_features(self) -> list[Any]:
        return [self._model.model]


def with_columns(table: Any, names: Any, indicators: Any) -> Any:
    """Return a table with columns of zeros and ones appended."""
    library = library_of(table)
    if library == "pandas":
        found = table.copy()
        for k, name in enumerate(names):
            found[name] = indicators[:, k].astype(np.float64)
        return found
    if library == "polars":
        new = _checks.as_frame(indicators.astype(np.float64), table, names=list(names))
        return table.hstack(new)
    return np.hstack([table, indicators.astype(table.dtype)])
