"""Points prepared for fused passes, and the passes launched. Torch tensors only.

A float16 number carries the 11 bits of a TF32 one, and the GPU multiplies it twice as fast; what
float16 lacks is range, which scaling by powers of two mends where kernel values are at most 1. So
'half' replaces TF32 and 'halfx3', the sum of three products of high and low parts, for 3×TF32
(float32 accuracy). Kernels without a bound use 'tf32' and 'tf32x3'.

In the coarse modes points are rounded first and distances are those of the rounded points: what
is multiplied is the kernel matrix of points that moved by 1 part in 4,096.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import torch
from triton.runtime.errors import OutOfResources

from dualpca.arrays import Array, backend
from dualpca.errors import BackendError
from dualpca.kernels import fused_passes as passes
from dualpca.kernels.base import Form

PADDED_TO = 128
"""Numbers of points are padded to multiples of this."""
INNER = {"half": 64, "halfx3": 8, "tf32": 64, "tf32x3": 8}
"""Tiles summed in float32 before float64 takes over: tensor cores truncate, which adds up."""
CHUNKS = (64, 32, 16)
WIDTHS = (16, 32, 64)
ROWS_AT_ONCE = 2**17
LIFT = 10.0
"""The power of two in values of 16 bits, so that small ones are not lost."""
LARGEST_EXPONENT = 512.0
"""The largest exponent −log k between a point and the middle: float32 is wrong by 6e-5 there."""

LAUNCH: dict[str, list[tuple[int, int, int, int]]] = {
    "half": [(128, 128, 4, 3), (128, 64, 4, 2), (64, 64, 4, 1)],
    "halfx3": [(128, 64, 4, 3), (128, 64, 4, 2), (64, 64, 4, 1)],
    "tf32": [(128, 64, 4, 3), (128, 64, 8, 2), (64, 32, 4, 1)],
    "tf32x3": [(128, 128, 8, 3), (128, 64, 8, 2), (64, 32, 4, 1)],
}
"""Rows and columns of a tile, warps, stages; fastest on an H200 first, small GPUs last."""
TAXICAB = [(64, 128, 2, 3), (64, 64, 4, 1)]
"""The same for sums of absolute differences, in every mode: the adders are what is busy."""


_launching = Lock()
"""Held while a program is compiled or launched: several GPUs have a thread each."""


class Operand(NamedTuple):
    """Points as the programs read them, padded with zeros to whole tiles."""

    high: Array  # (N, D), or (D, N) for sums of absolute differences
    low: Array
    half_norms: Array  # (N,)
    n: int
    mode: str


def modes(form: Form) -> tuple[str, str]:
    """Return the coarse and the accurate mode of a form."""
    return ("half", "halfx3") if form.bounded else ("tf32", "tf32x3")


def too_wide(X: Array, form: Form, origin: Array) -> bool:
    """Return True if distances between points are so large that float32 has no digits left."""
    if not form.bounded:
        return False
    largest = 0.0
    for rows in backend.slices(X.shape[0], ROWS_AT_ONCE):
        A = (X[rows].to(torch.float64) - origin) * form.factor
        size = A.abs().sum(1) if form.shape == "taxicab" else 0.5 * (A * A).sum(1)
        largest = max(largest, float(size.max()))
    return not largest < LARGEST_EXPONENT


def prepare(X: Array, form: Form, mode: str, origin: Array) -> Operand:
    """Return the points, multiplied by the factor of the form, in the precision of the mode."""
    n, d = X.shape
    if form.shape == "taxicab":
        flat = torch.zeros((d, padded(n, PADDED_TO)), dtype=torch.float32, device=X.device)
        flat[:, :n] = ((X - origin).to(torch.float64) * form.factor).T
        return Operand(flat, flat, flat[0], n, mode)
    kind = torch.float16 if mode.startswith("half") else torch.float32
    shape = (padded(n, PADDED_TO), padded(d, chunk_of(d)))
    high = torch.zeros(shape, dtype=kind, device=X.device)
    low = torch.zeros_like(high) if mode == "halfx3" else high
    norms = torch.zeros(shape[0], dtype=torch.float32, device=X.device)
    for rows in backend.slices(n, ROWS_AT_ONCE):
        A = (X[rows].to(torch.float64) - origin) * form.factor
        coarse = rounded_points(A, mode)
        high[rows, :d] = coarse
        if mode == "halfx3":
            low[rows, :d] = (A - coarse.to(torch.float64)).to(kind)
        seen = coarse.to(torch.float64) if mode in ("half", "tf32") else A
        norms[rows] = (0.5 * (seen * seen).sum(1)).to(torch.float32)
    return Operand(high, low, norms, n, mode)


def rounded_points(A: Array, mode: str) -> Array:
    """Return coordinates in the precision that the products of a mode see."""
    if mode.startswith("half"):
        return A.to(torch.float16)
    single = A.to(torch.float32)
    if mode == "tf32x3":
        return single
    bits = single.view(torch.int32)  # to the nearest of the 11 bits that TF32 keeps
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def multiply(form: Form, rows: Operand, columns: Operand, V: Array) -> Array:
    """Return k(rows, columns) V, (n, b), in float64."""
    lift, n = LIFT if rows.mode.startswith("half") else 0.0, rows.half_norms.shape[0]
    parts = []
    for part in V.split(WIDTHS[-1], dim=1):
        high, low, scale = _block(part, columns, rows.mode)
        Y = torch.empty((n, high.shape[0]), dtype=torch.float64, device=V.device)
        with _launching, torch.cuda.device(V.device if V.is_cuda else -1):  # as Triton looks there
            _launch(form, rows, columns, high, low, Y, lift)
        parts.append(Y[: rows.n, : part.shape[1]] / (2.0**lift * scale))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _block(V: Array, columns: Operand, mode: str) -> tuple[Array, Array, Array]:
    """Return Vᵀ in high and low parts, padded, and the power of two in every row."""
    b, m = V.shape[1], columns.half_norms.shape[0]
    width = next(w for w in WIDTHS if w >= b)
    half, scale = mode.startswith("half"), torch.ones(b, dtype=torch.float64, device=V.device)
    if half:
        largest = V.abs().amax(0).to(torch.float64)
        scale = torch.exp2(LIFT - torch.floor(torch.log2(torch.where(largest > 0, largest, 1.0))))
    kind = torch.float16 if half else torch.float32
    high = torch.zeros((width, m), dtype=kind, device=V.device)
    scaled = (V * scale).T
    high[:b, : columns.n] = scaled
    low = high
    if mode == "halfx3":
        low = torch.zeros_like(high)
        low[:b, : columns.n] = scaled - high[:b, : columns.n].to(torch.float64)
    return high, low, scale


def _launch(
    form: Form, rows: Operand, columns: Operand, high: Array, low: Array, Y: Array, lift: float
) -> None:
    """Run the program with the first of its settings that fits on the GPU."""
    taxicab, mode = form.shape == "taxicab", rows.mode
    settings = TAXICAB if taxicab else LAUNCH[mode]
    while True:
        BM, BN, warps, stages = settings[0]
        grid, options = (Y.shape[0] // BM,), {"num_warps": warps, "num_stages": stages}
        m, W = columns.half_norms.shape[0], high.shape[0]
        try:
            if taxicab:
                D, points = rows.high.shape[0], (rows.high, columns.high, high, low, Y, m, lift)
                passes.taxicab_pass[grid](*points, D, W, BM, BN, INNER[mode], mode, **options)
            else:
                D, words = rows.high.shape[1], (form.shape, form.degree, mode)
                both = (*rows[:3], *columns[:3], high, low, Y, m, form.constant, lift)
                sizes = (D, chunk_of(D), W, BM, BN, INNER[mode])
                passes.fused_pass[grid](*both, *sizes, *words, **options)
            return
        except OutOfResources as error:
            if len(settings) == 1:
                raise BackendError(
                    f"a fused kernel pass does not fit on this GPU ({error}). Use "
                    "dtype='float64', which works through tiles."
                ) from error
            del settings[0]  # for good: the GPU will not grow


def padded(length: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below."""
    return -(-length // step) * step


def chunk_of(d: int) -> int:
    """Return how many columns to multiply at once: the most that pads with the fewest zeros."""
    return min(CHUNKS, key=lambda step: (padded(d, step), -step))
