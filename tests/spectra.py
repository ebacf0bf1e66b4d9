"""Data sets made from spectra: tests draw eigenvalues, never raw matrices.

X = sqrt(n) U diag(sqrt(ell)) V^T + mu, with U orthonormal and orthogonal to the vector of ones,
has exactly the covariance spectrum ell (divisor n) and the mean mu.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


def centred_basis(n, k, rng):
    """Return n x k orthonormal columns, each orthogonal to the vector of ones (so k < n)."""
    A = rng.standard_normal((n, k))
    U, _ = np.linalg.qr(A - A.mean(axis=0))
    U -= U.mean(axis=0)
    return np.linalg.qr(U)[0]


def basis(d, k, rng):
    """Return d x k orthonormal columns."""
    return np.linalg.qr(rng.standard_normal((d, k)))[0]


def with_spectrum(n, d, ell, mean=0.0, seed=0):
    """Return X (n, d) whose covariance (divisor n) has the eigenvalues ell, zeros after them."""
    rng, ell = np.random.default_rng(seed), np.asarray(ell, dtype=float)
    k = len(ell)
    assert k <= min(n - 1, d), f"{k} eigenvalues do not fit {n} x {d}"
    U, V = centred_basis(n, k, rng), basis(d, k, rng)
    return np.sqrt(n) * (U * np.sqrt(ell)) @ V.T + mean * rng.standard_normal(d)


# --- shapes of spectra, each a function of how many eigenvalues there are -------------


def harmonic(k):
    return 1.0 / np.arange(1, k + 1)


def geometric(k):
    return 0.7 ** np.arange(k)


def steep(k):
    return np.maximum(0.05 ** np.arange(k), 1e-5)


def flat(k):
    return np.ones(k)


def repeated(k):
    """Pairs of equal eigenvalues."""
    return 0.5 ** (np.arange(k) // 2)


def spiked(k):
    """One dominant direction above a flat floor."""
    return np.concatenate([[1.0], np.full(k - 1, 1e-3)])


def close(k):
    """Neighbours one per cent apart: EM crawls."""
    return 1.01 ** -np.arange(k)


def huge(k):
    """Ratios up to 1e14: the last digits of float64."""
    return np.geomspace(1.0, 1e-14, k)


def tiny(k):
    """A few ordinary directions, the rest near rounding error."""
    return np.where(np.arange(k) < (k + 1) // 2, 1.0 / np.arange(1, k + 1), 1e-13)


def zero(k):
    """Half of the directions carry nothing."""
    return np.where(np.arange(k) < (k + 1) // 2, 0.8 ** np.arange(k), 0.0)


BENIGN = (harmonic, geometric, steep, flat, repeated, spiked, close)  # ell_1 / sigma2 <= 1e6 or so
EXTREME = (huge, tiny, zero)
KINDS = BENIGN + EXTREME

SHAPES = {
    "tall": (40, 6),
    "very tall": (200, 4),
    "wide": (9, 25),
    "very wide": (6, 80),
    "square": (12, 12),
}


@dataclass(frozen=True)
class Case:
    """A data set with a known spectrum and a number of components that makes sense for it."""

    X: np.ndarray  # (n, d)
    ell: np.ndarray  # (d,) all eigenvalues of the covariance, descending
    q: int
    recipe: str  # the call that makes it again

    @property
    def n(self):
        return self.X.shape[0]

    @property
    def d(self):
        return self.X.shape[1]

    def __repr__(self):
        return self.recipe

    def _repr_pretty_(self, printer, cycle):  # Hypothesis would print every number
        printer.text(self.recipe)


def gaps(ell):
    """Return the q with a relative gap after them: there the leading subspace is determined."""
    q = np.arange(1, len(ell))
    return [
        int(p) for p in q if ell[p - 1] - ell[p] > 0.02 * ell[p - 1] and ell[p - 1] > 1e-9 * ell[0]
    ]


def make_case(shape, kind, q=None, mean=1.0, scale=1.0, deficient=False, seed=0):
    """Return one Case; ``deficient`` keeps only half of the possible rank."""
    n, d = SHAPES[shape]
    k = min(n - 1, d)
    k = max(k // 2, 2) if deficient else k
    ell = np.zeros(d)
    ell[:k] = np.sort(kind(k))[::-1] * scale
    X = with_spectrum(n, d, ell[:k], mean * np.sqrt(ell[0]), seed)
    q = max(1, numerical_rank(ell) // 2) if q is None else q
    recipe = f"make_case({shape!r}, {kind.__name__}, {q}, {mean}, {scale}, {deficient}, {seed})"
    return Case(X, ell, q, recipe)


def numerical_rank(ell):
    """Return how many eigenvalues stand clear of rounding error."""
    return np.count_nonzero(ell > 1e-9 * ell[0])


@st.composite
def cases(draw, kinds=BENIGN, shapes=tuple(SHAPES), gapped=False, means=(0.0, 1.0, 30.0)):
    """Draw a Case. With ``gapped`` q is one with a gap after it; otherwise any q below the rank."""
    shape, kind = draw(st.sampled_from(shapes)), draw(st.sampled_from(kinds))
    mean, scale = draw(st.sampled_from(means)), draw(st.sampled_from([1e-6, 1.0, 1e5]))
    deficient, seed = draw(st.booleans()), draw(st.integers(0, 2**16))
    case = make_case(shape, kind, 1, mean, scale, deficient, seed)
    rank = numerical_rank(case.ell)
    choices = [q for q in gaps(case.ell) if q < rank] if gapped else list(range(1, rank))
    q = draw(st.sampled_from(choices)) if choices else 1
    return make_case(shape, kind, q, mean, scale, deficient, seed)
