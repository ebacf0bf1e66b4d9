"""Products with centred rows that are never formed, against rows that are."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dualpca.arrays import backend
from dualpca.operators.rows import Frame, Rows


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("explicit", [False, True])
def test_products_equal_those_of_rows_that_are_formed(
    monkeypatch: pytest.MonkeyPatch,
    explicit: bool,
    weighted: bool,
    scaled: bool,
    threads: int,
) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(backend, "BLOCK_BYTES", 8 * 64 * 7)  # many blocks, the last one short
    X = rng.normal(size=(1000, 7)) + np.arange(7)
    weights = rng.uniform(size=1000) if weighted else None
    frame = Frame(X.mean(axis=0), np.arange(1.0, 8.0) if scaled else None)
    F = (X - frame.mean) / (1.0 if frame.scale is None else frame.scale)
    F *= np.sqrt(np.ones(1000) if weights is None else weights)[:, None]
    V = rng.normal(size=(7, 3))
    with threadpool_limits(threads):
        rows, wide = (
            Rows(X, weights, frame, explicit),
            Rows(X.T.copy(), None, Frame(X.mean(axis=1)), explicit),
        )
        np.testing.assert_allclose(rows.normal(V), F.T @ (F @ V), rtol=1e-11, atol=1e-9)
        G = X.T - X.mean(axis=1)
        np.testing.assert_allclose(wide.mirrored(V), G @ (G.T @ V), rtol=1e-11, atol=1e-8)
        np.testing.assert_allclose(
            rows.mirrored(F[:, :2]), F @ (F.T @ F[:, :2]), rtol=1e-11, atol=1e-9
        )
