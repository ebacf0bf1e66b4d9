"""Models without a parameter run on any numeric table, and say what they chose."""

import inspect
import warnings
from dataclasses import MISSING, fields

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import scale

from dualpca import (
    CCA,
    PCA,
    PPCA,
    BayesianPCA,
    DualPPCA,
    FactorAnalysis,
    HiddenMarkovPCA,
    Imputer,
    KernelPCA,
    MixturePPCA,
    ProbabilisticKernelPCA,
    RobustPPCA,
)
from dualpca.errors import DegenerateError, SelectionWarning
from dualpca.gaussian.control_limits import Outliers
from dualpca.models.bayesian import BayesianRequest
from dualpca.models.canonical import CanonicalRequest
from dualpca.models.dual import DualRequest
from dualpca.models.factor import FactorRequest
from dualpca.models.hidden_markov import HiddenMarkovRequest
from dualpca.models.kernel import KernelChoice
from dualpca.models.mixture import MixtureRequest
from dualpca.models.probabilistic_kernel import ProbabilisticKernelRequest
from dualpca.models.robust import RobustRequest
from dualpca.models.spiked import PCARequest, PPCARequest
from tests.gaussian.test_selection import planted

MODELS = {"PPCA": PPCA, "Imputer": Imputer, "FactorAnalysis": FactorAnalysis, "Bayes": BayesianPCA}
EVERY = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def normal(n, d):
    return np.random.default_rng(100 * n + d).standard_normal((n, d))


def removed(X, share=0.2, seed=1):
    X = np.array(X, dtype=float)
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


NAN = np.nan
LINE = np.array([[1.0, 2.0, 3.0]])
TABLES = {
    "two rows": normal(2, 3),
    "three rows": normal(3, 2),
    "three wide rows": normal(3, 6),
    "two numbers": normal(2, 1),
    "one column": normal(10, 1),
    "more columns than rows": normal(5, 20),
    "a constant column": np.c_[normal(10, 2), np.ones(10)],
    "one column that varies": np.c_[normal(10, 1), np.ones(10)],
    "collinear": normal(20, 1) @ LINE,
    "of rank two": normal(20, 2) @ normal(2, 5),
    "noise": normal(30, 4),
    "whole numbers": np.arange(12).reshape(6, 2),
    "zeros and ones": (normal(20, 3) > 0) * 1.0,
    "equal rows": np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]]),
    "missing": removed(normal(30, 4)),
    "missing, one column": removed(normal(10, 1)),
    "missing, wide": removed(normal(5, 20), 0.1),
    "missing, rows with nothing": np.vstack([removed(normal(20, 3)), [[NAN] * 3] * 2]),
    "missing, a constant column": removed(np.c_[normal(20, 2), np.ones(20)]),
    "missing, collinear": removed(normal(20, 1) @ LINE),
    "missing, of rank two": removed(normal(20, 2) @ normal(2, 5)),
    "missing, two rows": np.array([[1.0, 2.0, 3.0], [3.0, NAN, 2.0]]),
    "missing, three rows": np.array([[1.0, 2.0, NAN], [2.0, NAN, 1.0], [0.0, 1.0, 5.0]]),
    "missing, a number per column": np.array([[1.0, NAN], [NAN, 2.0], [3.0, 4.0]]),
    "missing, half": removed(normal(12, 4), 0.5, 3),
}


@EVERY
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_table_can_be_fitted_without_parameters(model, name):
    X = TABLES[name]
    before = X.copy()
    fitted = model().fit(X)
    inner = fitted.model_ if model is Imputer else fitted
    q = inner.n_components_
    assert 1 <= q <= X.shape[1] and len(inner.components_) == q
    assert np.isfinite(inner.score(X))
    found = inner.outliers(X)
    assert isinstance(found, Outliers) and 0 <= found.expected <= 0.05 * len(X) + 1e-12
    filled = fitted.transform(X) if model is Imputer else inner.impute(X)
    assert np.all(np.isfinite(filled))
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    np.testing.assert_array_equal(X, before)


@EVERY
def test_a_table_without_variance_is_refused_in_plain_words(model):
    with pytest.raises((DegenerateError, ValueError), match=r"constant|varia|same"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SelectionWarning)
            model().fit(np.full((8, 3), 7.0))


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_imputer_chooses_by_cross_validation(share):
    X = removed(planted(200, 8, 3, 0), share)
    imputer, named = Imputer().fit(X).model_, PPCA("cv").fit(X)
    assert imputer.n_components_ == imputer.selection_.chosen == named.n_components_ == 3
    np.testing.assert_array_equal(imputer.components_, named.components_)


def test_a_given_noise_still_decides_alone():
    X = planted(200, 8, 3, 0)
    model = PPCA(noise_variance=2.0).fit(X)
    assert model.n_components_ == 3 and not hasattr(model, "selection_")
    assert PPCA(noise_variance=0.3).fit(X).n_components_ == 8


def test_a_stream_keeps_no_rows_and_takes_parallel_analysis_of_its_moments():
    X = planted(200, 8, 3, 0) * np.linspace(1, 3, 8)
    model = PPCA().partial_fit(X[:100]).partial_fit(X[100:])
    assert model.n_components_ == PPCA().fit(X).n_components_ == 3


@pytest.mark.parametrize("share", [0.0, 0.1])
@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_factor_analysis_takes_horns_number_of_factors(share, unit):
    raw = load_wine().data
    X = removed(raw * unit ** np.linspace(-1, 1, raw.shape[1]), share)
    assert FactorAnalysis().fit(X).n_components_ == 3
    assert FactorAnalysis(2).fit(X).n_components_ == 2


def test_factor_analysis_of_weighted_rows_and_of_chunks_chooses_the_same():
    from dualpca.data.table import SlicedTable

    X = scale(load_wine().data)
    assert FactorAnalysis().fit(X, sample_weight=np.ones(len(X))).n_components_ == 3
    assert FactorAnalysis().fit(SlicedTable(X, part_rows=50)).n_components_ == 3


def test_rows_without_noise_are_said_to_be():
    X = normal(20, 1) @ LINE
    with pytest.warns(SelectionWarning, match="held at 1/10,000 of the average variance"):
        model = PPCA().fit(X)
    assert model.noise_variance_ == pytest.approx(1e-4 * X.var(axis=0).mean())
    np.testing.assert_allclose(model.reconstruct(X), X, atol=1e-3 * X.std())
    with pytest.raises(DegenerateError):
        PPCA(1).fit(X)  # who asks for a number is told


def test_missing_entries_of_collinear_columns_follow_from_the_others():
    X = normal(40, 1) @ LINE
    holed = removed(X, 0.2)
    holed[np.isnan(holed).all(axis=1)] = X[np.isnan(holed).all(axis=1)]
    with pytest.warns(SelectionWarning, match="without noise"):
        filled = Imputer().fit_transform(holed)
    np.testing.assert_allclose(filled, X, atol=0.05)


def test_one_column_is_its_mean_and_variance():
    X = normal(50, 1)
    with pytest.warns(SelectionWarning):
        model = BayesianPCA().fit(X)
    assert model.n_effective_ == 0
    np.testing.assert_allclose(model.get_covariance(), [[X.var()]])
    X[::5] = np.nan
    filled = Imputer().fit_transform(X)
    np.testing.assert_allclose(filled[::5], np.nanmean(X), atol=1e-6)


def test_the_same_table_gives_the_same_choice():
    X = removed(load_iris().data, 0.1)
    a, b = PPCA().fit(X), PPCA().fit(X)
    np.testing.assert_array_equal(a.components_, b.components_)


def test_many_rows_with_missing_values_choose_at_once():
    X = removed(planted(6000, 5, 2, 0), 0.1)
    model = PPCA().fit(X)
    assert model.n_components_ == 2 and model.n_samples_ == 6000


REQUESTS = {
    MixturePPCA: MixtureRequest,
    HiddenMarkovPCA: HiddenMarkovRequest,
    BayesianPCA: BayesianRequest,
    PPCA: PPCARequest,
    PCA: PCARequest,
    RobustPPCA: RobustRequest,
    FactorAnalysis: FactorRequest,
    CCA: CanonicalRequest,
    DualPPCA: DualRequest,
    KernelPCA: KernelChoice,
    ProbabilisticKernelPCA: ProbabilisticKernelRequest,
}
OTHERWISE = {  # other callers need another one
    "FactorRequest.tol",
    "DualRequest.max_iter",
    "ProbabilisticKernelRequest.memory_limit",
}


@pytest.mark.parametrize("model", REQUESTS, ids=lambda model: model.__name__)
def test_a_request_has_the_defaults_of_its_estimator(model):
    request, given = REQUESTS[model], inspect.signature(model).parameters
    both = {
        one.name: (one.default, given[one.name].default)
        for one in fields(request)
        if one.default is not MISSING and one.name in given
    }
    differ = {f"{request.__name__}.{name}" for name, (a, b) in both.items() if a != b}
    assert both and differ <= OTHERWISE
