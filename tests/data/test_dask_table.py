"""Dask tables as people have them: dtypes of every kind, results that say what they are."""

import gc
from concurrent.futures import CancelledError

import numpy as np
import pytest

import dualpca as dp
from dualpca import PCA, PPCA, Batches, Imputer, KernelPCA, MixturePPCA
from dualpca.errors import NonFiniteError
from tests.data.test_batches import nullable, of_arrow, with_truths
from tests.data.test_parts import BY_EM, CLOSED, same, table

da = pytest.importorskip("dask.array")
frames = pytest.importorskip("dask.dataframe")
pandas = pytest.importorskip("pandas")

from dualpca.data import dask_table  # noqa: E402  needs Dask

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

X = table()


def chunked(rows=X, size=150):
    return da.from_array(rows, chunks=(size, -1))


def named(holes=0.0):
    return pandas.DataFrame(table(holes=holes), columns=[f"x{j}" for j in range(X.shape[1])])


@pytest.mark.parametrize("kind", [with_truths, nullable, of_arrow])
def test_columns_of_every_number_as_in_memory(kind):
    rows = kind(named())
    found = PCA(2).fit(frames.from_pandas(rows, npartitions=3))
    same(found, PCA(2).fit(rows), CLOSED)
    assert list(found.feature_names_in_) == list(rows.columns)


@pytest.mark.parametrize("kind", [nullable, of_arrow])
def test_columns_with_gaps_as_in_memory(kind):
    rows = kind(named(holes=0.1))
    found = PPCA(2, tol=1e-9).fit(frames.from_pandas(rows, npartitions=3))
    same(found, PPCA(2, tol=1e-9).fit(rows), BY_EM)


def test_masked_entries_are_refused_where_they_are():
    with pytest.raises(ValueError, match="masked"):
        PPCA(2).fit(da.ma.masked_greater(chunked(), X.mean()))


def test_results_have_the_dtype_they_say_and_a_name():
    mixture = MixturePPCA(2, 1, random_state=0).fit(X)
    for method in ("predict", "predict_proba", "score_samples", "transform"):
        lazy = getattr(mixture, method)(chunked())
        assert lazy.dtype == lazy.compute().dtype == getattr(mixture, method)(X).dtype, method
        assert lazy.name.startswith(method)
    counts = da.bincount(mixture.predict(chunked()), minlength=2).compute()
    np.testing.assert_array_equal(counts, np.bincount(mixture.predict(X), minlength=2))


def test_two_models_in_one_graph_keep_apart():
    one, two = PCA(2).fit(X), PCA(2).fit(X * 2)
    both = da.concatenate([one.transform(chunked()), two.transform(chunked())], axis=1).compute()
    np.testing.assert_allclose(both, np.hstack([one.transform(X), two.transform(X)]), atol=1e-12)


def test_entries_are_named_by_their_row_of_the_table_in_results_too():
    bad = X.copy()
    bad[432, 1] = np.inf
    model = PCA(2).fit(X)
    with pytest.raises(NonFiniteError, match="row 432, column 1"):
        model.transform(chunked(bad)).compute()
    unknown = chunked(bad)
    with pytest.raises(NonFiniteError, match="of part 2, column 1"):
        model.score_samples(unknown[unknown[:, 0] > -1e9]).compute()


def test_diagnostics_of_rows_in_parts():
    model = PCA(2).fit(X)
    for method in ("spe", "hotelling_t2"):
        np.testing.assert_allclose(
            getattr(model, method)(chunked()).compute(), getattr(model, method)(X), rtol=1e-12
        )
    kernel = KernelPCA(2, kernel="rbf", gamma=0.01, eigen_solver="nystrom").fit(X)
    novel = np.concatenate(list(kernel.is_novel(Batches([X[:100], X[100:]]))))
    np.testing.assert_array_equal(novel, kernel.is_novel(X))


def test_weights_count_in_the_score_of_a_mixture():
    model, w = MixturePPCA(2, 1, random_state=0).fit(X), np.arange(len(X)) + 1.0
    for parts in (chunked(), Batches([X[:300], X[300:]])):
        assert model.score(parts, sample_weight=w) == pytest.approx(model.score(X, None, w))


def test_weights_are_sent_once_not_every_pass():
    distributed = pytest.importorskip("distributed")
    from dualpca.data.dask_table import DaskTable

    w = np.arange(len(X)) + 1.0
    cloudpickle = pytest.importorskip("cloudpickle")
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None):
        weighed = DaskTable.of(chunked()).with_weights(w)
        sent = len(cloudpickle.dumps(weighed.weights.to_delayed()[0]))
        assert sent < len(cloudpickle.dumps(w[:150]))
        gc.collect()
        total = weighed.reduce(lambda rows, weights: float(weights @ rows[:, 0]), float.__add__)
    assert total == pytest.approx(w @ X[:, 0])


@pytest.mark.parametrize("into", [chunked, lambda: Batches([X])], ids=["dask", "batches"])
def test_frames_are_not_made_of_tables_larger_than_memory(into):
    model = PCA(2).set_output(transform="pandas").fit(X)
    assert isinstance(model.transform(X), pandas.DataFrame)
    with pytest.raises(ValueError, match=r"set_output.*default.*chunked"):
        model.transform(into())
    holes = Imputer(2).set_output(transform="pandas").fit(table(holes=0.1))
    with pytest.raises(ValueError, match=r"set_output"):
        holes.transform(into())
    with pytest.raises(ValueError, match="add_indicator"):
        Imputer(2, add_indicator=True).fit(into())


REFUSED = {
    "DualPPCA.fit": lambda rows: dp.DualPPCA(2, eigen_solver="nystrom").fit(rows),
    "ProbabilisticKernelPCA.fit": lambda rows: dp.ProbabilisticKernelPCA(2).fit(rows),
    "TwinKernelPCA.fit": lambda rows: dp.TwinKernelPCA(2).fit(rows),
    "Generator.fit": lambda rows: dp.Generator(PPCA(2)).fit(rows),
    "PCA.partial_fit": lambda rows: PCA(2).partial_fit(rows),
    "PPCA.posterior": lambda rows: PPCA(2).fit(X).posterior(rows),
    "PPCA.inverse_transform": lambda rows: PPCA(2).fit(X).inverse_transform(rows),
    "PCA.outliers": lambda rows: PCA(2).fit(X).outliers(rows),
    "HiddenMarkovPCA.predict": lambda rows: dp.HiddenMarkovPCA(2, 1).fit(X).predict(rows),
    "HiddenMarkovPCA.score": lambda rows: dp.HiddenMarkovPCA(2, 1).fit(X).score(rows),
    "MixturePPCA.bic": lambda rows: MixturePPCA(2, 1).fit(X).bic(rows),
    "CCA.score": lambda rows: dp.CCA(1).fit(X[:, :3], X[:, 3:]).score(rows),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_takes_rows_in_memory_only_says_so(name, tmp_path):
    np.save(tmp_path / "x.npy", X)
    for parts in (chunked(), Batches([X]), str(tmp_path / "x.npy")):
        with pytest.raises(
            ValueError, match=r"rows in memory.*, got .*(part by part|chunked data)"
        ):
            REFUSED[name](parts)


class Forgetful:
    """A client of a cluster whose scheduler does not know its futures any more."""

    def __init__(self, error):
        self.error, self.cancelled = error, []

    def gather(self, futures):
        raise self.error

    def cancel(self, futures):
        self.cancelled += futures


@pytest.mark.parametrize(
    "said, told",
    [
        ("1 Future cancelled for reason: scheduler-restart.", ConnectionError),
        ("1 Future cancelled for reason: scheduler-connection-lost.", ConnectionError),
        ("cancelled by the user", CancelledError),
    ],
)
def test_a_scheduler_that_forgets_is_told_apart_from_other_ends(said, told, monkeypatch):
    monkeypatch.setattr(dask_table, "_wait", lambda client, ready: None)
    client = Forgetful(CancelledError(said))
    with pytest.raises(told) as caught:
        dask_table._results(client, ["a", "b"])
    assert client.cancelled == ["a", "b"]
    assert ("fit again once it answers" in str(caught.value)) is (told is ConnectionError)
