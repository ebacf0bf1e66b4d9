"""Tables in batches: the same rows as at once, whatever the size of a batch."""

import io
import sys

import numpy as np
import polars as pl
import pytest

import dualpca as dp
from dualpca.app.tables import reading, text, writing
from dualpca.app.tables.reading import Reading
from dualpca.app.tables.text import TableError
from dualpca.arrays import memory

N = 500
PIECES = [64, 1000, 10**6]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    X[rng.random(X.shape) < 0.1] = np.nan
    named = pl.DataFrame(X, schema=["a", "b", "c"], orient="row").fill_nan(None)
    words = ['say "no"', "two\nlines", "comma, here", "plain", None]
    return named.with_columns(
        pl.Series("word", words * (N // 5)),
        pl.Series("late", ["1"] * (N - 1) + ["2.5"]),  # whole numbers until the last row
        pl.Series("odd", [None] * (N // 2) + ["7"] * (N // 2 - 1) + ["x"]),
    )


@pytest.fixture
def small(monkeypatch):
    """Let every table be too large for memory, and batches have so many bytes."""

    def limit(piece):
        monkeypatch.setattr(reading, "room_for", lambda limit: 1)
        monkeypatch.setattr(reading, "piece_of", lambda kind, room: piece)

    return limit


@pytest.mark.grid
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "t.arrow"])
def test_batches_are_the_table(name, piece, frame, small, tmp_path):
    path = str(tmp_path / name)
    writing.write(frame, path)
    whole = reading.opened(path)
    small(piece)
    parts = reading.opened(path)
    assert whole.whole and (parts.height, parts.columns) == (N, frame.columns)
    assert parts.n_batches > 1 or piece > 10**5
    for _ in range(2):
        found = list(parts.frames())
        assert len(found) == parts.n_batches
        assert pl.concat(found).equals(reading.read(path))
    assert whole.frame().equals(reading.read(path))


def test_arrays_come_in_batches(small, tmp_path):
    X = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    np.save(tmp_path / "t.npy", X)
    small(24 * 7)
    found = reading.opened(str(tmp_path / "t.npy"))
    assert [f.height for f in found.frames()] == [7] * 14 + [2]
    np.testing.assert_array_equal(pl.concat(list(found.frames())).to_numpy(), X)


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "npy", "npz"])
def test_batches_written_are_the_table(ending, frame, tmp_path):
    numbers = frame.select("a", "b", "c")
    path = str(tmp_path / f"t.{ending}")
    done = writing.write(numbers.iter_slices(70), path, height=N)
    assert done == (N, numbers.columns)
    found = reading.read(path).to_numpy()
    np.testing.assert_array_equal(found, numbers.to_numpy())
    assert [p.name for p in tmp_path.iterdir()] == [f"t.{ending}"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "npy"])
@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
def test_an_error_between_batches_leaves_the_old_file(ending, problem, frame, tmp_path):
    def frames():
        yield frame.select("a")
        raise problem("half way")

    path = tmp_path / f"t.{ending}"
    path.write_bytes(b"old")
    with pytest.raises(problem, match="half way"):
        writing.write(frames(), str(path), height=2 * N)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


def test_rows_are_counted_for_arrays(frame, tmp_path):
    with pytest.raises(TableError, match="500 came"):
        writing.write([frame.select("a")], str(tmp_path / "t.npy"), height=N - 1)
    assert list(tmp_path.iterdir()) == []


def test_samples_are_the_same_in_batches(frame, small, tmp_path):
    path = str(tmp_path / "t.parquet")
    frame.write_parquet(path)
    whole = reading.opened(path).sampled(40, 3)
    small(500)
    parts = reading.opened(path).sampled(40, 3)
    assert parts.whole and parts.height == 40
    assert parts.frame().equals(whole.frame())
    assert reading.opened(path).sampled(N, 3).height == N


def test_standard_input_larger_than_memory_is_set_aside(frame, small, monkeypatch):
    class Input:
        buffer = io.BytesIO(frame.write_csv().encode())

    monkeypatch.setattr(sys, "stdin", Input)
    small(1000)
    found = reading.opened("-")
    assert found.n_batches > 1
    for _ in range(2):
        assert pl.concat(list(found.frames())).select("a").equals(frame.select("a"))
    monkeypatch.setattr(Input, "buffer", io.BytesIO(b"PAR1" * 100))
    with pytest.raises(TableError, match="write it to a file"):
        reading.opened("-", Reading("parquet"))


RAGGED = {
    "short": ("a,b\n" + "1,2\n" * 100 + "3\n" + "1,2\n" * 9, "line 102 .* has 1 fields"),
    "long": ("a,b\n" + "1,2\n" * 100 + "3,4,5\n", "line 102 .* has 3 fields"),
    "quoted": ('a,b\n"x\ny",2\n' + "1,2\n" * 100 + "3\n", "line 104 .* has 1 fields"),
    "blank": ("a,b\n" + "1,2\n" * 100 + "\n\n3,4\n", "line 102 .* has 0 fields"),
    "open quote": ('a,b\n"1,2\n' + "1,2\n" * 5000, "quote|fields|read"),
}


@pytest.mark.parametrize("piece", [16, 10**6])
@pytest.mark.parametrize("text, words", RAGGED.values(), ids=RAGGED)
def test_lines_are_counted_over_batches(text, words, piece, small, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    small(piece)
    with pytest.raises(TableError, match=words):
        reading.opened(str(tmp_path / "t.csv"))


@pytest.mark.parametrize("piece", [5, 64])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_letters_are_not_torn_apart(encoding, piece, small, tmp_path):
    text = "größe;wörter\n" + "1,5;süß\n" * 50 + "\n\n"
    (tmp_path / "t.csv").write_bytes(text.replace("\n", "\r\n").encode(encoding))
    small(piece)
    given = "utf-8" if encoding == "utf-8-sig" else encoding
    table = reading.opened(str(tmp_path / "t.csv"), Reading(encoding=given))
    found = pl.concat(list(table.frames()))
    assert found.columns == ["größe", "wörter"]
    assert found.rows() == [(1.5, "süß")] * 50
    assert table.dialect == (";", ",", encoding == "utf-8-sig")


def test_undecodable_bytes_are_placed(small, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\n" + b"1,2\n" * 100 + b"1,\xff\n")
    small(10)
    with pytest.raises(TableError, match="first at byte 406"):
        reading.opened(str(tmp_path / "t.csv"))


def test_room_is_what_the_limit_leaves():
    used = memory.resident()
    assert used > 2e7
    assert abs(reading.room_for(used + 10**9) - 10**9) < 5e7
    with pytest.raises(TableError, match="raise the limit"):
        reading.room_for(used // 2)
    assert 0 < reading.room_for(None) < memory.free()


def test_types_that_pieces_agree_on(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,,1\n2,,x\n2.5,3,2\n")
    table = text.open_text("t.csv", lambda: open(tmp_path / "t.csv", "rb"))
    scan = table.scanned(6)
    assert scan.n_pieces > 1 and scan.height == 3
    assert scan.schema == {"a": pl.Float64, "b": pl.Int64, "c": pl.String}


@pytest.mark.parametrize("piece", [8, 10**6])
def test_spaces_around_numbers_do_no_harm(piece, small, tmp_path):
    lines = ["a;b;c", "1,5;7;x", " 2,5 ;8;1", " ;9;2", "3,5;10;3"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    small(piece)
    found = pl.concat(list(reading.opened(str(tmp_path / "t.csv")).frames()))
    assert found["a"].to_list() == [1.5, 2.5, None, 3.5]
    assert found["b"].to_list() == [7, 8, 9, 10]
    assert found["c"].to_list() == ["x", "1", "2", "3"]
    assert found.equals(reading.read(tmp_path / "t.csv"))


def test_a_stream_is_the_fit(frame, small, tmp_path):
    rows = frame.select("a", "b", "c").drop_nulls()
    path = str(tmp_path / "t.csv")
    rows.write_csv(path)
    small(300)
    model = dp.PCA(2)
    for part in reading.opened(path).frames():
        model.partial_fit(part)
    wanted = dp.PCA(2).fit(rows)
    np.testing.assert_allclose(model.components_, wanted.components_, atol=1e-10)
