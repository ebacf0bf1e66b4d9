"""Supplementary columns and rows: FactoMineR's numbers, independent oracles, missing values."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris

import dualpca
from dualpca import PCA, PPCA, BayesianPCA, FactorAnalysis, supplementary

IRIS = load_iris()
ACTIVE, WIDTH = IRIS.data[:, :3], IRIS.data[:, 3]
SPECIES = IRIS.target_names[IRIS.target]
BESIDE = {"Petal.Width": WIDTH, "Species": SPECIES}

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


def close(found, theirs, rtol=1e-8):
    """Compare with numbers printed to ten digits."""
    np.testing.assert_allclose(found, theirs, rtol=rtol)


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


# --- missing values ----------------------------------------------------------------------------


def simulated(n, missing, seed=0):
    """Rows of two latents, numbers and classes that depend on the latents, and the latents."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    W = np.linalg.qr(rng.normal(size=(8, 2)))[0] * [3.0, 2.0]
    X = z @ W.T + rng.normal(size=(n, 8))
    number = z @ [0.6, -0.5] + rng.normal(size=n) * np.sqrt(1 - 0.61)
    group = np.where(z[:, 0] + rng.normal(size=n) > 0.5, "high", "low")
    X[rng.random(X.shape) < missing] = np.nan
    return X, number, group, z


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


@pytest.mark.parametrize("library", [pd, pl])
def test_beside_a_model_of_columns_of_any_kind(library):
    X, number, group, z = simulated(600, 0.1)
    data = {f"a{j}": X[:, j] for j in range(5)} | {"b": np.where(z[:, 0] > 0, "yes", "no")}
    frame = library.DataFrame(data)
    model = dualpca.CopulaPPCA(2, random_state=0).fit(frame)
    found = supplementary(model, frame, {"number": number, "group": group}, rows=frame[:3])
    Z = np.asarray(model.transform(frame))
    close(found.numbers.correlation[0, 0], np.corrcoef(number, Z[:, 0])[0, 1])
    close(found.levels.coordinates[0], Z[group == "high"].mean(axis=0))
    assert np.linalg.norm(found.numbers.latent_correlation) == pytest.approx(0.61**0.5, abs=0.1)
    assert np.linalg.norm(found.numbers.correlation) < np.linalg.norm(
        found.numbers.latent_correlation
    )
    close(found.rows.coordinates, Z[:3], 1e-5)
    assert found.levels.cos2 is None and found.rows.cos2 is None


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


# --- inputs ------------------------------------------------------------------------------------


def frame_of(library):
    data = {f"a{j}": ACTIVE[:, j] for j in range(3)}
    data |= {"width": [None, *WIDTH[1:]], "species": SPECIES.tolist(), "month": [1, 2, 3] * 50}
    if library is pd:
        return pd.DataFrame(data).astype({"width": "Float64", "species": "category"})
    return pl.DataFrame(data).with_columns(pl.col("species").cast(pl.Categorical))


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_by_name_and_results_as_frames(library):
    frame = frame_of(library)
    active = frame[["a0", "a1", "a2"]]
    model = PPCA(2).fit(active)
    by_name = supplementary(model, frame, ["width", "species", "month"], categories=["month"])
    apart = supplementary(model, active, frame[["width", "species", "month"]], categories=["month"])
    close(by_name.numbers.correlation, apart.numbers.correlation)
    assert by_name.numbers.names == ("width",)
    assert by_name.numbers.weight.tolist() == [149]
    assert by_name.levels.levels == ("setosa", "versicolor", "virginica", 1, 2, 3)
    table = library.DataFrame(by_name.levels.table())
    assert table.shape == (6, 3 + 4 * 2)
    assert list(table.columns)[:5] == ["column", "level", "rows", "coordinate0", "coordinate1"]
    rows = supplementary(model, frame, rows=frame[:2]).rows
    close(rows.coordinates, model.transform(active[:2]))
    assert list(library.DataFrame(rows.table()).columns)[-1] == "distance"


def test_order_of_levels():
    levels = ["small", "middle", "large"]
    sizes = [*levels, None] * 10
    model = PCA(1).fit(ACTIVE[:40])
    ordered = pd.DataFrame({"size": pd.Categorical(sizes, levels, ordered=True)})
    assert supplementary(model, ACTIVE[:40], ordered).levels.levels == tuple(levels)
    enum = pl.DataFrame({"size": pl.Series(sizes, dtype=pl.Enum(levels))})
    assert supplementary(model, ACTIVE[:40], enum).levels.levels == tuple(levels)
    plain = supplementary(model, ACTIVE[:40], {"size": sizes}).levels
    assert plain.levels == ("large", "middle", "small")
    assert plain.weight.tolist() == [10, 10, 10]


def test_booleans_are_categories_and_arrays_have_names():
    model = PCA(1).fit(ACTIVE)
    found = supplementary(model, ACTIVE, WIDTH > 1)
    assert found.levels.names == ("x0=False", "x0=True")
    both = np.column_stack([WIDTH, IRIS.target])
    found = supplementary(model, ACTIVE, both, names=["width", "kind"], categories=["kind"])
    assert (found.numbers.names, found.categories.names) == (("width",), ("kind",))
    series = supplementary(model, ACTIVE, pd.Series(WIDTH, name="width"))
    assert series.numbers.names == ("width",)
    nothing = supplementary(model, ACTIVE)
    assert nothing.numbers.correlation.shape == (0, 1)
    assert nothing.levels.v_test.shape == (0, 1)


def test_blocks_of_rows_do_not_change_the_answer(monkeypatch):
    X = ACTIVE.copy()
    X[::7, 0] = np.nan
    model = PPCA(2).fit(X)
    whole = supplementary(model, X, BESIDE, rows=X)
    monkeypatch.setattr("dualpca.estimators.supplementary.BLOCK", 100)
    parts = supplementary(model, X, BESIDE, rows=X)
    close(parts.numbers.latent_correlation, whole.numbers.latent_correlation)
    close(parts.levels.latent_coordinates, whole.levels.latent_coordinates)
    close(parts.levels.cos2, whole.levels.cos2)
    close(parts.rows.cos2, whole.rows.cos2)


@pytest.mark.filterwarnings("error")
def test_what_is_undefined_is_nan():
    model = PCA(2).fit(ACTIVE)
    found = supplementary(
        model, ACTIVE, {"c": np.full(150, 0.1), "none": [np.nan] * 150, "one": ["a"] * 150}
    )
    assert np.isnan(found.numbers.correlation).all()
    assert np.isnan(found.levels.v_test).all()
    np.testing.assert_allclose(found.categories.eta2, 0, atol=1e-12)


def test_inputs_are_not_modified_and_models_of_other_kinds_have_correlations():
    X, width = ACTIVE.copy(), WIDTH.copy()
    for model in (dualpca.KernelPCA(2), dualpca.MixturePPCA(2, 1, random_state=0)):
        found = supplementary(model.fit(X), X, {"w": width})
        Z = model.transform(X)
        close(found.numbers.correlation[0, 0], np.corrcoef(width, Z[:, 0])[0, 1])
        assert found.numbers.latent_correlation is None
    assert np.array_equal(X, ACTIVE) and np.array_equal(width, WIDTH)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"w": WIDTH[:10]}, {}, "column 'w' must be of as many rows as X, 150, got 10"),
        ({"w": np.full(150, np.inf)}, {}, "column 'w' must be finite, got 'inf in row 0'"),
        ({"t": np.zeros(150, "M8[s]")}, {}, "column 't' must be numbers or categories"),
        ({"w": WIDTH}, {"categories": ["v"]}, "categories must be among"),
        (WIDTH, {"names": ["a", "b"]}, "names must be 1 different names"),
        (["w"], {}, "X must be a frame if columns are given by name"),
        (np.zeros((150, 2, 2)), {}, "columns must be a frame, a mapping, or an array"),
    ],
)
def test_refusals_say_what_to_do(columns, options, words):
    with pytest.raises(ValueError, match=words):
        supplementary(PCA(1).fit(ACTIVE), ACTIVE, columns, **options)


def test_another_index_is_refused():
    frame = frame_of(pd)
    model = PPCA(2).fit(frame[["a0", "a1", "a2"]])
    shuffled = frame[["width"]].sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match="rows of the same index as X"):
        supplementary(model, frame[["a0", "a1", "a2"]], shuffled)
    with pytest.raises(ValueError, match=r"columns must be among .*got \['colour'\]"):
        supplementary(model, frame, ["colour"])
