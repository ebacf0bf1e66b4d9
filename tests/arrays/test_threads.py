"""Sums by several threads: the same to the last bit, whatever is in the rows, whoever is first."""

import importlib.util
import os
import signal
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dualpca import PCA, PPCA
from dualpca.arrays import backend as _array
from dualpca.arrays import threads as _threads
from dualpca.data.moments import Centring, Moments, column_moments
from dualpca.data.table import SlicedTable
from dualpca.errors import NonFiniteError, ScaleError
from dualpca.operators.primal import weighed
from tests.arrays.thread_cases import rows

SHAPES = [(1, 1), (1, 7), (3, 5), (4097, 1), (40_000, 3), (30_001, 20), (9_000, 150), (700, 900)]


def with_threads(count, work):
    with threadpool_limits(count):
        assert _threads.available() == count
        return work()


def dense_moments(X, w):
    """Return the size, mean and scatter by their definition, in long double."""
    X, w = X.astype(np.longdouble), np.asarray(w, dtype=np.longdouble)
    mean = (w[:, None] * X).sum(axis=0) / w.sum()
    C = X - mean
    return w.sum(), mean, (w[:, None] * C).T @ C


# --- moments -------------------------------------------------------------------------------------


@pytest.mark.grid(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n,d", SHAPES)
def test_every_number_of_threads_finds_the_same_bits(n, d, weighted, dtype):
    X = rows(n, d, dtype)
    weights = np.random.default_rng(1).uniform(0.5, 2, n) if weighted else None
    one, *others = (with_threads(k, lambda: weighed(X, weights)) for k in (1, 2, 3))
    for other in others:
        assert one.n == other.n
        assert np.array_equal(one.mean, other.mean)
        assert np.array_equal(one.scatter, other.scatter)


@pytest.mark.grid(2)
@pytest.mark.parametrize("order", ["C", "F", "steps"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n,d", [*SHAPES[:-2], (5_000, 40)])
def test_moments_by_threads_are_the_dense_ones(n, d, dtype, order):
    X = rows(2 * n, d, dtype)[::2] if order == "steps" else np.array(rows(n, d, dtype), order=order)
    before = X.copy()
    weights = np.random.default_rng(1).uniform(0.5, 2, n)
    for w in (None, weights):
        n_, mean, scatter = dense_moments(X, np.ones(n) if w is None else w)
        size = max(float(np.max(np.abs(scatter))), float(n_))
        found = with_threads(2, lambda w=w: Moments.of(X, w))
        assert found.n == pytest.approx(float(n_), rel=1e-13)
        assert np.max(np.abs(found.mean - mean)) < 1e-12 * (1 + np.max(np.abs(mean)))
        assert np.max(np.abs(found.scatter - scatter)) < 1e-12 * size
        _, means, squares = with_threads(2, lambda w=w: column_moments(X, w))
        assert np.max(np.abs(means - mean)) < 1e-12 * (1 + np.max(np.abs(mean)))
        assert np.max(np.abs(squares - np.diagonal(scatter))) < 1e-12 * size
    assert np.array_equal(X, before)


def test_constant_columns_stay_exactly_constant():
    X = rows(50_000, 20, np.float32)
    X[:, [0, 7, 19]] = np.float32(0.1)
    found = with_threads(2, lambda: Moments.of(X))
    assert not found.scatter[[0, 7, 19]].any() and not found.scatter[:, [0, 7, 19]].any()
    assert np.array_equal(found.mean[[0, 7, 19]], np.full(3, np.float32(0.1), dtype=float))


def test_squares_that_float32_cannot_hold_are_summed():
    X = rows(40_000, 5, np.float32) * np.float32(1e25)
    found = with_threads(2, lambda: Moments.of(X))
    _, _, scatter = dense_moments(X, np.ones(len(X)))
    assert np.max(np.abs(found.scatter / scatter - 1)) < 1e-9
    with pytest.raises(ScaleError, match="overflows float64"):
        with_threads(2, lambda: Moments.of(X.astype(float) * 1e140))


# --- fits from files -----------------------------------------------------------------------------


@pytest.fixture
def file_of(tmp_path):
    def save(X):
        np.save(tmp_path / "x.npy", X)
        return SlicedTable(tmp_path / "x.npy", part_rows=30_000)

    return save


def learned(model):
    names = ("mean_", "components_", "explained_variance_", "noise_variance_")
    return [np.asarray(getattr(model, name)) for name in names]


@pytest.mark.parametrize("model", [PCA(5), PCA(1), PPCA(19)], ids=str)
def test_a_fit_from_a_file_is_the_same_for_any_number_of_threads(file_of, model):
    X = rows(100_000, 20, np.float32)
    parts = file_of(X)
    one, two, three = (with_threads(k, lambda: learned(model.fit(parts))) for k in (1, 2, 3))
    for a, b, c in zip(one, two, three, strict=True):
        assert np.array_equal(a, b) and np.array_equal(a, c)
    # in float64, so that rounding to float32 hides nothing
    wanted = Moments.of(X)
    found = with_threads(2, lambda: parts.reduce(weighed, Moments.merge))
    size = np.max(np.abs(wanted.scatter))
    assert np.max(np.abs(found.scatter - wanted.scatter)) < 1e-12 * size


@pytest.mark.parametrize("row", [0, 1023, 29_999, 30_000, 50_123, 99_999])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found_wherever_it_is(file_of, row, value):
    X = rows(100_000, 4, np.float32)
    X[row, 2] = value
    parts = file_of(X)
    for count in (1, 2):
        with pytest.raises(NonFiniteError, match=f"row {row}, column 2"):
            with_threads(count, lambda: PCA(2).fit(parts))


def test_two_infinities_that_cancel_are_found(file_of):
    X = rows(100_000, 4)
    X[5, 0], X[70_000, 0] = np.inf, -np.inf
    with pytest.raises(NonFiniteError, match="row 5, column 0"):
        with_threads(2, lambda: PCA(2).fit(file_of(X)))


# --- the parts of it -----------------------------------------------------------------------------


@pytest.mark.parametrize("n,d", [(1, 1), (5, 3), (4096, 20), (4095, 5), (900, 20_000 // 9)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_centring_is_subtraction(n, d, dtype):
    X = rows(n + 10, d).astype(dtype)
    shift = np.linspace(-1, 2, d)
    centred = Centring(X, shift, n)
    for cut in (slice(0, n), slice(10, 10 + n), slice(3, 4)):
        assert np.array_equal(centred(cut), X[cut].astype(float) - shift)


def test_sums_are_added_in_order_however_long_each_takes():
    def work(k):
        time.sleep(0.02 if k % 3 == 0 else 0.0)
        return [k]

    found = with_threads(2, lambda: _threads.folded(work, lambda a, b: a + b, list(range(12))))
    assert found == list(range(12))


def test_the_first_error_comes_out_and_what_waits_is_left():
    begun = []

    def work(k):
        begun.append(k)
        if k in (2, 3):
            time.sleep(0.05 if k == 2 else 0.0)
            raise ValueError(f"item {k}")
        return k

    with pytest.raises(ValueError, match="item 2"):
        with_threads(2, lambda: _threads.folded(work, int.__add__, list(range(100))))
    assert max(begun) <= 5
    with threadpool_limits(2), _threads.outside():  # nobody kept the threads
        assert _threads.is_outside()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to a thread here")
def test_an_interrupt_leaves_what_has_not_begun():
    gate, second, begun = threading.Event(), threading.Event(), []

    def work(k):
        begun.append(k)
        if k == 0:
            second.wait(5)
            time.sleep(0.05)  # by now the caller waits for a result
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        else:
            second.set()
        gate.wait(5)
        return k

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest-xdist ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            with_threads(2, lambda: _threads.folded(work, int.__add__, list(range(9))))
    finally:
        signal.signal(signal.SIGINT, usual)
    gate.set()
    time.sleep(0.1)
    assert sorted(begun) == [0, 1]
    assert not _threads.is_outside()


def test_results_do_not_pile_up_behind_a_slow_one():
    gate, done = threading.Event(), []

    def work(k):
        if k == 0:
            gate.wait(0.2)
        done.append(k)
        return k

    with_threads(2, lambda: _threads.folded(work, int.__add__, list(range(50))))
    assert done.index(0) <= 2 and sorted(done) == list(range(50))


def test_threads_let_overflow_what_the_caller_lets():
    def work(run):
        return np.float64(1e300) * np.array([1e300 for _ in run])

    with np.errstate(over="ignore"):
        (first, *_) = with_threads(2, lambda: _threads.side_by_side(work, [1, 2, 3, 4]))
    assert np.isinf(first).all()
    with pytest.warns(RuntimeWarning, match="overflow"):
        with_threads(2, lambda: _threads.folded(work, np.add, [[1], [2]]))


def test_few_blocks_are_summed_as_many_are():
    for n in (1, 4096, 4097, 3 * 4096):
        X = np.empty((n, 20))
        found = with_threads(2, lambda X=X: _array.summed(lambda rows: [rows], list.__add__, X))
        assert [cut.start for cut in found] == list(range(0, n, 4096)) and found[-1].stop == n


def blas():
    """Return how many threads each BLAS has; `available` counts those of OpenMP too."""
    return [library.get() for library in _threads._libraries() if library.blas]


def test_the_first_question_changes_nothing(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork", raising=False)  # it would keep the copy
    spec = importlib.util.spec_from_file_location("threads_anew", _threads.__file__)
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)
    with threadpool_limits(2):
        before = blas()
        assert max(before) == 2 and anew.available() == 2
        assert blas() == before


def test_threads_whose_holder_is_not_in_a_forked_child_are_given_back_there():
    with threadpool_limits(2):
        before, holder = blas(), _threads.outside()
        holder.__enter__()
        assert blas() == [1] * len(before)
        _threads._after_fork()
        assert _threads.available() == 2 and blas() == before
        with threadpool_limits(1):  # once, not whenever it is asked
            assert _threads.available() == 1


def test_one_thread_is_given_back_as_it_was():
    with threadpool_limits(2):
        before = blas()
        with _threads.alone():
            assert blas() == [1] * len(before) and _threads.available() == 1
            with _threads.outside():  # there is nothing left to share
                assert _threads.available() == 1
        with _threads.outside():
            assert blas() == [1] * len(before) and _threads.available() == 2
        with pytest.raises(ValueError, match="inside"), _threads.alone():
            raise ValueError("inside")
        assert blas() == before and not _threads.is_outside()


def test_a_second_thread_is_held_to_one_thread_of_blas_too():
    # threadpoolctl lets one thread alone set limits; this one is another one
    found = []

    def work():
        with _threads.alone():
            found.extend(library.get() for library in _threads._libraries() if library.blas)

    with threadpool_limits(2):
        with _threads.alone():
            pass
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert set(found) == {1}
