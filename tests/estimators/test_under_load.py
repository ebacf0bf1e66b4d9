"""Busy machines: other processes, joblib, threads that share a model, hundreds of fits, Ctrl-C."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

from dualpca import (
    PCA,
    PPCA,
    Batches,
    BayesianPCA,
    FactorAnalysis,
    HiddenMarkovPCA,
    KernelPCA,
    MixturePPCA,
)
from dualpca.arrays import memory, threads
from dualpca.errors import InterruptWarning, NonFiniteError

LONGEST = 120.0
"""Seconds after which something hangs; undisturbed it takes one or two."""


def rows(n: int = 400, d: int = 8, holes: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + 0.3 * rng.normal(size=(n, d))
    X[: n // 2] += 4
    X[rng.random(X.shape) < holes] = np.nan
    return X


MODELS = {
    "pca": (PCA(3), rows(6000, 120)),  # enough for threads to share blocks
    "krylov": (PCA(2, svd_solver="arpack"), rows(2000, 600)),
    "ppca": (PPCA(2), rows(holes=0.1)),
    "bayesian": (BayesianPCA(), rows()),
    "factor": (FactorAnalysis(2), rows()),
    "mixture": (MixturePPCA(2, 1, n_init=2, n_jobs=2), rows()),
    "chain": (HiddenMarkovPCA(2, 1), rows()),
    "kernel": (KernelPCA(3, kernel="rbf", gamma=0.05), rows(700)),
}


def learned(name: str) -> list[np.ndarray]:
    """Fit a model; return what it has learned."""
    model, X = MODELS[name]
    model = clone(model).fit(X)
    names = ("mean_", "means_", "components_", "noise_variance_", "eigenvalues_", "transitions_")
    found = [getattr(model, name, None) for name in names]
    return [
        np.asarray(part) for value in found if value is not None for part in np.atleast_1d(value)
    ]


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def limits() -> list[tuple[str, int]]:
    """Return how many threads every library has."""
    return [(one["filepath"], one["num_threads"]) for one in threadpool_info()]


@pytest.fixture(scope="module")
def wanted() -> dict[str, list[np.ndarray]]:
    return {name: learned(name) for name in MODELS}


def test_fits_beside_busy_processes(wanted) -> None:
    busy = [sys.executable, "-c", "while True: sum(range(100_000))"]
    others = [subprocess.Popen(busy) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        with threadpool_limits(2), ThreadPoolExecutor(1) as aside:
            for name in MODELS:
                same(aside.submit(learned, name).result(LONGEST), wanted[name])
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_fits_inside_joblib(backend, wanted) -> None:
    before = limits()
    work = (delayed(learned)(name) for name in MODELS)
    with threadpool_limits(2):
        allowed = limits()
        found = Parallel(n_jobs=2, backend=backend, timeout=LONGEST)(work)
        assert limits() == allowed
    for name, one in zip(MODELS, found, strict=True):
        same(one, wanted[name])
    assert limits() == before
    if backend == "loky":
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)


QUESTIONS = ("transform", "score_samples", "predict", "predict_proba", "posterior", "impute")


@pytest.mark.parametrize("name", MODELS)
def test_eight_threads_ask_one_model(name) -> None:
    """Whoever comes first computes what is kept for the others."""
    model, X = MODELS[name]
    X, fitted = X[:400], clone(model).fit(X)
    alone = clone(model).fit(MODELS[name][1])
    asked = [one for one in QUESTIONS if hasattr(fitted, one)]

    def answers(model, part):
        every = {"posterior": (0,)} if name == "mixture" else {}
        found = [getattr(model, one)(part, *every.get(one, ())) for one in asked]
        return [np.asarray(x) for one in found for x in (one if isinstance(one, tuple) else [one])]

    start = threading.Barrier(8)

    def work(part):
        start.wait(LONGEST)
        return answers(fitted, part)

    parts = np.array_split(X, 8)
    with threadpool_limits(2), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, parts, timeout=LONGEST))
    for part, one in zip(parts, found, strict=True):
        for a, b in zip(one, answers(alone, part), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted on Linux")
def test_five_hundred_fits_leave_nothing_behind(tmp_path) -> None:
    X, gaps = rows(300, 4), rows(100, 4, holes=0.1)
    np.save(tmp_path / "x.npy", X)

    def refused():
        with pytest.raises(NonFiniteError):
            PCA(2).fit(gaps)

    fits = [
        lambda: PCA(2).fit(X),
        lambda: PCA(2).fit(tmp_path / "x.npy"),
        lambda: PCA(2).fit(Batches([X, X])).transform(X),
        lambda: PPCA(2, tol=1e-2).fit(gaps).posterior(gaps),
        lambda: KernelPCA(2, kernel="rbf").fit(X[:50]).transform(X),
        lambda: MixturePPCA(2, 1, tol=1e-2).fit(X[::3]).predict(X),
        lambda: HiddenMarkovPCA(2, 1, tol=1e-2).fit(X[::3]).predict(X),
        refused,
    ]

    def run(count: int) -> tuple[int, int, int]:
        for k in range(count):
            fits[k % len(fits)]()
        gc.collect()
        return threading.active_count(), descriptors(), memory.resident()

    with threadpool_limits(2):
        run(100)  # what is kept once: imports, pools, caches
        before, after = run(100), run(300)
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert after[2] - before[2] < 8e6  # 27 kB a fit; a kept table of rows would be 10 kB or more


# --- threads that a fit takes from BLAS, it gives back --------------------------------------------


def test_limits_are_restored_after_errors() -> None:
    def broken(a, b):
        raise OSError("the kernel is gone")

    X = rows(6000, 120)
    X[5999, 3] = np.inf

    def chunks():
        yield rows(6000, 120)
        raise OSError("the disk is gone")

    with threadpool_limits(2):
        allowed = limits()
        for fit, error in (
            (lambda: PCA(2).fit(X), NonFiniteError),
            (lambda: PPCA(2).fit(X), NonFiniteError),
            (lambda: PCA(2).fit(Batches(chunks)), OSError),
            (lambda: KernelPCA(2, kernel=broken).fit(X[:100]), OSError),
            (lambda: MixturePPCA(2, 400).fit(X), ValueError),
        ):
            with pytest.raises(error):
                fit()
            assert limits() == allowed and not threads.is_outside()
            assert not threads._owner


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.parametrize("name", ["pca", "krylov", "ppca", "mixture", "chain", "kernel"])
# where it strikes within a finaliser Python drops it and says so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_limits_are_restored_after_the_keyboard(name) -> None:
    """Ctrl-C at several moments of a fit: an error or a model so far, then all is as before."""
    model, X = MODELS[name]
    armed: list[bool] = []

    def strike(*_) -> None:
        if armed:  # an alarm that comes after the fit strikes nothing: pytest would end with it
            armed.clear()
            raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, strike)
    try:
        with threadpool_limits(2), warnings.catch_warnings():
            warnings.simplefilter("ignore", InterruptWarning)
            allowed = limits()
            begun = time.perf_counter()
            clone(model).fit(X)
            usually = time.perf_counter() - begun
            for share in (0.1, 0.3, 0.5, 0.7, 0.9):
                try:
                    armed.append(True)
                    signal.setitimer(signal.ITIMER_REAL, share * usually)
                    clone(model).fit(X)
                    armed.clear()
                except KeyboardInterrupt:
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert limits() == allowed
                assert not threads.is_outside() and not threads._owner
            same(learned(name), learned(name))
    finally:
        armed.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


def test_the_keyboard_at_every_line_that_takes_threads() -> None:
    """Wherever Ctrl-C strikes in `arrays.threads`, BLAS gets its threads back."""
    X = rows(6000, 120)
    place, at = threads.__file__, [0, -1]

    def tracer(frame, event, _):
        names = {frame.f_code.co_name, frame.f_back and frame.f_back.f_code.co_name}
        if frame.f_code.co_filename != place or "__del__" in names:  # nobody hears it there
            return None
        if event == "line":
            at[0] += 1
            if at[0] == at[1]:
                raise KeyboardInterrupt
        return tracer

    def fit(strike):
        at[:] = 0, strike
        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            PCA(2).fit(X)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    with threadpool_limits(2):
        allowed = limits()
        assert not fit(-1)
        lines = at[0]
        assert lines > 30
        left = {}
        for k in range(1, lines + 1):
            assert fit(k) or at[0] < k  # how many lines are run depends on when threads come
            if limits() != allowed or threads._owner or threads._held:
                left[k] = (limits() != allowed, threads._owner, dict(threads._held))
                threads._after_fork()
                threads._controller().limit(limits=2)
        assert not left, left
