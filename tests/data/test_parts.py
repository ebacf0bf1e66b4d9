"""Tables in parts: the same fits as in memory, from files, Parquet, Zarr, batches."""

import os
import tracemalloc

import numpy as np
import pytest

import dualpca.data.table as entry
from dualpca import (
    PCA,
    PPCA,
    Batches,
    BayesianPCA,
    FactorAnalysis,
    HiddenMarkovPCA,
    KernelPCA,
    MixturePPCA,
)
from dualpca.data.base import read_ahead
from dualpca.data.moments import Columns, column_starts
from dualpca.data.table import SlicedTable, npy_file
from dualpca.errors import EmptyColumnError, NonFiniteError, ScaleError
from dualpca.operators.primal import PartScatter, survey

CLOSED, BY_EM = 1e-10, 1e-6


def table(n=700, d=6, dtype=np.float64, holes=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) * 2 + rng.normal(size=(n, d)) * 0.5
    X += np.arange(d) * 3
    X[rng.random(X.shape) < holes] = np.nan
    return X.astype(dtype)


def same(a, b, tol, names=("mean_", "components_", "explained_variance_", "noise_variance_")):
    for name in names:
        one, two = (np.asarray(getattr(m, name), dtype=float) for m in (a, b))
        assert np.max(np.abs(one - two)) <= tol * (1 + np.max(np.abs(two))), name


# --- the sources ---------------------------------------------------------------------------------


def npy(X, folder):
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def by_columns(X, folder):
    np.save(folder / "f.npy", np.asfortranarray(X))
    return SlicedTable(folder / "f.npy", part_rows=97)


def sliced_map(X, folder):
    padded = np.concatenate([np.full((5, X.shape[1]), 1e9, dtype=X.dtype), X])
    np.save(folder / "p.npy", padded)
    return SlicedTable(np.load(folder / "p.npy", mmap_mode="r")[5:], part_rows=100)


def zarr_array(X, folder):
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(
        store=str(folder / "x.zarr"), shape=X.shape, chunks=(64, X.shape[1]), dtype=X.dtype
    )
    stored[:] = X
    return stored


def parquet(X, folder):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as files

    os.makedirs(folder / "parquet")
    for k, rows in enumerate(np.array_split(X, 3)):
        columns = {f"x{j}": rows[:, j] for j in range(X.shape[1])}
        files.write_table(arrow.table(columns), folder / "parquet" / f"{k}.parquet")
    return Batches(folder / "parquet", batch_rows=50)


def array_list(X, folder):
    return Batches(np.array_split(X, 5))


def frames(X, folder):
    pandas = pytest.importorskip("pandas")
    names = [f"x{j}" for j in range(X.shape[1])]
    return Batches([pandas.DataFrame(rows, columns=names) for rows in np.array_split(X, 4)])


def fresh(X, folder):
    return Batches(lambda: iter(np.array_split(X, 7)))


def mixed_paths(X, folder):
    np.save(folder / "a.npy", X[:300])
    return Batches([folder / "a.npy", X[300:]])


SOURCES = [npy, by_columns, sliced_map, zarr_array, parquet, array_list, frames, fresh, mixed_paths]


@pytest.mark.parametrize("source", SOURCES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_source_gives_the_fit_in_memory(source, dtype, tmp_path):
    X = table(dtype=dtype)
    found, wanted = PCA(3).fit(source(X, tmp_path)), PCA(3).fit(X)
    assert found.components_.dtype == dtype and found.n_samples_ == 700
    same(found, wanted, CLOSED if dtype == np.float64 else 2e-6)


@pytest.mark.parametrize("source", SOURCES, ids=lambda f: f.__name__)
def test_every_source_with_holes_gives_the_fit_in_memory(source, tmp_path):
    X = table(n=400, holes=0.2)
    X[3] = np.nan
    found = PPCA(2, tol=1e-9).fit(source(X, tmp_path))
    wanted = PPCA(2, tol=1e-9).fit(X)
    assert found.n_samples_ == wanted.n_samples_ == 399
    same(found, wanted, BY_EM)
    assert found.loglikelihood_ == pytest.approx(wanted.loglikelihood_, rel=1e-10)


# --- the models ----------------------------------------------------------------------------------

MODELS = [
    (PCA(), CLOSED),
    (PCA(0.9), CLOSED),
    (PCA("mle"), CLOSED),
    (PCA(2, standardize=True, whiten=True), CLOSED),
    (PCA(3, svd_solver="arpack"), CLOSED),
    (PPCA(2), CLOSED),
    (PPCA("bic"), CLOSED),
    (PPCA(noise_variance=0.5), CLOSED),
    (PPCA(2, method="em", tol=1e-9), BY_EM),
    (BayesianPCA(), CLOSED),
    (BayesianPCA(method="variational"), BY_EM),
]


@pytest.mark.parametrize("model,tol", MODELS, ids=lambda m: str(m))
def test_models_equal_those_in_memory(model, tol):
    X = table()
    from sklearn.base import clone

    found, wanted = clone(model).fit(Batches(np.array_split(X, 6))), clone(model).fit(X)
    same(found, wanted, tol)
    new = table(seed=1)[:20]
    assert np.allclose(found.transform(new), wanted.transform(new), atol=1e-6)
    assert np.allclose(found.score_samples(new), wanted.score_samples(new), atol=1e-5)


@pytest.mark.parametrize("holes", [0.0, 0.15])
def test_factor_analysis_equals_that_in_memory(holes):
    X = table(holes=holes)
    found = FactorAnalysis(2, tol=1e-6).fit(Batches(np.array_split(X, 6)))
    wanted = FactorAnalysis(2, tol=1e-6).fit(X)
    same(found, wanted, 1e-6, ("mean_", "components_", "noise_variance_"))
    assert found.n_samples_ == wanted.n_samples_


def test_wide_tables_are_solved_by_products(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 5)) @ rng.normal(size=(5, 120)) + 0.1 * rng.normal(size=(300, 120))
    monkeypatch.setattr("dualpca.operators.primal.WIDEST", 100)
    calls = []
    product = PartScatter.__matmul__
    monkeypatch.setattr(
        PartScatter, "__matmul__", lambda self, V: calls.append(V.shape) or product(self, V)
    )
    monkeypatch.setattr(PartScatter, "dense", lambda self: pytest.fail("d×d was formed"))
    for options in ({}, {"standardize": True}):
        same(PCA(5, **options).fit(Batches(np.array_split(X, 4))), PCA(5, **options).fit(X), CLOSED)
    assert calls


def test_many_directions_of_a_wide_table_are_found_densely(monkeypatch):
    X = table(n=200, d=30)
    monkeypatch.setattr("dualpca.operators.primal.WIDEST", 20)
    same(PCA(29).fit(Batches(np.array_split(X, 4))), PCA(29).fit(X), CLOSED)


def test_rows_far_from_zero_lose_no_digits():
    X = table() + 1e7
    found, wanted = PCA(3).fit(Batches(np.array_split(X, 6))), PCA(3).fit(X)
    same(found, wanted, 1e-8)


# --- results in parts ----------------------------------------------------------------------------


def test_results_come_in_batches_and_can_be_saved_and_fitted_again(tmp_path):
    X = table(holes=0.1)
    model = PPCA(2).fit(X)
    batches = Batches(np.array_split(X, 4))
    Z = model.transform(batches)
    assert np.allclose(np.concatenate(list(Z)), model.transform(X), atol=1e-12)
    Z.save(tmp_path / "z.npy")
    assert np.allclose(np.load(tmp_path / "z.npy"), model.transform(X), atol=1e-12)
    same(PCA(1).fit(Z), PCA(1).fit(model.transform(X)), CLOSED)
    filled = np.concatenate(list(model.impute(batches)))
    np.testing.assert_allclose(filled, model.impute(X), rtol=1e-12)
    density = np.concatenate(list(model.score_samples(batches)))
    assert np.allclose(density, model.score_samples(X), atol=1e-10)
    assert model.score(batches) == pytest.approx(model.score(X), rel=1e-12)
    model.score_samples(batches).save(tmp_path / "l.npy")
    assert np.load(tmp_path / "l.npy").shape == (700,)


def test_names_are_kept_and_checked(tmp_path):
    X = table()
    model = PCA(2).fit(frames(X, tmp_path))
    assert list(model.feature_names_in_) == [f"x{j}" for j in range(6)]
    assert len(list(model.transform(frames(X, tmp_path)))) == 4
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(
            Batches(parquet(X, tmp_path)._fresh, columns=[f"x{j}" for j in range(5, -1, -1)])
        )


def test_chosen_columns_of_a_parquet_folder(tmp_path):
    X = table()
    parquet(X, tmp_path)
    found = PCA(2).fit(Batches(tmp_path / "parquet", columns=["x4", "x1", "x2"]))
    same(found, PCA(2).fit(X[:, [4, 1, 2]]), CLOSED)


# --- what is refused -----------------------------------------------------------------------------


def test_a_generator_serves_one_pass_only():
    X = table()
    same(PCA(2).fit(Batches(iter(np.array_split(X, 4)))), PCA(2).fit(X), CLOSED)
    same(PPCA(2).fit(Batches(r for r in np.array_split(X, 4))), PPCA(2).fit(X), CLOSED)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="callable that returns a fresh iterator"):
        PPCA(2).fit(Batches(r for r in np.array_split(X, 4)))


def test_entries_that_are_not_finite_are_named_by_their_row():
    X = table()
    X[432, 1] = np.nan
    with pytest.raises(NonFiniteError, match="row 432, column 1"):
        PCA(2).fit(Batches(np.array_split(X, 6)))
    X[432, 1] = np.inf
    for model in (PCA(2), PPCA(2), FactorAnalysis(2), BayesianPCA()):
        with pytest.raises(NonFiniteError, match="row 432, column 1"):
            model.fit(Batches(np.array_split(X, 6)))


@pytest.mark.parametrize(
    "parts,message",
    [
        ([np.zeros((3, 2)), np.zeros((3, 4))], "2 columns"),
        ([np.zeros(3)], "2-dimensional"),
        ([np.array([["a", "b"]])], "real number"),
        ([], "0 sample"),
        ([np.ones((1, 3))], "minimum of 2"),
    ],
)
def test_bad_parts_are_named(parts, message):
    with pytest.raises(ValueError, match=message):
        PCA(1).fit(Batches(parts))


def test_masked_entries_of_a_block_are_refused():
    X = np.ma.array(table(), mask=False)
    assert SlicedTable(X, part_rows=50).reduce(len, int.__add__) == 700
    X[60, 2] = np.ma.masked
    with pytest.raises(ValueError, match="masked"):
        SlicedTable(X, part_rows=50).reduce(len, int.__add__)


def test_what_needs_all_rows_is_refused_with_the_remedy():
    complete = Batches(np.array_split(table(), 3))
    with pytest.raises(ValueError, match="all rows in memory"):
        PCA(2, svd_solver="full").fit(complete)
    with pytest.raises(ValueError, match="without further arguments"):
        PPCA(2).fit(complete).impute(complete, return_std=True)
    with pytest.raises(ValueError, match="batch_rows"):
        Batches([], batch_rows=0)
    with pytest.raises(ValueError, match="source of Batches"):
        Batches(3)
    with pytest.raises(FileNotFoundError):
        PCA(2).fit(Batches("nowhere.parquet"))
    with pytest.raises(ValueError, match="5 features"):
        PCA(2).fit(complete).transform(Batches([np.zeros((2, 5))]))


def test_scales_that_float64_cannot_hold_are_refused():
    with pytest.raises(ScaleError):
        PCA(1).fit(Batches([table() * 1e200]))
    with pytest.raises(ScaleError):
        PPCA(1).fit(Batches([table(holes=0.1) * 1e-200]))


def test_a_feature_never_observed_is_named(tmp_path):
    X = table(holes=0.1)
    X[:, 4] = np.nan
    with pytest.raises(EmptyColumnError, match="column 4"):
        PPCA(1).fit(Batches(np.array_split(X, 3)))
    with pytest.raises(EmptyColumnError, match="x4"):
        PPCA(1).fit(frames(X, tmp_path))


# --- the machinery -------------------------------------------------------------------------------


def test_columns_add_whoever_observes():
    X = table(holes=0.5)
    X[:100, 2] = np.nan
    X[600:, 3] = np.nan
    cuts = [X[:100], X[100:101], X[101:600], X[600:]]
    total = Columns.of(cuts[0])
    for rows in cuts[1:]:
        total = total.merge(Columns.of(rows))
    for one, two in zip(total[:3], column_starts(X, None), strict=True):
        assert np.allclose(one, two, rtol=1e-12)


def test_nothing_is_read_for_missing_values_where_there_are_none(monkeypatch):
    """The sums of complete chunks say all that is known of columns; no pass looks for NaN."""
    X, looked = table(n=5000), []
    usual = Columns.of
    monkeypatch.setattr(Columns, "of", lambda *rows: looked.append(1) or usual(*rows))
    found = survey(SlicedTable(X, part_rows=2000), wide=False, nan=True)
    assert not looked and not found.missing
    for one, two in zip(found.columns, usual(X), strict=True):
        assert np.allclose(one, two, rtol=1e-12)
    weights = np.random.default_rng(1).uniform(0, 2, len(X))
    weights[:2500] = 0
    for part in survey(SlicedTable(X, part_rows=2000).with_weights(weights), wide=False, nan=True)[
        :2
    ]:
        assert np.allclose(part.mean, weights @ X / weights.sum())
    X[4000, 2] = np.nan  # not among the first rows of its chunk, one of three
    looked.clear()
    found = survey(SlicedTable(X, part_rows=1900), wide=False, nan=True)
    assert len(looked) == 1 and found.missing and found.moments is None
    for one, two in zip(found.columns, usual(X), strict=True):
        assert np.allclose(one, two, rtol=1e-12)
    X[4100, 3] = np.inf
    with pytest.raises(NonFiniteError, match="row 4100, column 3"):
        survey(SlicedTable(X, part_rows=1900), wide=False, nan=True)


def test_the_product_is_the_dense_one():
    X = table(d=8)
    parts = SlicedTable(X, part_rows=90)
    A = PartScatter(parts, survey(parts, wide=True, nan=False).columns, standardize=True)
    S = (X - X.mean(0)) / X.std(0)
    V = np.random.default_rng(0).normal(size=(8, 3))
    assert np.allclose(A @ V, S.T @ (S @ V), rtol=1e-11)
    assert np.allclose(A.dense(), S.T @ S, rtol=1e-11)
    assert A.trace == pytest.approx(np.trace(S.T @ S))


def test_a_sample_is_drawn_evenly_and_in_order():
    X = np.arange(1000.0)[:, None]
    parts = SlicedTable(X, part_rows=130)
    assert np.array_equal(parts.sample(5000, 0), X)
    drawn = np.array([parts.sample(100, seed)[:, 0] for seed in range(60)])
    assert np.all(np.diff(drawn, axis=1) > 0)
    counts, _ = np.histogram(drawn, bins=10, range=(0, 1000))
    assert np.all(np.abs(counts - 600) < 5 * 24)


def test_chunks_draw_lots_of_their_own():
    """Rows at the same place in all chunks would be 10 places of 100; of lots, some 63."""
    parts = SlicedTable(np.arange(1000.0)[:, None], part_rows=100)
    places = [np.unique(parts.sample(100, seed) % 100).size for seed in range(20)]
    assert 55 < np.mean(places) < 72
    assert not np.array_equal(parts.sample(100, 0), parts.sample(100, 1))


def test_reading_ahead_hands_on_errors_and_stops_when_left():
    def broken():
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        list(read_ahead(broken()))
    read = []

    def endless():
        for k in range(10**9):
            read.append(k)
            yield k

    for k in read_ahead(endless()):
        if k == 3:
            break
    assert len(read) < 10


def test_a_large_memory_map_is_read_in_parts_and_a_small_one_is_not(tmp_path, monkeypatch):
    X = table()
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert entry.chunked_table(mapped) is None
    monkeypatch.setattr(entry.memory, "free", lambda: int(X.nbytes))
    assert isinstance(entry.chunked_table(mapped), SlicedTable)
    assert entry.chunked_table(mapped, fitting=False) is None
    assert npy_file(mapped[::2]) is None and npy_file(np.array(mapped)) is None
    same(PCA(2).fit(mapped), PCA(2).fit(X), CLOSED)


def test_memory_does_not_grow_with_the_rows(tmp_path):
    n, d = 400_000, 20
    table_on_disk = np.lib.format.open_memmap(
        tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(n, d)
    )
    table_on_disk[:] = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    del table_on_disk
    tracemalloc.start()
    PCA(2).fit(SlicedTable(tmp_path / "big.npy", part_rows=20_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * d * 4 / 2


def test_parquet_is_decoded_as_it_is_read(tmp_path):
    """Neither row groups nor files are held whole, and files may order their columns as they do."""
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as files

    X = table(n=200_000, d=10)
    columns = {f"x{j}": X[:, j] for j in range(10)}
    options = {"row_group_size": 100_000, "use_dictionary": False, "data_page_size": 2**16}
    files.write_table(arrow.table(columns), tmp_path / "a.parquet", **options)
    before, most = arrow.total_allocated_bytes(), 0
    for _ in Batches(tmp_path / "a.parquet", batch_rows=5000):
        most = max(most, arrow.total_allocated_bytes() - before)
    assert most < X.nbytes / 2
    turned = {name: columns[name] for name in reversed(columns)}
    turned["x3"] = turned["x3"].astype(np.float32)
    files.write_table(arrow.table(turned).slice(0, 1000), tmp_path / "b.parquet")
    for names in (None, ["x3", "x1"]):
        *_, last = Batches(tmp_path, columns=names)
        wanted = X[:1000] if names is None else X[:1000, [3, 1]]
        assert np.allclose(last, wanted, rtol=1e-6) and last.dtype == np.float64


def test_verbose_tells_the_route(capsys):
    PCA(2, verbose=True).fit(Batches(np.array_split(table(), 3)))
    assert "batches on the CPU: moments, (6, 6)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "model,told",
    [
        (PPCA(2, verbose=True), "moments, (6, 6) added up; EM, one pass per step, if values"),
        (BayesianPCA(verbose=True), "moments, (6, 6) added up; EM, one pass per step, if values"),
        (
            FactorAnalysis(2, verbose=True),
            "moments, (6, 6) added up; EM, one pass per step, if values",
        ),
        (MixturePPCA(2, 1, verbose=True), "EM of a mixture, one pass per step"),
        (HiddenMarkovPCA(2, 1, verbose=True), "Baum–Welch, one pass per step"),
        (
            KernelPCA(2, kernel="rbf", eigen_solver="fourier", n_landmarks=50, verbose=True),
            "moments of a map by 'fourier', 50 landmarks or features",
        ),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.filterwarnings("ignore:Heywood case")
def test_every_model_tells_its_route_in_one_line(model, told, capsys):
    parts = Batches(np.array_split(table(n=200), 3))
    model.fit(parts)
    said = capsys.readouterr().err
    assert said.count(" on the CPU: ") == 1 and f"batches on the CPU: {told}" in said
    model.set_params(verbose=False).fit(parts)
    assert capsys.readouterr().err == ""


def test_variational_steps_are_shown(capsys):
    BayesianPCA(method="variational", verbose=True).fit(table(n=200))
    assert "variational step" in capsys.readouterr().err
