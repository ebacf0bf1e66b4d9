"""Kernel PCA against the clock: fitting, transforming, learning the way back."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.contestants import Contestant
from benchmarks.data import Problem
from benchmarks.tasks import Task


class KernelFit(Task):
    """Fit all rows; the largest relative error of the q eigenvalues."""

    measure = "eigenvalue"

    def __init__(self, contestant: Contestant, problem: Problem | None):
        super().__init__(contestant, problem)
        gamma = float(np.ravel(self.problem.gamma)[0])
        pipeline = hasattr(self.estimator, "steps")
        self.estimator.set_params(**{"nystroem__gamma" if pipeline else "gamma": gamma})

    def run(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return eigenvalues(self.estimator.fit(self.problem.X), len(self.problem.X))

    def error(self) -> float:
        return float(np.max(np.abs(np.asarray(self.result) / self.problem.values - 1)))


def eigenvalues(model: Any, n: int) -> np.ndarray:
    """Eigenvalues of the centred kernel; of scikit-learn's pipeline, from PCA's variances."""
    if hasattr(model, "eigenvalues_"):
        return np.asarray(model.eigenvalues_)
    return np.asarray(model[-1].explained_variance_ * (n - 1))


class KernelTransform(KernelFit):
    """Project 10,000 new points; the fit is not timed."""

    measure = "-"

    def __init__(self, contestant: Contestant, problem: Problem | None):
        super().__init__(contestant, problem)
        self.estimator.fit(self.problem.X)

    def run(self) -> Any:
        return self.estimator.transform(self.problem.new)

    def error(self) -> None:  # type: ignore[override]
        return None


class KernelInverse(KernelFit):
    """Fit with a learned inverse."""

    measure = "-"

    def __init__(self, contestant: Contestant, problem: Problem | None):
        super().__init__(contestant, problem)
        self.estimator.set_params(fit_inverse_transform=True)

    def error(self) -> None:  # type: ignore[override]
        return None
