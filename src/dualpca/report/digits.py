"""What the demonstration's report says about the digits, picture by picture."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata

import numpy as np
from numpy.typing import NDArray

from dualpca import __version__, demo, plots
from dualpca.report.page import Page, Picture, Section, Table

Floats = NDArray[np.float64]

SHAPE = (8, 8)
SHOWN = 10
LEVEL = 0.9
NATS_PER_BIT = float(np.log(2))


def page(
    comparison: demo.Comparison, step: Callable[[str], None], elapsed: Callable[[], float]
) -> Page:
    """Return the whole report; `step` hears of every picture, `elapsed` says the seconds so far."""
    sections = [summary(comparison)]
    for name, draw in PICTURES.items():
        sections.append(draw(comparison))
        step(f"drew {name}")
    sections.append(making(comparison, elapsed()))
    return Page("Handwritten digits, seen by probabilistic PCA", lead(comparison), sections)


def lead(comparison: demo.Comparison) -> list[str]:
    """Say what was found."""
    fit, model = comparison.fit, comparison.fit.model
    n, d = comparison.held_out.X.shape
    return [
        f"{model.n_components_} numbers per image keep {100 * fit.explained:.0f} % of the variance "
        f"of {d} pixels. On {n} images that the model never saw, its reconstructions are off by "
        f"{_error(comparison):.1f} grey levels of {demo.LEVELS} in a typical pixel.",
        f"It can code such an image in {_bits(fit):.2f} bits per pixel or less; if all "
        f"{demo.LEVELS + 1} grey levels were equally likely, {np.log2(demo.LEVELS + 1):.2f} would "
        "be needed.",
    ]


def summary(comparison: demo.Comparison) -> Section:
    """Compare the models."""
    rows = [fit.cells() for fit in comparison.fits]
    table = Table(demo.HEADER, rows, demo.CAPTION + ".", highlight=comparison.chosen)
    return Section("Which model", [comparison.reason(), _agreement(comparison)], table=table)


def _agreement(comparison: demo.Comparison) -> str:
    """Say how the rules and the two ways of fitting compare."""
    em, closed, best = comparison.fits[-1], comparison.fit, comparison.densest.model
    return (
        "Most rules ask how much of the variance is structure, and keep nearly all of it: at "
        f"q = {best.n_components_} the noise is {float(best.noise_variance_):.3f}, close to the "
        "1/12 = 0.083 of the noise that was added to the pixels. Gavish and Donoho's rule asks "
        "which directions help to reconstruct an image, and needs far fewer. EM at the same q "
        f"comes within {abs(em.training - closed.training):.0e} nats per image of the closed form, "
        f"in {em.model.n_iter_} steps."
    )


def spectrum(comparison: demo.Comparison) -> Section:
    """Show the variances and the noise floor."""
    model = comparison.fit.model
    q, d = int(model.n_components_), comparison.training.X.shape[1]
    first, last = (float(model.explained_variance_[i]) for i in (0, -1))
    noise = float(model.noise_variance_)
    alt = (
        f"Scree plot: variances on a logarithmic axis fall from {first:.0f} to {last:.1f} over the "
        f"{q} kept directions; a dashed line at {noise:.2f} is the noise that stands for the rest."
    )
    text = [
        f"Each dot is a direction in the space of {d} pixels. The model keeps the filled ones "
        "as they are and replaces the hollow ones by noise of one variance, their average (dashed "
        "line). The hollow dots are far from equal, well above the line and well below it, so one "
        "noise variance for all of them is a simplification.",
        "The one clear step comes later, where the other rules stop (q = "
        f"{_others(comparison)}). Beyond it lie pixels that are hardly ever "
        "inked, and only the noise that was added to them is left, of variance 1/12.",
    ]
    figure = plots.scree(model, comparison.training.X)
    return Section("The spectrum and the noise floor", text, Picture(figure, alt))


def latents(comparison: demo.Comparison) -> Section:
    """Show where unseen images lie, and how surely."""
    model, half = comparison.fit.model, comparison.held_out
    deviation = np.sqrt(np.diag(np.asarray(model.posterior(half.X[:1])[1])[0]))
    alt = (
        f"Scatter plot of {len(half.X)} unseen digits by their first two latents, one colour for "
        "each digit with its name at the middle; twenty points have a 90 % posterior ellipse."
    )
    text = [
        "Each dot is an image the model never saw, coloured by its digit; the model was not told "
        "the digits. For twenty of them a shaded ellipse is drawn: given the pixels, the model "
        "is 90 % sure that the image's place is inside.",
        f"The posterior standard deviation is {deviation[0]:.2f} along the first latent and "
        f"{deviation[-1]:.2f} along the last, where the prior has 1: later latents stand less "
        "clearly above the noise. All images share these, because no pixel is missing. Classes "
        f"that overlap here may be apart in the other {model.n_components_ - 2} latents.",
    ]
    figure = plots.latent_scatter(model, half.X, half.y, level=LEVEL, n_ellipses=20)
    return Section("The first two latents, with their uncertainty", text, Picture(figure, alt))


def reconstructions(comparison: demo.Comparison) -> Section:
    """Show unseen images beside what is left of them."""
    model, half = comparison.fit.model, comparison.held_out
    first = [int(np.flatnonzero(half.y == digit)[0]) for digit in np.unique(half.y)]
    images, y = half.images[first], half.y[first]
    rebuilt = np.asarray(model.reconstruct(images))
    names = ("original", f"from {model.n_components_} latents", "difference")
    rows = dict(zip(names, (images, rebuilt, rebuilt - images), strict=True))
    alt = (
        "Three rows of ten images, the digits 0 to 9: originals, their smoother reconstructions, "
        "and the differences, which are faint."
    )
    text = [
        "The first unseen image of each digit, what the model makes of it, and the difference: red "
        "where the model puts more ink, blue where it puts less, the full colour being the number "
        "of grey levels at the right. The reconstruction is the posterior mean, so it is drawn a "
        "little towards the average image, more so along directions near the noise.",
        f"Over all unseen images the root mean square error is {_error(comparison):.2f} grey "
        f"levels; the model's noise has a standard deviation of "
        f"{float(model.noise_variance_) ** 0.5:.2f}.",
    ]
    limits, labels = (0.0, float(demo.LEVELS)), {"original": y.tolist()}
    figure = plots.image_grid(rows, SHAPE, labels=labels, signed={"difference"}, limits=limits)
    return Section("Originals and reconstructions", text, Picture(figure, alt))


def samples(comparison: demo.Comparison) -> Section:
    """Show images that the model invents, beside real ones."""
    training, half = comparison.training, comparison.held_out
    drawn = np.asarray(comparison.fit.model.sample(SHOWN, random_state=comparison.seed))
    nearest, distance = _nearest(drawn, training.images)
    usual = _nearest(half.images, training.images)[1]
    names = ("generated", "nearest training image", "real, unseen")
    rows = (drawn, training.images[nearest], half.images[:SHOWN])
    labels = {names[1]: training.y[nearest].tolist(), names[2]: half.y[:SHOWN].tolist()}
    alt = (
        "Three rows of ten images: generated ones, blurred and grainy but digit-like; the training "
        "image nearest to each; and real unseen digits, which are sharper."
    )
    text = [
        "Ten draws from the model, each above the training image closest to it. They are new: a "
        f"draw lies {np.mean(distance):.0f} grey levels from its nearest training image, a real "
        f"unseen image {np.mean(usual):.0f} (Euclidean distance over all pixels).",
        "They are also worse than the real thing, and this is the model's doing: one Gaussian "
        "knows the mean and the covariance of the pixels, but not that there are ten digits with "
        "empty space between them, nor that ink is never negative (drawn white here).",
    ]
    limits = (0.0, float(demo.LEVELS))
    figure = plots.image_grid(
        dict(zip(names, rows, strict=True)), SHAPE, labels=labels, limits=limits
    )
    return Section("Generated and real digits", text, Picture(figure, alt))


PICTURES: dict[str, Callable[[demo.Comparison], Section]] = {
    "the spectrum": spectrum,
    "the latents": latents,
    "reconstructions": reconstructions,
    "samples": samples,
}


def making(comparison: demo.Comparison, seconds: float) -> Section:
    """Say how the report was made."""
    n, d = comparison.training.X.shape
    packages = ("numpy", "scipy", "scikit-learn", "matplotlib")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    rows = [
        ["data", f"scikit-learn's digits, {n + len(comparison.held_out.X)} images of {d} pixels, "
         f"0 to {demo.LEVELS}; {n} to fit, the rest held out"],
        ["preparation", "uniform noise of ±½ grey level, so that densities are finite; pictures "
         "show the pixels without it"],
        ["model", repr(comparison.fit.model)],
        ["seed", str(comparison.seed)],
        ["versions", f"dualpca {__version__}, Python {platform.python_version()}, {versions}"],
        ["time", f"{seconds:.1f} s to fit {len(comparison.fits)} models and draw the pictures"],
    ]  # fmt: skip
    command = f"dualpca demo --seed {comparison.seed}"
    text = [f"The same page comes from: {command}"]
    return Section("How it was made", text, table=Table((), rows, "Data, parameters and versions"))


def _others(comparison: demo.Comparison) -> str:
    """Say how many components the other rules keep."""
    rules = comparison.fits[1:-1]
    sizes = [int(fit.model.n_components_) for fit in rules if fit is not comparison.fit]
    low, high = min(sizes), max(sizes)
    return f"{low}" if low == high else f"{low} to {high}"


def _nearest(images: Floats, among: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return for each image the position of the nearest among others, and its distance."""
    gram = images @ among.T
    squares = (images**2).sum(axis=1)[:, None] + (among**2).sum(axis=1) - 2 * gram
    index = squares.argmin(axis=1)
    return index, np.sqrt(np.maximum(squares[np.arange(len(images)), index], 0))


def _error(comparison: demo.Comparison) -> float:
    """Return the root mean square error of reconstructed unseen images."""
    images = comparison.held_out.images
    return float(
        np.sqrt(np.mean((np.asarray(comparison.fit.model.reconstruct(images)) - images) ** 2))
    )


def _bits(fit: demo.Fit) -> float:
    """Return the bits per pixel that an unseen image takes."""
    return -fit.held_out / NATS_PER_BIT / (SHAPE[0] * SHAPE[1])
