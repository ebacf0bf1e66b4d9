"""Tables in parts: dimensions chosen, weights, Bayesian fits with NaN, all as in memory."""

import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dualpca import (
    PCA,
    PPCA,
    Batches,
    BayesianPCA,
    CopulaPPCA,
    FactorAnalysis,
    KernelPCA,
    MixturePPCA,
)
from dualpca.data.table import SlicedTable
from dualpca.errors import DegenerateError, EmptyColumnError, InterruptWarning
from dualpca.models import incomplete
from dualpca.models.copula.fitting import CopulaFit
from dualpca.models.mixture import MixtureSteps
from dualpca.operators.primal import PartScatter, survey
from tests.conftest import rest_slow
from tests.data.test_parts import BY_EM, CLOSED, same, table

FACTORS = ("mean_", "components_", "noise_variance_")


def cut(X, pieces=5):
    return Batches(np.array_split(X, pieces))


def into_dask(X):
    da = pytest.importorskip("dask.array")
    return da.from_array(X, chunks=(90, -1))


def unknown_chunks(X):
    """Return a Dask array that knows neither its rows nor the sizes of its chunks."""
    array = into_dask(X)
    return array[~np.isinf(array[:, 0])]


def same_choice(found, wanted, tol=1e-8):
    a, b = found.selection_, wanted.selection_
    assert a.chosen == b.chosen and a.unit == b.unit
    assert np.array_equal(a.candidates, b.candidates)
    for name in ("q2", "q2_error", "loglikelihood", "loglikelihood_error"):
        assert np.allclose(getattr(a, name), getattr(b, name), rtol=tol, atol=tol), name


# --- how many components -------------------------------------------------------------------------


def each(names, ways, *slow):
    """Return every name with every way; of slow names only one is not a slow test."""
    return [
        pytest.param(
            name, way, marks=pytest.mark.slow if name in slow and (k or name != slow[0]) else ()
        )
        for name in names
        for k, way in enumerate(ways)
    ]


COMPLETE = each(["cv", "cv-rows", "cv-entries"], [cut, into_dask, unknown_chunks], "cv-entries")


WITH_HOLES = each(
    ["cv", "cv-rows", "cv-entries", "bic"], [cut, into_dask], "cv", "cv-rows", "cv-entries"
)


@pytest.mark.grid
@pytest.mark.parametrize(("name", "into"), COMPLETE)
def test_complete_rows_are_cross_validated_as_in_memory(name, into):
    X = table(n=300)
    found, wanted = PPCA(name).fit(into(X)), PPCA(name).fit(X)
    same_choice(found, wanted)
    same(found, wanted, CLOSED)
    assert PCA(name).fit(into(X)).n_components_ == PCA(name).fit(X).n_components_


@pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")
@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (3, 2), (40, 39)])
@pytest.mark.filterwarnings("ignore:the rule 'cv' finds no component")
def test_few_rows_are_cross_validated_as_in_memory(shape):
    X = np.random.default_rng(5).normal(size=shape) * np.linspace(9, 1, shape[1]) ** 2
    same_choice(
        *(PPCA("cv", noise_variance=0.1).fit(one) for one in (Batches(np.array_split(X, 3)), X))
    )


@pytest.mark.slow
def test_weights_count_in_cross_validation():
    X, w = table(n=300), np.random.default_rng(1).integers(0, 4, size=300).astype(float)
    same_choice(PPCA("cv").fit(cut(X), sample_weight=w), PPCA("cv").fit(X, sample_weight=w))
    X = table(n=150, holes=0.2)
    found, wanted = (PPCA("cv").fit(one, sample_weight=w[:150]) for one in (cut(X), X))
    same_choice(found, wanted, 1e-7)


@pytest.mark.grid
@pytest.mark.parametrize(("name", "into"), WITH_HOLES)
def test_dimensions_with_holes_are_chosen_as_in_memory(name, into):
    X = table(n=200, holes=0.3)
    X[11] = np.nan
    X[12, :-1] = np.nan  # a row that hiding can leave without any entry
    found, wanted = PPCA(name, tol=1e-9).fit(into(X)), PPCA(name, tol=1e-9).fit(X)
    assert found.n_components_ == wanted.n_components_
    if name != "bic":
        same_choice(found, wanted, 1e-5)
    same(found, wanted, BY_EM)


@pytest.mark.slow
def test_a_feature_that_only_one_fold_observes():
    X = table(n=60, holes=0.2)
    X[:, 5] = np.nan
    X[17, 5] = 3.0
    same_choice(PPCA("cv-rows").fit(cut(X)), PPCA("cv-rows").fit(X), 1e-7)


@pytest.mark.parametrize("rule", ["evidence", "gavish-donoho"])
def test_a_rule_reads_chunks_with_missing_values_as_it_reads_rows(rule):
    X = table(n=200, holes=0.1)
    assert PPCA(rule).fit(cut(X)).n_components_ == PPCA(rule).fit(X).n_components_


def test_what_choices_refuse(monkeypatch):
    X = table(n=200, holes=0.1)
    with pytest.raises(ValueError, match="an int or one of"):
        PPCA(0.9).fit(cut(X))
    with pytest.raises(DegenerateError, match="no column has the 10 values"):
        PPCA("cv").fit(cut(table(n=8, holes=0.2)))
    X[:, 3] = np.nan
    for name in ("cv", "cv-rows", "bic"):
        with pytest.raises(EmptyColumnError):
            PPCA(name).fit(cut(X))
    with pytest.raises(ValueError, match="callable that returns a fresh iterator"):
        PCA("cv").fit(Batches(iter(np.array_split(table(), 3))))
    monkeypatch.setattr("dualpca.models.selection.WIDEST", 5)
    with pytest.raises(ValueError, match="a number for more than 5 features"):
        PCA("cv").fit(cut(table()))


# --- Bayesian PCA with NaN -----------------------------------------------------------------------

BAYES = ("mean_", "components_", "explained_variance_", "noise_variance_", "relevance_")


@pytest.mark.grid
@pytest.mark.parametrize("into", [cut, into_dask])
@pytest.mark.parametrize("method", ["ard", "variational"])
@pytest.mark.parametrize("weigh", [False, True])
def test_bayesian_pca_with_holes_equals_that_in_memory(method, into, weigh):
    X = table(n=250, holes=0.2)
    X[4] = np.nan
    w = np.random.default_rng(2).uniform(0, 2, 250) if weigh else None
    model = BayesianPCA(method=method, tol=1e-9)
    found, wanted = (clone(model).fit(one, sample_weight=w) for one in (into(X), X))
    same(found, wanted, BY_EM, BAYES)
    assert found.n_effective_ == wanted.n_effective_ > 0
    assert found.n_samples_ == wanted.n_samples_ == 249
    assert found.loglikelihood_ == pytest.approx(wanted.loglikelihood_, rel=1e-8)
    assert found.bound_ == pytest.approx(wanted.bound_, rel=1e-8)
    assert np.allclose(found.loadings_std_, wanted.loadings_std_, atol=1e-6)
    draws = (m.sample_loadings(5, random_state=0) for m in (found, wanted))
    assert np.allclose(*draws, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no direction is relevant")
@pytest.mark.parametrize("method", ["ard", "variational"])
def test_noise_alone_is_a_sphere_in_parts_too(method):
    X = np.random.default_rng(0).normal(size=(400, 5))
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    found, wanted = (BayesianPCA(method=method).fit(one) for one in (cut(X), X))
    assert found.n_effective_ == wanted.n_effective_ == 0
    same(found, wanted, BY_EM, BAYES)


# --- weights -------------------------------------------------------------------------------------

WEIGHED = [
    (PCA(3), CLOSED),
    (PCA(0.9, standardize=True), CLOSED),
    (PPCA(2), CLOSED),
    (PPCA("bic"), CLOSED),
    (PPCA(2, method="em", tol=1e-10), BY_EM),
    (BayesianPCA(), CLOSED),
    (BayesianPCA(method="variational", tol=1e-9), BY_EM),
]


def some_weights(n):
    """Return weights of which some are 0, those of a whole part among them."""
    w = np.random.default_rng(7).exponential(size=n)
    w[::5] = 0
    w[: n // 3] = 0
    return w


@pytest.mark.grid
@pytest.mark.parametrize("into", [cut, into_dask, unknown_chunks])
@pytest.mark.parametrize("model,tol", WEIGHED, ids=str)
def test_weights_count_as_in_memory(model, tol, into):
    X = table()
    w = some_weights(len(X))
    found, wanted = (clone(model).fit(one, sample_weight=w) for one in (into(X), X))
    same(found, wanted, tol)
    assert found.n_samples_ == wanted.n_samples_
    assert found.score(into(X), sample_weight=w) == pytest.approx(
        wanted.score(X, sample_weight=w), rel=1e-6
    )
    plain = clone(model).fit(X)
    assert np.max(np.abs(plain.mean_ - found.mean_)) > 1e-3, "weights changed nothing"


@pytest.mark.grid
@pytest.mark.parametrize("into", [cut, into_dask])
@pytest.mark.parametrize("holes", [0.0, 0.15])
def test_weights_of_factor_analysis_and_of_rows_with_holes(holes, into):
    X = table(d=10, holes=holes)
    X[650] = np.nan if holes else X[650]
    w = some_weights(len(X))
    model = FactorAnalysis(3, tol=1e-6)
    found, wanted = (clone(model).fit(one, sample_weight=w) for one in (into(X), X))
    same(found, wanted, 1e-6, FACTORS)
    assert found.n_samples_ == wanted.n_samples_
    if holes:
        model = PPCA(2, tol=1e-9)
        found, wanted = (clone(model).fit(one, sample_weight=w) for one in (into(X), X))
        same(found, wanted, BY_EM)
        assert found.n_samples_ == wanted.n_samples_


def test_whole_weights_are_copies_and_a_wide_table_takes_them(monkeypatch):
    X, w = table(n=200, d=30), np.random.default_rng(0).integers(0, 3, 200)
    copies = np.repeat(X, w, axis=0)
    same(PCA(3).fit(cut(X), sample_weight=w), PCA(3).fit(copies), CLOSED)
    monkeypatch.setattr("dualpca.operators.primal.WIDEST", 20)
    for options in ({}, {"standardize": True}):
        found = PCA(3, **options).fit(cut(X), sample_weight=w)
        same(found, PCA(3, **options).fit(X, sample_weight=w), CLOSED)
        assert found.n_samples_ == (w > 0).sum()


def test_the_weighted_product_is_the_dense_one():
    X, w = table(d=8), some_weights(700)
    parts = SlicedTable(X, part_rows=90).with_weights(w)
    A = PartScatter(parts, survey(parts, wide=True, nan=False).columns, standardize=True)
    mean = w @ X / w.sum()
    F = np.sqrt(w)[:, None] * (X - mean) / np.sqrt(w @ (X - mean) ** 2 / w.sum())
    V = np.random.default_rng(0).normal(size=(8, 3))
    assert np.allclose(A @ V, F.T @ (F @ V), rtol=1e-10)
    assert np.allclose(A.dense(), F.T @ F, rtol=1e-10)
    assert A.n == pytest.approx(w.sum()) and A.trace == pytest.approx(np.trace(F.T @ F))


def test_a_generator_and_a_dask_array_of_weights():
    da = pytest.importorskip("dask.array")
    X, w = table(), some_weights(700)
    once = Batches(iter(np.array_split(X, 4)))
    wanted = PCA(2).fit(X, sample_weight=w)
    same(PCA(2).fit(once, sample_weight=w), wanted, CLOSED)
    same(PCA(2).fit(into_dask(X), sample_weight=da.from_array(w, chunks=100)), wanted, CLOSED)


@pytest.mark.parametrize("into", [cut, into_dask, unknown_chunks])
def test_weights_that_do_not_fit_are_refused(into):
    X = table()
    for w in (np.ones(699), np.ones(701)):
        with pytest.raises(ValueError, match=r"sample_weight.*one per row"):
            PCA(2).fit(into(X), sample_weight=w)
    for w, message in (
        (-np.ones(700), "not negative"),
        (np.zeros(700), "positive for some row"),
        (3.0, "one number per row"),
        (np.ones((700, 1)), "one number per row"),
    ):
        with pytest.raises(ValueError, match=message):
            PCA(2).fit(into(X), sample_weight=w)
    for model in (MixturePPCA(2, 1), KernelPCA(2, kernel="rbf", eigen_solver="nystrom")):
        with pytest.raises(
            ValueError, match="in PCA, PPCA, BayesianPCA, FactorAnalysis and exact kernel models"
        ):
            model.fit(into(X), sample_weight=np.ones(700))


def test_an_infinite_entry_is_named_even_where_its_rows_weigh_nothing():
    X = table()
    X[3, 2] = np.inf
    with pytest.raises(ValueError, match="row 3, column 2"):
        PCA(2).fit(cut(X), sample_weight=some_weights(700))


# --- Ctrl-C ---------------------------------------------------------------------------------------

CHOICES = {
    # where steps are taken, and a choice that takes many of them
    "entries of PPCA": (incomplete.Stack, "step", lambda X: PPCA("cv").fit(X)),
    "sizes of a mixture": (MixtureSteps, "step", lambda X: MixturePPCA("bic", 1).fit(X)),
    "factors": (incomplete.Fit, "step", lambda X: FactorAnalysis().fit(X)),
    "latents of a copula": (CopulaFit, "sums", lambda X: CopulaPPCA().fit(X)),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("share", rest_slow([0.0, 0.3, 0.6, 0.95], [0.3]))
def test_the_keyboard_is_told_or_raised_at_any_step_of_a_choice(name, share, monkeypatch):
    owner, method, fit = CHOICES[name]
    X, plain, taken, end = table(n=80, holes=0.1), getattr(owner, method), [], [math.inf]

    def impatient(self, *args, **options):
        taken.append(1)
        if len(taken) == end[0]:
            raise KeyboardInterrupt
        return plain(self, *args, **options)

    monkeypatch.setattr(owner, method, impatient)
    fit(X)
    whole = len(taken)
    taken.clear()
    end[0] = 1 + int(share * (whole - 1))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            fit(X)
        except KeyboardInterrupt:
            return
    assert len(taken) >= end[0] and any(issubclass(w.category, InterruptWarning) for w in told)
