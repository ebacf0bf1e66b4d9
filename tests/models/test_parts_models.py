"""Mixtures, chains and kernel maps from tables in parts: the same fits as in memory."""

import warnings
from itertools import pairwise

import numpy as np
import pytest

import dualpca.models.emissions as emissions
from dualpca import Batches, HiddenMarkovPCA, KernelPCA, MixturePPCA
from dualpca.data.table import SlicedTable
from dualpca.errors import NonFiniteError
from tests.data.test_parts import same


def groups(n=600, d=5, holes=0.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0] * d, [6.0] * d, [-6.0, 6.0] + [0.0] * (d - 2)])
    X = centres[rng.integers(3, size=n)] + rng.normal(size=(n, 1)) * rng.normal(size=d)
    X += 0.5 * rng.normal(size=(n, d))
    X[rng.random(X.shape) < holes] = np.nan
    return X


def cut(X, pieces=5):
    return Batches(np.array_split(X, pieces))


def into_dask(X):
    da = pytest.importorskip("dask.array")
    return da.from_array(X, chunks=(130, -1))


MIXTURE = ("weights_", "means_", "noise_variance_", "covariances_")


@pytest.mark.grid
@pytest.mark.parametrize("into", [cut, into_dask])
@pytest.mark.parametrize("holes", [0.0, 0.15])
def test_mixtures_equal_those_in_memory(into, holes):
    X = groups(holes=holes)
    if holes:
        X[11] = np.nan
    options = {"tol": 1e-9, "max_iter": 400}
    found = MixturePPCA(3, 1, **options).fit(into(X))
    wanted = MixturePPCA(3, 1, **options).fit(X)
    same(found, wanted, 1e-6, MIXTURE)
    assert found.loglikelihood_ == pytest.approx(wanted.loglikelihood_, rel=1e-9)
    assert found.lower_bound_ == pytest.approx(wanted.lower_bound_, rel=1e-9)
    new = groups(seed=1)[:20]
    assert np.array_equal(found.predict(new), wanted.predict(new))


@pytest.mark.parametrize(
    "options",
    [{"tied_noise": True}, {"n_init": 3}, {"on_collapse": "drop"}, {"n_components": [1, 2, 1]}],
    ids=str,
)
def test_options_of_mixtures_equal_those_in_memory(options):
    X = groups(seed=3)
    options = {"n_mixtures": 3, "n_components": 1, "tol": 1e-9} | options
    same(MixturePPCA(**options).fit(cut(X)), MixturePPCA(**options).fit(X), 1e-6, MIXTURE)


def test_a_dirichlet_process_in_parts():
    X = groups(seed=4)
    options = {"n_mixtures": "dirichlet", "max_mixtures": 6, "tol": 1e-8}
    found, wanted = MixturePPCA(**options).fit(cut(X)), MixturePPCA(**options).fit(X)
    same(found, wanted, 1e-6, MIXTURE)
    assert found.loglikelihood_ == pytest.approx(wanted.loglikelihood_, rel=1e-9)


def test_a_mixture_starts_on_a_sample_and_ends_on_all_rows(monkeypatch):
    X = groups(n=3000)
    wanted = MixturePPCA(3, 1, tol=1e-10).fit(X)
    monkeypatch.setattr(emissions, "START_ROWS", 300)
    found = MixturePPCA(3, 1, tol=1e-10).fit(cut(X))
    order = np.lexsort(np.round(wanted.means_, 3).T), np.lexsort(np.round(found.means_, 3).T)
    assert np.allclose(found.means_[order[1]], wanted.means_[order[0]], atol=1e-5)
    assert found.loglikelihood_ == pytest.approx(wanted.loglikelihood_, rel=1e-9)
    values = found.loglikelihoods_
    assert all(b >= a - 1e-9 * abs(a) for a, b in pairwise(values))


def test_results_of_mixtures_in_parts():
    X = groups(holes=0.1)
    model, parts = MixturePPCA(3, 1).fit(X), cut(X)
    assert np.array_equal(np.concatenate(list(model.predict(parts))), model.predict(X))
    assert np.allclose(np.concatenate(list(model.transform(parts))), model.transform(X))
    assert np.allclose(np.concatenate(list(model.predict_proba(parts))), model.predict_proba(X))
    assert model.score(parts) == pytest.approx(model.score(X), rel=1e-12)
    labels = model.predict(into_dask(X))
    assert np.array_equal(labels.compute(), model.predict(X))


def test_what_mixtures_in_parts_refuse():
    X = groups()
    for options, message in (
        ({"kernel": "rbf"}, "KernelPCA"),
        ({"on_collapse": "reseed"}, "floor"),
        ({"n_mixtures": 601}, "at most the number of rows"),
    ):
        with pytest.raises(ValueError, match=message):
            MixturePPCA(**({"n_mixtures": 2, "n_components": 1} | options)).fit(cut(X))


def test_sizes_of_mixtures_in_parts_are_chosen_by_a_sample():
    X = groups()
    found, wanted = MixturePPCA().fit(cut(X)), MixturePPCA().fit(X)
    assert found.selection_.chosen == wanted.selection_.chosen
    same(found, wanted, 1e-3, MIXTURE)


# --- chains --------------------------------------------------------------------------------------


def sequences(holes=0.0, seed=0):
    rng = np.random.default_rng(seed)
    lengths = [60, 40, 80, 30, 50, 70, 45, 25]
    rows = []
    for T in lengths:
        states = (np.cumsum(rng.random(T) < 0.1) + rng.integers(2)) % 2
        shape = np.where(states[:, None] == 0, [[3.0, 0.0, 1.0, 0.0]], [[0.0, 3.0, 0.0, 1.0]])
        rows.append(shape * rng.normal(size=(T, 1)) + 4 * states[:, None] + rng.normal(size=(T, 4)))
    X = np.concatenate(rows)
    X[rng.random(X.shape) < holes] = np.nan
    return X, lengths


CHAIN = (
    "start_probabilities_",
    "transitions_",
    "means_",
    "noise_variances_",
    "visits_",
    "weights_",
)


@pytest.mark.parametrize("mixtures", [1, 2])
@pytest.mark.parametrize("holes", [0.0, 0.1])
def test_chains_equal_those_in_memory(mixtures, holes):
    X, lengths = sequences(holes)
    if holes:
        X[30] = np.nan
    options = {
        "n_states": 2,
        "n_components": 1,
        "n_mixtures": mixtures,
        "tol": 1e-7,
        "max_iter": 30,
        "stickiness": 1.0,
    }
    parts = Batches([X[:100], X[100:260], X[260:]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 30 steps are enough to compare
        found = HiddenMarkovPCA(**options).fit(parts, lengths=lengths)
        wanted = HiddenMarkovPCA(**options).fit(X, lengths=lengths)
    same(found, wanted, 1e-6, CHAIN)
    assert found.loglikelihood_ == pytest.approx(wanted.loglikelihood_, rel=1e-9)
    assert found.n_iter_ == wanted.n_iter_


def test_a_part_is_one_sequence_unless_told_otherwise():
    X, lengths = sequences()
    ends = np.cumsum(lengths)[:-1]
    parts = Batches(np.split(X, ends))
    found = HiddenMarkovPCA(2, 1).fit(parts)
    same(found, HiddenMarkovPCA(2, 1).fit(X, lengths=lengths), 1e-6, CHAIN)
    chunks = (tuple(lengths), 4)
    da = pytest.importorskip("dask.array")
    same(HiddenMarkovPCA(2, 1).fit(da.from_array(X, chunks=chunks)), found, 1e-8, CHAIN)


@pytest.mark.parametrize("options", [{"prior_rows": 5.0}, {"stickiness": 3.0, "prior_rows": 2.0}])
def test_priors_of_chains_count_in_the_likelihood_too(options):
    X, lengths = sequences()
    found = HiddenMarkovPCA(2, 1, **options).fit(Batches(np.split(X, [100, 260])), lengths=lengths)
    wanted = HiddenMarkovPCA(2, 1, **options).fit(X, lengths=lengths)
    same(found, wanted, 1e-6, CHAIN)
    assert found.loglikelihoods_ == pytest.approx(wanted.loglikelihoods_, rel=1e-8)


def test_sequences_may_not_cross_parts():
    X, lengths = sequences()
    with pytest.raises(ValueError, match="Sequences may not cross chunks"):
        HiddenMarkovPCA(2, 1).fit(Batches([X[:90], X[90:]]), lengths=lengths)
    with pytest.raises(ValueError, match="sum to the 400 rows"):
        HiddenMarkovPCA(2, 1).fit(Batches([X[:100], X[100:]]), lengths=[*lengths, 7])
    with pytest.raises(ValueError, match="KernelPCA"):
        HiddenMarkovPCA(2, 1, kernel="rbf").fit(Batches([X]))


# --- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("into", [cut, into_dask])
@pytest.mark.parametrize(
    "options",
    [
        {"eigen_solver": "nystrom"},
        {"eigen_solver": "nystrom", "landmarks": "uniform", "center": False},
        {"eigen_solver": "fourier"},
        {"eigen_solver": "cholesky", "tol": 0.5},
    ],
    ids=str,
)
def test_kernel_maps_equal_those_in_memory(options, into):
    X = groups()
    options = {"n_components": 3, "kernel": "rbf", "gamma": 0.02, "n_landmarks": 40} | options
    found, wanted = KernelPCA(**options).fit(into(X)), KernelPCA(**options).fit(X)
    same(found, wanted, 1e-9, ("eigenvalues_", "explained_variance_ratio_"))
    assert found.n_samples_ == wanted.n_samples_ == 600
    new = groups(seed=2)[:30]
    assert np.allclose(np.abs(found.transform(new)), np.abs(wanted.transform(new)), atol=1e-7)
    Z = found.transform(into(X))
    rows = Z.compute() if hasattr(Z, "compute") else np.concatenate(list(Z))
    assert np.allclose(rows, found.transform(X), atol=1e-10)


def test_what_kernels_in_parts_refuse():
    X = groups()
    with pytest.raises(ValueError, match="'nystrom', 'cholesky' or 'fourier'"):
        KernelPCA(2, kernel="rbf").fit(cut(X))
    X[333, 2] = np.nan
    with pytest.raises(NonFiniteError, match="row 333, column 2"):
        KernelPCA(2, kernel="rbf", eigen_solver="nystrom", n_landmarks=20).fit(
            SlicedTable(X, part_rows=100)
        )
