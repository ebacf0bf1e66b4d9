"""Probabilistic PCA behind a Gaussian copula: tables with columns of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, field
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from dualpca.arrays import Array, showing
from dualpca.data import ChunkedTable, Host, chunked_table, require_in_memory
from dualpca.data.kinds import Entries, library_of, opened_table
from dualpca.errors import expected
from dualpca.estimators import _checks
from dualpca.estimators._attributes import attribute
from dualpca.estimators._imputations import calibration, with_imputations
from dualpca.estimators._shell import (
    Estimator,
    OnRows,
    average_density,
    iterative_request,
    parametrized,
)
from dualpca.estimators._types import Columns, Kinds, Resumable, Rows, Seed, Weights
from dualpca.gaussian import Outliers
from dualpca.models.completing import least_rows
from dualpca.models.copula import CopulaRequest, MixedModel, fit_mixed


@parametrized
class CopulaPPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Probabilistic PCA of columns of any kind: numbers, grades, yes/no, categories, counts.

    Every column is a monotone function of a latent coordinate, x_j = f_j(z_j), and z = Wt + ε with
    t ~ N(0, I_q): a Gaussian copula of low rank. f_j is read off the column's own distribution, so
    long tails, floors and units do not matter: any increasing change of a column gives the same
    model. Missing entries and values beyond a detection limit are accepted anywhere.

    Parameters
    ----------
    n_components : int, 'cv' or None, default=None
        Number of latents. None is 'cv': of 1, 2, 3, 4, 6, 8, 11, 15 and 20 (at most one less than
        there are coordinates) the one that best predicts entries that were hidden; `n_components_`
        is what was chosen.
    column_kinds : dict or sequence, default=None
        What columns hold: a dict from names (or numbers) of columns to kinds, or one kind per
        column. A kind is 'continuous', 'ordinal', 'nominal', 'binary', 'count', 'censored',
        `dualpca.Censored(below=50)`, or a list of all levels in order (ordinal). Columns that are
        not named, or None, are guessed (see Notes).
    noise : {'diagonal', 'isotropic'}, default='diagonal'
        A noise of its own for every column, or the same for all.
    tol : float, default=0.002
        Gain of the log-likelihood per parameter, expected of the next step, at which the fit stops.
        Chance alone gives 1/2 per parameter.
    max_iter : int, default=200
        Largest number of steps.
    random_state : None, int, Generator or RandomState, default=None
        Start of the fit. None is a fixed seed.
    verbose : bool, default=False
        Show progress on standard error.
    checkpoint : path or Checkpoint, default=None
        A file that an interrupted fit resumes from, as in `PPCA`.

    Attributes
    ----------
    column_kinds_ : dict
        Column to its kind, as used.
    levels_ : dict
        Column to its levels, in order; of ordinal, binary, nominal and count columns.
    loadings_ : array of shape (D, q)
        W: one row per column, and one per level of a nominal column. Rows of columns with one
        coordinate are correlations of z with the latents.
    loading_names_ : list of str
        Of the rows of `loadings_`: the column, or column=level. A binary column of words is named
        by its second level, which the loading is of.
    components_ : array of shape (q, D)
        Wᵀ.
    correlation_ : array of shape (s, s)
        WWᵀ + Ψ of the latent coordinates of all columns but nominal ones.
    explained_variance_ : array of shape (q,)
        Sum of the squared loadings of each latent, largest noise-weighted one first.
    noise_variance_ : array of shape (D,)
        ψ; 1 less the communality.
    selection_ : Selection
        After cross-validation: the curve behind `n_components_`.
    loglikelihood_ : float
        Of all training rows together: that of `score_samples`.
    loglikelihoods_ : list of float
    n_components_, n_iter_ : int
    n_parameters_ : int
        Free loadings: one per column (level but one, of a nominal column) and latent, less the
        rotations. Margins are not counted, and noise follows from the loadings.
    converged_ : bool

    Notes
    -----
    Kinds are guessed by dtype, then by values. Booleans, and any column with two different values:
    binary. Ordered categories (and polars' Enum): ordinal. Other categories and text: nominal, but
    text that is a number or a bound such as '<50' in every entry: censored. Whole numbers: ordinal
    if at most 10 differ, count if none is negative. Other numbers: continuous. Text with mostly
    different entries is refused as an identifier. With `n_components='cv'`, a guessed ordinal
    column of words becomes nominal where hidden entries are then predicted better: months beside
    temperatures, which rise and fall.

    A value that more than 5 % of a continuous column's entries share is an interval of z, so that
    floors and zero inflation are right. Censored values are intervals too, with the margin from
    Turnbull's estimate.

    Fitted by maximum likelihood with expectation propagation for what is known by intervals:
    O(nDq²) per step; nothing D×D is formed but `correlation_`. Zhao & Udell (2020), Zhao, Townsend
    & Udell (2022), Hoff (2007).

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dualpca import CopulaPPCA
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=300)
    >>> size = np.array(["S", "M", "L"])[np.digitize(t + 0.3 * rng.normal(size=300), [-0.5, 0.5])]
    >>> X = pd.DataFrame({"price": np.exp(t + 0.3 * rng.normal(size=300)), "size": size})
    >>> X["sold"] = rng.poisson(np.exp(1 + t))
    >>> X.loc[0, "size"] = None
    >>> model = CopulaPPCA(1, column_kinds={"size": ["S", "M", "L"]}).fit(X)
    >>> model.column_kinds_
    {'price': 'continuous', 'size': 'ordinal', 'sold': 'count'}
    >>> model.impute(X).loc[0, "size"]
    'M'
    >>> model.predict_proba(X[:1], "size").shape, model.levels_["size"]
    ((1, 3), ['S', 'M', 'L'])
    """

    _model: MixedModel = field(init=False)
    _accepts_nan = True

    n_components_ = attribute("n_components")
    selection_ = attribute("selection")
    loadings_ = attribute("loadings")
    correlation_ = attribute("correlation")
    noise_variance_ = attribute("noise")
    n_samples_ = attribute("n_rows")
    loglikelihood_ = attribute("history.loglikelihood")
    loglikelihoods_ = attribute("history.loglikelihoods")
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")

    n_components: int | str | None = None
    _: KW_ONLY
    column_kinds: Kinds = None
    noise: str = "diagonal"
    tol: float = 2e-3
    max_iter: int = 200
    random_state: Seed = None
    verbose: bool = False
    checkpoint: Resumable = None

    # --- fit ---------------------------------------------------------------------------------

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> Any:
        """Fit margins and latents to what every row knows.

        Parameters
        ----------
        X : frame of pandas or polars, or array of shape (n, d)
            Columns of any kind, with missing entries (NaN, None, null) anywhere. Never modified.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None
            Non-negative. A weight of 2 counts as the row twice.

        Returns
        -------
        self

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> CopulaPPCA(1).fit(X).column_kinds_
        {'size': 'ordinal', 'kind': 'binary'}
        """
        return self._fit(X, sample_weight)

    def _fit(self, X: Rows, sample_weight: Weights, *, filling: bool = False) -> Any:
        """Fit; `filling` is for entries alone: the factors are blended with regressions."""
        request = self._request()
        if chunked_table(X) is not None:
            remedy = "Fit to rows that fit into memory, such as a random sample of the table; "
            remedy += "transform and impute then accept all of it."
            what = "a frame or an array in memory: margins need all values of a column"
            raise ValueError(expected("X", what, type(X).__name__, remedy))
        with showing(self.verbose), _checks.explained(self):
            table = self._opened(X, reset=True)
            weights = _checks.check_weights(sample_weight, np.empty((len(table), 1)))
            asked = (self.column_kinds, request, self.n_components, weights)
            model = fit_mixed(table, *asked, filling=filling)
        return self._keep(model)

    def _request(self) -> CopulaRequest:
        """Check the parameters and return them for the fit."""
        _checks.check_choice("noise", self.noise, ("diagonal", "isotropic"))
        wanted: Any = self.n_components
        whole = isinstance(wanted, Integral) and not isinstance(wanted, bool)
        if not (wanted is None or wanted == "cv" or (whole and int(wanted) >= 0)):
            raise ValueError(expected("n_components", "a number of latents, 'cv' or None", wanted))
        return iterative_request(self, CopulaRequest, n_components=1)

    def _opened(self, X: Rows, *, reset: bool) -> Any:
        """Return a table as it came, a frame or an array, with its columns checked."""
        require_in_memory(X)
        table = opened_table(X)
        if library_of(table):
            if len(table) < 1 + reset or table.shape[1] < 1:
                shape = f"shape={tuple(table.shape)}"
                raise ValueError(
                    f"Found table with {shape}, while a minimum of {1 + reset} sample(s) and 1 "
                    f"feature(s) is required by {type(self).__name__}."
                )
            validate_data(self, table, reset=reset, skip_check_array=True)
            return table
        return validate_data(
            self,
            table,
            reset=reset,
            dtype=None,
            ensure_all_finite=False,
            ensure_min_samples=1 + reset,
        )

    def _read(self, X: Rows) -> tuple[MixedModel, Any, Entries]:
        """Return the model, an opened table that it is asked about, and its entries in numbers."""
        check_is_fitted(self)
        table, model = self._opened(X, reset=False), self._model
        return model, table, model.kinds.entries(table)

    def _chunkwise(self, X: Rows, method: str, width: int | None) -> Any:
        """Return the results of a method for a chunked table, computed when they are read.

        None for a table in memory.
        """
        chunks: ChunkedTable | None = chunked_table(X, fitting=False)
        if chunks is None:
            return None
        check_is_fitted(self)
        _checks.check_columns(self, chunks.d, chunks.names, reset=False)
        _checks.refuse_frames(self, method)
        return chunks.map(OnRows(self, method, width), width, np.dtype(np.float64))

    # --- attributes --------------------------------------------------------------------------

    def _labels(self) -> list[Any]:
        """Return names of columns, or numbers."""
        names = getattr(self, "feature_names_in_", None)
        return list(range(self.n_features_in_)) if names is None else list(names)

    @property
    def column_kinds_(self) -> dict[Any, str]:
        """Column to its kind, as used."""
        kinds = self._fitted.kinds.columns
        return {name: column.kind for name, column in zip(self._labels(), kinds, strict=True)}

    @property
    def levels_(self) -> dict[Any, list[Any]]:
        """Column to its levels, in order."""
        model: MixedModel = self._fitted
        found = {name: model.levels(j) for j, name in enumerate(self._labels())}
        return {name: levels for name, levels in found.items() if levels is not None}

    @property
    def loading_names_(self) -> list[str]:
        """Names of the rows of `loadings_`."""
        model, names, found = self._fitted, self._labels(), []
        for j, k in model.coordinates:
            column = model.kinds.columns[j]
            words = column.kind == "binary" and column.sort != "number" and len(column.levels) == 2
            level = 1 if k is None and words else k
            found.append(str(names[j]) + ("" if level is None else f"={column.levels[level]}"))
        return found

    @property
    def components_(self) -> Array:
        """The loadings Wᵀ, (q, D)."""
        return self.loadings_.T

    @property
    def explained_variance_(self) -> Array:
        """Sum of the squared loadings of each latent, (q,)."""
        return (self.loadings_**2).sum(axis=0)

    @property
    def n_parameters_(self) -> int:
        """The number of free parameters of the copula; margins are read off, not counted."""
        factors = self._fitted.factors
        q, s, sizes = factors.q, factors.s, factors.sizes
        levels = q * sum(K - 1 for K in sizes)  # of differences between levels
        noise = (1 - s) if self.noise == "isotropic" and s and q else 0
        return int(q * s + levels + noise - q * (q - 1) // 2)

    # --- latents and densities ---------------------------------------------------------------

    def transform(self, X: Rows) -> Array:
        """Return the posterior mean of the latents given what each row knows.

        Parameters
        ----------
        X : frame or array of shape (n, d), or a chunked table
            Levels that the fit has not seen are refused.

        Returns
        -------
        X_new : array of shape (n, q)

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> model.transform(X).shape
        (5, 1)
        """
        found = self._chunkwise(X, "transform", self._n_features_out)
        return self._cast(self.posterior(X)[0], X) if found is None else found

    def _cast(self, result: Array, X: Rows) -> Array:
        """Return a result in single precision for rows of that."""
        return result.astype(np.float32) if getattr(X, "dtype", None) == np.float32 else result

    def inverse_transform(self, X: Rows) -> Any:
        """Return the rows that latents stand for: medians, and the most probable levels.

        Parameters
        ----------
        X : array of shape (n, q)
            Latents t.

        Returns
        -------
        frame or array of shape (n, d)
            As `sample` returns rows; every entry is a value of its column in `fit`.

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> model.inverse_transform(model.transform(X)).shape
        (5, 2)
        """
        model: MixedModel = self._fitted
        Z = check_array(X, dtype=np.float64)
        if Z.shape[1] != model.n_components:
            what = f"{model.n_components} columns, one for each latent"
            raise ValueError(expected("X", what, f"{Z.shape[1]} columns"))
        return model.kinds.built(model.at_latents(Z), getattr(self, "feature_names_in_", None))

    def posterior(self, X: Rows) -> tuple[Array, Array]:
        """Return mean and covariance of the latents given each row.

        Parameters
        ----------
        X : frame or array of shape (n, d)

        Returns
        -------
        mean : array of shape (n, q)
        covariance : array of shape (n, q, q)

        Notes
        -----
        Exact for rows of known continuous values; otherwise the Gaussian that expectation
        propagation finds.

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> mean, covariance = model.posterior(X)
        >>> mean.shape, covariance.shape
        ((5, 1), (5, 1, 1))
        """
        model, _, entries = self._read(X)
        return model.factors.posterior(model.latent(entries))

    def score_samples(self, X: Rows) -> Array:
        """Return how much likelier each row is than if its columns were independent.

        Parameters
        ----------
        X : frame or array of shape (n, d), or a chunked table

        Returns
        -------
        array of shape (n,)
            ln p(row) − Σ_j ln p_j(x_j) over what the row knows: the logarithm of the copula's
            density (of its probability, for intervals and levels) relative to independent columns
            of the same margins. So no increasing change of a column's units changes it, and it is 0
            for a row that knows one entry or none. Probabilities of intervals and levels are those
            of expectation propagation: approximate, and exact for rows of known continuous values.

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> model.score_samples(X).shape
        (5,)
        """
        found = self._chunkwise(X, "score_samples", None)
        if found is not None:
            return found
        model, _, entries = self._read(X)
        return model.factors.log_evidence(model.latent(entries))

    def score(self, X: Rows, y: object = None, sample_weight: Weights = None) -> float:
        """Return the average of `score_samples`.

        Parameters
        ----------
        X : frame or array of shape (n, d)
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None

        Returns
        -------
        float

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> bool(abs(model.score(X) - model.score_samples(X).mean()) < 1e-9)
        True
        """
        return average_density(self, X, sample_weight)

    def outliers(self, X: Rows, level: float = 0.95) -> Outliers:
        """Return which rows are unusual: T² or SPE of their latent coordinates above the limit.

        Parameters
        ----------
        X : frame or array of shape (n, d)
        level : float, default=0.95
            Of both limits together: of ordinary new rows a share 1 − level is flagged.

        Returns
        -------
        Outliers
            As of `PPCA`, on latent coordinates: a row is unusual by how its values go together, not
            by the tails of a column. Entries known by an interval (levels, counts, censored) are
            judged by a coordinate that is drawn in it, the same in every call (Dunn & Smyth 1996),
            so that limits hold for all kinds. Nominal columns are not judged; `score_samples`
            counts them.

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> model.outliers(X).flagged.shape
        (5,)
        """
        _checks.check_share("level", level)
        model, _, entries = self._read(X)
        return model.outliers(entries, float(level))

    # --- missing entries ---------------------------------------------------------------------

    def impute(self, X: Rows, *, return_interval: bool = False, level: float = 0.9) -> Any:
        """Fill every missing entry with its median, or most probable level, given its row.

        Parameters
        ----------
        X : frame or array of shape (n, d), or a chunked table
            Never modified.
        return_interval : bool, default=False
            Also return the ends of an interval for every entry.
        level : float, default=0.9
            Probability of the intervals: half of the rest is on either side.

        Returns
        -------
        table, or (table, low, high)
            As X came: a frame of the same dtypes. Known entries stay as they are, censored ones
            too. Numbers are filled with the median, levels in words (nominal, binary, ordinal)
            with the most probable one. All are values of the column in `fit`; in a censored column
            they can be '<50', or the limit in a column of numbers. Nominal columns have no
            intervals: `low` and `high` are missing there, and `predict_proba` says how probable
            each level is.

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> model.impute(X).loc[4, "kind"]
        'b'
        """
        _checks.check_flag("return_interval", return_interval)
        _checks.check_share("level", level)
        found = self._chunkwise(X, "impute", getattr(self, "n_features_in_", None))
        if found is not None:
            if return_interval:
                what = "False for a chunked table"
                raise ValueError(expected("return_interval", what, return_interval))
            return found
        model, table, entries = self._read(X)
        missing: Host = np.any(entries.missing, axis=1)
        tail = (1 - float(level)) / 2
        shares = (0.5, tail, 1 - tail) if return_interval else (0.5,)
        tables = []
        if missing.any():
            for values in model.quantiles(entries.rows(missing), shares):
                filling = placed(values, missing, entries)
                tables.append(model.kinds.completed(table, filling))
        else:
            tables = [model.kinds.completed(table, entries) for _ in shares]
        return tuple(tables) if return_interval else tables[0]

    def predict_proba(self, X: Rows, column: Any = None) -> Array:
        """Return the probability of every level of a column given the rest of each row.

        Parameters
        ----------
        X : frame or array of shape (n, d)
            Whether an entry of the column is missing or known: its own value is not used.
        column : str or int, default=None
            An ordinal, binary, nominal or count column; None for all of them, side by side.

        Returns
        -------
        array of shape (n, K)
            In the order of `levels_[column]`, or of all `levels_`.

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> model.predict_proba(X, "kind").shape
        (5, 2)
        """
        model, _, entries = self._read(X)
        labels = self._labels()
        if column is None:
            every = [j for j in range(len(labels)) if model.levels(j) is not None]
            found = [model.probabilities(entries, j) for j in every]
            return np.concatenate([np.empty((len(entries.low), 0)), *found], axis=1)
        j = labels.index(column) if column in labels else column
        if not isinstance(j, int | np.integer) or not 0 <= j < len(labels):
            raise ValueError(expected("column", f"one of {labels[:10]}", column))
        j = int(j)
        if model.levels(j) is None:
            kind = model.kinds.columns[j].kind
            remedy = "impute(X, return_interval=True) gives intervals of numbers."
            raise ValueError(expected(f"column {column!r}", "one with levels", kind, remedy))
        return model.probabilities(entries, j)

    def sample_imputations(
        self,
        X: Rows,
        n_draws: int = 5,
        random_state: Seed = None,
        *,
        parameters: str = "bootstrap",
        sample_weight: Weights = None,
        not_predictors: Columns = None,
    ) -> list[Any]:
        """Draw completed tables for multiple imputation; pool with `dualpca.pool`.

        Entries of one row are drawn together, so that their relations are right.

        Parameters
        ----------
        X : frame or array of shape (n, d)
            The training table, or one like it.
        n_draws : int, default=5
        random_state : None, int, Generator or RandomState, default=None
        parameters : {'bootstrap', 'fixed'}, default='bootstrap'
            'bootstrap': every draw has margins and loadings of its own, refitted to a Bayesian
            bootstrap of X (rows weighted at random) by a few steps from the fitted ones, so that
            intervals pooled from the tables cover as they promise. 'fixed': all draws at the fitted
            parameters; faster, for any number of rows, but too alike.
        sample_weight : array of shape (n,), default=None
            As in `fit`.
        not_predictors : sequence of str or int, default=None
            Columns that are imputed and impute no others: draws are from the fitted model, given
            what is observed in the other columns alone.

        Returns
        -------
        list of n_draws tables
            Each as X came. Known entries stay as they are.

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> draws = model.sample_imputations(X, 2, random_state=0, parameters="fixed")
        >>> len(draws), draws[0].shape
        (2, (5, 2))
        """
        n_draws, rng = _checks.check_draws(n_draws, random_state, "n_draws")
        _checks.check_choice("parameters", parameters, ("bootstrap", "fixed"))
        model, table, entries = self._read(X)
        hidden = _checks.column_numbers(self, not_predictors, "not_predictors")
        weights = _checks.check_weights(sample_weight, np.empty((len(table), 1)))
        models: Any = [model] * n_draws
        if parameters == "bootstrap" and entries.missing.any():
            _checks.check_bootstrap(self, least_rows(model.n_components), ~entries.missing, "known")
            with _checks.explained(self):
                models = model.refits(entries, weights, n_draws, rng, self._request())
        missing: Host = np.any(entries.missing, axis=1)
        if not missing.any():
            return [model.kinds.completed(table, entries) for _ in range(n_draws)]
        return [
            model.kinds.completed(table, placed(values, missing, entries))
            for values in model.drawn(entries.rows(missing).hiding(hidden), rng, models)
        ]

    with_imputations = with_imputations
    calibration = calibration

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> Any:
        """Draw new rows: a table like that of the fit.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        frame or array of shape (n_samples, d)
            A frame of pandas or polars where the model was fitted to one. Every entry is a value of
            its column in `fit`.

        Examples
        --------
        >>> import pandas as pd
        >>> from dualpca import CopulaPPCA
        >>> X = pd.DataFrame({"size": [1.0, 2.0, 4.0, 7.0, 9.0], "kind": list("aabbb")})
        >>> X.loc[4, "kind"] = None
        >>> model = CopulaPPCA(1).fit(X)
        >>> model.sample(3, random_state=0).shape
        (3, 2)
        """
        model: MixedModel = self._fitted
        values = model.sample(*_checks.check_draws(n_samples, random_state))
        return model.kinds.built(values, getattr(self, "feature_names_in_", None))

    # --- scikit-learn, files -----------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.array_api_support = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _goes_together(self) -> bool:
        return len(self._model.kinds.columns) == int(self.n_features_in_)


def placed(values: Sequence[Host | float], missing: Host, entries: Entries) -> Entries:
    """Return lowest and highest values of rows where some are missing, NaN in all others."""
    low, high = np.full(entries.low.shape, np.nan), np.full(entries.low.shape, np.nan)
    low[missing], high[missing] = values
    return Entries(low, high)
