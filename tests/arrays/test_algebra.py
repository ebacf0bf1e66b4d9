"""Products in small pieces, and rows changed in place: what NumPy gives."""

import threading
import time

import numpy as np
import pytest

from dualpca.arrays import algebra as _algebra
from tests.arrays.thread_cases import rows


@pytest.mark.parametrize("product", [_algebra.gram, lambda C: _algebra.dot(C[:, 0], C)])
def test_others_run_during_a_product_of_few_numbers(product):
    C = np.ones((1_000_000, 20))

    def ticks_inside():
        spans, ticks = [], []

        def work():
            for _ in range(4):
                begun = time.perf_counter()
                product(C)
                spans.append((begun, time.perf_counter()))

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)
        return sum(begun < tick < ended for tick in ticks for begun, ended in spans)

    # a product that holds the interpreter lets nobody look at the clock
    assert max(ticks_inside() for _ in range(5)) > 2


# --- small products ------------------------------------------------------------------------------


@pytest.mark.parametrize("n,d,k", [(33, 5, 1), (100, 50, 7), (1000, 2000, 24), (50, 4000, 30)])
@pytest.mark.parametrize("layout", ["rows", "columns", "steps", "part"])
def test_rows_in_small_products_are_the_product(monkeypatch, n, d, k, layout):
    monkeypatch.setattr(_algebra, "has_small_products", lambda: True)
    rng = np.random.default_rng(0)
    C = rng.normal(size=(2 * n, d + 3))
    C = {
        "rows": C[:n, :d].copy(),
        "columns": np.asfortranarray(C[:n, :d]),
        "steps": C[::2, :d],
        "part": C[:n, 3:],
    }[layout]
    V = rng.normal(size=(k, C.shape[1])).T
    found = _algebra.in_small_products(C, V)
    assert (found is None) == (layout == "columns")
    assert np.allclose(_algebra.rows_times(C, V), C @ V, rtol=0, atol=1e-11)


def test_few_rows_and_other_processors_take_the_usual_product(monkeypatch):
    C, V = np.ones((64, 10)), np.ones((10, 3))
    monkeypatch.setattr(_algebra, "has_small_products", lambda: True)
    assert _algebra.in_small_products(C[:8], V) is None  # a copy of V would take longer
    assert _algebra.in_small_products(C, V[:, :0]) is None
    assert _algebra.in_small_products(C.astype(np.float32), V) is None
    assert _algebra.in_small_products(np.ones((64, 10**5)), np.ones((10**5, 3))) is None
    monkeypatch.setattr(_algebra, "has_small_products", lambda: False)
    assert _algebra.in_small_products(C, V) is None
    assert np.array_equal(_algebra.rows_times(C, V), C @ V)


@pytest.mark.parametrize("n,q", [(4096, 5), (5001, 64), (5000, 65), (10, 3), (5000, 0)])
def test_a_row_is_subtracted_in_place(n, q):
    Y, row = rows(n, q), np.arange(float(q))
    expected = Y - row
    found = _algebra.subtract_row(Y, row)
    assert found is Y and np.array_equal(Y, expected)
