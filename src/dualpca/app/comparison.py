"""Models side by side on one table: what each says of rows, and of entries, it has not seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Split:
    """Rows to fit, rows held out, and the same with some entries hidden."""

    train: Values  # (n, d)
    test: Values  # (m, d)
    hidden: Values  # (m, d), NaN also where an entry was hidden
    log_units: Values  # (m,), to be subtracted from log-densities: Σ log scale of observed entries

    @property
    def center(self) -> Values:
        """Return the means of the rows to fit, (d,): the guess of whoever has no model."""
        return np.asarray(np.nanmean(self.train, axis=0))

    def share(self, guess: Any, where: Values) -> float:
        """Return Σ(x − x̂)² / Σ(x − mean)² over some entries: 0 is perfect, 1 no better than means.

        NaN where no entry varies.
        """
        wrong = np.sum((self.test - np.asarray(guess))[where] ** 2)
        total = np.sum((self.test - self.center)[where] ** 2)
        return float(wrong / total) if total > 0 else float("nan")


def split(X: Values, standardize: bool, held_out: float, hidden: float, seed: int) -> Split:
    """Hold out a share of the rows, and hide a share of their entries; a row keeps one at least.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing is known.
    standardize : bool
        Give columns mean 0 and variance 1, as the rows to fit have them.
    held_out, hidden : float
        Shares, between 0 and 1.
    seed : int

    Examples
    --------
    >>> X = np.arange(40.0).reshape(10, 4)
    >>> parts = split(X, False, 0.2, 0.5, 0)
    >>> parts.train.shape, parts.test.shape, int(np.isnan(parts.hidden).sum())
    ((8, 4), (2, 4), 4)
    """
    rng = np.random.default_rng(seed)
    n = X.shape[0]
    m = min(max(round(held_out * n), 1), n - 2)
    order = rng.permutation(n)
    test, train = X[np.sort(order[:m])], X[np.sort(order[m:])]
    units = np.zeros(m)
    if standardize:
        means, scales = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
        scales = np.where(scales <= 1e-14 * np.abs(means), 1.0, scales)
        units = ~np.isnan(test) @ np.log(scales)
        test, train = (test - means) / scales, (train - means) / scales
    covered = test.copy()
    observed = np.argwhere(~np.isnan(test))
    for i, j in rng.permutation(observed)[: max(round(hidden * len(observed)), 1)]:
        if np.count_nonzero(~np.isnan(covered[i])) > 1:
            covered[i, j] = np.nan
    return Split(train, test, covered, units)


def judge(make: Callable[[], Any], parts: Split, density: bool) -> dict[str, Any]:
    """Fit a model and return what it is worth; what it cannot do is None, and `notes` say why.

    Parameters
    ----------
    make : callable
        Returns a model that is not fitted.
    parts : Split
    density : bool
        Its log-density is one of rows, in the table's units, and so comparable.

    Returns
    -------
    dict
        seconds (of the fit), log_likelihood (a held-out row), reconstruction_error and
        imputation_error (see `Split.share`), notes.
    """
    start = time.perf_counter()
    model = make().fit(parts.train)
    found: dict[str, Any] = {"seconds": time.perf_counter() - start}
    notes: list[str] = []

    def attempt(name: str, value: Callable[[], float]) -> None:
        try:
            found[name] = value()
        except (ValueError, TypeError, ArithmeticError) as error:
            found[name] = None
            notes.append(f"{name}: {error}")

    attempt("log_likelihood", lambda: _likelihood(model, parts, density))
    attempt("reconstruction_error", lambda: _reconstruction(model, parts))
    attempt("imputation_error", lambda: _imputation(model, parts))
    components = getattr(model, "n_components_", None)
    return found | {"n_components": components, "notes": notes}


def _likelihood(model: Any, parts: Split, density: bool) -> float:
    if not hasattr(model, "score_samples"):
        raise TypeError("the model has no density.")
    if not density:
        raise TypeError("its density is one in feature space, which compares with no other.")
    return float(np.mean(np.asarray(model.score_samples(parts.test)) - parts.log_units))


def _reconstruction(model: Any, parts: Split) -> float:
    for name in ("denoise", "reconstruct"):
        if hasattr(model, name):
            return parts.share(getattr(model, name)(parts.test), ~np.isnan(parts.test))
    raise TypeError("the model cannot bring rows back.")


def _imputation(model: Any, parts: Split) -> float:
    if not hasattr(model, "impute"):
        raise TypeError("the model fills no entries.")
    where = np.isnan(parts.hidden) & ~np.isnan(parts.test)
    return parts.share(model.impute(parts.hidden), where)
