"""Columns of any kind: what is guessed, what is asked for, there and back."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dualpca import Censored
from dualpca.data.kinds import (
    TableKinds,
    cells_of,
    column_cells,
    column_of,
    ends_of,
    guess,
    opened_table,
    replaced,
    shifted,
)
from dualpca.errors import EmptyColumnError, NonFiniteError

GRADES = ["low", "middle", "high"]


def mixed_frame():
    """One column of every dtype that pandas has for numbers, levels and text, each with gaps."""
    return pd.DataFrame(
        {
            "float": [1.5, np.nan, 2.5, 3.25, 4.5],
            "single": np.array([0.5, 1.5, np.nan, 0.1, 2.5], dtype=np.float32),
            "whole": [3, 1, 4, 1, 5],
            "nullable": pd.array([1, None, 3, 4, 11], dtype="Int64"),
            "byte": pd.array([1, None, 3, 200, 11], dtype="UInt8"),
            "yes": [True, False, True, True, False],
            "perhaps": pd.array([True, None, False, True, True], dtype="boolean"),
            "object": [True, None, False, True, True],
            "colour": pd.Categorical(["red", None, "blue", "green", "red"]),
            "grade": pd.Categorical(["low", "high", None, "middle", "low"], GRADES, ordered=True),
            "text": ["a", "b", None, "c", "a"],
            "limit": ["12", "<5", None, ">100", "7.5"],
            "arrow": pd.array([1.5, None, 2.5, 0.25, 9.0], dtype="float64[pyarrow]"),
            "years": pd.Categorical([1990, 1991, None, 1990, 1992]),
        },
        index=list("pqrst"),
    )


KINDS = {
    "float": "continuous",
    "single": "continuous",
    "whole": "ordinal",
    "nullable": "ordinal",
    "byte": "ordinal",
    "yes": "binary",
    "perhaps": "binary",
    "object": "binary",
    "colour": "nominal",
    "grade": "ordinal",
    "text": "nominal",
    "limit": "censored",
    "arrow": "continuous",
    "years": "nominal",
}


def kinds_of(X, asked=None):
    return TableKinds.read(X, asked)[0]


def filled(entries):
    """Put the first known number of every column where one is missing."""
    low, high = entries.low.copy(), entries.high.copy()
    for j in range(low.shape[1]):
        gone = np.isnan(low[:, j])
        first = np.flatnonzero(~gone)[0]
        low[gone, j], high[gone, j] = low[first, j], high[first, j]
    return type(entries)(low, high)


def test_pandas_dtypes_are_guessed():
    kinds = kinds_of(mixed_frame())
    found = {n: c.kind for n, c in zip(mixed_frame(), kinds.columns, strict=True)}
    assert found == KINDS


def test_pandas_frames_come_back_as_they_came():
    X = mixed_frame()
    before = X.copy(deep=True)
    kinds = kinds_of(X)
    done = kinds.completed(X, filled(kinds.entries(X)))
    pd.testing.assert_frame_equal(X, before)
    assert list(done.dtypes) == list(X.dtypes) and list(done.index) == list(X.index)
    assert not done.isna().any().any()
    for name in X:
        seen = X[name].notna()
        assert (done[name][seen] == X[name][seen]).all()
        first = X[name][seen].iloc[0]
        assert (done[name][~seen] == first).all()


def test_polars_frames_come_back_as_they_came():
    X = pl.DataFrame(
        {
            "float": [1.5, None, 2.5, 3.25, float("nan")],
            "whole": [3, 1, None, 1, 5],
            "small": pl.Series([3, 1, None, 1, 5], dtype=pl.UInt8),
            "single": pl.Series([0.1, 1, None, 1.5, 5], dtype=pl.Float32),
            "yes": [True, None, True, True, False],
            "colour": pl.Series(["red", None, "blue", "green", "red"], dtype=pl.Categorical),
            "grade": pl.Series(["low", "high", None, "middle", "low"], dtype=pl.Enum(GRADES)),
            "text": ["a", "b", None, "c", "a"],
            "limit": ["12", "<5", None, ">100", "7.5"],
        }
    )
    kinds = kinds_of(X)
    words = ["continuous", "ordinal", "ordinal", "continuous", "binary"]
    assert [c.kind for c in kinds.columns] == [*words, "nominal", "ordinal", "nominal", "censored"]
    done = kinds.completed(X, filled(kinds.entries(X)))
    assert done.schema == X.schema
    assert done.null_count().sum_horizontal().item() == 0
    assert done["colour"].to_list() == ["red", "red", "blue", "green", "red"]
    assert done["grade"].to_list() == ["low", "high", "low", "middle", "low"]
    assert done["limit"].to_list() == ["12", "<5", "12", ">100", "7.5"]
    assert done["float"].to_list() == [1.5, 1.5, 2.5, 3.25, 1.5]
    assert done["single"][2] == X["single"][0]
    new = kinds.built(filled(kinds.entries(X)), X.columns)
    for name in ("colour", "grade", "text", "limit"):
        assert new.schema[name] == X.schema[name] and new[name].to_list() == done[name].to_list()


def test_ordered_levels_keep_their_order():
    frames = [
        pd.DataFrame({"g": pd.Categorical(["low", "high", "middle"], GRADES, ordered=True)}),
        pl.DataFrame({"g": pl.Series(["low", "high", "middle"], dtype=pl.Enum(GRADES))}),
        opened_table([["low"], ["high"], ["middle"]]),
    ]
    for X, asked in zip(frames, [None, None, [GRADES]], strict=True):
        assert kinds_of(X, asked).entries(X).low[:, 0].tolist() == [0, 2, 1]


def test_arrays_of_numbers_and_of_objects():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.normal(size=50), rng.integers(0, 2, 50), rng.integers(1, 6, 50), rng.poisson(30, 50)]
    )
    assert [c.kind for c in kinds_of(X).columns] == [
        "continuous",
        "binary",
        "ordinal",
        "count",
    ]
    entries = kinds_of(X).entries(X)
    assert entries.high is entries.low and np.array_equal(
        entries.low[:, [0, 2, 3]], X[:, [0, 2, 3]]
    )
    X = np.array([[1.5, "x", None], [None, "y", True], [2.5, "z", False]], dtype=object)
    kinds = kinds_of(X, {0: "continuous"})
    assert [c.kind for c in kinds.columns] == ["continuous", "nominal", "binary"]
    done = kinds.completed(X, filled(kinds.entries(X)))
    assert done.tolist() == [[1.5, "x", True], [1.5, "y", True], [2.5, "z", False]]


def test_negative_whole_numbers_are_continuous_and_counts_must_be_counts():
    X = np.arange(-10.0, 10.0)[:, None]
    assert kinds_of(X).columns[0].kind == "continuous"
    with pytest.raises(ValueError, match="column 0 must be of whole numbers, none negative"):
        kinds_of(X, {0: "count"})


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("12", 12, 12), ("<=5", -np.inf, 5), ("≥ 3", 3, np.inf), ("1e3", 1000, 1000)],
)
def test_text_of_numbers(text, low, high):
    assert ends_of(text) == (low, high)


def test_bounds_are_beyond_the_value_itself():
    low, high = ends_of("<5")
    assert high < 5 and high == np.nextafter(5, -np.inf) and low == -np.inf
    assert ends_of(">5")[0] > 5


def test_censored_columns():
    X = np.array([[0.0], [50.0], [51.0], [np.nan], [200.0]])
    entries = kinds_of(X, {0: Censored(below=50, above=200)}).entries(X)
    assert np.array_equal(entries.low[:, 0], [-np.inf, -np.inf, 51, np.nan, 200], equal_nan=True)
    assert np.array_equal(entries.high[:, 0], [50, 50, 51, np.nan, np.inf], equal_nan=True)
    with pytest.raises(ValueError, match="with a limit to be censored"):
        kinds_of(X, {0: "censored"})
    with pytest.raises(ValueError, match="below < above"):
        Censored(below=5, above=1)
    mixed = opened_table([["<5"], [7.5], [9], [None]])
    assert kinds_of(mixed).columns[0].kind == "censored"


def test_text_of_plain_numbers_is_levels_unless_asked_for():
    X = opened_table([["1"], ["2"], ["3"], ["1"]])
    assert guess(cells_of(X, 0)) == "nominal"
    kinds = kinds_of(X, ["count"])
    assert kinds.entries(X).low[:, 0].tolist() == [1, 2, 3, 1]


# --- What is refused, and how --------------------------------------------------------------------


def test_a_column_without_values_is_named():
    with pytest.raises(EmptyColumnError, match="'b'"):
        kinds_of(pd.DataFrame({"a": [1.0, 2.0], "b": [None, None]}))
    with pytest.raises(EmptyColumnError, match="column 0"):
        kinds_of(np.full((3, 1), np.nan))


def test_unseen_levels_are_refused_by_column_level_and_row():
    X = pd.DataFrame({"colour": ["red", "blue", "green"]})
    kinds = kinds_of(X)
    new = pd.DataFrame({"colour": ["red", "pink"]}, index=["u17", "u18"])
    with pytest.raises(ValueError, match=r"column 'colour' has the level 'pink' in row 'u18'"):
        kinds.entries(new)
    with pytest.raises(ValueError, match=r"level 2\.0 in row 1"):
        kinds_of(np.array([[0.0], [1.0]])).entries(np.array([[0.0], [2.0]]))


def test_identifiers_are_refused_unless_asked_for():
    X = pd.DataFrame({"name": [f"person {i}" for i in range(40)]})
    with pytest.raises(ValueError, match=r"'name' has 40 different values in 40 entries"):
        kinds_of(X)
    assert kinds_of(X, {"name": "nominal"}).columns[0].kind == "nominal"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"b": "count"}, "for columns of X"),
        (["count", "count"], "one kind for each of the 1 columns"),
        ("count", "None, a dict from columns to kinds"),
        ({"a": "grades"}, r"one of \['continuous'"),
        ({"a": "ordinal"}, "text has no order"),
        ({"a": "binary"}, "of two values"),
        ({"a": "continuous"}, "numbers, as it is to be continuous, got 'x'"),
        ({"a": ["x", "y"]}, "all levels of column 'a'"),
    ],
)
def test_kinds_that_cannot_be(asked, message):
    with pytest.raises(ValueError, match=message):
        kinds_of(pd.DataFrame({"a": ["x", "y", "z"]}), asked)


def test_entries_of_other_types_are_refused():
    with pytest.raises(TypeError, match="column 0: argument must be a string, a real number"):
        kinds_of(np.array([[{}], [1]], dtype=object))
    with pytest.raises(TypeError, match="numbers stand beside text such as 'many'"):
        kinds_of(np.array([["many"], [1]], dtype=object))
    with pytest.raises(TypeError, match=r"column 'd': .*dates"):
        kinds_of(pd.DataFrame({"d": pd.to_datetime(["2020-01-01", "2020-01-02"])}))
    with pytest.raises(NonFiniteError, match="infinity, first in row 1, column 0"):
        X = np.array([[1.5], [np.inf], [2.5]])
        kinds_of(X).entries(X)


def test_columns_of_another_type_than_in_fit():
    kinds = kinds_of(pd.DataFrame({"a": [1.5, 2.5, 3.5]}))
    with pytest.raises(ValueError, match="column 'a', row 0, must be a number, as in fit, got 'x'"):
        kinds.entries(pd.DataFrame({"a": ["x", "y"]}))
    # a category of text, or text: the same levels
    kinds = kinds_of(pd.DataFrame({"a": ["x", "y", "z"]}))
    new = pd.DataFrame({"a": pd.Categorical(["z", "x"])})
    assert kinds.entries(new).low[:, 0].tolist() == [2, 0]
    assert kinds.entries(pl.DataFrame({"a": ["y", "x"]})).low[:, 0].tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["array", "pandas", "polars"])
def test_a_column_is_shifted_and_replaced_in_a_copy(kind):
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    frames = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "array": np.array}
    X = frames[kind](rows) if kind != "polars" else pl.DataFrame(rows, schema=["a", "b"])
    found = replaced(X, 1, shifted(column_of(X, 1), np.array([0.0, 0.5])))
    assert type(found) is type(X)
    np.testing.assert_array_equal(np.asarray(found), [[1, 2], [3, 4.5]])
    np.testing.assert_array_equal(np.asarray(X), rows)
    np.testing.assert_array_equal(np.asarray(replaced(X, 0, [7, 8])), [[7, 2], [8, 4]])
    if kind != "array":
        wider = replaced(X, "c", [5, 6])
        assert list(wider.columns)[2] == "c" and X.shape == (2, 2)


def test_whole_columns_stay_whole_under_whole_shifts():
    for X in (pd.DataFrame({"a": [1, 2]}), pl.DataFrame({"a": [1, 2]})):
        assert "nt64" in str(shifted(column_of(X, 0), np.array([0, 3])).dtype)
        assert "loat64" in str(shifted(column_of(X, 0), np.array([0.0, 0.5])).dtype)


NAN = float("nan")
COLUMNS = {
    "numbers": ([1.5, 2.0, 0.25], [1.5, 2.0, 0.25]),
    "whole numbers": ([3, 1, 2], [3, 1, 2]),
    "flags": ([True, False, True], [True, False, True]),
    "numbers, None": ([1.5, None, 0.25], [1.5, None, 0.25]),
    "numbers, NaN": ([1.5, NAN, 0.25], [1.5, None, 0.25]),
    "flags, None": ([True, None, False], [True, None, False]),
    "text": (["b", "a", "b"], ["b", "a", "b"]),
    "text, None": (["b", None, "a"], ["b", None, "a"]),
    "text, NaN": (["b", NAN, "a"], ["b", None, "a"]),
    "nothing": ([None, None], [None, None]),
    "bounds beside numbers": (["<5", 7, 8.5], ["<5", "7", "8.5"]),
    "bounds beside NaN": (["<5", NAN, 8.5], ["<5", None, "8.5"]),
}


def held(values):
    """Yield a column in all that may hold it."""
    yield list(values)
    yield np.array(values, dtype=object)
    yield pd.Series(values, dtype=object)
    if len({type(value) for value in values}) == 1:
        yield np.array(values)
        yield pd.Series(values)
    if len({type(value) for value in values} - {type(None)}) == 1 and NAN not in values:
        yield pl.Series(values)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_the_same_cells_whatever_holds_it(name):
    values, expected = COLUMNS[name]
    for column in held(values):
        found = column_cells(column)
        cells = (
            found.numbers if found.numbers is not None else [found.levels[c] for c in found.codes]
        )
        shown = [None if gone else value for gone, value in zip(found.missing, cells, strict=True)]
        assert shown == expected, type(column)
        assert found.whole == (name == "whole numbers")
        assert (found.sort == "boolean") == name.startswith("flags")


@pytest.mark.parametrize("values", [["x", 1.0], ["x", True], [2, "x", None]])
def test_numbers_beside_text_are_refused_whatever_holds_them(values):
    for column in held(values):
        with pytest.raises(TypeError, match="numbers stand beside text such as"):
            column_cells(column)
