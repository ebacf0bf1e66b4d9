"""Novelty of points that the model has not seen: against fits without them, and false alarms."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

import dualpca
from dualpca import KernelPCA
from dualpca.models import kernel as kernel_models
from dualpca.models.kernel import Novelty
from tests.oracles.kernel_pca import gaussian, novelty_when_left_out

GAMMA = 0.1


def rows(n=40, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2, 0.5, d) + 1


def rbf(q=3, **options):
    return KernelPCA(q, kernel="rbf", **{"gamma": GAMMA, **options})


def left_out(model):
    """Return the novelty of training points to models without them, before they are scaled."""
    model.novelty_threshold()
    found, n = model._fitted.left_out, model._fitted.n_rows
    factor = 1 - 1 / n**2 if model.center else 1.0
    return np.asarray(found.residual) / factor


# --- left-out points -----------------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("q", [1, 3, 12, None])
def test_leaving_a_point_out_is_a_fit_without_it(q, center):
    X = rows()
    X[0] += 8  # a point with an axis of its own
    found = left_out(rbf(q, center=center).fit(X))
    expected = novelty_when_left_out(gaussian(X, X, GAMMA), q or len(X), center=center)
    np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.002)


def test_leaving_a_point_out_of_the_linear_kernel():
    X = rows()
    X[0] += [0, 0, 0, 0, 0, 50]
    found = left_out(KernelPCA(3).fit(X))
    np.testing.assert_allclose(found, novelty_when_left_out(X @ X.T, 3), rtol=0.02)


def test_leaving_one_of_a_weight_out():
    X, w = rows(), np.random.default_rng(1).integers(0, 4, 40)
    model = rbf(4).fit(X, sample_weight=w)
    model.novelty_threshold()
    found = np.asarray(model._fitted.left_out.residual) / (1 - 1 / w.sum() ** 2)
    expected = novelty_when_left_out(gaussian(X, X, GAMMA), 4, w)
    np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.002)


def test_of_many_points_some_stand_for_all(monkeypatch):
    X = rows(400)
    every = left_out(rbf(4).fit(X))
    monkeypatch.setattr(kernel_models, "NOVELTY_ROWS", 200)
    some = left_out(rbf(4).fit(X))
    assert some.shape == (200,)
    np.testing.assert_allclose(some, every[::2], rtol=0.05, atol=0.02)


def test_a_landmark_is_judged_without_itself():
    X = rows(60)
    model = rbf(3, eigen_solver="nystrom", landmarks="uniform", n_landmarks=60).fit(X)
    exact = rbf(3).fit(X)
    # all points are landmarks, and none is off their span
    found, wanted = left_out(model), left_out(exact)
    assert np.quantile(found, 0.95) == pytest.approx(np.quantile(wanted, 0.95), rel=0.05)
    assert np.mean(model.novelty(X)) < 0.9 * np.mean(wanted)


def test_incomplete_rows_judge_no_others():
    X = rows(60)
    X[::3, 2] = np.nan
    model = rbf(3).fit(X)
    model.novelty_threshold()
    weights = np.asarray(model._fitted.left_out.weights)
    np.testing.assert_array_equal(weights, ~np.isnan(X).any(axis=1))


# --- thresholds ----------------------------------------------------------------------------------


def test_the_kth_of_n_has_a_share_of_k_over_n_plus_1_below_it():
    values = np.array([3.0, 1.0, 2.0, 4.0])
    judged = Novelty(values, np.ones(4))
    assert [judged.quantile(level) for level in (0.2, 0.4, 0.5, 0.8, 0.99)] == [1, 2, 2.5, 4, 4]
    twice = Novelty(values, np.array([1.0, 2.0, 1.0, 1.0]))
    repeated = Novelty(np.append(values, 1.0), np.ones(5))
    for level in np.linspace(0.05, 0.95, 19):
        assert twice.quantile(level) == pytest.approx(repeated.quantile(level))
        tiny = Novelty(values, np.full(4, 1e-3))
        assert tiny.quantile(level) == pytest.approx(judged.quantile(level))


def test_where_the_components_explain_everything_nothing_is_novel():
    for dtype in (np.float32, np.float64):
        model = KernelPCA().fit(rows().astype(dtype) + 100)
        assert not model.is_novel(rows(200, seed=1).astype(dtype) + 100).any()


@pytest.mark.parametrize("solver", ["dense", "cholesky", "fourier"])
@pytest.mark.parametrize("asked", [True, False])
def test_a_file_keeps_the_threshold(solver, asked, tmp_path):
    model = rbf(3, eigen_solver=solver, n_landmarks=80).fit(rows(60))
    if asked:
        model.novelty_threshold()
    model.save(tmp_path / "m.dpca")
    again = dualpca.load(tmp_path / "m.dpca")
    assert (again._fitted.left_out is not None) == (asked or solver != "dense")
    assert again.novelty_threshold(0.9) == pytest.approx(model.novelty_threshold(0.9), rel=1e-12)


# --- false alarms: 5 % of ordinary points are meant ----------------------------------------------

SOLVERS = {
    "kmeans": {"eigen_solver": "nystrom", "n_landmarks": 100},
    "leverage": {"eigen_solver": "nystrom", "landmarks": "leverage", "n_landmarks": 100},
    "cholesky": {"eigen_solver": "cholesky", "n_landmarks": 100},
    "fourier": {"eigen_solver": "fourier", "n_landmarks": 200},
}


def share(draw, times, **options):
    """Return the share of ordinary new points that are called novel, over several tables."""
    alarms = []
    for seed in range(times):
        X, new = draw(np.random.default_rng(seed))
        model = KernelPCA(kernel="rbf", gamma="median", **options).fit(X)
        alarms.append(model.is_novel(new).mean())
    return float(np.mean(alarms))


def normal(n, d):
    return lambda rng: (rng.standard_normal((n, d)), rng.standard_normal((1000, d)))


def halves(X, n):
    def draw(rng):
        order = rng.permutation(len(X))
        return X[order[:n]], X[order[n:]]

    return draw


def test_few_ordinary_points_are_novel():
    # quantiles of the training points themselves flag 60 %
    assert abs(share(normal(60, 20), 20, n_components=10) - 0.05) < 0.02


@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
@pytest.mark.parametrize("solver", SOLVERS)
def test_few_ordinary_points_are_novel_to_landmarks(solver):
    # quantiles of the training points themselves flag 11 to 15 %
    assert abs(share(normal(300, 15), 4, n_components=20, **SOLVERS[solver]) - 0.05) < 0.02


TABLES = {
    "91 x 13": (normal(91, 13), 60),
    "60 x 20": (normal(60, 20), 60),
    "digits": (halves(load_digits().data, 300), 12),
    "breast cancer": (halves(load_breast_cancer().data, 300), 20),
    "wine": (halves(load_wine().data, 100), 40),
    "diabetes": (halves(load_diabetes().data, 250), 20),
}


@pytest.mark.slow
@pytest.mark.parametrize("q", [2, 10, None])
@pytest.mark.parametrize("table", TABLES)
def test_false_alarms_are_as_many_as_asked_for(table, q):
    assert abs(share(*TABLES[table], n_components=q) - 0.05) < 0.02
