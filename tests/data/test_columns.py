"""Wide tables in chunks of columns: the same models as in memory, whatever the chunks."""

import numpy as np
import pytest

from dualpca import PCA, PPCA, BayesianPCA, FactorAnalysis
from dualpca.data.columns import splits_columns, wide_rows
from dualpca.data.table import SlicedTable, chunked_table

N, D = 30, 420


def wide(dtype=np.float64, n=N, d=D, offset=5.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)) * np.arange(6, 0, -1) @ rng.normal(size=(6, d))
    return (X + rng.normal(size=(n, d)) + offset * rng.normal(size=d)).astype(dtype)


def stored(X, folder, chunks):
    zarr = pytest.importorskip("zarr", reason="chunks of columns in Zarr need zarr")
    array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=chunks, dtype=X.dtype)
    array[:] = X
    return array


def lazy(X, chunks):
    reason = "chunks of columns in Dask need dask"
    return pytest.importorskip("dask.array", reason=reason).from_array(X, chunks=chunks)


def saved(X, folder, order):
    np.save(folder / "x.npy", np.asarray(X, order=order))
    return folder / "x.npy"


SOURCES = {
    "Dask, even": lambda X, folder: lazy(X, (-1, 105)),
    "Dask, ragged": lambda X, folder: lazy(X, (-1, 100)),
    "Dask, both ways": lambda X, folder: lazy(X, (11, 100)),
    "Dask, one chunk": lambda X, folder: lazy(X, -1),
    "Dask, single columns": lambda X, folder: lazy(X, (-1, (1, X.shape[1] - 1))),
    "Zarr": lambda X, folder: stored(X, folder, (X.shape[0], 100)),
    "Zarr, both ways": lambda X, folder: stored(X, folder, (7, 64)),
    "Zarr, one chunk": lambda X, folder: stored(X, folder, X.shape),
    "file by rows": lambda X, folder: saved(X, folder, "C"),
    "file by columns": lambda X, folder: saved(X, folder, "F"),
}


@pytest.fixture(params=SOURCES)
def source(request, tmp_path, monkeypatch):
    monkeypatch.setattr("dualpca.data.table.BLOCK_BYTES_READ", 8 * N * 90)  # several blocks

    def made(X):
        found = SOURCES[request.param](X, tmp_path)
        assert chunked_table(found).by_columns is not None
        return found

    return made


def same(found, wanted, tol=1e-8):
    for name in ("components_", "mean_", "explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=tol, atol=tol)
    assert found.noise_variance_ == pytest.approx(wanted.noise_variance_, rel=tol)
    assert found.n_samples_ == wanted.n_samples_ and found.n_features_in_ == wanted.n_features_in_


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
def test_pca_is_that_of_rows_in_memory(source, weighted, standardize):
    X = wide()
    w = np.random.default_rng(1).integers(0, 4, N) if weighted else None
    wanted = PCA(4, standardize=standardize).fit(X, sample_weight=w)
    found = PCA(4, standardize=standardize).fit(source(X), sample_weight=w)
    same(found, wanted)
    if standardize:
        np.testing.assert_allclose(found.scale_, wanted.scale_, rtol=1e-12)


@pytest.mark.parametrize(
    "params",
    [
        {"n_components": 1},
        {"n_components": 0.8},
        {"n_components": "bic"},
        {"n_components": "white-noise"},
        {"noise_variance": 2.0},
        {"n_components": 3, "solver": "gram"},
        {"n_components": 3, "solver": "krylov"},
        {"n_components": 3, "noise_variance": 0},
    ],
    ids=str,
)
def test_ppca_is_that_of_rows_in_memory(params, tmp_path):
    X = wide()
    wanted, found = PPCA(**params).fit(X), PPCA(**params).fit(stored(X, tmp_path, (N, 64)))
    same(found, wanted)
    assert found.n_components_ == wanted.n_components_
    assert found.loglikelihood_ == pytest.approx(wanted.loglikelihood_, rel=1e-10)
    np.testing.assert_allclose(found.t2_limit(), wanted.t2_limit(), rtol=1e-6)
    np.testing.assert_allclose(found.spe_limit(), wanted.spe_limit(), rtol=1e-6)


def test_em_reaches_the_same_maximum():
    X = wide()
    found = PPCA(4, method="em").fit(lazy(X, (-1, 64)))
    same(found, PPCA(4).fit(X), 1e-4)
    assert found.converged_


def test_default_number_of_components_is_that_of_rows_in_memory():
    X = wide()
    found = PPCA().fit(lazy(X, (-1, 64)))
    assert found.n_components_ == PPCA().fit(X).n_components_


def test_all_axes_are_orthonormal_and_signed():
    X = wide()
    found = PCA().fit(lazy(X, (-1, 64))).components_
    np.testing.assert_allclose(found @ found.T, np.eye(N), atol=1e-12)
    np.testing.assert_allclose(found[:-1], PCA().fit(X).components_[:-1], atol=1e-10)
    assert (found[np.arange(N), np.abs(found).argmax(axis=1)] > 0).all()


@pytest.mark.parametrize("rank", [0, 2])
def test_rows_of_low_rank_have_orthonormal_axes(rank):
    rng = np.random.default_rng(0)
    X = np.round(9 * rng.normal(size=(12, rank))) @ np.round(9 * rng.normal(size=(rank, 90))) + 3.0
    model = PCA(6).fit(lazy(X, (-1, 40)))
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(model.explained_variance_[rank:], 0.0, atol=1e-10)


def test_no_components():
    X = wide()
    model = PCA(0).fit(lazy(X, (-1, 64)))
    assert model.components_.shape == (0, D)
    assert model.noise_variance_ == pytest.approx(PCA(0).fit(X).noise_variance_)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_float32_is_summed_in_float64(offset):
    X = wide(np.float32, offset=offset)
    found = PCA(4).fit(lazy(X, (-1, 64)))
    assert found.components_.dtype == found.mean_.dtype == np.float32
    exact = PCA(4).fit(X.astype(np.float64))
    np.testing.assert_allclose(found.components_, exact.components_, atol=2e-7)
    np.testing.assert_allclose(found.explained_variance_, exact.explained_variance_, rtol=2e-7)


def test_far_from_the_origin_nothing_is_lost():
    X = wide(offset=0.0) + 1e6
    same(PCA(4).fit(lazy(X, (-1, 64))), PCA(4, svd_solver="full").fit(X))


def read(found):
    return np.asarray(found) if hasattr(found, "shape") else np.concatenate(list(found))


@pytest.mark.parametrize("model", [PCA(4), PCA(4, whiten=True), PCA(4, standardize=True), PPCA(4)])
@pytest.mark.parametrize("method", ["transform", "score_samples", "hotelling_t2", "spe"])
def test_answers_are_those_of_rows_in_memory(source, model, method):
    X = wide()
    table = source(X)
    model = model.fit(table)
    found, wanted = read(getattr(model, method)(table)), getattr(model, method)(X)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    if method == "score_samples":
        assert model.score(table) == pytest.approx(model.score(X), rel=1e-10)


def test_answers_of_dask_are_not_computed_yet():
    X = wide()
    table = lazy(X, (11, 64))
    Z = PCA(2).fit(table).transform(table)
    assert type(Z).__module__.startswith("dask.") and Z.shape == (N, 2)
    blocked = PCA(2).fit(table).transform(table.map_blocks(lambda b: 1 / 0, dtype=float))
    with pytest.raises(ZeroDivisionError):
        blocked.compute()


def test_axes_are_written_where_asked(tmp_path):
    X, path = wide(np.float32), tmp_path / "axes.npy"
    wanted = PCA(3).fit(lazy(X, (-1, 64))).components_
    for table in (lazy(X, (-1, 64)), X):
        model = PCA(3, components_out=path).fit(table)
        assert isinstance(model.components_, np.memmap) and model.components_.mode == "r"
        np.testing.assert_allclose(np.load(path), wanted, atol=1e-6)
        np.testing.assert_allclose(read(model.transform(table)), model.transform(X), atol=1e-4)
    gaps = np.where(np.random.default_rng(0).random((40, 5)) < 0.1, np.nan, wide(n=40, d=5))
    same(PPCA(1, components_out=path).fit(gaps), PPCA(1).fit(gaps))


def test_an_interrupted_fit_leaves_the_old_axes(tmp_path):
    X, path = wide(), tmp_path / "axes.npy"
    PCA(3, components_out=path).fit(X)
    old, seen = np.load(path), []

    def broken(block):
        seen.append(len(seen))
        if len(seen) > 10:  # in the second pass
            raise KeyboardInterrupt
        return block

    table = lazy(X[::-1] ** 2, (-1, 60)).map_blocks(broken, dtype=float)
    with pytest.raises(KeyboardInterrupt):
        PCA(2, components_out=path).fit(table)
    np.testing.assert_array_equal(np.load(path), old)
    assert [file.name for file in tmp_path.iterdir()] == ["axes.npy"]


@pytest.mark.parametrize("out", ["axes.txt", 3, "nowhere/axes.npy"])
def test_where_axes_cannot_be_written(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=r"npy|nowhere"):
        PCA(2, components_out=out).fit(wide())


def test_what_is_not_finite_is_named():
    X = wide()
    X[3, 217] = np.nan
    with pytest.raises(ValueError, match="NaN, first at row 3, column 217"):
        PCA(2).fit(lazy(X, (-1, 50)))
    X[3, 217] = np.inf
    for model in (PCA(2), PPCA(2)):
        with pytest.raises(ValueError, match=r"infinity .inf., first at row 3, column 217"):
            model.fit(lazy(X, (-1, 50)))
    X[3, 217] = np.nan
    with pytest.raises(ValueError, match="first in row 3"):
        PCA(2).fit(wide()).transform(lazy(X, (-1, 50))).compute()
    with pytest.raises(ValueError, match="one per row, 30"):
        PCA(2).fit(lazy(wide(), (-1, 50)), sample_weight=np.ones(7))


def test_missing_values_are_those_of_rows_in_memory():
    X = np.where(np.random.default_rng(0).random((N, 60)) < 0.1, np.nan, wide(d=60))
    table = lazy(X, (-1, 25))
    found, wanted = PPCA(2).fit(table), PPCA(2).fit(X)
    assert found.loglikelihood_ == pytest.approx(wanted.loglikelihood_, rel=1e-6)


@pytest.mark.parametrize("model", [FactorAnalysis(1), BayesianPCA(3)])
def test_other_models_read_rows(model):
    X = wide(d=60)
    found, wanted = model.fit(lazy(X, (-1, 25))).mean_, X.mean(axis=0)
    np.testing.assert_allclose(found, wanted, atol=1e-10)


def test_rows_too_long_for_memory_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("dualpca.arrays.memory.free", lambda: 1000)
    X = wide()
    for table in (lazy(X, (-1, 25)), stored(X, tmp_path, (N, 100))):
        with pytest.raises(ValueError, match="in chunks of columns, and this reads whole rows: 30"):
            FactorAnalysis(1).fit(table)
        assert PCA(1).fit(table).n_samples_ == N


def test_layouts_are_recognised(tmp_path):
    X = wide()
    assert chunked_table(lazy(X, (10, -1))).by_columns is None
    assert chunked_table(stored(X, tmp_path, (1, D))).by_columns is None
    assert chunked_table(lazy(X.T, (50, 10))).by_columns is None
    assert chunked_table(saved(X[:, :60], tmp_path, "C")).by_columns is None
    assert not splits_columns(5000, 10**6, (5000, 10))
    assert SlicedTable(X).by_columns.sizes()[0] == D


def test_progress_names_the_chunks(capsys, tmp_path):
    PCA(2, verbose=True).fit(stored(wide(), tmp_path, (N, 100)))
    told = capsys.readouterr().err
    assert "columns, in blocks of a table on the CPU: Gram matrix, (30, 30) added up" in told
    assert "chunk of columns 1 of 1" in told


def test_wide_rows_are_changed_in_place(tmp_path, monkeypatch):
    monkeypatch.setattr("dualpca.data.columns.WRITTEN_BYTES", 8 * 3 * 4)
    A = np.random.default_rng(0).normal(size=(3, 10))
    for path in (None, tmp_path / "a.npy"):
        with wide_rows(path, A.shape, A.dtype) as rows:
            rows.put(0, A[:, :7])
            rows.put(7, A[:, 7:])
            rows.change(lambda block: block + 1)
        np.testing.assert_array_equal(rows.array, A + 1)
