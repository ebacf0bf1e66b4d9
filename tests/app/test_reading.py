"""Tables in batches: the same rows as at once, whatever the size of a batch."""

import gzip
import io
import sys

import numpy as np
import polars as pl
import pytest

import dualpca as dp
from dualpca.app.tables import columns, reading, sheets, writing
from dualpca.app.tables.opening import open_text
from dualpca.app.tables.reading import Reading
from dualpca.app.tables.text import TableError
from dualpca.arrays import memory
from tests.app.plain_tables import packed
from tests.workbook import book

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
    table = open_text("t.csv", lambda: open(tmp_path / "t.csv", "rb"))
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


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet", "arrow", "csv.gz"])
def test_damaged_tables_are_refused_or_read_at_once_and_in_batches(kind, tmp_path, monkeypatch):
    """Parsers raise what they like for these: polars panics, NumPy parses headers as Python."""
    monkeypatch.setattr(reading, "SMALLEST", 16)
    good, path, refused = packed(kind), tmp_path / f"t.{kind}", 0
    for place in range(0, len(good), 1 + len(good) // 120):
        for byte in (0x00, good[place] ^ 0x81):
            path.write_bytes(good[:place] + bytes([byte]) + good[place + 1 :])
            for room in (None, 1):
                try:
                    table = reading._opened(str(path), Reading(), (), room)
                    pl.concat(list(table.frames()))
                except TableError as error:
                    assert str(error).isprintable()
                    refused += 1
    assert refused > 10


def test_words_of_parsers_are_shown_without_control_characters(small, tmp_path):
    (tmp_path / "t.tsv").write_text('a\tb\n"1"2\t3\n')
    with pytest.raises(TableError, match=r"line 2 .* cannot be read: '\\t' expected after"):
        reading.opened(str(tmp_path / "t.tsv"))


# --- files as people have them ------------------------------------------------------------------


def test_first_lines_of_numbers_are_rows(small, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1,2.5,NA\n" + "3,4,<5\n" * 9)
    for piece in (None, 16):
        if piece:
            small(piece)
        table = reading.opened(str(path))
        assert (table.columns, table.height) == (["x1", "x2", "x3"], 10)
        assert "read as a row" in table.notes[0] and "--header" in table.notes[0]
        found = pl.concat(list(table.frames()))
        assert found.row(0)[:2] == (1, 2.5)
        assert np.isnan(columns.number(found["x3"])[0])  # NA among bounds
    named = reading.opened(str(path), Reading(header=True))
    assert named.columns == ["1", "2.5", "NA"] and not named.notes


NAMED = {
    "words": ("a,b\n1,2\n3,4\n", None, ["a", "b"], 2),
    "quoted": ('"2019","2020"\n1,2\n3,4\n', None, ["2019", "2020"], 2),
    "some": ("2019,b\n1,2\n3,4\n", None, ["2019", "b"], 2),
    "told": ("a,b\n1,2\n3,4\n", False, ["x1", "x2"], 3),
    "commas": ("1,5;2,5;7\n3,5;4,5;8\n", None, ["x1", "x2", "x3"], 2),
    "sep": ("sep=;\n1;2\n3;4\n", None, ["x1", "x2"], 2),
    "row names": (",a\nr1,2\nr2,4\n", None, ["row", "a"], 2),
}


@pytest.mark.parametrize("text, header, names, height", NAMED.values(), ids=NAMED)
def test_headers_are_told_from_rows(text, header, names, height, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    found = reading.opened(str(tmp_path / "t.csv"), Reading(header=header))
    assert (found.columns, found.height) == (names, height)


def test_the_first_column_may_lack_a_name_and_it_is_said(tmp_path):
    (tmp_path / "t.csv").write_text(",a,b\n0,1,2\n1,3,4\n")
    table = reading.opened(str(tmp_path / "t.csv"))
    assert table.columns == ["row", "a", "b"] and "is called 'row'" in table.notes[0]


@pytest.mark.parametrize("piece", [None, 30])
def test_codes_are_missing_but_not_in_identifiers(piece, small, tmp_path):
    lines = ["id;a;b;c"] + [f"{i};{i},5;u;1" for i in range(20)]
    lines += ["-999;-999;-999,0;unk", "-99; -99 ;v;-999"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    if piece:
        small(piece)
    how = Reading(missing=("-999", "unk", "-99"))
    table = reading.opened(str(tmp_path / "t.csv"), how, ("id",))
    found = pl.concat(list(table.frames()))
    assert table.missing == how.missing
    assert found.schema["a"].is_numeric() and found.schema["c"].is_numeric()
    assert found.rows()[-2:] == [("-999", None, None, None), ("-99", None, "v", None)]


def test_codes_of_binary_files(tmp_path):
    pl.DataFrame({"a": [1, -999], "k": ["u", "none given"]}).write_parquet(tmp_path / "t.parquet")
    how = Reading(missing=("-999", "none given"))
    found = reading.opened(str(tmp_path / "t.parquet"), how).frame()
    assert found.rows() == [(1, "u"), (None, None)]


@pytest.mark.parametrize("piece", [None, 12])
def test_bounds_stay_as_they_are_until_a_model_can_use_them(piece, small, tmp_path):
    lines = ["a;b", "1,5;2", "<2,5;3", "≥ 7,25;4", "3;5", "8,5;6"]
    (tmp_path / "t.csv").write_text("\n".join(lines), "utf-8")
    if piece:
        small(piece)
    found = pl.concat(list(reading.opened(str(tmp_path / "t.csv")).frames()))
    assert found["a"].to_list() == ["1.5", "<2.5", "≥ 7.25", "3", "8.5"]
    assert columns.number(found["a"]).to_list()[::3] == [1.5, 3]
    assert columns.bounds(found["a"])[1].tolist() == [1.5, 2.5, np.inf, 3, 8.5]


@pytest.mark.parametrize("ending", ["gz", "zst"])
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_compressed_text_is_text(kind, ending, frame, small, tmp_path):
    path = tmp_path / f"t.{kind}"
    writing.write(frame, path)
    packed = f"{path}.{ending}"
    if ending == "gz":
        with gzip.open(packed, "wb") as file:
            file.write(path.read_bytes())
    else:
        pa = pytest.importorskip("pyarrow")
        with pa.output_stream(packed, compression="zstd") as file:
            file.write(path.read_bytes())
    wanted = reading.read(path)
    assert reading.read(packed).equals(wanted)
    small(1000)
    parts = reading.opened(packed)
    assert parts.n_batches > 1
    assert pl.concat(list(parts.frames())).equals(wanted)


def test_logical_columns_keep_their_spelling(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\ntrue,TRUE\nfalse,\nNA,FALSE\n")
    found = reading.read(tmp_path / "t.csv")
    assert found["a"].to_list() == [True, False, None]
    assert found["b"].to_list() == ["TRUE", None, "FALSE"]


def test_arrays_are_chosen_by_name(tmp_path):
    np.savez(tmp_path / "t.npz", a=np.eye(2), b=np.eye(3))
    path = str(tmp_path / "t.npz")
    with pytest.raises(TableError, match=r"--array: a \(2 by 2\), b \(3 by 3\)"):
        reading.opened(path)
    for found in (reading.opened(path, Reading(array="b")), reading.opened(f"{path}::b")):
        assert found.height == 3 and not found.notes
    with pytest.raises(TableError, match="--array c: no such array"):
        reading.opened(path, Reading(array="c"))
    with pytest.raises(TableError, match="no named arrays"):
        reading.opened(str(tmp_path / "t.csv"), Reading(array="c"))


# --- spreadsheets ---------------------------------------------------------------------------------


@pytest.fixture
def excel(tmp_path):
    pytest.importorskip("fastexcel")
    data = [["who", "dose", "crp", None], ["ä", 1, "<5", None], ["b", 2.5, 7.25, None]]
    data += [["c", None, "NA", None], [None] * 4, ["d", "#N/A", 8, None], [None] * 4]
    other = [[1, 2], [3, 4.5]]
    book(tmp_path / "t.xlsx", Data=data, Other=other, Empty=[])
    return str(tmp_path / "t.xlsx")


def test_sheets_are_tables(excel):
    table = reading.opened(excel)
    assert table.columns == ["who", "dose", "crp"]
    assert "sheet 'Data'" in table.notes[0] and "'Other', 'Empty'" in table.notes[0]
    found = table.frame()
    assert found["who"].to_list() == ["ä", "b", "c", None, "d"]
    assert found["dose"].to_list() == [1, 2.5, None, None, None]
    assert columns.number(found["crp"]).fill_nan(None).to_list() == [None, 7.25, None, None, 8]
    assert columns.bounds(found["crp"])[1][0] == 5


def test_sheets_are_chosen_by_name(excel):
    for found in (reading.opened(f"{excel}::Other"), reading.opened(excel, Reading(sheet="Other"))):
        assert found.columns == ["x1", "x2"] and "read as a row" in found.notes[0]
        assert found.frame().rows() == [(1, 2), (3, 4.5)]
        assert found.frame().dtypes == [pl.Int64, pl.Float64]
    assert reading.opened(f"{excel}::Other", Reading(header=True)).columns == ["1", "2"]
    with pytest.raises(TableError, match=r"no such sheet .* Data, Other, Empty"):
        reading.opened(f"{excel}::Else")
    with pytest.raises(TableError, match=r"'Empty' .* is empty"):
        reading.opened(f"{excel}::Empty")
    with pytest.raises(TableError, match="no spreadsheet"):
        reading.opened(excel.replace("xlsx", "csv"), Reading(sheet="Other"))


def test_spreadsheets_need_a_package_and_say_so(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    monkeypatch.setattr(sheets, "find_spec", lambda name: None)
    with pytest.raises(TableError, match=r"pip install '\.\[xlsx\]'"):
        reading.read(tmp_path / "t.xlsx")


def test_an_npy_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "t.npy"
    np.save(path, np.arange(6000.0).reshape(2000, 3))
    frames = reading._mapped(str(path), 24_000).open()
    assert next(frames).rows()[1] == (3.0, 4.0, 5.0)
    with path.open("r+b") as file:
        file.truncate(30_000)
    with pytest.raises(TableError, match=r"t\.npy became shorter while it was read"):
        list(frames)
