"""Zabaras (2017): the figures of the lecture on continuous latent variable models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.spatial import procrustes

from dualpca import PCA, PPCA, BayesianPCA, KernelPCA
from dualpca.app.datasets import Floats, Labels, faithful, mnist, oil_flow
from dualpca.app.experiments.canvas import BLUE, GREEN, INK, MUTED, RED, Canvas, turned
from dualpca.app.experiments.running import Outcome, experiment
from dualpca.app.plots.kernels import eigenfunctions, image_grid

# --- PCA with a 1D principal subspace: most variance kept is least error -----------------------

MAGENTA = "#aa4499"


@experiment(
    source="S4 1D principal subspace",
    title="The direction of most variance is the direction of least error",
    caption="Left: points (red), their orthogonal projections (green) on the principal subspace "
    "(magenta), and the errors (blue). Right: the variance of projections and their mean "
    "squared error for every direction; they add up to the total.",
)
def s4_principal_subspace(draw: Canvas) -> Outcome:
    """Project correlated points on every direction of the plane, and on the first axis."""
    X = draw.rng.multivariate_normal([2.0, 1.0], [[3.0, 1.6], [1.6, 1.4]], size=40)
    model = PCA(1).fit(X)
    u, Xc = model.components_[0], X - model.mean_
    angles = np.linspace(0, np.pi, 361)
    kept = np.mean((Xc @ np.array([np.cos(angles), np.sin(angles)])) ** 2, axis=0)
    figure, axes = draw.panels(1, 2, height=3.7)
    _draw_points(axes[0, 0], X, model.reconstruct(X), model.mean_, u)
    best = float(np.degrees(np.arctan2(u[1], u[0])) % 180)
    _draw_directions(axes[0, 1], np.degrees(angles), kept, best)
    numbers = {
        "variance along u1": np.mean((Xc @ u) ** 2),
        "error J": np.mean(np.sum((X - model.reconstruct(X)) ** 2, axis=1)),
        "eigenvalues of S": np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1],
        "largest variance over all directions": kept.max(),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "The variance along u₁ is λ₁ and the error J is λ₂, as the slides derive. The two curves "
        "mirror each other, so both formulations choose the same line.",
        "The points of the slide are not published: these are 40 draws from a Gaussian.",
    )


def _draw_points(ax: Axes, X: Floats, back: Floats, mean: Floats, u: Floats) -> None:
    """Draw points, the line, and every point's way to it."""
    reach = 1.15 * np.abs((X - mean) @ u).max()
    line = mean + np.outer([-reach, reach], u)
    for x, z in zip(X, back, strict=True):
        ax.plot(*np.column_stack([x, z]), color=BLUE, lw=0.9, zorder=1)
    ax.plot(*line.T, color=MAGENTA, lw=2.2, zorder=2)
    ax.plot(*X.T, "o", color=RED, ms=4.5, mew=0, zorder=3)
    ax.plot(*back.T, "o", color=GREEN, ms=4, mew=0, zorder=3)
    ax.annotate(
        "u₁", line[1], color=MAGENTA, xytext=(-4, 6), textcoords="offset points", ha="right"
    )
    ax.set(aspect="equal", adjustable="datalim", xlabel="x₁", ylabel="x₂", title="Projection")


def _draw_directions(ax: Axes, degrees: Floats, kept: Floats, best: float) -> None:
    """Draw variance and error over the direction of the line."""
    total = float(kept.max() + kept.min())  # of two directions at right angles
    for values, colour, word in ((kept, GREEN, "variance"), (total - kept, BLUE, "error")):
        ax.plot(degrees, values, color=colour)
        top = int(np.argmax(values))
        ax.text(degrees[top] + 24, 0.93 * values[top], word, color=colour)
    ax.axvline(best, color=MAGENTA, lw=1.2, ls="--")
    ax.text(best + 3, 0.04 * total, "u₁", color=MAGENTA)
    ax.axhline(total, color=MUTED, lw=0.8)
    ax.text(178, 1.01 * total, "total", color=MUTED, fontsize=9, ha="right", va="bottom")
    ax.set(xlabel="direction of the line (degrees)", xticks=range(0, 181, 45), title="All lines")
    ax.set_ylim(0, 1.12 * total)


# --- digit images: the mean, eigenvectors, spectrum, reconstructions ---------------------------

DIGIT, SIZE, KEPT = 3, (28, 28), (1, 10, 50, 250)


@experiment(
    source="S4 digit images",
    title="Threes: their mean, their eigenvectors, and how few of them a three needs",
    caption="First the mean and the first four eigenvectors with their eigenvalues (red adds ink, "
    "blue takes it away); then the spectrum and the error J that M components leave; last a "
    "three and its reconstructions.",
)
def s4_digits(draw: Canvas) -> Outcome:
    """Fit PCA to the threes of MNIST."""
    data = mnist()
    X = data.X[data.y == DIGIT] / 255
    n, d = X.shape
    model = PCA().fit(X)
    ell = model.explained_variance_ * (n - 1) / n
    share = np.cumsum(ell) / ell.sum()
    numbers = {
        "images": n,
        "pixels": d,
        "eigenvalues": ell[:4],
        "share of the variance": {str(m): share[m - 1] for m in KEPT},
        "components for 90 %": int(np.searchsorted(share, 0.9)) + 1,
        "directions with variance": int(np.sum(ell > 1e-10 * ell[0])),
    }
    figures = {"eigenvectors": _eigenvectors(draw, model, ell)}
    figures |= {"spectrum": _spectrum(draw, ell, share), "reconstructions": _reconstructions(X)}
    return Outcome(
        figures,
        numbers,
        "The mean is a blurred three, and each eigenvector, positive here and negative there, "
        "slants, widens or thickens it; the spectrum falls fast, and with 250 of 784 components "
        "the image is nearly the original.",
        "The text of the slides announces this example without its numbers, and does not say which "
        f"images it used: these are the {n} threes of our 10,000 images of MNIST, pixels from 0 "
        "to 1.",
    )


def _eigenvectors(draw: Canvas, model: PCA, ell: Floats) -> Figure:
    figure, axes = draw.panels(1, 5, height=1.9)
    draw.images(axes[0, 0], model.mean_[None], 1, high=float(model.mean_.max()))
    axes[0, 0].set_title("mean")
    reach = float(np.abs(model.components_[:4]).max())
    for ax, v, value in zip(axes[0, 1:], model.components_, ell, strict=False):
        ax.imshow(v.reshape(SIZE), cmap="RdBu_r", vmin=-reach, vmax=reach)
        ax.set_title(f"λ = {value:.2f}")
        draw.bare(ax)
    return figure


def _spectrum(draw: Canvas, ell: Floats, share: Floats) -> Figure:
    figure, axes = draw.panels(1, 2, height=2.9)
    count = np.arange(1, len(ell) + 1)
    axes[0, 0].plot(count, ell, color=BLUE)
    axes[0, 0].set(xlabel="component i", ylabel="eigenvalue λᵢ", title="Spectrum")
    error = ell.sum() * (1 - share)
    axes[0, 1].plot(count, error, color=GREEN)
    marks = [m - 1 for m in KEPT]
    axes[0, 1].plot(count[marks], error[marks], "o", color=GREEN)
    for m in KEPT:
        axes[0, 1].annotate(
            f"M = {m}", (m, error[m - 1]), xytext=(7, 2), textcoords="offset points", fontsize=9
        )
    axes[0, 1].set(xlabel="components M", ylabel="squared error J", title="What M leave out")
    for ax in axes[0]:
        ax.set(xlim=(-10, 620), ylim=(0, None))
    return figure


def _reconstructions(X: Floats) -> Figure:
    title, words = "a three and what M components make of it", [f"M = {m}" for m in KEPT]
    back = [PCA(m).fit(X).reconstruct(X[:1])[0] for m in KEPT]
    labels, rows = {title: ["original", *words]}, {title: np.array([X[0], *back])}
    return image_grid(rows, SIZE, labels=labels, limits=(0.0, 1.0))


# --- Old Faithful: raw, standardised and whitened ----------------------------------------------


@experiment(
    source="S4 Old Faithful",
    title="Old Faithful raw, standardised and whitened",
    caption="272 eruptions of the geyser, and principal axes of ±√λ. Left: in minutes, on two "
    "scales, so that the right angle between the axes does not look like one. Middle: in "
    "standard deviations. Right: after y = L^(−1/2)Uᵀ(x − x̄), of the data in minutes.",
)
def s4_old_faithful(draw: Canvas) -> Outcome:
    """Fit PCA to minutes, to standard units, and take the correlation away."""
    X = faithful().X
    n = len(X)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    raw, scaled = PCA().fit(X), PCA(standardize=True).fit(X)
    white = PCA(whiten=True).fit(X).transform(X) * np.sqrt(n / (n - 1))  # divisor n, as the slides
    figure, [[left, *others]] = draw.panels(1, 3, height=2.9)
    ell, ell_scaled = (model.explained_variance_ * (n - 1) / n for model in (raw, scaled))
    _geyser_panel(left, X, raw.mean_, raw.components_, ell)
    left.set(title="Raw", xlabel="eruption (min)", ylabel="wait for the next (min)")
    _geyser_panel(others[0], Z, np.zeros(2), scaled.components_, ell_scaled)
    others[0].set(title="Standardised", xlabel="eruption (sd)", ylabel="wait (sd)")
    _geyser_panel(others[1], white, np.zeros(2), np.eye(2), np.ones(2))
    others[1].set(title="Whitened", xlabel="component 1", ylabel="component 2")
    for ax in others:
        ax.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6))
    numbers = {
        "eigenvalues raw": ell,
        "eigenvalues standardised": ell_scaled,
        "correlation": np.mean(Z[:, 0] * Z[:, 1]),
        "covariance whitened": np.cov(white.T, bias=True),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "The first axis of the raw data is the waiting time, whose numbers are larger; of the "
        "standardised data it is the diagonal, as it must be with two variables; whitened data "
        "have covariance I.",
        "The slides print no numbers for this figure. Signs of components are arbitrary, so the "
        "whitened panel may be a mirror image of the slide's.",
    )


def _geyser_panel(ax: Axes, X: Floats, centre: Floats, axes: Floats, ell: Floats) -> None:
    """Draw points and their principal axes, ±√λ long."""
    ax.plot(*X.T, "o", color=BLUE, ms=2.8, alpha=0.55, mew=0)
    for v, length in zip(axes, np.sqrt(ell), strict=True):
        ends = centre + np.outer([-length, length], v)
        ax.plot(*ends.T, color=RED, lw=2.2, solid_capstyle="butt")
    ax.set_box_aspect(1)


# --- PPCA versus PCA: orthogonal projections, and reconstructions shrunk to the mean -----------


@experiment(
    source="S4 PPCA versus PCA",
    title="PCA projects at right angles, PPCA shrinks towards the mean",
    caption="Points (circles), their reconstructions (crosses) from one component, and the mean "
    "(star). Right: the hollow marks are PCA's reconstructions, to see how far PPCA shrinks.",
)
def s4_ppca_shrinkage(draw: Canvas) -> Outcome:
    """Reconstruct points of the plane from one component, by both models."""
    X = draw.rng.multivariate_normal([0.0, 0.0], [[1.7, 0.8], [0.8, 1.4]], size=25)
    pca, ppca = PCA(1).fit(X), PPCA(1).fit(X)
    u, mean = pca.components_[0], X.mean(axis=0)
    flat, shrunk = pca.reconstruct(X), ppca.reconstruct(X)
    figure, axes = draw.panels(1, 2, height=3.6, sharex=True, sharey=True)
    _shrinkage_panel(axes[0, 0], X, flat, mean, u, "PCA")
    _shrinkage_panel(axes[0, 1], X, shrunk, mean, u, "PPCA")
    axes[0, 0].set_ylabel("x₂")
    numbers = {
        "noise variance": ppca.noise_variance_,
        "factor expected": 1 - ppca.noise_variance_ / ppca.explained_variance_[0],
        "factor found": np.mean((shrunk - mean) @ u / ((flat - mean) @ u)),
        "angle of PCA's steps to the line": _angle(X - flat, u),
        "angle of PPCA's steps to the line": _angle(X - shrunk, u),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "As on the slide, reconstructions by PPCA lie on the same line but nearer to the mean: "
        "each by the factor 1 − σ²/λ₁, and no longer at right angles.",
        "The points of the slide (a demonstration of PMTK3) are not published: these are 25 draws "
        "from a Gaussian.",
    )


def _angle(steps: Floats, u: Floats) -> float:
    """Return the mean angle between steps and a line, in degrees."""
    cosine = np.abs(steps @ u) / np.linalg.norm(steps, axis=1)
    return float(np.degrees(np.arccos(cosine)).mean())


def _shrinkage_panel(
    ax: Axes, X: Floats, back: Floats, mean: Floats, u: Floats, title: str
) -> None:
    reach = 1.1 * np.abs((X - mean) @ u).max()
    ax.plot(*(mean + np.outer([-reach, reach], u)).T, color=MUTED, lw=1.2)
    for x, z in zip(X, back, strict=True):
        ax.plot(*np.column_stack([x, z]), color=BLUE, lw=0.9, alpha=0.8)
    flat = mean + np.outer((X - mean) @ u, u)
    if not np.allclose(flat, back):
        ax.plot(*flat.T, "o", mfc="none", mec=MUTED, ms=5, mew=0.8)
    ax.plot(*X.T, "o", color=GREEN, ms=4.5, mew=0)
    ax.plot(*back.T, "x", color=INK, ms=5.5, mew=1.3)
    ax.plot(*mean, "*", color=RED, ms=14, mec="white")
    ax.set(aspect="equal", title=title, xlabel="x₁")


# --- EM for PCA in the limit σ² → 0, step by step (Roweis 1998) --------------------------------

CYAN = "#009fb7"


@experiment(
    source="S4 EM step by step",
    title="EM for PCA, one step at a time",
    caption="(a) Data (green) and the principal components, eigenvectors times √λ. (b–f) The "
    "current line W (red), the latents z drawn at zW (cyan) and what ties them to their points.",
)
def s4_em_steps(draw: Canvas) -> Outcome:
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
        "λ₂/λ₁ per cycle, the rate of the power method.",
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


# --- missing values: oil flow, complete and with 30 % removed ----------------------------------

MISSING_ROWS, SHARE = 100, 0.3


@experiment(
    source="S4 missing values",
    title="Oil flow with 30 % of its values removed looks as it did",
    caption="Posterior means of the first 100 rows of oil flow on two latents. Right: the same "
    "rows after 30 % of their values were removed at random, by EM on what is left.",
)
def s4_missing_values(draw: Canvas) -> Outcome:
    """Fit PPCA to 100 rows, complete and with missing values, and compare the latents."""
    data = oil_flow()
    X, y = data.X[:MISSING_ROWS], data.y[:MISSING_ROWS]
    complete = PPCA(2).fit(X)
    Z = complete.transform(X)
    masks = [_mask(X, draw.seed + k) for k in range(draw.pick(10, quick=2))]
    tries = [_with_missing(X, Z, mask) for mask in masks]
    numbers = {
        "noise variance, complete": complete.noise_variance_,
        "log-likelihood, complete": complete.loglikelihood_,
        "1 - R2 of Procrustes, mean": np.mean([one["disparity"] for one in tries]),
        "1 - R2 of Procrustes, each": [one["disparity"] for one in tries],
        "fill RMSE, mean": np.mean([one["rmse"] for one in tries]),
        "fill RMSE by column means": np.mean([one["naive"] for one in tries]),
        "incomplete rows, first mask": int(masks[0].any(axis=1).sum()),
    }
    maps = {"Complete": Z, "30 % missing": turned(tries[0]["latents"], Z)}
    return Outcome(
        {"figure": _figure(draw, maps, y, data.classes)},
        numbers,
        "As on the slide, the picture survives: the three configurations lie where they lay, "
        f"and Procrustes leaves {numbers['1 - R2 of Procrustes, mean']:.2f} of the variance "
        "unexplained on average over ten masks.",
        "The slide's own mask is not published, and latents are known up to rotation and "
        "reflection: the right panel is turned onto the left one.",
    )


def _figure(draw: Canvas, maps: dict[str, Floats], y: Labels, names: Sequence[str]) -> Figure:
    """Draw latents side by side."""
    figure, axes = draw.panels(1, 2, height=4.3, sharex=True, sharey=True)
    for ax, (title, Z) in zip(axes[0], maps.items(), strict=True):
        draw.scatter(ax, Z, y, names)
        ax.set(title=title, xlabel="latent 1", aspect="equal")
    axes[0, 0].set_ylabel("latent 2")
    draw.key(figure, axes[0, 0])
    return figure


def _mask(X: Floats, seed: int) -> np.ndarray:
    """Return where values are removed; no row or column loses all."""
    rng = np.random.default_rng(seed)
    mask = rng.random(X.shape) < SHARE
    mask[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = False
    return mask


def _with_missing(X: Floats, Z: Floats, mask: np.ndarray) -> dict[str, Any]:
    """Fit incomplete rows: latents, their distance from Z, and errors of filled values."""
    partial = np.where(mask, np.nan, X)
    model = PPCA(2, max_iter=5000).fit(partial)
    latents = model.transform(partial)
    naive = np.broadcast_to(np.nanmean(partial, axis=0), X.shape)
    return {
        "latents": latents,
        "disparity": float(procrustes(Z, latents)[2]),
        "rmse": _rmse(model.impute(partial)[mask], X[mask]),
        "naive": _rmse(naive[mask], X[mask]),
    }


def _rmse(a: Floats, b: Floats) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))


# --- Hinton diagrams: maximum likelihood beside automatic relevance ----------------------------

HINTON_ROWS, DEVIATIONS, STARTED = 300, np.repeat([1.0, 0.5], [3, 7]), 9
GROUND = "#8d94a3"


@experiment(
    source="S4 Hinton diagrams",
    title="Bayesian PCA switches off the six directions it does not need",
    caption="Loadings W of ten features (rows) on nine directions (columns): the area of a square "
    "is the size of a loading, white is positive and black is negative.",
)
def s4_hinton(draw: Canvas) -> Outcome:
    """Fit nine directions to data that have three, by maximum likelihood and with a prior."""
    count = draw.pick(20, quick=3)
    found = [
        BayesianPCA(STARTED).fit(_hinton_points(draw.seed + k)).n_effective_ for k in range(count)
    ]
    X = _hinton_points(draw.seed)
    ml, bayes = PPCA(STARTED).fit(X), BayesianPCA(STARTED).fit(X)
    W = np.zeros((len(DEVIATIONS), STARTED))
    W[:, : bayes.n_effective_] = bayes.loadings_
    figure, axes = draw.panels(1, 2, height=4.5)
    _hinton(axes[0, 0], ml.loadings_, "Maximum likelihood")
    _hinton(axes[0, 1], W, "Bayesian PCA")
    lengths = np.linalg.norm(ml.loadings_, axis=0)
    numbers = {
        "dimensions found, each draw": found,
        "draws with three dimensions": int(np.sum(np.array(found) == 3)),
        "draws": count,
        "lengths of columns, maximum likelihood": lengths,
        "lengths of columns, Bayesian": np.linalg.norm(W, axis=0),
        "relevance 1/alpha": bayes.relevance_,
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "As on the slide, maximum likelihood fills all nine columns, and the prior empties six: "
        f"three dimensions in {numbers['draws with three dimensions']} of {count} draws.",
        "The slide's 300 points are not published: these are draws of the same kind (standard "
        "deviation 1 in three directions, 0.5 in seven). The three directions are the first three "
        "features here, so the blocks of large squares are where they must be.",
    )


def _hinton_points(seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=(HINTON_ROWS, len(DEVIATIONS))) * DEVIATIONS)


def _hinton(ax: Axes, W: Floats, title: str) -> None:
    """Draw a matrix as squares on grey, the area for the magnitude and the colour for the sign."""
    d, q = W.shape
    side = 0.95 * np.sqrt(np.abs(W) / np.abs(W).max())
    for sign, colour in ((1, "white"), (-1, "black")):
        at = np.argwhere(sign * W > 0)
        squares = [
            Rectangle((j - side[i, j] / 2, i - side[i, j] / 2), side[i, j], side[i, j])
            for i, j in at
        ]
        ax.add_collection(PatchCollection(squares, fc=colour, ec="none"))
    ax.set(xlim=(-0.6, q - 0.4), ylim=(d - 0.4, -0.6), aspect="equal", title=title)
    ax.set(xticks=range(q), xticklabels=range(1, q + 1), xlabel="direction")
    ax.set(yticks=range(d), yticklabels=range(1, d + 1), ylabel="feature", facecolor=GROUND)
    ax.grid(False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


# --- kernel PCA: eigenfunctions of three clusters ----------------------------------------------

CENTRES, EACH, SPREAD = np.array([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]]), 30, 0.1
PRINTED = (21.72, 21.65, 4.11, 3.93, 3.66)
"""Eigenvalues that the text of the slide still shows, of eight."""


@experiment(
    source="S4 kernel PCA",
    title="Eight eigenfunctions: two tell three clusters apart, six split them",
    caption="Lines along which a component is constant, its eigenvalue above; blue is negative and "
    "red positive. Gaussian kernel exp(−‖x − x'‖²/0.1).",
)
def s4_eigenfunctions(draw: Canvas) -> Outcome:
    """Draw the components of one set of points, and average eigenvalues over many."""
    rng, count = draw.rng, draw.pick(500, quick=20)
    X = _eigen_points(rng)
    model = _model().fit(X)
    draws = np.array([_model().fit(_eigen_points(rng)).eigenvalues_ for _ in range(count)])
    inside = np.mean(draws[:, : len(PRINTED)] < PRINTED, axis=0)
    numbers = {
        "eigenvalues": model.eigenvalues_,
        "eigenvalues, mean": draws.mean(axis=0),
        "eigenvalues, standard error": draws.std(axis=0, ddof=1) / np.sqrt(count),
        "draws": count,
        "eigenvalues printed": PRINTED,
        "share of draws below those printed": inside,
    }
    return Outcome(
        {"figure": eigenfunctions(model, X)},
        numbers,
        "The first two components tell the three clusters apart, the next three halve one cluster "
        "each, and the last three halve them the other way, as the slide says (here the sixth and "
        "the seventh share two clusters). The eigenvalues it prints lie within what draws of such "
        "points give.",
        "The points are not published, only their kind (30 each at three centres, standard "
        "deviation 0.1, in the demonstration of Schölkopf that the slide uses), so eigenvalues "
        "agree in distribution, not in digits. The slide's kernel lacks the square of its norm.",
    )


def _eigen_points(rng: np.random.Generator) -> Floats:
    return np.repeat(CENTRES, EACH, axis=0) + SPREAD * rng.standard_normal((3 * EACH, 2))


def _model() -> KernelPCA:
    return KernelPCA(8, kernel="rbf", gamma=1 / 0.1)
