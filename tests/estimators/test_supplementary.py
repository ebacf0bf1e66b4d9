"""`supplementary`: frames and arrays in and out, blocks of rows, what is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dualpca
from dualpca import PCA, PPCA, supplementary
from tests.gaussian.supplementary_cases import (
    ACTIVE,
    BESIDE,
    IRIS,
    SPECIES,
    WIDTH,
    close,
    simulated,
)


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
