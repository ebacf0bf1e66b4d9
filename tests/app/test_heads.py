"""Titles and units: found where they must be, and nowhere else; measured cells stay as they are."""

import io
import random

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dualpca.app.tables import reading, writing
from dualpca.app.tables.heads import Given, Head, is_unit, place
from dualpca.app.tables.opening import open_text
from dualpca.app.tables.reading import Reading
from dualpca.app.tables.text import Codes, TableError
from tests.app.plain_tables import plain_read, same

WORDS = [
    "low",
    "high",
    "a",
    "b",
    "m",
    "f",
    "A",
    "B",
    "T",
    "K",
    "min",
    "max",
    "yes",
    "no",
    "AU",
    "in",
]
WORDS += ["Paris", "NA", "S. aureus", "site-3", "n.d.", "NT", "two words", "m/f", "count", "h"]
NAMES = [
    "time",
    "temp",
    "pressure [bar]",
    "m",
    "s",
    "°C",
    "A",
    "x",
    "pH",
    "mg/L",
    "2-propanol",
    "min",
]
NAMES += [
    "flow rate",
    "Na",
    "unit",
    "units",
    "O2 %",
    "year",
    "site",
    "kind",
    "q",
    "r",
    "t",
    "u",
    "w",
]
UNITS = ["mg/L", "°C", "bar", "%", "µg/m³", "m/s", "[kPa]", "(mL)", "W m-2", "10^9/L", "mAU", "ppm"]
TITLES = [
    "Batch report 2024",
    "# exported by LabX 3.1",
    "Station 42",
    "Operator: Smith",
    "12.05.2024",
]
TITLES += ["Messprotokoll", "%created 2024", "// v2", "Report of 12 wells"]


def opened(text, how=None, piece=None, name="t.csv"):
    """Return the table of a text."""
    how = how or Reading()
    data = io.BytesIO(text.encode())
    table = open_text(
        name,
        lambda: io.BytesIO(data.getvalue()),
        "csv",
        "utf-8",
        how.separator,
        how.decimal,
        (),
        how.given,
        Codes(how.missing, how.kept),
        how.thousands,
    )
    if piece is None:
        return (table, *table.whole())
    scan = table.scanned(piece)
    return table, pl.concat([table.parsed(one, scan) for one in table.checked(piece)]), scan


def looked(table):
    """Return the notes on what was found above and below the header."""
    return [note for note in table.notes if "above the header" in note or "as units" in note]


@st.composite
def columns(draw, rows, decimal):
    """Draw the cells of an ordinary column."""
    kind = draw(st.sampled_from(["int", "float", "fixed", "word", "date", "mixed"]))
    rng = random.Random(draw(st.integers(0, 10**6)))
    if kind == "int":
        cells = [str(rng.randint(-50, 3000)) for _ in range(rows)]
    elif kind == "float":
        cells = [repr(rng.gauss(0, 100)).replace(".", decimal) for _ in range(rows)]
    elif kind == "fixed":
        cells = [f"{rng.uniform(0, 500):.3f}".replace(".", decimal) for _ in range(rows)]
    elif kind == "date":
        cells = [f"2024-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}" for _ in range(rows)]
    else:
        cells = [rng.choice(WORDS) for _ in range(rows)]
        if kind == "mixed":
            cells = [str(rng.randint(0, 9)) if rng.random() < 0.5 else cell for cell in cells]
    return [rng.choice(["", "NA", cell, cell, cell, cell]) for cell in cells]


@st.composite
def tables(draw, least_rows=1, numeric=False):
    """Draw an ordinary table: its separator, decimal sign, names, and rows of cells."""
    separator = draw(st.sampled_from([",", ";", "\t", "|"]))
    decimal = draw(st.sampled_from([".", ","])) if separator == ";" else "."
    width, height = draw(st.integers(2, 5)), draw(st.integers(least_rows, 7))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=width, max_size=width, unique=True))
    body = [draw(columns(height, decimal)) for _ in names]
    if numeric:
        body[-1] = [f"{k}{decimal}{k}" if k != 1 else "" for k in range(height)]
    return separator, decimal, names, [list(row) for row in zip(*body, strict=True)]


def written(records, separator, end="\n", quote=False):
    """Return records as a text; `quote` puts quotes around every cell."""
    cells = [
        ['"' + cell + '"' if quote or separator in cell else cell for cell in r] for r in records
    ]
    return "".join(separator.join(row) + end for row in cells)


def check(table, frame, wanted):
    names, units, values = wanted
    assert table.names == names
    assert table.units == units
    for name in names:
        assert same(frame[name].to_list(), values[name]), name


# --- ordinary tables are read as they were ------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(tables(), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.booleans())
def test_ordinary_tables_have_no_titles_and_no_units(drawn, end, quote, all_text):
    separator, decimal, names, rows = drawn
    if all_text:  # the first row holds nothing but words
        rows[0] = [random.Random(str(rows)).choice(WORDS) for _ in names]
    assume(any(cell for row in rows for cell in row))
    text = written([names, *rows], separator, end, quote)
    table, frame, scan = opened(text)
    assert looked(table) == [] and scan.signs == {}
    check(table, frame, plain_read(text, separator, decimal))
    told = opened(text, Reading(skip=0, units=0, thousands="none"))
    assert frame.equals(told[1]) and table.start == told[0].start


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([",", ";", "\t"]), st.integers(2, 5), st.integers(1, 6), st.integers(0, 99))
def test_numbers_without_a_header_have_none(separator, width, height, seed):
    rng = random.Random(seed)
    rows = [[f"{rng.gauss(0, 9):.2f}" for _ in range(width)] for _ in range(height)]
    text = written(rows, separator)
    table, frame, scan = opened(text)
    assert looked(table) == [] and scan.signs == {}
    check(table, frame, plain_read(text, separator, header=0))


@settings(max_examples=40, deadline=None)
@given(tables(), st.integers(0, 6), st.sampled_from(["shorter", "longer", "blank"]))
def test_ragged_tables_are_refused_as_before(drawn, at, how):
    separator, _, names, rows = drawn
    at = at % len(rows)
    assume(all(all(row) for row in rows))
    odd = {"shorter": rows[at][:-1], "longer": [*rows[at], "7"], "blank": [""]}[how]
    rows = [*rows[:at], odd, *rows[at:], ["1"] * len(names)]
    with pytest.raises(TableError, match=r"fields, the header|empty name|cannot be read"):
        opened(written([names, *rows], separator))


# --- titles and units ---------------------------------------------------------------------------


@st.composite
def titled(draw):
    """Draw a table of numbers with titles above and perhaps units: text, and where what is."""
    separator, decimal, names, rows = draw(tables(least_rows=3, numeric=True))
    assume(any(separator not in name for name in names))
    titles = draw(st.lists(st.sampled_from(TITLES), min_size=1, max_size=3))
    titles = [[one.replace(separator, " ")] for one in titles]
    if draw(st.booleans()):  # as spreadsheets save them: ;;;
        titles = [one + [""] * (len(names) - 1) for one in titles]
    if draw(st.booleans()):
        titles.append([""] * draw(st.sampled_from([1, len(names)])))
    named = [name if not is_unit(name) else f"{name} value" for name in names]
    assume(separator not in "".join(named))
    records = [*titles, named]
    if draw(st.booleans()):
        records.append([*[""] * (len(names) - 1), draw(st.sampled_from(UNITS))])
    text = written([*records, *rows], separator)
    return text, separator, decimal, len(titles) + 1, len(records)


@settings(max_examples=80, deadline=None)
@given(titled())
def test_titles_and_units_are_found(drawn):
    text, separator, decimal, header, last = drawn
    for piece in (None, 40):
        table, frame, _ = opened(text, piece=piece)
        units = last if last > header else None
        names, said, values = plain_read(text, separator, decimal, "", header, units)
        said = {name: unit.strip("[]()") for name, unit in said.items()}
        check(table, frame, (names, said, values))
    note = looked(table)[0]
    assert f"{header - 1} line" in note
    assert (f"line {units} read as units" in note) == (units is not None)
    given = Reading(header=header, units=units or 0)
    assert opened(text, given)[1].equals(frame) and not looked(opened(text, given)[0])
    assert opened(text, Reading(skip=header - 1))[1].equals(frame)


@settings(max_examples=40, deadline=None)
@given(titled(), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_what_stands_above_is_written_back(drawn, end, mark):
    text = drawn[0].replace("\n", end)
    data = (b"\xef\xbb\xbf" if mark else b"") + text.encode()
    table = open_text("t.csv", lambda: io.BytesIO(data))
    file = io.BytesIO()
    copy = writing.Rewritten(file, table, -1, table.dialect.separator)
    copy.header()
    for records in copy.batches():
        copy.write(records, {})
    assert file.getvalue() == data


FOUND = {
    "titles with cells of nothing": (
        "Batch report 2024;;;\nLine;7;;\n\ntime;temp;pressure;phase\ns;°C;bar;\n0;20,5;1,01;a\n",
        Head(3, 4, 5),
    ),
    "comments": ("# station 5\n# lat 3.4, long 5.6\ndate,temp\n2024-01-01,3.5\n", Head(2, None, 3)),
    "units above": (",mg/L,°C\nid,conc,temp\n1,2.5,20\n2,3.5,21\n", Head(1, 0, 2)),
    "wavelengths": (
        "Plate 1\nwell,230,240,250\nA1,0.1,0.2,0.15\nA2,0.2,0.1,0.3\n",
        Head(1, None, 2),
    ),
    "key and value": (
        "Sample,A1\nRun,5\nVolume,10\n\ntime,mAU,conc\n0,1,2\n1,2,3\n2,1,4\n3,1,1\n",
        Head(4, None, 5),
    ),
    "categories": ("Survey 2024\n\nsex,smoker\nm,yes\nf,no\n", Head(2, None, 3)),
    "formats of dates": ("date,temp\nyyyy-mm-dd,°C\n2024-01-01,3\n2024-01-02,4\n", Head(0, 1, 2)),
    "codes among numbers": ("a,b\n[mg/L],[-]\nNA,3\nn.d.,4\n2,5\n3,6\n", Head(0, 1, 2)),
    "pieces among units": (
        "no;price;temp;lead;count\n;€;°C;mg/l;Stück\n1;2,5;20,5;1,5;7\n2;3,5;21;<0,3;8\n",
        Head(0, 1, 2),
    ),
    "one unknown unit": (
        "price,temp,lead,count\n€,°C,mg/l,Krt\n2.5,20,1.5,7\n3.5,21,1,8\n",
        Head(0, 1, 2),
    ),
    "units above, one unknown": (
        ",mg/L,°C,Krt\nid,conc,temp,n\n1,2.5,20,7\n2,3.5,21,8\n",
        Head(1, 0, 2),
    ),
    "an empty line below": ("Report\na,b\nbar,%\n\n1,2\n3,4\n", Head(1, 2, 4)),
}
ORDINARY = {
    "words": "a,b\nx,y\n1,2\n3,4\n",
    "weak units": "time,force\ns,N\n0,1\n1,2\n",
    "a repeated name": "a,b,a\n1,2,3\n",
    "an empty name": "a,\n1,2\n",
    "two tables": "a,b\n1,2\n2,3\n3,4\n\nc,d,e\n1,2,3\n",
    "a logger that gained a sensor": "time,a\n0,1\n1,2\ntime,a,b\n2,3,4\n3,4,5\n",
    "an empty line below the header": "time,temp\n\nyes,m\n1,1\n",
    "two tables of one width": "a,b\nx,y\n\nc,d\n1,2\n3,4\n5,6\n",
    "a comma in every text": "name\nAnna\nBerlin, Germany\nParis, France\n",
    "one more field from some line on": "name,value\nx,1\ny,2\nz,u,3\nw,v,4\n",
    "two unknown units": "a,b,c,d\n€,°C,Krt,foo\n1,2,3,4\n2,3,4,5\n",
    "an unknown word and one unit": "a,b\n°C,low\n1,2\n2,3\n",
    "an unknown word above words": "a,b,c\n€,°C,low\n1,2,high\n2,3,low\n",
    "pieces are a word too": "a,b\npcs,Stück\n1,2\n2,3\n",
    "a nameless last column, and words": "id,x,y,\nfoo,low,high,bad\n0,1,2,3\n1,2,3,4\n",
    "rows of words only": "a,b\nx,y\nmg/L,z\nu,v\n",
}


def test_a_first_line_that_counts_after_an_empty_cell_is_a_header():
    for text, first in (
        (",0,1,2\n0,.1,.2,.4\n1,.5,.1,.2\n2,.1,.1,.3\n", 0),
        (",1,2,3\nA,1,5,2\n", "A"),
    ):
        table, frame, _ = opened(text)
        assert table.names[0] == "row" and frame["row"][0] == first
    for text in (",1,2,3\n4,,6,7\n", "1,2,3\n4,5,6\n", ",1,2,4\nA,1,1,1\n"):
        assert opened(text)[0].names[0] == "x1"


def rows_of(text, separator=None):
    sign = separator or (";" if ";" in text else ",")
    return [[cell.strip() for cell in line.split(sign)] for line in text.split("\n")[:-1]]


@pytest.mark.parametrize("text, head", FOUND.values(), ids=FOUND)
def test_heads_as_people_write_them(text, head):
    assert place(rows_of(text)) == head
    table, frame, _ = opened(text)
    assert frame.height == len(rows_of(text)) - head.first
    assert looked(table)


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY)
def test_nothing_is_found_in_other_tables(text):
    assert place(rows_of(text)) == Head(0, None, 1)


def test_what_is_found_is_said_in_one_line():
    text = "Batch report 2024;;\n\ntime;temp;pressure\nmin;°C;bar\n0;20,5;1\n1;21,5;2\n"
    table, frame, _ = opened(text)
    assert looked(table) == [
        "t.csv: 2 lines above the header skipped ('Batch report 2024', …); line 4 read as units "
        "(--skip, --header and --units change this)."
    ]
    assert table.units == {"time": "min", "temp": "°C", "pressure": "bar"}
    assert frame["temp"].to_list() == [20.5, 21.5]


def test_options_say_what_is_where():
    text = "a,b\nx,y\nfirst,second\n1,2\n3,4\n"
    assert opened(text, Reading(header=3))[1].columns == ["first", "second"]
    assert opened(text, Reading(skip=2))[1].rows() == [(1, 2), (3, 4)]
    table, frame, _ = opened(text, Reading(header=1, units=2))
    assert table.units == {"a": "x", "b": "y"} and frame.height == 3
    table, frame, _ = opened(text, Reading(header=2, units=1))
    assert table.units == {"x": "a", "y": "b"} and frame.height == 3
    assert opened(text, Reading(header=0, skip=3))[1].rows() == [(1, 2), (3, 4)]
    assert opened("a,b\nmg/L,%\n1,2\n", Reading(units=0))[1].height == 2
    for how in (Reading(header=9), Reading(units=9), Reading(skip=9)):
        with pytest.raises(TableError, match=r"^--(header|units|skip) 9: "):
            opened(text, how)


@pytest.mark.parametrize(
    "text", ["\ufeff", "\n", "\n\n", ";;\n;;\n", "a,b", "a,b\n1,2\n3", "\na,b\n1,2\n"]
)
@pytest.mark.parametrize("how", [Reading(), Reading(header=2), Reading(skip=1), Reading(units=2)])
def test_files_of_almost_nothing_are_read_or_refused(text, how):
    try:
        frame = opened(text, how)[1]
    except TableError as error:
        assert str(error)
    else:
        assert frame.height <= text.count("\n") + 1


def test_errors_of_headers_name_the_option():
    with pytest.raises(TableError, match="--header 3"):
        opened("My plot,,\nA,1,2\nB,3,4\n")


def test_a_nameless_last_column_is_refused_also_above_words():
    for words in ("", "foo,low,high,bad\n"):
        with pytest.raises(TableError, match="empty name after 'y'"):
            opened(f"id,x,y,\n{words}0,1,2,3\n1,2,3,4\n")


def test_other_tables_have_no_lines(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(TableError, match=r"--skip: .* has no lines"):
        reading.opened(str(path), Reading(skip=2))


def test_given_lines_are_those_of_an_editor():
    text = 'sep=;\nReport;\n"two\nlines";b\n1;2\n'
    assert opened(text, Reading(header=3))[1].columns == ["two\nlines", "b"]
    assert opened("a;b\n1;2\n", Reading(header=1))[1].columns == ["a", "b"]
    assert Given() == Reading().given
