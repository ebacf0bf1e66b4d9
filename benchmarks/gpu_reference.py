"""An eigensolver of its own for a million points: what the fast one is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.gpu import BLOCK, SETTINGS, D, Q, rows_of, synchronised, worst
from benchmarks.run import Row, Run


def reference(run: Run) -> Iterator[Row]:
    """Compare with an eigensolver written here alone: float64 tiles and a plain block Krylov space.

    Nothing of it is the library's. An eigenvalue lies within the residual of every Ritz value.
    """
    from dualpca import KernelPCA

    n = 20_000 if run.quick else 1_000_000
    for spherical, count in ((False, 7), (True, 9)):
        X = rows_of(n, spherical=spherical)
        gamma = 1.0 / (D * float(X.var()))
        (values, residuals), seconds = synchronised(
            lambda X=X, g=gamma, c=count: plain_eigenvalues(X.double(), g, c)
        )
        name = f"kernel PCA, {n:,}×{D}, {'normal rows' if spherical else 'near a surface'}"
        for setting, options in SETTINGS.items():
            fast = KernelPCA(Q, kernel="rbf", gamma=gamma, copy_X=False, **options).fit(X)
            error = worst(fast.eigenvalues_.double(), values)
            about = {"name": name + setting, "error": error, "seconds": seconds}
            yield about | {"residual": float(residuals.max()), "passes": count}


def plain_eigenvalues(X: Any, gamma: float, steps: int) -> tuple[Any, Any]:
    """Return the leading eigenvalues of the centred RBF matrix, and relative residuals."""
    import torch

    draw = torch.Generator(device="cuda").manual_seed(7)
    V = torch.randn(X.shape[0], BLOCK, device="cuda", dtype=torch.float64, generator=draw)
    basis, images = [], []
    for _ in range(steps):
        V -= V.mean(0)
        for _ in range(2):
            for B in basis:
                V -= B @ (B.T @ V)
        V = torch.linalg.qr(V)[0]
        Z = plain_product(X, gamma, V)
        Z -= Z.mean(0)
        basis.append(V)
        images.append(Z)
        V = Z.clone()
    B, A = torch.cat(basis, dim=1), torch.cat(images, dim=1)
    T = B.T @ A
    values, U = torch.linalg.eigh((T + T.T) / 2)
    values, U = values.flip(0)[:Q], U.flip(1)[:, :Q]
    return values, (A @ U - (B @ U) * values).norm(dim=0) / values


def plain_product(X: Any, gamma: float, V: Any, step: int = 8192) -> Any:
    """Return exp(−γ‖x − y‖²) V tile by tile; the exponent is one product of longer rows."""
    import torch

    size = -gamma * (X * X).sum(1, keepdim=True)
    one = torch.ones_like(size)
    left = torch.cat([(2 * gamma) ** 0.5 * X, size, one], dim=1)
    right = torch.cat([(2 * gamma) ** 0.5 * X, one, size], dim=1)
    Y = torch.zeros_like(V)
    for i in range(0, X.shape[0], step):
        for j in range(0, X.shape[0], step):
            K = (left[i : i + step] @ right[j : j + step].T).exp_()
            Y[i : i + step] += K @ V[j : j + step]
    return Y
