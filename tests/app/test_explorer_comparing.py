"""What the explorer says of a row, of a selection and of a search, by slow and plain references."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from scipy import stats

import dualpca as dp
from dualpca.app.explorer.comparing import (
    difference,
    expected_row,
    search,
    share_gap,
    standardized_gap,
)
from dualpca.app.explorer.session import open_session
from dualpca.app.tables.text import TableError
from dualpca.app.tables.times import find_time
from tests.app.explorer_cases import NAMES, Client, fitted, iris, session_of


def holes():
    """The irises with gaps."""
    rng = np.random.default_rng(0)
    gone = [pl.Series(rng.random(150) < 0.15) for _ in NAMES]
    return iris().with_columns(
        [iris()[name].set(where, None) for name, where in zip(NAMES, gone, strict=True)]
    )


def test_every_entry_is_expected_from_the_others_alone():
    frame = holes()
    model = dp.PPCA(2).fit(frame.select(NAMES))
    session = open_session(model, frame, id_column="who")
    X = frame.select(NAMES).to_numpy()
    mean, C = np.asarray(model.mean_), np.asarray(model.get_covariance())
    for row in (3, 60, 149):
        found = expected_row(session, row)
        order = {j: k for k, j in enumerate(found["features"])}
        for j in range(4):
            seen = [k for k in range(4) if k != j and np.isfinite(X[row, k])]
            gain = C[j, seen] @ np.linalg.inv(C[np.ix_(seen, seen)]) if seen else np.zeros(0)
            wanted = mean[j] + gain @ (X[row, seen] - mean[seen])
            std = np.sqrt(C[j, j] - gain @ C[seen, j])
            k = order[j]
            assert found["expected"][k] == pytest.approx(wanted)
            assert found["std"][k] == pytest.approx(std)
            if np.isfinite(X[row, j]):
                assert found["unusual"][k] == pytest.approx(abs(X[row, j] - wanted) / std)
        known = found["unusual"][np.isfinite(found["unusual"])]
        assert (np.diff(known) <= 0).all() and not found["itself"]
        assert found["id"] == f"iris-{row}"


def test_units_of_the_table_are_kept():
    frame = iris()
    X = frame.select(NAMES)
    mean, scale = X.to_numpy().mean(axis=0), X.to_numpy().std(axis=0)
    scaled = pl.DataFrame((X.to_numpy() - mean) / scale, schema=NAMES, orient="row")
    table = {"columns": NAMES, "means": mean.tolist(), "scales": scale.tolist()}
    outside = open_session(dp.PPCA(2).fit(scaled), frame, {"table": table})
    inside = open_session(dp.PPCA(2, standardize=True).fit(X), frame)
    a, b = (expected_row(session, 17) for session in (outside, inside))
    assert a["features"] == b["features"]
    for name in ("measured", "expected", "std", "unusual"):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-6)


def test_a_model_that_cannot_fill_is_asked_for_its_reconstruction():
    model = fitted(dp.KernelPCA(2, kernel="rbf", gamma="median"))
    unable = session_of(model)
    unable.lens.reasons["error"] = "It does not reconstruct rows."
    with pytest.raises(TableError, match="does not reconstruct"):
        expected_row(unable, 0)
    found = expected_row(session_of(model), 5)
    assert found["itself"] and np.isnan(found["std"]).all()
    assert (np.diff(found["unusual"]) <= 0).all()


def test_levels_are_as_unusual_as_their_probability():
    frame = iris().drop("who")
    model = dp.CopulaPPCA(2).fit(frame)
    session = open_session(model, frame)
    found = expected_row(session, 110)
    at = found["features"].index(4)
    chance = model.predict_proba(frame[110:111], "species")[0, 2]
    assert found["chance"][at] == pytest.approx(chance)
    assert found["unusual"][at] == pytest.approx(-stats.norm.ppf(chance / 2))
    numbers = [k for k, j in enumerate(found["features"]) if j < 4]
    assert np.isfinite(found["std"][numbers]).all() and np.isnan(found["chance"][numbers]).all()


# --- selections ------------------------------------------------------------------------------


def test_a_selection_differs_by_its_means_and_shares():
    session = session_of()
    found = difference(session, range(50))
    X = iris().select(NAMES).to_numpy()
    a, b = X[:50], X[50:]
    spread = np.sqrt((49 * a.var(axis=0, ddof=1) + 99 * b.var(axis=0, ddof=1)) / 148)
    gaps = (a.mean(axis=0) - b.mean(axis=0)) / spread
    order = np.argsort(-np.abs(gaps))
    assert found["columns"] == [NAMES[j] for j in order]
    np.testing.assert_allclose(found["gap"], gaps[order])
    assert found["compared"] == 7
    for k, j in enumerate(order):
        test = stats.ttest_ind(a[:, j], b[:, j], equal_var=False)
        low, high = test.confidence_interval(1 - 0.05 / 7)
        assert found["low"][k] == pytest.approx(low / spread[j])
        assert found["high"][k] == pytest.approx(high / spread[j])
    assert found["levels"][0] == "species = setosa"
    assert (found["share"][0], found["share_rest"][0]) == (1.0, 0.0)
    with pytest.raises(TableError, match="no rest"):
        difference(session, range(150))


def test_intervals_hold_together():
    rng = np.random.default_rng(1)
    columns, missed = 10, 0
    for _ in range(400):
        a, b = rng.normal(size=(12, columns)), rng.normal(size=(30, columns)) * 2
        found = [standardized_gap(a[:, j], b[:, j], 0.05 / columns) for j in range(columns)]
        missed += any(not one[1] <= 0 <= one[2] for one in found)
    assert missed / 400 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_a_row_alone_is_compared_by_the_spread_of_the_others():
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(600):
        x = rng.normal(size=9)
        _, low, high, *_ = standardized_gap(x[:1], x[1:], 0.1)
        inside += low <= 0 <= high
    assert abs(inside / 600 - 0.9) < 3 * np.sqrt(0.09 / 600)
    assert standardized_gap(np.array([1.0]), np.array([2.0]), 0.05)[1:3] == (None, None)
    assert np.isnan(standardized_gap(np.array([np.nan]), np.ones(3), 0.05)[0])
    assert standardized_gap(np.ones(3), np.ones(4), 0.05)[:3] == (0.0, None, None)


def test_shares_stay_within_what_is_possible():
    for a, b in ((np.ones(5), np.zeros(7)), (np.zeros(1), np.zeros(1)), (np.ones(1), np.ones(90))):
        p, q, low, high = share_gap(a, b, 0.01)
        assert -1 <= low <= p - q <= high <= 1


# --- searches --------------------------------------------------------------------------------


def test_rows_are_found_by_name_number_and_level():
    session = session_of()
    assert search(session, "iris-7")["rows"][:2] == [7, 70]
    assert search(session, "IRIS-149")["rows"] == [149]
    found = search(session, "row 12")
    assert found["rows"][0] == 11 and found["where"][0] == "row 12"
    found = search(session, "virgin")
    assert found["rows"] == list(range(100, 120)) and found["more"]
    assert found["where"][0] == "species: virginica"
    assert search(session, "nobody") == {"rows": [], "ids": [], "where": [], "more": False}
    assert search(session, "(")["rows"] == []  # not a pattern


# --- time ------------------------------------------------------------------------------------


def timed():
    moments = [datetime(2024, 3, 1) + timedelta(minutes=i) for i in range(150)]
    return iris().with_columns(pl.Series("when", [f"{one:%Y-%m-%d %H:%M}" for one in moments]))


def test_times_are_sent_to_the_second():
    frame = timed()
    time = find_time(frame)
    session = open_session(fitted(dp.PPCA(2)), frame, id_column="who", time=time)
    client = Client(session, rate=1e6, burst=10**6)
    described = client.get("/api/model").json()
    assert described["time"] == {"name": "when", "kind": "datetime"}
    kinds = {one["name"]: one["kind"] for one in described["columns"]}
    assert kinds["when"] == "time"
    times = np.frombuffer(client.get("/api/times").content, "<f8")
    np.testing.assert_array_equal(times, 1709251200 + 60 * np.arange(150))
    k = [one["name"] for one in described["columns"]].index("when")
    colours = np.frombuffer(client.get(f"/api/colours/{k}").content, "<f4")
    np.testing.assert_array_equal(colours, 60 * np.arange(150))
    assert "when" not in difference(session, [0, 1])["columns"]


def test_without_a_time_there_are_no_times():
    client = Client(session_of(), rate=1e6, burst=10**6)
    assert client.get("/api/times").status_code == 404


def test_limits_of_rows_with_gaps_are_multiples_of_their_own():
    frame = holes()
    model = dp.PPCA(2).fit(frame.select(NAMES))
    session = open_session(model, frame, id_column="who")
    found = model.outliers(frame.select(NAMES), level=0.95)
    one = session.distances["SPE"]
    assert (one.name, one.limit) == ("SPE / limit", 1.0)
    known = np.isfinite(one.values)
    np.testing.assert_allclose(one.values[known], found.spe[known] / found.spe_limit[known])
    beyond = (one.values > 1) | (session.distances["T²"].values > 1)
    np.testing.assert_array_equal(beyond, found.flagged)
