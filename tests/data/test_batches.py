"""Batches as people make them: shared iterators, frames of every kind, parts that do not fit."""

import numpy as np
import pytest

from dualpca import PCA, PPCA, Batches
from tests.data.test_parts import BY_EM, CLOSED, same, table

X = table()
HALVES = [X[:200], X[200:]]


def shared(parts):
    """Return what is easily written by mistake: a callable that returns one iterator again."""
    items = iter(parts)
    return lambda: items


def shared_by_a_map(parts):
    items = iter(parts)
    return lambda: map(np.asarray, items)


@pytest.mark.parametrize("source", [shared, shared_by_a_map])
def test_no_batch_is_lost_where_a_callable_returns_one_iterator_again(source):
    same(PCA(2).fit(Batches(source(HALVES))), PCA(2).fit(X), CLOSED)
    with pytest.raises(ValueError, match="same rows in every pass"):
        PPCA(2).fit(Batches(source([table(holes=0.1), X])))


def test_no_batch_is_lost_where_the_width_was_asked_for_first(tmp_path):
    looked = Batches(iter(HALVES))
    assert looked.d == X.shape[1]
    looked.save(tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X)
    with pytest.raises(ValueError, match="readable more than once"):
        looked.save(tmp_path / "x.npy")
    again = Batches(lambda: iter(HALVES))
    assert again.d == X.shape[1]
    for _ in range(2):
        np.testing.assert_array_equal(np.vstack(list(again)), X)


def test_rows_that_change_between_passes_are_refused():
    holes, passes = table(holes=0.1), []

    def source():
        passes.append(1)
        return iter([holes] if len(passes) < 4 else [holes[:-1]])

    with pytest.raises(ValueError, match=r"same rows in every pass.*699"):
        PPCA(2).fit(Batches(source))


def test_a_wider_dtype_after_the_first_batch_is_named_not_cast():
    single = X[:200].astype(np.float32)
    for later in (X[200:], X[200:].astype(int)):
        with pytest.raises(ValueError, match=r"dtype of part 1 must be float32.*float64"):
            PCA(2).fit(Batches([single, later]))
    mixed = PCA(2).fit(Batches([X[:200].astype(int), X[200:].astype(np.float32)]))
    assert mixed.mean_.dtype == np.float64


@pytest.mark.parametrize(
    "parts,message",
    [
        ([np.zeros((2, 3), dtype=int), np.full((2, 3), 0.5)], "dtype of part 1"),
        ([np.zeros((2, 3), dtype=np.float32), np.full((2, 3), 0.1)], "dtype of part 1"),
        ([np.zeros((2, 3)), np.ones((1, 4))], "part 1"),
        ([np.zeros((2, 3)), np.ones(4)], "part 1"),
    ],
)
def test_what_does_not_fit_is_not_saved(parts, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Batches(parts).save(tmp_path / "x.npy")
    assert list(tmp_path.iterdir()) == []


def test_masked_entries_are_refused():
    masked = np.ma.masked_greater(X, X.mean())
    for parts in ([masked], [X, masked]):
        with pytest.raises(ValueError, match="masked"):
            PCA(2).fit(Batches(parts))
    same(PCA(2).fit(Batches([np.ma.asarray(X)])), PCA(2).fit(X), CLOSED)


def frame(holes=None):
    pandas = pytest.importorskip("pandas")
    names = [f"x{j}" for j in range(X.shape[1])]
    return pandas.DataFrame(table(holes=holes) if holes else X, columns=names)


def test_frames_whose_columns_change_places_are_refused():
    first, later = frame()[:200], frame()[200:]
    turned = later[list(later.columns)[::-1]]
    with pytest.raises(ValueError, match=r"columns of part 1 must be.*x0"):
        PCA(2).fit(Batches([first, turned]))
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="columns of part 1"):
        PCA(2).fit(Batches([arrow.Table.from_pandas(first), arrow.Table.from_pandas(turned)]))
    same(PCA(2).fit(Batches([first, turned], columns=list(first.columns))), PCA(2).fit(X), CLOSED)


def with_truths(rows):
    return rows.assign(x0=rows["x0"] > 0)


def nullable(rows):
    return rows.convert_dtypes().assign(x1=(rows["x1"] > 0).astype("boolean"))


def of_arrow(rows):
    return rows.convert_dtypes(dtype_backend="pyarrow")


@pytest.mark.parametrize("kind", [with_truths, nullable, of_arrow])
def test_columns_of_every_number_as_in_memory(kind):
    rows = kind(frame())
    same(PCA(2).fit(Batches([rows[:200], rows[200:]])), PCA(2).fit(rows), CLOSED)


@pytest.mark.parametrize("kind", [nullable, of_arrow])
def test_columns_with_gaps_as_in_memory(kind):
    rows = kind(frame(holes=0.1))
    model = PPCA(2, tol=1e-9)
    same(model.fit(Batches([rows[:200], rows[200:]])), PPCA(2, tol=1e-9).fit(rows), BY_EM)


def test_polars_frames():
    polars = pytest.importorskip("polars")
    rows = polars.from_pandas(with_truths(frame()))
    found = PCA(2).fit(Batches([rows[:200], rows[200:]]))
    same(found, PCA(2).fit(with_truths(frame())), CLOSED)
    assert list(found.feature_names_in_) == rows.columns
    gaps = rows.with_columns(polars.Series("x1", [None, *range(699)]))
    assert np.isnan(next(iter(Batches([gaps]))))[0, 1]
    words = rows.with_columns(polars.Series("name", ["a"] * len(rows)))
    with pytest.raises(ValueError, match=r"column.*'name'"):
        PCA(2).fit(Batches([words]))


def test_columns_that_are_no_numbers_are_named():
    words = frame().assign(name="a", day=np.datetime64("2020-01-01"))
    with pytest.raises(ValueError, match=r"numeric.*name.*day.*columns="):
        PCA(2).fit(Batches([words]))


def test_sparse_rows_are_refused_with_what_to_do():
    sparse = pytest.importorskip("scipy.sparse")
    rows = sparse.csr_array(X)
    for parts in ([rows], [X, rows]):
        with pytest.raises(ValueError, match=r"must be dense.*toarray"):
            PCA(2).fit(Batches(parts))
    same(PCA(2).fit(Batches([rows.toarray()])), PCA(2).fit(rows), CLOSED)


def test_columns_are_chosen_of_frames_only(tmp_path):
    np.save(tmp_path / "x.npy", X)
    for source in ([X], [frame(), X], tmp_path / "x.npy"):
        with pytest.raises(ValueError, match=r"columns must be None.*without names"):
            PCA(2).fit(Batches(source, columns=["x0", "x1", "x2"]))


def test_one_frame_is_one_batch():
    rows = frame()
    kinds = [rows]
    for name, made in (("polars", "from_pandas"), ("pyarrow", "table")):
        kinds.append(getattr(pytest.importorskip(name), made)(rows))
    for source in kinds:
        same(PCA(2).fit(Batches(source)), PCA(2).fit(X), CLOSED)
    found = PCA(2).fit(Batches(rows, columns=["x3", "x1"]))
    same(found, PCA(2).fit(X[:, [3, 1]]), CLOSED)


def test_columns_that_a_frame_lacks_are_named():
    with pytest.raises(ValueError, match=r"columns must be among.*x0.*got \['z'\]"):
        PCA(2).fit(Batches([frame()], columns=["x0", "z"]))


@pytest.mark.parametrize(
    "source",
    [{"a": X}, lambda: "x.npy", lambda: iter([None])],
    ids=["dictionary", "path", "nothing"],
)
def test_what_is_no_batch_is_shown(source):
    with pytest.raises(ValueError, match=r"a part of X must be an array or a frame.*got"):
        PCA(2).fit(Batches(source))


def test_what_batches_are_asked_for():
    assert Batches(X, batch_rows=np.int64(300)).sizes() == {0: 300, 1: 300, 2: 100}
    with pytest.raises(ValueError, match="batch_rows"):
        Batches(X, batch_rows=True)
    with pytest.raises(ValueError, match="list of names"):
        Batches(frame(), columns="x0")
    assert list(PCA(1).fit(Batches(frame(), columns=("x2", "x0"))).feature_names_in_) == [
        "x2",
        "x0",
    ]
    array = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match=r"Dask.*to fit as it is"):
        Batches(array.from_array(X))
