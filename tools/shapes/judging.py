"""What every estimator must agree with, and how closely.

Allowed errors are those of stable algorithms: some hundred roundings of the largest eigenvalue, of
the largest kernel value or of the density's condition ell_1/σ²; vectors that divided by their gap.
Fits by iteration are judged where they ended: the density and the expectations are those of the
published parameters, and one dense EM step from there gains nothing.
"""

import warnings
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import gammaln

import dualpca
from tools.shapes import truth
from tools.shapes.cases import (
    CHUNKED,
    FRAMES,
    IN_MEMORY,
    ONCE,
    SPARSE,
    as_torch,
    folder,
    given,
    parts,
    table,
    weights,
)

MANY = 4000
"""Rows, of a larger table the first and the last, whose densities and projections are compared."""


@dataclass(frozen=True)
class Check:
    """One comparison."""

    what: str
    error: float
    allowed: float

    @property
    def fails(self):
        return not self.error <= self.allowed


def check(what, found, wanted, allowed):
    """Compare two arrays by their largest difference."""
    found, wanted = numbers(found), np.asarray(wanted, dtype=float)
    if found.shape != wanted.shape:
        return Check(f"{what}: shape {found.shape}, not {wanted.shape}", np.inf, 0.0)
    if not found.size:
        return Check(what, 0.0, 0.0)
    return Check(what, float(np.max(np.abs(found - wanted))), float(allowed))


def numbers(found):
    """Return what a method gave as a NumPy array of float64."""
    if hasattr(found, "compute"):
        found = found.compute(scheduler="synchronous")
    elif hasattr(found, "parts"):
        found = np.concatenate(list(found))
    elif hasattr(found, "detach"):
        found = found.detach().cpu().numpy()
    elif hasattr(found, "to_numpy"):
        found = found.to_numpy()
    return np.asarray(found, dtype=float)


@dataclass(frozen=True)
class Subject:
    """An estimator and its options, what may be drawn for it, and what judges it."""

    make: object  # case -> estimator
    judge: object  # (case, fit) -> checks
    options: tuple = ("",)
    containers: tuple = (*IN_MEMORY, *FRAMES, "torch", "list")
    gaps: tuple = ()  # containers of rows with gaps, all that there are unless said
    unweighted: tuple = ()
    missing: str = "never"
    weights: bool = True
    pairs: bool = False  # its cost grows with n² and n³
    rows: tuple = (6, 10**7)
    columns: tuple = (1, 10**5)
    share: float = 1.0  # of the work that is allowed
    most: int = 64  # components
    ties: bool = True  # whole numbers are drawn, too: rows may be alike, and eigenvalues

    @property
    def containers_with_gaps(self):
        return self.gaps or self.containers

    def suited(self, case):
        """Return the case with what the subject refuses replaced."""
        chunks = case.container in (*CHUNKED, *ONCE)
        zeros = case.option == "cosine"  # rows of zeros have no direction
        if case.dtype == "int64" and (zeros or not self.ties):
            case = replace(case, dtype="float64")
        if case.container == "list" and case.n * case.d > 2**16:
            case = replace(case, container="c")
        if case.option == "precomputed" and case.container not in (*IN_MEMORY, "torch"):
            case = replace(case, container="c")
        whole = case.option == "precomputed" or case.container == "stream"
        if whole and case.weights == "counts":  # no point, and no chunk, can be left out
            case = replace(case, weights="uniform")
        if chunks and case.option in WHOLE:
            case = replace(case, option="")
        if case.container in ONCE and case.option == "standardize":
            case = replace(case, option="")  # its units need a pass, or a fit, before
        return case


@dataclass
class Fit:
    """A fitted model with its rows, as NumPy has them and in their container."""

    case: object
    model: object
    X: np.ndarray
    w: np.ndarray | None
    rows: object  # in the container; NumPy where that can be read once

    @property
    def single(self):
        return self.case.dtype == "float32"

    @property
    def eps(self):
        return 6e-8 if self.single else 2.3e-16

    @property
    def some(self):
        n = len(self.X)
        return np.arange(n) if n <= MANY else np.r_[: MANY // 2, n - MANY // 2 : n]

    def rows_of(self, some):
        """Return some rows of the library that the model was fitted on."""
        X = self.X[some]
        return as_torch(X) if self.case.container == "torch" else X


def fitted(case, subject, place):
    """Fit the estimator to the rows in their container."""
    X, w = table(case), weights(case)
    model = subject.make(case)
    told = {} if w is None else {"sample_weight": w}
    if case.container == "stream":
        wp = [None] * len(X) if w is None else parts(w, case.seed)
        for part, v in zip(parts(X, case.seed), wp, strict=False):
            model.partial_fit(part, **({} if v is None else {"sample_weight": v}))
        return Fit(case, model, X, w, X)
    rows = given(case, X, place)
    model.fit(rows, **told)
    again = X if case.container == "generator" else rows
    return Fit(case, model, X, w, again)


FEW_WITH_GAPS = 20
"""Rows per column, below which a fit to rows with gaps may say that there is no answer."""


def failure(error):
    """Return an error as a check that fails."""
    text = str(error).partition("\n")[0][:160]
    return Check(f"{type(error).__name__}: {text}", np.inf, 0.0)


def judged(case, subject):
    """Return the checks that fail; an exception or a warning of NumPy is a failure too."""
    with folder() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        for kind in vars(dualpca.errors).values():
            if isinstance(kind, type) and issubclass(kind, Warning):
                warnings.simplefilter("ignore", kind)
        try:
            fit = fitted(case, subject, place)
            checks = list(subject.judge(fit))
        except dualpca.errors.DegenerateError as error:
            # few rows, some empty in places and some of little weight: there may be no answer
            few = case.missing != "none" and case.n < FEW_WITH_GAPS * case.d
            checks = [] if few else [failure(error)]
        except Exception as error:
            checks = [failure(error)]
    return [one for one in checks if one.fails]


# --- One spectrum, one Gaussian ----------------------------------------------------------


def linear(fit):
    """Judge PCA or PPCA in closed form by all eigenvalues of the covariance."""
    case, model = fit.case, fit.model
    scaled = getattr(model, "standardize", False)
    total, mean, C = truth.centred(fit.X, fit.w)
    size = np.max(np.abs(fit.X)) + 1e-300
    unit = np.ones(case.d)
    if scaled:
        w = np.ones(case.n) if fit.w is None else fit.w
        unit = np.sqrt(w @ (C * C) / total)
        unit[unit == 0] = 1.0  # columns that do not vary are left alone
        C = C / unit
    ell, V = truth.spectrum(C, fit.w)
    d, q = case.d, case.q
    trace = ell.sum()
    divisor = total / (total - 1) if isinstance(model, dualpca.PCA) else 1.0
    sigma2 = (trace - ell[:q].sum()) / (d - q) if q < d else 0.0
    base = 30 * fit.eps if fit.single else 2e-11
    yield check("mean_", model.mean_, mean, 4 * fit.eps * size)
    found = numbers(model.explained_variance_)
    yield check("explained_variance_", found, divisor * ell[:q], base * ell[0])
    ratio = ell[:q] / trace
    yield check("explained_variance_ratio_", model.explained_variance_ratio_, ratio, base)
    yield check("noise_variance_", model.noise_variance_, divisor * sigma2, base * ell[0])
    gap = (ell[q - 1] - ell[q]) / ell[0] if q < len(ell) else ell[q - 1] / ell[0]
    if gap < 1e-4 or sigma2 < 1e-9 * ell[0]:
        return
    some = fit.some
    loose = 1e-9 if not fit.single else 1e-4
    spread = np.max(np.abs(C[some]))
    Y = C[some] @ V[:, :q]
    rows = fit.rows_of(some)
    mine = numbers(model.transform(rows))
    if isinstance(model, dualpca.PPCA):
        Y = Y * np.sqrt(ell[:q] - sigma2) / ell[:q]
    few = slice(0, 200)
    wide = max(np.max(np.abs(Y)), 1e-300) ** 2 * q
    yield check("transform", mine[few] @ mine[few].T, Y[few] @ Y[few].T, 4 * loose / gap * wide)
    share = 1 - sigma2 / ell[:q] if isinstance(model, dualpca.PPCA) else 1.0
    again = mean + (C[some] @ V[:, :q] * share) @ V[:, :q].T * unit
    yield check(
        "reconstruct",
        model.reconstruct(rows),
        again,
        (loose / gap * spread * np.max(unit) * 4) + 8 * fit.eps * size,
    )
    v = divisor * ell[:q]
    s = divisor * sigma2
    wanted = truth.spiked_log_density(C[some], V[:, :q], v, s) - np.log(unit).sum()
    allowed = (np.abs(wanted).max() + d) * (loose / gap + 100 * fit.eps * ell[0] / sigma2)
    allowed += fit.eps * size / unit.min() / np.sqrt(sigma2) * np.sqrt(np.abs(wanted).max() + d) * 8
    yield check("score_samples", model.score_samples(rows), wanted, allowed)
    if fit.rows is not fit.X and case.container not in (*SPARSE, "list"):
        whole = numbers(model.score_samples(fit.rows))
        yield check("score_samples of the container", whole[some], wanted, allowed)


CLOSED = (*IN_MEMORY, *FRAMES, "torch", "list", *CHUNKED, *ONCE)


def pca(case):
    option = {"": "auto"}.get(case.option, case.option)
    if option == "standardize":
        return dualpca.PCA(case.q, standardize=True)
    return dualpca.PCA(case.q, svd_solver=option, random_state=0)


def ppca(case):
    option = {"": "auto"}.get(case.option, case.option)
    if option == "standardize":
        return dualpca.PPCA(case.q, standardize=True)
    return dualpca.PPCA(case.q, solver=option, random_state=0)


# --- Fits by iteration, and rows with gaps -----------------------------------------------

TIGHT = {"tol": 1e-9, "max_iter": 4000}


def gaussian(fit, W, psi, *, equal, tied=True, gain=1e-5):
    """Judge densities and expectations by the dense Gaussian, and the fit by one dense EM step."""
    model, w = fit.model, fit.w
    X, mean = fit.X.astype(np.float64), numbers(model.mean_)
    C = W @ W.T + np.diag(psi)
    loose = 1e-8 if not fit.single else 1e-3
    top = np.linalg.eigvalsh(C)[-1]
    worst = top / psi.min()
    wanted = truth.log_densities(X, mean, C)
    size = np.nanmax(np.abs(X)) + 1e-300
    allowed = (np.abs(wanted).max() + fit.case.d) * (loose + 100 * fit.eps * worst)
    far = fit.eps * size / np.sqrt(psi.min())
    allowed += far * np.sqrt(np.abs(wanted).max() + fit.case.d) * 8 + far**2
    yield check("score_samples", model.score_samples(fit.rows), wanted, allowed)
    if np.isnan(X).any():
        spread = np.sqrt(np.diagonal(C).max())
        reach = spread * (1 + np.abs(wanted).max() ** 0.5) * (loose + 100 * fit.eps * worst)
        filled = truth.filled(X, mean, C)
        found = numbers(model.impute(fit.rows))
        yield check(
            "impute",
            found,
            filled,
            reach * 10 + 8 * fit.eps * size * (1 + spread / psi.min() ** 0.5),
        )
    if tied and not fit.single and fit.case.n * fit.case.d <= 20_000:
        total = fit.case.n if w is None else w.sum()
        before = truth.loglikelihood(X, w, mean, W, psi)
        shift = np.nanmean(X, axis=0)
        after = truth.em_step(X - shift, w, mean - shift, W, psi, equal=equal)
        rise = truth.loglikelihood(X - shift, w, *after) - before
        yield Check("one more EM step", abs(rise) / total, gain)


def equal_noise(fit):
    W = numbers(fit.model.loadings_)
    W = W.T if W.shape != (fit.case.d, W.shape[1]) else W
    psi = np.full(fit.case.d, float(fit.model.noise_variance_))
    if psi[0] > 1e-9 * np.square(W).sum():
        yield from gaussian(fit, W, psi, equal=True)


def by_prior(fit):
    """Judge densities and expectations alone: the prior has a say in where the fit ends."""
    W = numbers(fit.model.loadings_)
    psi = np.full(fit.case.d, float(fit.model.noise_variance_))
    if psi[0] > 1e-9 * np.square(W).sum():
        yield from gaussian(fit, W, psi, equal=True, tied=False)


def own_noise(fit):
    W, psi = numbers(fit.model.loadings_), numbers(fit.model.noise_variance_)
    heywood = psi.min() < 1e-3 * (np.square(W).sum(axis=1) + psi).max()
    yield from gaussian(fit, W, psi, equal=False, tied=not heywood, gain=1e-4)


def heavy(fit):
    """Judge a Student's t by its density and expectations, and the weights of rows."""
    model, X = fit.model, fit.X.astype(np.float64)
    mean, nu = numbers(model.mean_), float(model.degrees_of_freedom_)
    C = numbers(model.get_covariance())
    S = C * ((nu - 2) / nu) if np.isfinite(nu) else C
    far, logdet, k = truth.squared_distances(X, mean, S)
    if np.isfinite(nu):
        wanted = gammaln((nu + k) / 2) - gammaln(nu / 2) - k / 2 * np.log(nu * np.pi) - logdet / 2
        wanted = wanted - (nu + k) / 2 * np.log1p(far / nu)
    else:
        wanted = -0.5 * (k * truth.LOG_2PI + logdet + far)
    values = np.linalg.eigvalsh(S)
    loose = (1e-8 if not fit.single else 1e-3) + 100 * fit.eps * values[-1] / values[0]
    size = np.nanmax(np.abs(X))
    off = fit.eps * size / np.sqrt(values[0])
    allowed = (np.abs(wanted).max() + fit.case.d) * loose
    allowed += off * np.sqrt(np.abs(wanted).max() + fit.case.d) * 8 + off**2
    yield check("score_samples", model.score_samples(fit.rows), wanted, allowed)
    if np.isfinite(nu) and k.min() > 0:
        u = (nu + k) / (nu + far)
        yield check(
            "weigh", model.weigh(fit.rows), u, (1e-6 if not fit.single else 1e-2) + 10 * off
        )


def imputer(fit):
    """Judge what is filled in by the dense Gaussian of the model within."""
    model, X = fit.model.model_, fit.X.astype(np.float64)
    found = numbers(fit.model.transform(fit.rows))
    seen = ~np.isnan(X)
    yield check(
        "entries that are known",
        found[seen],
        X[seen],
        0.0 if not fit.single else 1e-6 * np.abs(X[seen]).max(),
    )
    C, mean = numbers(model.get_covariance()), numbers(model.mean_)
    scale = np.sqrt(np.diagonal(C))
    least = np.linalg.eigvalsh(C / np.outer(scale, scale))[0]
    if least < 1e-9:
        return
    wanted = truth.filled(X, mean, C)
    size = np.nanmax(np.abs(X))
    loose = (1e-9 if not fit.single else 1e-4) / np.sqrt(least)
    off = 8 * fit.eps * size / np.sqrt(least)
    reach = np.nanmax(np.abs(X - mean))
    yield check("gaps", found, wanted, loose * 10 * reach + off)


# --- Mixtures and chains ------------------------------------------------------------------


def mixture(fit):
    """Judge densities and responsibilities at the parameters, and one dense EM step."""
    model, X = fit.model, fit.X.astype(np.float64)
    shares, means = numbers(model.weights_), numbers(model.means_)
    C = numbers(model.covariances_)
    values = [np.linalg.eigvalsh(c) for c in C]
    worst = max(v[-1] / v[0] for v in values)
    if worst > 1e9:
        return
    wanted, R = truth.mixture(X, shares, means, C)
    off = fit.eps * np.nanmax(np.abs(X)) / np.sqrt(min(v[0] for v in values))
    loose = (1e-8 if not fit.single else 2e-3) + 100 * fit.eps * worst
    size = np.abs(wanted).max() + fit.case.d
    allowed = size * loose + off * np.sqrt(size) * 8 + off**2
    yield check("score_samples", model.score_samples(fit.rows), wanted, allowed)
    found = model.predict_proba(fit.rows, parameters="fixed")
    yield check("predict_proba", found, R, 4 * allowed)
    if (
        not fit.single
        and not np.isnan(X).any()
        and fit.case.n * fit.case.d <= 20_000
        and off < 1e-9
    ):
        w = np.ones(len(X)) if fit.w is None else fit.w
        least = min(v[0] for v in values)
        after = truth.mixture_step(X, fit.w, shares, means, C, fit.case.q, least)
        rise = w @ (truth.mixture(X, *after)[0] - wanted) / w.sum()
        yield Check("one more EM step", float(abs(rise)), 1e-4)


def lengths_of(case):
    at = np.unique([0, case.n // 3, case.n])
    return np.diff(at)


class Chain:
    """A chain of two states fitted to two sequences."""

    def __init__(self, case):
        self.model = dualpca.HiddenMarkovPCA(
            2, min(case.q, 2), standardize=False, random_state=0, tol=1e-6, max_iter=60
        )
        self.lengths = lengths_of(case)

    def fit(self, X):
        self.model.fit(X, lengths=self.lengths)


def chain(fit):
    """Judge the likelihood of sequences by the forward pass over dense emissions."""
    model, X = fit.model.model, fit.X.astype(np.float64)
    means, C = numbers(model.means_)[:, 0], numbers(model.covariances_)[:, 0]
    values = [np.linalg.eigvalsh(c) for c in C]
    worst = max(v[-1] / v[0] for v in values)
    if worst > 1e9:
        return
    log_b = np.stack([truth.log_densities(X, m, c) for m, c in zip(means, C, strict=True)], axis=1)
    start, A = numbers(model.start_probabilities_), numbers(model.transitions_)
    at = np.cumsum([0, *fit.model.lengths])
    wanted = [truth.forward(log_b[a:b], start, A) for a, b in pairwise(at)]
    found = model.score_sequences(fit.rows, lengths=fit.model.lengths)
    off = fit.eps * np.nanmax(np.abs(X)) / np.sqrt(min(v[0] for v in values))
    loose = (1e-8 if not fit.single else 2e-3) + 100 * fit.eps * worst
    size = np.abs(log_b).max() + fit.case.d
    allowed = (size * loose + off * np.sqrt(size) * 8 + off**2) * fit.case.n
    yield check("score_sequences", found, wanted, allowed)


# --- Kernels ------------------------------------------------------------------------------


def gamma_of(case):
    return 0.5 / case.d


KERNEL_OPTIONS = ("rbf", "linear", "poly", "cosine", "laplacian", "precomputed")


class Precomputed:
    """An estimator that is given the kernel matrix."""

    def __init__(self, model, case):
        self.model, self.case = model, case

    def fit(self, X, **told):
        X = numbers(X)
        K = np.ascontiguousarray(truth.KERNELS["rbf"](X, X, gamma_of(self.case)))
        self.K = as_torch(K) if self.case.container == "torch" else K
        self.model.fit(self.K, **told)


def kernelled(cls, **more):
    def make(case):
        name, _, solver = case.option.partition("/")
        told = dict(more)
        if solver:
            told["eigen_solver"] = solver
        model = cls(case.q, kernel=name, gamma=gamma_of(case), **told)
        return Precomputed(model, case) if name == "precomputed" else model

    return make


def kernel_of(fit):
    name = fit.case.option.partition("/")[0]
    name = "rbf" if name == "precomputed" else name
    X = fit.X.astype(np.float64)
    return truth.KERNELS[name](X, X, gamma_of(fit.case))


def inner(fit):
    model = fit.model
    if isinstance(model, Precomputed):
        return model.model, model.K
    return model, fit.rows


def kernel_pca(fit):
    """Judge KernelPCA by all eigenvalues of the centred kernel."""
    case = fit.case
    model, rows = inner(fit)
    K = kernel_of(fit)
    Kc = truth.centred_kernel(K, fit.w)
    lam, E = truth.kernel_spectrum(Kc, fit.w)
    q = min(case.q, numbers(model.eigenvalues_).size)
    largest = np.abs(K).max() * np.sqrt(case.n) + lam[0]
    base = 1e-10 if not fit.single else 3e-5
    yield check("eigenvalues_", numbers(model.eigenvalues_)[:q], lam[:q], base * largest)
    yield from spread_of(fit, model, rows, Kc, lam, E, q)


def spread_of(fit, model, rows, Kc, lam, E, q, times=1.0):
    gap = (lam[q - 1] - lam[q]) / lam[0] if q < len(lam) else 0.0
    if gap < 1e-4 or fit.case.container in SPARSE:
        return
    Y = numbers(model.transform(rows))[:, :q]
    w = np.ones(len(Kc)) if fit.w is None else fit.w
    V = np.sqrt(w)[:, None] * E[:, :q] / np.sqrt(lam[:q])
    wanted = Kc @ V * times
    few = slice(0, 300)
    size = max(np.abs(wanted).max() ** 2 * q, 1e-300)
    loose = 1e-8 if not fit.single else 2e-3
    yield check("transform", Y[few] @ Y[few].T, wanted[few] @ wanted[few].T, loose / gap * size)


def dual(fit):
    """Judge DualPPCA by the closed form over the span of the points."""
    case = fit.case
    model, rows = inner(fit)
    K = kernel_of(fit)
    Kc = truth.centred_kernel(K, fit.w)
    lam, E = truth.kernel_spectrum(Kc, fit.w)
    n, q = case.n, case.q
    total = n if fit.w is None else fit.w.sum()
    ell = lam / total
    r = float(model.noise_dim_)
    sigma2 = (ell.sum() - ell[:q].sum()) / (r - q)
    largest = (np.abs(K).max() * np.sqrt(n) + lam[0]) / total
    base = 1e-10 if not fit.single else 3e-5
    yield check("eigenvalues_", numbers(model.eigenvalues_), lam[:q], base * largest * total)
    yield check("noise_variance_", model.noise_variance_, sigma2, base * largest)
    if sigma2 < 1e-9 * ell[0]:
        return
    times = np.sqrt(np.maximum(ell[:q] - sigma2, 0)) / ell[:q]
    yield from spread_of(fit, model, rows, Kc, lam, E, q, times)
    logs = np.log(ell[:q]).sum() + (r - q) * np.log(sigma2)
    wanted = -0.5 * total * (r * truth.LOG_2PI + logs + r)
    loose = base * 100 * largest / sigma2 * r * total
    yield check("loglikelihood_", model.loglikelihood_, wanted, loose + abs(wanted) * base)


def probabilistic(fit):
    """Judge ProbabilisticKernelPCA by the closed form of Kc/n."""
    model, _ = inner(fit)
    K = kernel_of(fit)
    n, q = fit.case.n, fit.case.q
    lam, E = truth.kernel_spectrum(truth.centred_kernel(K))
    ell = lam / n
    sigma2 = (ell.sum() - ell[:q].sum()) / (n - q)
    largest = (np.abs(K).max() * np.sqrt(n) + lam[0]) / n
    base = 1e-10 if not fit.single else 3e-5
    yield check("eigenvalues_", numbers(model.eigenvalues_), ell[:q], base * largest)
    yield check("noise_variance_", model.noise_variance_, sigma2, base * largest)
    gap = (ell[q - 1] - ell[q]) / ell[0]
    if gap > 1e-4:
        B = numbers(model.coordinates_)
        wanted = E[:, :q] * np.sqrt(ell[:q] - sigma2)
        loose = (1e-8 if not fit.single else 2e-3) / gap
        yield check("coordinates_", B @ B.T, wanted @ wanted.T, loose * ell[0])


# --- Two views ----------------------------------------------------------------------------


class Views:
    """Two views, cut from one table."""

    def __init__(self, case):
        self.model, self.cut = dualpca.CCA(case.q), case.d // 2

    def fit(self, X, **told):
        first, second = X[:, : self.cut], X[:, self.cut :]
        self.model.fit(first, second, **told)


def canonical(fit):
    """Judge CCA by the singular values of the product of both views' bases."""
    model, cut = fit.model.model, fit.model.cut
    X = fit.X.astype(np.float64)
    wanted = truth.canonical_correlations(X[:, :cut], X[:, cut:], fit.w)
    worst = 1.0
    for Z in (X[:, :cut], X[:, cut:]):
        ell, _ = truth.spectrum(truth.centred(Z, fit.w)[2], fit.w)
        worst = max(worst, ell[0] / max(ell[-1], 1e-300))
    q = numbers(model.correlations_).size
    found = numbers(model.correlations_)
    allowed = (1e-11 if not fit.single else 1e-5) * worst
    yield check("correlations_", found**2, wanted[:q] ** 2, allowed)


# --- Estimators without a closed form of their own: what must not matter -------------------


def same_as_plain(make, answers, within=1e-6):
    """Judge a fit by that to the same numbers in a plain array of float64."""

    def judge(fit):
        plain = make(fit.case)
        X = np.ascontiguousarray(fit.X, dtype=np.float64)
        plain.fit(X)
        for name in answers:
            wanted = numbers(getattr(plain, name)(X))
            found = numbers(getattr(fit.model, name)(fit.rows))
            size = np.max(np.abs(wanted), initial=1e-300)
            yield check(name, found, wanted, size * within * (100 if fit.single else 1))

    return judge


def hierarchy(case):
    return dualpca.HierarchicalPPCA(2, min(case.q, 2), max_depth=1, random_state=0)


def copula(case):
    return dualpca.CopulaPPCA(min(case.q, 2), random_state=0, max_iter=10)


def twin(case):
    return dualpca.TwinKernelPCA(1, max_iter=20, n_init=1, random_state=0)


class KernelViews(Views):
    """Two views of kernels."""

    def __init__(self, case):
        self.model = dualpca.KernelCCA(1, gamma=gamma_of(case), regularization=0.1, n_directions=10)
        self.cut = case.d // 2

    def transform(self, X):
        return np.abs(numbers(self.model.transform(X[:, : self.cut])))


WHOLE = tuple(name for name, kind in dualpca.solvers.SOLVERS.items() if not kind.on_chunks)
SOLVERS = tuple(sorted(dualpca.solvers.SOLVERS))
DOUBLE = (*IN_MEMORY, "list")
GAPS = (*IN_MEMORY, *FRAMES, "torch", "batches", "uneven", "npy", "dask")

SUBJECTS = {
    "PCA": Subject(pca, linear, ("", "", "standardize", *SOLVERS), (*CLOSED, *SPARSE)),
    "PPCA": Subject(ppca, linear, ("", "", "standardize", *SOLVERS), CLOSED),
    "PPCA, em": Subject(
        lambda case: dualpca.PPCA(case.q, method="em", random_state=0, **TIGHT),
        equal_noise,
        containers=GAPS,
        share=0.05,
        columns=(2, 80),
        rows=(12, 10**6),
        most=5,
    ),
    "PPCA, gaps": Subject(
        lambda case: dualpca.PPCA(case.q, random_state=0, **TIGHT),
        equal_noise,
        containers=GAPS,
        missing="always",
        share=0.05,
        columns=(2, 60),
        rows=(30, 10**6),
        most=3,
    ),
    "FactorAnalysis": Subject(
        lambda case: dualpca.FactorAnalysis(case.q, tol=1e-8, max_iter=4000),
        own_noise,
        containers=GAPS,
        missing="maybe",
        share=0.05,
        columns=(2, 60),
        rows=(40, 10**6),
        most=3,
    ),
    "BayesianPCA": Subject(
        lambda case: dualpca.BayesianPCA(case.q, method=case.option, random_state=0),
        by_prior,
        options=("ard", "variational"),
        containers=GAPS,
        missing="maybe",
        share=0.03,
        columns=(2, 60),
        rows=(30, 10**6),
        most=4,
    ),
    "RobustPPCA": Subject(
        lambda case: dualpca.RobustPPCA(case.q, random_state=0),
        heavy,
        missing="maybe",
        share=0.03,
        columns=(2, 40),
        rows=(40, 10**6),
        most=3,
    ),
    "Imputer": Subject(
        lambda case: dualpca.Imputer(case.q, model=case.option, random_state=0),
        imputer,
        options=("ppca", "bayesian"),
        containers=GAPS,
        missing="always",
        weights=False,
        share=0.03,
        columns=(2, 40),
        rows=(40, 10**6),
        most=3,
    ),
    "MixturePPCA": Subject(
        lambda case: dualpca.MixturePPCA(
            2, case.q, standardize=False, random_state=0, tol=1e-9, max_iter=2000
        ),
        mixture,
        containers=GAPS,
        unweighted=CHUNKED,
        missing="maybe",
        share=0.03,
        columns=(2, 40),
        rows=(60, 10**6),
        most=3,
    ),
    "HiddenMarkovPCA": Subject(
        Chain,
        chain,
        containers=(*IN_MEMORY, *FRAMES, "torch"),
        missing="maybe",
        weights=False,
        share=0.02,
        columns=(2, 30),
        rows=(60, 10**5),
        most=2,
    ),
    "KernelPCA": Subject(
        kernelled(dualpca.KernelPCA, random_state=0),
        kernel_pca,
        options=(*KERNEL_OPTIONS, *(f"rbf/{name}" for name in ("dense", "arpack", "randomized"))),
        containers=(*IN_MEMORY, *FRAMES, "torch", "list"),
        pairs=True,
        columns=(2, 300),
        most=12,
    ),
    "DualPPCA": Subject(
        kernelled(dualpca.DualPPCA, random_state=0),
        dual,
        options=KERNEL_OPTIONS,
        containers=(*IN_MEMORY, *FRAMES, "torch", "list"),
        pairs=True,
        columns=(2, 300),
        most=12,
    ),
    "ProbabilisticKernelPCA": Subject(
        kernelled(dualpca.ProbabilisticKernelPCA, random_state=0),
        probabilistic,
        options=KERNEL_OPTIONS,
        containers=(*IN_MEMORY, *FRAMES, "torch", "list"),
        weights=False,
        pairs=True,
        columns=(2, 300),
        most=12,
    ),
    "CCA": Subject(
        Views, canonical, containers=IN_MEMORY, rows=(60, 10**6), columns=(4, 40), most=2
    ),
    "KernelCCA": Subject(
        KernelViews,
        same_as_plain(KernelViews, ["transform"], 1e-5),
        containers=IN_MEMORY,
        weights=False,
        pairs=True,
        rows=(30, 300),
        columns=(4, 30),
        most=2,
        ties=False,  # which of equal directions are the last ones is nobody's to say
    ),
    "HierarchicalPPCA": Subject(
        hierarchy,
        same_as_plain(hierarchy, ["score_samples"], 1e-4),
        weights=False,
        share=0.01,
        rows=(80, 10**5),
        columns=(2, 20),
        most=2,
    ),
    "CopulaPPCA": Subject(
        copula,
        same_as_plain(copula, ["score_samples", "impute"], 1e-4),
        containers=(*IN_MEMORY, "pandas", "polars"),
        missing="maybe",
        weights=False,
        share=0.005,
        rows=(40, 5000),
        columns=(2, 12),
        most=2,
    ),
    "TwinKernelPCA": Subject(
        twin,
        same_as_plain(twin, ["transform"], 1e-3),
        weights=False,
        pairs=True,
        rows=(10, 60),
        columns=(2, 20),
        most=1,
    ),
}
