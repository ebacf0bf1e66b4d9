"""Hidden Markov models beside hmmlearn: speakers, motions, seconds an iteration.

Settings are chosen on the training part, by cross-validation (speakers) or by the index itself
(motions), for everybody alike, and what was chosen meets the test part once.
"""

import time
from collections.abc import Callable, Iterator
from itertools import product
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import StratifiedKFold

from benchmarks.environment import DATA
from benchmarks.run import Row, Run
from dualpca import HiddenMarkovPCA, SequenceClassifier
from dualpca.data import InMemoryTable
from dualpca.kernels import RBF
from dualpca.models.emissions import Surveyed
from dualpca.models.hidden_markov import BaumWelch, HiddenMarkovRequest

STICKS = (0.0, 1e3, 1e5)
SIZES, ROWS, ROWS_IN_KERNEL_SPACE = (1, 2, 3), (0, 20), (20, 60)


class Peer:
    """hmmlearn's GaussianHMM, one a class; the surface of SequenceClassifier that is used here.

    `rows` is the prior of ours in its words: so many rows of the variance of all features.
    """

    def __init__(self, S: int, kind: str, rows: float) -> None:
        self.options = {"n_components": S, "covariance_type": kind, "n_iter": 50}
        self.rows = rows

    def prior(self, d: int) -> dict[str, Any]:
        if self.rows == 0:
            return {}
        full = self.options["covariance_type"] == "full"
        scale = self.rows * (np.eye(d) if full else 1.0)
        return {"covars_prior": scale, "covars_weight": self.rows + (d if full else 1)}

    def fit(self, X: list, y: np.ndarray) -> "Peer":
        from hmmlearn.hmm import GaussianHMM

        self.classes_, self.models = np.unique(y), []
        for c in self.classes_:
            mine = [x for x, label in zip(X, y, strict=True) if label == c]
            model = GaussianHMM(random_state=0, **self.options, **self.prior(mine[0].shape[1]))
            try:
                model.fit(np.concatenate(mine), [len(x) for x in mine])
            except ValueError:  # some fits end in NaN; such a class is never chosen
                model = None
            self.models.append(model)
        return self

    @staticmethod
    def score(model: Any, x: np.ndarray) -> float:
        try:
            return -1e300 if model is None else float(model.score(x))
        except ValueError:
            return -1e300

    def predict_log_proba(self, X: list) -> np.ndarray:
        logs = np.array([[self.score(m, x) for m in self.models] for x in X])
        return logs - np.logaddexp.reduce(logs, axis=1)[:, None]


class Scaled:
    """Every feature divided by its standard deviation over the training rows, for everybody."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def fit(self, X: list, y: np.ndarray) -> "Scaled":
        rows = np.concatenate(X)
        self.mean, self.unit = rows.mean(axis=0), rows.std(axis=0)
        self.classes_ = self.inner.fit(self.scaled(X), y).classes_
        return self

    def scaled(self, X: list) -> list:
        return [(x - self.mean) / self.unit for x in X]

    def predict_log_proba(self, X: list) -> np.ndarray:
        return self.inner.predict_log_proba(self.scaled(X))


class Merit(NamedTuple):
    """What settings are chosen by: the mean log-probability of the right class.

    Accuracy saturates on 270 utterances, where one is 0.004 and most settings differ by less.
    """

    log_probability: float
    accuracy: float


def merit(one: Any, X: list, y: np.ndarray) -> Merit:
    logs = one.predict_log_proba(X)
    right = np.searchsorted(one.classes_, y)
    picked = logs[np.arange(len(y)), right]
    return Merit(float(np.mean(picked)), float(np.mean(logs.argmax(axis=1) == right)))


def cross_validated(make: Callable[[], Any], X: list, y: np.ndarray) -> Merit:
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = [
        merit(make().fit([X[i] for i in a], y[a]), [X[i] for i in b], y[b])
        for a, b in folds.split(np.zeros(len(y)), y)
    ]
    return Merit(*np.mean(found, axis=0))


def rule(S: int, q: int, rows: float, **options: Any) -> Any:
    options = {"topology": "left-to-right", "max_iter": 50, "tol": 1e-3, **options}
    return Scaled(SequenceClassifier(HiddenMarkovPCA(S, q, prior_rows=rows, **options)))


Grid = dict[str, Callable[[], Any]]


def linear() -> Grid:
    return {
        f"S={S}, q={q}, prior_rows={n}": lambda S=S, q=q, n=n: rule(S, q, n)
        for S, q, n in product(SIZES, (4, 8), ROWS)
    }


def kernelised() -> Grid:
    return {
        f"S={S}, q=4, gamma={g}, prior_rows={n}": lambda S=S, g=g, n=n: rule(
            S, 4, n, kernel=RBF(gamma=g)
        )
        for S, g, n in product(SIZES, (0.003, 0.01), ROWS_IN_KERNEL_SPACE)
    }


def peers() -> Grid:
    return {
        f"S={S}, {kind}, prior of {n} rows": lambda S=S, kind=kind, n=n: Scaled(Peer(S, kind, n))
        for S, kind, n in product(SIZES, ("diag", "full"), ROWS)
    }


def speakers(run: Run) -> Iterator[Row]:
    """Yield who recognises the speakers; only what was chosen meets the test part."""
    data = np.load(DATA / "japanese_vowels.npz")
    cut = np.split(data["frames"].astype(float), np.cumsum(data["lengths"])[:-1])
    test, y = data["is_test"].astype(bool), data["speaker"]
    train = [x for x, t in zip(cut, test, strict=True) if not t]
    held = [x for x, t in zip(cut, test, strict=True) if t]
    families = {
        "dualpca, linear": linear(),
        "hmmlearn GaussianHMM": peers(),
        "dualpca, kernel (RBF)": kernelised(),
    }
    for name, grid in families.items():
        if not run.room(name):
            continue
        tried = dict(list(grid.items())[:1]) if run.quick else grid
        scores = {how: cross_validated(make, train, y[~test]) for how, make in tried.items()}
        some = {name: list(tried)}
        few = [how for how in tried if "q=4" in how]
        some |= {f"{name}, q ≤ 4": few} if 0 < len(few) < len(tried) else {}
        for title, names in some.items():
            best = max(names, key=lambda how: scores[how])
            right = merit(grid[best]().fit(train, y[~test]), held, y[test]).accuracy
            about = {"name": title, "settings": len(names), "chosen": best}
            yield about | scores[best]._asdict() | {"test": right}


def stream(part: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return recordings joined in random order, standardised, and the motion of every row."""
    data = np.load(DATA / "basic_motions.npz")
    mine = np.flatnonzero(data["is_test"].astype(bool) == part)
    order = np.random.default_rng(seed).permutation(mine)
    X = data["X"][order].astype(float).reshape(-1, 6)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.repeat(data["y"][order], 100)


def our_index(X: np.ndarray, y: np.ndarray, model: HiddenMarkovPCA) -> float:
    return float(adjusted_rand_score(y, clone(model).fit(X).predict(X)))


def their_index(X: np.ndarray, y: np.ndarray, options: dict[str, Any]) -> float:
    from hmmlearn.hmm import GaussianHMM

    runs = [GaussianHMM(4, n_iter=100, random_state=i, **options).fit(X) for i in range(6)]
    return float(adjusted_rand_score(y, max(runs, key=lambda m: m.score(X)).predict(X)))


def motions(run: Run) -> Iterator[Row]:
    common: dict[str, Any] = {"n_init": 6, "max_iter": 100, "tol": 1e-4}
    ours = {
        f"M={M}, q={q}, stickiness={k:g}": HiddenMarkovPCA(4, q, M, stickiness=k, **common)
        for M, q, k in product((1, 2), (1, 3), STICKS)
    }
    theirs = {
        f"{kind}, transmat_prior=1+{k:g}I": {
            "covariance_type": kind,
            "transmat_prior": 1 + k * np.eye(4),
        }
        for kind, k in product(("diag", "full"), STICKS)
    }
    contests: list[tuple[str, Any, Any]] = [
        ("dualpca", ours, our_index),
        ("hmmlearn GaussianHMM", theirs, their_index),
    ]
    for name, grid, index in contests:
        tried = list(grid)[:1] if run.quick else list(grid)
        there = {how: index(*stream(False, 0), grid[how]) for how in tried}
        best = max(there, key=lambda how: there[how])
        tests = [index(*stream(True, seed), grid[best]) for seed in range(3)]
        yield {"name": name, "chosen": best, "training": there[best], "tests": tests}


def speed(run: Run, d: int = 10, S: int = 5) -> Iterator[Row]:
    T = 2_000 if run.quick else 20_000
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(0, S, T // 20), 20)
    X = 2 * rng.standard_normal((S, d))[states] + rng.standard_normal((T, d))
    data, request = Surveyed.of(InMemoryTable(X)), HiddenMarkovRequest(S, d - 1)
    steps = BaumWelch(data, {0: np.array([T])}, request)
    at, _ = steps.begin(np.random.default_rng(0), 0)
    ours, seconds = f"dualpca, q = {d - 1}", {}
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(4):
            at, _ = steps.step(at)
        seconds.setdefault(ours, []).append((time.perf_counter() - start) / 4)
        for how in ("log", "scaling"):
            key = f"hmmlearn GaussianHMM(full), {how}"
            seconds.setdefault(key, []).append(their_step(X, S, how))
    medians = {name: median(found) for name, found in seconds.items()}
    fastest = min(value for name, value in medians.items() if name != ours)
    about = {"name": f"T = {T:,}, d = {d}, {S} states"}
    for name, value in medians.items():
        mine = name == ours
        yield about | {"who": name, "ours": mine, "seconds": value, "ratio": value / fastest}


def their_step(X: np.ndarray, S: int, how: str) -> float:
    """Return seconds an iteration: a fit of five less a fit of one."""
    from hmmlearn.hmm import GaussianHMM

    took = []
    for n in (1, 5):
        model = GaussianHMM(S, "full", n_iter=n, tol=-np.inf, implementation=how, random_state=0)
        start = time.perf_counter()
        model.fit(X)
        took.append(time.perf_counter() - start)
    return (took[1] - took[0]) / 4


def rows(run: Run, part: str) -> Iterator[Row]:
    yield from {"speed": speed, "motions": motions, "speakers": speakers}[part](run)
