"""What is timed, and how far each answer is from the truth. Runs in the child process."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import subspace_angles

from benchmarks.contestants import Contestant
from benchmarks.data import Problem

CHUNKS = 40  # of a stream: 2,500 rows each at 100,000 rows


class Task:
    """One contestant at work on one problem; `run` is what the clock sees."""

    measure: ClassVar[str] = ""  # what `error` means
    in_process: ClassVar[bool] = True  # whether this process's memory says anything about it

    def __init__(self, contestant: Contestant, problem: Problem | None):
        self.contestant = contestant
        self.problem: Any = problem
        self.estimator = contestant.make()
        self.result: Any = None

    def run(self) -> Any:
        raise NotImplementedError

    def error(self) -> float | None:
        """The error of the last result."""
        return None

    def seconds(self) -> float:
        self.result = None
        start = time.perf_counter()
        self.result = self.run()
        return time.perf_counter() - start


class Fit(Task):
    """Fit all rows; the largest relative error of the q eigenvalues."""

    measure = "eigenvalue"

    def run(self) -> Any:
        return self.estimator.fit(self.problem.X).explained_variance_

    def error(self) -> float:
        values = self.problem.values
        return float(np.max(np.abs(np.asarray(self.result, dtype=float) / values - 1)))


class Stream(Task):
    """Fit chunk by chunk and read the axes; the largest principal angle to the true subspace."""

    measure = "angle (rad)"

    def run(self) -> Any:
        estimator = self.contestant.make()
        X = self.problem.X
        size = -(-len(X) // CHUNKS)
        for start in range(0, len(X), size):
            estimator.partial_fit(X[start : start + size])
        return estimator.components_

    def error(self) -> float:
        return float(np.max(subspace_angles(np.asarray(self.result).T, self.problem.axes)))


class Score(Task):
    """Log-density of every row under a fitted model; the fit itself is not timed."""

    measure = "log-density"

    def __init__(self, contestant: Contestant, problem: Problem | None):
        super().__init__(contestant, problem)
        self.estimator.fit(self.problem.X)

    def run(self) -> Any:
        return self.estimator.score_samples(self.problem.X)

    def error(self) -> float:
        exact = log_density(self.problem, self.contestant.ddof)
        return float(np.max(np.abs(np.asarray(self.result) / exact - 1)))


def log_density(problem: Problem, ddof: int) -> np.ndarray:
    """The maximum-likelihood spiked Gaussian's density, from the true spectrum (trace = d)."""
    n, d = problem.X.shape
    values = problem.values * ((n - 1) / (n - ddof))
    noise = (d * ((n - 1) / (n - ddof)) - values.sum()) / (d - len(values))
    centred = problem.X - problem.mean
    y2 = (centred @ problem.axes) ** 2
    residual = np.einsum("ij,ij->i", centred, centred) - y2.sum(axis=1)
    log_det = np.log(values).sum() + (d - len(values)) * np.log(noise)
    distance = (y2 / values).sum(axis=1) + residual / noise
    return np.asarray(-0.5 * (d * np.log(2 * np.pi) + log_det + distance))


class Import(Task):
    """Import something in a fresh interpreter, without the interpreter's own start."""

    measure = "-"
    in_process = False
    script = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"

    def seconds(self) -> float:
        command = [sys.executable, "-c", self.script.format(self.estimator)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ImportError(done.stderr.strip().splitlines()[-1])
        return float(done.stdout)
