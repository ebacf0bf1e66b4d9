"""Colours that categories have are told apart by every kind of colour vision, and seen."""

import re
from importlib import resources
from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from dualpca import plots
from dualpca.app.plots import _canvas
from dualpca.app.report import figures

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISIONS = {
    "all three cones": "1 0 0  0 1 0  0 0 1",
    "protanopia": "0.152286 1.052583 -0.204868  0.114503 0.786281 0.099216 "
    "-0.003882 -0.048116 1.051998",
    "deuteranopia": "0.367322 0.860646 -0.227968  0.280085 0.672501 0.047413 "
    "-0.011820 0.042940 0.968881",
    "tritanopia": "1.255528 -0.076749 -0.178779  -0.078411 0.930809 0.147602 "
    "0.004733 0.691367 0.303900",
}
VISIONS = {name: np.array(m.split(), dtype=float).reshape(3, 3) for name, m in VISIONS.items()}
XYZ = "0.4124564 0.3575761 0.1804375  0.2126729 0.7151522 0.072175  0.0193339 0.119192 0.9503041"
XYZ = np.array(XYZ.split(), dtype=float).reshape(3, 3)  # of sRGB, D65 (IEC 61966-2-1)


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIELAB of linear RGB, in which equal distances look about equally different."""
    share = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def closest(palette, vision):
    """The least distance between two colours of a palette as this vision sees them."""
    seen = [lab(VISIONS[vision] @ linear(colour)) for colour in palette]
    return min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))


def explorers(name):
    script = resources.files("dualpca.app.explorer").joinpath("static/palette.js").read_text()
    return re.findall(r"#[0-9a-f]{6}", re.search(rf"const {name} = \[(.*)\]", script)[1])


def test_lab_and_visions_are_those_of_the_books():
    assert lab(linear("#ffffff")) == pytest.approx([100, 0, 0], abs=1e-3)
    assert lab(linear("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.01)
    assert lab(linear("#777777"))[1:] == pytest.approx([0, 0], abs=1e-3)
    for vision in VISIONS.values():  # grey is grey to everybody
        assert np.sum(vision, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    red_green = ["#c04040", "#6a6a00"]
    assert closest(red_green, "all three cones") > 4 * closest(red_green, "deuteranopia")


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(
    ("palette", "least"), [(figures.PALETTE, 17), (plots.PALETTE, 15), (_canvas.BRIGHT_PALETTE, 10)]
)
def test_colours_are_apart_for_any_vision(palette, least, vision):
    assert closest(palette, vision) >= least


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("name", ["LIGHT", "DARK"])
def test_the_explorers_colours_are_apart(name, vision):
    palette = explorers(name)
    assert len(palette) == 8 and closest(palette, vision) >= 10


@pytest.mark.parametrize(
    ("palette", "ground", "least"),
    [
        (figures.PALETTE, "#ffffff", 2.3),
        (figures.PALETTE, "#15181e", 2.3),
        (explorers("LIGHT"), "#ffffff", 2.2),
        (explorers("DARK"), "#1a1e27", 4.2),
        (_canvas.BRIGHT_PALETTE, "#1a1e27", 4.2),
        ((_canvas.BRIGHT_BLUE, _canvas.BRIGHT_VERMILION), "#000000", 7),
        ((_canvas.BLUE, _canvas.VERMILION), "#ffffff", 4.5),
    ],
)
def test_colours_stand_out_from_the_ground(palette, ground, least):
    dark, light = np.sort([[linear(c) @ XYZ[1], linear(ground) @ XYZ[1]] for c in palette]).T
    assert np.min((light + 0.05) / (dark + 0.05)) >= least
