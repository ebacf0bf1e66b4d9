"""Langevin chains, plain and Metropolis-adjusted, and how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, task
from dualpca.errors import expected
from dualpca.generation.densities import Density

# --- How far chains can be trusted: effective sample size and split R̂ (Vehtari et al. 2021) -----

LEAST_DRAWS = 4
"""Draws a chain below which neither number means anything."""


def effective_sample_size(draws: np.ndarray) -> np.ndarray:
    """Return how many independent draws the chains are worth: mn / (1 + 2 Σ_t ρ_t).

    Autocorrelations ρ_t come from within and between chains, split in halves; their sum ends
    where pairs ρ_2t + ρ_2t+1 cease to be positive, and pairs are made to fall (Geyer 1992).

    Parameters
    ----------
    draws : array of shape (n, m) or (n, m, q)
        n draws of each of m chains.

    Returns
    -------
    float or array of shape (q,)

    Notes
    -----
    Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Eqs. 10 to 13.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 4))
    >>> bool(3000 < effective_sample_size(x) < 5000)
    True
    """
    return _by_coordinate(draws, _effective)


def r_hat(draws: np.ndarray) -> np.ndarray:
    """Return √(var⁺/W) over chains split in halves: 1 where they agree, more where they do not.

    W is the mean variance within half chains of n draws, B/n the variance between their means, and
    var⁺ = (n − 1)/n · W + B/n.

    Parameters
    ----------
    draws : array of shape (n, m) or (n, m, q)

    Returns
    -------
    float or array of shape (q,)
        NaN where a coordinate never moved.

    Notes
    -----
    Gelman & Rubin (1992), split as in Vehtari et al. (2021), Eqs. 1 to 4.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 4))
    >>> bool(r_hat(x) < 1.01), bool(r_hat(x + [0, 0, 0, 3]) > 1.5)
    (True, True)
    """
    return _by_coordinate(draws, _shrinking)


def _by_coordinate(draws: np.ndarray, measure: Callable[[np.ndarray], float]) -> np.ndarray:
    """Apply a measure of (n, m) half chains to each coordinate."""
    x = np.asarray(draws, dtype=np.float64)
    if x.ndim not in (2, 3) or x.shape[0] < LEAST_DRAWS:
        what = f"of shape (n, m) or (n, m, q) with {LEAST_DRAWS} draws a chain or more"
        raise ValueError(expected("draws", what, x.shape))
    half = x.shape[0] // 2
    x = np.concatenate([x[:half], x[x.shape[0] - half :]], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a coordinate that never moved is NaN
        if x.ndim == 2:
            return np.asarray(measure(x))
        return np.array([measure(x[:, :, p]) for p in range(x.shape[2])])


def _shrinking(x: np.ndarray) -> float:
    within = _within(x)
    return math.sqrt(_pooled(x) / within) if within > 0 else math.nan


def _within(x: np.ndarray) -> float:
    return float(x.var(axis=0, ddof=1).mean())


def _pooled(x: np.ndarray) -> float:
    """Return var⁺, the variance with the means of the chains counted in."""
    n = len(x)
    return (n - 1) / n * _within(x) + float(x.mean(axis=0).var(ddof=1))


def _effective(x: np.ndarray) -> float:
    n, m = x.shape
    pooled = _pooled(x)
    rho = 1 - (_within(x) - n / (n - 1) * _autocovariance(x).mean(axis=1)) / pooled
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(~(pairs > 0))
    pairs = np.minimum.accumulate(pairs[: ends[0] if ends.size else None])
    tau = max(2 * float(pairs.sum()) - 1, 1 / math.log10(n * m))
    return float(n * m / tau) if pooled > 0 else math.nan


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """Return the autocovariances (divisor n) of every chain at all lags, (n, m), by FFT."""
    n = x.shape[0]
    f = np.fft.rfft(x - x.mean(axis=0), n=2 * n, axis=0)
    return np.asarray(np.fft.irfft(np.abs(f) ** 2, n=2 * n, axis=0)[:n] / n)


# --- Langevin chains, plain and Metropolis-adjusted ----------------------------------------------

TARGET = 0.574
"""Acceptance at which the adjusted chain moves furthest (Roberts & Rosenthal 1998)."""

DECAY = 0.6
"""Power of t at which the tuning of the step fades: below 1, so that it can still arrive."""


class Chain(NamedTuple):
    """Draws of m chains side by side, and how they went."""

    draws: Array  # (n_steps / thin, m, q)
    acceptance: float  # mean share of proposals taken after warm-up; 1 unadjusted
    step: float  # τ, after tuning

    def effective_sample_size(self) -> np.ndarray:
        """Return for every coordinate how many independent draws these are worth, (q,)."""
        return effective_sample_size(backend.to_numpy(self.draws))

    def r_hat(self) -> np.ndarray:
        """Return for every coordinate the split R̂ of the chains, (q,); 1 is agreement."""
        return r_hat(backend.to_numpy(self.draws))


class _State(NamedTuple):
    Z: Array  # (m, q)
    value: Array  # (m,), ln π
    pull: Array  # (m, q), Fᵀ∇ ln π


def langevin(
    density: Density,
    Z0: Array,
    step: float,
    n_steps: int,
    rng: np.random.Generator,
    *,
    adjusted: bool = True,
    warm_up: int = 0,
    thin: int = 1,
    factor: Array | None = None,
) -> Chain:
    """Run z ← z + τ A∇ln π(z) + √(2τ) A^{1/2} ξ from every row of Z0, a fresh ξ at every step.

    The plain chain has a bias that goes to 0 with τ; the adjusted one takes a proposal with the
    probability that leaves π exactly as it is. O(m) evaluations of the density a step.

    Parameters
    ----------
    density : Density
    Z0 : array of shape (m, q)
        Starts of m chains.
    step : float
        τ > 0.
    n_steps : int
        Steps that are kept, after warm-up.
    rng : Generator
    adjusted : bool
        Metropolis–Hastings acceptance (MALA).
    warm_up : int
        Steps that are not kept; the adjusted chain tunes τ in them, to accept 57 %.
    thin : int
        Keep every thin-th step.
    factor : array of shape (q, q), optional
        F with A = FFᵀ, for directions of different width; I by default.

    Notes
    -----
    Roberts & Tweedie (1996); Roberts & Rosenthal (1998).

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.generation import Gaussian, langevin
    >>> density, rng = Gaussian(np.zeros(1), np.eye(1)), np.random.default_rng(0)
    >>> chain = langevin(density, np.zeros((50, 1)), 0.5, 200, rng, warm_up=50)
    >>> chain.draws.shape, bool(abs(chain.draws.var() - 1) < 0.1)
    ((200, 50, 1), True)
    """
    _check(step, n_steps, warm_up, thin)
    Z, xp = backend.working(Z0), backend.namespace(Z0)
    F = backend.identity(int(Z.shape[1]), Z) if factor is None else factor
    state, tau = _evaluate(density, Z, F), float(step)
    kept, taken = [], 0.0
    with task("Langevin", warm_up + n_steps) as tick:
        for t in range(1, warm_up + n_steps + 1):
            state, rate = _advance(density, state, F, tau, rng, adjusted)
            tick()
            if t <= warm_up:
                tau *= math.exp((rate - TARGET) / t**DECAY) if adjusted else 1.0
                continue
            taken += rate
            if (t - warm_up) % thin == 0:
                kept.append(state.Z)
    return Chain(_finite(xp.stack(kept, axis=0), tau), taken / n_steps, tau)


def _finite(draws: Array, tau: float) -> Array:
    """Return the draws unless the chains ran away, as plain ones do with too long a step."""
    xp = backend.namespace(draws)
    if not bool(xp.all(xp.isfinite(draws))):
        remedy = "Take a shorter one, or adjusted=True."
        raise ValueError(expected("step", "short enough for the chain to stay finite", tau, remedy))
    return draws


def _check(step: float, n_steps: int, warm_up: int, thin: int) -> None:
    """Refuse steps that lead nowhere."""
    if not 0 < step < math.inf:
        raise ValueError(expected("step", "a positive number", step))
    if warm_up < 0:
        raise ValueError(expected("warm_up", "0 or more", warm_up))
    if not 1 <= thin <= n_steps:
        raise ValueError(expected("thin", f"between 1 and n_steps={n_steps}", thin))


def _evaluate(density: Density, Z: Array, F: Array) -> _State:
    value, gradient = density.value_and_gradient(Z)
    return _State(Z, value, gradient @ F)


def _advance(
    density: Density, now: _State, F: Array, tau: float, rng: np.random.Generator, adjusted: bool
) -> tuple[_State, float]:
    """Return the next state of every chain, and the mean probability of taking a proposal."""
    xi = backend.normal(rng, tuple(map(int, now.Z.shape)), now.Z)
    move = tau * now.pull + math.sqrt(2 * tau) * xi
    there = _evaluate(density, now.Z + move @ F.T, F)
    if not adjusted:
        return there, 1.0
    # The way back starts at `there` and needs the noise −(move + τ pull')/√(2τ).
    back = (move + tau * there.pull) / math.sqrt(2 * tau)
    log_ratio = there.value - now.value
    log_ratio = log_ratio + 0.5 * (algebra.squared_norms(xi) - algebra.squared_norms(back))
    xp = backend.namespace(now.Z)
    odds = algebra.exp(algebra.at_most_zero(log_ratio))
    odds = xp.where(xp.isnan(odds), xp.zeros_like(odds), odds)  # far out, ∞ − ∞: never taken
    take = backend.asarray(rng.random(int(now.Z.shape[0])), now.Z) < odds
    state = _State(
        xp.where(take[:, None], there.Z, now.Z),
        xp.where(take, there.value, now.value),
        xp.where(take[:, None], there.pull, now.pull),
    )
    return state, float(xp.mean(odds))
