"""The kernel of a model, and its number of components, found by trying."""

from __future__ import annotations

import hashlib
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, MetaEstimatorMixin, TransformerMixin, clone, is_classifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import assert_all_finite

from dualpca import search
from dualpca.arrays import Array, backend, showing
from dualpca.errors import expected
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import (
    check_choice,
    check_flag,
    check_matrix,
    check_number,
    generator,
)
from dualpca.estimators._shell import Estimator, parametrized
from dualpca.estimators._types import Column, KernelLike, Rows, Seed
from dualpca.estimators.kernel import KernelPCA
from dualpca.estimators.saving import save

DEFAULT_LARGEST = 50
"""Largest number of components that a search tries by default."""

NOISE_TO_REMOVE = 0.5
"""Standard deviation of the noise to be removed, where the number of components is searched."""

FOLDS_OF_OTHER_ROWS = 5
"""Of other rows, where `cv` lists rows of the training part."""

COMPARE_ONLY_EQUAL = {
    "likelihood": "the likelihood grows with every component",
    "reconstruction": "without noise, more components always bring more back",
}

# --- One candidate in one fold: fit, look at what was held out, judge ----------------------------

Index = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True, eq=False)
class Task:
    """What all candidates have in common."""

    estimator: Any
    X: Array
    y: Any
    folds: list[tuple[Index, Index]]
    objective: str
    noise: float = 0.0
    seed: int = 0
    final: Any = None
    scorer: Any = None

    def model(self, candidate: search.Candidate) -> Any:
        """Return the estimator with the candidate's kernel and number of components."""
        return clone(self.estimator).set_params(
            kernel=candidate.kernel, n_components=candidate.n_components
        )

    def mark(self, space: search.Space) -> str:
        """Return what is searched as a short text: the same for the same rows, space and folds."""
        options = (self.noise, self.seed, (space.labels, space.compositions, space.components))
        described = [
            "" if e is None else f"{type(e).__name__}{sorted(e.get_params().items())!r}"
            for e in (self.estimator, self.final)
        ]
        text = "\n".join([self.objective, *map(repr, options), *described, repr(self.scorer)])
        digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", text).encode())  # no addresses
        labels = [] if self.y is None else [np.asarray(self.y, dtype=str)]
        for array in [self.X, *(part for fold in self.folds for part in fold), *labels]:
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def judged(task: Task, candidate: search.Candidate, fold: int) -> search.Outcome:
    """Return the score in one fold; whatever goes wrong is a reason, never an end of the search."""
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # fifty trials would say it fifty times
            score, reason = OBJECTIVES[task.objective](task, candidate, fold), ""
    except Exception as error:
        score, reason = None, f"{type(error).__name__}: {error}"
    return search.Outcome(score, reason, time.perf_counter() - started)


def spread_of(X: Array) -> float:
    """Return the root of the mean variance of the columns."""
    return float(np.sqrt(np.mean(np.var(X, axis=0))))


def with_noise(rows: Array, size: float, seed: int) -> Array:
    """Return rows with white noise of this standard deviation; the same draw for everyone."""
    if not size:
        return rows
    draws = np.random.default_rng(seed).standard_normal(rows.shape)
    return (rows + size * draws).astype(rows.dtype)


def _reconstruction(task: Task, candidate: search.Candidate, fold: int) -> float:
    train, rows = (task.X[part] for part in task.folds[fold])
    noisy = with_noise(rows, task.noise * spread_of(train), task.seed + fold)
    model = task.model(candidate).fit(train)
    return search.q2(rows, model.inverse_transform(model.transform(noisy)), train.mean(axis=0))


def _downstream(task: Task, candidate: search.Candidate, fold: int) -> float:
    train, held = task.folds[fold]
    chain = make_pipeline(task.model(candidate), clone(task.final))
    chain.fit(task.X[train], task.y[train])
    return float(task.scorer(chain, task.X[held], task.y[held]))


def _stability(task: Task, candidate: search.Candidate, fold: int) -> float:
    train, held = task.folds[fold]
    order = np.random.default_rng(task.seed + fold).permutation(train)
    latents = [
        np.asarray(task.model(candidate).fit(task.X[np.sort(half)]).transform(task.X[held]))
        for half in np.array_split(order, 2)
    ]
    return search.agreement(*latents)


OBJECTIVES: dict[str, Callable[[Task, search.Candidate, int], float]] = {
    "reconstruction": _reconstruction,
    "score": _downstream,
    "stability": _stability,
    "likelihood": lambda task, candidate, _: search.normalised_likelihood(task.X, *candidate),
}


# --- The search ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchModel:
    """What a search found: all trials, and the best one fitted to all rows."""

    mean: Array  # (d,), of the rows
    trials: tuple[search.TrialRecord, ...]
    best: search.TrialRecord
    best_estimator: Any
    final_estimator: Any  # None but for 'score'
    noise: float  # of held-out rows, in root mean variances of the columns
    spread: float  # root of the mean variance of their columns
    seed: int

    @property
    def best_params(self) -> dict[str, Any]:
        """The best kernel and number of components, for `set_params`."""
        return {"kernel": self.best.kernel, "n_components": self.best.n_components}


def _inverts(model: KernelSearch) -> bool:
    return model.estimator is None or hasattr(model.estimator, "inverse_transform")


@parametrized
class KernelSearch(TransformerMixin, MetaEstimatorMixin, Estimator):
    """Choose kernel, its parameters and the number of components by Bayesian optimisation.

    Trials are drawn by a tree-structured Parzen estimator (Bergstra et al. 2011) over families of
    kernels, sums and products of two of them, and parameters on a logarithmic scale around the
    median heuristic, which is the first trial. Each is judged fold by fold on held-out rows.

    Parameters
    ----------
    estimator : estimator, default=None
        With parameters `kernel` and `n_components`: `KernelPCA`, `DualPPCA`, …; None for
        `KernelPCA(preimage='learned')`.
    kernels : 'auto', str, Kernel, or list of them, default='auto'
        Families by name (`dualpca.search.families()`), whose parameters are searched, and kernels
        to be used as they are. 'auto': rbf, laplacian, matern, rational_quadratic, polynomial,
        cosine, linear, and periodic where X has one column.
    compositions : tuple of {'sum', 'product'}, default=('sum', 'product')
        Ways to join two kernels; () for single ones.
    n_components : int, (int, int) or None, default=None
        A number, or the smallest and largest to try; None for 1 to 50, or to what a fold allows.
    objective : {'reconstruction', 'score', 'stability', 'likelihood'}, default='reconstruction'
        'reconstruction': share of the variance of held-out rows that comes back through the
        pre-image, from rows with `noise`. 'score': cross-validated score of `final_estimator` on
        the latents; needs y. 'stability': agreement of the latents of held-out rows between two
        models fitted to halves of the other rows. 'likelihood': of probabilistic kernel PCA, with
        tr Kc = n; compares parameters of one family, not families (theory 13).
    noise : 'auto' or float, default='auto'
        Standard deviation of the noise on held-out rows that reconstruction has to remove, in
        root mean variances of the columns. 'auto' is 0 for a fixed number of components and 0.5
        for a searched one: without noise, more components always win.
    final_estimator : estimator, default=None
        What 'score' puts on the latents, an error with other objectives; None for standardised
        latents and logistic regression, or ridge regression where y is of floats.
    scoring : str or callable, default=None
        How 'score' scores, an error with other objectives; None for the final estimator's own.
    n_trials : int, default=50
        In all, those of an earlier run in `storage` included.
    timeout : float, default=None
        Seconds after which no trial is started.
    cv : int, splitter or iterable, default=5
        Folds; an integer shuffles, and keeps the classes' shares with 'score'.
    storage : None, path, URL or Optuna storage, default=None
        An SQLite file (or 'sqlite:///…') to which every finished trial is written: a search that
        was stopped resumes from it. One search at a time.
    study_name : str, default=None
        None for a name made from rows, space, objective and folds.
    sampler : {'tpe', 'random', 'gp'} or Optuna sampler, default='tpe'
        'gp' needs torch. An object keeps its own state, so a resumed search differs.
    pruner : 'median', None or Optuna pruner, default='median'
        'median' drops a trial whose mean so far is below the median of earlier trials there.
    n_jobs : int, default=None
        Processes that judge the trials of a batch.
    batch_size : int, default=None
        Trials that are drawn before any of them is judged; None for `n_jobs`. The result depends
        on it, and not on `n_jobs`.
    random_state : None, int, Generator or RandomState, default=None
        Of folds, noise and draws. None is a fixed seed.
    verbose : bool, default=False
        Show how far the search has come.

    Attributes
    ----------
    best_estimator_ : estimator
        Fitted to all rows with the best kernel.
    best_params_ : dict
        `kernel` and `n_components`, for `set_params`.
    best_score_ : float
        Mean over the folds. The best of many trials flatters: judge on other rows.
    best_trial_ : TrialRecord
    trials_ : list of TrialRecord
        `number`, `state`, `score`, `scores`, `params`, `kernel`, `n_components`, `seconds`,
        `reason`.
    final_estimator_ : estimator
        With 'score', fitted to the latents of all rows.
    noise_ : float
    n_features_in_ : int

    Notes
    -----
    "Probabilistic PCA and extensions", section 4; theory 13. A trial that fails, or whose score is
    not a number, is kept with its reason and never wins. Rows should be on comparable scales and
    near the origin (StandardScaler): polynomial and cosine kernels see the origin.

    A trial costs a fit and a transform per fold, O(n²(d + q)) per pass of block Krylov; memory is
    that of `n_jobs` fits. Models of past trials are never kept.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import KernelSearch
    >>> t = np.random.default_rng(0).uniform(0, 2 * np.pi, 80)
    >>> X = np.column_stack([np.cos(t), np.sin(t), np.cos(2 * t)])
    >>> search = KernelSearch(n_components=2, n_trials=8, cv=2).fit(X)
    >>> len(search.trials_), search.transform(X).shape
    (8, (80, 2))
    >>> search.best_score_ >= search.trials_[0].score  # the median heuristic
    True
    """

    _model: SearchModel = field(init=False)
    _finite = True
    _can_be_saved = False

    best_estimator_ = attribute("best_estimator")
    best_params_ = attribute("best_params")
    best_score_ = attribute("best.score")
    best_trial_ = attribute("best")
    trials_ = attribute("trials")
    final_estimator_ = attribute("final_estimator")
    noise_ = attribute("noise")

    estimator: BaseEstimator | None = None
    _: KW_ONLY
    kernels: KernelLike | Sequence[KernelLike] = "auto"
    compositions: Sequence[str] = ("sum", "product")
    n_components: int | Sequence[int] | None = None
    objective: str = "reconstruction"
    noise: float | str = "auto"
    final_estimator: BaseEstimator | None = None
    scoring: str | Callable[..., float] | None = None
    n_trials: int = 50
    timeout: float | None = None
    cv: object = 5
    storage: object = None
    study_name: str | None = None
    sampler: object = "tpe"
    pruner: object = "median"
    n_jobs: int | None = None
    batch_size: int | None = None
    random_state: Seed = None
    verbose: bool = False

    # --- fitting ---------------------------------------------------------------------------

    def fit(self, X: Rows, y: Column | None = None) -> KernelSearch:
        """Search, then fit the best to all rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Finite. Never modified.
        y : array of shape (n,), default=None
            Needed by 'score'.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelSearch
        >>> X = load_iris().data
        >>> search = KernelSearch(n_components=2, n_trials=3, cv=2, random_state=0).fit(X[::3])
        >>> len(search.trials_)
        3
        """
        self._check_parameters()
        rows = self._checked(X, reset=True, min_rows=2)
        task, space = self._prepared(rows, self._labels(y, len(rows)))
        ledger = search.Ledger.open(self.storage, self.study_name, task.mark(space))
        size = effective_n_jobs(self.n_jobs) if self.batch_size is None else self.batch_size
        limits = (self.n_trials, len(task.folds), task.seed, size, self.timeout)

        def judge(jobs: Sequence[tuple[search.Candidate, int]]) -> Sequence[search.Outcome]:
            work = (delayed(judged)(task, candidate, fold) for candidate, fold in jobs)
            found: Sequence[search.Outcome] = Parallel(n_jobs=self.n_jobs)(work)
            return found

        with showing(self.verbose):
            trials = search.run(
                space, judge, search.Plan(*limits, self.sampler, self.pruner), ledger
            )
        best, final = search.best_trial(trials), task.final
        model = task.model(search.Candidate(best.kernel, best.n_components)).fit(rows)
        if final is not None:
            final = clone(final).fit(model.transform(rows), task.y)
        about = (task.noise, spread_of(rows), task.seed)
        self._keep(SearchModel(rows.mean(axis=0), tuple(trials), best, model, final, *about))
        return self

    def _check_parameters(self) -> None:
        check_choice("objective", self.objective, tuple(OBJECTIVES))
        check_number("n_trials", self.n_trials, 1, integer=True)
        if self.timeout is not None:
            check_number("timeout", self.timeout, 0)
        if self.batch_size is not None:
            check_number("batch_size", self.batch_size, 1, integer=True)
        if self.noise != "auto":
            check_number("noise", self.noise, 0)
        if isinstance(self.sampler, str) or self.sampler is None:
            check_choice("sampler", self.sampler, ("tpe", "random", "gp"))
        if isinstance(self.pruner, str):
            check_choice("pruner", self.pruner, ("median",))
        check_flag("verbose", self.verbose)
        for name in ("final_estimator", "scoring"):
            given = getattr(self, name)
            if self.objective != "score" and given is not None:
                remedy = "Give objective='score' for kernels that serve it, or leave it out."
                what = f"None with objective={self.objective!r}, which does not use it"
                raise ValueError(expected(name, what, given, remedy))
        if self.study_name is not None and self.storage is None:
            what = "None without a storage to keep the study in"
            raise ValueError(expected("study_name", what, self.study_name))

    def _prepared(self, X: Array, y: Column | None) -> tuple[Task, search.Space]:
        """Return what trials share, and what may be tried."""
        estimator = KernelPCA(preimage="learned") if self.estimator is None else self.estimator
        check_estimator(estimator, self.objective)
        state = self.random_state
        seed = 0 if state is None else int(generator(state).integers(2**31))
        folds = self._folds(X, y, seed, self.cv)
        fewest = min(len(train) for train, _ in folds)
        fewest //= 2 if self.objective == "stability" else 1
        components = components_of(self.n_components, fewest)
        noise = self._noise(searched=components[0] < components[1])
        task = Task(estimator, X, y, folds, self.objective, noise, seed, *self._final(y))
        return task, search.Space.of(X, self.kernels, self.compositions, components)

    def _noise(self, *, searched: bool) -> float:
        """Return the noise of held-out rows; refuse a comparison that the largest must win."""
        noise = self.noise
        if noise == "auto":
            noise = NOISE_TO_REMOVE if searched and self.objective == "reconstruction" else 0
        if searched and not noise and self.objective in COMPARE_ONLY_EQUAL:
            why = COMPARE_ONLY_EQUAL[self.objective]
            remedy = "Fix it, or let held-out rows be denoised (noise) or used (objective='score')."
            what = f"one integer with objective={self.objective!r} ({why})"
            raise ValueError(expected("n_components", what, self.n_components, remedy))
        return float(noise)

    def _folds(self, X: Array, y: Column | None, seed: int, cv: Any) -> list[Any]:
        """Return training and held-out rows of every fold; the likelihood holds out none."""
        if self.objective == "likelihood":
            return [(np.arange(len(X)), np.arange(0))]
        stratify = self.objective == "score" and is_classes(self.final_estimator, y)
        if isinstance(cv, Integral):
            check_number("cv", cv, 2, integer=True)
            kind = StratifiedKFold if stratify else KFold
            splitter = kind(int(cv), shuffle=True, random_state=seed % 2**32)
        else:
            splitter = check_cv(cv, y, classifier=stratify)
        return [(np.asarray(a), np.asarray(b)) for a, b in splitter.split(X, y)]

    def _final(self, y: Column | None) -> tuple[Any, Any]:
        """Return the estimator on the latents and what scores it; None without a use for it."""
        if self.objective != "score":
            return None, None
        final = self.final_estimator
        if final is None:
            last = LogisticRegression(max_iter=1000) if is_classes(None, y) else Ridge()
            final = make_pipeline(StandardScaler(), last)
        return final, check_scoring(final, scoring=self.scoring)

    def _checked(self, X: Rows, *, reset: bool, min_rows: int = 1) -> Array:
        """Return finite rows as a NumPy array."""
        if backend.is_foreign(X):
            remedy = "Give the rows as NumPy's; best_estimator_ can be fitted to other arrays."
            raise ValueError(expected("X", "a NumPy array", type(X), remedy))
        return super()._checked(X, reset=reset, min_rows=min_rows)

    def _labels(self, y: Column | None, n: int) -> Any:
        """Return y, checked where it is needed."""
        if self.objective != "score":
            return None
        if y is None:
            what = "(objective='score') requires y to be passed, but the target y is None."
            raise ValueError(type(self).__name__ + what)
        labels = np.asarray(y)
        labels = labels if labels.ndim == 2 and labels.shape[1] > 1 else column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        if len(labels) != n:
            raise ValueError(expected("y", f"of length {n}, one per row", len(labels)))
        return labels

    # --- the best model --------------------------------------------------------------------

    def transform(self, X: Rows) -> Array:
        """Return latents of rows by the best model.

        Parameters
        ----------
        X : array of shape (m, d)

        Returns
        -------
        X_new : array of shape (m, q)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelSearch
        >>> X = load_iris().data
        >>> search = KernelSearch(n_components=2, n_trials=3, cv=2, random_state=0).fit(X[::3])
        >>> search.transform(X).shape
        (150, 2)
        """
        return self.best_estimator_.transform(self._asked(X, "transform"))

    @available_if(_inverts)  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Rows) -> Array:
        """Return inputs of latents by the best model.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents.

        Returns
        -------
        X_new : array of shape (m, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelSearch
        >>> X = load_iris().data
        >>> search = KernelSearch(n_components=2, n_trials=3, cv=2, random_state=0).fit(X[::3])
        >>> search.inverse_transform(search.transform(X[:3])).shape
        (3, 4)
        """
        return self.best_estimator_.inverse_transform(check_matrix(X, "X"))

    @available_if(_inverts)  # type: ignore[untyped-decorator]
    def reconstruct(self, X: Rows) -> Array:
        """Return rows rebuilt from their latents.

        Parameters
        ----------
        X : array of shape (m, d)

        Returns
        -------
        X_rec : array of shape (m, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelSearch
        >>> X = load_iris().data
        >>> search = KernelSearch(n_components=2, n_trials=3, cv=2, random_state=0).fit(X[::3])
        >>> search.reconstruct(X[:3]).shape
        (3, 4)
        """
        return self.best_estimator_.inverse_transform(self.transform(X))

    @available_if(lambda model: model.objective == "score")  # type: ignore[untyped-decorator]
    def predict(self, X: Rows) -> Any:
        """Return predictions of the final estimator; with objective='score'.

        Parameters
        ----------
        X : array of shape (m, d)

        Returns
        -------
        y : array of shape (m,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from dualpca import KernelSearch
        >>> X, y = load_iris(return_X_y=True)
        >>> search = KernelSearch(
        ...     n_components=2,
        ...     objective="score",
        ...     final_estimator=LogisticRegression(),
        ...     n_trials=2,
        ...     cv=2,
        ...     random_state=0,
        ... )
        >>> search.fit(X, y).predict(X).shape
        (150,)
        """
        rows = self._asked(X, "predict")
        return self.final_estimator_.predict(self.best_estimator_.transform(rows))

    def score(self, X: Rows, y: Column | None = None) -> float:
        """Return the objective on other rows.

        Parameters
        ----------
        X : array of shape (m, d)
        y : array of shape (m,), default=None
            Needed by 'score'.

        Returns
        -------
        float
            'reconstruction': the share of the variance about the training mean that comes back,
            from rows with `noise_`. 'score': of the final estimator on the latents. 'stability' and
            'likelihood': what the best kernel reaches on these rows, fitted anew.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelSearch
        >>> X = load_iris().data
        >>> search = KernelSearch(n_components=2, n_trials=3, cv=2, random_state=0).fit(X[::3])
        >>> 0 < search.score(X) < 1
        True
        """
        rows, found = self._asked(X, "score"), self._fitted
        model = found.best_estimator
        if self.objective == "reconstruction":
            noisy = with_noise(rows, found.noise * found.spread, found.seed)
            return search.q2(rows, model.inverse_transform(model.transform(noisy)), found.mean)
        if self.objective == "score":
            labels = self._labels(y, len(rows))
            _, scorer = self._final(labels)
            return float(scorer(found.final_estimator, model.transform(rows), labels))
        known = isinstance(self.cv, Integral) or hasattr(self.cv, "split")
        folds = self._folds(rows, None, found.seed, self.cv if known else FOLDS_OF_OTHER_ROWS)
        task = Task(model, rows, None, folds, self.objective, seed=found.seed)
        objective, best = OBJECTIVES[self.objective], search.Candidate(**found.best_params)
        return float(np.mean([objective(task, best, fold) for fold in range(len(folds))]))

    def importances(self) -> dict[str, float]:
        """Return the share of the scores' variance that each parameter explains alone.

        See `dualpca.search.importances`.

        Returns
        -------
        importances : dict of str to float
            Parameter to share of the variance.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelSearch
        >>> X = load_iris().data
        >>> search = KernelSearch(n_components=2, n_trials=3, cv=2, random_state=0).fit(X[::3])
        >>> all(0 <= share <= 1 for share in search.importances().values())
        True
        """
        return search.importances(self.trials_)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        metadata: dict[str, Any] | None = None,
        functions: bool = False,
    ) -> None:
        """Write `best_estimator_` to a file: `dualpca.load` gives the model that was found.

        The search itself is not in it; its trials are kept by `storage`.

        Parameters
        ----------
        path : path
            '.dpca' is the usual ending.
        metadata : dict, default=None
            Anything that JSON can hold, kept beside the model.
        functions : bool, default=False
            Keep the import paths of functions such as a kernel's; see :func:`save`.

        Returns
        -------
        None

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelSearch, load
        >>> X = load_iris().data
        >>> search = KernelSearch(n_components=2, n_trials=3, cv=2, random_state=0).fit(X[::3])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     search.save(f"{folder}/best.dpca")
        ...     print(type(load(f"{folder}/best.dpca")).__name__)
        KernelPCA
        """
        save(self.best_estimator_, path, metadata=metadata, functions=functions)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the latents.

        Parameters
        ----------
        input_features : ignored, default=None

        Returns
        -------
        names : array of str, shape (q,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import KernelSearch
        >>> X = load_iris().data
        >>> search = KernelSearch(n_components=2, n_trials=3, cv=2, random_state=0).fit(X[::3])
        >>> len(search.get_feature_names_out())
        2
        """
        return self.best_estimator_.get_feature_names_out()

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know of inputs and outputs."""
        tags = super().__sklearn_tags__()
        tags.array_api_support = False
        tags.target_tags.required = self.objective == "score"
        return tags


def check_estimator(estimator: Any, objective: str) -> None:
    """Refuse what has no kernel, no number of components or no inverse transform."""
    needed = ["fit", "transform", "get_params"]
    needed += ["inverse_transform"] if objective == "reconstruction" else []
    params: Any = {} if isinstance(estimator, type) else getattr(estimator, "get_params", dict)()
    able = all(hasattr(estimator, name) for name in needed)
    if not able or not {"kernel", "n_components"} <= set(params):
        what = f"an estimator with kernel, n_components and {', '.join(needed)}"
        raise ValueError(expected("estimator", what, estimator))


def components_of(request: Any, n: int) -> tuple[int, int]:
    """Return the smallest and the largest number of components; n is the rows of a fit."""
    if request is None:
        return 1, max(1, min(DEFAULT_LARGEST, n - 1))
    pair = request if isinstance(request, tuple | list) else (request, request)
    whole = all(isinstance(q, Integral) and not isinstance(q, bool) for q in pair)
    if len(pair) != 2 or not whole or not 1 <= pair[0] <= pair[1]:
        what = "None, a positive integer, or a pair (smallest, largest) of them"
        raise ValueError(expected("n_components", what, request))
    return int(pair[0]), int(pair[1])


def is_classes(final: Any, y: Column | None) -> bool:
    """Return True if y names classes: by the final estimator, else if y is not of floats."""
    if final is not None:
        return bool(is_classifier(final))
    return type_of_target(y) in ("binary", "multiclass") and np.asarray(y).dtype.kind != "f"
