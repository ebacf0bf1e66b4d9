"""A principal curve (Hastie & Stuetzle 1989), small: for a picture, not for use."""

from __future__ import annotations

import numpy as np

from dualpca.app.datasets import Floats


def principal_curve(X: Floats, span: float = 0.08, steps: int = 60) -> Floats:
    """Return for every point its projection on a curve through the middle of the points.

    Starts at the first principal component. Each round gives every point the arc length of its
    projection, smooths coordinates against it by local lines, and projects on the new curve:
    each point of the curve is then about the mean of those that project there.

    Parameters
    ----------
    X : array of shape (n, d)
    span : float
        Width of the smoother, as a share of the length of the curve.
    steps : int

    Examples
    --------
    >>> x = np.linspace(-1, 1, 60)
    >>> X = np.column_stack([x, x**2])
    >>> bool(np.abs(principal_curve(X) - X).max() < 0.1)
    True
    """
    Xc = X - X.mean(axis=0)
    t = Xc @ np.linalg.svd(Xc, full_matrices=False)[2][0]
    for _ in range(steps):
        order = np.argsort(t)
        curve = _smooth(t[order], X[order], span * np.ptp(t))
        onto, t = _project(X, curve)
    return onto


def _smooth(t: Floats, X: Floats, width: float) -> Floats:
    """Return local lines of X against t, with Gaussian weights, at 200 places along t."""
    at = np.linspace(t[0], t[-1], 200)
    gap = t - at[:, None]
    w = np.exp(-0.5 * (gap / width) ** 2)
    s0, s1, s2 = (np.sum(w * gap**k, axis=1) for k in range(3))
    weights = w * (s2[:, None] - s1[:, None] * gap)
    return np.asarray(weights @ X / (s0 * s2 - s1**2)[:, None])


def _project(X: Floats, curve: Floats) -> tuple[Floats, Floats]:
    """Return the nearest places on a polygon, and how far along they lie."""
    start, way = curve[:-1], np.diff(curve, axis=0)
    squared = np.maximum(np.sum(way**2, axis=1), np.finfo(float).tiny)
    share = np.einsum("nkd,kd->nk", X[:, None] - start, way) / squared
    share = np.clip(share, 0, 1)
    places = start + share[:, :, None] * way  # (n, k, d)
    k = np.argmin(np.sum((X[:, None] - places) ** 2, axis=2), axis=1)
    rows, length = np.arange(len(X)), np.sqrt(squared)
    before = np.concatenate([[0.0], np.cumsum(length)[:-1]])
    return places[rows, k], before[k] + share[rows, k] * length[k]
