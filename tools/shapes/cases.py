"""What is drawn: a table, its dtype, weights, gaps and container, an estimator and its options."""

import json
import math
import tempfile
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import sparse

from tools.shapes import switches


@dataclass(frozen=True)
class Case:
    """One fit, written in a line that repeats it."""

    subject: str
    n: int
    d: int
    q: int
    option: str = ""
    dtype: str = "float64"
    container: str = "c"
    weights: str = "none"
    missing: str = "none"
    offset: float = 0.0
    unit: float = 1.0
    decay: float = 0.6
    seed: int = 0
    near: str = ""

    @property
    def line(self):
        """The command that repeats it."""
        told = {k: v for k, v in asdict(self).items() if k != "near"}
        return f"python -m tools.shapes --case '{json.dumps(told)}'"

    @classmethod
    def read(cls, text):
        """Return the case of a line's JSON."""
        return cls(**json.loads(text))


# --- The table ---------------------------------------------------------------------------


def table(case):
    """Return rows with some strong directions, in the dtype asked for, with gaps."""
    rng = np.random.default_rng(case.seed)
    n, d, r = case.n, case.d, min(case.n, case.d, case.q + 2, 24)
    scale = 3.0 * np.maximum(case.decay ** np.arange(r), 0.02)
    axes = np.linalg.qr(rng.standard_normal((d, r)))[0] * math.sqrt(d / r)
    X = (rng.standard_normal((n, r)) * scale) @ axes.T
    X += 0.2 * rng.standard_normal((n, d))
    if case.container.startswith("sparse"):
        X *= rng.random((n, d)) < 0.3
    if case.subject in CLUSTERED:
        X[:, 0] += np.where(np.arange(n) % 2, 12.0, 0.0)
    if case.offset:
        X += case.offset * rng.standard_normal(d)
    X *= case.unit
    if case.dtype == "int64":
        return np.rint(10 * X).astype(np.int64)
    X = X.astype(case.dtype)
    return X if case.missing == "none" else gapped(X, case.missing, rng)


def gapped(X, kind, rng):
    """Return the rows with entries removed; every column keeps at least half of them."""
    n, d = X.shape
    gone = np.zeros((n, d), dtype=bool)
    if kind == "spread":
        gone = rng.random((n, d)) < 0.15
    elif kind == "blocks":
        gone[: n // 3, : max(1, d // 3)] = True
        gone[n // 2 : (2 * n) // 3, -max(1, d // 4) :] = True
    elif kind == "rows":
        gone = rng.random((n, d)) < 0.05
        gone[rng.random(n) < 0.1] = True
    elif kind == "last":
        gone[-1, -1] = True
    for j in np.flatnonzero(gone.mean(axis=0) > 0.5):
        gone[:, j] = False
    if d == 1 or (~gone).any(axis=1).sum() < 3:
        gone[:] = False
        gone[-1, -1] = d > 1
    X[gone] = np.nan
    return X


WEIGHTS = ("none", "none", "uniform", "counts", "wide")
MISSING = ("spread", "blocks", "rows", "last")


def weights(case):
    """Return the weights of the rows, or None."""
    rng = np.random.default_rng(case.seed + 1)
    if case.weights == "none":
        return None
    if case.weights == "counts":
        w = rng.integers(0, 4, case.n).astype(float)
        w[: min(case.n, case.q + 3)] = 1.0
        return w
    w = (
        rng.uniform(0.5, 2.0, case.n)
        if case.weights == "uniform"
        else 10 ** rng.uniform(-2, 2, case.n)
    )
    return w / w.mean()


# --- The container -----------------------------------------------------------------------

IN_MEMORY = ("c", "f", "strided", "reversed", "readonly", "wider")
FRAMES = ("pandas", "polars", "arrow")
CHUNKED = ("batches", "uneven", "npy", "memmap", "dask", "zarr")
ONCE = ("generator", "stream")
SPARSE = ("sparse-csr", "sparse-csc")


def cuts(n, seed):
    """Return the borders of chunks of different lengths."""
    rng = np.random.default_rng(seed + 2)
    few = sorted({int(k) for k in rng.integers(1, max(2, n), size=rng.integers(1, 6))})
    return [0, *(k for k in few if k < n), n]


def parts(X, seed):
    """Return the rows in chunks."""
    at = cuts(len(X), seed)
    return [X[a:b] for a, b in pairwise(at) if b > a]


def _wider(X):
    room = np.full((X.shape[0], X.shape[1] + 3), -7, dtype=X.dtype)
    room[:, 1:-2] = X
    return room[:, 1:-2]


def _strided(X):
    room = np.full((2 * X.shape[0], 2 * X.shape[1]), -7, dtype=X.dtype)
    room[::2, ::2] = X
    return room[::2, ::2]


def _readonly(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def _names(X):
    return [f"c{j}" for j in range(X.shape[1])]


def as_torch(X):
    """Return a tensor of its own memory."""
    return import_module("torch").asarray(X.copy())


def _pandas(X):
    return import_module("pandas").DataFrame(X, columns=_names(X))


def _polars(X):
    return import_module("polars").DataFrame(X, schema=_names(X))


def _arrow(X):
    pa = import_module("pyarrow")
    return pa.table({name: X[:, j] for j, name in enumerate(_names(X))})


def _dask(X, seed):
    sizes = tuple(len(part) for part in parts(X, seed))
    return import_module("dask.array").from_array(X, chunks=(sizes, (X.shape[1],)))


def _zarr(X, folder):
    rows = max(1, min(len(X), 4096, len(X) // 3))
    zarr = import_module("zarr")
    found = zarr.create_array(
        str(Path(folder) / "x.zarr"), shape=X.shape, dtype=X.dtype, chunks=(rows, X.shape[1])
    )
    found[:] = X
    return found


def _npy(X, folder):
    path = Path(folder) / "x.npy"
    np.save(path, X)
    return path


def given(case, X, folder):
    """Return the rows in their container."""
    from dualpca import Batches

    size = max(1, -(-len(X) // 3))
    make = {
        "c": lambda: np.ascontiguousarray(X),
        "f": lambda: np.asfortranarray(X),
        "strided": lambda: _strided(X),
        "reversed": lambda: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
        "readonly": lambda: _readonly(X),
        "wider": lambda: _wider(X),
        "list": lambda: X.tolist(),
        "torch": lambda: as_torch(X),
        "pandas": lambda: _pandas(X),
        "polars": lambda: _polars(X),
        "arrow": lambda: _arrow(X),
        "sparse-csr": lambda: sparse.csr_array(X),
        "sparse-csc": lambda: sparse.csc_array(X),
        "batches": lambda: Batches([X[k : k + size] for k in range(0, len(X), size)]),
        "uneven": lambda: Batches(lambda: iter(parts(X, case.seed))),
        "generator": lambda: Batches(part for part in parts(X, case.seed)),
        "dask": lambda: _dask(X, case.seed),
        "zarr": lambda: _zarr(X, folder),
        "npy": lambda: _npy(X, folder),
        "memmap": lambda: np.load(_npy(X, folder), mmap_mode="r"),
    }
    return make[case.container]()


CLUSTERED = ("MixturePPCA", "HiddenMarkovPCA", "HierarchicalPPCA", "SequenceClassifier")


# --- Drawing -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """The most that a case may cost: entries, and n·d·min(n, d) or n³ of kernels."""

    entries: float
    work: float
    points: int

    def fit(self, subject, n, d):
        """Say whether rows and columns are within them, and within those of a subject."""
        if not (
            subject.rows[0] <= n <= subject.rows[1]
            and subject.columns[0] <= d <= subject.columns[1]
        ):
            return False
        if subject.pairs and n > self.points:
            return False
        share = self.entries * subject.share
        return n * d <= share and n * d * min(n, d) <= self.work * subject.share


WHOLE = 10
"""How much more of `work` the matrix of all columns may cost, LAPACK's own."""

QUICK = Limits(entries=2**19 * 1.3, work=6e7, points=420)
LONG = Limits(entries=2**22 * 1.2, work=3e9, points=1700)


def drawn(rng, name, subject, found, limits):
    """Return a case of a subject, its shape beside a switch or anywhere."""
    fits = lambda n, d: limits.fit(subject, n, d)  # noqa: E731
    shape = switches.near(rng, found, fits) if rng.random() < 0.5 else None
    entries = int(limits.entries * subject.share)
    n, d, near = shape or (*switches.anywhere(rng, fits, entries), "")
    pick = lambda items: items[rng.integers(len(items))]  # noqa: E731
    missing = "none"
    if subject.missing == "always" or (subject.missing == "maybe" and rng.random() < 0.5):
        missing = pick(MISSING)
    containers = subject.containers if missing == "none" else subject.containers_with_gaps
    container = pick(containers)
    dtype = pick(
        ["float64", "float64", "float32", "int64"] if missing == "none" else ["float64", "float32"]
    )
    if container.startswith("sparse") and dtype == "int64":
        dtype = "float64"
    weighted = pick(WEIGHTS) if subject.weights and container not in subject.unweighted else "none"
    top = max(1, min(n - 2, d - 1, subject.most))
    q = top if rng.random() < 0.1 else int(rng.integers(1, min(top, 8) + 1))
    far = container.startswith("sparse") or subject.pairs or dtype == "int64"
    option = pick(subject.options)
    side = {"dense": d, "gram": n}.get(option, 0)  # all pairs of columns, or of rows
    if float(side) ** 3 > WHOLE * limits.work:
        option = ""
    case = Case(
        name,
        n,
        d,
        q,
        option=option,
        dtype=dtype,
        container=container,
        weights=weighted,
        missing=missing,
        offset=0.0 if far or rng.random() < 0.4 else float(pick([1.0, 100.0, 1e4])),
        unit=1.0 if subject.pairs or dtype == "int64" else float(pick([1.0, 1.0, 1e-6, 1e6])),
        decay=float(pick([0.9, 0.6, 0.3])),
        seed=int(rng.integers(2**31)),
        near=near,
    )
    return subject.suited(case)


def fine(case, subject):
    """Say whether a case has rows and columns enough."""
    most = max(1, min(case.n - 2, case.d - 1, subject.most))
    return case.n >= subject.rows[0] and case.d >= subject.columns[0] and case.q <= most


def smaller(case, subject):
    """Yield simpler cases, the simplest first."""
    plain = {
        "container": "c",
        "dtype": "float64",
        "weights": "none",
        "offset": 0.0,
        "unit": 1.0,
        "q": 1,
        "missing": (subject.missing == "always" and "last") or "none",
        "option": subject.options[0],
    }
    for name, value in plain.items():
        new = subject.suited(replace(case, **{name: value}))
        if getattr(case, name) != value and new != case:
            yield new
    for share in (0.1, 0.5, 0.8, 0.95):
        for name in ("n", "d"):
            value = int(getattr(case, name) * share)
            new = replace(case, **{name: value})
            if value != getattr(case, name) and fine(new, subject):
                yield new
    for name in ("n", "d"):
        new = replace(case, **{name: getattr(case, name) - 1})
        if fine(new, subject):
            yield new


def folder():
    """Return a folder that goes with the case."""
    return tempfile.TemporaryDirectory(prefix="shapes")
