"""Which column tells the time of rows, however it is written and however the table is read."""

from datetime import date, datetime, time, timedelta

import numpy as np
import polars as pl
import pytest

from dualpca.app.tables import profiles
from dualpca.app.tables.text import TableError
from dualpca.app.tables.times import Clock, chosen_time, find_time, is_time_name, read_time

N = 40
START = datetime(2024, 1, 30, 22, 30)
MOMENTS = [START + timedelta(minutes=90 * i) for i in range(N)]
SECONDS = np.array([(one - datetime(1970, 1, 1)).total_seconds() for one in MOMENTS])
DAYS = [date(2024, 1, 30) + timedelta(days=i) for i in range(N)]
MIDNIGHTS = np.array([(one - date(1970, 1, 1)).days * 86400.0 for one in DAYS])


def written(form, moments=MOMENTS):
    return [one.strftime(form) for one in moments]


READ = {
    "type of dates": (DAYS, "date", MIDNIGHTS),
    "type of moments": (MOMENTS, "datetime", SECONDS),
    "ISO": (written("%Y-%m-%d %H:%M:%S"), "datetime", SECONDS),
    "ISO with T and Z": (written("%Y-%m-%dT%H:%M:%S.250Z"), "datetime", SECONDS + 0.25),
    "offset": (written("%Y-%m-%dT%H:%M:%S+01:00"), "datetime", SECONDS - 3600),
    "minutes": (written("%Y/%m/%d %H:%M"), "datetime", SECONDS),
    "German": (written("%d.%m.%Y %H:%M"), "datetime", SECONDS),
    "American": (written("%m/%d/%Y %I:%M %p"), "datetime", SECONDS),
    "British days": (written("%d/%m/%Y", DAYS), "date", MIDNIGHTS),
    "American days": (written("%m/%d/%Y", DAYS), "date", MIDNIGHTS),
    "short years": (written("%d.%m.%y", DAYS), "date", MIDNIGHTS),
    "numbers of dates": ([int(one) for one in written("%Y%m%d", DAYS)], "date", MIDNIGHTS),
    "seconds since 1970": (SECONDS, "datetime", SECONDS),
    "milliseconds": ((SECONDS * 1000).astype(np.int64), "datetime", SECONDS),
    "clock": ([f"{i // 60:02d}:{i % 60:02d}" for i in range(N)], "clock", 60.0 * np.arange(N)),
    "type of clocks": ([time(0, i) for i in range(N)], "clock", 60.0 * np.arange(N)),
    "whole hours": (np.arange(N), "number", np.arange(N)),
    "numbers as text": ([f"{i / 4}" for i in range(N)], "number", np.arange(N) / 4),
}


@pytest.mark.parametrize("size", [1, 7, N])
@pytest.mark.parametrize("cells, kind, wanted", READ.values(), ids=READ)
def test_times_are_found_and_read_in_batches_of_any_size(cells, kind, wanted, size):
    frame = pl.DataFrame({"x": np.arange(N) % 3, "timestamp": cells})
    found = find_time(frame)
    assert (found.name, found.kind) == ("timestamp", kind)
    np.testing.assert_array_equal(found.values, wanted)
    clock = Clock("timestamp")
    for part in frame.iter_slices(size):
        clock.add(part["timestamp"])
    assert chosen_time({"timestamp": clock}) == "timestamp"


def test_day_and_month_are_told_apart_by_any_row_or_by_the_order():
    days = [f"{i}/2/2024" for i in range(1, 13)]  # 1 to 12 February; or the 2nd of every month
    assert find_time(pl.DataFrame({"d": [*days, "13/2/2024"]})).values[1] == 1706832000
    months = [f"{i}/01/2024" for i in (2, 3, 12)] + ["01/13/2025"]
    axis = find_time(pl.DataFrame({"d": months}))
    assert [axis.said(v) for v in axis.values[:2]] == ["2024-02-01", "2024-03-01"]


NOT_TIME = {
    "other name": ("dose", np.arange(N)),
    "falls": ("time", [*range(N - 1), 3]),
    "repeats": ("hour", np.arange(N) // 5),
    "disorder": ("seen", [DAYS[i * 7 % N] for i in range(N)]),
    "births": ("birth date", [DAYS[i * 7 % N] for i in range(N)]),
    "one day": ("date", [DAYS[0]] * N),
    "gaps": ("date", [DAYS[i] if i % 2 else None for i in range(N)]),
    "stray": ("date", [*written("%Y-%m-%d", DAYS[1:]), "soon"]),
    "words": ("time", ["early", "late"] * (N // 2)),
    "no such day": ("date", [*written("%Y-%m-%d", DAYS[1:]), "2024-02-30"]),
}


@pytest.mark.parametrize("name, cells", NOT_TIME.values(), ids=NOT_TIME)
def test_what_is_not_time(name, cells):
    assert find_time(pl.DataFrame({name: cells})) is None


def test_dates_out_of_order_are_time_under_its_name_and_are_put_in_order():
    shuffled = np.random.default_rng(0).permutation(N)
    axis = find_time(pl.DataFrame({"Date": [DAYS[i] for i in shuffled]}))
    np.testing.assert_array_equal(shuffled[axis.order()], np.arange(N))
    latest_first = find_time(pl.DataFrame({"seen": DAYS[::-1]}))
    np.testing.assert_array_equal(latest_first.order(), np.arange(N)[::-1])


def test_dates_come_before_numbers_and_moments_before_days():
    frame = pl.DataFrame({"hour": np.arange(N), "day": DAYS, "moment": MOMENTS})
    assert find_time(frame).name == "day"  # by its name
    assert find_time(frame.rename({"day": "seen"})).name == "moment"
    assert find_time(frame, names=["hour"]).name == "hour"


def test_missing_times_are_no_place_on_the_axis():
    cells = ["NA", None, *written("%Y-%m-%d", DAYS)]
    axis = find_time(pl.DataFrame({"date": cells}))
    np.testing.assert_array_equal(axis.values, [np.nan, np.nan, *MIDNIGHTS])
    assert axis.order().tolist() == list(range(2, N + 2))
    assert axis.said(axis.values[0]) == "at no known time"


def test_the_user_names_the_column_or_none():
    frame = pl.DataFrame({"x": [3.0, 1.0, 2.0], "time": [1, 2, 3], "k": ["a", "b", "c"]})
    assert find_time(frame).name == "time"
    assert find_time(frame, "none") is None
    assert find_time(frame, "x").order().tolist() == [1, 2, 0]
    with pytest.raises(TableError, match="--time k: the column holds entries such as 'a'"):
        find_time(frame, "k")
    with pytest.raises(TableError, match="--time when: no such column"):
        find_time(frame, "when")
    assert read_time(frame["k"]) is None


@pytest.mark.parametrize(
    "name", ["time", "Time (s)", "batch_time", "Batch time [h]", "elapsed min", "startDate", "t_s"]
)
def test_names_of_time(name):
    assert is_time_name(name)


@pytest.mark.parametrize(
    "name", ["runtime", "weekday", "temperature", "minimum", "hours worked", "T2", "birth_date"]
)
def test_names_of_other_things(name):
    assert not is_time_name(name)


@pytest.mark.parametrize("size", [1, 7, N])
@pytest.mark.parametrize("mixed", [None, {}], ids=["numbers", "any kind"])
def test_models_leave_time_out(size, mixed):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.normal(size=N).round(3), "hour": np.arange(N) / 2})
    seen = profiles.profile(frame.iter_slices(size), frame.columns)
    found = profiles.choose(seen, kinds=mixed)
    assert (found.names, found.time, found.identifier) == (["x"], "hour", None)
    assert found.notes == [
        "column 'hour' tells the time of rows and is not part of the model (--columns chooses "
        "columns)."
    ]
    for options in ({"asked": True}, {"timeless": True}):
        found = profiles.choose(seen, kinds=mixed, **options)
        assert (found.names, found.time) == (["x", "hour"], None)
