"""What one graphics card does: `python -m benchmarks.gpu [name ...]`, names as in `main`.

Runs nothing without a card. Times are of the second call (the first compiles and is printed
too), with the card synchronised; memory is torch's peak beyond what the data take.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

Q, D, BLOCK = 10, 64, 32
LATENT, NOISE = 8, 0.3


def synchronised(work: Callable[[], Any]) -> tuple[Any, float]:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return result, time.perf_counter() - start


def worst(found: Any, wanted: Any) -> float:
    """Return the largest relative difference."""
    return float(((found - wanted) / wanted).abs().max())


def rows(n: int, *, spherical: bool) -> Any:
    """Return float32 rows on the card: near a surface of 8 dimensions, or standard normal."""
    import torch

    draw = torch.Generator(device="cuda").manual_seed(0)
    noise = torch.randn(n, D, device="cuda", generator=draw)
    if spherical:
        return noise
    W = np.random.default_rng(0).standard_normal((LATENT, D)) / np.sqrt(LATENT)
    scale = torch.linspace(2.0, 0.6, LATENT, device="cuda")
    Z = torch.randn(n, LATENT, device="cuda", generator=draw) * scale
    return Z @ torch.asarray(W, dtype=torch.float32, device="cuda") + NOISE * noise


def passes(n: int = 1_000_000) -> None:
    """Time one fused pass, and a large matrix product in the same precision."""
    import torch

    from dualpca.kernels import RBF, Laplacian, Matern, Polynomial, fused_form
    from dualpca.kernels import fused_product as product

    X = rows(n, spherical=True)
    V = torch.randn(n, BLOCK, device="cuda", dtype=torch.float64)
    some = torch.arange(0, n, n // 256, device="cuda")
    jobs = [(RBF(gamma=1 / D), mode) for mode in product.LAUNCH]
    jobs += [(Matern(length_scale=8.0), "half"), (Matern(length_scale=8.0), "halfx3")]
    jobs += [(Laplacian(gamma=1 / D), "half"), (Laplacian(gamma=1 / D), "halfx3")]
    jobs += [(Polynomial(degree=3), "tf32"), (Polynomial(degree=3), "tf32x3")]
    limits = {mode: matrix_rate(mode) for mode in product.LAUNCH}
    for kernel, mode in jobs:
        form = fused_form(kernel, X)
        assert form is not None
        origin = X.double().mean(0) * (1.0 if kernel.invariant else 0.0)
        part = product.prepare(X, form, mode, origin)
        product.multiply(form, part, part, V[:, :BLOCK])
        Y, seconds = synchronised(lambda p=part, f=form: product.multiply(f, p, p, V))
        wanted = kernel(X[some].double(), X.double()) @ V
        error = float((Y[some] - wanted).norm() / wanted.norm())
        share = 2.0 * n * n * (D + BLOCK) / seconds / limits[mode]
        name = f"{type(kernel).__name__} {mode}"
        limit = f"{100 * share:.0f} % of {limits[mode] / 1e12:.0f} TFLOP/s"
        print(f"| {name} | {seconds:.2f} s | error {error:.1e} | {limit} |", flush=True)


def matrix_rate(mode: str, order: int = 8192) -> float:
    """Return multiply-adds ×2 a second of a square product; a third of it for three products."""
    import torch

    half = mode.startswith("half")
    torch.backends.cuda.matmul.allow_tf32 = True
    A = torch.randn(order, order, device="cuda", dtype=torch.float16 if half else torch.float32)
    for _ in range(3):
        A @ A
    _, seconds = synchronised(lambda: [A @ A for _ in range(10)])
    torch.backends.cuda.matmul.allow_tf32 = False
    return 2.0 * order**3 * 10 / seconds / (3 if mode.endswith("x3") else 1)


def kernel(sizes: tuple[int, ...] = (100_000, 1_000_000)) -> None:
    """Time exact kernel PCA and certify its eigenvalues by a residual in float64."""
    import torch

    from dualpca import KernelPCA

    for n in sizes:
        for spherical in (False, True):
            X = rows(n, spherical=spherical)
            gamma = 1.0 / (D * float(X.var()))
            model = KernelPCA(Q, kernel="rbf", gamma=gamma, tol=1e-4, copy_X=False)
            _, first = synchronised(lambda m=model, X=X: m.fit(X))
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            _, seconds = synchronised(lambda m=model, X=X: m.fit(X))
            peak = (torch.cuda.max_memory_allocated() - held) / 2**30
            what = "normal" if spherical else "surface"
            print(
                f"| {what} {n:,}×{D}, q = {Q} | {seconds:.2f} s (first {first:.1f}) | "
                f"{peak:.2f} GiB |",
                flush=True,
            )
            print(
                "  eigenvalues", model.eigenvalues_.cpu().numpy().round(2).tolist(), model.solver_
            )
            certify(model, X)


def certify(model: Any, X: Any) -> None:
    """Print bounds of relative eigenvalue errors from residuals in float64.

    Some eigenvalue lies within ρ of θ, and within ρ²/gap where the others are a gap away.
    """
    import torch

    from dualpca.kernels import RBF
    from dualpca.operators.dual import Dual, Gram

    E = torch.linalg.qr(model.eigenvectors_.double())[0]
    operator = Dual(Gram(X, RBF(gamma=model.gamma_)))
    Z, seconds = synchronised(lambda: operator @ E)
    T = E.T @ Z
    theta = torch.linalg.eigvalsh((T + T.T) / 2).flip(0)
    given = model.eigenvalues_.double()
    rho = (Z - E @ T).norm(dim=0) / theta
    print(
        f"  against float64 Ritz values on the same span: {worst(given, theta):.1e};",
        end=" ",
    )
    print(
        f"relative residuals up to {float(rho.max()):.1e} (a float64 pass took {seconds:.1f} s)",
        flush=True,
    )


def tight(n: int = 100_000) -> None:
    """Compare with eigenvalues at tol 1e-10 in float64."""
    from dualpca import KernelPCA

    for spherical in (False, True):
        X = rows(n, spherical=spherical)
        gamma = 1.0 / (D * float(X.var()))
        fast = KernelPCA(Q, kernel="rbf", gamma=gamma, tol=1e-4).fit(X)
        exact, seconds = synchronised(
            lambda X=X, g=gamma: KernelPCA(
                Q, kernel="rbf", gamma=g, tol=1e-10, dtype="float64"
            ).fit(X.double())
        )
        a, b = fast.eigenvalues_.double(), exact.eigenvalues_.double()
        print(
            f"| {n:,} | relative error {worst(a, b):.1e} | float64 took {seconds:.1f} s |",
            flush=True,
        )


def dense(n: int = 20_000) -> None:
    """Time the stored float64 route against torch's full eigendecomposition."""
    import torch

    from dualpca import KernelPCA

    X = rows(n, spherical=False).double()
    gamma = 1.0 / (D * float(X.var()))
    for kind in (torch.float64, torch.float32):
        name = str(kind).removeprefix("torch.")
        model = KernelPCA(
            Q, kernel="rbf", gamma=gamma, dtype=name, tol=0.0 if name == "float64" else 1e-6
        )
        _, first = synchronised(lambda m=model, k=kind: m.fit(X.to(k)))
        _, ours = synchronised(lambda m=model, k=kind: m.fit(X.to(k)))
        K = torch.exp(-gamma * torch.cdist(X, X) ** 2)
        K = (K - K.mean(0) - K.mean(1)[:, None] + K.mean()).to(kind)
        torch.linalg.eigh(K[:2000, :2000])
        (values, _), theirs = synchronised(lambda A=K: torch.linalg.eigh(A))
        error = worst(model.eigenvalues_, values.flip(0)[:Q])
        print(
            f"| {n:,} {name} | {ours:.2f} s (first {first:.1f}) | eigh {theirs:.2f} s | "
            f"{ours / theirs:.2f} × | difference {error:.1e} | {model.solver_}",
            flush=True,
        )


def missing(n: int = 1_000_000, d: int = 100) -> None:
    """Time EM steps of PPCA with a fifth of the entries missing, on the card and on 2 cores."""
    import torch

    draw = torch.Generator(device="cuda").manual_seed(0)
    W = torch.randn(Q, d, device="cuda", generator=draw, dtype=torch.float64)
    X = torch.randn(n, Q, device="cuda", generator=draw, dtype=torch.float64) @ W
    X += torch.randn(n, d, device="cuda", generator=draw, dtype=torch.float64)
    X[torch.rand(n, d, device="cuda", generator=draw) < 0.2] = torch.nan
    card = step_seconds(X, (3, 13))
    with threadpool_limits(2):
        host = step_seconds(X.cpu().numpy(), (3, 6))
    print(f"| {n:,}×{d}, q = {Q}, 20 % missing | {1e3 * card:.0f} ms a step |", end=" ")
    print(f"2 cores {host:.2f} s | {host / card:.0f} × |", flush=True)


def step_seconds(X: Any, steps: tuple[int, int]) -> float:
    """Return the time of one EM step: that of many less that of few, over the difference."""
    from dualpca import PPCA

    spent = []
    for count in steps:
        model = PPCA(Q, max_iter=count, tol=0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spent.append(min(synchronised(lambda m=model: m.fit(X))[1] for _ in range(2)))
    return (spent[1] - spent[0]) / (steps[1] - steps[0])


def main() -> None:
    import torch

    if not torch.cuda.is_available():
        sys.exit("benchmarks.gpu needs an NVIDIA card and torch with CUDA; none was found.")
    print(torch.cuda.get_device_name(), torch.__version__)
    from benchmarks.gpu_choice import choice
    from benchmarks.gpu_reference import reference

    jobs = {f.__name__: f for f in (passes, kernel, tight, reference, dense, missing, choice)}
    for name in sys.argv[1:] or jobs:
        print(f"## {name}", flush=True)
        jobs[name]()


if __name__ == "__main__":
    main()
