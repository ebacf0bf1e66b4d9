"""Three readers of one table: ours, Python's csv module and pandas. Same names and cells, or words.

The tables hold everything that CSV allows: quotes and line ends inside of cells, every separator
and line end, a byte order mark, spaces, empty cells, letters and digits of any script.
"""

import csv
import io

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualpca.app.tables.heads import Given
from dualpca.app.tables.opening import open_text
from dualpca.app.tables.text import TableError

pd = pytest.importorskip("pandas", reason="pandas is not installed: it is the third reader")

SIGNS = [",", ";", "\t", "|"]
ENDS = ["\n", "\r\n", "\r"]
PARTS = ["a", "Z", "1", "-2", ".", "5", *SIGNS, '"', '""', "'", " ", "  ", "\n", "\r\n", "é", "Σ"]
PARTS += ["e\u0301", "😀", "\u00a0", "\u2028", "\u0085", "\x0b", "\x0c", "\x1c", "\u200b", "\u202e"]
PARTS += ["٣", "１", "½", "#", "<", "=", "\\", "\ufeff", "NA", "-", "nan", "true", "1e5", "_"]
TEXT = st.lists(st.sampled_from(PARTS), max_size=4).map("".join)


@st.composite
def tables(draw, names=TEXT, cells=TEXT, unique=True):
    """Draw the records of a table and how they are written: separator, line end, quotes, mark."""
    width = draw(st.integers(1, 4))
    named = names.filter(lambda name: name.strip() and "\ufeff" not in name)
    header = draw(st.lists(named, min_size=width, max_size=width, unique=unique))
    rows = draw(st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=5))
    if width > 1 and not any(rows[-1]):
        rows[-1][0] = "7"  # a last row of nothing might be blank lines
    return [header, *rows], draw(st.sampled_from(SIGNS)), draw(st.sampled_from(ENDS))


def written(records, separator, end, all_quoted=False):
    """Return records as a text; Python's own writer leaves some line ends without quotes."""

    def quoted(cell, alone):
        needed = all_quoted or (alone and not cell) or any(c in cell for c in (separator, *'"\r\n'))
        return '"' + cell.replace('"', '""') + '"' if needed else cell

    lines = (separator.join(quoted(cell, len(row) == 1) for cell in row) for row in records)
    return "".join(line + end for line in lines)


def ours(data, separator, piece=-1, decimal=".", verbatim=True):
    """Return names and cells by our reader; text stays as it is where all is verbatim."""
    how = {"separator": separator, "decimal": decimal, "given": Given(header=1, units=0)}
    names = open_text("t", lambda: io.BytesIO(data), **how).names if verbatim else ()
    table = open_text("t", lambda: io.BytesIO(data), verbatim=names, **how)
    scan = table.scanned(piece)
    if not scan.height:
        raise TableError("t has no rows")  # as `reading.opened` says
    frame = pl.concat([table.parsed(part, scan) for part in table.checked(piece)])
    return table.names, [list(row) for row in frame.rows()]


def of_csv(text, separator):
    """Return names and cells by Python's csv module; a blank line is an empty cell."""
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    return rows[0], [row or [""] for row in rows[1:]]


def of_pandas(data, separator):
    """Return names and cells by pandas, as text."""
    how = {"sep": separator, "encoding": "utf-8", "dtype": str, "keep_default_na": False}
    how |= {"header": None, "skip_blank_lines": False, "index_col": False, "na_filter": False}
    first, *rows = pd.read_csv(io.BytesIO(data), **how).to_numpy().tolist()
    return first, rows


def plain(cells):
    return [[cell or "" for cell in row] for row in cells]


@settings(max_examples=150, deadline=None)
@given(tables(), st.booleans(), st.booleans(), st.sampled_from([-1, 8, 64]))
def test_three_readers_read_the_same_table(drawn, marked, all_quoted, piece):
    records, separator, end = drawn
    text = written(records, separator, end, all_quoted)
    data = text.encode("utf-8-sig" if marked else "utf-8")
    names, rows = of_csv(text, separator)
    assert [names, *rows] == records
    try:
        found, cells = ours(data, separator, piece)
    except TableError as error:
        assert len(found_why := str(error)) < 500 and found_why.isprintable()
        assert "quote that is never closed" in found_why and piece == 8  # a record of many pieces
        return
    assert (found, plain(cells)) == (names, rows)
    theirs, other = of_pandas(data, separator)
    assert (theirs, other) == (names, rows)


NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["", "NA", "-0.0", "1e-320", "+5", ".5", "5.", " 7 ", "007", "1e+2"]),
)


@settings(max_examples=100, deadline=None)
@given(tables(st.sampled_from(["a", "b c", "größe", "x,y", 'q"']), NUMBERS), st.booleans())
def test_three_readers_read_the_same_numbers(drawn, comma):
    records, separator, end = drawn
    comma = comma and separator != ","
    if comma:  # 5, is text: the comma may be anything
        rows = ([cell.replace("5.", "5").replace(".", ",") for cell in row] for row in records[1:])
        records = [records[0], *rows]
    decimal, data = "," if comma else ".", written(records, separator, end).encode()
    names, cells = ours(data, separator, decimal=decimal, verbatim=False)
    how = {"sep": separator, "decimal": decimal, "skip_blank_lines": False, "index_col": False}
    theirs = pd.read_csv(io.BytesIO(data), na_values=["NA"], skipinitialspace=True, **how)
    assert names == list(theirs.columns)
    for j, name in enumerate(names):
        mine = [row[j] for row in cells]
        if any(cell not in (None, "NA") for cell in mine):  # codes of nothing are text
            texts = [row[j].strip().replace(decimal, ".") for row in records[1:]]
            exact = [float(cell) if cell not in ("", "NA") else None for cell in texts]
            assert mine == exact
            column = pd.to_numeric(theirs[name].astype(str).str.strip(), errors="coerce")
            assert column.astype(object).where(column.notna(), None).tolist() == pytest.approx(
                exact
            )


DAMAGES = st.sampled_from(['"', ",", ";", "\n", "\r", "\r\n", '"\n', "", " ", '""'])


@settings(max_examples=300, deadline=None)
@given(tables(), st.lists(st.tuples(st.floats(0, 1), DAMAGES), min_size=1, max_size=3))
def test_damaged_text_is_read_as_by_csv_or_refused(drawn, damages):
    """Never as something else without a word; pandas pads short rows, so it is no judge here."""
    records, separator, end = drawn
    text = written(records, separator, end)
    for where, sign in damages:
        at = int(where * len(text))
        text = text[:at] + sign + text[at + (not sign) :]
    try:
        found, cells = ours(text.encode(), separator)
    except TableError as error:
        assert str(error).isprintable()
        return
    names, rows = of_csv(text, separator)
    while len(names) > 1 and rows and rows[-1] == [""]:
        rows.pop()  # blank lines at the end
    names[0] = names[0].strip() or "row"  # as the first is called where it has no name
    assert ([name.strip() for name in found], plain(cells)) == ([n.strip() for n in names], rows)


@settings(max_examples=60, deadline=None)
@given(tables(st.sampled_from(["a", "b", "", " "]), unique=False), st.booleans())
def test_names_that_come_twice_or_are_empty_are_refused_in_words(drawn, all_quoted):
    """The first may be empty: it is that of row names. pandas renames the others."""
    records, separator, end = drawn
    data = written(records, separator, end, all_quoted).encode()
    names = records[0]
    if len(set(names)) == len(names):
        assert ours(data, separator)[0] == names
    else:
        with pytest.raises(TableError, match=r"repeats \['[ab]'"):
            ours(data, separator)


ODD = {
    "no last name": ("a,\n1,2\n", "empty name after 'a'"),
    "no name between": ("a,,b\n1,2,3\n", "empty name after 'a'"),
    "old Macs": ("a,b\r1,2\r3\r", "line 3 of t has 1 fields"),
    "old Macs, an open quote": ('a,b\r1,"2\r3,4\r', "line 3 of t cannot be read"),
    "old Macs and blank lines": ("a,b\r\r1,2\r3,4\r", "line 2 of t has 0 fields"),
    "twice a line end": ("a,b\r\r\n1,2\r\r\n", "line 1 of t has 0 fields"),
}


@pytest.mark.parametrize("text, words", ODD.values(), ids=ODD)
def test_odd_tables_are_refused_in_our_words(text, words):
    with pytest.raises(TableError, match=words):
        ours(text.encode(), ",")


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("tail", ["", "\r", "\r\r"])
@pytest.mark.parametrize("piece", [-1, 4])
def test_lines_of_old_macs_are_lines(mark, tail, piece):
    text = 'a,"b\rc"\r1,"x\ry"\r3,"say ""no"""' + tail
    names, cells = ours((mark + text).encode(), ",", piece)
    expected = of_csv(text, ",")
    assert (names, cells) == (expected[0], [row for row in expected[1] if row != [""]])


@pytest.mark.parametrize("first", ["٣,٤", "１,２", "१,२"])
def test_digits_of_other_scripts_stay_as_they_are_written(first):
    rows = [first.split(","), ["٥٫٥", "1٬234"], ["٣,٥", "<５"]]
    for separator, decimal in ((",", "."), (";", ",")):
        data = written([["a", "b"], *rows], separator, "\n").encode()
        assert ours(data, separator, decimal=decimal, verbatim=False)[1] == rows
