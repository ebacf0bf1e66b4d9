"""Sheets with titles, units and several tables: the largest is read, and the others are named."""

import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualpca.app.tables import reading
from dualpca.app.tables.reading import Reading
from dualpca.app.tables.sheets import Block, block_of
from dualpca.app.tables.text import TableError
from tests.app.test_reading import book

pytest.importorskip("fastexcel")

PLATE = [
    ["", *range(1, 7)],
    *[[row, *[k / 7 + i for k in range(6)]] for i, row in enumerate("ABCD")],
]


def sheet(tmp_path, rows, **how):
    """Write rows to a sheet, and read it."""
    width = max(map(len, rows))
    rows = [[None if cell == "" else cell for cell in row] for row in rows]
    rows = [row + [None] * (width - len(row)) for row in rows]
    book(tmp_path / "t.xlsx", Data=rows)
    return reading.opened(str(tmp_path / "t.xlsx"), Reading(**how))


def test_titles_and_units_are_rows_of_a_sheet(tmp_path):
    rows = [["Batch report 2024"], ["Line", 7], [], ["time", "temp", "phase"], ["min", "°C", ""]]
    rows += [[k, 20 + k / 2, "a"] for k in range(6)]
    table = sheet(tmp_path, rows)
    assert table.columns == ["time", "temp", "phase"] and table.height == 6
    assert table.units == {"time": "min", "temp": "°C"}
    assert table.frame().dtypes == [pl.Int64, pl.Float64, pl.String]
    assert any("row 5 read as units" in note for note in table.notes)
    again = sheet(tmp_path, rows, header=4, units=5)
    assert again.frame().equals(table.frame()) and not again.notes
    assert sheet(tmp_path, rows, skip=3).frame().equals(table.frame())


def test_the_largest_table_is_read_and_the_others_are_named(tmp_path):
    small = [["name", "value"], ["gain", 5], ["shake", 30]]
    rows = [["Plate report"], [], *small, [], *PLATE, ["E", *range(6)], [], *PLATE]
    table = sheet(tmp_path, rows)
    assert table.columns == ["row", *map(str, range(1, 7))] and table.height == 5
    note = next(note for note in table.notes if "the largest" in note)
    assert "A7:G12, is read" in note and "A3:B5" in note and "A14:G18" in note
    for cells in ("A14:G18", "a14:g18", "$A$14:$G$18"):
        other = sheet(tmp_path, rows, cells=cells)
        assert other.height == 4 and "other" not in "".join(other.notes)
    path = str(tmp_path / "t.xlsx")
    for named in (f"{path}::Data!A3:B5", f"{path}::!A3:B5"):
        assert reading.opened(named).frame().rows() == [("gain", 5), ("shake", 30)]
    assert reading.opened(path, Reading(sheet="Data!A3:B5")).height == 2
    assert reading.opened(path, Reading(header=3)).columns == ["name", "value"]


def test_tables_side_by_side_are_told_apart(tmp_path):
    pairs = zip(PLATE, PLATE, strict=True)
    table = sheet(tmp_path, [[*one, None, *other] for one, other in pairs])
    assert table.height == 4 and "I1:O5" in "".join(table.notes)
    rows = [["a", "b", None, "mean"], [1, 2, None, 3.5]] + [[k, k / 2] for k in range(9)]
    table = sheet(tmp_path, rows)
    assert table.columns == ["a", "b"] and "D1:D2" in "".join(table.notes)
    sites = [["site", "pH"], *[[f"s{k}", k / 2] for k in range(9)]]
    labs = [["lab", "p"], *[[f"l{k}", k / 3] for k in range(7)], [None, None], [None, None]]
    table = sheet(tmp_path, [[*one, None, *two] for one, two in zip(sites, labs, strict=True)])
    assert table.columns == ["site", "pH"] and table.height == 9
    assert "D1:E8" in "".join(table.notes)


def test_an_empty_column_or_row_within_a_table_is_nothing(tmp_path):
    rows = [["a", "b", None, "c"], *[[k, k / 2, None, k] for k in range(4)], [], [5, 6, None, 7]]
    table = sheet(tmp_path, rows)
    assert table.columns == ["a", "b", "c"] and table.height == 6
    across, down = table.notes
    assert "A1:B7, D1:D7 are read as one table" in across and "--range A1:B7" in across
    assert "A7:D7, after an empty row" in down and "--range A1:D5 leaves it out" in down
    rows[4][3] = rows[6][3] = None
    assert sheet(tmp_path, rows).columns == ["a", "b", "c"]


def test_means_below_a_table_are_said(tmp_path):
    rows = [["site", "pH", "t"], *[[f"s{k}", k, k / 2] for k in range(4)], [], ["mean", 1.5, 0.75]]
    (note,) = sheet(tmp_path, rows).notes
    assert "A7:C7, after an empty row" in note
    table = sheet(tmp_path, rows, cells="A1:C5")
    assert table.height == 4 and not table.notes


def test_comments_below_a_table_with_an_empty_column(tmp_path):
    rows = [["n", "a", "b", None, "c", "d"], *[[f"n{k}", k, k, None, k, k] for k in range(5)]]
    table = sheet(tmp_path, [*rows, [], *[[f"comment {k}"] for k in range(4)]])
    assert table.columns == ["n", "a", "b", "c", "d"] and table.height == 5
    assert "without the notes in A8:A11" in table.notes[0]


def test_a_sheet_without_names(tmp_path):
    table = sheet(tmp_path, [["Report"], [], [1, 2.5], [3, 4]], header=0, skip=2)
    assert table.columns == ["x1", "x2"] and table.frame().rows() == [(1, 2.5), (3, 4.0)]


def test_ranges_that_are_wrong_are_refused(tmp_path):
    for words in ("A1-B2", "1:2", "A0:B2", "Sheet2"):
        with pytest.raises(TableError, match="A5:F20"):
            sheet(tmp_path, PLATE, cells=words)
    with pytest.raises(TableError, match="has no cells there"):
        sheet(tmp_path, PLATE, cells="AA1:AB9")
    with pytest.raises(TableError, match="no spreadsheet"):
        reading.opened("t.csv", Reading(cells="A1:B2"))


@pytest.mark.parametrize("block", [Block(0, 0, 0, 0), Block(4, 19, 0, 27), Block(0, 9, 701, 702)])
def test_ranges_are_written_as_they_are_read(block):
    assert block_of(block.shown()) == block


def test_numbers_that_are_text_have_thousands(tmp_path):
    rows = [["a", "b"], ["1,234.5", "low"], [7, "1,2"], ["12,345", "x"]]
    table = sheet(tmp_path, rows)
    assert pl.Series(table.frame()["a"]).cast(pl.Float64).to_list() == [1234.5, 7, 12345]
    assert table.frame()["b"].to_list() == ["low", "1,2", "x"]
    assert "separates thousands in 'a'" in "".join(table.notes)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(1, 8), st.integers(0, 10**6))
def test_ordinary_sheets_are_read_as_they_were(tmp_path_factory, width, height, seed):
    rng = random.Random(seed)
    kinds = [rng.choice(["number", "word", "whole"]) for _ in range(width)]
    make = {
        "number": lambda: rng.choice([None, rng.gauss(0, 1), rng.gauss(0, 1)]),
        "word": lambda: rng.choice([None, "low", "high", "m", "A", "two words", "n.d."]),
        "whole": lambda: rng.randint(0, 9),
    }
    names = rng.sample(["time", "temp", "m", "A", "mg/L", "x", "site", "kind"], width)
    rows = [[make[kind]() for kind in kinds] for _ in range(height)]
    if rng.random() < 0.3:
        rows.insert(rng.randrange(len(rows) + 1), [None] * width)
    rows.append([1 if kind != "word" else "end" for kind in kinds])
    table = sheet(tmp_path_factory.mktemp("sheet"), [names, *rows])
    assert table.columns == names
    assert all("after an empty row" in note for note in table.notes)
    found = [tuple(None if c is None else str(c) for c in row) for row in table.frame().rows()]
    wanted = [tuple(None if c is None else str(c) for c in row) for row in rows]
    assert [[_plain(c) for c in row] for row in found] == [[_plain(c) for c in r] for r in wanted]


def _plain(cell):
    """Return a number as a number."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return cell
