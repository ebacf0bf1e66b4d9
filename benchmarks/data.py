"""Data whose principal components are known exactly, kept on disk between processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from scipy.linalg import qr

from benchmarks import kernel_data
from benchmarks.kernel_data import KernelProblem

DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "dualpca-benchmarks"
SEED = 20


@dataclass(frozen=True)
class Size:
    """What a data set looks like: n rows, d columns, q leading components to be found."""

    n: int
    d: int
    q: int = 20
    dtype: str = "float64"
    kind: str = "linear"  # or "surface", "sphere" for kernels

    def __str__(self) -> str:
        suffix = "" if self.dtype == "float64" else f" {self.dtype}"
        suffix += "" if self.kind == "linear" else f" {self.kind}"
        return f"{self.n:,}×{self.d:,}{suffix}"


@dataclass(frozen=True)
class Problem:
    """The rows, and the truth about them (always in float64)."""

    X: np.ndarray  # (n, d)
    mean: np.ndarray  # (d,)
    values: np.ndarray  # (q,) eigenvalues of the covariance, divisor n - 1
    axes: np.ndarray  # (d, q)


def generate(size: Size) -> Problem:
    """Build X = U diag(s) Vᵀ + mean with s_i² ∝ 1/i.

    U is orthonormal and orthogonal to the ones, so the sample covariance has the eigenvalues c/i
    and the axes V with no sampling error. c makes the average variance of a column 1: the trace of
    the covariance is d.
    """
    rng = np.random.default_rng(SEED)
    n, d, q = size.n, size.d, size.q
    r = min(n - 1, d)
    U = orthonormal(np.column_stack([np.ones(n), rng.standard_normal((n, r))]))[:, 1:]
    V = orthonormal(rng.standard_normal((d, r)))
    decay = 1.0 / np.arange(1, r + 1)
    values = decay * (d / decay.sum())
    mean = rng.standard_normal(d)
    X = (U * np.sqrt((n - 1) * values)) @ V.T
    X += mean
    return Problem(X.astype(size.dtype, copy=False), mean, values[:q], V[:, :q])


def orthonormal(A: np.ndarray) -> np.ndarray:
    """Orthonormal columns spanning those of A, in order, by Householder reflections."""
    Q, _ = qr(A, mode="economic", overwrite_a=True, check_finite=False)
    return np.asarray(Q)


def stored(size: Size, folder: Path) -> Path:
    """The folder that holds the data of this size, generated on first use."""
    prefix = "" if size.kind == "linear" else f"{size.kind}-"
    place = folder / f"{prefix}{size.n}x{size.d}-q{size.q}-{size.dtype}-seed{SEED}"
    if not place.exists():
        save(generate(size) if size.kind == "linear" else generate_kernel(size), place)
    return place


def generate_kernel(size: Size) -> KernelProblem:
    spherical = size.kind == "sphere"
    return kernel_data.generate(size.n, size.d, size.q, SEED, spherical=spherical)


def save(problem: Problem | KernelProblem, place: Path) -> None:
    # Renamed into place once complete, so that an interrupted run leaves no half-written data.
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=place.parent))
    for name, array in vars(problem).items():
        np.save(unfinished / f"{name}.npy", np.ascontiguousarray(array))
    try:
        os.replace(unfinished, place)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished)


def load(place: Path) -> Problem | KernelProblem:
    """Read into ordinary memory (not mapped), so that every page is resident before timing."""
    kind = KernelProblem if (place / "gamma.npy").exists() else Problem
    return kind(*(np.load(place / f"{field.name}.npy") for field in fields(kind)))
