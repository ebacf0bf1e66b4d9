"""What one view, or both, say of the latent, of the other view and of missing entries.

Complete rows go through their canonical variates, which exist even where a covariance is
singular; rows with NaN through the dense Gaussian of what they observed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.canonical import Canonical, View, require_joint_density
from dualpca.conditioning import Conditional, condition
from dualpca.holes import has_missing


class Given(NamedTuple):
    """The rows that are given, with their Gaussian and their covariance W with the latent."""

    mu: Array  # (d,)
    C: Array  # (d, d)
    W: Array  # (d, q)
    rows: Array  # (n, d)


class Uncertain(NamedTuple):
    """Expectations, with variances or covariances where they were asked for."""

    mean: Array  # (n, k)
    spread: Array | None  # (n, k) or (n, k, k)


def incomplete(X: Array | None, Y: Array | None) -> bool:
    """Tell whether some entry of what is given is missing."""
    return any(has_missing(A) for A in (X, Y) if A is not None)


def given(model: Canonical, X: Array | None, Y: Array | None) -> Given:
    """Return what is given as one table; raise where its Gaussian is singular."""
    if X is None or Y is None:
        view, rows = (model.x, X) if Y is None else (model.y, Y)
        view.require_density()
        return Given(view.mu, view.covariance, model.loadings(view), rows)
    model.x.require_density()
    model.y.require_density()
    require_joint_density(model.rho)
    xp = _array.namespace(X)
    W = xp.concat([model.loadings(model.x), model.loadings(model.y)], axis=0)
    rows = xp.concat([_array.working(X), _array.working(Y)], axis=1)
    return Given(xp.concat([model.x.mu, model.y.mu]), model.covariance(), W, rows)


def variates(view: View, X: Array) -> Array:
    """Return the canonical variates of a view's rows, expected ones where there is NaN, (n, q)."""
    if not has_missing(X):
        return view.variates(X)
    view.require_density()
    T = _array.asarray(np.eye(view.Q.shape[1]), view.Q)
    return condition(view.mu, view.covariance, view.F @ view.Q, T, X).mean


def latent(model: Canonical, X: Array | None, Y: Array | None) -> tuple[Array, Array]:
    """Return mean (n, q) and covariance (n, q, q) of the latent given one view or both."""
    xp, q = _array.namespace(model.rho), int(model.rho.shape[0])
    eye = _array.asarray(np.eye(q), model.rho)
    if incomplete(X, Y):
        mu, C, W, rows = given(model, X, Y)
        found = condition(mu, C, W, eye, rows, "covariance")
        return found.mean, found.covariance
    u = None if X is None else model.x.variates(X)
    v = None if Y is None else model.y.variates(Y)
    mean, variance = model.posterior(u, v)
    return mean, xp.broadcast_to(variance[:, None] * eye, (mean.shape[0], q, q))


def prediction(
    model: Canonical, X: Array | None, Y: Array | None, spread: str | None = None
) -> Uncertain:
    """Return the view that is not given, from the one that is.

    E[y | x] = μ_y + W_y P^{1/2}u and cov[y | x] = Σ_yy − W_y P W_yᵀ: the uncertainty of a new
    measurement, noise included.

    Parameters
    ----------
    model : Canonical
    X, Y : array of shape (n, d) or None
        One of them.
    spread : {None, 'variance', 'covariance'}
    """
    source, target = (model.x, model.y) if Y is None else (model.y, model.x)
    rows = X if Y is None else Y
    W = model.loadings(target)
    if incomplete(X, Y):
        mu, C, V, rows = given(model, X, Y)
        found = condition(mu, C, V @ W.T, target.covariance, rows, spread)
        return Uncertain(found.mean + target.mu, _spread_of(found))
    mean, _ = model.posterior(source.variates(rows), None)
    return Uncertain(mean @ W.T + target.mu, _prediction_spread(model, target, mean, spread))


def _prediction_spread(
    model: Canonical, target: View, mean: Array, spread: str | None
) -> Array | None:
    """Return the uncertainty that all complete rows share, as a view of one."""
    if spread is None:
        return None
    xp = _array.namespace(mean)
    root = target.root_without(model.rho * model.rho)
    one = xp.sum(root * root, axis=1) if spread == "variance" else root @ root.T
    return xp.broadcast_to(one, (mean.shape[0], *one.shape))


def _spread_of(found: Conditional) -> Array | None:
    return found.variance if found.covariance is None else found.covariance


def log_density(model: Canonical, X: Array | None, Y: Array | None) -> Array:
    """Return ln p of what each row observed of the views that are given, (n,)."""
    if not incomplete(X, Y):
        return model.log_density(X, Y)
    mu, C, _, rows = given(model, X, Y)
    nothing = C[:, :0]
    return condition(mu, C, nothing, nothing[:0, :], rows).log_density


def fill(model: Canonical, X: Array, Y: Array) -> tuple[Array, Array]:
    """Return both views side by side with expectations for NaN, and the standard deviations."""
    xp = _array.namespace(X)
    mu, C, _, rows = given(model, X, Y)
    found = condition(mu, C, C, C, rows, "variance")
    unknown = xp.isnan(rows)
    std = xp.where(unknown, xp.sqrt(found.variance), xp.zeros_like(rows))
    return xp.where(unknown, found.mean + mu, rows), std


def draw(model: Canonical, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw new rows of both views, z ~ N(0, I) and noise of its own for each."""
    z = _array.normal(rng, (n, int(model.rho.shape[0])), model.rho)
    rows = []
    for view in (model.x, model.y):
        noise = _array.normal(rng, (n, int(view.F.shape[1])), model.rho)
        own = noise @ view.root_without(model.rho).T
        rows.append(view.mu + z @ model.loadings(view).T + own)
    return rows[0], rows[1]
