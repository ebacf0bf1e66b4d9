"""References with 50 digits, by mpmath: dense, from the definition, one row after the other.

Each function takes float64 numbers as they are; 25 digits of what it returns are kept, as text.
What a model of rows with gaps answers is computed from the parameters that it publishes: so the
models are kept too.
"""

import json
import warnings

import mpmath
import numpy as np
from mpmath import mp, mpf

import dualpca
from dualpca.errors import DegenerateError
from tools.digits import problems

mp.dps = 50
MODELS = problems.HOME / "models"
REFERENCES = problems.HOME / "references.json"


def exact(A):
    """Return an array of float64 as lists of exact numbers."""
    if isinstance(A, np.ndarray):
        return [exact(row) for row in A] if A.ndim else mpf(float(A))
    return mpf(float(A))


def matrix(A):
    return mpmath.matrix(A)


def moments(X):
    """Return mean and covariance, divisor n."""
    n, d = len(X), len(X[0])
    mean = [sum(row[j] for row in X) / n for j in range(d)]
    C = [[row[j] - mean[j] for j in range(d)] for row in X]
    S = [[sum(row[i] * row[j] for row in C) / n for j in range(d)] for i in range(d)]
    return mean, S, C


def eigen(S):
    """Return eigenvalues, largest first, and vectors as rows."""
    values, vectors = mpmath.eigsy(matrix(S))
    order = sorted(range(len(values)), key=lambda k: -values[k])
    rows = [[vectors[i, k] for i in range(len(values))] for k in order]
    return [values[k] for k in order], rows


def cholesky(C):
    return mpmath.cholesky(matrix(C))


def gaussian(x, mean, C):
    """Return the log-density and (x − mean)ᵀC⁻¹(x − mean), ln|C|."""
    d = len(x)
    if not d:
        return mpf(0), mpf(0), mpf(0)
    L = cholesky(C)
    z = mpmath.lu_solve(L, matrix([a - b for a, b in zip(x, mean, strict=True)]))
    far = sum(z[i] ** 2 for i in range(d))
    logdet = 2 * sum(mpmath.log(L[i, i]) for i in range(d))
    return -(d * mpmath.log(2 * mp.pi) + logdet + far) / 2, far, logdet


def block(C, a, b):
    return [[C[i][j] for j in b] for i in a]


def seen(x):
    return [j for j, value in enumerate(x) if not mpmath.isnan(value)]


def observed(x, mean, C):
    """Return what `gaussian` does of the entries that are known."""
    o = seen(x)
    return gaussian([x[j] for j in o], [mean[j] for j in o], block(C, o, o))


def filled(x, mean, C):
    """Return the row with E[x_m | x_o] in its gaps."""
    o = seen(x)
    m = [j for j in range(len(x)) if j not in o]
    out = list(x)
    for j in m:
        out[j] = mean[j]
    if m and o:
        step = mpmath.lu_solve(matrix(block(C, o, o)), matrix([x[j] - mean[j] for j in o]))
        for j in m:
            out[j] += sum(C[j][k] * step[i] for i, k in enumerate(o))
    return out


def covariance(W, psi):
    d, q = len(W), len(W[0])
    return [
        [sum(W[i][k] * W[j][k] for k in range(q)) + (psi[i] if i == j else 0) for j in range(d)]
        for i in range(d)
    ]


def latent(x, mean, W, psi):
    """Return E[z | x_o] of x = W z + mean + noise."""
    o, q = seen(x), len(W[0])
    M = [
        [sum(W[j][a] * W[j][b] / psi[j] for j in o) + (1 if a == b else 0) for b in range(q)]
        for a in range(q)
    ]
    right = [sum(W[j][a] * (x[j] - mean[j]) / psi[j] for j in o) for a in range(q)]
    z = mpmath.lu_solve(matrix(M), matrix(right))
    return [z[k] for k in range(q)]


# --- Closed forms --------------------------------------------------------------------------


def spread(point):
    """Return the largest |x| and the numbers that all conditions are made of."""
    X = exact(problems.table(point))
    mean, S, C = moments(X)
    ell, V = eigen(S)
    return X, mean, S, C, ell, V


def linear(point, q=problems.Q):
    """Return what PCA and PPCA of a table are."""
    X, mean, _, C, ell, V = spread(point)
    n, d = len(X), len(mean)
    sigma2 = sum(ell[q:]) / (d - q)
    found = {
        "mean": mean,
        "ell": ell,
        "sigma2": sigma2,
        "largest": max(abs(x) for r in X for x in r),
    }
    Y = [[sum(c[j] * V[k][j] for j in range(d)) for k in range(q)] for c in C]
    flat = [[mean[j] + sum(y[k] * V[k][j] for k in range(q)) for j in range(d)] for y in Y]
    found["projection"] = flat
    if n <= q + 1:
        return found

    def density(times):
        logs = sum(mpmath.log(times * ell[k]) for k in range(q)) + (d - q) * mpmath.log(
            times * sigma2
        )
        out = []
        for c, y in zip(C, Y, strict=True):
            rest = sum(v * v for v in c) - sum(v * v for v in y)
            far = sum(y[k] ** 2 / (times * ell[k]) for k in range(q)) + rest / (times * sigma2)
            out.append(-(d * mpmath.log(2 * mp.pi) + logs + far) / 2)
        return out

    found["density, n"] = density(mpf(1))
    found["density, n - 1"] = density(mpf(n) / (n - 1))
    shrunk = [1 - sigma2 / ell[k] for k in range(q)]
    found["signal"] = [
        [mean[j] + sum(shrunk[k] * y[k] * V[k][j] for k in range(q)) for j in range(d)] for y in Y
    ]
    return found


def correlations(point):
    """Return the canonical correlations of the first and the last two columns, and a condition."""
    _, _, S, _, _ell, _ = spread(point)
    a, b = [0, 1], [2, 3]
    Sxx, Sxy, Syy = (matrix(block(S, *which)) for which in ((a, a), (a, b), (b, b)))
    Lx, Ly = mpmath.cholesky(Sxx), mpmath.cholesky(Syy)
    A = mpmath.inverse(Lx) * Sxy * mpmath.inverse(Ly).T
    values, _ = mpmath.eigsy(A * A.T)
    worst = max(eigen(block(S, w, w))[0][0] / eigen(block(S, w, w))[0][1] for w in (a, b))
    return {"squares": sorted(values, reverse=True), "condition": worst}


GAMMA = 0.5


def kernel(X, gamma):
    """Return the centred RBF kernel, (n, n)."""
    n = len(X)
    K = [
        [mpmath.exp(-gamma * sum((a - b) ** 2 for a, b in zip(x, y, strict=True))) for y in X]
        for x in X
    ]
    mean = [sum(row) / n for row in K]
    whole = sum(mean) / n
    return [[K[i][j] - mean[i] - mean[j] + whole for j in range(n)] for i in range(n)]


def kernels(point, gamma, q=problems.Q):
    """Return what KernelPCA, DualPPCA and ProbabilisticKernelPCA of a table are."""
    X = exact(problems.kernel_table(point))
    n = len(X)
    Kc = kernel(X, mpf(gamma))
    lam, E = eigen(Kc)
    sigma2 = sum(lam[q:]) / (n * (n - q))
    found = {"lam": lam, "sigma2": sigma2}
    Y = [[E[k][i] * mpmath.sqrt(lam[k]) for k in range(q)] for i in range(n)]
    found["products"] = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in Y] for x in Y[:3]]
    if sigma2 <= mpf(10) ** -40 or n <= q + 1:
        return found
    ell = [value / n for value in lam[:q]]
    logs = sum(mpmath.log(e) for e in ell) + (n - q) * mpmath.log(sigma2)
    found["dual"] = -n * (n * mpmath.log(2 * mp.pi) + logs + n) / 2
    found["probabilistic"] = -(logs + n) / 2
    B = [[E[k][i] * mpmath.sqrt(ell[k] - sigma2) for k in range(q)] for i in range(n)]
    found["coordinates"] = [
        [sum(a * b for a, b in zip(x, y, strict=True)) for y in B] for x in B[:3]
    ]
    return found


# --- Models that are kept, asked by their published parameters --------------------------------


def published(model):
    W = exact(np.asarray(model.loadings_))
    noise = np.asarray(model.noise_variance_, dtype=float)
    psi = exact(noise if noise.ndim else np.full(len(W), float(noise)))
    return exact(np.asarray(model.mean_)), W, psi


def posterior(model, X):
    """Return log-densities, gaps, latent means and the condition of a Gaussian with gaps."""
    mean, W, psi = published(model)
    C = covariance(W, psi)
    return {
        "density": [observed(x, mean, C)[0] for x in X],
        "gaps": [filled(x, mean, C) for x in X],
        "latents": [latent(x, mean, W, psi) for x in X],
        "condition": condition(C, scaled=len(set(psi)) > 1),
    }


def condition(C, *, scaled=True):
    """Return the condition number of a covariance, its columns in units of their own."""
    d = range(len(C))
    if not scaled:
        values = eigen(C)[0]
        return values[0] / values[-1]
    scale = [mpmath.sqrt(C[j][j]) for j in d]
    values = eigen([[C[i][j] / scale[i] / scale[j] for j in d] for i in d])[0]
    return values[0] / values[-1]


def student(model, X):
    """Return log-densities and weights of a multivariate t."""
    mean, _W, _psi = published(model)
    nu = mpf(float(model.degrees_of_freedom_))
    # the published loadings and noise are those of the covariance, ν/(ν − 2) times the scale
    C = exact(np.asarray(model.get_covariance()))
    S = [[c * (nu - 2) / nu for c in row] for row in C]
    density, weights = [], []
    for x in X:
        _, far, logdet = observed(x, mean, S)
        k = len(seen(x))
        value = mpmath.loggamma((nu + k) / 2) - mpmath.loggamma(nu / 2)
        value -= k * mpmath.log(nu * mp.pi) / 2 + logdet / 2
        density.append(value - (nu + k) / 2 * mpmath.log1p(far / nu))
        weights.append((nu + k) / (nu + far))
    return {"density": density, "weights": weights, "condition": condition(S)}


def mixture(model, X):
    """Return log-densities and probabilities of the components."""
    shares = exact(np.asarray(model.weights_))
    means, covariances = exact(np.asarray(model.means_)), exact(np.asarray(model.covariances_))
    density, shown = [], []
    for x in X:
        parts = [
            mpmath.log(s) + observed(x, m, C)[0]
            for s, m, C in zip(shares, means, covariances, strict=True)
        ]
        top = max(parts)
        total = top + mpmath.log(sum(mpmath.exp(part - top) for part in parts))
        density.append(total)
        shown.append([mpmath.exp(part - total) for part in parts])
    worst = max(condition(C) for C in covariances)
    return {"density": density, "probabilities": shown, "condition": worst}


def chain(model, X):
    """Return the log-likelihood of one sequence by the forward pass, without logarithms."""
    start = exact(np.asarray(model.start_probabilities_))
    A = exact(np.asarray(model.transitions_))
    means = exact(np.asarray(model.means_)[:, 0])
    covariances = exact(np.asarray(model.covariances_)[:, 0])
    states = range(len(start))
    alpha, total = None, mpf(0)
    for x in X:
        b = [mpmath.exp(observed(x, means[s], covariances[s])[0]) for s in states]
        if alpha is None:
            alpha = [start[s] * b[s] for s in states]
        else:
            alpha = [sum(alpha[r] * A[r][s] for r in states) * b[s] for s in states]
        size = sum(alpha)
        total += mpmath.log(size)
        alpha = [a / size for a in alpha]
    return {"loglikelihood": total, "condition": max(condition(C) for C in covariances)}


OF = {
    "PPCA": posterior,
    "FactorAnalysis": posterior,
    "BayesianPCA": posterior,
    "RobustPPCA": student,
    "MixturePPCA": mixture,
    "HiddenMarkovPCA": chain,
}


def kept(name, point):
    """Return a model fitted to the rows with gaps of a hard point."""
    X = problems.gaps(point)
    more = {"random_state": 0}
    make = {
        "PPCA": lambda: dualpca.PPCA(2, **more),
        "FactorAnalysis": lambda: dualpca.FactorAnalysis(1),
        "BayesianPCA": lambda: dualpca.BayesianPCA(2, method="variational", **more),
        "RobustPPCA": lambda: dualpca.RobustPPCA(2, degrees_of_freedom=5.0, **more),
        "MixturePPCA": lambda: dualpca.MixturePPCA(2, 1, standardize=False, **more),
        "HiddenMarkovPCA": lambda: dualpca.HiddenMarkovPCA(2, 1, standardize=False, **more),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make[name]().fit(X)


# --- The truncated normal of the copula ------------------------------------------------------


def truncated(low, high):
    """Return ln P(low < x ≤ high), mean and variance of x ~ N(0, 1) given that."""
    with mpmath.workdps(120):
        a, b = mpf(low), mpf(high)
        tail = lambda t: mpmath.erfc(t / mpmath.sqrt(2)) / 2  # noqa: E731
        phi = lambda t: mpmath.npdf(t) if mpmath.isfinite(t) else mpf(0)  # noqa: E731
        mass = tail(a) - tail(b) if a > 0 else tail(-b) - tail(-a)
        first = (phi(a) - phi(b)) / mass
        ends = [t * phi(t) if mpmath.isfinite(t) else mpf(0) for t in (a, b)]
        variance = 1 + (ends[0] - ends[1]) / mass - first**2
        return [mpmath.log(mass), first, variance]


def main():
    """Compute all references and keep them."""
    found = {"linear": {}, "correlations": {}, "kernels": {}, "kept": {}, "truncated": []}
    for point in problems.POINTS:
        found["linear"][point] = linear(point)
        if not point.startswith("n = q"):
            found["correlations"][point] = correlations(point)
    for point, gamma in problems.KERNEL_POINTS.items():
        found["kernels"][point] = kernels(point, gamma)
    MODELS.mkdir(exist_ok=True)
    for name, of in OF.items():
        found["kept"][name] = {}
        for point in problems.KEPT_POINTS:
            path = MODELS / f"{name}-{problems.KEPT_POINTS.index(point)}.dpca"
            try:
                model = kept(name, point)
            except DegenerateError:  # heavy tails there leave no noise
                continue
            model.save(path)
            model = dualpca.load(path)
            found["kept"][name][point] = of(model, exact(problems.asked(point)))
    for low, high in problems.BOUNDS:
        found["truncated"].append(truncated(low, high))
    REFERENCES.write_text(json.dumps(texts(found), indent=0) + "\n")


def texts(value):
    if isinstance(value, dict):
        return {key: texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [texts(item) for item in value]
    return mpmath.nstr(value, 25)


if __name__ == "__main__":
    main()
