"""Batches to rows and back; running batches, judged at every point."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dualpca import PPCA, BatchUnfolder, FactorAnalysis, RobustPPCA


def batches_of(n, seed=0, lengths=(30, 50), d=3):
    """Return n batches of d smooth variables and noise; the first one increases."""
    rng = np.random.default_rng(seed)
    found = []
    for t in rng.integers(*lengths, n):
        s = np.linspace(0, 1, t)[:, None]
        own = rng.normal(size=(2, d))
        X = 5 + s * own[:1] + np.sin(3 * s) * own[1:] + 0.1 * rng.normal(size=(t, d))
        X[:, 0] = np.cumsum(rng.uniform(0.5, 1.5, t)) / t * 10
        found.append(X)
    return found


def test_equal_batches_at_their_own_rows_are_only_reshaped():
    X = np.random.default_rng(0).normal(size=(6, 9, 2))
    unfolder = BatchUnfolder(n_points=9).fit(X)
    np.testing.assert_array_equal(unfolder.transform(X), X.reshape(6, 18))
    np.testing.assert_array_equal(unfolder.transform(list(X)), X.reshape(6, 18))
    assert unfolder.length_ == 9 and list(unfolder.grid_) == list(range(9))


@pytest.mark.parametrize("align_to", [None, 0])
@pytest.mark.parametrize("by", ["batch", "variable"])
def test_aligning_what_is_aligned_changes_nothing(by, align_to):
    batches = batches_of(8)
    once = BatchUnfolder(by, align_to=align_to, n_points=25).fit(batches)
    rows = once.transform(batches)
    aligned = once.inverse_transform(rows)
    assert aligned.shape == (8, 25, 3)
    again = BatchUnfolder(by, align_to=align_to, n_points=25).fit(aligned)
    np.testing.assert_allclose(again.transform(aligned), rows, rtol=0, atol=1e-12)
    np.testing.assert_allclose(once.transform(aligned), rows, rtol=0, atol=1e-12)
    np.testing.assert_allclose(again.inverse_transform(rows), aligned, rtol=0, atol=1e-12)


@pytest.mark.parametrize("align_to", [None, -3])
def test_the_order_of_batches_is_that_of_rows(align_to):
    batches, order = batches_of(7), np.array([3, 0, 6, 1, 5, 2, 4])
    unfolder = BatchUnfolder(align_to=align_to, n_points=12).fit(batches)
    shuffled = [batches[i] for i in order]
    np.testing.assert_array_equal(unfolder.transform(shuffled), unfolder.transform(batches)[order])
    np.testing.assert_array_equal(
        clone(unfolder).fit(shuffled).transform(shuffled), unfolder.transform(shuffled)
    )


@pytest.mark.parametrize("align_to", [None, 0])
def test_a_running_batch_is_its_first_points_and_missing_ones(align_to):
    batches = batches_of(10)
    unfolder = BatchUnfolder(align_to=align_to, n_points=20).fit(batches)
    whole, width = batches[0], 3 - (align_to is not None)
    row = unfolder.transform([whole])[0].reshape(20, width)
    for cut in (5, 13, len(whole) - 1):
        known = {} if align_to is not None else {"lengths": len(whole)}
        part = unfolder.transform([whole[:cut]], **known)[0].reshape(20, width)
        k = int((~np.isnan(part).any(axis=1)).sum())
        assert 0 < k <= 20 and np.isnan(part[k:]).all()
        np.testing.assert_allclose(part[:k], row[:k], rtol=0, atol=1e-12)
        place = whole[:cut, 0] if align_to is not None else np.arange(cut) / (len(whole) - 1)
        assert k == int((unfolder.grid_ <= place[-1] + 1e-9).sum())


def test_batches_of_one_length_run_until_they_have_it():
    X = np.random.default_rng(0).normal(size=(5, 11, 2))
    unfolder = BatchUnfolder(n_points=11).fit(X)
    row = unfolder.transform([X[0][:4]])[0]
    np.testing.assert_array_equal(row[:8], X[0][:4].ravel())
    assert np.isnan(row[8:]).all()
    with pytest.raises(ValueError, match=r"batch 0 must be at most 11 rows, got 12.*`lengths`"):
        unfolder.transform([np.zeros((12, 2))])
    slow = unfolder.transform([np.repeat(X[0], 2, axis=0)], lengths=22)  # twice as many rows
    np.testing.assert_allclose(slow[0, [0, 1, -2, -1]], X[0][[0, 0, -1, -1], [0, 1, 0, 1]])


def test_rows_by_variable_are_around_the_mean_trajectory():
    batches = batches_of(9)
    unfolder = BatchUnfolder("variable", n_points=15).fit(batches)
    rows = unfolder.transform(batches)
    assert rows.shape == (9 * 15, 3)
    np.testing.assert_allclose(rows.reshape(9, 15, 3).mean(axis=0), 0, atol=1e-12)
    wide = BatchUnfolder("batch", n_points=15).fit_transform(batches).reshape(9, 15, 3)
    np.testing.assert_allclose(rows.reshape(9, 15, 3), wide - wide.mean(axis=0), atol=1e-12)
    assert list(unfolder.get_feature_names_out()) == ["x0", "x1", "x2"]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_frames_come_back_as_frames_with_names(library):
    names = ["volume", "temperature", "pH"]
    batches = [library(dict(zip(names, X.T, strict=True))) for X in batches_of(6)]
    unfolder = BatchUnfolder(align_to="volume", n_points=4).fit(batches)
    rows = unfolder.transform(batches)
    assert isinstance(rows, library)
    assert list(rows.columns)[:3] == ["temperature@0", "pH@0", "temperature@1"]
    assert list(rows.columns) == list(unfolder.get_feature_names_out())
    plain = BatchUnfolder(align_to=0, n_points=4).fit(batches_of(6))
    np.testing.assert_array_equal(rows.to_numpy(), plain.transform(batches_of(6)))
    with pytest.raises(ValueError, match="feature names should match"):
        unfolder.transform(
            [
                b.rename(dict.fromkeys(["pH"], "ph"))
                if library is pl.DataFrame
                else b.rename(columns={"pH": "ph"})
                for b in batches
            ]
        )


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_a_long_table_is_its_batches(library):
    batches = batches_of(5)
    table = np.concatenate(batches)
    ids = np.repeat(["e", "d", "c", "b", "a"], [len(b) for b in batches])
    wanted = BatchUnfolder(n_points=6).fit_transform(batches)
    unfolder = BatchUnfolder(n_points=6)
    found = unfolder.fit(table, groups=ids).transform(table, groups=ids)
    np.testing.assert_array_equal(found, wanted)
    frame = library({"a": table[:, 0], "run": ids, "b": table[:, 1], "c": table[:, 2]})
    rows = BatchUnfolder(n_points=6, batch="run").fit(frame).transform(frame)
    np.testing.assert_array_equal(rows.to_numpy(), wanted)
    assert list(rows.columns)[:3] == ["a@0", "b@0", "c@0"]
    if library is pd.DataFrame:
        assert list(rows.index) == ["e", "d", "c", "b", "a"]


def test_set_output_names_the_columns_of_arrays():
    X = np.random.default_rng(0).normal(size=(5, 4, 2))
    unfolder = BatchUnfolder(n_points=4).set_output(transform="pandas").fit(X)
    assert list(unfolder.transform(X).columns) == list(unfolder.get_feature_names_out())
    table, ids = X.reshape(20, 2), np.repeat(range(5), 4)
    long = pd.DataFrame({"a": table[:, 0], "b": table[:, 1], "run": ids})
    rows = BatchUnfolder(n_points=4, batch="run").set_output(transform="pandas").fit_transform(long)
    assert rows.shape == (5, 8)


def test_the_span_of_an_indicator_can_be_given():
    batches = batches_of(6)
    common = BatchUnfolder(align_to=0, n_points=5).fit(batches)
    assert common.grid_[0] == max(b[0, 0] for b in batches)
    assert common.grid_[-1] == min(b[-1, 0] for b in batches)
    assert not np.isnan(common.transform(batches)).any()
    wide = BatchUnfolder(align_to=0, n_points=5, span=(0, 20)).fit(batches)
    np.testing.assert_array_equal(wide.grid_, [0, 5, 10, 15, 20])
    assert np.isnan(wide.transform(batches)).any()


def test_inputs_stay_as_they_are():
    batches = batches_of(5)
    copies = [b.copy() for b in batches]
    unfolder = BatchUnfolder("variable", align_to=0, n_points=7).fit(batches)
    unfolder.inverse_transform(unfolder.transform(batches))
    unfolder.so_far(batches[0])
    assert all(np.array_equal(a, b) for a, b in zip(batches, copies, strict=True))


@pytest.mark.parametrize("model", [PPCA(2), RobustPPCA(2), FactorAnalysis(1)])
def test_a_pipeline_judges_running_batches(model):
    X = batches_of(60, lengths=(20, 21))
    pipe = make_pipeline(BatchUnfolder(align_to=0, n_points=8), model).fit(X)
    assert pipe.transform(X).shape[0] == 60
    assert pipe.transform([X[0][:10]]).shape[0] == 1
    unfolder, fitted = pipe[0], pipe[-1]
    found = unfolder.outliers_so_far(fitted, X[0][:12], 0.99)
    rows = unfolder.so_far(X[0][:12])
    assert len(found.t2) == len(rows) < 8 and found.level == 0.99
    for k, row in enumerate(rows):
        one = fitted.outliers(row[None, :], 0.99)
        for name in ("t2", "spe", "t2_limit", "spe_limit"):
            np.testing.assert_allclose(getattr(found, name)[k], getattr(one, name)[0], rtol=1e-8)


def test_a_fault_is_seen_when_it_comes():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 1, 4)) + 0.3 * rng.normal(size=(80, 20, 4))
    unfolder = BatchUnfolder(n_points=20).fit(X)
    model = PPCA(4).fit(unfolder.transform(X))
    running = 0.3 * rng.normal(size=(16, 4))
    running[10:, 2] += 4
    flagged = unfolder.outliers_so_far(model, running, 0.9999).flagged
    assert not flagged[:10].any() and flagged[10:].all()


def test_a_pickle_answers_the_same():
    batches = batches_of(5)
    unfolder = BatchUnfolder(align_to=0, n_points=7).fit(batches)
    again = pickle.loads(pickle.dumps(unfolder))
    np.testing.assert_array_equal(again.transform(batches), unfolder.transform(batches))


X = np.arange(12.0).reshape(2, 3, 2)
LONG = pd.DataFrame({"run": [0, 0, 1, 1], "a": [0.0, 1, 2, 3]})


@pytest.mark.parametrize(
    "make, given, message",
    [
        ({"by": "time"}, X, "by must be one of"),
        ({"n_points": 1}, X, "n_points"),
        ({"span": (0, 1)}, X, "span must be None where batches are aligned by time"),
        ({"align_to": 0, "span": (1, 0)}, X, "span must be .*start < end"),
        ({"align_to": 5}, X, "align_to must be a column number below 2"),
        ({"align_to": "volume"}, X, "align_to must be a column of the batches"),
        ({"align_to": 0}, -X, "must increase from row to row of batch 0"),
        ({"align_to": 0}, [X[0], X[0] + 50], "a range that all batches have.*batch 0.*batch 1"),
        ({"align_to": 0}, X[:, :, :1], "a column besides the indicator"),
        ({}, [X[0], X[0][:, :1]], "batch 1 must be the columns of batch 0"),
        ({}, [X[0], X[0] + np.inf], "batch 1 must be finite numbers, or NaN"),
        ({"batch": "run"}, X[0], "a pandas or polars frame with the column 'run'"),
        ({"batch": "who"}, LONG, "a pandas or polars frame with the column 'who'"),
        ({}, [X[0], np.array([["a", "b"]])], "every column must be numeric"),
    ],
)
def test_what_cannot_be_unfolded_is_refused_in_words(make, given, message):
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=message):
        BatchUnfolder(**make).fit(given)


def test_what_does_not_go_together_is_refused_in_words():
    with pytest.raises(ValueError, match="groups must be None for a list of batches"):
        BatchUnfolder().fit(X, groups=[0, 1])
    with pytest.raises(ValueError, match="groups must be one name for each of 4 rows"):
        BatchUnfolder().fit(LONG[["a"]], groups=[0, 1])
    with pytest.raises(ValueError, match="groups must be None where batch= names a column"):
        BatchUnfolder(batch="run").fit(LONG, groups=[0, 0, 1, 1])
    unfolder = BatchUnfolder(n_points=3).fit(X)
    with pytest.raises(ValueError, match="X must be 6 columns"):
        unfolder.inverse_transform(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="a number for each of 2 batches"):
        unfolder.transform(X, lengths=[1, 2, 3])
    by_variable = BatchUnfolder("variable", n_points=3).fit(X)
    with pytest.raises(ValueError, match="X must be 3 rows per batch"):
        by_variable.inverse_transform(np.zeros((4, 2)))
    with pytest.raises(ValueError, match="by must be 'batch'"):
        by_variable.outliers_so_far(PPCA(1), X[0])
    aligned = BatchUnfolder(align_to=0, n_points=3).fit([X[0], X[0]])
    with pytest.raises(ValueError, match="lengths must be None where an indicator aligns"):
        aligned.transform([X[0]], lengths=3)
