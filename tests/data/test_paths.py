"""Paths in place of rows: files that are not there, not tables, or not whole."""

import numpy as np
import pytest

from dualpca import PCA, PPCA, Batches, KernelPCA
from tests.data.test_parts import table

X = table(40, 3)


@pytest.mark.parametrize("path", ["nowhere.npy", "nowhere.parquet"])
def test_a_path_that_leads_nowhere(path, tmp_path):
    for given in (path, tmp_path / path):
        for model in (PCA(1), KernelPCA(1)):
            with pytest.raises(FileNotFoundError, match=path):
                model.fit(given)
    with pytest.raises(FileNotFoundError, match=path):
        PCA(1).fit(X).transform(path)


def cut_short(path):
    np.save(path, X)
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize(
    "write,message",
    [
        (lambda path: np.save(path, X[:, 0]), "2-dimensional"),
        (lambda path: np.save(path, X.astype(object)), "x.npy"),
        (lambda path: np.save(path, X[:0]), "0 sample"),
        (lambda path: path.write_bytes(b""), "x.npy"),
        (lambda path: path.write_bytes(b"no array"), "x.npy"),
        (cut_short, "x.npy"),
    ],
    ids=["vector", "objects", "no rows", "empty", "other", "cut short"],
)
def test_npy_files_that_hold_no_table(write, message, tmp_path):
    path = tmp_path / "x.npy"
    write(path)
    for given in (path, Batches(path), Batches([path])):
        with pytest.raises(ValueError, match=message):
            PCA(1).fit(given)


def test_other_files_are_named_with_what_to_do(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"x\.csv must be .*Parquet"):
        PCA(1).fit(tmp_path / "x.csv")


def test_a_zarr_store_is_opened_first(tmp_path):
    pytest.importorskip("pyarrow")
    zarr = pytest.importorskip("zarr")
    zarr.save_array(str(tmp_path / "x.zarr"), X)
    with pytest.raises(ValueError, match=r"zarr\.open_array"):
        PCA(1).fit(tmp_path / "x.zarr")


def test_columns_that_a_file_lacks_are_named(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame(X, columns=list("abc")).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"columns must be .*'a'.*got \['z'\]"):
        PCA(1).fit(Batches(tmp_path / "x.parquet", columns=["a", "z"]))


@pytest.mark.parametrize(
    ("second", "said"),
    [("ab", "lacks c"), ("abcd", "alone has d"), ("abd", "lacks c")],
)
def test_files_of_a_folder_have_the_same_columns(tmp_path, second, said):
    """Arrow would fill what is missing with nothing, and leave out what is new."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for name, columns in (("0", "abc"), ("1", second)):
        frame = pandas.DataFrame(X[:, [0, 1, 2, 0][: len(columns)]], columns=list(columns))
        frame.to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=said):
        PPCA(1).fit(Batches(tmp_path))
    PPCA(1).fit(Batches(tmp_path, columns=["a", "b"]))
