"""S4, 'EM algorithm for PCA: limit σ² → 0': step by step (Roweis 1998)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from dualpca import PCA
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import GREEN, INK, RED, Canvas

CYAN = "#009fb7"


@experiment(
    source="S4 EM step by step",
    title="EM for PCA, one step at a time",
    caption="(a) Data (green) and the principal components, eigenvectors times √λ. (b–f) The "
    "current line W (red), the latents z drawn at zW (cyan) and what ties them to their points.",
)
def run(draw: Canvas) -> Outcome:
    """Alternate projections on a line and the best line for projections held fixed."""
    X = draw.rng.multivariate_normal([0.0, 0.0], [[1.0, 0.75], [0.75, 1.3]], size=60)
    X = X - X.mean(axis=0)
    pca = PCA().fit(X)
    u, ell = pca.components_, np.mean((X @ pca.components_.T) ** 2, axis=0)
    w = np.array([1.0, -0.55])  # far from u₁, to see it turn
    found, angles = _converged(X, w, u[0])
    states = [*_first_steps(X, w), ("f  converged", found, e_step(X, found))]
    figure, axes = draw.panels(2, 3, height=5.2, sharex=True, sharey=True)
    _draw_data(axes[0, 0], X, u, ell)
    for ax, state in zip(axes.ravel()[1:], states, strict=True):
        _draw_state(ax, X, *state)
    numbers = {
        "angle to u1 after each cycle (degrees)": angles[:8],
        "cycles to 1e-8 degrees": int(np.argmax(np.array(angles) < 1e-8)),
        "ratio of successive angles": angles[4] / angles[3],
        "ratio of eigenvalues": ell[1] / ell[0],
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "The six panels tell the slide's story: an M step turns the line with the latents held, an "
        "E step makes projections orthogonal again, and the line ends on u₁; the angle shrinks by "
        "λ₂/λ₁ a cycle, the rate of the power method.",
        "The points of the slide are not published: these are 60 draws from a Gaussian, and the "
        "line starts almost at right angles to u₁.",
    )


def e_step(X: Floats, w: Floats) -> Floats:
    """Return the latents Ω = (WᵀW)⁻¹WᵀXᵀ of a line: orthogonal projections."""
    return X @ w / (w @ w)


def m_step(X: Floats, z: Floats) -> Floats:
    """Return the line W = XᵀΩᵀ(ΩΩᵀ)⁻¹ of least squared error with the latents held."""
    return X.T @ z / (z @ z)


def _first_steps(X: Floats, w: Floats) -> Iterator[tuple[str, Floats, Floats]]:
    """Return the line and the latents at the start and after each half of a cycle."""
    z = e_step(X, w)
    yield "b  start", w, z
    w = m_step(X, z)
    yield "c  M step: the line moves", w, z
    z = e_step(X, w)
    yield "d  E step: the points move", w, z
    yield "e  second M step", m_step(X, z), z


def _converged(X: Floats, w: Floats, u: Floats) -> tuple[Floats, list[float]]:
    """Return the line in the end, and its angle to the first axis after each cycle."""
    angles = []
    for _ in range(60):
        across = float(np.linalg.norm(w - (w @ u) * u))
        angles.append(float(np.degrees(np.arctan2(across, abs(w @ u)))))
        w = m_step(X, e_step(X, w))
    return w, angles


def _draw_data(ax: Axes, X: Floats, u: Floats, ell: Floats) -> None:
    ax.plot(*X.T, "o", color=GREEN, ms=4, mew=0, alpha=0.8)
    for v, length in zip(u, np.sqrt(ell), strict=True):
        ax.annotate("", length * v, (0, 0), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 2})
    reach = 1.1 * np.abs(X).max()
    ax.set(title="a  data", aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))


def _draw_state(ax: Axes, X: Floats, title: str, w: Floats, z: Floats) -> None:
    Z = np.outer(z, w)
    for x, at in zip(X, Z, strict=True):
        ax.plot(*np.column_stack([x, at]), color=CYAN, lw=0.6, alpha=0.6)
    unit = w / np.linalg.norm(w)
    ax.plot(*np.outer([-9, 9], unit).T, color=RED, lw=2)
    ax.plot(*X.T, "o", color=GREEN, ms=4, mew=0, alpha=0.8)
    ax.plot(*Z.T, "o", color=CYAN, ms=3.5, mew=0)
    ax.set(title=title, aspect="equal")
