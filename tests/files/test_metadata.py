"""Metadata beside a model: it comes back as it was, and only what JSON can hold goes in."""

import json

import numpy as np
import pytest

import dualpca as dp
from dualpca.errors import ModelFileError
from dualpca.files import metadata
from tests.files import mutations, saved_models

MODEL = dp.PPCA(2).fit(saved_models.X)
TABLE = {
    "columns": ["a", "kind", "σ² \u2028"],
    "levels": {"kind": ["", "x", "y", "1"]},
    "means": [0.1, 0.2, 0.3, 1e-300, -0.0, 5],
    "scales": [1, 2.0, 3.0, 1 / 3, 5e-324, 1.7e308],
    "image_shape": [2, 3],
    "identifier": "name",
}


def test_metadata_comes_back_as_it_was(tmp_path):
    given = {"table": TABLE, "note": ["kept", None, True, {"deep": {"deeper": [1, -(2**62), ""]}}]}
    dp.save(MODEL, tmp_path / "m.dpca", metadata=given)
    again, found = dp.load(tmp_path / "m.dpca", return_metadata=True)
    assert repr(found) == repr(given)
    assert np.array_equal(again.transform(saved_models.NEW), MODEL.transform(saved_models.NEW))


def test_a_level_without_a_feature_and_codes_come_back(tmp_path):
    levels = {"kind": ["", "x", "y", "1", "z"]}
    table = TABLE | {"levels": levels, "dropped": {"kind": "y"}, "missing": ["-999", "unknown"]}
    dp.save(MODEL, tmp_path / "m.dpca", metadata={"table": table})
    assert dp.load(tmp_path / "m.dpca", return_metadata=True)[1]["table"] == table


def test_a_file_without_metadata_has_none(tmp_path):
    MODEL.save(tmp_path / "m.dpca")
    assert dp.load(tmp_path / "m.dpca", return_metadata=True)[1] == {}
    MODEL.save(tmp_path / "n.dpca", metadata={})
    assert dp.load(tmp_path / "n.dpca", return_metadata=True)[1] == {}


@pytest.mark.slow
def test_wide_tables_keep_means_beside_the_header(tmp_path):
    X = np.random.default_rng(0).normal(size=(5, 100_000))
    means, scales = X.mean(axis=0), X.std(axis=0)
    table = {"means": means.tolist(), "scales": scales.tolist()}
    columns = [f"gene {j}" for j in range(100_000)]
    model = dp.PCA(2).fit((X - means) / scales)
    model.save(tmp_path / "m.dpca", metadata={"table": table | {"columns": columns}})
    _, found = dp.load(tmp_path / "m.dpca", return_metadata=True)
    assert found["table"] == table | {"columns": columns}
    header, _, _ = mutations.parts((tmp_path / "m.dpca").read_bytes())
    assert header["metadata.table.means"]["shape"] == [100_000]


def test_columns_of_any_kind_are_one_feature_each(tmp_path):
    """Levels of theirs are no indicators."""
    columns = [*"abcdef"]
    table = {"columns": columns, "levels": {"b": ["x", "y", "z"]}, "kinds": {"b": "nominal"}}
    dp.save(MODEL, tmp_path / "m.dpca", metadata={"table": table})
    assert dp.load(tmp_path / "m.dpca", return_metadata=True)[1]["table"] == table
    with pytest.raises(ModelFileError, match="6 features"):
        metadata.check({"table": table | {"columns": columns[:4]}}, 6)


def test_lists_may_be_as_deep_as_is_said(tmp_path):
    dp.save(MODEL, tmp_path / "m.dpca", metadata=nested(19))
    assert dp.load(tmp_path / "m.dpca", return_metadata=True)[1] == nested(19)
    with pytest.raises(ModelFileError, match="more than 20 deep"):
        metadata.check(nested(20))


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return {"a": found}


REFUSED = {
    "no dictionary": (["a"], "a dictionary"),
    "an array": ({"a": np.zeros(2)}, "tolist"),
    "a number of NumPy's": ({"a": np.float64(1)}, "tolist"),
    "a tuple": ({"a": (1, 2)}, "list"),
    "nan": ({"a": float("nan")}, "finite"),
    "inf deep": ({"a": [{"b": [float("inf")]}]}, "metadata.a.0.b.0"),
    "a long list with nan": ({"a": [1.0] * 100 + [float("nan")]}, "finite"),
    "a number as key": ({"a": {1: 2}}, "keys of metadata.a"),
    "bytes": ({"a": b"b"}, "text"),
    "an object": ({"a": MODEL}, "text"),
    "a huge number": ({"a": 10**5000}, "finite number"),
    "half a letter": ({"a": "\ud800"}, "text"),
    "depth": (nested(50), "more than 20 deep"),
    "length": ({"a": "b" * 9_000_000}, "characters"),
    "more than a header": ({"a": "b" * 5_000_000}, "less metadata"),
    "an unknown part": ({"table": {"colums": ["a"]}}, "columns"),
    "no table": ({"table": []}, "table"),
    "columns twice": ({"table": {"columns": [*"abcdee"]}}, "different names"),
    "too few columns": ({"table": {"columns": ["a"]}}, "6 features"),
    "too many levels": ({"table": TABLE | {"levels": {"kind": [*"abcde"]}}}, "6 features"),
    "levels of nothing": ({"table": TABLE | {"levels": {"b": [*"abcd"]}}}, "of the columns"),
    "a level too few": ({"table": TABLE | {"dropped": {"kind": "x"}}}, "6 features"),
    "a level of nothing": ({"table": TABLE | {"dropped": {"kind": "z"}}}, "of the levels"),
    "dropped of nothing": ({"table": TABLE | {"dropped": {"a": "x"}}}, "of the levels"),
    "codes twice": ({"table": TABLE | {"missing": ["-9", "-9"]}}, "different codes"),
    "levels twice": ({"table": {"levels": {"b": ["x", "x"]}}}, "different names"),
    "means": ({"table": {"means": [1.0]}}, "a list of 6"),
    "means of text": ({"table": {"means": [*"abcdef"]}}, "numbers"),
    "true as a mean": ({"table": {"means": [True] * 6}}, "numbers"),
    "scales": ({"table": {"scales": [1.0] * 7}}, "a list of 6"),
    "a scale of 0": ({"table": {"scales": [1.0] * 5 + [0.0]}}, "positive"),
    "a shape": ({"table": {"image_shape": [2, 2]}}, "6 numbers"),
    "a flat shape": ({"table": {"image_shape": [6]}}, "height"),
    "a negative shape": ({"table": {"image_shape": [-2, -3]}}, "height"),
    "an identifier": ({"table": {"identifier": 1}}, "a name"),
}


@pytest.mark.parametrize("given, words", REFUSED.values(), ids=REFUSED)
def test_other_metadata_is_refused_and_leaves_no_file(given, words, tmp_path):
    with pytest.raises(ModelFileError, match=words) as caught:
        dp.save(MODEL, tmp_path / "m.dpca", metadata=given)
    assert len(str(caught.value)) < 500
    assert list(tmp_path.iterdir()) == []


def test_only_models_of_the_library_are_saved(tmp_path):
    with pytest.raises(TypeError, match="an estimator of dualpca"):
        dp.save({"mean": 1}, tmp_path / "m.dpca")


FORGED = {
    "a list": [],
    "an array": {"dict": {"a": {"array": "mean_"}}},
    "nan": {"dict": {"a": {"float": "nan"}}},
    "a model": {"model": "PPCA", "params": {"dict": {}}, "state": {"dict": {}}},
    "a type": {"dict": {"a": {"type": "Moments", "fields": {}}}},
    "a tuple": {"dict": {"a": {"tuple": [1]}}},
    "names": {"dict": {"a": {"names": ["b"]}}},
    "a table": {"dict": {"table": {"dict": {"means": [1.0]}}}},
    "depth": json.loads('{"dict":{"a":' + "[" * 30 + "]" * 30 + "}}"),
    "null": None,
}


@pytest.mark.parametrize("tree", FORGED.values(), ids=FORGED)
def test_forged_metadata_is_refused(tree, tmp_path):
    MODEL.save(tmp_path / "m.dpca")
    header, text, body = mutations.parts((tmp_path / "m.dpca").read_bytes())
    forged = mutations.signed(header, text | {"metadata": tree}, body)
    (tmp_path / "m.dpca").write_bytes(forged)
    with pytest.raises(ModelFileError):
        dp.load(tmp_path / "m.dpca")


def test_a_table_may_be_checked_without_a_model():
    assert metadata.check({"table": TABLE}) == {"table": TABLE}


def test_two_views_may_have_any_number_of_columns(tmp_path):
    model = dp.CCA(1).fit(saved_models.X[:, :3], saved_models.Y)
    given = {"table": {"columns": [*"abcde"], "means": [0.0] * 5}}
    model.save(tmp_path / "m.dpca", metadata=given)
    assert dp.load(tmp_path / "m.dpca", return_metadata=True)[1] == given
