"""Second moments of float32 rows on an NVIDIA GPU, in one pass over them. Torch tensors only.

Rows less a shift are split into two float16 numbers, which carry 22 bits together, and multiplied
by the GPU's matrix units: three products replace one in float32. Sums run in float32 over the rows
of a program, in float64 over programs. Compiled by Triton on NVIDIA GPUs;
interpreted on any processor with TRITON_INTERPRET=1, which is how the tests run it.
"""

# Triton reads these functions as its own language: constants are annotated, not hinted.

from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

TILE = 128
"""Columns on either side of a tile; 64 for a table with fewer."""
LAUNCH: list[tuple[int, int, int]] = [(64, 8, 3), (64, 4, 2), (32, 4, 1)]
"""Rows at a time, warps and stages of a product; fastest on an H200 first, small GPUs last."""
ROWS_SPLIT, ROWS_EACH, STEP = 512, 2048, 64
"""Rows of a program that splits, rows of one that multiplies, and rows that either has at once."""
SLICE_ENTRIES = 2**26
"""Numbers that are split at once, into 256 MB."""
LARGEST_SEEN = 4.0
"""What the largest deviation of the rows looked at is scaled to: others may be 10,000 times as
large before float16 overflows."""
SMALLEST_SQUARE = 2.0**-12
"""Mean square of a scaled column below which float16 has too few digits for it."""


@triton.jit
def split_rows(
    X,
    shift,
    unit,
    roots,
    high,
    low,
    sums,
    n,
    d,
    stride,
    D,
    chunks,
    WEIGHTED: tl.constexpr,
    FOURS: tl.constexpr,
    ROWS: tl.constexpr,
    BK: tl.constexpr,
    BM: tl.constexpr,
):
    """Write c = √w(x − shift)·unit as two float16 numbers, Σ√w c and Σc², for a tile of columns.

    X is (n, d), high and low are (N, D), padded with zeros, and sums (2, chunks, D).
    """
    chunk = tl.program_id(1).to(tl.int64)
    if FOURS:  # four numbers are loaded at once
        stride = tl.multiple_of(stride, 4)
        d = tl.multiple_of(d, 4)
    at = tl.program_id(0) * BM + tl.arange(0, BM)
    s = tl.load(shift + at, mask=at < d, other=0.0)
    u = tl.load(unit + at, mask=at < d, other=0.0)
    total = tl.zeros((BM,), dtype=tl.float32)
    square = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, ROWS, BK):
        rows = chunk * ROWS + start + tl.arange(0, BK)
        there = rows < n
        seen = there[:, None] & (at < d)[None, :]
        c = tl.load(X + rows[:, None] * stride + at[None, :], mask=seen, other=0.0)
        c = tl.where(there[:, None], (c - s[None, :]) * u[None, :], 0.0)
        if WEIGHTED:
            root = tl.load(roots + rows, mask=there, other=0.0)
            c = c * root[:, None]
            total += tl.sum(c * root[:, None], 0)
        else:
            total += tl.sum(c, 0)
        square += tl.sum(c * c, 0)
        most = c.to(tl.float16)
        place = rows[:, None] * D + at[None, :]
        tl.store(high + place, most)
        tl.store(low + place, (c - most.to(tl.float32)).to(tl.float16))
    tl.store(sums + chunk * D + at, total)
    tl.store(sums + (chunks + chunk) * D + at, square)


@triton.jit
def split_products(high, low, scatter, D, ROWS: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr):
    """Write Σcᵢcⱼ over some rows for one tile on or below the diagonal; scatter is (chunks, D, D).

    Matrix units truncate their sums: those of BK rows are added outside of them.
    """
    pair = tl.program_id(0)
    chunk = tl.program_id(1).to(tl.int64)
    i = ((tl.sqrt(8.0 * pair.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
    i = tl.where(i * (i + 1) // 2 > pair, i - 1, i)
    i = tl.where((i + 1) * (i + 2) // 2 <= pair, i + 1, i)
    j = pair - i * (i + 1) // 2
    left = i * BM + tl.arange(0, BM)
    right = j * BM + tl.arange(0, BM)
    sums = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, ROWS, BK):
        rows = (chunk * ROWS + start + tl.arange(0, BK))[:, None] * D
        a = tl.load(high + rows + left[None, :])
        b = tl.load(high + rows + right[None, :])
        acc = tl.dot(tl.trans(tl.load(low + rows + left[None, :])), b)
        acc = tl.dot(tl.trans(a), tl.load(low + rows + right[None, :]), acc)
        acc = tl.dot(tl.trans(a), b, acc)
        sums += acc
    tl.store(scatter + (chunk * D + left[:, None]) * D + right[None, :], sums)


def second_moments(X: Any, shift: Any, weights: Any, sample: Any) -> tuple[Any, Any] | None:
    """Return Σw(x − shift) and Σw(x − shift)(x − shift)ᵀ in float64, right to 1e-6 of the largest.

    Parameters
    ----------
    X : tensor of shape (n, d)
        float32, every row contiguous.
    shift : tensor of shape (d,)
        float64, of which float32 holds every digit.
    weights : tensor of shape (n,) or None
    sample : tensor of shape (m, d)
        Some of the rows, that tell the size of deviations.

    Returns
    -------
    total, scatter : tensors of shape (d,) and (d, d), or None
        None where float16 cannot hold the deviations: some are 10,000 times as large as those of
        the sample, or nearly all far smaller.

    Notes
    -----
    O(nd²), one read of X, and 512 MB of memory. The diagonal is summed in float32, without
    splitting.
    """
    n, d = X.shape
    tile = TILE if d > TILE // 2 else TILE // 2
    D = -(-d // tile) * tile
    largest = (sample - shift.to(sample.dtype)).abs().amax(0)
    spread = torch.where(largest > 0, largest, 1.0)
    unit = torch.exp2(torch.floor(torch.log2(LARGEST_SEEN / spread)))
    about = (shift.to(torch.float32), unit.to(torch.float32))
    roots = X if weights is None else weights.sqrt().to(torch.float32)
    fours = d % 4 == 0 and X.stride(0) % 4 == 0
    step = max(1, SLICE_ENTRIES // (D * ROWS_EACH)) * ROWS_EACH
    found = []
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        given = (X[part], *about, roots if weights is None else roots[part])
        found.append(_block(given, weights is not None, fours, D, tile))
    sums, second = found[0]
    for more, products in found[1:]:
        sums, second = sums + more, second + products
    (total, square), lower = sums[:, :d], torch.tril(second[:d, :d], -1)
    size = float(n) if weights is None else weights.sum()
    few = ((square < SMALLEST_SQUARE * size) & (square > 0)).any()
    second = lower + lower.T + torch.diag(square)
    if bool(few | ~second.sum().isfinite()):
        return None
    unit = unit.to(torch.float64)
    return total / unit, second / unit[:, None] / unit


def _block(
    given: tuple[Any, ...], weighted: bool, fours: bool, D: int, tile: int
) -> tuple[Any, Any]:
    """Return the sums and the lower tiles of products of a block of rows, in float64."""
    X, tiles = given[0], D // tile
    n, d = X.shape
    chunks = -(-n // ROWS_EACH)
    N = chunks * ROWS_EACH
    high, low = torch.empty((2, N, D), dtype=torch.float16, device=X.device)
    sums = torch.empty((2, N // ROWS_SPLIT, D), dtype=torch.float32, device=X.device)
    scatter = torch.empty((chunks, D, D), dtype=torch.float32, device=X.device)
    sizes = (n, d, X.stride(0), D, N // ROWS_SPLIT, weighted, fours, ROWS_SPLIT, STEP, tile)
    split_rows[(tiles, N // ROWS_SPLIT)](*given, high, low, sums, *sizes)
    while True:
        step, warps, stages = LAUNCH[0]
        options = {"num_warps": warps, "num_stages": stages}
        grid = (tiles * (tiles + 1) // 2, chunks)
        try:
            split_products[grid](high, low, scatter, D, ROWS_EACH, step, tile, **options)
            break
        except OutOfResources:
            if len(LAUNCH) == 1:
                raise
            del LAUNCH[0]  # for good: the GPU will not grow
    return sums.sum(1, dtype=torch.float64), scatter.sum(0, dtype=torch.float64)
