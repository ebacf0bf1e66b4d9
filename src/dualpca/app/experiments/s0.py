"""De Plaen and Suykens (2023): the dual formulation of probabilistic PCA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from scipy.spatial.distance import pdist

from dualpca import DualPPCA, KernelPCA
from dualpca.app import datasets
from dualpca.app.datasets import Floats, Images, Labels
from dualpca.app.experiments.canvas import BLUE, GREEN, INK, MUTED, PALE, RED, Canvas, wave
from dualpca.app.experiments.running import Outcome, experiment, said
from dualpca.preimages import PlainSmoother, Smoother

# --- figure 1: the spaces of the primal and of the dual formulation, and the ways between -------

BROWN = "#8c5a2b"
BOX = (0.19, 0.2)
SPACES = {
    "X": (0.10, 0.50, r"$\mathcal{X}$", "input", GREEN),
    "H": (0.35, 0.86, r"$\mathcal{H}$", "features, d", BLUE),
    "HE": (0.62, 0.86, r"$\mathcal{H}_{\mathcal{E}}$", "finite features, n", BLUE),
    "HL": (0.89, 0.86, r"$\mathcal{H}_{\mathcal{L}}$", "reduced, q", BLUE),
    "E": (0.42, 0.14, r"$\mathcal{E}$", "kernel values, n", BROWN),
    "L": (0.89, 0.14, r"$\mathcal{L}$", "latents, q", BROWN),
}
"""Spaces: where they are drawn, their symbol, what they hold, their colour."""
MAPS = (
    ("X", "H", r"$\varphi$", 0.0),
    ("H", "HE", "", 0.0),
    ("HE", "HL", "", 0.0),
    ("X", "E", r"$k(x_i, \cdot)$", 0.0),
    ("HE", "E", r"$\Phi_c^*$", 0.13),
    ("E", "HE", r"$\Phi_c$", 0.13),
    ("E", "L", r"$A^*$", 0.3),
    ("L", "E", r"$A$", 0.3),
    ("HE", "L", r"$W^*$", 0.14),
    ("L", "HE", r"$W$", 0.14),
)
"""Maps: from, to, name, how much the arrow bends."""


@experiment(
    source="S0 Fig. 1",
    title="The spaces of probabilistic PCA, primal and dual, and the maps between them",
    caption="Feature spaces (primal) in blue, kernel and latent spaces (dual) in brown, the input "
    "space in green; n points, d features, q components; W = Φ_c A. Both ways from an input "
    "to its latents, along the top and along the bottom, end in the same place.",
    test="test_experiments.py::test_s0_figure_1_both_ways_round_agree",
)
def s0_figure_1(draw: Canvas) -> Outcome:
    """Draw the spaces, and go both ways round on numbers: primal by W, dual by A."""
    figure, [[ax]] = draw.panels(1, 1, height=4.3)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    draw.bare(ax)
    for start, end, name, bend in MAPS:
        _arrow(ax, np.array(SPACES[start][:2]), np.array(SPACES[end][:2]), name, bend)
    for space in SPACES.values():
        _space(ax, *space)
    numbers = _both_ways(draw.rng)
    worst = max(numbers[key] for key in ("W_is_Phi_A", "latents", "reconstructions"))
    return Outcome(
        {"spaces": figure},
        numbers,
        said(
            worst < 1e-10,
            "The diagram commutes: W = Φ_c A, and latents and reconstructions by W (Eqs. 8, 9) and "
            f"by A (Eqs. 16, 17) are the same within {worst:.0e}, for 30 points with 6 features.",
            f"The two ways round the diagram differ by {worst:.0e} for 30 points with 6 features.",
        ),
        "The published figure is a drawing; its colours are kept, its layout is not known from the "
        "text. Where it has identities I_ℋ_ℰ and I_ℒ as arrows of their own, they are left out.",
        "30 simulated points with 6 features",
    )


def _space(ax: Axes, x: float, y: float, symbol: str, words: str, colour: str) -> None:
    """Draw a space as a box with its name."""
    corner = (x - BOX[0] / 2, y - BOX[1] / 2)
    box: dict[str, Any] = {
        "boxstyle": "round,pad=0,rounding_size=0.03",
        "fc": "white",
        "ec": colour,
        "lw": 1.8,
    }
    ax.add_patch(FancyBboxPatch(corner, *BOX, zorder=3, **box))
    at: dict[str, Any] = {"ha": "center", "va": "center", "color": colour, "zorder": 4}
    ax.text(x, y + 0.035, symbol, fontsize=15, **at)
    ax.text(x, y - 0.055, words, fontsize=9, **at)


def _arrow(ax: Axes, start: Floats, end: Floats, name: str, bend: float) -> None:
    """Draw a map as an arrow between the edges of two boxes, with its name on it."""
    way = end - start
    inside = way * min(np.abs(np.array(BOX) / 2 / np.where(way == 0, 1e-9, way)))
    side = bend * np.array([way[1], -way[0]]) / 4  # both of a pair, a little apart
    first, last = start + 1.04 * inside + side, end - 1.04 * inside + side
    line: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 14, "lw": 1.4, "color": MUTED}
    ends = (tuple(first), tuple(last))
    ax.add_patch(FancyArrowPatch(*ends, shrinkA=0, shrinkB=0, connectionstyle="arc3", **line))
    at: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12, "zorder": 2}
    x, y = first + (0.36 if bend else 0.5) * (last - first)  # of a pair each nearer to its start
    ax.text(x, y, name, bbox={"fc": "white", "ec": "none", "pad": 1.5}, **at)


def _both_ways(rng: np.random.Generator) -> dict[str, float]:
    """Return how far the primal and the dual way are apart, for a linear kernel."""
    n, d, q = 30, 6, 2
    X = rng.normal(size=(n, d)) * np.linspace(2, 0.5, d)
    F = X - X.mean(axis=0)  # Φ_c, transposed
    model = DualPPCA(q, kernel="linear").fit(X)
    lam, E = (part[..., ::-1][..., :q] for part in np.linalg.eigh(F @ F.T))
    noise = float(model.noise_variance_)
    A = E * np.sqrt(1 / n - noise / lam)  # Eq. 13
    V = F.T @ E / np.sqrt(lam)
    W = V * np.sqrt(lam / n - noise)  # Eq. 5
    K = F @ F.T
    primal = np.linalg.solve(W.T @ W + noise * np.eye(q), W.T @ F.T)  # Eq. 8
    dual = np.linalg.solve(A.T @ K @ A + noise * np.eye(q), A.T @ K)  # Eq. 16
    fitted = np.asarray(model.transform(X)).T
    same = np.sign(np.sum(fitted * dual, axis=1))[:, None]
    return {
        "points": n,
        "features": d,
        "components": q,
        "W_is_Phi_A": float(np.abs(F.T @ A - W).max()),
        "latents": float(np.abs(primal - dual).max()),
        "reconstructions": float(np.abs(F @ (W @ primal) - K @ A @ dual).max()),
        "latents_of_the_library": float(np.abs(same * fitted - dual).max()),
    }


# --- figure 2: sampling in the whole kernel space, and on the components only ------------------

KEPT = 3


@experiment(
    source="S0 Fig. 2",
    title="Dual PPCA samples the whole kernel space, kernel PCA only its components",
    caption="Left: sampled kernel values along the first component and along the first discarded "
    "direction, of dual PPCA and of kernel PCA. Right: their variance along every direction, "
    "beside that of the model.",
    test="test_experiments.py::test_s0_figure_2_samples_as_the_model_says",
)
def s0_figure_2(draw: Canvas) -> Outcome:
    """Sample centred kernel values of twenty points, on and off three components."""
    X = wave()
    ours = DualPPCA(KEPT, gamma=1 / 8).fit(X)
    theirs = DualPPCA(KEPT, gamma=1 / 8, noise_variance=0.0).fit(X)  # kernel PCA as a model
    every = KernelPCA(len(X) - 1, kernel="rbf", gamma=1 / 8).fit(X)
    E, lam = np.asarray(every.eigenvectors_), np.asarray(every.eigenvalues_)
    size = draw.pick(5000, quick=200)
    along = {
        name: np.asarray(model.sample_kernel(size, draw.seed)) @ E
        for name, model in (("dual PPCA", ours), ("kernel PCA", theirs))
    }
    target = lam**2 / len(X)
    target[KEPT:] = ours.noise_variance_ * lam[KEPT:]
    measured = {name: Z.var(axis=0) for name, Z in along.items()}
    figure, [[plane, bars]] = draw.panels(1, 2, height=3.5)
    _draw_plane(plane, along)
    _draw_variances(bars, measured, target)
    draw.key(figure, plane)
    numbers = {
        "directions_reached_by_dual_ppca": _reached(along["dual PPCA"]),
        "directions_reached_by_kernel_pca": _reached(along["kernel PCA"]),
        "variance_off_components": float(measured["dual PPCA"][KEPT:].sum()),
        "variance_off_components_by_the_model": float(target[KEPT:].sum()),
        "variance_off_components_of_kernel_pca": float(measured["kernel PCA"][KEPT:].sum()),
        "largest_relative_error_of_a_variance": float(
            np.abs(measured["dual PPCA"] / target - 1).max()
        ),
        "noise_variance": float(ours.noise_variance_),
    }
    reached = [numbers[f"directions_reached_by_{name}"] for name in ("dual_ppca", "kernel_pca")]
    return Outcome(
        {"samples": figure},
        numbers,
        f"Samples of dual PPCA reach {reached[0]} of the {len(lam)} directions of the centred "
        f"kernel space, those of kernel PCA (σ² = 0) {reached[1]}, with {KEPT} components both; "
        "along every direction the variance of dual PPCA's is that of B (section 4.4), λ²/n on the "
        "components and σ²λ off them, within "
        f"{100 * numbers['largest_relative_error_of_a_variance']:.0f} % for {size} samples.",
        "The published figure is a diagram without data. The formula printed for the covariance "
        "(Eq. 18) is not that of B; samples here follow B. The twenty points are ours, (t, sin t).",
        "20 simulated points, (t, sin t)",
    )


def _reached(along: Floats) -> int:
    """Return the number of directions that samples reach beyond rounding errors."""
    return int(np.linalg.matrix_rank(along))


LOOKS = {"dual PPCA": ("o", BLUE), "kernel PCA": ("s", RED)}


def _draw_plane(ax: Axes, along: dict[str, Floats]) -> None:
    """Draw samples along the first component and the first direction that was discarded."""
    for name, (mark, colour) in LOOKS.items():
        x, y = along[name][:500, 0], along[name][:500, KEPT]
        ax.plot(x, y, mark, ms=3, mew=0, alpha=0.6, color=colour, label=name)
    ax.set(xlabel="along component 1", ylabel=f"along direction {KEPT + 1}, discarded")


def _draw_variances(ax: Axes, measured: dict[str, Floats], target: Floats) -> None:
    """Draw the variance of samples along every direction; far below the others is off the panel."""
    place = np.arange(1, len(target) + 1)
    ax.semilogy(place, target, "-", color=INK, lw=1.0)
    for (name, (mark, colour)), size in zip(LOOKS.items(), (4, 7), strict=True):
        ax.semilogy(place, measured[name], mark, ms=size, mfc="none", color=colour)
    ax.set_ylim(0.1 * target[-1], 10 * target[0])
    ax.annotate("line: the model", (place[8], target[8]), (6, 6), textcoords="offset points")
    rest = float(measured["kernel PCA"][KEPT:].max())
    words = f"kernel PCA: at most\n{rest:.0e} from here on"
    ax.annotate(words, (KEPT + 0.8, 0.3 * target[-1]), color=RED)
    ax.axvline(KEPT + 0.5, color=RED, lw=0.8, ls=(0, (5, 3)))
    ax.set(xlabel="direction of kernel space", ylabel="variance of samples")
    ax.set_xticks([1, 4, 7, 10, 13, 16, 19])


# --- figure 3: points, their reconstructions and samples, for three sizes of the model ---------

SIZES = (1, 3, 10)
ROWS = {
    "centred, linear": (True, True),
    "uncentred, linear": (False, True),
    "uncentred, Eq. 19": (False, False),
}
"""Rows of the figure: whether the kernel is centred, and the denominator a constant."""
SETTING = "centred, linear"
"""That of the document: the stabilisation term divides, for centred kernel values sum to 0."""
REACH, LARGEST = (9.0, 1.2), 15
"""Half the width and height of a panel; the most components of the second picture."""
COUNTED, FEW = (20, 50), (1, 2, 3, 4)
"""Points and components of the third picture."""


@experiment(
    source="S0 Fig. 3",
    title="Reconstructions and samples of dual PPCA beside kernel PCA, with one to ten components",
    caption="First: points (black), their reconstructions by kernel PCA (red) and dual PPCA (blue) "
    "and samples of dual PPCA (grey), with 1, 3 and 10 components. Top, the document's setting: "
    "a centred kernel, x̂ = Σ k̂ᵢxᵢ / s with a constant s (the mean of Σᵢ k(xᵢ, x) over all points). "
    "Middle: the same uncentred. Bottom: Eq. 19 as printed, x̂ = Σ k̂ᵢxᵢ / Σ k̂ᵢ. EV is the "
    "explained variance. Second: the gap between both models and the spread of samples for every "
    "number of components, on these points. Third: the same and σ² for 1 to 4 components on points "
    "(t, sin t) with random t; bars are standard deviations over draws of the points.",
    test="test_experiments.py::test_s0_figure_3_what_holds_of_its_text",
)
def s0_figure_3(draw: Canvas) -> Outcome:
    """Reconstruct and sample: centred or not, with a constant denominator and with Eq. 19."""
    X = wave()
    figure, axes = draw.panels(3, 3, height=8.4, sharex=True, sharey=True)
    rows: dict[str, Any] = {}
    for row, (name, (center, linear)) in zip(axes, ROWS.items(), strict=True):
        rows[name] = {}
        for ax, q in zip(row, SIZES, strict=True):
            rows[name][str(q)] = _draw(ax, X, q, center, linear, draw)
        row[0].set_ylabel(name, fontsize=11, weight="bold")
    axes[0, 0].set(xlim=(-REACH[0], REACH[0]), ylim=(-REACH[1], REACH[1]))
    draw.key(figure, axes[0, 0])
    curves = {name: _curves(X, *how) for name, how in ROWS.items()}
    draws = {name: _over_draws(name, draw) for name in list(ROWS)[:2]}
    pictures = {
        "reconstructions": figure,
        "tendency": _draw_curves(draw, curves),
        "draws": _draw_over_draws(draw, draws),
    }
    return Outcome(
        pictures,
        _heading(rows) | rows | {"by_components": curves, "over_draws": draws},
        _tendency(rows[SETTING]),
        f"{_spread(curves, draws)} The twenty points are unpublished; ours are (t, sin t), so the "
        f"numbers cannot be equal. {_printed(rows[SETTING], len(X))} Eq. 19 as printed divides by "
        "the sum, which cancels most of the difference between the two models (bottom row: "
        f"{_list(rows['uncentred, Eq. 19'], 'gap_to_kernel_pca')} apart) and sends samples far "
        f"away where it vanishes ({_list(rows['uncentred, Eq. 19'], 'samples_outside', '.0%')} of "
        "them outside the panel). The sizes of panels (a) and (c) are not known.",
        "20 simulated points, (t, sin t); draws of 20 and of 50",
    )


PUBLISHED = {"explained_published": 0.5403, "noise_variance_published": 0.0098}


def _printed(ours: dict[str, Any], n: int) -> str:
    """Say to which N the numbers belong that are printed for three components and n points.

    tr Kc/N = σ²(N − q)/(1 − EV), which is 1 for a kernel of unit diagonal that is not centred.
    """
    (explained, noise), q = PUBLISHED.values(), 3
    found = round((1 - explained) / noise + q)
    needed = noise * (n - q) / (1 - explained)
    trace = ours[str(q)]["noise_variance"] * (n - q) / (1 - ours[str(q)]["explained"])
    printed = f"Those printed ({100 * explained:.2f} %, {100 * noise:.2f} % with q = {q})"
    return printed + said(
        found == n,
        f" fit an uncentred kernel, whose σ² = (1 − EV)/(N − q), and N = {n}.",
        f" do not fit N = {n}: an uncentred kernel has σ² = (1 − EV)/(N − q), which gives "
        f"N = {found}; a centred one would need a mean diagonal of {needed:.2f}, where ours has "
        f"{trace:.2f}.",
    )


def _list(sizes: dict[str, Any], key: str, form: str = ".2g") -> str:
    """Return one number of all sizes, in words."""
    *first, last = (f"{round(sizes[str(q)][key], 12) or 0.0:{form}}" for q in SIZES)
    return f"{', '.join(first)} and {last}"


def _tendency(sizes: dict[str, Any]) -> str:
    """Say how far the first two claims of the text hold in the document's setting."""
    noise, gap = (
        np.array([sizes[str(q)][key] for q in SIZES])
        for key in ("noise_variance", "gap_to_kernel_pca")
    )
    falls = said(np.all(np.diff(noise) < 0), "falls", "does not fall")
    closes = said(np.all(np.diff(gap) < 0), "draw nearer to", "do not draw nearer to")
    return (
        "With 1, 3 and 10 components in the document's setting (centred, linear), σ² "
        f"{falls}, as the text says ({_list(sizes, 'noise_variance')}), and reconstructions of "
        f"dual PPCA {closes} those of kernel PCA "
        f"({_list(sizes, 'gap_to_kernel_pca', '.2f')} apart on average)."
    )


def _spread(curves: dict[str, Any], draws: dict[str, Any]) -> str:
    """Say how far the third claim holds: that samples spread wider with more components."""
    spread = np.array(curves[SETTING]["spread"][: len(FEW)])
    found = [draws[SETTING][str(n)] for n in COUNTED]
    gains, steady, between = (
        " and ".join(f"{100 * one[key]:.0f} %" for one in found)
        for key in ("spread_gained", "spread_grows_each_time", "spread_between_draws")
    )
    small = max(one["spread_gained"] for one in found) < 0.1
    other = draws["uncentred, linear"][str(COUNTED[0])]
    return (
        "That samples spread wider with more components holds "
        + said(small, "only just in this setting: ", "in this setting: ")
        + f"from 1 to {FEW[-1]} components by {100 * (spread[-1] / spread[0] - 1):.1f} % on these "
        + said(
            np.all(np.diff(spread) > 0), "points, at every step (", "points, not at every step ("
        )
        + ", ".join(f"{value:.3f}" for value in spread)
        + f"), and by {gains} in the median of {found[0]['draws']} draws of {COUNTED[0]} and of "
        f"{COUNTED[1]} points, at every step in {steady} of the draws; from draw to draw the "
        f"spread differs by {between}. Uncentred, it is {100 * other['spread_gained']:.0f} % with "
        f"{COUNTED[0]} points, most of it from the first component to the second "
        f"({100 * other['spread_gained_by_the_second']:.0f} %)."
    )


def _heading(rows: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of three components beside the published ones."""
    found: dict[str, Any] = dict(PUBLISHED)
    for name in ("uncentred", "centred"):
        found[f"explained_q3_{name}"] = rows[f"{name}, linear"]["3"]["explained"]
        found[f"noise_variance_q3_{name}"] = rows[f"{name}, linear"]["3"]["noise_variance"]
    return found


class Fitted(NamedTuple):
    """Reconstructions of the points by both models, and the spread of samples."""

    theirs: Floats  # (n, 2), kernel PCA
    ours: Floats  # (n, 2), dual PPCA
    spread: float  # root mean square distance of a sample from the origin; NaN unless linear
    noise: float  # σ²

    @property
    def gap(self) -> float:
        """Mean distance of the two reconstructions of a point."""
        return float(np.linalg.norm(self.ours - self.theirs, axis=1).mean())


def _model(q: int, center: bool, **options: Any) -> Any:
    return DualPPCA(q, gamma=1 / 8, center=center, **options)


def _back(model: Any, k: Any, linear: bool) -> Floats:
    """Return x̂ = Σ k̂ᵢxᵢ / Σ k̂ᵢ for rows of kernel values (Eq. 19), or with a constant below."""
    if not linear:
        return np.asarray(model.preimage_of_kernel(k, PlainSmoother()).points)
    return np.asarray(k @ model.X_fit_ / _constant(model))


def _constant(model: Any) -> float:
    """Return the mean of Σᵢ k(xᵢ, x) over the points."""
    X = model.X_fit_
    return float(np.asarray(model.kernel_(X, X)).sum(axis=1).mean())


def _fitted(X: Floats, q: int, center: bool, linear: bool) -> Fitted:
    """Return reconstructions by dual PPCA, and with σ² = 0, which is kernel PCA."""
    models = _model(q, center, noise_variance=0.0).fit(X), _model(q, center).fit(X)
    theirs, ours = (_back(m, m.reconstruct_kernel(X, centered=center), linear) for m in models)
    B = models[1].sampling_operator() @ np.eye(len(X))
    spread = np.linalg.norm(X.T @ B) / _constant(models[1]) if linear else np.nan
    return Fitted(theirs, ours, float(spread), float(models[1].noise_variance_))


def _draw(
    ax: Axes, X: Floats, q: int, center: bool, linear: bool, draw: Canvas
) -> dict[str, float]:
    """Draw one panel and return its numbers."""
    model, found = _model(q, center).fit(X), _fitted(X, q, center, linear)
    noise = float(model.noise_variance_)
    samples = _back(model, model.sample_kernel(draw.pick(1000, quick=60), draw.seed), linear)
    outside = np.any(np.abs(samples) > REACH, axis=1)
    layers = {
        "samples": (samples[:300], "o", PALE, 2.5),
        "points": (X, "o", INK, 4.0),
        "kernel PCA": (found.theirs, "s", RED, 6.0),
        "dual PPCA": (found.ours, "^", BLUE, 4.0),
    }
    for name, (places, shape, colour, size) in layers.items():
        fill = "none" if name == "kernel PCA" else colour
        ax.plot(*places.T, shape, ms=size, color=colour, mfc=fill, mew=1.1 * (fill == "none"))
        ax.lines[-1].set(label=name, alpha=0.8)
    share = float(np.sum(model.explained_variance_ratio_))
    ax.set_title(f"q = {q}\nEV {100 * share:.1f} %, σ² {100 * noise:.2f} %", fontsize=10)
    return {
        "explained": share,
        "noise_variance": noise,
        "gap_to_kernel_pca": found.gap,
        "spread_of_samples": found.spread,
        "spread_of_drawn_samples": float(np.sqrt(np.mean(np.sum(samples**2, axis=1)))),
        "samples_outside": float(outside.mean()),
    }


def _curves(X: Floats, center: bool, linear: bool) -> dict[str, list[float]]:
    """Return the gap between both models and the spread of samples, for 1 to 15 components."""
    found = [_fitted(X, q, center, linear) for q in range(1, LARGEST + 1)]
    return {"gap": [one.gap for one in found], "spread": [one.spread for one in found]}


def _over_draws(name: str, draw: Canvas) -> dict[str, Any]:
    """Return σ², gap and spread for 1 to 4 components over draws of the points."""
    center, linear = ROWS[name]
    found = {}
    for n in COUNTED:
        draws = range(draw.pick(20, quick=3))
        values = np.array([_of_draw([draw.seed, n, k], n, center, linear) for k in draws])
        noise, gap, spread = np.moveaxis(values, 2, 0)  # (draws, components) each
        found[str(n)] = {
            "draws": len(draws),
            "spread_gained": float(np.median(spread[:, -1] / spread[:, 0])) - 1,
            "spread_gained_by_the_second": float(np.median(spread[:, 1] / spread[:, 0])) - 1,
            "spread_grows_each_time": float(np.mean(np.all(np.diff(spread) > 0, axis=1))),
            "spread_between_draws": float((spread.std(axis=0) / spread.mean(axis=0)).mean()),
            "noise_falls_each_time": float(np.mean(np.all(np.diff(noise) < 0, axis=1))),
            "means": {"noise": noise.mean(0), "gap": gap.mean(0), "spread": spread.mean(0)},
            "deviations": {"noise": noise.std(0), "gap": gap.std(0), "spread": spread.std(0)},
        }
    return found


def _of_draw(seed: list[int], n: int, center: bool, linear: bool) -> list[list[float]]:
    """Return (σ², gap, spread) for 1 to 4 components on n points of the sine at random places."""
    t = np.random.default_rng(seed).uniform(-7, 7, n)
    X = np.column_stack([t, np.sin(t)])
    found = [_fitted(X, q, center, linear) for q in FEW]
    return [[one.noise, one.gap, one.spread] for one in found]


def _draw_over_draws(draw: Canvas, draws: dict[str, Any]) -> Figure:
    """Draw means over draws of the points, with standard deviations."""
    figure, [axes] = draw.panels(1, 3, height=3.1)
    series = [(name, n) for name in draws for n in COUNTED]
    for k, (name, n) in enumerate(series):
        one, place = draws[name][str(n)], np.array(FEW) + 0.1 * (k - 1.5)
        options: dict[str, Any] = {"fmt": "os"[k % 2], "ms": 4, "lw": 1.2, "capsize": 2}
        options |= {"color": (BLUE, RED)[k // 2], "mfc": "none" if k % 2 else None}
        for ax, key in zip(axes, ("noise", "gap", "spread"), strict=True):
            unit = 100 if key == "noise" else 1
            bars = unit * np.asarray(one["deviations"][key])
            ax.errorbar(place, unit * np.asarray(one["means"][key]), bars, **options)
            ax.lines[-1].set(label="_")
        axes[0].containers[-1].set_label(f"{name.partition(',')[0]}, N = {n}")
    for ax, title in zip(axes, ("σ², %", "gap to kernel PCA", "spread of samples"), strict=True):
        ax.set(title=title, xlabel="components q", xticks=FEW, ylim=(0, None))
    draw.key(figure, axes[0])
    return figure


def _draw_curves(draw: Canvas, curves: dict[str, dict[str, list[float]]]) -> Figure:
    """Draw gap and spread over the number of components."""
    figure, [[gap, spread]] = draw.panels(1, 2, height=3.1)
    place = np.arange(1, LARGEST + 1)
    looks = ((BLUE, "o-"), (RED, "s--"), (PALE, "D:"))
    for (name, found), (colour, mark) in zip(curves.items(), looks, strict=True):
        gap.plot(place, found["gap"], mark, ms=4, color=colour, label=name)
        if np.all(np.isfinite(found["spread"])):
            spread.plot(place, found["spread"], mark, ms=4, color=colour)
    gap.set(title="between the two models", ylabel="mean distance", xlabel="components q")
    spread.set(title="spread of samples", ylabel="distance from the origin")
    spread.set(xlabel="components q", ylim=(0, None))
    for ax in (gap, spread):
        ax.set_xticks([1, 3, 5, 10, 15])
    draw.key(figure, gap)
    return figure


# --- figure 4: zeros and ones of MNIST, reduced and generated ----------------------------------

POINTS, SHOWN = 500, 10
SPLITS = [k / 10 for k in range(1, 10)]
"""Shares of ones among the digits that are fitted, which the document does not give."""
PRINTED = {"explained_published": 0.2797, "noise_variance_published": 0.0014}
ROUNDED = 0.005
"""Largest rounding error of the published numbers, in per cent."""
LITERAL = "centred, Eq. 19, stabiliser"


@experiment(
    source="S0 Fig. 4 a–c",
    title="Zeros and ones: originals, after reduction to two components, and generated",
    caption="(a) Twenty of the digits. (b) The same after reduction to two components. (c) "
    "Generated from latents u, uniform on a square. Ways back to images: as the text says, centred "
    "with Eq. 19, where only the stabilisation term divides (it is not published and changes no "
    "more than the contrast: every image is scaled to its own range); uncentred with Eq. 19; with "
    "the safeguarded smoother, whose weights are not negative; centred with the best of all "
    "pre-images. Grey levels outside of 0 … 1 are cut. Splits: explained variance and σ² by the "
    "number of ones among the digits, every draw and their mean; the lines are the published "
    "values, in bands as wide as their rounding.",
    test="test_experiments.py::test_s0_figure_4_what_the_published_numbers_determine",
)
def s0_figure_4(draw: Canvas) -> Outcome:
    """Fit zeros and ones four ways, and the published numbers over splits of the digits."""
    data = datasets.handwriting()
    X, y = _digits(data, draw.rng)
    gamma = 1 / 32 if data.is_mnist else _scaled_gamma(X)
    uncentred = DualPPCA(2, gamma=gamma, center=False, preimage=Smoother(neighbors=None)).fit(X)
    centred = DualPPCA(2, gamma=gamma, preimage="auto").fit(X)
    shown = X[np.concatenate([np.flatnonzero(y == digit)[:SHOWN] for digit in (1, 0)])]
    ways: dict[str, Way] = {
        LITERAL: lambda h: _literal(centred, h),
        "uncentred, Eq. 19": lambda h: _published(uncentred, h),
        "the same, safeguarded": lambda h: np.asarray(uncentred.inverse_transform(h)),
        "centred, best pre-image": lambda h: np.asarray(centred.inverse_transform(h)),
    }
    models = dict(zip(ways, (centred, uncentred, uncentred, centred), strict=True))
    splits = _over_splits(data, gamma, draw)
    numbers = _numbers(uncentred, centred, X, y, draw.pick(50, quick=5))
    numbers |= _signs(uncentred) | {"splits": splits}
    return Outcome(
        _figures(draw, models, ways, shown, data.side) | {"splits": _draw_splits(draw, splits)},
        numbers,
        _agreement(numbers, data),
        _difference(numbers),
        data.source,
    )


Way = Callable[[Floats], Floats]
"""From latents to images."""


def _scaled_gamma(X: Floats) -> float:
    """Return the γ that is to these images what 1/32 is to those of MNIST.

    The median squared distance between zeros and ones of MNIST is 100.
    """
    return 100 / 32 / float(np.median(pdist(X, "sqeuclidean")))


def _over_splits(data: Images, gamma: float, draw: Canvas) -> dict[str, Any]:
    """Return explained variances and σ² of draws of digits, for every number of ones."""
    size, draws = _points(data), draw.pick(10, quick=2)
    ones = [round(share * size) for share in SPLITS]
    found: dict[str, Any] = {"points": size, "ones": ones}
    values = np.zeros((2, 2, len(ones), draws))
    for i, count in enumerate(ones):
        for k in range(draws):
            X, _ = _digits(data, np.random.default_rng([draw.seed, i, k]), count)
            for c, center in enumerate((False, True)):
                model = DualPPCA(2, gamma=gamma, center=center).fit(X)
                share = float(np.sum(model.explained_variance_ratio_))
                values[c, :, i, k] = share, float(model.noise_variance_)
    for c, name in enumerate(("uncentred", "centred")):
        found[name] = {"explained": values[c, 0], "noise_variance": values[c, 1]}
    return found


def _draw_splits(draw: Canvas, splits: dict[str, Any]) -> Figure:
    """Draw both numbers over the number of ones, with the published ones as lines."""
    figure, [axes] = draw.panels(1, 2, height=3.3)
    keys = {"explained": "explained variance, %", "noise_variance": "σ², %"}
    for ax, (key, title) in zip(axes, keys.items(), strict=True):
        for name, (mark, colour) in {"uncentred": ("o", BLUE), "centred": ("s", RED)}.items():
            values = 100 * np.asarray(splits[name][key])
            ax.plot(splits["ones"], values, mark, ms=2.5, mew=0, alpha=0.6, color=colour)
            ax.plot(splits["ones"], values.mean(axis=1), "-", color=colour, label=name)
        line: dict[str, Any] = {"color": INK, "lw": 1.2, "ls": (0, (5, 3))}
        value = 100 * PRINTED[f"{key}_published"]
        ax.axhspan(value - ROUNDED, value + ROUNDED, color=PALE, alpha=0.4, lw=0)
        ax.axhline(value, label="published", **line)
        ax.set(title=title, xlabel=f"ones among {splits['points']} digits", ylim=(0, None))
    draw.key(figure, axes[0])
    return figure


def _agreement(numbers: dict[str, Any], data: Images) -> str:
    """Say what the published numbers determine, and for which splits ours are like them."""
    splits, (explained, noise) = numbers["splits"], PRINTED.values()
    ours, ones = np.asarray(splits["uncentred"]["explained"]), splits["ones"]
    mean, q = 100 * ours.mean(axis=1), 2
    where = float(np.interp(100 * explained, mean, ones))
    met = said(
        bool(mean[0] < 100 * explained < mean[-1]),
        f"the published {100 * explained:.2f} % is met with about {where:.0f}",
        f"the published {100 * explained:.2f} % is met with none of these",
    )
    fits = (1 - explained) / (POINTS - q)
    words = (
        f"The explained variance of an uncentred kernel is {mean[0]:.1f} to {mean[-1]:.1f} % with "
        f"{ones[0]} to {ones[-1]} ones among {splits['points']} digits, a number that the document "
        f"does not give; {met}. Whatever the split, a kernel of unit diagonal has σ² = "
        f"(1 − EV)/(N − q): the published pair is "
        + said(abs(fits - noise) < 0.5e-4, "such a pair", "no such pair")
        + f", for it gives {100 * fits:.4f} %, printed {100 * noise:.2f} %."
    )
    if data.is_mnist:
        return words
    return "On 8 × 8 digits the published numbers cannot be expected. " + words


def _difference(numbers: dict[str, Any]) -> str:
    """Say what a centred kernel has, and what becomes of zeros."""
    zeros = numbers["zeros_still_nearer_to_zeros"]
    centred = numbers["zeros_still_nearer_to_zeros_centred"]
    top = 100 * float(np.max(numbers["splits"]["centred"]["explained"]))
    return (
        "The text speaks of centred kernels: their explained variance is "
        + said(
            top < 100 * numbers["explained_published"],
            f"at most {top:.1f} % over all splits, below",
            f"up to {top:.1f} %, beside",
        )
        + f" the published one. The pictures are of {numbers['ones']} ones and {numbers['zeros']} "
        "zeros, drawn from both at random. Uncentred, "
        f"{100 * zeros:.0f} % of reduced zeros are nearer to the mean zero than to the mean one, "
        f"centred {100 * centred:.0f} %. Taken literally, a centred Eq. 19 gives images of what "
        "differs from the mean, for centred kernel values sum to 0. "
        "Uncentred, Eq. 19 does not change when u changes "
        f"its sign, so opposite corners of (c) are alike; "
        f"{100 * numbers['share_out_of_range']:.0f} % of its images have grey levels more than "
        "0.5 out of range, because the sum of the weights vanishes along a line through the middle."
    )


def _literal(model: Any, latents: Floats) -> Floats:
    """Return images by Eq. 19 with centred values and a stabiliser, each in its own range."""
    back = PlainSmoother(stabilizer=1.0, centered=True)
    made = np.asarray(model.preimages(latents, back).points)
    low, high = (reduce(made, axis=1, keepdims=True) for reduce in (np.min, np.max))
    return np.asarray((made - low) / (high - low))


def _published(model: Any, latents: Floats) -> Floats:
    """Return images of latents by Eq. 19 itself, whose weights may be negative."""
    return np.asarray(model.preimages(latents, PlainSmoother()).points)


def _signs(model: Any) -> dict[str, float]:
    """Return how Eq. 19 treats opposite latents, and how many of its images are out of range."""
    grid = _grid(model, 10)
    made = _published(model, grid)
    return {
        "difference_of_opposite_latents": float(np.abs(made - made[::-1]).max()),
        "share_out_of_range": float(np.mean(np.any(np.abs(made - 0.5) > 1.0, axis=1))),
    }


def _figures(
    draw: Canvas, models: dict[str, Any], ways: dict[str, Way], shown: Floats, pixels: int
) -> dict[str, Figure]:
    """Draw digits, what each way reduces them to, and what it generates."""
    originals, [[ax]] = draw.panels(1, 1, height=1.6)
    draw.images(ax, shown, SHOWN, pixels)
    reduced, below = draw.panels(4, 1, height=6.1)
    generated, four = draw.panels(2, 2, height=6.6)
    last = four.ravel()
    side = draw.pick(10, quick=4)  # even: without u = 0, where Eq. 19 is 0/0
    for small, large, (title, way) in zip(below[:, 0], last, ways.items(), strict=True):
        draw.images(small, way(np.asarray(models[title].transform(shown))), SHOWN, pixels)
        draw.images(large, way(_grid(models[title], side)), side, pixels)
        large.set_title(title, fontsize=9.5)
        small.set_title(title)
    for small, large in zip(four[1], four[:, 0], strict=True):
        small.set(xlabel="first component, −1 … 1")
        large.set(ylabel="second component, −1 … 1")
    return {"a": originals, "b": reduced, "c": generated}


def _points(data: Images) -> int:
    """Return how many digits are fitted: 500, or what both kinds have alone."""
    return int(min(POINTS, *(np.sum(data.y == digit) for digit in (0, 1))))


def _digits(
    data: Images, rng: np.random.Generator, ones: int | None = None
) -> tuple[Floats, Labels]:
    """Return zeros and ones, drawn at random from both, or with this many ones."""
    size = _points(data)
    if ones is None:
        rows = rng.choice(np.flatnonzero(data.y <= 1), size, replace=False)
    else:
        counts = {1: ones, 0: size - ones}
        parts = [rng.choice(np.flatnonzero(data.y == k), m, False) for k, m in counts.items()]
        rows = np.concatenate(parts)
    return data.X[rows], data.y[rows]


def _grid(model: Any, side: int) -> Floats:
    """Return latents h with K A h = Bu, u on a square: the largest u₂ first."""
    u = np.linspace(-1, 1, side)
    grid = np.stack(np.meshgrid(u, u[::-1]), axis=-1).reshape(-1, 2)
    kept = 1 - float(model.noise_variance_) / np.asarray(model.explained_variance_)
    return np.asarray(grid / np.sqrt(kept))


def _numbers(published: Any, centred: Any, X: Floats, y: Labels, count: int) -> dict[str, Any]:
    """Return what was published, what we find, and whether digits stay what they are."""
    found: dict[str, Any] = dict(PRINTED)
    for suffix, model in (("", published), ("_centred", centred)):
        found["explained" + suffix] = float(np.sum(model.explained_variance_ratio_))
        found["noise_variance" + suffix] = float(model.noise_variance_)
        found["zeros_still_nearer_to_zeros" + suffix] = _faithful(model, X, y, count)
    return found | {"zeros": int(np.sum(y == 0)), "ones": int(np.sum(y == 1))}


def _faithful(model: Any, X: Floats, y: Labels, count: int) -> float:
    """Return the share of reduced zeros that lie nearer to the mean zero than to the mean one."""
    zero, one = (X[y == k].mean(axis=0) for k in (0, 1))
    made = np.asarray(model.reconstruct(X[y == 0][:count]))
    return float(np.mean(((made - zero) ** 2).sum(axis=1) < ((made - one) ** 2).sum(axis=1)))
