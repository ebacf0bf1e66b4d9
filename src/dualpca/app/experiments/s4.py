"""Zabaras (2017): the figures of the lecture on continuous latent variable models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from scipy.spatial import procrustes

from dualpca import PCA, PPCA, BayesianPCA, KernelPCA
from dualpca.app.datasets import Floats, Images, Labels, faithful, handwriting, oil_flow
from dualpca.app.experiments.canvas import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    RED,
    Canvas,
    stopped_early,
    turned,
)
from dualpca.app.experiments.running import Outcome, experiment, said
from dualpca.app.plots.kernels import eigenfunctions, image_grid

# --- PCA with a 1D principal subspace: most variance kept is least error -----------------------

MAGENTA = "#aa4499"


@experiment(
    source="S4 1D principal subspace",
    title="The direction of most variance is the direction of least error",
    caption="Left: points (red), their orthogonal projections (green) on the principal subspace "
    "(magenta), and the errors (blue). Right: the variance of projections and their mean "
    "squared error for every direction; they add up to the total.",
    test="test_experiments_s2_s4.py::test_variance_and_error_are_the_eigenvalues",
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
    ell = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    numbers = {
        "variance along u1": np.mean((Xc @ u) ** 2),
        "error J": np.mean(np.sum((X - model.reconstruct(X)) ** 2, axis=1)),
        "eigenvalues of S": ell,
        "largest variance over all directions": kept.max(),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        said(
            np.allclose([numbers["variance along u1"], numbers["error J"]], ell),
            f"The variance along u₁ is λ₁ = {ell[0]:.3f} and the error J is λ₂ = {ell[1]:.3f}, as "
            "the slides derive. The two curves mirror each other, so both formulations choose the "
            "same line.",
            f"The variance along u₁ and the error J are not λ₁ = {ell[0]:.3f} and λ₂ = "
            f"{ell[1]:.3f}.",
        ),
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
        "u₁", line[1], color=MAGENTA, xytext=(-2, 7), textcoords="offset points", ha="right"
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
    ax.text(best - 3, 0.5 * total, "u₁", color=MAGENTA, ha="right")
    ax.axhline(total, color=MUTED, lw=0.8)
    ax.text(178, 1.01 * total, "total", color=MUTED, fontsize=9, ha="right", va="bottom")
    ax.set(xlabel="direction of the line (degrees)", xticks=range(0, 181, 45), title="All lines")
    ax.set_ylim(0, 1.12 * total)


# --- digit images: the mean, eigenvectors, spectrum, reconstructions ---------------------------

DIGIT = 3


@experiment(
    source="S4 digit images",
    title="Threes: their mean, their eigenvectors, and how few of them a three needs",
    caption="First the mean and the first four eigenvectors with their eigenvalues (red adds ink, "
    "blue takes it away); then the spectrum and the error J that M components leave; last a "
    "three and its reconstructions.",
    test="test_experiments_s2_s4.py::test_few_components_make_a_three",
)
def s4_digits(draw: Canvas) -> Outcome:
    """Fit PCA to all threes."""
    data = handwriting()
    kept = (1, 10, 50, 250) if data.is_mnist else (1, 5, 15, 40)
    X = data.X[data.y == DIGIT]
    n, d = X.shape
    model = PCA().fit(X)
    ell = model.explained_variance_ * (n - 1) / n
    share = np.cumsum(ell) / ell.sum()
    numbers = {
        "images": n,
        "pixels": d,
        "eigenvalues": ell[:4],
        "share of the variance": {str(m): share[m - 1] for m in kept},
        "components for 90 %": int(np.searchsorted(share, 0.9)) + 1,
        "directions with variance": int(np.sum(ell > 1e-10 * ell[0])),
        "eigenvectors with both signs": int(
            np.sum(
                np.any(model.components_[:4] > 0.05, 1) & np.any(model.components_[:4] < -0.05, 1)
            )
        ),
    }
    figures = {"eigenvectors": _eigenvectors(draw, model, ell, data.side)}
    figures |= {
        "spectrum": _spectrum(draw, ell, share, kept),
        "reconstructions": _reconstructions(X, kept, data.side),
    }
    return Outcome(figures, numbers, _few(numbers, kept), _our_threes(numbers, data), data.source)


def _few(numbers: dict[str, Any], kept: tuple[int, ...]) -> str:
    """Say how few components a three needs."""
    last, need, d = kept[-1], numbers["components for 90 %"], numbers["pixels"]
    share = numbers["share of the variance"][str(last)]
    near = said(share > 0.95, "nearly", "not yet")
    return (
        "The mean is a blurred three, and each eigenvector, positive here and negative there, "
        f"slants, widens or thickens it; the spectrum falls fast ({need} of {d} components have "
        f"90 % of the variance), and with {last} ({100 * share:.1f} %) the image is {near} the "
        "original."
    )


def _our_threes(numbers: dict[str, Any], data: Images) -> str:
    """Say which threes were used."""
    return (
        "The text of the slides announces this example without its numbers, and does not say which "
        f"images it used: these are the {numbers['images']} threes among {len(data.X):,} digits of "
        f"{data.side} × {data.side} pixels from 0 to 1."
    )


def _eigenvectors(draw: Canvas, model: PCA, ell: Floats, side: int) -> Figure:
    figure, axes = draw.panels(1, 5, height=1.9)
    draw.images(axes[0, 0], model.mean_[None], 1, side, high=float(model.mean_.max()))
    axes[0, 0].set_title("mean")
    reach = float(np.abs(model.components_[:4]).max())
    for ax, v, value in zip(axes[0, 1:], model.components_, ell, strict=False):
        ax.imshow(v.reshape(side, side), cmap="RdBu_r", vmin=-reach, vmax=reach)
        ax.set_title(f"λ = {value:.2f}")
        draw.bare(ax)
    return figure


def _spectrum(draw: Canvas, ell: Floats, share: Floats, kept: tuple[int, ...]) -> Figure:
    figure, axes = draw.panels(1, 2, height=2.9)
    count = np.arange(1, len(ell) + 1)
    axes[0, 0].plot(count, ell, color=BLUE)
    axes[0, 0].set(xlabel="component i", ylabel="eigenvalue λᵢ", title="Spectrum")
    error = ell.sum() * (1 - share)
    axes[0, 1].plot(count, error, color=GREEN)
    marks = [m - 1 for m in kept]
    axes[0, 1].plot(count[marks], error[marks], "o", color=GREEN)
    for m in kept:
        axes[0, 1].annotate(
            f"M = {m}", (m, error[m - 1]), xytext=(7, 4), textcoords="offset points", fontsize=9
        )
    axes[0, 1].set(xlabel="components M", ylabel="squared error J", title="What M leave out")
    last = 2.4 * kept[-1] if len(ell) > 100 else len(ell)
    for ax, top in zip(axes[0], (ell[0], error[0]), strict=True):
        ax.set(xlim=(-0.02 * last, 1.02 * last), ylim=(-0.02 * top, 1.12 * top))
    return figure


def _reconstructions(X: Floats, kept: tuple[int, ...], side: int) -> Figure:
    title, words = "a three and what M components make of it", [f"M = {m}" for m in kept]
    back = [PCA(m).fit(X).reconstruct(X[:1])[0] for m in kept]
    labels, rows = {title: ["original", *words]}, {title: np.array([X[0], *back])}
    return image_grid(rows, (side, side), labels=labels, limits=(0.0, 1.0))


# --- Old Faithful: raw, standardised and whitened ----------------------------------------------


@experiment(
    source="S4 Old Faithful",
    title="Old Faithful raw, standardised and whitened",
    caption="272 eruptions of the geyser, and principal axes of ±√λ. Left: in minutes, on two "
    "scales, so that the right angle between the axes does not look like one. Middle: in "
    "standard deviations. Right: after y = L^(−1/2)Uᵀ(x − x̄), of the data in minutes.",
    test="test_experiments_s2_s4.py::test_old_faithful",
)
def s4_old_faithful(draw: Canvas) -> Outcome:
    """Fit PCA to minutes, to standard units, and take the correlation away."""
    X = faithful().X
    n = len(X)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    raw, scaled = PCA().fit(X), PCA(standardize=True).fit(X)
    white = PCA(whiten=True).fit(X).transform(X) * np.sqrt(n / (n - 1))  # divisor n, as the slides
    figure, [[left, *others]] = draw.panels(1, 3, height=2.6)
    ell, ell_scaled = (model.explained_variance_ * (n - 1) / n for model in (raw, scaled))
    _geyser_panel(left, X, raw.mean_, raw.components_, ell)
    left.set(title="Raw", xlabel="eruption (min)", ylabel="wait for the next (min)")
    _geyser_panel(others[0], Z, np.zeros(2), scaled.components_, ell_scaled)
    others[0].set(title="Standardised", xlabel="eruption (sd)", ylabel="wait (sd)")
    _geyser_panel(others[1], white, np.zeros(2), np.eye(2), np.ones(2))
    others[1].set(title="Whitened", xlabel="component 1", ylabel="component 2")
    reach = 1.08 * max(np.abs(Z).max(), np.abs(white).max())
    for ax in others:
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
    left.margins(0.08)
    numbers = {
        "eigenvalues raw": ell,
        "eigenvalues standardised": ell_scaled,
        "correlation": np.mean(Z[:, 0] * Z[:, 1]),
        "covariance whitened": np.cov(white.T, bias=True),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        _geyser(raw.components_[0], scaled.components_[0], numbers["covariance whitened"]),
        "The slides print no numbers for this figure. Signs of components are arbitrary, so the "
        "whitened panel may be a mirror image of the slide's.",
        "Old Faithful (272 eruptions)",
    )


def _geyser(raw: Floats, scaled: Floats, white: Floats) -> str:
    """Say along what the first axes lie, and how white whitened data are."""
    tilt, diagonal = (float(np.degrees(np.arctan(abs(v[1] / v[0])))) for v in (raw, scaled))
    off = float(np.abs(white - np.eye(2)).max())
    first = said(tilt > 80, "the waiting time, whose numbers are larger", "oblique")
    second = said(
        abs(diagonal - 45) < 1e-6, "the diagonal, as it must be with two variables", "no diagonal"
    )
    return (
        f"The first axis of the raw data is {first} ({tilt:.1f}° from the length of an eruption); "
        f"of the standardised data it is {second} ({diagonal:.1f}°); whitened data have "
        f"covariance I within {off:.0e}."
    )


def _geyser_panel(ax: Axes, X: Floats, centre: Floats, axes: Floats, ell: Floats) -> None:
    """Draw points and their principal axes, ±√λ long."""
    ax.plot(*X.T, "o", color=BLUE, ms=2.8, alpha=0.55, mew=0)
    for v, length in zip(axes, np.sqrt(ell), strict=True):
        ends = centre + np.outer([-length, length], v)
        ax.plot(*ends.T, color=RED, lw=2.2, solid_capstyle="butt")
    ax.locator_params(nbins=5)
    ax.set_box_aspect(1)


# --- PPCA as a generative model: a latent, the ball around Wz + μ, the density of x --------------


@experiment(
    source="S4 generative view",
    title="PPCA draws a latent, then a point from a ball around its place on a line",
    caption="Left: the density of the latent z, and the value ẑ that was drawn. Middle: the ball "
    "of p(x | ẑ) (red: one and two standard deviations σ) around wẑ + μ on the line, and draws "
    "from it. Right: contours of the density p(x) (green: one, two and three standard deviations) "
    "with draws of x from the model.",
    test="test_experiments_s2_s4.py::test_the_generative_picture_is_the_models",
)
def s4_generative(draw: Canvas) -> Outcome:
    """Fit PPCA with one latent to points of the plane, and draw from it in two steps."""
    rng, count = draw.rng, draw.pick(4000, quick=400)
    X = rng.multivariate_normal([2.0, 1.5], [[1.2, 0.75], [0.75, 0.8]], size=500)
    model = PPCA(1).fit(X)
    w, mean = np.asarray(model.loadings_)[:, 0], np.asarray(model.mean_)
    w, sigma, chosen = w * np.sign(w[0]), float(np.sqrt(model.noise_variance_)), 1.2
    z = rng.normal(size=count)
    points = mean + np.outer(z, w) + sigma * rng.normal(size=(count, 2))
    ball = mean + chosen * w + sigma * rng.normal(size=(count, 2))
    C = np.outer(w, w) + sigma**2 * np.eye(2)
    figure, [[latent, given, whole]] = draw.panels(1, 3, height=2.75)
    _draw_latent(latent, chosen)
    _draw_ball(given, mean, w, sigma, chosen, ball[:80])
    _draw_density(whole, mean, C, points[:250])
    for ax in (given, whole):
        ax.plot(*mean, "+", color=INK, ms=8, mew=1.6)
        ax.set(aspect="equal", xlim=(-1.6, 5.6), ylim=(-2.1, 5.1), xlabel="x₁")
        ax.locator_params(nbins=4)
    given.set_ylabel("x₂")
    numbers = _two_steps(points - mean, ball - mean - chosen * w, C, sigma)
    return Outcome(
        {"figure": figure},
        numbers,
        _as_drawn(numbers),
        "The slide is PRML's figure 12.9, a drawing without numbers: the points that were fitted "
        f"here are 500 draws from a Gaussian. The ball is small (σ = {sigma:.2f}), because it has "
        "only the variance that the line leaves.",
        "500 simulated points of the plane",
    )


def _two_steps(points: Floats, ball: Floats, C: Floats, sigma: float) -> dict[str, Any]:
    """Return how draws in two steps compare with the densities that the slide writes down."""
    far = np.sum(points * np.linalg.solve(C, points.T).T, axis=1)
    around = np.sum(ball**2, axis=1) / sigma**2
    radii = np.array([1.0, 2.0, 3.0])
    return {
        "draws": len(points),
        "radii": radii,
        "share within an ellipse": [np.mean(far < r * r) for r in radii],
        "share within the ball": [np.mean(around < r * r) for r in radii],
        "share expected": 1 - np.exp(-(radii**2) / 2),
        "covariance": np.cov(points.T, bias=True),
        "covariance of the model": C,
        "noise variance": sigma**2,
    }


def _as_drawn(numbers: dict[str, Any]) -> str:
    expected, n = np.asarray(numbers["share expected"]), numbers["draws"]
    within = [np.asarray(numbers[f"share within {a}"]) for a in ("an ellipse", "the ball")]
    off = max(float(np.abs(found - expected).max()) for found in within)
    limit = 4 * 0.5 / np.sqrt(n)  # standard errors of a share
    shares = ", ".join(f"{100 * share:.1f}" for share in within[0])
    return said(
        off < limit,
        "As on the slide: a latent, then a point from the ball around wẑ + μ, and the points have "
        f"the green contours of N(μ, WWᵀ + σ²I). Of {n} draws {shares} % lie within one, two and "
        f"three standard deviations, where {', '.join(f'{100 * e:.1f}' for e in expected)} % are "
        "expected.",
        f"Draws in two steps miss the density of the model: {shares} % of {n} lie within one, two "
        "and three standard deviations.",
    )


def _draw_latent(ax: Axes, chosen: float) -> None:
    z = np.linspace(-3.6, 3.6, 200)
    height = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    ax.plot(z, height, color=BLUE)
    ax.fill_between(z, height, color=BLUE, alpha=0.12, lw=0)
    at = float(np.exp(-chosen * chosen / 2) / np.sqrt(2 * np.pi))
    ax.plot([chosen, chosen], [0, at], color=RED, lw=1.6)
    ax.plot(chosen, 0, "o", color=RED, clip_on=False, zorder=3)
    ax.annotate("ẑ", (chosen, at), (5, 3), textcoords="offset points", color=RED)
    ax.set(xlabel="z", ylabel="p(z)", xlim=(-3.6, 3.6), ylim=(0, 0.45), title="the latent")
    ax.set_box_aspect(1)


def _draw_ball(
    ax: Axes, mean: Floats, w: Floats, sigma: float, chosen: float, draws: Floats
) -> None:
    ends = mean + np.outer([-3.2, 3.2], w)
    ax.plot(*ends.T, color=MUTED, lw=1.2)
    centre = mean + chosen * w
    for k in (1, 2):
        ax.add_patch(Circle(tuple(centre), k * sigma, fill=False, ec=RED, lw=1.4, zorder=3))
    ax.plot(*draws.T, "o", ms=2.5, mew=0, color=BLUE, alpha=0.5)
    ax.plot(*centre, "o", ms=4, color=RED, zorder=4)
    ax.annotate("wẑ + μ", tuple(centre), (16, -26), textcoords="offset points", color=RED)
    ax.annotate("μ", tuple(mean), (-4, 8), textcoords="offset points", ha="right")
    ax.set_title("p(x | ẑ)")


def _draw_density(ax: Axes, mean: Floats, C: Floats, draws: Floats) -> None:
    ax.plot(*draws.T, "o", ms=2.5, mew=0, color=BLUE, alpha=0.45)
    root, turn = np.linalg.cholesky(C), np.linspace(0, 2 * np.pi, 120)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    for k in (1, 2, 3):
        ax.plot(*(mean[:, None] + k * root @ circle), color=GREEN, lw=1.5)
    ax.set_title("p(x)")


# --- PPCA versus PCA: orthogonal projections, and reconstructions shrunk to the mean -----------


@experiment(
    source="S4 PPCA versus PCA",
    title="PCA projects at right angles, PPCA shrinks towards the mean",
    caption="Points (circles), their reconstructions (crosses) from one component, and the mean "
    "(star). Right: the hollow marks are PCA's reconstructions, to see how far PPCA shrinks.",
    test="test_experiments_s2_s4.py::test_ppca_shrinks_by_its_factor",
)
def s4_ppca_shrinkage(draw: Canvas) -> Outcome:
    """Reconstruct points of the plane from one component, by both models."""
    X = draw.rng.multivariate_normal([0.0, 0.0], [[1.7, 0.8], [0.8, 1.4]], size=25)
    pca, ppca = PCA(1).fit(X), PPCA(1).fit(X)
    u, mean = pca.components_[0], X.mean(axis=0)
    flat, shrunk = pca.reconstruct(X), ppca.reconstruct(X)
    figure, axes = draw.panels(1, 2, height=2.75, sharex=True, sharey=True)
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
        said(
            abs(numbers["factor found"] - numbers["factor expected"]) < 1e-8,
            "As on the slide, reconstructions by PPCA lie on the same line but nearer to the mean: "
            f"each by the factor 1 − σ²/λ₁ = {numbers['factor expected']:.3f}, and no longer at "
            f"right angles ({_slant(numbers)}).",
            f"Reconstructions by PPCA are nearer to the mean by {numbers['factor found']:.3f}, not "
            f"by 1 − σ²/λ₁ = {numbers['factor expected']:.3f} ({_slant(numbers)}).",
        ),
        "The points of the slide (a demonstration of PMTK3) are not published: these are 25 draws "
        "from a Gaussian.",
    )


def _slant(numbers: dict[str, Any]) -> str:
    angles = [numbers[f"angle of {name}'s steps to the line"] for name in ("PCA", "PPCA")]
    return f"{angles[0]:.0f}° with PCA, {angles[1]:.0f}° on average with PPCA"


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
    ax.margins(0.06)


# --- EM for PCA in the limit σ² → 0, step by step (Roweis 1998) --------------------------------

CYAN = "#009fb7"


@experiment(
    source="S4 EM step by step",
    title="EM for PCA, one step at a time",
    caption="(a) Data (green) and the principal components, eigenvectors times √λ. (b–f) The "
    "current line W (red), the latents z drawn at zW (cyan) and what ties them to their points.",
    test="test_experiments_s2_s4.py::test_em_for_pca_ends_on_the_first_axis",
)
def s4_em_steps(draw: Canvas) -> Outcome:
    """Alternate projections on a line and the best line for projections held fixed."""
    X = draw.rng.multivariate_normal([0.0, 0.0], [[1.0, 0.75], [0.75, 1.3]], size=60)
    X = X - X.mean(axis=0)
    pca = PCA().fit(X)
    u, ell = pca.components_, np.mean((X @ pca.components_.T) ** 2, axis=0)
    w = np.array([1.0, -0.55])  # far from u₁, to see it turn
    found, angles = _converged(X, w, u[0])
    states = [*_first_steps(X, w), ("f  converged", *_state(found, X, X @ _line(found)))]
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
        "E step makes projections orthogonal again, and the line ends "
        + said(angles[-1] < 1e-6, "on u₁", f"{angles[-1]:.1g}° from u₁")
        + f"; the angle shrinks by {numbers['ratio of successive angles']:.3f} per cycle, and "
        f"λ₂/λ₁ = {numbers['ratio of eigenvalues']:.3f} is the rate of the power method.",
        "The points of the slide are not published: these are 60 draws from a Gaussian, and the "
        "line starts almost at right angles to u₁.",
    )


def em_step(X: Floats, w: Floats) -> PPCA:
    """Return EM for PCA after one step from a line: `transform` is its E step (theory 3)."""
    options: dict[str, Any] = {"method": "em", "accelerate": False, "noise_variance": 0}
    with stopped_early():
        return PPCA(1, init=(w[:, None], 1.0), max_iter=1, **options).fit(X)


def _line(model: PPCA) -> Floats:
    return np.asarray(model.loadings_[:, 0])


def _state(model: PPCA, X: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Return the line and the latents, with the sign, which is free, that is nearest to z."""
    new = np.asarray(model.transform(X)[:, 0])
    side = np.sign(new @ z)
    return side * _line(model), side * new


def _first_steps(X: Floats, w: Floats) -> Iterator[tuple[str, Floats, Floats]]:
    """Return the line and the latents at the start and after each half of a cycle."""
    start = PPCA(1, noise_variance=0).fit(np.stack([w, -w]))  # whose line is w
    w, z = _state(start, X, X @ w)
    yield "b  start", w, z
    w, new = _state(em_step(X, w), X, z)
    yield "c  M step: the line moves", w, z
    yield "d  E step: the points move", w, new
    yield "e  second M step", _state(em_step(X, w), X, new)[0], new


def _converged(X: Floats, w: Floats, u: Floats) -> tuple[PPCA, list[float]]:
    """Return EM in the end, and the angle of its line to the first axis after each cycle."""
    angles = []
    for _ in range(60):
        across = float(np.linalg.norm(w - (w @ u) * u))
        angles.append(float(np.degrees(np.arctan2(across, abs(w @ u)))))
        model = em_step(X, w)
        w = _line(model)
    return model, angles


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
    test="test_experiments_s2_s4.py::test_missing_values_of_oil_flow",
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
        said(
            numbers["1 - R2 of Procrustes, mean"] < 0.3,
            "As on the slide, the picture survives: the three configurations lie where they lay",
            "Unlike on the slide the picture changes",
        )
        + f", and Procrustes leaves {numbers['1 - R2 of Procrustes, mean']:.2f} of the variance "
        f"unexplained on average over {len(masks)} masks.",
        "The slide's own mask is not published, and latents are known up to rotation and "
        "reflection: the right panel is turned onto the left one.",
        f"oil flow (the first {MISSING_ROWS} readings)",
    )


def _figure(draw: Canvas, maps: dict[str, Floats], y: Labels, names: Sequence[str]) -> Figure:
    """Draw latents side by side."""
    figure, axes = draw.panels(1, 2, height=4.2, sharex=True, sharey=True)
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
    title="Hinton diagrams: Bayesian PCA switches off directions it does not need",
    caption="Loadings W of ten features (rows) on nine directions (columns): the area of a square "
    "is the size of a loading, white is positive and black is negative.",
    test="test_experiments_s2_s4.py::test_bayesian_pca_finds_three_dimensions",
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
    figure, axes = draw.panels(1, 2, height=4.15)
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
        f"Maximum likelihood fills {int(np.sum(lengths > 1e-8))} of {STARTED} columns, and the "
        f"prior empties {STARTED - bayes.n_effective_}"
        + said(bayes.n_effective_ == 3, ", as on the slide", ", where the slide has six")
        + f": three dimensions in {numbers['draws with three dimensions']} of {count} draws.",
        "The slide's 300 points are not published: these are draws of the same kind (standard "
        "deviation 1 in three directions, 0.5 in seven). The three directions are the first three "
        "features here, so the blocks of large squares are where they must be.",
        f"{HINTON_ROWS} simulated points with {len(DEVIATIONS)} features",
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


# --- kernel PCA: straight in feature space, curved among the inputs ------------------------------


@experiment(
    source="S4 kernel PCA, feature space",
    title="A straight component in feature space is a curved one among the inputs",
    caption="Left: points x and lines along which the projection on the first component is "
    "constant (green). Right: the same points after φ(x) = (x₁², x₂), the first principal "
    "component v₁ (red) and their projections on it (green); the lines on the left are straight "
    "here, at right angles to v₁.",
    test="test_experiments_s2_s4.py::test_the_feature_space_picture_is_kernel_pca",
)
def s4_feature_space(draw: Canvas) -> Outcome:
    """Map points to a feature space that can be drawn; compare PCA there with kernel PCA."""
    rng = draw.rng
    t = rng.uniform(0.3, 2.4, 60)
    X = np.column_stack([t, 0.75 * t**2 + 0.5 * rng.normal(size=len(t))])
    F = features(X)
    primal, kernel = PCA(1).fit(F), KernelPCA(1, kernel=pair).fit(X)
    v, mean = np.asarray(primal.components_)[0], np.asarray(primal.mean_)
    v = v * np.sign(v[0])
    figure, [[inputs, mapped]] = draw.panels(1, 2, height=3.5)
    _draw_inputs(inputs, X, v, mean)
    _draw_features(mapped, F, v, mean)
    Z, Y = np.asarray(primal.transform(F))[:, 0], np.asarray(kernel.transform(X))[:, 0]
    line = PCA(1).fit(X)
    numbers = {
        "projections apart from kernel PCA": float(np.abs(np.abs(Z) - np.abs(Y)).max()),
        "share of the variance in feature space": float(primal.explained_variance_ratio_[0]),
        "share of the variance among the inputs, linear": float(line.explained_variance_ratio_[0]),
        "correlation of the component with the way along the curve": _rank(t, (F - mean) @ v),
        "v1": v,
    }
    apart = numbers["projections apart from kernel PCA"]
    return Outcome(
        {"figure": figure},
        numbers,
        said(
            apart < 1e-10,
            "As on the slide: kernel PCA, which sees only k(x, x') = φ(x)ᵀφ(x'), gives the very "
            f"projections on v₁ that PCA gives in feature space (within {apart:.0e}), and straight "
            "lines there are curves among the inputs.",
            f"Kernel PCA and PCA in feature space differ by {apart:.0e}.",
        ),
        "The slide is PRML's figure 12.16, a drawing: neither its points nor its φ are known. "
        "φ(x) = (x₁², x₂) was chosen because it can be drawn.",
        f"{len(X)} simulated points near a parabola",
    )


def features(X: Floats) -> Floats:
    """Return φ(x) = (x₁², x₂)."""
    return np.column_stack([X[:, 0] ** 2, X[:, 1]])


def pair(x: Floats, y: Floats) -> float:
    """Return k(x, y) = φ(x)ᵀφ(y) = x₁²y₁² + x₂y₂."""
    return float(x[0] ** 2 * y[0] ** 2 + x[1] * y[1])


def _rank(a: Floats, b: Floats) -> float:
    """Return the correlation of ranks."""
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def _draw_inputs(ax: Axes, X: Floats, v: Floats, mean: Floats) -> None:
    x, y = np.meshgrid(np.linspace(-0.2, 2.8, 150), np.linspace(-1.4, 6.4, 150))
    heights = (features(np.column_stack([x.ravel(), y.ravel()])) - mean) @ v
    levels = np.arange(-4, 5.1, 1.0)
    ax.contour(
        x, y, heights.reshape(x.shape), levels=levels, colors=GREEN, linewidths=1.0, linestyles="-"
    )
    ax.plot(*X.T, "o", ms=4, mew=0, color=BLUE)
    ax.set(xlabel="x₁", ylabel="x₂", title="inputs", xlim=(-0.2, 2.8), ylim=(-1.4, 6.4))


def _draw_features(ax: Axes, F: Floats, v: Floats, mean: Floats) -> None:
    along = (F - mean) @ v
    for f, a in zip(F, along, strict=True):
        ax.plot(*np.column_stack([f, mean + a * v]), color=GREEN, lw=1.0)
    reach = 1.12 * np.abs(along).max()
    start, end = mean - reach * v, mean + reach * v
    ax.plot(*np.stack([start, end]).T, lw=0)  # annotations do not widen axes
    ax.annotate(
        "", tuple(end), tuple(start), arrowprops={"arrowstyle": "-|>", "color": RED, "lw": 2}
    )
    ax.annotate("v₁", tuple(end), (-16, 0), textcoords="offset points", color=RED, ha="right")
    ax.plot(*F.T, "o", ms=4, mew=0, color=BLUE)
    ax.set(xlabel="φ₁ = x₁²", ylabel="φ₂ = x₂", title="feature space")
    ax.set(aspect="equal", adjustable="datalim")
    ax.margins(0.08)


# --- kernel PCA: eigenfunctions of three clusters ----------------------------------------------

CENTRES, EACH, SPREAD = np.array([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]]), 30, 0.1
PRINTED = (21.72, 21.65, 4.11, 3.93, 3.66)
"""Eigenvalues that the text of the slide still shows, of eight."""


@experiment(
    source="S4 kernel PCA",
    title="Eight eigenfunctions: two tell three clusters apart, six split them",
    caption="Lines along which a component is constant, its eigenvalue above; blue is negative and "
    "red positive. Gaussian kernel exp(−‖x − x'‖²/0.1).",
    test="test_experiments_s2_s4.py::test_eigenvalues_of_three_clusters",
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
        _halves(model, X, inside),
        "The points are not published, only their kind (30 each at three centres, standard "
        "deviation 0.1, in the demonstration of Schölkopf that the slide uses), so eigenvalues "
        "agree in distribution, not in digits. The slide's kernel lacks the square of its norm.",
        f"{len(X)} simulated points in three clusters",
    )


def _halves(model: KernelPCA, X: Floats, inside: Floats) -> str:
    """Say which components tell clusters apart and which split them, by their variances."""
    Z = model.transform(X).reshape(3, EACH, -1)
    between = Z.mean(axis=1).var(axis=0) / Z.reshape(-1, Z.shape[2]).var(axis=0)
    apart = [k + 1 for k, share in enumerate(between) if share > 0.5]
    split = [k + 1 for k, share in enumerate(between) if share <= 0.5]
    agree = said(
        apart == [1, 2],
        "As the slide says, the first two components tell the three clusters apart, and the next "
        "six split clusters",
        f"Components {apart} tell the three clusters apart, and {split} split clusters",
    )
    usual = said(
        np.all((inside > 0.005) & (inside < 0.995)),
        "lie within what draws of such points give",
        "do not all lie within what draws of such points give",
    )
    return (
        f"{agree} (at least {100 * between[:2].min():.0f} % of the variance of the first two is "
        f"between clusters, at most {100 * between[2:].max():.0f} % of the others). The "
        f"eigenvalues it prints {usual}."
    )


def _eigen_points(rng: np.random.Generator) -> Floats:
    return np.repeat(CENTRES, EACH, axis=0) + SPREAD * rng.standard_normal((3 * EACH, 2))


def _model() -> KernelPCA:
    return KernelPCA(8, kernel="rbf", gamma=1 / 0.1)
