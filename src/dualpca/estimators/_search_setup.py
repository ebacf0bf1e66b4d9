"""From the parameters of a kernel search to what it runs on."""

from __future__ import annotations

import hashlib
import re
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import type_of_target

from dualpca.arrays import Array
from dualpca.errors import expected
from dualpca.estimators._base import check_choice, check_flag, check_number
from dualpca.estimators._search_trials import OBJECTIVES, Task
from dualpca.search import Space

MOST = 50
"""Components that a search tries at most unless told."""

NOISE = 0.5
"""Standard deviation of the noise to be taken away, where the number of components is searched."""

COMPARE_ONLY_EQUAL = {
    "likelihood": "the likelihood grows with every component",
    "reconstruction": "without noise, more components always bring more back",
}


def check_search(model: Any) -> None:
    """Refuse parameters that mean nothing."""
    check_choice("objective", model.objective, tuple(OBJECTIVES))
    check_number("n_trials", model.n_trials, 1, integer=True)
    if model.timeout is not None:
        check_number("timeout", model.timeout, 0)
    if model.batch_size is not None:
        check_number("batch_size", model.batch_size, 1, integer=True)
    if model.noise != "auto":
        check_number("noise", model.noise, 0)
    if isinstance(model.sampler, str) or model.sampler is None:
        check_choice("sampler", model.sampler, ("tpe", "random", "gp"))
    if isinstance(model.pruner, str):
        check_choice("pruner", model.pruner, ("median",))
    check_flag("verbose", model.verbose)
    if model.study_name is not None and model.storage is None:
        what = "None without a storage to keep the study in"
        raise ValueError(expected("study_name", what, model.study_name))


def check_estimator(estimator: Any, objective: str) -> None:
    """Refuse what has no kernel, no number of components or no way back."""
    needed = ["fit", "transform", "get_params"]
    needed += ["inverse_transform"] if objective == "reconstruction" else []
    params: Any = {} if isinstance(estimator, type) else getattr(estimator, "get_params", dict)()
    good = {"kernel", "n_components"} <= set(params)
    if not good or not all(hasattr(estimator, name) for name in needed):
        what = f"an estimator with kernel, n_components and {', '.join(needed)}"
        raise ValueError(expected("estimator", what, estimator))


def components_of(request: Any, n: int) -> tuple[int, int]:
    """Return the smallest and the largest number of components; n is the rows of a fit."""
    if request is None:
        return 1, max(1, min(MOST, n - 1))
    pair = request if isinstance(request, tuple | list) else (request, request)
    whole = all(isinstance(q, Integral) and not isinstance(q, bool) for q in pair)
    if len(pair) != 2 or not whole or not 1 <= pair[0] <= pair[1]:
        what = "None, a positive integer, or a pair (smallest, largest) of them"
        raise ValueError(expected("n_components", what, request))
    return int(pair[0]), int(pair[1])


def noise_of(model: Any, components: tuple[int, int]) -> float:
    """Return the noise of held-out rows; refuse a comparison that the largest model must win."""
    low, high = components
    searched = low < high
    if model.noise == "auto":
        noise = NOISE if searched and model.objective == "reconstruction" else 0.0
    else:
        noise = float(model.noise)
    if searched and not noise and model.objective in COMPARE_ONLY_EQUAL:
        why = COMPARE_ONLY_EQUAL[model.objective]
        remedy = "Fix it, or let held-out rows be denoised (noise) or used (objective='score')."
        what = f"one integer with objective={model.objective!r} ({why})"
        raise ValueError(expected("n_components", what, model.n_components, remedy))
    return noise


def folds_of(model: Any, X: Array, y: Any, seed: int, cv: Any) -> list[Any]:
    """Return training and held-out rows of every fold; the likelihood holds out none."""
    if model.objective == "likelihood":
        return [(np.arange(len(X)), np.arange(0))]
    stratify = model.objective == "score" and is_classes(model.final_estimator, y)
    if isinstance(cv, Integral):
        check_number("cv", cv, 2, integer=True)
        kind = StratifiedKFold if stratify else KFold
        splitter = kind(int(cv), shuffle=True, random_state=seed % 2**32)
    else:
        splitter = check_cv(cv, y, classifier=stratify)
    return [(np.asarray(a), np.asarray(b)) for a, b in splitter.split(X, y)]


def is_classes(final: Any, y: Any) -> bool:
    """Tell whether y names classes: if the final estimator takes them; else if y is not floats."""
    if final is not None:
        return bool(is_classifier(final))
    return type_of_target(y) in ("binary", "multiclass") and np.asarray(y).dtype.kind != "f"


def final_of(model: Any, y: Any) -> tuple[Any, Any]:
    """Return the estimator on the latents and what scores it; None where there is no use for it."""
    if model.objective != "score":
        return None, None
    final = model.final_estimator
    if final is None:
        last = LogisticRegression(max_iter=1000) if is_classes(None, y) else Ridge()
        final = make_pipeline(StandardScaler(), last)
    return final, check_scoring(final, scoring=model.scoring)


def mark_of(task: Task, space: Space) -> str:
    """Return what is searched as a short text: the same for the same rows, space and folds."""
    parts = [
        task.objective,
        repr(task.noise),
        repr(task.seed),
        repr((space.labels, space.compositions, space.components)),
        _described(task.estimator),
        _described(task.final),
        re.sub(r" at 0x[0-9a-f]+", "", repr(task.scorer)),
    ]
    digest = hashlib.sha256("\n".join(parts).encode())
    arrays = [task.X, *(part for fold in task.folds for part in fold)]
    if task.y is not None:
        arrays.append(np.asarray(task.y, dtype=str))
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _described(estimator: Any) -> str:
    """Return class and parameters, without addresses in memory."""
    if estimator is None:
        return ""
    params = sorted(estimator.get_params().items())
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(estimator).__name__}{params!r}")
