"""Thousands separators: numbers are numbers where a column agrees, and stay as they are written."""

import io
import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualpca.app.tables import writing
from dualpca.app.tables.opening import open_text
from dualpca.app.tables.reading import Reading
from dualpca.app.tables.thousands import SIGNS, Grouping, grouped, ungrouped
from tests.app.plain_tables import plain_read, same
from tests.app.test_heads import opened, written

FORMS = {
    "english": (",", ",", "."),
    "english with tabs": ("\t", ",", "."),
    "german": (";", ".", ","),
    "swiss": (";", "'", "."),
    "swiss typography": (",", "’", "."),
    "french": (";", "\u202f", ","),
    "spaces": ("\t", " ", "."),
}


def number(rng, sign, decimal, places):
    value = 10 ** rng.uniform(0, 8) * rng.choice([1, -1])
    words = f"{abs(value):,.{places}f}".replace(",", "_").replace(".", decimal)
    return ("-" if value < 0 else "") + words.replace("_", sign)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(FORMS)), st.integers(0, 10**6), st.sampled_from([1, 2, 4]))
def test_columns_that_agree_are_numbers(form, seed, places):
    separator, sign, decimal = FORMS[form]
    rng = random.Random(seed)
    rows = [[number(rng, sign, decimal, places), number(rng, sign, decimal, 0)] for _ in range(9)]
    rows[rng.randrange(9)][0] = "NA"
    rows.append([f"1{sign}234{decimal}50", f"-1{sign}234{sign}567"])
    rows = [[*row, rng.choice(["low", "high"])] for row in rows]
    text = written([["price", "people", "word"], *rows], separator)
    names, _, wanted = plain_read(text, separator, decimal, sign)
    for piece in (None, 60):
        table, frame, scan = opened(text, piece=piece)
        assert frame.schema["price"] == pl.Float64 and frame.schema["people"] == pl.Int64
        assert set(scan.signs) == {"price", "people"} and set(scan.first) == set(scan.signs)
        assert all(same(frame[name].to_list(), wanted[name]) for name in names)
        assert table.dialect.decimal == decimal


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(FORMS)), st.integers(0, 10**6))
def test_measured_cells_are_written_as_they_were(form, seed):
    separator, sign, decimal = FORMS[form]
    rng = random.Random(seed)
    rows = [[number(rng, sign, decimal, 2), number(rng, sign, decimal, 0)] for _ in range(6)]
    data = written([["a", "b"], *rows, ["", f"1{sign}000{sign}000"]], separator, "\r\n").encode()
    table = open_text("t.csv", lambda: io.BytesIO(data))
    file = io.BytesIO()
    copy = writing.Rewritten(file, table, -1, separator)
    copy.header()
    for records in copy.batches():
        copy.write(records, {})
    assert file.getvalue() == data


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_are_grouped_and_back(sign, decimal):
    if sign == decimal:
        return
    for value in (0.5, 7, 999, 1000, 1234567.25, -98765.5, 1e14):
        word = writing.number_text(value, 12, decimal)
        again = grouped(word, sign, decimal)
        frame = pl.DataFrame({"a": [again]})
        assert ungrouped(frame, {"a": sign}, decimal)["a"][0] == word
        assert len(again) - len(word) == max(len(str(int(abs(value)))) - 1, 0) // 3


READ = {
    # text: what the first column is
    "only commas between commas": ('a,b\n"1,234",x\n"5,678",y\n', [1234, 5678]),
    "points elsewhere": ("a;b\n1,234;0.5\n5,678;1.5\n", [1234, 5678]),
    "commas elsewhere": ("a;b\n1.234;0,5\n5.678;1,5\n", [1234, 5678]),
    "twice in the column": ("a;b\n1.234.567;x\n5.678;y\n", [1234567, 5678]),
    "twice in another column": ("a;b\n5.678;1.234.567\n7.890;2.345.678\n", [5678, 7890]),
    "bounds": ('a,b\n"<1,234",x\n"5,678.5",y\n', ["<1234", "5678.5"]),
    "decimal commas with three digits": ("a;b\n1,234;x\n5,678;y\n", [1.234, 5.678]),
    "decimal points with three digits": ("a;b\n1.234;x\n5.678;y\n", [1.234, 5.678]),
    "whole numbers beside, with tabs": (
        "a\tb\n1,234\tx\n5,678\ty\n12\tz\n7\tz\n",
        [1234, 5678, 12, 7],
    ),
    "whole numbers beside, with semicolons": (
        "a;b\n1.234;x\n5.678;y\n12;z\n7;z\n",
        [1234, 5678, 12, 7],
    ),
    "spaces": ("a,b\n1 234,x\n12,y\n", [1234, 12]),
    "apostrophes": ("a,b\n1'234.5,x\n12,y\n", [1234.5, 12]),
}
TEXT = {
    "a zero first": 'a,b\n"0,234",x\n"5,678",y\n',
    "a group of two": 'a,b\n"1,23",x\n"5,678",y\n',
    "a group of four": 'a,b\n"1,2345",x\n"5,678",y\n',
    "a word": 'a,b\n"1,234",x\nmany,y\n',
    "pairs": 'a,b\n"1,2",x\n"3,4",y\n',
    "long numbers without": 'a,b\n"1,234",x\n5678,y\n',
    "decimal commas elsewhere": 'a,b\n"1,234","0,5"\n"5,678","1,5"\n',
    "dates": "a;b\n01.02.2024;1\n02.02.2024;2\n",
    "addresses": "a;b\n192.168.100.1;1\n192.168.100.2;2\n",
    "telephone": "a,b\n030 123 456,1\n040 234 567,2\n",
    "two signs": 'a,b\n"1,234,567",x\n1 234,y\n',
}


@pytest.mark.parametrize("text, wanted", READ.values(), ids=READ)
def test_what_a_sign_is_follows_from_the_column_and_the_table(text, wanted):
    for piece in (None, 12):
        assert opened(text, piece=piece)[1]["a"].to_list() == wanted


@pytest.mark.parametrize("text", TEXT.values(), ids=TEXT)
def test_other_columns_stay_text(text):
    for piece in (None, 12):
        _, frame, scan = opened(text, piece=piece)
        assert frame.schema["a"] == pl.String and not scan.signs


def test_options_settle_it():
    text = 'a,b\n"1,234","0,5"\n"5,678","1,5"\n'
    assert opened(text, Reading(thousands=","))[1]["a"].to_list() == [1234, 5678]
    assert opened(text, Reading(decimal=","))[1].rows() == [(1.234, 0.5), (5.678, 1.5)]
    text = "a;b\n1,234;x\n5,678;y\n"
    assert opened(text, Reading(decimal="."))[1]["a"].to_list() == [1234, 5678]
    text = 'a,b\n"1,234",x\n'
    assert opened(text, Reading(thousands="none"))[1]["a"].to_list() == ["1,234"]


def test_identifiers_keep_their_commas():
    data = b'id,a\n"1,234",7\n"5,678",8\n'
    frame, scan = open_text("t.csv", lambda: io.BytesIO(data), verbatim=("id",)).whole()
    assert frame["id"].to_list() == ["1,234", "5,678"] and not scan.signs


def test_a_comma_that_may_be_either_is_said():
    table, _, _ = opened("a;b\n1,234;x\n5,678;y\n")
    assert "1.234" in table.notes[-1] and "--decimal ." in table.notes[-1]
    assert not opened("a;b\n1,2;x\n5,678;y\n")[0].notes
    for separator in ";\t":
        table, frame, _ = opened("a;b\n1.234;x\n901;y\n12.100;z\n".replace(";", separator))
        assert frame["a"].to_list() == [1.234, 901, 12.1]
        assert "1.234, with a decimal point (with --decimal , it is 1234)" in table.notes[-1]
        assert not opened("a;b\n1.234;x\n0.5;y\n".replace(";", separator))[0].notes
    for other in ("1.234;0.5\n5.678;2\n7;1\n8;1\n", "1.234;1\n5.678;1\n1500;1\n8;1\n"):
        assert opened("a;b\n" + other)[1]["a"][0] == 1.234
    assert not opened("a,b\n1.234,x\n5.678,y\n")[0].notes


def test_a_column_of_numbers_has_no_sign():
    group = Grouping(".")
    group.add(pl.Series(["1", "22", None]), pl.Series([1.0, 22.0, None]))
    assert group.sign(None, known=True) is None
