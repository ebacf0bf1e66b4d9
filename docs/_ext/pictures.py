"""Pictures of the guides, drawn when the site is built and written into the page as SVG.

```{picture} missing-values
What the picture shows: its caption, and its words for those who cannot see it.
```

A picture is a function of this file that returns a figure. Black becomes the colour of the page's
text, so a picture is legible on a light and on a dark page.
"""

from __future__ import annotations

import html
import io
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from docutils import nodes
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.transforms import Bbox
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

BLUE, ORANGE, GREEN, GREY = "#3a8fc4", "#d55e00", "#12a17c", "#8a8a8a"
STYLE = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "lines.markersize": 4,
}
DRAWN: dict[str, Callable[[], Figure]] = {}


def picture(function: Callable[[], Figure]) -> Callable[[], Figure]:
    """Register a picture by the name of its function."""
    DRAWN[function.__name__.replace("_", "-")] = function
    return function


def figure(width: float = 5.2, height: float = 2.9) -> Figure:
    """Return an empty figure of the size of a column of text."""
    return Figure(figsize=(width, height), layout="constrained")


class Picture(SphinxDirective):
    """`{picture} name`: a drawing of this file, with its caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draw the picture and return it with its caption."""
        name, caption = self.arguments[0], " ".join(self.content)
        self.env.note_dependency(__file__)
        if name not in DRAWN:
            raise self.error(f"docs/_ext/pictures.py has no picture {name!r}")
        if not caption:
            raise self.error(f"the picture {name!r} has no caption")
        box = nodes.container(classes=["picture"])
        box += nodes.raw("", svg(name, caption), format="html")
        line = nodes.paragraph(classes=["caption"])
        line += self.parse_inline(caption)[0]
        box += line
        return [box]


def svg(name: str, caption: str) -> str:
    """Return a picture as SVG that follows the colours of the page."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file, drawn = io.StringIO(), DRAWN[name]()
        drawn.savefig(file, format="svg", metadata={"Date": None}, bbox_inches=filled(drawn))
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"#000000|#262626", "currentColor", text)
    box = re.search(r'viewBox="([^"]*)"', text)
    head = f'<svg class="picture drawing-of-{name}" role="img" viewBox="{box[1] if box else ""}"'
    head += ' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    words = html.escape(re.sub(r":? ?\{\w+\}`[^`]*`|[`*]", "", caption))
    return re.sub(r"<svg[^>]*>", f"{head}<title>{words}</title>", text, count=1, flags=re.S)


def filled(drawn: Figure) -> Bbox:
    """Return the part of a figure that is drawn on, at its full width."""
    drawn.draw_without_rendering()
    box = drawn.get_tightbbox()
    return Bbox.from_extents(0, box.y0 - 0.04, drawn.get_figwidth(), box.y1 + 0.04)


# --- One table, one line -------------------------------------------------------------------------


def line_cloud(seed: int = 0, n: int = 60) -> np.ndarray:
    """Return points along a line, with noise."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 1)) * 2.0 @ np.array([[1.0, 0.6]]) + 0.45 * rng.normal(size=(n, 2))


def ellipse(ax: Any, mean: Any, covariance: Any, radius: float, **how: Any) -> None:
    """Draw the contour of a Gaussian."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    size = 2 * radius * np.sqrt(values)
    ax.add_patch(Ellipse(mean, size[1], size[0], angle=angle, fill=False, **how))


@picture
def what_ppca_is() -> Figure:
    """Draw a cloud, its direction, the Gaussian around it, and one point with its error bar."""
    from dualpca import PPCA

    X = line_cloud()
    model = PPCA(n_components=1).fit(X)
    fig = figure(5.2, 3.1)
    ax = fig.subplots()
    ax.plot(*X.T, ".", color=BLUE, label="rows of a table")
    way = model.components_[0]
    ends = model.mean_ + np.outer([-5.2, 5.2], way)
    ax.plot(*ends.T, color="k", lw=1, label="the component")
    for radius in (1.0, 2.146):
        ellipse(ax, model.mean_, model.get_covariance(), radius, color=GREY, lw=1)
    x = np.array([[-2.4, 0.6]])
    z, spread = model.posterior(x)
    middle = model.mean_ + model.loadings_ @ z[0]
    reach = 1.645 * np.sqrt(spread.reshape(-1)[0]) * np.linalg.norm(model.loadings_)
    bar = middle + np.outer([-reach, reach], way)
    ax.plot(*np.stack([x[0], middle]).T, color=ORANGE, lw=1, ls=":")
    ax.plot(*bar.T, color=ORANGE, lw=4, alpha=0.8, label="where one row lies on it (90 %)")
    ax.plot(*x[0], "o", color=ORANGE)
    ax.set(aspect="equal", xlabel="first column", ylabel="second column")
    fig.legend(loc="outside upper center", ncols=3, fontsize=8.5, handlelength=1.2, columnspacing=1)
    return fig


@picture
def reduce() -> Figure:
    """Draw wines on two components, coloured by cultivar, with the uncertainty of a few."""
    from sklearn.datasets import load_wine

    from dualpca import PPCA

    X, y = load_wine(return_X_y=True)
    model = PPCA(2, standardize=True).fit(X)
    mean, covariance = model.posterior(X)
    fig = figure(5.2, 3.2)
    ax = fig.subplots()
    for k, (colour, mark) in enumerate(zip((BLUE, ORANGE, GREEN), "o^s", strict=True)):
        ax.plot(*mean[y == k].T, mark, color=colour, ms=3.5, label=f"cultivar {k + 1}")
    for k in range(0, len(X), 25):
        spread = covariance[k] if covariance.ndim == 3 else covariance
        ellipse(ax, mean[k], spread, 2.146, color=GREY, lw=0.9)
    ax.set(xlabel="first component", ylabel="second component", aspect="equal")
    fig.legend(fontsize=8.5, loc="outside upper center", ncols=3)
    return fig


@picture
def single_cell() -> Figure:
    """Draw the cells of the guide on two components, coloured by kind."""
    import scipy.sparse as sp

    from dualpca import PCA

    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, 600)
    rates = np.exp(rng.normal(-2.5, 1.0, (4, 150)))
    counts = sp.csr_matrix(rng.poisson(rates[kinds]).astype(np.float32))
    counts.data = np.log1p(counts.data)
    scores = PCA(3).fit_transform(counts)
    fig = figure(5.2, 3.0)
    ax = fig.subplots()
    for k, (colour, mark) in enumerate(zip((BLUE, ORANGE, GREEN, GREY), "o^sd", strict=True)):
        ax.plot(*scores[kinds == k, :2].T, mark, color=colour, ms=3, label=f"kind {k + 1}")
    ax.set(xlabel="first component", ylabel="second component", aspect="equal")
    ax.legend(fontsize=8.5)
    return fig


# --- Missing values ------------------------------------------------------------------------------


def gappy_wine(share: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Return the wine table and a mask of entries to hide."""
    from sklearn.datasets import load_wine

    X = load_wine().data
    return X, np.random.default_rng(0).random(X.shape) < share


@picture
def missing_values() -> Figure:
    """Draw forty hidden entries: the truth, what PPCA fills in, and its 90 % interval."""
    from dualpca import PPCA

    X, hidden = gappy_wine()
    model = PPCA(4, standardize=True).fit(np.where(hidden, np.nan, X))
    filled, std = model.impute(np.where(hidden, np.nan, X), return_std=True)
    scale = X.std(axis=0)
    truth = ((X - X.mean(axis=0)) / scale)[hidden][:40]
    guess = ((filled - X.mean(axis=0)) / scale)[hidden][:40]
    spread = 1.645 * (std / scale)[hidden][:40]
    order = np.argsort(guess)
    inside = np.abs(truth - guess) <= spread
    at = np.arange(40)
    fig = figure()
    ax = fig.subplots()
    ax.vlines(at, (guess - spread)[order], (guess + spread)[order], color=BLUE, lw=3, alpha=0.45)
    ax.plot(at, guess[order], "_", color=BLUE, ms=6, label="filled in, with 90 % interval")
    ok = inside[order]
    ax.plot(at[ok], truth[order][ok], "o", color="k", ms=3.5, label="true value")
    ax.plot(at[~ok], truth[order][~ok], "X", color=ORANGE, ms=6, label="true value, outside")
    ax.set(xlabel="40 hidden entries", ylabel="standard deviations", xticks=[])
    fig.legend(loc="outside upper center", ncols=3, fontsize=8.5, handlelength=1.2, columnspacing=1)
    return fig


@picture
def multiple_imputation() -> Figure:
    """Draw a mean from ten completed tables, and pooled; beside it what one table would claim."""
    import dualpca

    X, hidden = gappy_wine(0.4)
    hidden[:, :] &= np.arange(X.shape[1]) < 6
    gaps = np.where(hidden, np.nan, X)
    model = dualpca.PPCA(6, standardize=True).fit(gaps)
    tables = model.sample_imputations(gaps, 10, random_state=0)[:, :, 1]
    n = len(X)
    means, variances = tables.mean(axis=1), tables.var(axis=1, ddof=1) / n
    pooled = dualpca.pool(means, variances, dof=n - 1)
    low, high = pooled.interval(0.95)
    fig = figure(5.2, 2.8)
    ax = fig.subplots()
    at = np.arange(10)
    ax.errorbar(means, at, xerr=1.97 * np.sqrt(variances), fmt=".", color=BLUE, lw=1.2)
    ax.errorbar(
        [pooled.estimate], [11], xerr=[[pooled.estimate - low], [high - pooled.estimate]],
        fmt="o", color=ORANGE, lw=3,
    )  # fmt: skip
    ax.axvline(X[:, 1].mean(), color=GREY, lw=1, ls="--")
    ax.set(yticks=[4.5, 11], yticklabels=["ten completed\ntables", "pooled"])
    ax.set(xlabel="mean of malic acid; dashed: of the complete table", ylim=(12, -1))
    ax.tick_params(axis="y", length=0)
    return fig


@picture
def mixed_columns() -> Figure:
    """Draw what the copula model says of one person's missing entries."""
    import pandas as pd

    from dualpca import CopulaPPCA

    rng = np.random.default_rng(0)
    wealth, age = rng.normal(size=(2, 400))
    labels = ["school", "college", "degree"]
    table = pd.DataFrame(
        {
            "income": np.exp(8 + wealth + 0.5 * rng.normal(size=400)),
            "education": pd.cut(
                wealth + 0.7 * rng.normal(size=400), [-9, -0.5, 0.8, 9], labels=labels
            ),
            "owner": pd.array(wealth + age + 0.5 * rng.normal(size=400) > 0, dtype="boolean"),
        }
    )
    rows = table.index[np.argsort(wealth)[[40, 200, 360]]]
    gaps = table.copy()
    gaps.loc[rows, "education"] = np.nan
    gaps.loc[rows[1:2], "income"] = np.nan
    model = CopulaPPCA(1).fit(gaps)
    p = model.predict_proba(gaps.loc[rows], "education")
    fig = figure(5.2, 2.5)
    axes = fig.subplots(1, 3, sharey=True)
    for ax, row, chance in zip(axes, rows, p, strict=True):
        ax.bar(labels, chance, color=[BLUE, GREEN, ORANGE])
        income = gaps.loc[row, "income"]
        known = "missing" if np.isnan(income) else f"{income:,.0f}"
        owner = "yes" if gaps.loc[row, "owner"] else "no"
        ax.set_title(f"income: {known}\nhouse owner: {owner}", fontsize=9)
        ax.tick_params(axis="x", labelsize=8, rotation=20, length=0)
    axes[0].set(ylabel="probability of\neach education", ylim=(0, 1))
    return fig


# --- Rows that do not fit ------------------------------------------------------------------------


@picture
def monitoring() -> Figure:
    """Draw a control chart: T² and SPE through time, phase I and phase II, with a fault."""
    from dualpca import PPCA

    X, new = process()
    model = PPCA(2, standardize=True).fit(X)
    fig = figure(5.2, 3.5)
    top, bottom = fig.subplots(2, 1, sharex=True)
    for ax, name in ((top, "t2"), (bottom, "spe")):
        both = [getattr(model.outliers(rows), name) for rows in (X[-120:], new)]
        limit = np.unique(getattr(model.outliers(new), f"{name}_limit"))[0]
        value = np.concatenate(both)
        at = np.arange(len(value))
        over = value > limit
        ax.plot(at, value, color=GREY, lw=0.7)
        ax.plot(at[~over], value[~over], ".", color=BLUE, ms=3)
        ax.plot(at[over], value[over], "o", color=ORANGE, ms=3.5)
        ax.axhline(limit, color=ORANGE, lw=1, ls="--")
        ax.axvline(119.5, color="k", lw=0.8, ls=":")
        ax.set_yscale("log")
        ax.set_ylabel("T²" if name == "t2" else "SPE")
    top.set_title("phase I: rows of the fit", loc="left")
    top.set_title("phase II: new rows", loc="right")
    bottom.set_xlabel("time; dashed: limit, fixed at the fit")
    return fig


def process() -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a process in order, and later rows in which one sensor drifts."""
    rng = np.random.default_rng(1)
    W = rng.normal(size=(2, 6))
    X, new = (rng.normal(size=(n, 2)) @ W + 0.4 * rng.normal(size=(n, 6)) for n in (300, 120))
    new[70:, 3] += np.linspace(0, 3, 50)
    return X, new


# --- How many components -------------------------------------------------------------------------


@picture
def how_many_components() -> Figure:
    """Draw variances of twenty directions, the noise level, and what three rules keep."""
    from dualpca import PPCA

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) * np.linspace(3, 1, 5) @ rng.normal(size=(5, 20)) / 2
    X += rng.normal(size=X.shape)
    q = PPCA("bic").fit(X).n_components_
    values = np.linalg.eigvalsh(np.cov(X.T, ddof=0))[::-1]
    fig = figure()
    ax = fig.subplots()
    colours = [BLUE if k < q else GREY for k in range(20)]
    ax.bar(np.arange(1, 21), values, color=colours)
    ax.axhline(PPCA(q).fit(X).noise_variance_, color=ORANGE, lw=1.2)
    ax.annotate("noise variance", (20, 1.0), xytext=(15.5, 2.6), color=ORANGE)
    ax.annotate(
        f"signal: {q} components", (q / 2, values[1]), xytext=(3.2, values[0] * 0.8), color=BLUE
    )
    ax.set(xlabel="direction", ylabel="variance", xticks=range(1, 21, 3))
    return fig


# --- Kernels -------------------------------------------------------------------------------------


def rings(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Return a ring around a disc."""
    rng = np.random.default_rng(0)
    angle, group = rng.uniform(0, 2 * np.pi, 2 * n), np.repeat([0, 1], n)
    radius = np.where(group, 2.2, 0.8 * np.sqrt(rng.random(2 * n))) + 0.1 * rng.normal(size=2 * n)
    return np.c_[radius * np.cos(angle), radius * np.sin(angle)], group


@picture
def kernel_pca() -> Figure:
    """Draw a ring around a disc: as points, on linear components, on kernel components."""
    from dualpca import PCA, KernelPCA

    X, group = rings()
    views = {
        "the rows": X,
        "PCA": PCA(2).fit_transform(X),
        "KernelPCA": KernelPCA(2, kernel="rbf", gamma=0.5).fit_transform(X),
    }
    fig = figure(5.2, 2.1)
    for ax, (name, Z) in zip(fig.subplots(1, 3), views.items(), strict=True):
        for k, (colour, mark) in enumerate(((BLUE, "."), (ORANGE, "x"))):
            ax.plot(*Z[group == k].T, mark, color=colour, ms=3, mew=0.8)
        ax.set(title=name, xticks=[], yticks=[])
    return fig


@picture
def kernel_width() -> Figure:
    """Draw first kernel component over the plane: gamma too small, good, too large."""
    from sklearn.datasets import make_moons

    from dualpca import KernelPCA

    X, _ = make_moons(120, noise=0.06, random_state=0)
    grid = np.stack(np.meshgrid(np.linspace(-1.6, 2.6, 70), np.linspace(-1.1, 1.6, 50)), axis=-1)
    cases = {"gamma=0.05:\nalmost linear": 0.05, "gamma=15:\nfollows the moons": 15.0,
             "gamma=400:\nevery row alone": 400.0}  # fmt: skip
    fig = figure(5.2, 2.2)
    for ax, (name, gamma) in zip(fig.subplots(1, 3), cases.items(), strict=True):
        model = KernelPCA(1, kernel="rbf", gamma=gamma).fit(X)
        value = model.transform(grid.reshape(-1, 2)).reshape(grid.shape[:2])
        top = np.abs(value).max()
        ax.contourf(grid[..., 0], grid[..., 1], value, levels=np.linspace(-top, top, 12),
                    cmap="PuOr", alpha=0.85)  # fmt: skip
        ax.plot(*X.T, ".", color="#202020", ms=2)
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, fontsize=9)
    return fig


def noisy_circle(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return angles in degrees, points of a circle, and the points measured with an error."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 360, n)
    clean = np.c_[np.cos(np.radians(angle)), np.sin(np.radians(angle))]
    return angle, clean, clean + 0.1 * rng.normal(size=clean.shape)


@picture
def dual_ppca() -> Figure:
    """Draw rows drawn from a model of a noisy circle, and its two densities over the plane."""
    from dualpca import DualPPCA

    X = noisy_circle(200)[2]
    model = DualPPCA(4, gamma=1.0).fit(X)
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-4, 4, 81)]), axis=-1)
    fig = figure(5.2, 2.1)
    first, *others = fig.subplots(1, 3)
    first.plot(*X.T, ".", color=GREY, ms=2, alpha=0.6)
    first.plot(*model.sample(120, random_state=0, noise=True).T, ".", color=BLUE, ms=3)
    first.set(title="rows drawn", aspect="equal", xticks=[], yticks=[])
    names = {"full": "density, in full", "span": "on the span"}
    for ax, (density, name) in zip(others, names.items(), strict=True):
        value = model.score_samples(grid.reshape(-1, 2), density=density).reshape(grid.shape[:2])
        top = model.score(X)
        ax.contourf(grid[..., 0], grid[..., 1], value, cmap="Blues", extend="both",
                    levels=np.linspace(top - 150, top + 10, 9))  # fmt: skip
        ax.plot(*X.T, ".", color="#202020", ms=1)
        ax.set(title=name, aspect="equal", xticks=[], yticks=[])
    return fig


@picture
def dual_ppca_intervals() -> Figure:
    """Draw a latent along a noisy circle with two intervals, for few rows and for many."""
    from dualpca import DualPPCA

    at = np.linspace(0, 360, 181)
    clean = np.c_[np.cos(np.radians(at)), np.sin(np.radians(at))]
    fig = figure(5.2, 2.4)
    for ax, n in zip(fig.subplots(1, 2, sharey=True), (50, 1600), strict=True):
        model = DualPPCA(2).fit(noisy_circle(n)[2])
        angle, _, rows = noisy_circle(200, seed=1)
        ax.plot(angle, model.transform(rows)[:, 0], ".", color=GREY, ms=3)
        mean, noise = model.posterior(clean)
        for covariance, colour, name in (
            (model.latent_covariance(clean, 0.1), BLUE, "latent_covariance"),
            (noise, ORANGE, "posterior"),
        ):
            half = 1.645 * np.sqrt(covariance[:, 0, 0])
            for side in (-1, 1):
                label = name if side > 0 else None
                ax.plot(at, mean[:, 0] + side * half, color=colour, lw=1.3, label=label)
        ax.set(title=f"{n} rows", xlabel="angle", xticks=[0, 180, 360])
    fig.axes[0].set_ylabel("first latent")
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return fig


@picture
def denoising() -> Figure:
    """Draw a noisy circle, cleaned by a line and by kernel PCA."""
    from dualpca import PPCA, KernelPCA

    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 200)
    X = np.c_[np.cos(angle), np.sin(angle)] + 0.1 * rng.normal(size=(200, 2))
    views = {
        "noisy rows": X,
        "PPCA.reconstruct": PPCA(1).fit(X).reconstruct(X),
        "KernelPCA.denoise": KernelPCA(6, kernel="rbf", gamma=1.0).fit(X).denoise(X),
    }
    fig = figure(5.2, 2.1)
    for ax, (name, Z) in zip(fig.subplots(1, 3), views.items(), strict=True):
        ax.plot(*X.T, ".", color=GREY, ms=2, alpha=0.6)
        if Z is not X:
            ax.plot(*Z.T, ".", color=BLUE, ms=3)
        ax.set(title=name, aspect="equal", xticks=[], yticks=[])
    return fig


@picture
def generating() -> Figure:
    """Draw new digits, and below each its nearest training digit."""
    from sklearn.datasets import load_digits

    from dualpca import Generator, KernelPCA

    X = load_digits().data / 16
    model = KernelPCA(30, kernel="rbf", gamma="median", preimage="learned").fit(X)
    maker = Generator(model, random_state=0).fit(X)
    new = maker.sample(10, random_state=0)
    near = X[maker.nearest(new).index]
    fig = figure(5.2, 1.35)
    for line, (name, digits) in zip(
        fig.subplots(2, 10), (("new", new), ("nearest", near)), strict=True
    ):
        for ax, digit in zip(line, digits, strict=True):
            ax.imshow(digit.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            ax.axis("off")
        line[0].set_title(name, loc="left", fontsize=9)
    return fig


@picture
def distances() -> Figure:
    """Draw a map of towns, made from distances alone."""
    import warnings as quiet

    from dualpca import ProbabilisticKernelPCA

    names, D = towns()
    with quiet.catch_warnings():
        quiet.simplefilter("ignore")
        model = ProbabilisticKernelPCA(2, metric="precomputed").fit(D)
    Z = model.coordinates_ * np.sqrt(len(names))
    # A map from distances may lie on any side: turn Helsinki to the north of Athens, Lisbon west.
    north = Z[names.index("Helsinki")] - Z[names.index("Athens")]
    north = north / np.linalg.norm(north)
    Z = Z @ np.c_[[north[1], -north[0]], north]
    Z[:, 0] *= -np.sign(Z[names.index("Lisbon"), 0])
    fig = figure(5.2, 3.4)
    ax = fig.subplots()
    ax.plot(*Z.T, "o", color=BLUE)
    for name, z in zip(names, Z, strict=True):
        ax.annotate(name, z, xytext=(5, 3), textcoords="offset points", fontsize=8.5)
    ax.set(aspect="equal", xlabel="km", ylabel="km")
    ax.margins(x=0.2)
    return fig


def towns() -> tuple[list[str], np.ndarray]:
    """Return towns and the distances between them along the globe, in km."""
    places = {"Lisbon": (38.7, -9.1), "Madrid": (40.4, -3.7), "Paris": (48.9, 2.4),
              "London": (51.5, -0.1), "Dublin": (53.3, -6.3), "Oslo": (59.9, 10.8),
              "Rome": (41.9, 12.5), "Berlin": (52.5, 13.4), "Vienna": (48.2, 16.4),
              "Warsaw": (52.2, 21.0), "Athens": (38.0, 23.7), "Helsinki": (60.2, 24.9)}  # fmt: skip
    lat, lon = np.radians(np.array(list(places.values()))).T
    unit = np.c_[np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]
    D = 6371 * np.arccos(np.clip(unit @ unit.T, -1, 1))
    np.fill_diagonal(D, 0.0)
    return list(places), D


# --- Several groups, factors, two tables, time ---------------------------------------------------


@picture
def mixtures() -> Figure:
    """Draw three flat clouds, each with the direction that the mixture found for it."""
    from dualpca import MixturePPCA

    rng = np.random.default_rng(0)
    parts = []
    for centre, slope in (((0, 0), 0.2), ((4, 1), -1.0), ((1, 5), 3.0)):
        along = rng.normal(size=(80, 1)) @ np.array([[1.0, slope]]) / np.hypot(1, slope) * 1.5
        parts.append(np.array(centre) + along + 0.2 * rng.normal(size=(80, 2)))
    X = np.concatenate(parts)
    model = MixturePPCA(n_mixtures=3, n_components=1, n_init=3, random_state=0).fit(X)
    labels = model.predict(X)
    fig = figure(4.6, 3.2)
    ax = fig.subplots()
    for k, (colour, mark) in enumerate(((BLUE, "o"), (ORANGE, "^"), (GREEN, "s"))):
        ax.plot(*X[labels == k].T, mark, color=colour, ms=3)
        ellipse(ax, model.means_[k], model.covariances_[k], 2.146, color="k", lw=1)
    ax.set(aspect="equal", xticks=[], yticks=[])
    return fig


@picture
def factor_analysis() -> Figure:
    """Draw loadings of nine tests on three factors, before and after rotation."""
    from dualpca import FactorAnalysis

    X, tests = abilities()
    fig = figure(5.2, 2.9)
    left, right = fig.subplots(1, 2, sharey=True)
    for ax, rotation, title in (
        (left, None, "as fitted"),
        (right, "varimax", 'rotation="varimax"'),
    ):
        W = FactorAnalysis(3, rotation=rotation).fit(X).components_.T
        image = ax.imshow(W, cmap="RdBu", vmin=-1.2, vmax=1.2, aspect="auto")
        ax.set(title=title, xticks=range(3), xticklabels=["1", "2", "3"], yticks=range(9))
        ax.set_xlabel("factor")
    left.set_yticklabels(tests)
    fig.colorbar(image, ax=right, label="loading")
    return fig


def abilities() -> tuple[np.ndarray, list[str]]:
    """Return results of nine tests of three abilities."""
    rng = np.random.default_rng(0)
    tests = [f"{kind} {k}" for kind in ("words", "numbers", "shapes") for k in (1, 2, 3)]
    W = np.kron(np.eye(3), [[1.0], [0.9], [0.8]]) + 0.15
    noise = rng.uniform(0.2, 1.0, 9)
    return rng.normal(size=(600, 3)) @ W.T + rng.normal(size=(600, 9)) * np.sqrt(noise), tests


@picture
def two_tables() -> Figure:
    """Draw the first pair of canonical variates of two tables about the same rows."""
    from dualpca import CCA

    X, Y = two_views()
    model = CCA(2).fit(X, Y)
    U, V = model.transform(X, Y)
    fig = figure(5.2, 2.5)
    for k, ax in enumerate(fig.subplots(1, 2)):
        ax.plot(U[:, k], V[:, k], ".", color=(BLUE, GREY)[k], ms=3)
        ax.set_title(f"pair {k + 1}: correlation {model.correlations_[k]:.2f}")
        ax.set(xlabel="first table", ylabel="second table", aspect="equal")
    return fig


def two_views() -> tuple[np.ndarray, np.ndarray]:
    """Return two tables that share one hidden quantity."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 1))
    X = z @ rng.normal(size=(1, 5)) + rng.normal(size=(200, 5))
    Y = z @ rng.normal(size=(1, 4)) + rng.normal(size=(200, 4))
    return X, Y


@picture
def time_series() -> Figure:
    """Draw two channels whose relation changes, and the state at every time."""
    from dualpca import HiddenMarkovPCA

    rng = np.random.default_rng(0)
    state = np.repeat([0, 1, 0], [60, 50, 40])
    ways = np.array([[1.0, 0.2], [0.2, 1.5]])[state]
    X = rng.normal(size=(150, 1)) * ways + 0.15 * rng.normal(size=(150, 2))
    model = HiddenMarkovPCA(2, 1, stickiness=10.0, n_init=4, random_state=0).fit(X)
    p = model.predict_proba(X)
    one = int(np.corrcoef(p[:, 0], state)[0, 1] < 0)
    fig = figure(5.2, 3.2)
    top, bottom = fig.subplots(2, 1, sharex=True, height_ratios=[3, 1.4])
    top.plot(X[:, 0] + 4, color=BLUE, lw=1, label="channel 1 (shifted up)")
    top.plot(X[:, 1], color=ORANGE, lw=1, label="channel 2")
    top.set(yticks=[], ylim=(-5, 10))
    top.legend(fontsize=8.5, ncols=2, loc="upper center")
    bottom.fill_between(range(150), p[:, one], color=GREEN, alpha=0.6, lw=0)
    bottom.plot(state, color="k", lw=1, ls=":")
    bottom.set(ylim=(0, 1.05), xlabel="time; dotted: true state")
    bottom.set_ylabel("P(state B)")
    return fig


@picture
def supplementary() -> Figure:
    """Draw wines on two components, with cultivars and alcohol, which the model did not see."""
    from sklearn.datasets import load_wine

    import dualpca

    X, y = load_wine(return_X_y=True, as_frame=True)
    table = X.assign(cultivar=[f"no. {1 + c}" for c in y])
    inside = X.drop(columns=["alcohol", "proline"])
    model = dualpca.PPCA(2, standardize=True).fit(inside)
    found = dualpca.supplementary(model, table, ["alcohol", "cultivar"])
    Z = model.transform(inside)
    fig = figure(5.2, 3.2)
    ax = fig.subplots()
    ax.plot(*Z.T, ".", color=GREY, ms=3)
    for k, name in enumerate(("no. 1", "no. 2", "no. 3")):
        ax.plot(*found.levels.coordinates[k], "D", color=ORANGE, ms=7)
        ax.annotate(f"cultivar {name}", found.levels.coordinates[k], xytext=(7, 5),
                    textcoords="offset points", color=ORANGE, fontsize=9)  # fmt: skip
    r = 2.5 * np.asarray(found.numbers.correlation)[0]
    ax.annotate("", r, xytext=(0, 0), arrowprops={"arrowstyle": "->", "color": BLUE, "lw": 1.6})
    ax.annotate("alcohol", r, xytext=(5, 4), textcoords="offset points", color=BLUE)
    ax.set(xlabel="first component", ylabel="second component")
    return fig


@picture
def plots() -> Figure:
    """Draw wines with ellipses of cultivars, and what columns contribute to the plane."""
    from cycler import cycler
    from sklearn.datasets import load_wine

    from dualpca import PCA, plots

    X, y = load_wine(return_X_y=True, as_frame=True)
    names = X.rename(columns={"od280/od315_of_diluted_wines": "od280/od315"})
    model = PCA(2, standardize=True).fit(names)
    fig = figure(7.2, 3.6)
    left, right = fig.subfigures(1, 2)
    with matplotlib.rc_context({"axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN])}):
        cultivar = [f"no. {1 + c}" for c in y]
        plots.latent_scatter(model, names, cultivar, groups="both", level=0.95, ax=left)
        plots.quality_bars(model, names, show="contribution", ax=right)
    for ax in fig.findobj(Axes):  # for dark pages: no white around marks, no bright grid
        ax.grid(False)
        for line in ax.lines:
            line.set_path_effects([])
    return fig


# --- The first page ------------------------------------------------------------------------------


@picture
def own_table_in() -> Figure:
    """Draw the left of the README's picture in the colours of the page."""
    return own_table(0)


@picture
def own_table_out() -> Figure:
    """Draw the right of it."""
    return own_table(1)


def own_table(side: int) -> Figure:
    """Draw one side of the README's picture, without its white."""
    from matplotlib.table import Cell
    from matplotlib.text import Text

    from dualpca.app.experiments import readme

    fig = figure(3.9, 2.9)
    ax = fig.subplots()
    table, truth = readme.water()
    readme.draw_side(side, ax, table, truth)
    for text in fig.findobj(Text):
        text.set_color("k")
    for cell in fig.findobj(Cell):
        cell.get_text().set_color("k")  # which findobj does not reach
        if min(cell.get_facecolor()) == 1:
            cell.set_facecolor("none")
    return fig


# --- What was measured ---------------------------------------------------------------------------

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@picture
def gpu() -> Figure:
    """Draw seconds of kernel PCA on one GPU, from the results of the benchmarks."""
    rows = json.loads((RESULTS / "gpu.json").read_text("utf-8"))["parts"]["kernel"]["rows"]
    rows = [row for row in rows if "tol=" not in row["name"]]
    fig = figure(5.2, 2.1)
    ax = fig.subplots()
    labels = [row["name"].removeprefix("kernel PCA, ").replace(", ", "\n", 1) for row in rows]
    values = [row["seconds"] for row in rows]
    ax.barh(labels, values, color=BLUE)
    for k, value in enumerate(values):
        ax.text(value + 0.1, k, f"{value:.2g} s", va="center")
    ax.invert_yaxis()
    ax.set(xlabel="seconds", xlim=(0, max(values) * 1.15))
    return fig


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("picture", Picture)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
