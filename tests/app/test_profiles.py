"""What columns hold, and what is made of them: every rule, whatever the size of a batch."""

import numpy as np
import polars as pl
import pytest

from dualpca.app.tables import columns, profiles
from dualpca.app.tables.columns import OTHER_DIGITS, Preparation
from dualpca.app.tables.text import TableError

N = 60
RNG = np.random.default_rng(0)
SMOOTH = RNG.normal(50, 5, size=N).round(2)


def chosen(data, size=N, **options):
    """Return what is made of a table that comes in batches of a size."""
    frame = pl.DataFrame({"x": SMOOTH[: len(next(iter(data.values())))], **data})
    parts = list(frame.iter_slices(size))
    seen = profiles.profile(parts, frame.columns, options.get("one_hot", ()))
    return profiles.choose(seen, **options)


def repeated(*values):
    return [values[i % len(values)] for i in range(N)]


IDENTIFIERS = {
    "text": ("who", [f"r{i}" for i in range(N)], "text that never repeats, such as 'r0'"),
    "named": ("Patient_ID", RNG.permutation(10**6)[:N], "whole numbers that never repeat"),
    "floats": ("Sample", np.arange(N) * 7.0, "whole numbers that never repeat"),
    "from 0": ("anything", np.arange(N), "it counts the rows"),
    "from 1": ("anything", np.arange(1.0, N + 1), "it counts the rows"),
    "as text": ("row", [f"{7 * i:04d}" for i in range(N)], "whole numbers that never repeat"),
}


@pytest.mark.parametrize("size", [1, 7, N])
@pytest.mark.parametrize("name, values, why", IDENTIFIERS.values(), ids=IDENTIFIERS)
def test_identifiers_are_left_out_and_name_rows(name, values, why, size):
    found = chosen({name: values}, size)
    assert (found.names, found.identifier) == (["x"], name)
    assert found.notes == [
        f"column {name!r} identifies rows ({why}) and is not part of the model (--columns chooses "
        "columns)."
    ]


NUMBERS = {
    "repeats": ("id", [*range(5, N + 4), 5]),
    "other name": ("dose", RNG.permutation(1000)[:N]),
    "not whole": ("index", np.arange(N) + 0.5),
    "from 2": ("step", np.arange(2, N + 2)),
    "gap": ("step", [*range(N - 1), N]),
    "missing": ("step", [*range(N - 1), None]),
}


@pytest.mark.parametrize("size", [7, N])
@pytest.mark.parametrize("name, values", NUMBERS.values(), ids=NUMBERS)
def test_measurements_are_not_taken_for_identifiers(name, values, size):
    found = chosen({name: values}, size)
    assert (found.names, found.identifier, found.notes) == (["x", name], None, [])


def test_identifiers_that_are_asked_for_stay():
    found = chosen({"id": np.arange(N)}, asked=True)
    assert (found.names, found.identifier, found.notes) == (["x", "id"], None, [])


def test_a_table_of_identifiers_only_is_refused_with_the_reason():
    seen = profiles.profile([pl.DataFrame({"n": range(9)})], ["n"])
    with pytest.raises(TableError, match=r"no column is left\. column 'n' identifies .*--columns"):
        profiles.choose(seen)


def test_only_one_column_names_rows_and_it_has_no_gaps():
    remarks = [f"remark {i}" if i % 20 == 0 else None for i in range(N)]
    data = {"remark": remarks, "nr": np.arange(N) * 3, "who": [f"r{i}" for i in range(N)]}
    found = chosen(data)
    assert (found.names, found.identifier) == (["x"], "nr")
    assert "identifiers: 'remark' (text that never repeats, such as 'remark 0'), " in found.notes[1]
    del data["who"]
    found = chosen(data, identifier="who")
    assert found.identifier == "who" and "'nr'" in found.notes[0]


TWO = {
    "words": (("male", "female"), ["female", "male"], "female"),
    "yes": (("yes", "no", None), ["no", "yes"], "no"),
    "Yes": (("no", "Yes"), ["Yes", "no"], "no"),
    "ja": (("ja", "nein"), ["ja", "nein"], "nein"),
    "TRUE": (("TRUE", "FALSE"), ["FALSE", "TRUE"], "FALSE"),
    "logical": ((True, False, None), ["false", "true"], "false"),
    "spaces": (("a", "b ", " a", None), ["a", "b"], "a"),
    "bounds": (("<50", ">=50"), ["<50", ">=50"], "<50"),
}


@pytest.mark.parametrize("size", [1, N])
@pytest.mark.parametrize("values, levels, dropped", TWO.values(), ids=TWO)
def test_two_values_become_one_column(values, levels, dropped, size):
    found = chosen({"k": repeated(*values)}, size)
    assert (found.levels, found.dropped) == ({"k": levels}, {"k": dropped})
    one = next(level for level in levels if level != dropped)
    assert found.notes == [
        f"text of two values becomes 0 and 1: 'k' (1 is {one!r}, 0 {dropped!r})."
    ]
    prep = Preparation(tuple(found.names), found.levels, dropped=found.dropped)
    assert prep.features == ["x", f"k={one}"]


@pytest.mark.parametrize("size", [1, 7, N])
def test_more_values_become_columns_without_the_most_frequent(size):
    found = chosen({"k": repeated("c", "a", "b", "b", None)}, size)
    assert (found.levels, found.dropped) == ({"k": ["a", "b", "c"]}, {"k": "b"})
    assert "'k' (3 values; all 0 is the most frequent, 'b')" in found.notes[0]
    prep = Preparation(tuple(found.names), found.levels, dropped=found.dropped)
    frame = pl.DataFrame({"x": SMOOTH, "k": repeated("c", "a", "b", "b", None)})
    rows = prep.rows(frame)
    assert rows.columns == ["x", "k=a", "k=c"]
    full = rows.fill_nan(None).drop_nulls().to_numpy()
    assert np.linalg.matrix_rank(full - full.mean(axis=0)) == 3  # nothing follows from the rest
    assert prep.categories(rows)["k"].to_list() == frame["k"].to_list()
    guess = [[0, 0.4, 0.5], [0, 0.2, 0.3], [0, -0.2, 0.1], [0, np.nan, 0.1]]
    assert prep.categories(guess)["k"].to_list() == ["c", "b", "b", None]


def test_categories_of_files_that_kept_all_levels():
    prep = Preparation(("k", "a"), {"k": ["u", "v"]})
    assert prep.categories([[0.2, 0.1, 9.0], [0.1, 0.2, 9.0]])["k"].to_list() == ["u", "v"]


def test_one_hot_asked_for_is_without_a_limit_and_numbers_may_be_categories():
    towns = [f"t{i % 30:02d}" for i in range(N)]
    with pytest.raises(TableError, match=r"'k' holds text \(such as 't00'\).*--one-hot k"):
        chosen({"k": towns})
    assert len(chosen({"k": towns}, one_hot=["k"]).levels["k"]) == 30
    found = chosen({"k": repeated(1, 2)}, one_hot=["k"])
    assert (found.levels, found.dropped, found.notes) == ({"k": ["1", "2"]}, {"k": "1"}, [])


def test_columns_without_information_are_left_out():
    found = chosen({"gone": [None] * N, "same": ["x"] * N})
    assert found.names == ["x"]
    assert found.notes == [
        "left out because they have no entries: 'gone'.",
        "left out because all of their entries are the same: 'same' ('x').",
    ]


@pytest.mark.parametrize("size", [1, 7, N])
@pytest.mark.parametrize("code", [-999, 9999.0, -99, 999, 88888])
def test_codes_far_outside_are_pointed_out(code, size):
    values = np.where(np.arange(N) % 9 == 4, code, SMOOTH)
    found = chosen({"age": values}, size)
    low, high = (f"{v:g}" for v in (SMOOTH[values != code].min(), SMOOTH[values != code].max()))
    assert found.notes == [
        f"{code:g} is far from the other values: 7 in 'age' ({low} to {high}). If it means "
        f"missing, say --na={code:g}."
    ]


def test_two_codes_in_one_column_are_both_pointed_out():
    values = SMOOTH.copy()
    values[:2], values[2:5] = -99, -999
    notes = chosen({"age": values, "bmi": values}).notes  # one note per code, with every column
    assert len(notes) == 2 and all("in 'age'" in one and "in 'bmi'" in one for one in notes)
    assert [one.split(": ")[1][0] for one in notes] == ["3", "2"]


INNOCENT = {
    "once": [-999.0, *SMOOTH[1:]],
    "not far": [*np.linspace(800, 1200, N - 2), 999, 999],
    "large range": [*np.linspace(0, 8000, N - 2), 9999, 9999],
    "nothing else": [999] * N,
}


@pytest.mark.parametrize("values", INNOCENT.values(), ids=INNOCENT)
def test_ordinary_numbers_are_no_codes(values):
    notes = chosen({"v": values}).notes
    assert [one for one in notes if "the same number in every row" not in one] == []


@pytest.mark.parametrize("size", [1, 7, N])
def test_bounds_are_missing_and_counted(size):
    values = [f"{v}" for v in SMOOTH]
    values[3], values[8], values[9] = "<50", "≥ 1e3", "n/a"
    found = chosen({"crp": values}, size)
    assert found.names == ["x", "crp"] and found.levels == {}
    assert found.notes == [
        "entries of which only a bound is known, such as <50, are treated as missing: 2 in 'crp'.",
        "'n/a' is read as missing: 1 in 'crp'.",
    ]


def test_bounds_are_kept_in_the_units_of_the_model():
    frame = pl.DataFrame({"a": ["1", "<50", ">= 3", "."], "k": ["u", "v", None, "u"]})
    prep = Preparation(("k", "a"), {"k": ["u", "v"]}, dropped={"k": "u"})
    np.testing.assert_array_equal(prep.rows(frame)["a"], [1, np.nan, np.nan, np.nan])
    low, high = prep.bounds(frame)
    inf = np.inf
    np.testing.assert_array_equal(low, [[0, 1], [1, -inf], [-inf, 3], [0, -inf]])
    np.testing.assert_array_equal(high, [[0, 1], [1, 50], [inf, inf], [0, inf]])
    units = Preparation(prep.names, prep.levels, np.array([0.0, 2]), np.array([1.0, 4]))
    units = Preparation(**vars(units) | {"dropped": prep.dropped})
    assert units.bounds(frame).upper[1, 1] == 12


def in_script(number, zero):
    """Return a whole number in the digits of a script."""
    return "".join(chr(zero + int(digit)) for digit in str(number))


def test_letters_and_ordinary_numbers_are_no_digits_of_another_script():
    assert all(map(OTHER_DIGITS.fullmatch, ("٣", "-１２.５", "٣٫٥", "<٣", "1٣", "१,२३४")))
    assert not any(
        map(OTHER_DIGITS.fullmatch, ("12", "x1", "A1", "σ²", "1²", "½", "٣ kg", "", "-"))
    )


REFUSED = {
    "stray": ([*map(str, SMOOTH[1:]), "oops"], r"59 numbers and 1 other entry \(such as 'oops' in"),
    "advice": ([*map(str, SMOOTH[1:]), "oops"], "say --na oops"),
    "few values": (repeated("1", "2", "?x"), "40 numbers and 20 other entries"),
    "long": ([*map(str, SMOOTH[1:]), "y" * 99], f"such as '{'y' * 40}…' in row 60"),
    "percent": ([f"{v}%" for v in SMOOTH], "numbers with units"),
    "units": ([f"{v} mg" for v in SMOOTH], "numbers with units"),
    "thousands": ([f"1.{i:03d},5" for i in range(N)], "in another notation"),
    "Arabic digits": ([in_script(i, 0x660) for i in range(N)], "script: write them with 0 to 9"),
    "wide digits": ([f"{in_script(i, 0xFF10)}．５" for i in range(N)], "digits of another script"),
    "an Arabic digit": ([*map(str, SMOOTH[1:]), "٣"], "1 other entry in digits of another script"),
    "an Arabic bound": ([*map(str, SMOOTH[1:]), "<٣٫٥"], "1 other entry in digits of another"),
    "no letter to type": ([*map(str, SMOOTH[1:]), "\x1b["], r"say --na \$'\\U0000001b\['\.$"),
}


def test_names_in_words_are_short_and_can_be_typed():
    columns_ = {"a\u202eb": ["x", "1", "2"] * 20, "n" * 3000: ["y", "3", "4"] * 20}
    with pytest.raises(TableError) as error:
        chosen(columns_, N)
    words = str(error.value)
    assert words.isprintable() and len(words) < 1000
    assert r"--exclude $'a\U0000202eb' --exclude '" + "n" * 200 + "*'" in words


@pytest.mark.parametrize("size", [1, N])
@pytest.mark.parametrize("values, words", REFUSED.values(), ids=REFUSED)
def test_neither_numbers_nor_categories(values, words, size):
    with pytest.raises(TableError, match=words):
        chosen({"v": values}, size)
    found = chosen({"v": values}, size, numbers_only=True)
    assert found.names == ["x"] and "do not hold numbers: 'v'" in found.notes[0]


@pytest.mark.parametrize("size", [1, N])
def test_dates_that_do_not_tell_the_time_of_rows_are_left_out(size):
    born = {"born": [f"2024-01-{1 + i * 7 % 28:02d}" for i in range(N)]}
    found = chosen(born, size)
    assert found.names == ["x"] and found.time is None
    assert found.notes == ["left out because they hold dates or times: 'born'."]
    with pytest.raises(TableError, match="holds dates or times"):
        chosen(born, size, asked=True)


def test_rows_are_named_by_their_identifiers():
    data = {"id": [f"r{i}" for i in range(N)], "v": [*SMOOTH[:-1], np.inf]}
    with pytest.raises(TableError, match=r"'v' has an infinite value in id/59, .*--na inf"):
        chosen(data, 7, label=lambda row, identifier: f"{identifier}/{row}")
    with pytest.raises(TableError, match="'v' has an infinite value in row 60"):
        chosen({"v": [*map(str, SMOOTH[:-1]), "-inf"]})


def test_whether_all_differ_is_not_asked_of_endless_tables(monkeypatch):
    monkeypatch.setattr(profiles, "MOST_UNIQUE", N - 1)
    assert chosen({"id": np.arange(N) * 2}).names == ["x", "id"]
    assert chosen({"id": np.arange(N)}).names == ["x"]  # it counts the rows


def test_codes_are_missing_however_they_are_written():
    frame = pl.DataFrame({"a": [1, -999], "b": ["-999.0", " 2"], "c": ["unk", "v"], "d": [-999, 1]})
    found = columns.without(frame, ["-999", "unk"], keep=["d"])
    assert found.rows() == [(1, None, None, -999), (None, " 2", "v", 1)]
    prep = Preparation(("a", "b"), missing=("-999",))
    np.testing.assert_array_equal(prep.rows(frame), [[1, np.nan], [np.nan, 2]])
    assert columns.of_table(prep.table(), []) == prep
