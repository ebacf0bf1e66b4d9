"""Who is measured: dualpca and scikit-learn, each built by name inside the child process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

Q = 20


@dataclass(frozen=True)
class Contestant:
    """A name for the table and a function (picklable) that builds the estimator."""

    name: str
    make: Callable[[], Any]
    ours: bool = False
    ddof: int = 1  # divisor of its covariance is n - ddof


def build(path: str, **options: Any) -> Any:
    """Build ``module.Class(Q, **options)``; the module is imported here, in the child alone."""
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)(Q, **options)


def ours(name: str, label: str = "", ddof: int = 1, **options: Any) -> Contestant:
    make = partial(build, f"dualpca.{name}", **options)
    return Contestant(f"dualpca {label or name}", make, ours=True, ddof=ddof)


def peer(name: str, label: str = "", **options: Any) -> Contestant:
    make = partial(build, f"sklearn.decomposition.{name}", **options)
    return Contestant(f"sklearn {label or name}", make)


def solver(name: str, **options: Any) -> Contestant:
    label = " ".join([name, *(f"{key}={value}" for key, value in options.items())])
    return peer("PCA", label, svd_solver=name, random_state=0, **options)


OURS = (
    ours("PCA", "PCA(20)", random_state=0),
    ours("PCA", "PCA(20, tol=1e-8)", tol=1e-8, random_state=0),
)
# arpack takes a tolerance too, and without one our tol=1e-8 would have no fair opponent: on this
# spectrum 0.01 (of the residual) saves a third of the passes and still leaves errors below 1e-8.
MATRIX_FREE_SOLVERS = (
    solver("full"),
    solver("arpack"),
    solver("arpack", tol=0.01),
    solver("randomized"),
    solver("randomized", iterated_power=10, n_oversamples=40),
)
ALL_SOLVERS = (solver("covariance_eigh"), *MATRIX_FREE_SOLVERS)
STREAMS = (ours("PCA", "PCA.partial_fit"), peer("IncrementalPCA", "IncrementalPCA.partial_fit"))
SCORERS = (
    ours("PPCA", "PPCA.score_samples", ddof=0),
    peer("PCA", "PCA.score_samples", svd_solver="covariance_eigh"),
)


KERNEL_Q = 10


def kernel(path: str, label: str, **options: Any) -> Contestant:
    """Kernel PCA; the width is the problem's, set by the task."""
    options = {"kernel": "rbf", "n_components": KERNEL_Q, "random_state": 0, **options}
    make = partial(named, f"{path}.KernelPCA", **options)
    return Contestant(f"{path.split('.')[0]} {label}", make, ours=path == "dualpca")


def named(path: str, **options: Any) -> Any:
    """Build ``module.Class(**options)`` in the child."""
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)(**options)


def nystrom_and_pca() -> Any:
    """Build scikit-learn's way to approximate kernel PCA."""
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline

    return make_pipeline(Nystroem("rbf", n_components=500, random_state=0), PCA(KERNEL_Q))


SK = "sklearn.decomposition"
KERNEL_OURS = (
    kernel("dualpca", "KernelPCA"),
    kernel("dualpca", "KernelPCA(tol=1e-8)", tol=1e-8),
    kernel("dualpca", "KernelPCA(dtype='float32')", dtype="float32"),
    kernel("dualpca", "KernelPCA(tol=1e-8, dtype='float32')", tol=1e-8, dtype="float32"),
)
KERNEL_ARPACK = (
    kernel(SK, "arpack", eigen_solver="arpack"),
    kernel(SK, "arpack tol=1e-4", eigen_solver="arpack", tol=1e-4),
    kernel(SK, "arpack tol=1e-2", eigen_solver="arpack", tol=1e-2),
    kernel(SK, "randomized iterated_power=20", eigen_solver="randomized", iterated_power=20),
)
KERNEL_SOLVERS = (kernel(SK, "auto (dense)"), *KERNEL_ARPACK)
KERNEL_FREE = (kernel("dualpca", "KernelPCA(tol=1e-4), matrix-free", tol=1e-4),)
KERNEL_MAPS = (
    kernel("dualpca", "KernelPCA.transform", tol=1e-8),
    kernel(SK, "KernelPCA.transform", eigen_solver="arpack"),
)
KERNEL_INVERSES = (
    kernel("dualpca", "KernelPCA(fit_inverse_transform=True)", tol=1e-8),
    kernel(SK, "KernelPCA(fit_inverse_transform=True)", eigen_solver="arpack", tol=1e-4),
)
NYSTROM = (
    kernel("dualpca", "nystrom, uniform", eigen_solver="nystrom", landmarks="uniform"),
    kernel("dualpca", "nystrom, k-means", eigen_solver="nystrom", landmarks="kmeans"),
    kernel("dualpca", "pivoted Cholesky", eigen_solver="cholesky"),
    Contestant("sklearn Nystroem + PCA", nystrom_and_pca),
)


def statement(words: str) -> Contestant:
    """An import in a fresh process."""
    return Contestant(words, partial(str, words), ours="dualpca" in words)


IMPORTS = (
    statement("from dualpca import PCA"),
    statement("from sklearn.decomposition import PCA"),
)
