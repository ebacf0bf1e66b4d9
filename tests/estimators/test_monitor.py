"""Monitor, the estimator: rows in, state, files, and what its limits promise."""

import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import dualpca
from dualpca import Monitor
from dualpca.errors import DegenerateError, ModelFileError, MonitorWarning, NonFiniteError

D = 6
RELATION = np.random.default_rng(97).normal(size=(2, D))


def process(n, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ RELATION + 0.5 * rng.normal(size=(n, D)) + 10 * np.arange(D)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def faulty(n=120, seed=1, missing=0.05):
    X = process(n, seed, missing)
    X[60:90, 4] += 2.5
    return X


@pytest.fixture(scope="module")
def fitted():
    return Monitor(arl=200, random_state=0).fit(process(300))


@pytest.fixture
def monitor(fitted):
    return pickle.loads(pickle.dumps(fitted)).reset()


def assert_same(one, other):
    assert one.statistics.keys() == other.statistics.keys()
    for name in one.statistics:
        assert np.array_equal(one.statistics[name], other.statistics[name], equal_nan=True)
        assert np.array_equal(one.limits[name], other.limits[name])
    assert np.array_equal(one.contributions, other.contributions)
    assert np.array_equal(one.alarms, other.alarms)
    assert one.episodes == other.episodes


# --- Through time --------------------------------------------------------------------------------


def test_row_by_row_is_all_at_once_to_the_last_bit(monitor):
    X = faulty()
    whole = monitor.chart(X)
    parts = [monitor.update(row) for row in X]
    for name, values in whole.statistics.items():
        joined = np.concatenate([part.statistics[name] for part in parts])
        assert np.array_equal(joined, values, equal_nan=True)
    assert [part.first for part in parts] == list(range(120))
    assert monitor.episodes_ == whole.episodes
    assert monitor.n_seen_ == 120


def test_a_fault_is_one_episode_and_its_sensor_is_named(monitor):
    monitor.update(faulty())
    [episode] = [one for one in monitor.episodes_ if one.end - one.start > 10]
    assert 60 <= episode.start <= 64
    assert 88 <= episode.end <= 120
    assert episode.sensors[0][0] == "x4"
    assert re.fullmatch(r"rows \d+ to \d+: .*; x4 \d+ %.*", str(episode))


def test_an_episode_goes_on_into_the_next_call(monitor):
    X = faulty()
    before = monitor.update(X[:75]).episodes[-1]
    after = monitor.update(X[75:]).episodes[0]
    assert before.end is None
    assert (after.start, after.end) == (before.start, monitor.episodes_[-1].end)


def test_charts_do_not_touch_the_state(monitor):
    X = faulty()
    monitor.update(X[:20])
    expected = pickle.loads(pickle.dumps(monitor)).update(X[20:])
    monitor.chart(X)
    monitor.contributions(X)
    assert_same(monitor.update(X[20:]), expected)


def test_reset_begins_anew(monitor):
    first = monitor.update(faulty())
    assert monitor.reset() is monitor
    assert (monitor.n_seen_, monitor.episodes_) == (0, ())
    assert_same(monitor.update(faulty()), first)


def test_a_fit_forgets_what_was_seen():
    monitor = Monitor(arl=20, statistics=("t2",)).fit(process(60))
    monitor.update(process(10))
    assert monitor.fit(process(60)).n_seen_ == 0


@pytest.mark.parametrize("how", ["save", "pickle"])
@pytest.mark.parametrize("after", [37, 75])
def test_a_monitor_resumes_to_the_last_bit(monitor, tmp_path, how, after):
    X = faulty(missing=0.2)
    time = np.datetime64("2026-03-01T00:00") + np.arange(120)
    monitor.update(X[:after], time[:after])
    if how == "save":
        monitor.save(tmp_path / "m.dpca")
        again = dualpca.load(tmp_path / "m.dpca")
    else:
        again = pickle.loads(pickle.dumps(monitor))
    assert_same(again.update(X[after:], time[after:]), monitor.update(X[after:], time[after:]))
    assert again.episodes_ == monitor.episodes_
    assert again.n_seen_ == 120
    assert again.limits_ == monitor.limits_
    assert_same(again.phase_one_, monitor.phase_one_)
    assert again.set_aside_ == monitor.set_aside_


def test_everything_is_saved(tmp_path):
    X = process(200)
    X[30:40] += 5.0
    options = {"rules": ("2 of 3",), "lags": 1, "dynamics": "ar", "statistics": ("t2", "cusum")}
    monitor = Monitor(dualpca.PPCA(2), arl=30, **options).fit(X, time=np.arange(200.0))
    monitor.partial_fit(process(50, seed=4))
    monitor.save(tmp_path / "m.dpca")
    again = dualpca.load(tmp_path / "m.dpca")
    assert repr(again) == repr(monitor)
    assert again.model_.get_params() == monitor.model_.get_params()
    assert np.array_equal(again.phase_one_.time, np.arange(200.0))
    assert_same(again.chart(faulty()), monitor.chart(faulty()))
    one, other = (m.partial_fit(process(50, seed=5)).chart(faulty()) for m in (again, monitor))
    assert_same(one, other)


def test_a_file_whose_parts_do_not_fit_is_refused(monitor, tmp_path):
    from dataclasses import replace

    model = monitor._model
    monitor._model = replace(model, plan=replace(model.plan, lags=2))
    monitor.save(tmp_path / "m.dpca")
    with pytest.raises(ModelFileError):
        dualpca.load(tmp_path / "m.dpca")


# --- Rows in -------------------------------------------------------------------------------------


def test_frames_lists_and_single_rows_are_the_same_rows(monitor):
    pd = pytest.importorskip("pandas")
    X = faulty(missing=0.0)
    expected = monitor.chart(X)
    assert_same(monitor.chart(X.tolist()), expected)
    assert_same(monitor.chart(np.asfortranarray(X)), expected)
    assert_same(monitor.update(list(X[0])), monitor.chart(X[:1]))
    named = Monitor(arl=200, random_state=0).fit(pd.DataFrame(process(300), columns=list("abcdef")))
    chart = named.chart(pd.DataFrame(X, columns=list("abcdef")))
    assert chart.names == tuple("abcdef")
    assert np.array_equal(chart.statistics["t2"], expected.statistics["t2"])
    named.update(X[0])  # a live row has no names
    contributions = named.contributions(pd.DataFrame(X, columns=list("abcdef")))
    assert list(contributions.columns) == list("abcdef")
    with pytest.raises(ValueError, match="feature names"):
        named.update(pd.DataFrame(X, columns=list("fedcba")))


def test_rows_are_never_modified(monitor):
    X = faulty()
    kept = X.copy()
    monitor.update(X)
    monitor.partial_fit(X)
    assert np.array_equal(X, kept, equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (np.full((2, D), np.inf), NonFiniteError, "infinity"),
        (np.zeros((2, D + 1)), ValueError, "7 features"),
        (np.zeros(D + 1), ValueError, "1D array"),
        (np.zeros((0, D)), ValueError, "0 sample"),
    ],
)
def test_rows_that_cannot_be_judged_are_refused(monitor, rows, error, words):
    before = monitor.n_seen_
    with pytest.raises(error, match=words):
        monitor.update(rows)
    assert monitor.n_seen_ == before


def test_an_empty_row_is_not_judged(monitor):
    chart = monitor.update(np.full(D, np.nan))
    assert np.isnan(chart.statistics["t2"][0])
    assert not chart.alarms[0]


def test_pca_judges_complete_rows():
    monitor = Monitor(dualpca.PCA(2), arl=50).fit(process(100))
    assert monitor.chart(process(20)).statistics["t2"].shape == (20,)
    with pytest.raises(NonFiniteError):
        monitor.update(process(20, missing=0.3))
    with pytest.raises(NonFiniteError):
        Monitor(dualpca.PCA(2)).fit(process(100, missing=0.3))


@pytest.mark.parametrize(
    "model",
    [
        dualpca.PPCA(2),
        dualpca.RobustPPCA(2, degrees_of_freedom=8.0),
        dualpca.FactorAnalysis(2),
        dualpca.BayesianPCA(3),
    ],
)
def test_every_linear_model_can_be_watched(model, tmp_path):
    monitor = Monitor(model, arl=50).fit(process(200, missing=0.05))
    chart = monitor.update(faulty())
    assert monitor.episodes_
    monitor.save(tmp_path / "m.dpca")
    assert_same(dualpca.load(tmp_path / "m.dpca").reset().update(faulty()), chart)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"model": dualpca.KernelPCA()}, "model"),
        ({"model": "ppca"}, "model"),
        ({"arl": 1}, "arl"),
        ({"arl": "many"}, "arl"),
        ({"statistics": ("t2", "q")}, "statistics"),
        ({"statistics": "t2"}, "statistics"),
        ({"statistics": ()}, "statistics"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"smoothing": 1.5}, "smoothing"),
        ({"lags": -1}, "lags"),
        ({"dynamics": "var"}, "dynamics"),
        ({"trim": "yes"}, "trim"),
        ({"rules": ("3 of 2",)}, "rules"),
        ({"rules": ("often",)}, "rules"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(params, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Monitor(**params).fit(process(30))


@pytest.mark.parametrize("time", [np.arange(3), [["a"]]])
def test_times_are_one_for_each_row(monitor, time):
    with pytest.raises(ValueError, match="time"):
        monitor.update(process(5), time)


def test_before_a_fit_there_is_nothing_to_judge_by():
    for ask in (lambda m: m.update(process(3)), lambda m: m.chart(process(3)), Monitor.reset):
        with pytest.raises(NotFittedError):
            ask(Monitor())
    with pytest.raises(AttributeError):
        _ = Monitor().episodes_


def test_a_clone_has_the_parameters_and_no_state(monitor):
    monitor.update(faulty())
    again = clone(monitor.set_params(smoothing=0.2))
    assert again.smoothing == 0.2
    assert not hasattr(again, "n_seen_")
    nested = Monitor(dualpca.PPCA(2)).set_params(model__n_components=1)
    assert nested.model.n_components == 1


def test_a_model_without_noise_is_refused_in_plain_words():
    X = process(100)[:, :2] @ np.random.default_rng(0).normal(size=(2, 5))
    with pytest.raises(DegenerateError, match="fewer components"):
        Monitor(dualpca.PCA(3), arl=20).fit(X)


# --- Phase I, and learning on --------------------------------------------------------------------


def test_too_many_bad_rows_are_said_to_be():
    X = process(200)
    X[100:] += 30 * np.random.default_rng(0).normal(size=D)
    with pytest.warns(MonitorWarning, match="phase I"):
        monitor = Monitor(dualpca.RobustPPCA(2), arl=50).fit(X)
    assert monitor.set_aside_ == ()


def test_a_drift_is_not_learned_silently(monitor):
    X = process(4000, seed=8)
    shift = np.linspace(0, 0.4, 4000)[:, None] * np.ones(D)
    with pytest.warns(MonitorWarning, match=r"x\d \([+-]\d+\.\d standard errors\)"):
        for rows in np.split(X + shift, 8):
            monitor.partial_fit(rows, forgetting=0.998)


def test_learning_leaves_what_was_seen_and_the_limits(monitor):
    monitor.update(faulty())
    seen, episodes, limits = monitor.n_seen_, len(monitor.episodes_), monitor.limits_
    monitor.partial_fit(process(300, seed=6))
    assert (monitor.n_seen_, len(monitor.episodes_)) == (seen, episodes)
    assert monitor.limits_["mewma"] == limits["mewma"]


@pytest.mark.parametrize("forgetting", [0.0, 1.5, "none"])
def test_forgetting_is_a_share(monitor, forgetting):
    with pytest.raises((ValueError, TypeError), match="forgetting"):
        monitor.partial_fit(process(5), forgetting=forgetting)


def test_charts_become_frames(monitor):
    pd = pytest.importorskip("pandas")
    chart = monitor.chart(faulty(), time=pd.date_range("2026-01-01", periods=120, freq="min"))
    frame = chart.to_frame()
    assert len(frame) == 120
    assert list(frame)[:4] == ["row", "time", "t2", "t2 limit"]
    assert np.array_equal(frame["alarm"], chart.flagged)


# --- What is promised ----------------------------------------------------------------------------


def causes(rng, unequal, q=4, d=16):
    W = rng.normal(size=(q, d))
    noise = rng.uniform(0.3, 1.5, d) if unequal else np.full(d, 0.7)
    return W, noise


def drawn(rng, n, W, noise, phi=0.0):
    z, e = rng.normal(size=(n, len(W))), rng.normal(size=(n, len(noise)))
    for A in (z, e) if phi else ():
        for t in range(1, n):
            A[t] = phi * A[t - 1] + np.sqrt(1 - phi * phi) * A[t]
    return z @ W + noise * e


def run_length(unequal, phi, fits, **options):
    rows = alarms = 0
    for seed in range(fits):
        rng = np.random.default_rng(seed)
        W, noise = causes(rng, unequal)
        monitor = Monitor(**options).fit(drawn(rng, 500, W, noise, phi))
        for _ in range(12):
            hits = np.flatnonzero(monitor.chart(drawn(rng, 1500, W, noise, phi)).alarms)
            rows += hits[0] + 1 if hits.size else 1500
            alarms += hits.size > 0
    return rows / alarms


@pytest.mark.slow
@pytest.mark.parametrize("unequal", [False, True])
def test_ordinary_rows_run_as_long_as_was_asked_for(unequal):
    # 24 fits leave a standard error of 8 %
    assert run_length(unequal, 0.0, 24) == pytest.approx(370, rel=0.25)


@pytest.mark.slow
def test_rows_that_are_alike_run_nearly_as_long():
    # 24 fits of rows that are worth 26 each leave a standard error of 17 %
    assert run_length(False, 0.9, 24) == pytest.approx(370, rel=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("unequal", [False, True])
def test_small_shifts_are_found_soon_and_sensors_are_named(unequal):
    delays, named = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        W, noise = causes(rng, unequal)
        monitor = Monitor().fit(drawn(rng, 500, W, noise))
        for cause in W:
            for sign in (-1, 1, -1, 1):
                chart = monitor.chart(drawn(rng, 150, W, noise) + sign * cause)
                delays.append(np.flatnonzero(chart.alarms)[0] + 1)
        for sensor in range(16):
            X = drawn(rng, 60, W, noise)
            X[:, sensor] += 3 * noise[sensor] * rng.choice([-1, 1])
            first = np.flatnonzero(monitor.chart(X).alarms)[0]
            [episode] = monitor.chart(X[: first + 1]).episodes
            named.append(episode.sensors[0][0] == f"x{sensor}")
    assert np.mean(delays) < 16.5
    assert np.mean(named) > 0.95
