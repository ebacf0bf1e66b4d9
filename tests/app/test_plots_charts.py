"""Charts of rows in order: what is drawn is what the model or the monitor says, row by row."""

import time as clock
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.exceptions import NotFittedError

pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

from matplotlib import dates
from matplotlib import pyplot as plt
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.colors import to_rgb

import dualpca as dp
from dualpca import plots
from dualpca.app.plots._canvas import BLUE, VERMILION
from dualpca.app.plots.charts import COLUMNS_SHOWN, POINTS, thinned
from dualpca.models.monitoring import Chart, Episode

NAMES = ["feed", "heat", "flow", "level", "power"]
RELATION = np.random.default_rng(5).normal(size=(2, 5))


def rows(n, seed=0):
    """Return n rows of normal operation: two causes, five sensors."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) @ RELATION + 0.4 * rng.normal(size=(n, 5))


MODEL = dp.PPCA(2).fit(pd.DataFrame(rows(300), columns=NAMES))
LATER = pd.DataFrame(rows(80, 1), columns=NAMES)
LATER.iloc[30, 2] += 8
LATER.iloc[50:53] = np.nan
LATER.iloc[10:20, 1] = np.nan


def episode(start, end, peak, statistics=("spe",)):
    return Episode(start, end, statistics, (("heat", 0.7), ("flow", 0.3)), peak)


def made(n=100, episodes=(), first=0, names=("t2", "spe", "mewma"), **more):
    """Return a chart with known statistics and limits."""
    rng = np.random.default_rng(2)
    statistics = {name: rng.uniform(0.1, 0.9, n) for name in names}
    limits = {name: np.full(n, 1.0) for name in names}
    parts = rng.normal(size=(n, 5))
    alarms = np.zeros(n, dtype=bool)
    for one in episodes:
        span = slice(one.start - first, n if one.end is None else one.end - first)
        alarms[span] = True
        for name in one.statistics:
            statistics[name][span] = one.peak
    return Chart(statistics, limits, alarms, parts, tuple(episodes), tuple(NAMES), first, **more)


def shaded(ax):
    """Return first and last place of every shaded stretch."""
    found = [c for c in ax.collections if isinstance(c, PolyCollection)]
    paths = [path.vertices[:, 0] for c in found for path in c.get_paths()]
    return sorted((float(x.min()), float(x.max())) for x in paths)


# --- what is drawn --------------------------------------------------------------------


def test_statistics_limits_and_alarms_of_a_model_row_by_row():
    found = MODEL.outliers(LATER, 0.99)
    empty = found.empty
    figure = plots.control_chart(MODEL, LATER, level=0.99)
    for ax, name, word in zip(figure.axes, ("t2", "spe"), ("T²", "SPE"), strict=False):
        assert ax.get_ylabel() == word
        value, limit = getattr(found, name), getattr(found, f"{name}_limit")
        line, dots, bound, above = ax.lines[:4]
        np.testing.assert_array_equal(line.get_xdata(), np.arange(80))
        np.testing.assert_array_equal(line.get_ydata(), np.where(empty, np.nan, value))
        assert set(dots.get_xdata()) == set(np.flatnonzero(~empty))
        assert set(above.get_xdata()) == set(np.flatnonzero((value > limit) & ~empty))
        at = {x: y for x, y in zip(bound.get_xdata(), bound.get_ydata(), strict=True)}
        for row in (0, 9, 10, 19, 20, 49, 53, 79):  # where steps begin and end
            assert at[row] == limit[row]
        assert np.isnan(at[50]) and bound.get_drawstyle() == "steps-mid"
    assert (30.0 in figure.axes[1].lines[3].get_xdata()) and found.flagged[30]
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["limit, 99 %", "above the limit"]


def test_the_furthest_row_of_a_model_and_its_contributions():
    below = plots.control_chart(MODEL, LATER, n_features=3).axes[2]
    parts = MODEL.contributions(LATER.iloc[[30]], signed=True).to_numpy()[0]
    order = np.argsort(-np.abs(parts))[:3]
    np.testing.assert_allclose([bar.get_width() for bar in below.patches], np.abs(parts[order]))
    assert [label.get_text() for label in below.get_yticklabels()] == [NAMES[j] for j in order]
    colours = [to_rgb(bar.get_facecolor()) for bar in below.patches]
    assert colours == [to_rgb(VERMILION if parts[j] > 0 else BLUE) for j in order]
    assert below.get_title("left").startswith("Furthest out: row 30, SPE ")


def test_missing_sensors_of_the_furthest_row_have_no_bar():
    one = LATER.iloc[[30]].assign(heat=np.nan)
    below = plots.control_chart(MODEL, one).axes[2]
    assert sorted(label.get_text() for label in below.get_yticklabels()) == sorted(
        set(NAMES) - {"heat"}
    )


def test_panels_and_episodes_of_a_chart():
    episodes = (episode(20, 26, 3.0), episode(60, 61, 5.0, ("mewma", "spe")))
    chart = made(episodes=episodes, names=("mewma", "spe", "t2", "residual_cusum", "t2 2 of 3"))
    figure = plots.control_chart(chart)
    words = [ax.get_ylabel() for ax in figure.axes[:-1]]
    assert words == ["T²", "SPE", "MEWMA", "residual\nCUSUM", "T²\n2 of 3"]
    for ax in figure.axes[:-1]:
        assert shaded(ax) == [(19.5, 25.5), (59.5, 60.5)]
    below = figure.axes[-1]
    assert below.get_title("left") == "Worst episode: row 60\nMEWMA, SPE"
    order = np.argsort(-np.abs(chart.contributions[60]))
    widths = [bar.get_width() for bar in below.patches]
    np.testing.assert_allclose(widths, np.abs(chart.contributions[60][order]))
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["limit", "above the limit", "episode"]


def test_the_worst_of_several_episodes_is_explained_by_its_mean():
    chart = made(episodes=(episode(20, 26, 3.0), episode(60, 61, 2.0)))
    below = plots.control_chart(chart).axes[-1]
    mean = chart.contributions[20:26].mean(axis=0)
    order = np.argsort(-np.abs(mean))
    np.testing.assert_allclose([bar.get_width() for bar in below.patches], np.abs(mean[order]))
    assert below.get_title("left") == "Worst episode: rows 20 to 25\nSPE"


def test_open_and_earlier_episodes_of_an_update():
    """A chart of rows 1000 to 1099; one episode began before, one lasts, one is long over."""
    episodes = (episode(990, 1004, 2.0), episode(1090, None, 3.0))
    chart = made(episodes=episodes[1:], first=1000)
    gone = (episode(10, 20, 9.0), *episodes)
    chart = Chart(**vars(chart) | {"episodes": gone})
    figure = plots.control_chart(chart)
    assert shaded(figure.axes[0]) == [(999.5, 1003.5), (1089.5, 1099.5)]
    assert figure.axes[-1].get_title("left").startswith("Worst episode: rows 1090 to 1099")
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), np.arange(1000, 1100))


def test_a_monitor_draws_its_chart_and_its_phase_one():
    monitor = dp.Monitor(dp.PPCA(2), statistics=("t2", "spe"), dynamics="none")
    with pytest.raises(NotFittedError):
        plots.control_chart(monitor, LATER)
    monitor.fit(pd.DataFrame(rows(120), columns=NAMES))
    one, same = plots.control_chart(monitor, LATER), plots.control_chart(monitor.chart(LATER))
    for ax, other in zip(one.axes, same.axes, strict=True):
        assert ax.get_title("left") == other.get_title("left")
        for line, also in zip(ax.lines, other.lines, strict=True):
            np.testing.assert_array_equal(line.get_xydata(), also.get_xydata())
    first = plots.control_chart(monitor).axes[1].lines[0].get_ydata()
    np.testing.assert_array_equal(first, monitor.phase_one_.statistics["spe"])
    assert monitor.n_seen_ == 0


def test_far_rows_have_a_logarithmic_axis_and_are_in_view():
    near, far = made(), made(episodes=(episode(40, 41, 500.0),))
    for chart, scale in ((near, "linear"), (far, "log")):
        ax = plots.control_chart(chart).axes[1]
        assert ax.get_yscale() == scale
        top = max(chart.statistics["spe"].max(), 1.0)
        assert ax.get_ylim()[0] < 1.0 <= top < ax.get_ylim()[1]


def test_axes_without_one_for_the_contributions_leave_them_out():
    figure, axes = plt.subplots(4, 1)
    chart = made()
    plots.control_chart(chart, ax=axes[:3])
    assert [ax.get_ylabel() for ax in axes] == ["T²", "SPE", "MEWMA", ""]
    assert not axes[3].has_data()
    plots.control_chart(chart, ax=axes)
    assert axes[3].has_data() and len(figure.axes) == 4


def test_what_cannot_be_drawn_is_refused_in_words():
    with pytest.raises(ValueError, match="X must be None with a Chart"):
        plots.control_chart(made(), LATER)
    with pytest.raises(ValueError, match="X must be the rows to draw"):
        plots.control_chart(MODEL)
    with pytest.raises(TypeError, match=r"plots.control_chart draws T² and SPE .*KernelPCA"):
        plots.control_chart(dp.KernelPCA(2, kernel="rbf").fit(rows(30)), rows(30))
    copula = dp.CopulaPPCA(2).fit(rows(60))
    assert len(plots.control_chart(copula, rows(60)).axes) == 2
    with pytest.raises(TypeError, match=r"draws contributions of features, which CopulaPPCA"):
        plots.contributions_over_time(copula, rows(60))


@pytest.mark.parametrize("n", [1, 2])
def test_few_rows_and_rows_without_any_value(n):
    empty = np.full((n, 5), np.nan)
    model = dp.PPCA(2).fit(rows(100))
    assert len(plots.control_chart(model, empty).axes) == 2  # nothing to explain
    plots.contributions_over_time(model, empty).draw_without_rendering()
    figure = plots.control_chart(model, rows(n))
    assert len(figure.axes) == 3
    figure.draw_without_rendering()
    plots.contributions_over_time(model, rows(n)).draw_without_rendering()


def test_a_row_between_gaps_is_seen_however_many_there_are():
    X = np.repeat(rows(1), 600, axis=0)
    X[299:302] = np.nan
    X[300] = rows(1)
    ax = plots.control_chart(dp.PPCA(2).fit(rows(100)), X).axes[0]
    assert ax.lines[1].get_xdata().tolist() == [300]


# --- time -----------------------------------------------------------------------------

START, STEP = datetime(2026, 3, 1, 6), timedelta(minutes=5)
MOMENTS = [START + k * STEP for k in range(80)]
ISO = [moment.isoformat(" ") for moment in MOMENTS]
KINDS = {
    "datetimes": MOMENTS,
    "datetime64": np.array(MOMENTS, dtype="datetime64[s]"),
    "text": ISO,
    "array of text": np.array(ISO),
    "text with a zone": [text + "Z" for text in ISO],
    "pandas index": pd.DatetimeIndex(MOMENTS),
    "pandas series": pd.Series(MOMENTS, name="taken at"),
    "with a zone": pd.DatetimeIndex(MOMENTS, tz="UTC"),
    "periods": pd.PeriodIndex(MOMENTS, freq="5min"),
    "polars": pl.Series("taken at", MOMENTS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_dates_of_any_kind_are_dates_to_matplotlib(kind):
    figure = plots.control_chart(MODEL, LATER, time=KINDS[kind])
    ax = figure.axes[0]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), dates.date2num(MOMENTS))
    shown = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert any("08:00" in text or "07:00" in text for text in shown)
    word = getattr(KINDS[kind], "name", None) or "time"
    assert figure.axes[1].get_xlabel() == word
    assert "2026-03-01 08:30" in figure.axes[2].get_title("left")
    heat = plots.contributions_over_time(MODEL, LATER, time=KINDS[kind]).axes[0]
    assert heat.get_xlim()[0] == pytest.approx(dates.date2num(MOMENTS[0] - STEP / 2))


def test_the_index_of_a_frame_is_its_time():
    frame = LATER.set_axis(pd.DatetimeIndex(MOMENTS), axis=0)
    ax = plots.control_chart(MODEL, frame).axes[0]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), dates.date2num(MOMENTS))
    ax = plots.control_chart(MODEL, LATER.set_axis(range(500, 580), axis=0)).axes[0]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(80))  # labels are no times


def test_a_chart_has_its_time():
    chart = made(80, (episode(10, 20, 2.0),), time=np.array(ISO))
    figure = plots.control_chart(chart)
    low, high = dates.date2num([MOMENTS[10], MOMENTS[19]])
    half = dates.date2num(STEP / 2 + START) - dates.date2num(START)
    assert shaded(figure.axes[0]) == [pytest.approx((low - half, high + half))]
    title = figure.axes[-1].get_title("left")
    assert title == "Worst episode: 2026-03-01 06:50 to 07:35\nSPE"
    seconds = plots.control_chart(chart, time=np.arange(80) / 2).axes[0]
    np.testing.assert_array_equal(seconds.lines[0].get_xdata(), np.arange(80) / 2)


def test_spans_of_time_are_seconds():
    ax = plots.control_chart(MODEL, LATER, time=np.arange(80) * np.timedelta64(2, "m")).axes[0]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), 120.0 * np.arange(80))


@pytest.mark.parametrize("kind", ["names", "backwards", "not a time"])
def test_other_times_are_written_at_the_rows(kind):
    given = {
        "names": [f"batch {k}" for k in range(80)],
        "backwards": np.array(MOMENTS[::-1], dtype="datetime64[s]"),
        "not a time": np.array([np.datetime64("NaT"), *MOMENTS[1:]], dtype="datetime64[s]"),
    }[kind]
    figure = plots.control_chart(MODEL, LATER, time=given)
    ax = figure.axes[1]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(80))
    shown = {text.get_position()[0]: text.get_text() for text in ax.get_xticklabels()}
    expected = str(given[60]).removesuffix(":00").replace("T", " ")
    assert shown[60] == expected


def test_a_long_pause_is_a_gap():
    late = [*MOMENTS[:40], *[moment + timedelta(days=3) for moment in MOMENTS[40:]]]
    ax = plots.control_chart(MODEL, LATER, time=late).axes[0]
    x, y = ax.lines[0].get_data()
    assert len(x) == 81 and np.isnan(y[40]) and np.isnan(x[40])
    chart = made(80, (episode(38, 42, 2.0),), time=np.array(late, dtype="datetime64[s]"))
    [(low, high)] = shaded(plots.control_chart(chart).axes[0])
    assert high - low > 3
    ax = plots.contributions_over_time(chart).axes[0]
    [mesh] = [c for c in ax.collections if isinstance(c, QuadMesh)]
    cells = mesh.get_array()
    assert cells.shape == (5, 81) and np.ma.getmaskarray(cells)[:, 40].all()
    widths = np.diff(mesh.get_coordinates()[0, :, 0])
    assert np.flatnonzero(widths > 1).tolist() == [40]


# --- many rows ------------------------------------------------------------------------


@given(
    arrays(np.float64, st.integers(1, 300), elements=st.floats(-9, 9) | st.just(np.nan)),
    st.integers(4, 60),
)
def test_thinned_values_keep_extremes_and_gaps(values, most):
    kept = thinned(values, most)
    n, width = len(values), -(-2 * len(values) // most)
    assert np.all(np.diff(kept) > 0) and kept[0] == 0 and kept[-1] == n - 1
    if n <= most:
        assert len(kept) == n
        return
    for start in range(0, n, width):
        part, some = values[start : start + width], values[kept[(kept // width) == start // width]]
        if not np.isnan(part).all():
            assert np.nanmax(some) == np.nanmax(part) and np.nanmin(some) == np.nanmin(part)
    for left, right in pairwise(kept):  # a line never crosses a gap
        if not np.isnan(values[[left, right]]).any():
            assert not np.isnan(values[left : right + 1]).any()
    gaps = np.isnan(values)
    runs = int((gaps & ~np.append(False, gaps[:-1])).sum())
    assert len(kept) <= most + 2 + runs + 2


def test_many_rows_are_quick_and_lose_no_extreme():
    n = 20_000
    X = rows(n, 3)
    X[12_345] += 9
    X[5_000:5_100] = np.nan
    found = MODEL.outliers(pd.DataFrame(X, columns=NAMES))
    chart = made(n, (episode(15_000, 15_400, 2.0),), names=("t2", "spe", "mewma", "residual"))
    start = clock.perf_counter()
    figure = plots.control_chart(chart)
    figure.draw_without_rendering()
    heat = plots.contributions_over_time(chart)
    heat.draw_without_rendering()
    assert clock.perf_counter() - start < 5  # 0.5 s on a quiet machine
    assert all(len(ax.lines[0].get_xdata()) <= 1.1 * POINTS for ax in figure.axes[:4])
    figure = plots.control_chart(MODEL, pd.DataFrame(X, columns=NAMES))
    for ax, name in zip(figure.axes, ("t2", "spe"), strict=False):
        value, limit = getattr(found, name), getattr(found, f"{name}_limit")
        line = ax.lines[0]
        assert len(line.get_xdata()) <= 1.1 * POINTS
        drawn = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        assert drawn[12_345] == value[12_345] == value.max()
        assert np.isnan(drawn[5_000])
        assert set(ax.lines[3].get_xdata()) == set(np.flatnonzero(value > limit))


def test_limits_of_many_patterns_are_thinned_too():
    n = 12_000
    X = pd.DataFrame(rows(n, 4), columns=NAMES)
    X = X.mask(np.random.default_rng(0).random(X.shape) < 0.1)
    found = MODEL.outliers(X)
    line = plots.control_chart(MODEL, X).axes[1].lines[2]
    some = np.asarray(line.get_ydata())
    assert len(some) <= 1.2 * POINTS
    limits = np.where(found.empty, np.nan, found.spe_limit)
    assert np.nanmax(some) == np.nanmax(limits) and np.nanmin(some) == np.nanmin(limits)


# --- contributions over time ----------------------------------------------------------


def mesh_of(figure):
    [mesh] = [c for c in figure.axes[0].collections if isinstance(c, QuadMesh)]
    return mesh


@pytest.mark.parametrize("to", ["spe", "t2"])
def test_cells_are_signed_contributions(to):
    figure = plots.contributions_over_time(MODEL, LATER, to=to)
    mesh, ax = mesh_of(figure), figure.axes[0]
    parts = MODEL.contributions(LATER, to, signed=True).to_numpy().T
    cells = mesh.get_array()
    gone = LATER.isna().to_numpy().T
    np.testing.assert_array_equal(np.ma.getmaskarray(cells), gone)
    np.testing.assert_allclose(cells[~gone], parts[~gone])
    assert [label.get_text() for label in ax.get_yticklabels()] == NAMES
    low, high = mesh.get_clim()
    assert high == -low == np.abs(parts).max()
    more, less = mesh.cmap(mesh.norm([high, low]))
    assert more[0] > more[2] and less[2] > less[0]  # red and blue
    assert np.abs(mesh.norm(0.0) - 0.5) < 1e-9
    assert figure.axes[1].get_ylabel() == f"contribution to {'SPE' if to == 'spe' else 'T²'}"


def test_alarms_are_marked_along_the_edge():
    chart = made(episodes=(episode(20, 26, 3.0), episode(60, 61, 2.0)))
    ax = plots.contributions_over_time(chart).axes[0]
    marks = [c for c in ax.collections if isinstance(c, PolyCollection) and not c.get_clip_on()]
    spans = [path.vertices[:, 0] for c in marks for path in c.get_paths()]
    assert sorted((x.min(), x.max()) for x in spans) == [(19.5, 25.5), (59.5, 60.5)]
    assert [text.get_text() for text in ax.texts] == ["alarm"]
    assert len(plots.contributions_over_time(made()).axes[0].texts) == 0


def test_few_of_many_sensors_are_those_with_the_largest_in_their_order():
    X = np.random.default_rng(0).normal(size=(50, 30))
    model = dp.PPCA(2).fit(X)
    X[7, 21] += 50
    X[9, 4] -= 40
    ax = plots.contributions_over_time(model, X, n_features=2).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x4", "x21"]


def test_columns_of_many_rows_keep_the_largest_of_each_sensor():
    n = 10_000
    chart = made(n)
    chart.contributions[7777, 3] = -40.0
    chart.contributions[100:120] = np.nan
    cells = mesh_of(plots.contributions_over_time(chart)).get_array()
    width = -(-n // COLUMNS_SHOWN)
    assert cells.shape == (5, -(-n // width))
    assert cells[3, 7777 // width] == -40.0
    column = 2000 // width
    part = chart.contributions[column * width : (column + 1) * width]
    np.testing.assert_allclose(np.abs(cells[:, column]), np.abs(part).max(axis=0))
    inside = 110 // width  # a column of missing values
    assert width == 9 and np.ma.getmaskarray(cells)[:, inside].all()


def test_rows_without_any_value_have_no_contributions():
    monitor = dp.Monitor(dp.PPCA(2), statistics=("t2", "spe"), dynamics="none")
    monitor.fit(pd.DataFrame(rows(120), columns=NAMES))
    cells = mesh_of(plots.contributions_over_time(monitor, LATER)).get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(cells), LATER.isna().to_numpy().T)
    cells = mesh_of(plots.contributions_over_time(monitor.chart(LATER))).get_array()
    assert np.flatnonzero(np.ma.getmaskarray(cells).all(axis=0)).tolist() == [50, 51, 52]
