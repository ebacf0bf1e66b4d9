"""The kernel of a model, and its number of components, found by trying."""

from __future__ import annotations

from typing import Any

from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, MetaEstimatorMixin, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, showing
from dualpca.estimators._base import check_matrix, generator
from dualpca.estimators._search_results import SearchResults
from dualpca.estimators._search_setup import (
    check_estimator,
    check_search,
    components_of,
    final_of,
    folds_of,
    mark_of,
    noise_of,
)
from dualpca.estimators._search_trials import Task, judged, spread_of
from dualpca.estimators.kernel import KernelPCA
from dualpca.search import Candidate, Ledger, Plan, Record, Space, best_of, run


def _predicts(model: Any) -> bool:
    return bool(model.objective == "score")


def _inverts(model: Any) -> bool:
    estimator = KernelPCA() if model.estimator is None else model.estimator
    return hasattr(estimator, "inverse_transform")


class KernelSearch(SearchResults, TransformerMixin, MetaEstimatorMixin, BaseEstimator):
    """Choose kernel, its parameters and the number of components by Bayesian optimisation.

    Trials are drawn by a tree-structured Parzen estimator (Bergstra et al. 2011) over families of
    kernels, sums and products of two of them, and parameters on a logarithmic scale around the
    median heuristic, which is the first trial. Each is judged fold by fold on rows it has not seen.

    Parameters
    ----------
    estimator : estimator, optional
        With parameters `kernel` and `n_components`: `KernelPCA`, `DualPPCA`, …; None for
        `KernelPCA(preimage='learned')`.
    kernels : 'auto', str, Kernel, or list of them
        Families by name (`dualpca.search.families()`), whose parameters are searched, and kernels
        to be taken as they are. 'auto': rbf, laplacian, matern, rational_quadratic, polynomial,
        cosine, linear, and periodic where X has one column.
    compositions : tuple of {'sum', 'product'}
        Ways to join two kernels; () for single ones.
    n_components : int, (int, int) or None
        A number, or the smallest and largest to try; None for 1 to 50, or to what a fold allows.
    objective : {'reconstruction', 'score', 'stability', 'likelihood'}
        'reconstruction': share of the variance of held-out rows that comes back through the
        pre-image, from rows with `noise`. 'score': cross-validated score of `final_estimator` on
        the latents; needs y. 'stability': agreement of the latents of held-out rows between two
        models fitted to halves of the other rows. 'likelihood': of probabilistic kernel PCA, with
        tr Kc = n; compares parameters of one family, not families (see `docs/kernel-search.md`).
    noise : 'auto' or float
        Standard deviation of the noise on held-out rows that reconstruction has to take away, in
        root mean variances of the columns. 'auto' is 0 for a fixed number of components and 0.5
        for a searched one: without noise, more components always win.
    final_estimator : estimator, optional
        What 'score' puts on the latents; None for standardised latents and logistic regression,
        or ridge regression where y is of floats.
    scoring : str or callable, optional
        How 'score' scores; None for the final estimator's own.
    n_trials : int
        In all, those of an earlier run in `storage` included.
    timeout : float, optional
        Seconds after which no trial is begun.
    cv : int, splitter or iterable
        Folds; an integer shuffles, and keeps the classes' shares with 'score'.
    storage : None, path, URL or Optuna storage
        An SQLite file (or 'sqlite:///…') to which every finished trial is written: a search that
        was stopped goes on there. One search at a time.
    study_name : str, optional
        None for a name made from rows, space, objective and folds.
    sampler : {'tpe', 'random', 'gp'} or Optuna sampler
        'gp' needs torch. An object keeps a state of its own, so it draws on after a stop.
    pruner : 'median', None or Optuna pruner
        'median' drops a trial whose mean so far is below the median of earlier trials there.
    n_jobs : int, optional
        Processes that judge the trials of a batch.
    batch_size : int, optional
        Trials that are drawn before any of them is judged; None for `n_jobs`. The result depends
        on it, and not on `n_jobs`.
    random_state : None, int, Generator or RandomState
        Of folds, noise and draws. None is a fixed seed.
    verbose : bool
        Show how far the search has come.

    Attributes
    ----------
    best_estimator_ : estimator
        Fitted to all rows with the best kernel.
    best_params_ : dict
        `kernel` and `n_components`, for `set_params`.
    best_score_ : float
        Mean over the folds. The best of many trials flatters: judge on other rows.
    best_trial_ : Record
    trials_ : list of Record
        `number`, `state`, `score`, `scores`, `params`, `kernel`, `n_components`, `seconds`,
        `reason`.
    final_estimator_ : estimator
        With 'score', fitted to the latents of all rows.
    noise_ : float
    n_features_in_ : int

    Notes
    -----
    "Probabilistic PCA and extensions", section 4; MATH 13. A trial that fails, or whose score is
    not a number, is kept with its reason and never wins. Rows should be on comparable scales and
    near the origin (StandardScaler): polynomial and cosine kernels see the origin.

    A trial costs a fit and a transform a fold, O(n²(d + q)) a pass of block Krylov; memory is that
    of `n_jobs` fits. Models of past trials are never kept.

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

    def __init__(
        self,
        estimator: Any = None,
        *,
        kernels: Any = "auto",
        compositions: Any = ("sum", "product"),
        n_components: Any = None,
        objective: str = "reconstruction",
        noise: Any = "auto",
        final_estimator: Any = None,
        scoring: Any = None,
        n_trials: int = 50,
        timeout: float | None = None,
        cv: Any = 5,
        storage: Any = None,
        study_name: str | None = None,
        sampler: Any = "tpe",
        pruner: Any = "median",
        n_jobs: int | None = None,
        batch_size: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.kernels = kernels
        self.compositions = compositions
        self.n_components = n_components
        self.objective = objective
        self.noise = noise
        self.final_estimator = final_estimator
        self.scoring = scoring
        self.n_trials = n_trials
        self.timeout = timeout
        self.cv = cv
        self.storage = storage
        self.study_name = study_name
        self.sampler = sampler
        self.pruner = pruner
        self.n_jobs = n_jobs
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> KernelSearch:
        """Search, then fit the best to all rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Finite. Never modified.
        y : array of shape (n,), optional
            Needed by 'score'.

        Returns
        -------
        self
        """
        check_search(self)
        rows = self._host(X, reset=True)
        labels = self._labels(y, len(rows))
        task, space = self._prepared(rows, labels)
        ledger = Ledger.open(self.storage, self.study_name, mark_of(task, space))
        with showing(self.verbose):
            self.trials_ = run(space, self._judge(task), self._plan(task), ledger)
        self._keep(task, best_of(self.trials_))
        return self

    def _prepared(self, X: Array, y: Any) -> tuple[Task, Space]:
        """Return what trials share, and what may be tried."""
        estimator = KernelPCA(preimage="learned") if self.estimator is None else self.estimator
        check_estimator(estimator, self.objective)
        state = self.random_state
        seed = 0 if state is None else int(generator(state).integers(2**31))
        folds = folds_of(self, X, y, seed, self.cv)
        fewest = min(len(train) for train, _ in folds)
        fewest //= 2 if self.objective == "stability" else 1
        components = components_of(self.n_components, fewest)
        self.noise_ = noise_of(self, components)
        final, scorer = final_of(self, y)
        task = Task(estimator, X, y, folds, self.objective, self.noise_, seed, final, scorer)
        return task, Space.of(X, self.kernels, self.compositions, components)

    def _plan(self, task: Task) -> Plan:
        size = effective_n_jobs(self.n_jobs) if self.batch_size is None else self.batch_size
        return Plan(
            self.n_trials, len(task.folds), task.seed, size, self.timeout, self.sampler, self.pruner
        )

    def _judge(self, task: Task) -> Any:
        """Return what judges candidates, side by side."""

        def judge(jobs: Any) -> Any:
            work = (delayed(judged)(task, candidate, fold) for candidate, fold in jobs)
            return Parallel(n_jobs=self.n_jobs)(work)

        return judge

    def _keep(self, task: Task, best: Record) -> None:
        """Fit the best to all rows."""
        candidate = Candidate(best.kernel, best.n_components)
        self.best_trial_, self.best_score_ = best, best.score
        self.best_params_ = candidate._asdict()
        self.best_estimator_ = task.model(candidate).fit(task.X)
        self._mean = task.X.mean(axis=0)
        self._seed, self._spread = task.seed, spread_of(task.X)
        self.__dict__.pop("final_estimator_", None)
        if task.final is not None:
            latents = self.best_estimator_.transform(task.X)
            self.final_estimator_ = clone(task.final).fit(latents, task.y)

    # --- the best model --------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Return latents of rows by the best model, (m, q).

        Parameters
        ----------
        X : array of shape (m, d)
        """
        return self.best_estimator_.transform(self._rows(X))

    @available_if(_inverts)  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> Array:
        """Return inputs of latents (m, q) by the best model, (m, d).

        Parameters
        ----------
        X : array of shape (m, q)
            Latents.
        """
        check_is_fitted(self)
        return self.best_estimator_.inverse_transform(check_matrix(X, "X"))

    @available_if(_inverts)  # type: ignore[untyped-decorator]
    def reconstruct(self, X: Any) -> Array:
        """Return rows rebuilt from their latents, (m, d).

        Parameters
        ----------
        X : array of shape (m, d)
        """
        return self.best_estimator_.inverse_transform(self.transform(X))

    @available_if(_predicts)  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:
        """Return what the final estimator makes of the latents; with objective='score'.

        Parameters
        ----------
        X : array of shape (m, d)
        """
        rows = self._rows(X)
        return self.final_estimator_.predict(self.best_estimator_.transform(rows))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the latents."""
        check_is_fitted(self)
        return self.best_estimator_.get_feature_names_out()

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the search takes and gives."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.objective == "score"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
