"""Noisy digits, cleaned by linear PCA and by kernel PCA with every way back.

`python -m benchmarks preimages`. The error is the mean squared difference from the clean pixels.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.run import Row, Run
from dualpca import PCA, KernelPCA

COMPONENTS, NOISE = (8, 32), (0.25, 0.5)
METHODS = ("learned", "smoother", "distance", "fixed-point", "gradient")


def rows(run: Run, part: str) -> Iterator[Row]:
    X = load_digits().data / 16
    train, test = X[:1500], X[1500 : 1510 if run.quick else 1600]
    noises = {
        noise: test + noise * np.random.default_rng(0).normal(size=test.shape) for noise in NOISE
    }

    def errors(name: str, q: int, clean: list[np.ndarray], seconds: float) -> Row:
        pairs = zip(NOISE, clean, strict=True)
        found = {f"noise {noise:g}": float(np.mean((rows - test) ** 2)) for noise, rows in pairs}
        return {"name": name, "components": q, "errors": found, "seconds": seconds}

    for q in COMPONENTS:
        linear = PCA(q).fit(train)
        begun = time.perf_counter()
        clean = [linear.inverse_transform(linear.transform(Z)) for Z in noises.values()]
        yield errors("linear PCA", q, clean, (time.perf_counter() - begun) / 2)
        for how in METHODS:
            model = KernelPCA(q, kernel="rbf", gamma="median", preimage=how).fit(train)
            model.denoise(test[:1])  # what is learned once
            begun = time.perf_counter()
            clean = [model.denoise(Z) for Z in noises.values()]
            yield errors(f"kernel PCA, {how}", q, clean, (time.perf_counter() - begun) / 2)
