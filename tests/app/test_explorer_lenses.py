"""What the explorer says of models, beside slower ways to say it."""

import numpy as np
import polars as pl
import pytest

import dualpca as dp
from dualpca.app.explorer.lenses import lens_of
from dualpca.app.explorer.session import (
    Closest,
    Units,
    codes_of,
    columns_of,
    exported,
    open_session,
    shape_of,
    shown,
    summarized,
)
from dualpca.app.tables.text import TableError
from tests.app.explorer_cases import NAMES, digits, fitted, iris, session_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning"),
    pytest.mark.filterwarnings("ignore:the variance of column"),  # of pixels, and no matter here
]
X = iris().select(NAMES).to_numpy()
LINEAR = [dp.PCA(2), dp.PPCA(2), dp.BayesianPCA(2), dp.FactorAnalysis(1)]


def rbf(cls, **options):
    return fitted(cls(2, kernel="rbf", gamma="median", **options))


def mixture():
    return fitted(dp.MixturePPCA(2, 2, random_state=0))


@pytest.mark.parametrize("model", LINEAR, ids=lambda m: type(m).__name__)
def test_latents_decode_to_reconstructions(model):
    session = session_of(fitted(model))
    z = session.Z[0][7]
    found = session.decode(z.tolist(), 0, None)
    expected = session.lens.reconstruct(X[7:8])[0]
    np.testing.assert_allclose(found["values"], expected, atol=1e-10)


def test_the_spread_is_that_of_a_new_measurement():
    model = fitted(dp.PPCA(2))
    covariance = model.posterior_predictive(iris().select(NAMES)[:1], parameters="fixed")[1]
    found = session_of(model).decode([0.3, -2.0], 0, None)["std"]
    np.testing.assert_allclose(found, np.sqrt(np.diag(covariance)), rtol=1e-10)


def test_the_spread_of_factor_analysis_has_its_own_noises():
    model = fitted(dp.FactorAnalysis(1))
    W, psi = model.components_.T, model.noise_variance_
    C = np.linalg.inv(np.eye(1) + W.T @ np.diag(1 / psi) @ W)
    dense = np.sqrt(np.diag(W @ C @ W.T) + psi)
    np.testing.assert_allclose(session_of(model).decode([1.0], 0, None)["std"], dense, rtol=1e-8)


def test_the_spread_of_pca_is_the_noise_in_the_units_of_the_table():
    model = fitted(dp.PCA(2, standardize=True))
    found = session_of(model).decode([0.0, 0.0], 0, None)["std"]
    np.testing.assert_allclose(found, np.sqrt(model.noise_variance_) * model.scale_, rtol=1e-10)


def test_a_component_of_a_mixture_decodes_by_its_own_subspace():
    model = mixture()
    session = session_of(model)
    z = np.array([0.4, -0.2])
    found = session.decode(z.tolist(), 1, None)
    np.testing.assert_allclose(found["values"], model.means_[1] + model.loadings_[1] @ z)
    W, noise = model.loadings_[1], model.noise_variance_[1]
    C = noise * np.linalg.inv(W.T @ W + noise * np.eye(2))
    np.testing.assert_allclose(found["std"], np.sqrt(np.diag(W @ C @ W.T) + noise), rtol=1e-8)
    low, _ = session.ranges(1)
    own = session.Z[1][np.asarray(model.predict(iris().select(NAMES))) == 1]
    np.testing.assert_allclose(low, own.min(axis=0))


def test_kernel_pca_borrows_a_density_from_its_rows():
    session = session_of(rbf(dp.KernelPCA))
    assert session.lens.density_of == "latents"
    centre, far = session.decode([0, 0], 0, None), session.decode([9, 9], 0, None)
    assert centre["log_density"] > far["log_density"] + 10
    assert centre["std"] is None
    assert "DualPPCA" in session.lens.reasons["spread"]
    assert session.sample(3, 0, 0)["values"].shape == (3, 4)


def test_the_spread_of_dual_ppca_is_that_of_pre_images():
    model = rbf(dp.DualPPCA)
    session = session_of(model)
    known = model.posterior(iris().select(NAMES)[:1], parameters="fixed")
    variance = np.diagonal(np.asarray(known[1][0]))
    z = session.Z[0][3]
    draws = z + np.sqrt(variance) * np.random.default_rng(5).normal(size=(4000, 2))
    slow = model.preimages(draws, "learned").points.std(axis=0)
    np.testing.assert_allclose(session.decode(z.tolist(), 0, None)["std"], slow, rtol=0.35)


@pytest.mark.parametrize("way", ["learned", "smoother", "distance", "fixed-point", "auto"])
def test_every_way_back_is_the_models_own(way):
    model = rbf(dp.KernelPCA)
    found = session_of(model).decode([0.1, 0.05], 0, way)["values"]
    np.testing.assert_array_equal(found, model.preimages([[0.1, 0.05]], way).points[0])


def test_what_a_model_cannot_do_is_said_in_words():
    pca, kernel = session_of(fitted(dp.PCA(2))).lens.reasons, session_of(rbf(dp.KernelPCA))
    assert pca == {"impute": "PCA does not fill missing entries; PPCA does, for example."}
    assert "impute" in kernel.lens.reasons
    plain = session_of(fitted(dp.ProbabilisticKernelPCA(2, kernel="rbf")))
    assert {"decode", "spread", "error", "sample", "impute"} <= set(plain.lens.reasons)
    with pytest.raises(TableError, match="no way back"):
        plain.decode([0.0, 0.0], 0, None)
    flat = dp.PCA(1).fit(np.array([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]]))
    assert "without noise" in lens_of(flat).reasons["density"]


def test_models_without_latents_are_refused():
    for model in (dp.Imputer(), dp.HiddenMarkovPCA(2, 1, random_state=0)):
        with pytest.raises(TableError, match="cannot be explored"):
            lens_of(fitted(model))
    K = X[:20] @ X[:20].T
    with pytest.raises(TableError, match="cannot be explored"):
        lens_of(dp.KernelPCA(2, kernel="precomputed").fit(K))


def test_a_generator_shows_its_model():
    generator = fitted(dp.Generator(dp.PPCA(2)))
    assert lens_of(generator).name == "PPCA"


def test_the_nearest_row_is_the_nearest():
    session = session_of()
    found = session.decode([0.3, 0.4], 0, None)
    distance = np.sqrt(np.mean(((X - found["values"]) / X.std(axis=0)) ** 2, axis=1))
    assert found["nearest"] == distance.argmin()
    assert found["nearest_id"] == f"iris-{distance.argmin()}"
    np.testing.assert_allclose(found["distance"], distance.min())


def test_the_nearest_row_may_have_missing_entries():
    holes = iris().with_columns(
        pl.when(pl.int_range(150) == 41).then(None).otherwise(pl.col(NAMES[3])).alias(NAMES[3])
    )
    session = open_session(fitted(dp.PPCA(2), holes), holes, id_column="who")
    row = X[41:42]  # far from others
    assert session.nearest(row)[0] == {
        "nearest": 41,
        "nearest_id": "iris-41",
        "distance": 0.0,
    }
    assert shown(session, [41], 0)["values"][0][3] is not None  # NaN, which becomes null later


@pytest.mark.parametrize("model", [dp.PPCA(2), None], ids=["filled by the model", "by averages"])
def test_rows_with_few_entries_are_not_closest_more_often_than_they_are(model):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8))
    partial, poor = rows.copy(), np.arange(300) % 3 == 0
    for i in np.flatnonzero(poor):
        partial[i, rng.choice(8, 5, replace=False)] = np.nan
    filled = None if model is None else model.fit(partial).impute(partial, return_std=True)
    spread = np.nanstd(partial, axis=0)
    closest = Closest.of(partial, spread, filled)
    asked = rows[rng.choice(300, 100, replace=False)] + 0.3 * rng.normal(size=(100, 8))
    true = [int(np.argmin(np.sum(((rows - row) / spread) ** 2, axis=1))) for row in asked]
    found = [closest.to(row)[0] for row in asked]
    naive = np.nanmean(((partial - asked[:, None]) / spread) ** 2, axis=2).argmin(axis=1)
    assert poor[naive].mean() > 1.5 * poor[true].mean()  # what the mean of the rest would give
    assert poor[found].mean() < 1.2 * poor[true].mean()
    if model is not None:
        assert np.mean(np.equal(found, true)) > 0.5 > np.mean(naive == true)


def test_rows_that_are_as_close_are_taken_by_their_names():
    rows = np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    for ids, first in ((["x", "c", "a", "b"], 2), (["x", "10", "9", "a"], 2), (None, 1)):
        assert Closest.of(rows, np.ones(2), ids=ids).to(np.zeros(2)) == (first, 0.0)


def test_a_row_without_entries_is_never_the_closest():
    rows = np.array([[np.nan, np.nan], [5.0, 5.0], [-5.0, -5.0]])
    assert Closest.of(rows, np.full(2, 5.0)).to(np.array([0.1, 0.1]))[0] == 1


def test_units_of_columns_change_neither_errors_nor_the_closest_row():
    factors = np.array([1.0, 1000.0, 0.01, 1.0])
    other = iris().with_columns([pl.col(n) * f for n, f in zip(NAMES, factors, strict=True)])
    table = {"means": [0.0] * 4, "scales": factors.tolist()}
    model = fitted(dp.PPCA(2))
    plain, scaled = session_of(model), open_session(model, other, {"table": table})
    np.testing.assert_allclose(scaled.errors(range(150)), plain.errors(range(150)))
    np.testing.assert_allclose(scaled.column_errors(range(9)), plain.column_errors(range(9)))
    a, b = (one.decode([0.3, 0.4], 0, None) for one in (plain, scaled))
    assert a["nearest"] == b["nearest"] and a["distance"] == pytest.approx(b["distance"])
    assert b["log_density"] == pytest.approx(a["log_density"] - np.log(factors).sum())
    raw = np.asarray(model.reconstruct(iris().select(NAMES))) - X
    want = np.sqrt(np.mean((raw / X.std(axis=0)) ** 2, axis=0))
    np.testing.assert_allclose(plain.column_errors(range(150)), want)
    np.testing.assert_allclose(scaled.spread * scaled.units.scale, X.std(axis=0) * factors)


def test_pixels_have_one_spread_and_constant_columns_one():
    images = session_of(image="2x2")
    np.testing.assert_allclose(images.spread, np.sqrt(np.mean(X.var(axis=0))))
    flat = iris().with_columns(pl.lit(3.0).alias(NAMES[1]))
    assert open_session(fitted(dp.PPCA(2), flat), flat).spread[1] == 1.0


def test_a_model_that_standardises_has_noise_in_the_units_of_the_rows():
    lens = lens_of(fitted(dp.PCA(2, standardize=True)))
    noise = float(lens.model.noise_variance_)
    np.testing.assert_allclose(lens.spread(np.zeros(2)), np.sqrt(noise) * X.std(axis=0))
    own = lens_of(fitted(dp.MixturePPCA(1, 2, standardize=True)))
    alone = lens_of(fitted(dp.PPCA(2, standardize=True)))
    np.testing.assert_allclose(own.spread(np.zeros(2)), alone.spread(np.zeros(2)), rtol=0.05)


def test_rows_farther_out():
    session = session_of()
    assert session.decode(session.Z[0].mean(axis=0).tolist(), 0, None)["farther"] == 1.0
    assert session.decode([50.0, 50.0], 0, None)["farther"] == 0.0


def test_imputation_is_the_models():
    model = fitted(dp.PPCA(2))
    found = session_of(model).impute(3, [0, 2])
    row = X[3:4].copy()
    row[0, [0, 2]] = np.nan
    values, std = model.impute(pl.DataFrame(row, schema=NAMES, orient="row"), return_std=True)
    np.testing.assert_array_equal(found["values"], np.asarray(values)[0])
    np.testing.assert_array_equal(found["std"], np.asarray(std)[0])
    np.testing.assert_array_equal(found["truth"], X[3])


def test_units_of_the_table_come_from_the_model_file():
    means, scales = X.mean(axis=0), X.std(axis=0)
    frame = iris().with_columns(
        [(pl.col(n) - m) / s for n, m, s in zip(NAMES, means, scales, strict=True)]
    )
    model = dp.PPCA(2).fit(frame.select(NAMES))
    table = {"means": means.tolist(), "scales": scales.tolist(), "identifier": "who"}
    session = open_session(model, iris(), {"table": table})
    z = session.Z[0][11]
    np.testing.assert_allclose(z, model.transform(frame.select(NAMES))[11])
    found = session.decode(z.tolist(), 0, None)
    own = model.inverse_transform(z[None, :])[0]
    np.testing.assert_allclose(found["values"], own * scales + means)
    covariance = model.posterior_predictive(frame.select(NAMES)[:1], parameters="fixed")[1]
    noise = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found["std"], noise * scales)
    np.testing.assert_allclose(session.impute(11, [1])["truth"], X[11])
    error = np.sqrt(np.mean(((found["values"] - X[11]) / scales) ** 2))
    np.testing.assert_allclose(session.errors([11]), error)
    assert session.identifier(11) == "iris-11"
    low, mean, high = session.scale()
    np.testing.assert_allclose([low, mean, high], [X.min(0), means, X.max(0)])


def test_names_of_features_come_from_the_model_file():
    model = dp.PPCA(2).fit(X)
    table = {"columns": NAMES}
    mixed = iris().select([*NAMES[::-1], "species"])
    session = open_session(model, mixed, {"table": table})
    np.testing.assert_array_equal(session.X, X)
    levels = {"columns": ["a", "kind"], "levels": {"kind": ["u", "v", "w"]}}
    assert list(open_session(model, None, {"table": levels}).features) == [
        *("a", "kind=u", "kind=v", "kind=w")
    ]


@pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")  # pixels at the rim are dark
def test_the_image_shape_comes_from_the_model_file_or_the_command_line():
    frame = digits()
    model = dp.PPCA(2).fit(frame.drop("digit"))
    metadata = {"table": {"image_shape": [8, 8]}}
    assert open_session(model, frame, metadata).shape == ("image", (8, 8))
    assert open_session(model, frame, metadata, curve=True).shape.kind == "curve"
    assert open_session(model, frame, metadata, image="4x16").shape.size == (4, 16)


def test_shapes_that_do_not_fit_are_refused():
    for word in ("8x9", "8", "axb", "-8x-8", "8x8x1x1", "4x8x2"):
        with pytest.raises(TableError, match="--image"):
            shape_of(64, word, False)
    with pytest.raises(TableError, match="exclude"):
        shape_of(64, "8x8", True)
    assert shape_of(12, "2X2x3", False).size == (2, 2, 3)
    assert shape_of(4, "2x2x1", False).size == (2, 2)


def test_rows_that_the_model_cannot_place_are_refused():
    holes = iris().with_columns(pl.lit(None, dtype=pl.Float64).alias(NAMES[0]))
    with pytest.raises(TableError, match="150 rows have missing entries"):
        open_session(fitted(dp.PCA(2)), holes)
    endless = iris().with_columns(pl.lit(float("inf")).alias(NAMES[0]))
    with pytest.raises(TableError, match="infinite"):
        open_session(fitted(dp.PPCA(2)), endless)
    spot = pl.when(pl.int_range(150) == 7).then(float("inf")).otherwise(pl.col(NAMES[1]))
    with pytest.raises(TableError, match=r"'sepal width', row iris-7\)"):
        open_session(fitted(dp.PPCA(2)), iris().with_columns(spot.alias(NAMES[1])), id_column="who")
    gap = pl.when(pl.int_range(150) == 7).then(None).otherwise(pl.col(NAMES[1])).alias(NAMES[1])
    with pytest.raises(TableError, match=r"1 row has .*\(row iris-7; first in 'sepal width'\)"):
        open_session(fitted(dp.PCA(2)), iris().with_columns(gap), id_column="who")
    with pytest.raises(TableError, match="4 features, the table 3"):
        open_session(dp.PPCA(2).fit(X), iris().select(NAMES[:3]))
    with pytest.raises(TableError, match="--id nobody"):
        session_of(id_column="nobody")


def test_without_a_table_a_kernel_model_shows_its_own_points_and_others_none():
    assert open_session(rbf(dp.KernelPCA), None).n == 150
    empty = open_session(fitted(dp.PPCA(2)), None)
    assert empty.n == 0
    assert empty.ranges(0) == ([-3.0, -3.0], [3.0, 3.0])
    assert empty.decode([0, 0], 0, None)["nearest"] is None
    low, mean, high = empty.scale()
    assert (low <= mean).all()
    assert (mean <= high).all()
    with pytest.raises(TableError, match="no table was given"):
        empty.errors([0])


def test_colours():
    session = session_of(mixture())
    columns = {column.name: column for column in columns_of(session)}
    assert columns["species"].levels == ["setosa", "versicolor", "virginica"]
    np.testing.assert_array_equal(codes_of(session, columns["species"]), np.repeat([0, 1, 2], 50))
    np.testing.assert_allclose(codes_of(session, columns["petal width"]), X[:, 3], rtol=1e-6)
    groups = codes_of(session, columns["component"])
    np.testing.assert_array_equal(groups, session.lens.model.predict(iris().select(NAMES)))
    errors = codes_of(session, columns["reconstruction error"])
    np.testing.assert_allclose(errors, session.errors(range(150)), rtol=1e-6)
    assert "who" not in columns


def test_columns_that_cannot_be_colours_say_why():
    frame = iris().with_columns(
        pl.Series("code", [f"c{i}" for i in range(150)]),
        pl.Series("day", np.arange(150)).cast(pl.Date),
        pl.Series("some", [None, 1, 2] * 50),
    )
    session = open_session(fitted(dp.PPCA(2)), frame)
    columns = {column.name: column for column in columns_of(session)}
    assert "150 values" in columns["code"].reason
    assert columns["day"].kind == "none"
    assert columns["some"].kind == "category"
    assert np.isnan(codes_of(session, columns["some"])[0])


def test_tables_and_summaries():
    session = session_of()
    found = shown(session, [4, 2], 0)
    assert found["ids"] == ["iris-4", "iris-2"]
    assert found["columns"][0] == "species"
    assert found["cells"][0][:2] == ["setosa", "5"]
    gap = (session.lens.reconstruct(X) - X) / X.std(axis=0)
    errors = np.sqrt(np.mean(gap**2, axis=1))
    np.testing.assert_allclose(found["errors"], errors[[4, 2]])
    all_of_them = summarized(session, range(150))
    np.testing.assert_allclose([all_of_them["mean"], all_of_them["largest"]],
                               [errors.mean(), errors.max()])  # fmt: skip
    by_column = np.sqrt(np.mean(gap**2, axis=0))
    assert all_of_them["columns"] == [NAMES[j] for j in np.argsort(-by_column)]
    np.testing.assert_allclose(all_of_them["by_column"], -np.sort(-by_column))
    table = exported(session, [4, 2], 0)
    assert table.columns == [
        *("row", "latent 1", "latent 2", "reconstruction error", *NAMES, "species")
    ]
    np.testing.assert_allclose(table["latent 2"], session.Z[0][[4, 2], 1])


def test_an_export_does_not_lose_columns_that_are_called_the_same():
    frame = iris().with_columns(pl.lit(7).alias("row"), pl.lit(8).alias("latent 1"))
    table = exported(open_session(fitted(dp.PPCA(2)), frame), [0], 0)
    assert table["row"].to_list() == [7]
    assert table["row_"].to_list() == ["1"]
    assert "latent 1_" in table.columns


def test_units():
    units = Units(np.array([1.0]), np.array([2.0]))
    np.testing.assert_array_equal(units.into(units.out(np.array([[3.0]]))), [[3.0]])
    np.testing.assert_array_equal(units.out(np.array([[3.0]])), [[7.0]])


def test_a_node_of_a_tree_decodes_by_its_own_subspace():
    model = fitted(dp.HierarchicalPPCA([2, 2]))
    lens = lens_of(model)
    assert type(lens).__name__ == "TreeLens" and lens.sizes == [2] * 7
    assert lens.parents == [None, 0, 0, 1, 1, 2, 2] and lens.group_names == ["3", "4", "5", "6"]
    Z, blocks = lens.latents(X, 4), model.transform(iris().select(NAMES))
    np.testing.assert_allclose(Z, blocks[:, 8:10])
    node = model.nodes_[4]
    np.testing.assert_allclose(lens.decode(Z, 4), Z @ node.loadings.T + node.mean)
    groups = lens.groups(X)
    leaves = model.predict(iris().select(NAMES))
    np.testing.assert_array_equal(groups + 3, leaves)
    for k, own in {0: [3, 4, 5, 6], 1: [3, 4], 5: [5]}.items():
        np.testing.assert_array_equal(lens.members(groups, k), np.isin(leaves, own))
    spread = lens.spread(np.zeros(2), 4)
    W, noise = node.loadings, node.noise_variance
    M = np.linalg.inv(W.T @ W + noise * np.eye(2))
    np.testing.assert_allclose(spread**2, np.diag(noise * W @ M @ W.T) + noise)
    assert "error" in lens.reasons and "sample" not in lens.reasons
