"""How many components: rules that read a spectrum (MATH 5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import integrate, linalg, optimize, special

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.gaussian import LOG_2PI, free_parameters
from dualpca.rules import ROUNDING, left_over

Vector = np.ndarray[Any, np.dtype[np.float64]]
Rule = Callable[..., int]

RULES: dict[str, Rule] = {}
"""Name to rule: (eigenvalues λ, trace, dim, n, rng) ↦ q. Registered by definition."""

QUANTILE, DRAWS = 0.95, 200


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule under its name."""

    def register(function: Rule) -> Rule:
        RULES[name] = function
        return function

    return register


def choose(name: str, values: Array, trace: float, dim: int, n: float, seed: int = 0) -> int:
    """Return the number of components that a rule finds in a spectrum.

    Parameters
    ----------
    name : {'evidence', 'bic', 'parallel', 'gavish-donoho'}
    values : array of shape (m,)
        All non-zero eigenvalues λ, largest first.
    trace : float
        Sum of all eigenvalues.
    dim : int
        r, the dimension of the noise.
    n : float
        Effective number of points.
    seed : int
        For the rules that simulate.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> X[:, :2] *= [7.0, 5.0]
    >>> lam = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    >>> [choose(name, lam, lam.sum(), 20, 100) for name in RULES]
    [2, 2, 2, 2]
    """
    if name not in RULES:
        raise ValueError(expected("the rule", f"one of {[*sorted(RULES), 'cv']}", name))
    lam = np.asarray(_array.to_numpy(values), dtype=np.float64)
    lam = lam[lam > ROUNDING * max(trace, 0.0)]
    if lam.size < 2:
        return int(lam.size)
    return RULES[name](lam, trace, dim, n, np.random.default_rng(seed))


def candidates(lam: Vector, trace: float, dim: int) -> range:
    """Return the q ≥ 0 that leave a positive noise variance."""
    explained = np.cumsum(lam)
    most = next(
        (q for q in range(lam.size, 0, -1) if q < dim and left_over(trace, explained[q - 1]) > 0), 0
    )
    return range(most + 1)


def profile(lam: Vector, trace: float, dim: int, n: float) -> Vector:
    """Return the maximal log-likelihood of every candidate q = 0, 1, … at once (MATH 2.3)."""
    q = np.array(candidates(lam, trace, dim))
    explained = np.concatenate([[0.0], np.cumsum(lam)])[q]
    logs = np.concatenate([[0.0], np.cumsum(np.log(lam / n))])[q]
    sigma2 = (trace - explained) / (n * (dim - q))
    return np.asarray(-0.5 * n * (dim * LOG_2PI + logs + (dim - q) * np.log(sigma2) + dim))


@rule("evidence")
def evidence(lam: Vector, trace: float, dim: int, n: float, rng: np.random.Generator) -> int:
    """Return the q of largest Laplace evidence (Minka 2000, Eq. 30); never 0."""
    scores = log_evidence(lam, trace, dim, n)
    return 1 + int(np.argmax(scores)) if scores.size else 1


def log_evidence(lam: Vector, trace: float, dim: int, n: float) -> Vector:
    """Return Minka's Laplace approximation of ln p(X | q) for q = 1, 2, …, in O(d²).

    The discarded eigenvalues enter twice: as themselves in the Hessian, and through their mean v
    everywhere else. Eigenvalues that are not listed are zero.
    """
    q = np.array(candidates(lam, trace, dim)[1:])
    ell = np.concatenate([lam / n, np.zeros(dim - lam.size)])
    v = (trace - np.cumsum(lam)[q - 1]) / (n * (dim - q))
    half = (dim - np.arange(q.size)) / 2
    prior = np.cumsum(special.gammaln(half) - half * math.log(math.pi) - math.log(2))
    m = dim * q - q * (q + 1) / 2
    fit = np.cumsum(np.log(ell[: q.size])) + (dim - q) * np.log(v) + q * math.log(n) / n
    return np.asarray(
        prior - 0.5 * n * fit + 0.5 * (m + q) * LOG_2PI - 0.5 * (_hessian(ell, v) + m * math.log(n))
    )


def _hessian(ell: Vector, v: Vector) -> Vector:
    """Return Σ_{i≤q} Σ_{j>i} ln (ℓ_i − ℓ_j)(1/ℓ̂_j − 1/ℓ̂_i), ℓ̂_j = v_q for j > q, per q.

    Differences of repeated eigenvalues count as rounding error, where Laplace's method fails.
    """
    eps, out, gaps, pairs = float(np.finfo(np.float64).eps), np.empty(v.size), 0.0, 0.0
    inverse = 1 / ell[: v.size]
    for k in range(v.size):  # q = k + 1
        gaps += float(np.log(np.maximum(ell[k] - ell[k + 1 :], eps * ell[k])).sum())
        pairs += float(np.log(np.maximum(inverse[k] - inverse[:k], eps * inverse[k])).sum())
        rest = np.log(np.maximum(1 / v[k] - inverse[: k + 1], eps / v[k])).sum()
        out[k] = gaps + pairs + (ell.size - k - 1) * float(rest)
    return out


@rule("bic")
def bic(lam: Vector, trace: float, dim: int, n: float, rng: np.random.Generator) -> int:
    """Return the q of least information criterion, MATH 5.2; 0 if noise alone explains X."""
    free = np.array([free_parameters(q, dim) + dim for q in candidates(lam, trace, dim)])
    return int(np.argmin(free * math.log(n) - 2 * profile(lam, trace, dim, n)))


@rule("parallel")
def parallel(lam: Vector, trace: float, dim: int, n: float, rng: np.random.Generator) -> int:
    """Return how many eigenvalues stand above those of noise (Horn 1965), deflated.

    After each component the noise is what is left (Dobriban & Owen 2019), and its largest share
    of variance is simulated: the eigenvalues of a white Wishart matrix are those of a bidiagonal
    one with χ entries (Dumitriu & Edelman 2002), so a draw costs O(min(n, d)).
    """
    left = trace
    for q in candidates(lam, trace, dim):
        if q == lam.size or not _stands_out(lam[q] / left, n - 1 - q, dim - q, rng):
            return q
        left -= lam[q]
    return len(candidates(lam, trace, dim)) - 1


def _stands_out(share: float, n: float, dim: int, rng: np.random.Generator) -> bool:
    """Tell whether a share of the variance is above what noise of n rows and dim columns gives.

    Far from the edge of the noise (six times the width of its fluctuations, Johnstone 2001) no
    simulation is needed.
    """
    if min(n, dim) < 2:
        return False
    across = math.sqrt(n) + math.sqrt(dim)
    edge = across**2 / (n * dim)
    width = across * (1 / math.sqrt(n) + 1 / math.sqrt(dim)) ** (1 / 3) / (n * dim)
    if abs(share - edge) > 6 * width:
        return share > edge
    return share > _noise_share(n, dim, rng)


def _noise_share(n: float, dim: int, rng: np.random.Generator) -> float:
    """Return a high quantile of λ₁ / Σλ for white noise of n rows and dim columns."""
    m, large = int(min(n, dim)), max(n, dim)
    order = np.arange(m)
    diagonal = np.sqrt(rng.chisquare(large - order, (DRAWS, m)))
    below = np.sqrt(rng.chisquare(m - 1 - order[:-1], (DRAWS, m - 1)))
    squares = diagonal**2
    squares[:, 1:] += below**2
    across = diagonal[:, :-1] * below
    shares = [
        linalg.eigvalsh_tridiagonal(a, b, select="i", select_range=(m - 1, m - 1))[0] / a.sum()
        for a, b in zip(squares, across, strict=True)
    ]
    return float(np.quantile(shares, QUANTILE))


@rule("gavish-donoho")
def gavish_donoho(lam: Vector, trace: float, dim: int, n: float, rng: np.random.Generator) -> int:
    """Return how many singular values pass the optimal hard threshold, noise unknown (2014)."""
    small, large = int(min(n - 1, dim)), max(n - 1, dim)
    singular = np.sqrt(np.concatenate([lam, np.zeros(max(small - lam.size, 0))]))
    beta = small / large
    threshold = _optimal_shrinkage(beta) * float(np.median(singular)) / math.sqrt(_median_mp(beta))
    return min(int(np.sum(singular > threshold)), len(candidates(lam, trace, dim)) - 1)


def _optimal_shrinkage(beta: float) -> float:
    """Return λ*(β), the optimal threshold in units of √n σ (Gavish & Donoho 2014, Eq. 11)."""
    return math.sqrt(2 * (beta + 1) + 8 * beta / (beta + 1 + math.sqrt(beta**2 + 14 * beta + 1)))


def _median_mp(beta: float) -> float:
    """Return the median of the Marchenko–Pastur law of ratio β ≤ 1."""
    low, high = (1 - math.sqrt(beta)) ** 2, (1 + math.sqrt(beta)) ** 2

    def density(angle: float) -> float:  # x = middle − half·cos(angle) removes both square roots
        x = (low + high) / 2 - (high - low) / 2 * math.cos(angle)
        half = (high - low) / 2 * math.sin(angle)
        return half * half / (2 * math.pi * beta * x) if x > 0 else 0.0

    def excess(angle: float) -> float:
        return float(integrate.quad(density, 0.0, angle, epsabs=1e-10)[0]) - 0.5

    angle = float(optimize.brentq(excess, 0.0, math.pi))
    return (low + high) / 2 - (high - low) / 2 * math.cos(angle)
