"""Dask arrays and frames: the same fits, nothing gathered beyond statistics, faults survived."""

import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dualpca import (
    PCA,
    PPCA,
    Batches,
    BayesianPCA,
    FactorAnalysis,
    HiddenMarkovPCA,
    MixturePPCA,
)
from dualpca.errors import NonFiniteError
from tests.data.test_parts import BY_EM, CLOSED, same, table

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def chunked(X, rows=150):
    return da.from_array(X, chunks=(rows, -1))


def frame(X):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    names = [f"x{j}" for j in range(X.shape[1])]
    return frames.from_pandas(pandas.DataFrame(X, columns=names), npartitions=4)


@pytest.mark.parametrize(
    "model,tol",
    [
        (PCA(3), CLOSED),
        (PCA(0.9, standardize=True), CLOSED),
        (PPCA(2), CLOSED),
        (PPCA(2, method="em", tol=1e-9), BY_EM),
        (BayesianPCA(), CLOSED),
    ],
    ids=str,
)
@pytest.mark.parametrize("into", [chunked, frame])
def test_models_equal_those_in_memory(model, tol, into):
    X = table()
    same(clone(model).fit(into(X)), clone(model).fit(X), tol)


def test_factor_analysis_equals_that_in_memory():
    X = table()
    names = ("mean_", "components_", "noise_variance_")
    same(
        FactorAnalysis(2, tol=1e-6).fit(chunked(X)), FactorAnalysis(2, tol=1e-6).fit(X), 1e-6, names
    )


@pytest.mark.parametrize("into", [chunked, frame])
def test_missing_values_are_fitted_as_in_memory(into):
    X = table(n=400, holes=0.2)
    X[7] = np.nan
    found, wanted = PPCA(2, tol=1e-9).fit(into(X)), PPCA(2, tol=1e-9).fit(X)
    assert found.n_samples_ == wanted.n_samples_ == 399
    same(found, wanted, BY_EM)


def test_unknown_and_empty_chunks():
    X = table()
    array = chunked(X)
    kept = array[array[:, 0] > np.median(X[:, 0]) - 1e9]  # all rows, but Dask does not know it
    assert np.isnan(kept.shape[0])
    same(PCA(2).fit(kept), PCA(2).fit(X), CLOSED)
    half = array[array[:, 1] > np.median(X[:, 1])]
    same(PCA(2).fit(half), PCA(2).fit(X[X[:, 1] > np.median(X[:, 1])]), CLOSED)
    early = array[da.arange(700, chunks=150) < 160]  # three partitions are empty
    found = PCA(2).fit(early)
    same(found, PCA(2).fit(X[:160]), CLOSED)
    assert found.transform(early).compute().shape == (160, 2)
    with pytest.raises(ValueError, match="0 sample"):
        PCA(2).fit(array[array[:, 0] > 1e9])


def test_chunks_along_columns_are_joined_and_told(capsys):
    X = table()
    same(PCA(2, verbose=True).fit(da.from_array(X, chunks=(200, 2))), PCA(2).fit(X), CLOSED)
    told = "Dask, 4 partitions (3 chunks along the columns are joined, which moves all rows) on the"
    assert f"{told} CPU: moments" in capsys.readouterr().err


def test_integers_and_many_partitions():
    X = np.round(table() * 10).astype(int)
    same(PCA(2).fit(da.from_array(X, chunks=(7, -1))), PCA(2).fit(X), CLOSED)


def test_results_are_dask_arrays_not_computed_yet():
    X = table(holes=0.1)
    model, array = PPCA(2).fit(X), chunked(X)
    Z = model.transform(array)
    assert isinstance(Z, da.Array) and Z.shape == (700, 2) and Z.chunks[0] == array.chunks[0]
    assert np.allclose(Z.compute(), model.transform(X), atol=1e-12)
    assert np.allclose(model.score_samples(array).compute(), model.score_samples(X), atol=1e-10)
    np.testing.assert_allclose(model.impute(array).compute(), model.impute(X), rtol=1e-12)
    assert model.score(array) == pytest.approx(model.score(X), rel=1e-12)
    named = PPCA(2).fit(frame(X))
    assert named.feature_names_in_[0] == "x0"
    rows = named.transform(frame(X).compute())
    assert np.allclose(named.transform(frame(X)).compute(), rows, atol=1e-12)


def test_bad_partitions_are_named():
    X = table()
    X[432, 1] = np.inf
    with pytest.raises(NonFiniteError, match="row 432, column 1"):
        PCA(2).fit(chunked(X))
    array = chunked(X)
    with pytest.raises(NonFiniteError, match="of part 2, column 1"):
        PPCA(2).fit(array[array[:, 0] > -1e9])
    with pytest.raises(ValueError, match="numeric"):
        frames = pytest.importorskip("dask.dataframe")
        import pandas

        PCA(1).fit(frames.from_pandas(pandas.DataFrame({"a": ["x", "y"]}), npartitions=1))
    with pytest.raises(ValueError, match="2-dimensional"):
        PCA(1).fit(da.ones(5))


def test_a_lost_partition_is_a_clear_error():
    def lost():
        raise OSError("partition 3 of the store is gone")

    good = da.from_array(table(), chunks=(100, -1))
    bad = da.from_delayed(dask.delayed(lost)(), shape=(100, 6), dtype=float)
    with pytest.raises(OSError, match="partition 3 of the store is gone"):
        PCA(2).fit(da.concatenate([good, bad]))


def test_only_statistics_leave_the_partitions():
    from dualpca.data.dask_table import DaskTable

    sizes = []

    class Spy(DaskTable):
        def reduce(self, of, plus):
            found = super().reduce(of, plus)
            sizes.append(sum(np.size(part) for part in vars(found[1]).values() if part is not None))
            return found

    PCA(2).fit(Spy(chunked(table(n=5000))))
    assert sizes and max(sizes) <= 6 * 6 + 6 + 1


def bytes_of(result):
    """Return the bytes of all arrays in a result."""
    if isinstance(result, list | tuple):
        return sum(map(bytes_of, result))
    return getattr(result, "nbytes", 0)


@pytest.mark.parametrize(
    "model",
    [HiddenMarkovPCA(2, 1), HiddenMarkovPCA(2, 1, topology="left-to-right"), MixturePPCA(2, 1)],
    ids=str,
)
def test_no_partition_comes_to_the_client(model, monkeypatch):
    """Starts look at samples, which are taken where the rows are."""
    import dualpca.data.dask_table as computing
    import dualpca.models.emissions as emissions
    import dualpca.models.hidden_markov as chains

    X = np.repeat(table(n=12, d=3, seed=1), 1000, axis=0)
    X += np.random.default_rng(0).normal(size=X.shape)
    usual, sizes = computing.compute, []

    def watched(*items):
        found = usual(*items)
        sizes.append(bytes_of(found))
        return found

    monkeypatch.setattr(computing, "compute", watched)
    for module in (chains, emissions):
        monkeypatch.setattr(module, "START_ROWS", 500)
    model.set_params(**({"max_iter": 3} if hasattr(model, "max_iter") else {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged
        found = model.fit(da.from_array(X, chunks=(6000, -1)))
        parts = clone(model).fit(Batches([X[:6000], X[6000:]]))
    assert max(sizes) < 50_000  # a partition has 144,000 bytes
    names = [name for name in ("means_", "mean_", "components_") if hasattr(found, name)]
    for name in names[:1]:
        assert np.array_equal(getattr(found, name), getattr(parts, name))


# --- a cluster -----------------------------------------------------------------------------------


def test_a_cluster_without_workers_is_an_error_after_the_time_stated():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 0, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as local,
        distributed.Client(local),
        dask.config.set({"dualpca.no-workers-timeout": "300 ms"}),
    ):
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"no workers for 0\.\d+ s.*cluster.scale"):
            PCA(2).fit(chunked(table()))
        assert time.monotonic() - begun < 30


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "20s"}),
        distributed.LocalCluster(processes=True, **options) as local,
        distributed.Client(local) as client,
    ):
        yield client


def slow_rows(X, seconds):
    """Return a Dask array whose chunks take their time, so that there is a middle to strike in."""

    def wait(block):
        time.sleep(seconds)
        return block

    return chunked(X, 50).map_blocks(wait, dtype=X.dtype)


def kill_one(client, after):
    pids = list(client.run(os.getpid).values())

    def strike():
        time.sleep(after)
        os.kill(pids[0], signal.SIGKILL)

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_cluster_fits_as_memory_does(cluster):
    X = table(n=400, holes=0.2)
    same(PPCA(2, tol=1e-9).fit(chunked(X)), PPCA(2, tol=1e-9).fit(X), BY_EM)


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["moments", "em"])
def test_a_killed_worker_changes_nothing(cluster, phase):
    X = table(n=400, holes=0.2 if phase == "em" else 0.0)
    model = PPCA(2, tol=1e-4)
    wanted = PPCA(2, tol=1e-4).fit(X)
    thread = kill_one(cluster, after=0.3)
    found = model.fit(slow_rows(X, 0.1 if phase == "moments" else 0.02))
    thread.join()
    same(found, wanted, CLOSED if phase == "moments" else BY_EM)
    cluster.wait_for_workers(2, timeout=60)
