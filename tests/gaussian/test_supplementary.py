"""Supplementary columns and rows: FactoMineR's numbers, independent oracles, missing values."""

import numpy as np
import pytest

from dualpca import PCA, PPCA, BayesianPCA, FactorAnalysis, supplementary
from tests.gaussian.supplementary_cases import ACTIVE, BESIDE, SPECIES, WIDTH, close, simulated

# FactoMineR 2.7: PCA(iris, quanti.sup = 4, quali.sup = 5, ncp = 2), without and with
# row.w = rep(c(1, 2, 1, 3, 1), 30)
WEIGHTS = np.tile([1.0, 2.0, 1.0, 3.0, 1.0], 30)


THEIRS = {
    False: {
        "cor": [[0.9210837073, 0.10287577]],
        "coord": [
            [-1.8446998124, 0.2285674841],
            [0.5059132177, -0.5239203621],
            [1.3387865946, 0.2953528780],
        ],
        "cos2": [
            [0.9833828829, 0.01509732948],
            [0.4815497185, 0.51643971903],
            [0.9480060898, 0.04613928193],
        ],
        "v.test": [
            [-11.198877704, 2.071023001],
            [3.071318280, -4.747180576],
            [8.127559424, 2.676157575],
        ],
        "dist": [1.8602203083, 0.7290468863, 1.3750097937],
        "eta2": [[0.898904161, 0.1520656781]],
    },
    True: {
        "cor": [[0.9234824085, 0.08984251625]],
        "coord": [
            [-1.8461596999, 0.2132646430],
            [0.5301552174, -0.4692138678],
            [1.3160044825, 0.2559492248],
        ],
        "cos2": [
            [0.9852771195, 0.01314793610],
            [0.5592740594, 0.43808690855],
            [0.9570824928, 0.03620280924],
        ],
        "v.test": [
            [-14.174326890, 2.455086816],
            [4.070391827, -5.401555383],
            [10.103935063, 2.946468568],
        ],
        "dist": [1.8599020268, 0.7089093456, 1.3451870648],
        "eta2": [[0.8914062376, 0.1224154222]],
    },
}


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_are_those_of_factominer(weighted):
    theirs, weights = THEIRS[weighted], WEIGHTS if weighted else None
    model = PCA(2, standardize=True).fit(ACTIVE, sample_weight=weights)
    found = supplementary(model, ACTIVE, BESIDE, sample_weight=weights)
    # signs: ours make the largest entry of every axis positive
    signs = np.sign(found.numbers.correlation / theirs["cor"])
    close(signs * found.numbers.correlation, theirs["cor"])
    close(found.numbers.cos2, np.square(theirs["cor"]))
    close(signs * found.levels.coordinates, theirs["coord"])
    close(signs * found.levels.v_test, theirs["v.test"])
    close(found.levels.cos2, theirs["cos2"])
    close(found.levels.distance, theirs["dist"])
    close(found.categories.eta2, theirs["eta2"])
    assert found.levels.names == ("Species=setosa", "Species=versicolor", "Species=virginica")
    assert found.numbers.latent_correlation is None


def test_rows_are_those_of_factominer():
    apart = [0, 50, 100]  # ind.sup = c(1, 51, 101)
    kept = np.delete(ACTIVE, apart, axis=0)
    model = PCA(2, standardize=True).fit(kept)
    found = supplementary(model, kept, rows=ACTIVE[apart]).rows
    coordinates = [
        [-1.856495201, 0.4306011644],
        [1.133487267, 0.9595421601],
        [1.027156559, 0.8502801893],
    ]
    cos2 = [
        [0.9444634206, 0.05080984616],
        [0.5370245412, 0.38484776054],
        [0.4632296533, 0.31742942799],
    ]
    close(np.abs(found.coordinates), np.abs(coordinates))
    close(found.cos2, cos2)
    close(found.distance, [1.910298611, 1.546748058, 1.509171056])


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
@pytest.mark.parametrize("model", [PPCA(2), BayesianPCA(2), FactorAnalysis(1)])
def test_any_linear_model_agrees_with_plain_formulas(model):
    model.set_params(standardize=True).fit(ACTIVE)
    found = supplementary(model, ACTIVE, BESIDE)
    Z = model.transform(ACTIVE)
    for k in range(Z.shape[1]):
        close(found.numbers.correlation[0, k], np.corrcoef(WIDTH, Z[:, k])[0, 1])
    N, n = 150, 50
    mine = Z[SPECIES == "versicolor"].mean(axis=0)
    variance = Z.var(axis=0) / n * (N - n) / (N - 1)
    close(found.levels.coordinates[1], mine)
    close(found.levels.v_test[1], (mine - Z.mean(axis=0)) / np.sqrt(variance), 1e-6)
    assert (found.levels.cos2 is None) == isinstance(model, FactorAnalysis)


def test_units_of_scores_do_not_matter():
    ours = supplementary(PPCA(2, standardize=True).fit(ACTIVE), ACTIVE, BESIDE)
    plain = supplementary(PCA(2, standardize=True, whiten=True).fit(ACTIVE), ACTIVE, BESIDE)
    close(ours.numbers.correlation, plain.numbers.correlation)
    close(ours.levels.v_test, plain.levels.v_test)
    close(ours.levels.cos2, plain.levels.cos2)


def test_v_test_is_that_of_random_groups():
    """Its standard deviation over random groups of the same size is 1, and its mean 0."""
    rng = np.random.default_rng(0)
    X = rng.gamma(1.0, size=(40, 3))
    model = PCA(2).fit(X)
    drawn = {f"g{k}": rng.permutation(["a"] * 13 + ["b"] * 27) for k in range(4000)}
    v = supplementary(model, X, drawn).levels.v_test[::2]
    np.testing.assert_allclose(v.mean(axis=0), 0, atol=0.06)
    np.testing.assert_allclose(v.std(axis=0), 1, atol=0.04)


def test_weights_count_rows():
    twice = np.repeat(np.arange(150), WEIGHTS.astype(int))
    model = PPCA(2).fit(ACTIVE, sample_weight=WEIGHTS)
    one = supplementary(model, ACTIVE, BESIDE, sample_weight=WEIGHTS)
    repeated = {name: column[twice] for name, column in BESIDE.items()}
    other = supplementary(model, ACTIVE[twice], repeated)
    for part in ("numbers", "levels", "categories"):
        for name, values in getattr(one, part).table().items():
            same = getattr(other, part).table()[name]
            if isinstance(values[0], float):
                np.testing.assert_allclose(values, same, rtol=1e-9)
            else:
                assert values == same


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("estimator", [PPCA, FactorAnalysis, BayesianPCA])
def test_latent_correlations_are_not_attenuated(missing, estimator):
    X, number, group, z = simulated(8000, missing)
    model = estimator(2).fit(X)
    found = supplementary(model, X, {"number": number, "group": group})
    # the model's axes, in terms of the latents of the simulation
    turn = np.linalg.lstsq(z, model.transform(np.nan_to_num(X) if missing == 0 else X))[0]
    turn = np.linalg.svd(turn)[0] @ np.linalg.svd(turn)[2]
    truth = np.array([0.6, -0.5]) @ turn
    np.testing.assert_allclose(found.numbers.latent_correlation[0], truth, atol=0.035)
    assert np.linalg.norm(found.numbers.correlation) < np.linalg.norm(truth) - 0.02
    for k, level in enumerate(found.levels.levels):
        mean = z[group == level].mean(axis=0) @ turn
        np.testing.assert_allclose(found.levels.latent_coordinates[k], mean, atol=0.06)
    assert abs(found.levels.coordinates).max() < abs(found.levels.latent_coordinates).max()


def test_correlations_do_not_depend_on_how_much_is_missing():
    X, number, _, _ = simulated(8000, 0.0)
    model = PPCA(2).fit(X)
    full = supplementary(model, X, number).numbers
    hidden = X.copy()
    hidden[np.random.default_rng(1).random(X.shape) < 0.5] = np.nan
    some = supplementary(model, hidden, number).numbers
    np.testing.assert_allclose(some.latent_correlation, full.latent_correlation, atol=0.03)
    assert np.all(abs(some.correlation) < abs(full.correlation) - 0.02)


def test_missing_that_depends_on_the_column_is_no_bias():
    """Rows with a large number miss more: reliabilities are averaged as the number weighs them."""
    X, number, _, _ = simulated(20000, 0.0, seed=3)
    model = PPCA(2).fit(X)
    truth = supplementary(model, X, number).numbers.latent_correlation
    rng = np.random.default_rng(4)
    X[rng.random(X.shape) < np.where(abs(number) > 1, 0.8, 0.1)[:, None]] = np.nan
    found = supplementary(model, X, number).numbers.latent_correlation
    np.testing.assert_allclose(found, truth, atol=0.03)


def test_unknown_supplementary_entries_are_left_out_column_by_column():
    model, rng = PPCA(2).fit(ACTIVE), np.random.default_rng(0)
    gaps = rng.random(150) < 0.3
    number = np.where(gaps, np.nan, WIDTH)
    group = np.where(gaps, None, SPECIES.astype(object))
    found = supplementary(model, ACTIVE, {"a": number, "b": group, "c": WIDTH})
    only = supplementary(
        model, ACTIVE[~gaps], {"a": number[~gaps], "b": SPECIES[~gaps], "c": WIDTH[~gaps]}
    )
    close(found.numbers.correlation[0], only.numbers.correlation[0])
    close(found.levels.v_test, only.levels.v_test, 1e-6)
    close(found.categories.eta2, only.categories.eta2)
    assert found.numbers.weight.tolist() == [150 - gaps.sum(), 150]


def test_rows_with_missing_values_are_placed():
    X = ACTIVE.copy()
    X[:40, 1] = np.nan
    model = PPCA(2, standardize=True).fit(X)
    found = supplementary(model, X, rows=X[:3]).rows
    offsets = (model.impute(X[:3]) - model.mean_) / model.scale_
    close(found.distance, np.linalg.norm(offsets, axis=1))
    close(found.cos2, (offsets @ model.components_.T) ** 2 / found.distance[:, None] ** 2)
