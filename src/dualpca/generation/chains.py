"""Langevin chains, plain and Metropolis-adjusted, and how far they can be trusted."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, task
from dualpca.errors import expected
from dualpca.generation.densities import Density

# --- How far chains can be trusted: effective sample size and split R̂ (Vehtari et al. 2021) -----

LEAST_DRAWS = 4
"""Draws per chain below which neither number means anything."""


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
    x, within, pooled = _half_chains(draws)
    n, m = x.shape[:2]
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1 - (within - n / (n - 1) * _autocovariance(x).mean(axis=1)) / pooled
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(n // 2, 2, *rho.shape[1:]).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    total = np.where(positive, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    tau = np.maximum(2 * total - 1, 1 / math.log10(n * m))
    return np.where(pooled > 0, n * m / tau, math.nan)


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
    _, within, pooled = _half_chains(draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(within > 0, np.sqrt(pooled / within), math.nan)


def _half_chains(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return chains split in halves, (n, 2m, …), and W and var⁺ of every coordinate."""
    x = np.asarray(draws, dtype=np.float64)
    if x.ndim not in (2, 3) or x.shape[0] < LEAST_DRAWS:
        what = f"of shape (n, m) or (n, m, q) with at least {LEAST_DRAWS} draws per chain"
        raise ValueError(expected("draws", what, x.shape))
    half = x.shape[0] // 2
    x = np.concatenate([x[:half], x[x.shape[0] - half :]], axis=1)
    within, n = x.var(axis=0, ddof=1).mean(axis=0), half
    return x, within, (n - 1) / n * within + x.mean(axis=0).var(axis=0, ddof=1)


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """Return the autocovariances (divisor n) of every chain at all lags, (n, m), by FFT."""
    n = x.shape[0]
    f = np.fft.rfft(x - x.mean(axis=0), n=2 * n, axis=0)
    return np.asarray(np.fft.irfft(np.abs(f) ** 2, n=2 * n, axis=0)[:n] / n)


# --- Langevin chains, plain and Metropolis-adjusted ----------------------------------------------

TARGET_ACCEPTANCE = 0.574
"""Acceptance at which the adjusted chain moves furthest (Roberts & Rosenthal 1998)."""

DECAY = 0.6
"""Power of t at which the tuning of the step fades: below 1, so that it can still arrive."""


class LangevinChains(NamedTuple):
    """Draws of several Langevin chains, and how well they mixed.

    Parameters
    ----------
    draws : array of shape (n_steps / thin, m, q)
        States of m chains after the warm-up.
    acceptance : float
        Mean share of accepted proposals; 1 without the Metropolis test.
    step : float
        Step size after tuning.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.generation import LangevinChains
    >>> draws = np.random.default_rng(0).normal(size=(500, 4, 1))
    >>> chains = LangevinChains(draws, 1.0, 0.1)
    >>> float(chains.r_hat()[0].round(1))
    1.0
    """

    draws: Array  # (n_steps / thin, m, q)
    acceptance: float  # mean share of accepted proposals after warm-up; 1 unadjusted
    step: float  # τ, after tuning

    def effective_sample_size(self) -> np.ndarray:
        """Return the number of independent draws that the chains are worth, per coordinate.

        Returns
        -------
        size : array of shape (q,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import LangevinChains
        >>> draws = np.random.default_rng(0).normal(size=(500, 4, 1))
        >>> int(LangevinChains(draws, 1.0, 0.1).effective_sample_size()[0]) > 1000
        True
        """
        return effective_sample_size(backend.to_numpy(self.draws))

    def r_hat(self) -> np.ndarray:
        """Return the split R̂ of the chains, per coordinate (Vehtari et al. 2021).

        Returns
        -------
        r_hat : array of shape (q,)
            Close to 1 where the chains agree.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.generation import LangevinChains
        >>> draws = np.random.default_rng(0).normal(size=(500, 4, 1))
        >>> LangevinChains(draws, 1.0, 0.1).r_hat().round(1)
        array([1.])
        """
        return r_hat(backend.to_numpy(self.draws))


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
) -> LangevinChains:
    """Run z ← z + τ A∇ln π(z) + √(2τ) A^{1/2} ξ from every row of Z0, a fresh ξ at every step.

    The plain chain has a bias that goes to 0 with τ; the adjusted one accepts a proposal with the
    probability that leaves π exactly as it is. O(m) evaluations of the density per step.

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
    >>> from dualpca.generation import Gaussian
    >>> from dualpca.generation.chains import langevin
    >>> density, rng = Gaussian(np.zeros(1), np.eye(1)), np.random.default_rng(0)
    >>> chain = langevin(density, np.zeros((50, 1)), 0.5, 200, rng, warm_up=50)
    >>> chain.draws.shape, bool(abs(chain.draws.var() - 1) < 0.1)
    ((200, 50, 1), True)
    """
    if not 0 < step < math.inf:
        raise ValueError(expected("step", "a positive number", step))
    if warm_up < 0:
        raise ValueError(expected("warm_up", "0 or more", warm_up))
    if not 1 <= thin <= n_steps:
        raise ValueError(expected("thin", f"between 1 and n_steps={n_steps}", thin))
    xp, Z = backend.namespace(Z0), backend.working(Z0)
    F = backend.identity(int(Z.shape[1]), Z) if factor is None else factor

    def evaluated(Z: Array) -> State:
        value, gradient = density.value_and_gradient(Z)
        return Z, value, gradient @ F

    state, tau, kept, accepted = evaluated(Z), float(step), [], 0.0
    with task("Langevin", warm_up + n_steps) as tick:
        for t in range(1, warm_up + n_steps + 1):
            Z, _, pull = state
            xi = backend.normal(rng, tuple(map(int, Z.shape)), Z)
            move = tau * pull + math.sqrt(2 * tau) * xi
            proposal, rate = evaluated(Z + move @ F.T), 1.0
            if adjusted:
                state, rate = _accepted(state, proposal, xi, move, tau, rng)
            else:
                state = proposal
            tick()
            if t <= warm_up:
                tau *= math.exp((rate - TARGET_ACCEPTANCE) / t**DECAY) if adjusted else 1.0
                continue
            accepted += rate
            if (t - warm_up) % thin == 0:
                kept.append(state[0])
    draws = xp.stack(kept, axis=0)
    if not backend.all_finite(draws):  # plain chains run away where the step is too long
        remedy = "Use a shorter one, or adjusted=True."
        raise ValueError(expected("step", "short enough for the chain to stay finite", tau, remedy))
    return LangevinChains(draws, accepted / n_steps, tau)


State = tuple[Array, Array, Array]
"""z (m, q), ln π (m,) and Fᵀ∇ ln π (m, q) of every chain."""


def _accepted(
    now: State, there: State, xi: Array, move: Array, tau: float, rng: np.random.Generator
) -> tuple[State, float]:
    """Return the next state of every chain, and the mean probability of accepting a proposal."""
    # The way back starts at `there` and needs the noise −(move + τ pull')/√(2τ).
    back = (move + tau * there[2]) / math.sqrt(2 * tau)
    log_ratio = there[1] - now[1]
    log_ratio = log_ratio + 0.5 * (algebra.squared_norms(xi) - algebra.squared_norms(back))
    xp = backend.namespace(xi)
    odds = algebra.exp(algebra.at_most_zero(log_ratio))
    odds = xp.where(xp.isnan(odds), xp.zeros_like(odds), odds)  # far out, ∞ − ∞: never accepted
    accept = backend.asarray(rng.random(int(xi.shape[0])), xi) < odds
    Z, pull = (xp.where(accept[:, None], there[k], now[k]) for k in (0, 2))
    return (Z, xp.where(accept, there[1], now[1]), pull), float(xp.mean(odds))
