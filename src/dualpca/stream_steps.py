"""Online EM, one step: old sums mixed with a chunk's, the M step, the average of its results."""

from __future__ import annotations

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import ScaleError
from dualpca.incomplete_em import LEAST_NOISE
from dualpca.missing import Factors, Incomplete, Sums
from dualpca.missing_steps import m_step
from dualpca.running import recentred


def refuse_overflow(sums: Sums) -> None:
    """Raise where squares are beyond floating point."""
    xp = _array.namespace(sums.xx)
    if not bool(xp.all(xp.isfinite(sums.xx))):
        raise ScaleError(
            "X is too large: its variance overflows float64. Divide X by a constant first."
        )


def maximized(sums: Sums, factors: Factors, noise: float | None) -> Factors:
    """Take the M step; features without a value get loadings 0 and stay where they are."""
    xp, q = _array.namespace(sums.x), int(sums.z.shape[1])
    none = xp.astype(sums.n == 0, xp.float64)
    eye = _array.asarray(np.eye(q), sums.x)
    safe = sums._replace(zz=sums.zz + none[:, None, None] * eye, n=sums.n + none)
    W, mu, left = m_step(safe, factors)
    spread = sums.xx / safe.n - (sums.x / safe.n) ** 2
    least = LEAST_NOISE * float(xp.sum(spread) / xp.sum(1 - none))
    sigma2 = max(float(xp.sum(left) / xp.sum(sums.n)), least) if noise is None else noise
    return Factors(W, mu, xp.full_like(mu, sigma2))


def averaged(average: Factors, now: Factors, share: float, seen: Array) -> Factors:
    """Return the average moved towards the parameters of now, loadings turned to agree first.

    Features met just now have no past to average with.
    """
    xp = _array.namespace(now.W)
    U, _, Vt = _algebra.svd(now.W.T @ average.W)
    W, mu = now.W @ (U @ Vt), now.mu
    return Factors(
        where_positive(seen[:, None], average.W + share * (W - average.W), W),
        where_positive(seen, average.mu + share * (mu - average.mu), mu),
        xp.exp((1 - share) * xp.log(average.psi) + share * xp.log(now.psi)),
    )


def mixed(
    old: Sums, data: Incomplete | None, factors: Factors, origin: Array, gamma: float
) -> Sums:
    """Return (1 − γ)s + γ s̄ with s̄ the E step over a chunk, a unit of weight."""
    if data is None:
        return old
    with np.errstate(over="ignore", invalid="ignore"):
        now = recentred(data.sums(factors), factors.mu - origin)
        return old.times(1 - gamma).plus(now.times(gamma / total_weight(data.weights)))


def where_positive(flags: Array, yes: Array, no: Array) -> Array:
    """Return `yes` where flags are above 0 and `no` elsewhere."""
    return _array.namespace(flags).where(flags > 0, yes, no)


def total_weight(weights: Array | None) -> float:
    """Return the sum of weights, 0 for no rows at all."""
    return 0.0 if weights is None else float(_array.namespace(weights).sum(weights))
