"""One pass over a kernel that is never stored: distances, kernel function and product in one go.

Programs read tiles of rows as attention does, without its softmax. Compiled by Triton on NVIDIA
GPUs; interpreted on any processor with TRITON_INTERPRET=1, which is how the tests run them.
"""

# Triton reads these functions as its own language: constants are annotated, not hinted.

import triton
import triton.language as tl

__all__ = ["fused_pass", "taxicab_pass"]

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def profile(E, p0, lift, SHAPE: tl.constexpr, DEGREE: tl.constexpr):
    """Return 2^lift times the kernel from the exponent −u, or the kernel from an inner product.

    Rounding may leave −u a little above 0; the value is then above its largest by as little. This
    runs n² times: every instruction is seen in the time of a pass.
    """
    if SHAPE == "inner":
        t = E + p0
        P = t
        for _ in tl.static_range(1, DEGREE):
            P = P * t
    elif SHAPE == "exp":  # rows carry the factor √log₂e, norms the lift
        P = tl.exp2(E)
    elif SHAPE == "rational":
        P = tl.exp2(lift - p0 * tl.log2(1.0 - tl.minimum(E, 0.0)))
    else:  # rows carry the factor log₂e
        t = tl.sqrt(tl.abs(E))
        P = tl.exp2(lift - t)
        if SHAPE == "matern3":
            P = P * (1.0 + LN2 * t)
        if SHAPE == "matern5":
            P = P * (1.0 + t * (LN2 + (LN2 * LN2 / 3.0) * t))
    return P


@triton.jit
def times(P, V, V_low, acc, where, MODE: tl.constexpr):
    """Return acc + P V, V given transposed, in the precision of the mode."""
    v = tl.trans(tl.load(V + where))
    if MODE == "half":
        acc = tl.dot(P.to(tl.float16), v, acc)
    elif MODE == "halfx3":
        high = P.to(tl.float16)
        low = (P - high.to(tl.float32)).to(tl.float16)
        acc = tl.dot(low, v, acc)
        acc = tl.dot(high, tl.trans(tl.load(V_low + where)), acc)
        acc = tl.dot(high, v, acc)
    else:
        acc = tl.dot(P, v, acc, input_precision=MODE)
    return acc


@triton.jit
def fused_pass(
    A,
    A_low,
    a,
    B,
    B_low,
    b,
    V,
    V_low,
    Y,
    m,
    p0,
    lift,
    D: tl.constexpr,
    BD: tl.constexpr,
    W: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    INNER: tl.constexpr,
    SHAPE: tl.constexpr,
    DEGREE: tl.constexpr,
    MODE: tl.constexpr,
):
    """Write Y = 2^lift k(A, B) V for BM rows: (n, D), (m, D), (W, m) and (n, W) in float64.

    Sizes are padded to whole tiles. Sums run in float32 over BN·INNER columns, then in float64.
    """
    first = tl.program_id(0).to(tl.int64) * BM
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BD)
    w = tl.arange(0, W)
    rows = first * D + i[:, None] * D + k[None, :]
    columns = j[:, None] * D + k[None, :]
    total = tl.zeros((BM, W), dtype=tl.float64)
    na = tl.load(a + first + i)
    if SHAPE == "exp":
        na = na - lift
    ONCE: tl.constexpr = D == BD
    if ONCE:
        x = tl.load(A + rows)
        if MODE == "halfx3":
            x_low = tl.load(A_low + rows)
    for outer in range(0, m, BN * INNER):
        acc = tl.zeros((BM, W), dtype=tl.float32)
        for start in range(outer, min(outer + BN * INNER, m), BN):
            here = tl.cast(start, tl.int64)
            S = tl.zeros((BM, BN), dtype=tl.float32)
            for c in tl.static_range(0, D, BD):
                if not ONCE:
                    x = tl.load(A + rows + c)
                    if MODE == "halfx3":
                        x_low = tl.load(A_low + rows + c)
                y = tl.trans(tl.load(B + here * D + columns + c))
                if MODE == "half":
                    S = tl.dot(x, y, S)
                elif MODE == "halfx3":
                    y_low = tl.trans(tl.load(B_low + here * D + columns + c))
                    S = tl.dot(x_low, y, S)
                    S = tl.dot(x, y_low, S)
                    S = tl.dot(x, y, S)
                else:
                    S = tl.dot(x, y, S, input_precision=MODE)
            if SHAPE != "inner":
                both = na[:, None] + tl.load(b + here + j)[None, :]
                S = S - both
                if SHAPE == "matern1":  # not smooth at 0: what is within rounding of it is 0
                    S = tl.where(S > -1e-6 * both, 0.0, S)
            P = profile(S, p0, lift, SHAPE, DEGREE)
            where = w[:, None] * tl.cast(m, tl.int64) + (here + j)[None, :]
            acc = times(P, V, V_low, acc, where, MODE)
        total += acc.to(tl.float64)
    tl.store(Y + (first + i)[:, None] * W + w[None, :], total)


@triton.jit
def taxicab_pass(
    A,
    B,
    V,
    V_low,
    Y,
    m,
    lift,
    D: tl.constexpr,
    W: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    INNER: tl.constexpr,
    MODE: tl.constexpr,
):
    """Write Y = exp2(lift − Σ_c |a_c − b_c|) V likewise; A and B are transposed, (D, n), (D, m)."""
    first = tl.program_id(0).to(tl.int64) * BM
    n = tl.num_programs(0).to(tl.int64) * BM
    i, j, w = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, W)
    total = tl.zeros((BM, W), dtype=tl.float64)
    for outer in range(0, m, BN * INNER):
        acc = tl.zeros((BM, W), dtype=tl.float32)
        for start in range(outer, min(outer + BN * INNER, m), BN):
            here = tl.cast(start, tl.int64)
            S = tl.zeros((BM, BN), dtype=tl.float32)
            for c in tl.range(0, D, loop_unroll_factor=8):
                x = tl.load(A + c * n + first + i)
                y = tl.load(B + tl.cast(c, tl.int64) * m + here + j)
                S += tl.abs(x[:, None] - y[None, :])
            where = w[:, None] * tl.cast(m, tl.int64) + (here + j)[None, :]
            acc = times(tl.exp2(lift - S), V, V_low, acc, where, MODE)
        total += acc.to(tl.float64)
    tl.store(Y + (first + i)[:, None] * W + w[None, :], total)
