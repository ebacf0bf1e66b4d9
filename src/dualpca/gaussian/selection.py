"""How many components: rules that read a spectrum, and how held-out rows are scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy import integrate, linalg, optimize, special
from scipy.sparse.linalg import eigsh

from dualpca.arrays import EPS, Array, backend
from dualpca.errors import expected
from dualpca.gaussian.spiked import LOG_2PI, VARIANCE_ROUNDING, free_parameters
from dualpca.operators import ColumnGram, Frame, Primal, Projection, Scatter, Spectrum
from dualpca.solvers import solve

# --- The curve behind a choice by cross-validation: every candidate q, with standard errors ------

Vector = np.ndarray[Any, np.dtype[np.float64]]

WORSE_IN_A_ROW = 3
"""Candidates that may be worse than an earlier one before larger ones are left out."""


class Score(NamedTuple):
    """How one model predicted one fold."""

    loglikelihood: float  # Σ ln p
    press: float  # Σ (x − x̂)², each entry predicted from the others of its row
    squares: float  # Σ (x − mean)², the same for the mean alone
    size: float  # rows, or entries


@dataclass(frozen=True)
class Selection:
    """The curve behind a choice of the number of components by cross-validation.

    Q² = 1 − PRESS/SS: the share of the variance of unseen entries that is predicted from the other
    entries of their rows (Wold 1978); 0 for the mean alone, and falling again when q is too large.

    Parameters
    ----------
    candidates : array of int, shape (k,)
        Numbers of components that were tried.
    q2 : array of shape (k,)
        Predicted share of the variance of held-out entries.
    q2_error : array of shape (k,)
        Its standard error over the folds.
    loglikelihood : array of shape (k,)
        Mean log-likelihood of a held-out row or entry.
    loglikelihood_error : array of shape (k,)
        Its standard error over the folds.
    chosen : int
        The number of components that was chosen.
    unit : {'row', 'entry'}
        What was held out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> curve = PPCA("cv-rows").fit(load_iris().data).selection_
    >>> curve.candidates, curve.chosen
    (array([0, 1, 2, 3]), 3)
    """

    candidates: Annotated[Array, "whole k", ">= 0"]  # (k,), q
    q2: Annotated[Array, "k", "or nan, or inf"]
    q2_error: Annotated[Array, "k", "or nan, or inf"]
    loglikelihood: Annotated[
        Array, "k", "or nan, or inf"
    ]  # (k,), of an unseen row or of a hidden entry
    loglikelihood_error: Annotated[Array, "k", "or nan, or inf"]
    chosen: Annotated[int, ">= 0"]
    unit: str  # 'row' or 'entry'


def summary(scores: list[list[Score]], first: int, chosen: int, unit: str) -> Selection:
    """Return the curve of q = first, first + 1, … (rows) from the scores of every fold (columns).

    Examples
    --------
    >>> good, bad = Score(-1.0, 1.0, 4.0, 1.0), Score(-2.0, 3.0, 4.0, 1.0)
    >>> curve = summary([[bad, bad], [good, bad]], 1, 2, "row")
    >>> curve.q2, curve.loglikelihood
    (array([0.25, 0.5 ]), array([-2. , -1.5]))
    """
    table = np.array(scores, dtype=np.float64)  # (k, folds, 4)
    value, press, squares, size = np.moveaxis(table, 2, 0)
    usable = np.all(np.isfinite(value), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # constant rows have nothing to predict
        q2 = 1 - press[usable] / squares[usable]
    mean = value[usable] / size[usable]
    root = math.sqrt(table.shape[1] - 1) or math.nan  # one fold says nothing of the error
    errors = [x.std(axis=1) / root for x in (q2, mean)]
    means, which = [x.mean(axis=1) for x in (q2, mean)], np.flatnonzero(usable) + first
    return Selection(which, means[0], errors[0], means[1], errors[1], chosen, unit)


def best_candidate(scores: list[list[Score]]) -> int:
    """Return the row of largest log-likelihood over all folds."""
    return int(np.argmax([sum(score.loglikelihood for score in row) for row in scores]))


def simplest(scores: list[list[Score]]) -> int:
    """Return the first row that is as good as the best.

    As good: within one standard error of the difference over the folds (Breiman et al. 1984).
    """
    table = np.array([[score.loglikelihood for score in row] for row in scores])
    best = best_candidate(scores)
    if table.shape[1] < 2:  # one fold says nothing of the error
        return best
    with np.errstate(invalid="ignore"):  # what leaves no noise has a likelihood of 0
        loss = table[best] - table
        error = loss.std(axis=1, ddof=1) / math.sqrt(table.shape[1])
    return int(np.argmax(loss.mean(axis=1) <= error))


def given_up(scores: list[list[Score]]) -> bool:
    """Return True if the last candidates were all worse than an earlier one."""
    return len(scores) - 1 - best_candidate(scores) >= WORSE_IN_A_ROW


# --- How many components: rules that read a spectrum ---------------------------------------------

Rule = Callable[..., int]

RULES: dict[str, Rule] = {}
"""Name to rule: (eigenvalues λ, trace, dim, n, rng) ↦ q. Registered by definition."""

NOISE_QUANTILE, NOISE_DRAWS = 0.95, 200
"""Of the largest share of variance that noise gives, and from how many draws it is taken."""


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule under its name."""

    def register(function: Rule) -> Rule:
        RULES[name] = function
        return function

    return register


def apply_rule(name: str, values: Array, trace: float, dim: int, n: float, seed: int = 0) -> int:
    """Return the number of components that a rule finds in a spectrum.

    Parameters
    ----------
    name : {'evidence', 'bic', 'white-noise', 'gavish-donoho'}
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
    >>> [apply_rule(name, lam, lam.sum(), 20, 100) for name in sorted(RULES)[:4]]
    [2, 2, 2, 2]
    """
    if name not in RULES:
        raise ValueError(expected("the rule", f"one of {[*sorted(RULES), 'parallel', 'cv']}", name))
    lam = np.asarray(backend.to_numpy(values), dtype=np.float64)
    lam = lam[lam > VARIANCE_ROUNDING * max(trace, 0.0)]
    if lam.size < 2:
        return int(lam.size)
    return RULES[name](lam, trace, dim, n, np.random.default_rng(seed))


def noises(lam: Vector, trace: float, dim: int, n: float) -> Vector:
    """Return σ² of maximum likelihood for q = 0, 1, …, as long as any noise is left."""
    q = np.arange(min(lam.size, dim - 1) + 1)
    rest = trace - np.concatenate([[0.0], np.cumsum(lam)])[q]
    return np.asarray((rest / (n * (dim - q)))[: np.sum(rest > VARIANCE_ROUNDING * trace)])


@rule("evidence")
def evidence(lam: Vector, trace: float, dim: int, n: float, rng: np.random.Generator) -> int:
    """Return the q of largest Laplace approximation of ln p(X | q) (Minka 2000, Eq. 30); never 0.

    The discarded eigenvalues enter twice: as themselves in the Hessian, and through their mean v
    everywhere else. Eigenvalues that are not listed are zero. O(d²) for all q.
    """
    v = noises(lam, trace, dim, n)[1:]
    if not v.size:
        return 1
    q = np.arange(1, v.size + 1)
    ell = np.concatenate([lam / n, np.zeros(dim - lam.size)])
    half = (dim - np.arange(q.size)) / 2
    prior = np.cumsum(special.gammaln(half) - half * math.log(math.pi) - math.log(2))
    m = dim * q - q * (q + 1) / 2
    fit = np.cumsum(np.log(ell[: q.size])) + (dim - q) * np.log(v) + q * math.log(n) / n
    score = prior - 0.5 * n * fit + 0.5 * (m + q) * LOG_2PI
    return 1 + int(np.argmax(score - 0.5 * (_hessian(ell, v) + m * math.log(n))))


def _hessian(ell: Vector, v: Vector) -> Vector:
    """Return Σ_{i≤q} Σ_{j>i} ln (ℓ_i − ℓ_j)(1/ℓ̂_j − 1/ℓ̂_i), ℓ̂_j = v_q for j > q, per q.

    Differences of repeated eigenvalues count as rounding error, where Laplace's method fails.
    """
    out, gaps, pairs = np.empty(v.size), 0.0, 0.0
    inverse = 1 / ell[: v.size]
    for k in range(v.size):  # q = k + 1
        gaps += float(np.log(np.maximum(ell[k] - ell[k + 1 :], EPS * ell[k])).sum())
        pairs += float(np.log(np.maximum(inverse[k] - inverse[:k], EPS * inverse[k])).sum())
        rest = np.log(np.maximum(1 / v[k] - inverse[: k + 1], EPS / v[k])).sum()
        out[k] = gaps + pairs + (ell.size - k - 1) * float(rest)
    return out


@rule("bic")
def bic(lam: Vector, trace: float, dim: int, n: float, rng: np.random.Generator) -> int:
    """Return the q of least information criterion, theory 5.2; 0 if noise alone explains X.

    The likelihood is the largest of every q (theory 2.3). With fewer rows than features it has no
    bound, since n − 1 components leave no noise, and the criterion falls at last whatever the rows
    are: there the first minimum counts.
    """
    sigma2 = noises(lam, trace, dim, n)
    q = np.arange(sigma2.size)
    logs = np.concatenate([[0.0], np.cumsum(np.log(lam / n))])[q]
    value = -0.5 * n * (dim * LOG_2PI + logs + (dim - q) * np.log(sigma2) + dim)
    free = np.array([free_parameters(k, dim) + dim for k in range(q.size)])
    criterion = free * math.log(n) - 2 * value
    if n - 1 < dim:
        return int(np.argmax(np.append(np.diff(criterion) > 0, True)))
    return int(np.argmin(criterion))


@rule("white-noise")
def white_noise(lam: Vector, trace: float, dim: int, n: float, rng: np.random.Generator) -> int:
    """Return how many eigenvalues stand above those of white noise, deflated.

    Not Horn's parallel analysis, which is `horn`: here the noise has the same variance in every
    direction, so where columns have noise of their own it keeps nearly all of them. After each
    component the noise is what is left (Dobriban & Owen 2019), and its largest share of variance
    is simulated: the eigenvalues of a white Wishart matrix are those of a bidiagonal one with χ
    entries (Dumitriu & Edelman 2002), so a draw costs O(min(n, d)).
    """
    left, most = trace, noises(lam, trace, dim, n).size - 1
    for q in range(most + 1):
        if q == lam.size or not _stands_out(lam[q] / left, n - 1 - q, dim - q, rng):
            return q
        left -= lam[q]
    return most


def _stands_out(share: float, n: float, dim: int, rng: np.random.Generator) -> bool:
    """Return True if a share of the variance is above what noise of n rows and dim columns gives.

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
    m, large = int(min(n, dim)), max(n, dim)
    order = np.arange(m)
    diagonal = np.sqrt(rng.chisquare(large - order, (NOISE_DRAWS, m)))
    below = np.sqrt(rng.chisquare(m - 1 - order[:-1], (NOISE_DRAWS, m - 1)))
    squares = diagonal**2
    squares[:, 1:] += below**2
    beside = diagonal[:, :-1] * below
    shares = [
        linalg.eigvalsh_tridiagonal(a, b, select="i", select_range=(m - 1, m - 1))[0] / a.sum()
        for a, b in zip(squares, beside, strict=True)
    ]
    return share > float(np.quantile(shares, NOISE_QUANTILE))


@rule("gavish-donoho")
def gavish_donoho(lam: Vector, trace: float, dim: int, n: float, rng: np.random.Generator) -> int:
    """Return how many singular values pass the optimal hard threshold, noise unknown (2014)."""
    small, large = max(int(min(n - 1, dim)), 1), max(n - 1, dim)
    singular = np.sqrt(np.concatenate([lam, np.zeros(max(small - lam.size, 0))]))
    beta = small / large
    # λ*(β), the optimal threshold in units of √n σ (Gavish & Donoho 2014, Eq. 11)
    best = math.sqrt(2 * (beta + 1) + 8 * beta / (beta + 1 + math.sqrt(beta**2 + 14 * beta + 1)))
    threshold = best * float(np.median(singular)) / math.sqrt(_median_mp(beta))
    return min(int(np.sum(singular > threshold)), noises(lam, trace, dim, n).size - 1)


def _median_mp(beta: float) -> float:
    """Return the median of the Marchenko–Pastur law of ratio β ≤ 1."""
    middle, reach = 1 + beta, 2 * math.sqrt(beta)

    def density(angle: float) -> float:  # x = middle − reach·cos(angle) removes both square roots
        x = middle - reach * math.cos(angle)
        return (reach * math.sin(angle)) ** 2 / (2 * math.pi * beta * x) if x > 0 else 0.0

    def excess(angle: float) -> float:
        return float(integrate.quad(density, 0.0, angle, epsabs=1e-10)[0]) - 0.5

    return middle - reach * math.cos(float(optimize.brentq(excess, 0.0, math.pi)))


# --- Horn's parallel analysis: eigenvalues beside those of independent columns -------------------

INDEPENDENT_DRAWS, INDEPENDENT_QUANTILE = 100, 0.95
"""How often columns are made independent, and the quantile of each eigenvalue that must be passed.

A fifth as often, as `psych::fa.parallel` does, for tables of more than `LARGE` entries. Horn
(1965) took the mean; 95 % is what Buja & Eyuboglu (1992) and Glorfeld (1995) advise.
"""

LARGE = 2**20
"""Entries of a table, or of what is drawn in its place."""

FEW_DRAWS = 5
"""Draws after which most tables are decided, see `_is_plain`: then no more are made."""

AT_FIRST = 8
"""Eigenvalues that are compared at first; four times as many where all of them pass."""

DIRECT_SIZE = 400
"""Size up to which all eigenvalues of a matrix are computed, for a few of them."""

LARGEST_DRAW = 4000 * 4000
"""Numbers in one table of independent columns, 128 MB."""


def horn(
    values: Callable[[int], Vector],
    independent: Callable[[int], Iterable[Vector]],
    trace: float,
    most: int,
) -> int:
    """Return how many eigenvalues are larger than independent columns give (Horn 1965).

    Each is compared with the 95th percentile of the eigenvalue of its own rank; the first that
    does not pass ends the count. But for the first they leave a direction with variance for the
    noise.

    Parameters
    ----------
    values : callable
        k ↦ the k largest eigenvalues, (k,), or all if there are fewer.
    independent : callable
        k ↦ those of tables with the same columns made independent, draw by draw, (k,) each. Draws
        end early where a few of them leave no doubt.
    trace : float
        Sum of all eigenvalues.
    most : int
        Largest answer.

    Examples
    --------
    >>> noise = np.array([[1.3, 1.1, 0.6], [1.4, 1.0, 0.6]])
    >>> lam = np.array([2.0, 0.9, 0.1])
    >>> horn(lambda k: lam[:k], lambda k: noise[:, :k], 3.0, 2)
    1
    """
    k = min(AT_FIRST, most)
    while k > 0:
        lam, draws = values(k), []
        for draw in independent(k):
            draws.append(draw)
            if len(draws) == FEW_DRAWS and _is_plain(lam, np.stack(draws)):
                break
        limits = np.quantile(np.stack(draws), INDEPENDENT_QUANTILE, axis=0)
        k = min(lam.size, limits.size)
        passes = lam[:k] > limits[:k] * (1 + VARIANCE_ROUNDING)
        left = trace - np.cumsum(lam[:k]) > VARIANCE_ROUNDING * trace
        left[:1] = True  # columns that are all the same have one component all the same
        passed = int(np.argmin(np.append(passes & left, False)))
        if passed < k or k >= most:
            return passed
        k = min(4 * k, most)
    return 0


def _is_plain(lam: Vector, draws: Vector) -> bool:
    """Return True if eigenvalues pass or fail by so much that more draws (m, k) change nothing.

    Below all of five draws is the 95th percentile with a probability of 3e-7. Passed by twice the
    range of the draws, about five standard deviations, it is as good as certainly.
    """
    k = min(lam.size, draws.shape[1])
    low, high = draws.min(axis=0)[:k], draws.max(axis=0)[:k]
    first = int(np.argmin(np.append(lam[:k] > high + 2 * (high - low), False)))
    return first == k or bool(lam[first] < low[first])


def largest_values(F: Vector, k: int) -> Vector:
    """Return the k largest eigenvalues of FᵀF, largest first; fewer if F has no more."""
    k = min(k, *F.shape)
    return largest_of(F.T @ F if F.shape[1] <= F.shape[0] else F @ F.T, k)


def largest_of(A: Vector, k: int) -> Vector:
    """Return the k largest eigenvalues of a symmetric matrix (m, m), largest first."""
    m = len(A)
    if m <= DIRECT_SIZE or 10 * k > m:
        found = linalg.eigvalsh(A)[::-1][:k]
    else:
        found = eigsh(A, k, tol=1e-4, v0=np.ones(m), return_eigenvectors=False)[::-1]
    return np.maximum(found, 0.0)


def independent_streams(entries: int, seed: int) -> list[np.random.Generator]:
    """Return one generator for every draw, the same at every call."""
    draws = INDEPENDENT_DRAWS if entries <= LARGE else INDEPENDENT_DRAWS // 5
    return np.random.default_rng(seed).spawn(draws)


def can_simulate(n: float, d: int) -> bool:
    """Return True if tables of n rows and d columns are small enough to be simulated."""
    return min(max(round(n) - 1, 1), d) * d <= LARGEST_DRAW


def simulated_horn(operator: Primal | Scatter | ColumnGram, seed: int = 0) -> int:
    """Return Horn's count from an operator alone, beside normal columns of the same variances.

    For rows that are not at hand, or are too many to permute. The scatter of n rows of
    independent normal columns is AᵀA with Bartlett's triangular A, so a draw costs O(d³) whatever
    n is; for n < d it is drawn row by row. Columns are scaled to the sums of squares given.

    Parameters
    ----------
    operator : Primal, Scatter or ColumnGram
        Of standardised columns, so that units do not count.
    seed : int

    Examples
    --------
    >>> from dualpca.operators import Primal
    >>> X = np.random.default_rng(0).normal(size=(200, 6))
    >>> X[:, :3] += 2 * X[:, :1]
    >>> simulated_horn(Primal(X, standardize=True))
    1
    """
    n = operator.n
    squares = np.maximum(backend.to_numpy(operator.diag()), 0.0).astype(np.float64)
    squares = squares[squares > 0]  # a constant column is independent of all
    d, nu = squares.size, max(round(n) - 1, 1)
    wide = isinstance(operator, ColumnGram) and nu <= d
    if not wide and not can_simulate(n, d):
        what = f"a number or another rule for {nu + 1} rows of {d} features that are not at hand"
        remedy = "It would simulate tables of that size. Use 'white-noise' or 'evidence'."
        raise ValueError(expected("n_components", what, PARALLEL, remedy))

    def draw(rng: np.random.Generator) -> Vector:
        if nu <= d:
            A = rng.standard_normal((nu, d))
        else:
            A = np.triu(rng.standard_normal((d, d)), 1)
            A[np.diag_indices(d)] = np.sqrt(rng.chisquare(nu - np.arange(d)))
        # permuted columns keep their variances, and so do these
        scale: Vector = np.sqrt(squares / (A * A).sum(axis=0))
        return A * scale

    def draw_points(rng: np.random.Generator) -> Vector:
        """Return a root of the Gram matrix of such rows, (ν, ν), drawn as that of the scatter is.

        Of many columns it has the sum of squares of all; that of each matters little.
        """
        A = np.tril(rng.standard_normal((nu, nu)), -1)
        A[np.diag_indices(nu)] = np.sqrt(rng.chisquare(d - np.arange(nu)))
        root: Vector = A * np.sqrt(squares.sum() / np.vdot(A, A))
        return root

    def independent(k: int) -> Iterator[Vector]:
        for rng in independent_streams(min(nu, d) * (nu if wide else d), seed):
            yield largest_values(draw_points(rng) if wide else draw(rng), k)

    def lam(k: int) -> Vector:
        return np.asarray(backend.to_numpy(solve(operator, k).values), dtype=np.float64)

    return horn(lam, independent, float(squares.sum()), min(nu, d) - 1)


# --- How a spectrum predicts held-out rows: the scores of every q at once ------------------------


class Trained(NamedTuple):
    """The spectrum of the rows kept, on the host: every q is scored from it at once."""

    frame: Frame
    lam: Vector  # (m,)
    V: Vector  # (d, m)
    trace: float
    n: float

    @classmethod
    def of(cls, spectrum: Spectrum, frame: Frame, n: float) -> Trained:
        """Bring a spectrum to the host."""
        lam, V = backend.to_numpy(spectrum.values), backend.to_numpy(spectrum.vectors)
        return cls(Frame(backend.to_numpy(frame.mean)), lam, V, spectrum.trace, n)

    def scores(self, rows: Vector, projection: Projection, w: Vector, most: int) -> list[Score]:
        """Return how held rows are predicted, for q = 0, …, most; sums over rows.

        An entry predicted from the others of its row has the error
        x_j − E[x_j | others] = (C⁻¹r)_j / (C⁻¹)_jj. Off the axes C⁻¹ is 1/σ², along them 1/ℓ: both
        parts grow by one direction per q, so all q cost as much as one.
        """
        (Y, residual), d, ell = projection, len(self.V), self.lam / self.n
        R = rows - self.frame.mean
        squares, size = float(w @ (R * R).sum(axis=1)), float(w.sum())
        scores = [Score(-math.inf, math.inf, squares, size)] * (most + 1)
        off, along = R.copy(), np.zeros_like(R)
        free, bound = np.ones(d), np.zeros(d)
        for q, noise in enumerate(noises(self.lam, self.trace, d, self.n)):
            if q:
                y, v = Y[:, q - 1 : q], self.V[:, q - 1]
                off -= y * v
                along += y * (v / ell[q - 1])
                free, bound = free - v * v, bound + v * v / ell[q - 1]
            inside = (Y[:, :q] ** 2 / ell[:q]).sum(axis=1)
            outside = (residual + (Y[:, q:] ** 2).sum(axis=1)) / noise
            logdet = np.log(ell[:q]).sum() + (d - q) * math.log(noise)
            value = -0.5 * float(w @ (d * LOG_2PI + logdet + inside + outside))
            press = ((off / noise + along) / (free / noise + bound)) ** 2
            scores[q] = Score(value, float(w @ press.sum(axis=1)), squares, size)
        return scores


# --- How many components a user asked for: a count, a share of the variance, or a rule -----------

CROSS_VALIDATED = ("cv", "cv-rows", "cv-entries")
"""Requests that need the rows themselves; `models.selection` answers them."""

PARALLEL = "parallel"
"""Horn's parallel analysis: of the rows in `models.selection`, else from columns' variances."""


def request_names() -> tuple[str, ...]:
    """Return every word that may stand for a number of components."""
    return ("mle", *sorted(RULES), PARALLEL, *CROSS_VALIDATED)
