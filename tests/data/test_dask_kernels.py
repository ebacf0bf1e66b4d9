"""Exact kernel models of Dask arrays: the answers of memory, whoever shares the products."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone

from dualpca import Batches, DualPPCA, KernelPCA
from dualpca.data import dask_table
from dualpca.errors import BackendError, DualPCAError, NonFiniteError
from dualpca.operators.spread import Share

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BLOCKS = {"kernel": "rbf", "gamma": 0.1, "eigen_solver": "krylov"}
"""Block Krylov, by name: few points would be decomposed in this process."""


def table(n=301, d=5):
    return np.random.default_rng(0).normal(size=(n, d)) * np.linspace(2, 1, d)


def chunked(X, rows=70):
    return da.from_array(X, chunks=(rows, -1))


def same(found, wanted, names=("eigenvalues_", "eigenvectors_"), atol=1e-10):
    for name in names:
        a, b = getattr(found, name), getattr(wanted, name)
        assert type(a) is type(b) and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=atol, err_msg=name)


@pytest.fixture(scope="module", params=[(1, 1), (2, 1), (3, 2)], ids=str)
def threads(request):
    """A cluster of this process: (workers, threads of each)."""
    workers, each = request.param
    options = {"n_workers": workers, "threads_per_worker": each, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(processes=False, **options) as local,
        distributed.Client(local) as client,
    ):
        yield client, workers * each


@pytest.fixture
def asked(monkeypatch):
    """Count what shares are asked, in this process."""
    seen, piece = [], Share.piece
    monkeypatch.setattr(
        Share, "piece", lambda self, ask, V: seen.append(self.place) or piece(self, ask, V)
    )
    return seen


def test_products_are_shared_and_the_model_is_that_of_memory(threads, asked):
    count = threads[1]
    X = table()
    found = KernelPCA(4, **BLOCKS).fit(chunked(X))
    assert {place[0] for place in asked} == set(range(count)) and asked[0][1] == count
    wanted = KernelPCA(4, **BLOCKS).fit(X)
    assert found.solver_ == wanted.solver_ == "krylov"
    same(found, wanted, ("eigenvalues_", "eigenvectors_", "explained_variance_ratio_", "X_fit_"))
    rows = X[:9] + 0.1
    for method in ("transform", "novelty"):
        a, b = getattr(found, method)(rows), getattr(wanted, method)(rows)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
    lazy = found.transform(chunked(X))
    assert isinstance(clone(found).fit_transform(chunked(X)), da.Array)
    np.testing.assert_allclose(lazy.compute(), wanted.transform(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options", [{"memory_limit": 0}, {"center": False}, {"kernel": "poly"}], ids=str
)
def test_other_kernels_and_routes(threads, options):
    model = KernelPCA(3, **BLOCKS | options)
    same(clone(model).fit(chunked(table(200))), clone(model).fit(table(200)))


def test_the_default_is_exact_too(threads):
    for n in (2, 3, 40):
        X = table(n)
        found, wanted = (KernelPCA(2, kernel="rbf", gamma=0.1).fit(A) for A in (chunked(X), X))
        same(found, wanted)
    same(KernelPCA(2).fit(chunked(X)), KernelPCA(2).fit(X))  # linear: a factor of the rows


def test_float32_rows_stay_float32(threads):
    X = table().astype(np.float32)
    model = KernelPCA(3, dtype="float32", **BLOCKS)
    found, wanted = clone(model).fit(chunked(X)), clone(model).fit(X)
    assert found.eigenvalues_.dtype == found.X_fit_.dtype == np.float32
    np.testing.assert_allclose(found.eigenvalues_, wanted.eigenvalues_, rtol=1e-6)


def test_dual_models_share_the_route(threads, asked):
    X = table()
    found, wanted = (DualPPCA(3, **BLOCKS).fit(A) for A in (chunked(X), X))
    assert asked
    same(found, wanted, ("eigenvalues_", "explained_variance_"))
    assert found.noise_variance_ == pytest.approx(wanted.noise_variance_, rel=1e-10)
    np.testing.assert_allclose(found.transform(X), wanted.transform(X), atol=1e-9)


def test_weights_are_those_of_memory(threads):
    X, w = table(), np.random.default_rng(1).integers(0, 3, 301).astype(float)
    found, wanted = (KernelPCA(3, **BLOCKS).fit(A, sample_weight=w) for A in (chunked(X), X))
    same(found, wanted)
    found, wanted = (DualPPCA(3, **BLOCKS).fit(A, sample_weight=w + 1) for A in (chunked(X), X))
    same(found, wanted, ("eigenvalues_",))
    with pytest.raises(ValueError, match="positive for a Dask array"):
        DualPPCA(3, **BLOCKS).fit(chunked(X), sample_weight=w)


def test_frames_and_unknown_chunks(threads):
    X = table()
    array = chunked(X)
    unknown = array[array[:, 0] > -1e9]
    same(KernelPCA(3, **BLOCKS).fit(unknown), KernelPCA(3, **BLOCKS).fit(X))
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame(X, columns=list("abcde"))
    found = KernelPCA(3, **BLOCKS).fit(frames.from_pandas(frame, npartitions=3))
    assert list(found.feature_names_in_) == list("abcde")
    same(found, KernelPCA(3, **BLOCKS).fit(frame))


def test_without_a_cluster_this_process_does_the_work():
    X = table()
    with dask.config.set(scheduler="threads"):
        same(KernelPCA(3, **BLOCKS).fit(chunked(X)), KernelPCA(3, **BLOCKS).fit(X))


def test_without_a_cluster_the_device_is_that_of_this_process(monkeypatch, asked):
    torch = pytest.importorskip("torch")
    from dualpca.arrays import devices

    monkeypatch.setattr(devices, "_gpu", lambda name: torch.device("cpu"))
    X = table()
    with dask.config.set(scheduler="threads"):
        found = KernelPCA(3, device="cuda", **BLOCKS).fit(chunked(X))
    assert asked[0] == (0, 1)
    same(found, KernelPCA(3, **BLOCKS).fit(X))


def test_workers_use_the_device_they_have(threads, asked, monkeypatch):
    torch = pytest.importorskip("torch")
    from dualpca.arrays import devices

    client, _ = threads
    seen = []
    monkeypatch.setattr(devices, "_gpu", lambda name: seen.append(name) or torch.device("cpu"))
    X = table()
    found = KernelPCA(3, device="cuda", **BLOCKS).fit(chunked(X))
    assert seen and asked[0][1] == len(client.nthreads())  # one share for each worker
    same(found, KernelPCA(3, **BLOCKS).fit(X))


def test_what_cannot_be_is_refused_in_words(threads):
    X = table()
    with pytest.raises(ValueError, match=r"one device for a Dask array.*\['cpu', 'cpu'\]"):
        KernelPCA(3, device=["cpu", "cpu"], **BLOCKS).fit(chunked(X))
    X[200, 3] = np.nan
    with pytest.raises(NonFiniteError, match="row 200, column 3"):
        KernelPCA(3, **BLOCKS).fit(chunked(X))
    with pytest.raises(ValueError, match="minimum of 2"):
        KernelPCA(3, **BLOCKS).fit(chunked(X[:1]))
    with pytest.raises(ValueError, match=r"'nystrom', 'cholesky' or 'fourier'.*chunked data"):
        KernelPCA(3, kernel="precomputed").fit(chunked(X @ X.T))
    with pytest.raises(ValueError, match=r"'nystrom', 'cholesky' or 'fourier'.*chunked data"):
        KernelPCA(3, **BLOCKS).fit(Batches([X[:100], X[100:]]))
    with pytest.raises(BackendError, match="dense rows in memory"):
        KernelPCA(3, kernel="rbf", eigen_solver="nystrom", device="cuda").fit(chunked(X))
    with pytest.raises(ValueError, match="sample_weight"):
        KernelPCA(3, kernel="rbf", eigen_solver="nystrom").fit(
            chunked(table()), sample_weight=np.ones(301)
        )


def test_no_matrix_beyond_the_limit_is_formed_here(threads):
    with pytest.raises(DualPCAError, match=r"kernel matrix of 301 rows.*memory_limit"):
        KernelPCA(kernel="rbf", gamma=0.1, memory_limit=1e5).fit(chunked(table()))


def test_the_error_of_a_worker_is_raised(threads):
    def bad(a, b):
        raise ArithmeticError("no value")

    with pytest.raises(ArithmeticError, match="no value"):
        KernelPCA(3, kernel=bad, eigen_solver="krylov", memory_limit=0).fit(chunked(table(40)))


def test_a_cluster_without_workers_is_an_error_after_the_time_stated():
    options = {"n_workers": 0, "processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options) as local,
        distributed.Client(local),
        dask.config.set({"dualpca.no-workers-timeout": "300 ms"}),
        pytest.raises(TimeoutError, match=r"no workers for 0\.\d+ s.*cluster.scale"),
    ):
        KernelPCA(3, **BLOCKS).fit(chunked(table()))


def test_vectors_lost_with_all_their_workers_are_sent_again(threads, monkeypatch):
    client, lost = threads[0], []
    scatter = type(client).scatter

    def forgetful(self, V, **options):
        sent = scatter(self, V, **options)
        if len(lost) < 2:
            lost.append(1)
            self.cancel([sent], force=True)
        return sent

    monkeypatch.setattr(type(client), "scatter", forgetful)
    X = table()
    same(KernelPCA(3, **BLOCKS).fit(chunked(X)), KernelPCA(3, **BLOCKS).fit(X))
    assert len(lost) == 2
    monkeypatch.setattr(dask_table, "MOST_LOST", 1)
    lost.clear()
    with pytest.raises(RuntimeError, match=r"lost 1 times in one product.*more memory"):
        KernelPCA(3, **BLOCKS).fit(chunked(X))


# --- processes -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_worker_changes_nothing(workers, monkeypatch):
    """Its share is made again; where it was the only one, so are the points and the vectors."""
    X = table(400)
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    wanted = KernelPCA(3, **BLOCKS).fit(X)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "20s"}),
        distributed.LocalCluster(processes=True, **options) as local,
        distributed.Client(local) as client,
    ):
        pid = next(iter(client.run(os.getpid).values()))
        passes, summed = [], dask_table.WorkerShares.summed

        def struck(self, ask, V, add):
            passes.append(ask)
            if len(passes) == 3:
                os.kill(pid, signal.SIGKILL)
            return summed(self, ask, V, add)

        monkeypatch.setattr(dask_table.WorkerShares, "summed", struck)
        found = []
        thread = threading.Thread(
            target=lambda: found.append(KernelPCA(3, **BLOCKS).fit(chunked(X))), daemon=True
        )
        begun = time.monotonic()
        thread.start()
        thread.join(120)
        assert found, f"the fit hangs: no result after {time.monotonic() - begun:.0f} s"
        assert len(passes) > 3
        same(found[0], wanted)
