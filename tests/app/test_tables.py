"""Tables: every format comes back, and what is wrong with a file is said."""

import os

import numpy as np
import polars as pl
import pytest

from dualpca.app.tables import columns, reading, writing
from dualpca.app.tables.text import TableError, detect

FRAME = pl.DataFrame({"a": [0.1, None, 1e-300], "b": [1, 2, 3], "who": ["x", "y, z", "σ"]})


@pytest.mark.parametrize("ending", ["csv", "tsv", "tab", "parquet", "arrow", "feather", "ipc"])
def test_tables_come_back(ending, tmp_path):
    path = tmp_path / f"t.{ending}"
    writing.write(FRAME, path)
    assert reading.read(path).equals(FRAME)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_matrices_come_back(ending, tmp_path):
    path, X = tmp_path / f"t.{ending}", np.array([[0.1, np.nan], [np.inf, -3.0]])
    writing.write(pl.DataFrame(X, schema=["u", "v"], orient="row"), path)
    found = reading.read(path)
    assert found.columns == ["x0", "x1"]
    np.testing.assert_array_equal(found.to_numpy(), X)


def test_matrices_of_text_are_refused_and_leave_no_file(tmp_path):
    for ending in ("npy", "npz"):
        with pytest.raises(TableError, match="who"):
            writing.write(FRAME, tmp_path / f"t.{ending}")
    assert list(tmp_path.iterdir()) == []


def test_csv_says_missing_in_many_words(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,NA\n,2\nnan,null\nN/A,4\n")
    found = columns.numbers(reading.read(path), ["a", "b"]).to_numpy()
    np.testing.assert_array_equal(found, [[1, np.nan], [np.nan, 2], [np.nan, np.nan], [np.nan, 4]])


def test_marks_at_the_beginning_and_other_encodings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("é,b\r\n1,2\r\n".encode("utf-8-sig"))
    assert reading.read(path).columns == ["é", "b"]
    path.write_bytes("é,b\n1,2\n".encode("latin-1"))
    with pytest.raises(TableError, match=r"first at byte 0.*--encoding latin-1"):
        reading.read(path)
    assert reading.read(path, encoding="latin-1").columns == ["é", "b"]
    with pytest.raises(TableError, match="not an encoding"):
        reading.read(path, encoding="klingon")


BROKEN = {
    "empty": (b"", "t.csv", "is empty"),
    "header only": (b"a,b\n", "t.csv", "0 rows"),
    "short row": (b"a,b\n1,2\n3\n", "t.csv", "line 3 .* has 1 fields, the header 2"),
    "long row": (b"a,b\n1,2\n3,4,5\n", "t.csv", "line 3 .* has 3 fields"),
    "twice": (b"a,b,a\n1,2,3\n", "t.csv", r"repeats \['a'\]"),
    "nameless": (b"a,\n1,2\n", "t.csv", "empty name after 'a'"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "t.csv", "is not utf-8"),
    "not parquet": (b"a,b\n1,2\n", "t.parquet", "not a valid Parquet file"),
    "not arrow": (b"a,b\n1,2\n", "t.arrow", "not a valid Arrow file"),
    "not numpy": (b"a,b\n1,2\n", "t.npy", "not a valid NumPy file"),
    "cut numpy": (b"\x93NUMPY\x01\x00v\x00{", "t.npy", "not a valid NumPy file"),
    "unknown": (b"a,b\n1,2\n", "t.doc", "does not tell the format"),
    "packed parquet": (b"PAR1", "t.parquet.gz", "only text is read compressed"),
    "not packed": (b"a,b\n1,2\n", "t.csv.gz", "cannot be unpacked"),
}


@pytest.mark.parametrize("data, name, words", BROKEN.values(), ids=BROKEN)
def test_broken_files_are_named(data, name, words, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TableError, match=words):
        reading.read(tmp_path / name)


def test_pickles_in_arrays_are_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    np.save(tmp_path / "t.npy", np.array([[Bomb()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "t.npz", X=np.array([[Bomb()]], dtype=object))
    for ending in ("npy", "npz"):
        with pytest.raises(TableError, match="not a valid NumPy file"):
            reading.read(tmp_path / f"t.{ending}")
    assert not (tmp_path / "executed").exists()


def test_archives_of_several_arrays_need_an_X(tmp_path):
    np.savez(tmp_path / "t.npz", a=np.eye(2), b=np.eye(3))
    with pytest.raises(TableError, match="called X"):
        reading.read(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", a=np.eye(2), X=np.eye(3))
    assert reading.read(tmp_path / "t.npz").shape == (3, 3)
    np.save(tmp_path / "t.npy", np.zeros(3))
    with pytest.raises(TableError, match="a matrix of numbers"):
        reading.read(tmp_path / "t.npy")


def test_missing_files_are_said(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        reading.read(tmp_path / "t.csv")


MIXED = {
    "text": (
        "n,v\n1,paris\n2,rome\n",
        r"'v' of the model holds text.*\(such as 'paris'\).*--na paris\.",
    ),
    "a stray word": ("n,v\n1,2.5\n2,oops\n", "such as 'oops'"),
    "dates": ("n,v\n1,2020-01-31\n2,2020-02-01\n", r"holds dates.*Correct the table\.$"),
}


@pytest.mark.parametrize("text, words", MIXED.values(), ids=MIXED)
def test_columns_that_are_no_numbers_say_what_to_do(text, words, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    frame = reading.read(tmp_path / "t.csv")
    with pytest.raises(TableError, match=words):
        columns.numbers(frame, ["n", "v"])


def test_columns_by_pattern():
    frame = pl.DataFrame({"x1": [1], "x2": [2], "y": [3], "id": [4]})
    assert columns.select(frame, [], []) == ["x1", "x2", "y", "id"]
    assert columns.select(frame, ["x*", "id"], ["x2"]) == ["x1", "id"]
    with pytest.raises(TableError, match=r"'z'.*'x1', 'x2'"):
        columns.select(frame, ["z"], [])
    with pytest.raises(TableError, match="nothing"):
        columns.select(frame, ["y"], ["y"])


def test_one_hot_columns_are_made_again_for_new_rows():
    frame = pl.DataFrame({"k": ["u", None, "v"], "a": [1.0, 2.0, 3.0], "on": [True, False, None]})
    found = columns.numbers(frame, ["k", "a", "on"], ["k"])
    assert found.columns == ["k=u", "k=v", "a", "on"]
    nan = np.nan
    wanted = [[1, 0, 1, 1], [nan, nan, 2, 0], [0, 1, 3, nan]]
    np.testing.assert_array_equal(found.to_numpy(), wanted)
    np.testing.assert_array_equal(columns.matching(frame, found.columns).to_numpy(), wanted)
    with pytest.raises(TableError, match="not seen: 'w'; it knows 'u', 'v'"):
        columns.matching(frame.with_columns(k=pl.Series(["w", "u", "v"])), found.columns)
    with pytest.raises(TableError, match="columns 'k=u', 'k=v' of the model"):
        columns.matching(frame.drop("k"), found.columns)
    with pytest.raises(TableError, match="no such column"):
        columns.numbers(frame, ["a"], ["k"])


@pytest.mark.parametrize(
    "body, decimal",
    [
        ("1,5;2\n", ","),
        ("1,5;2.5\n", "."),  # points in a field, so that commas are something else
        ("1,234;2\n1.5;3\n", "."),
        ("1,5;a.b\n", ","),  # no number
        ("1;2\n", "."),
    ],
)
def test_a_decimal_comma_is_guessed_only_where_no_number_has_a_point(body, decimal):
    assert detect(f"a;b\n{body}").decimal == decimal
