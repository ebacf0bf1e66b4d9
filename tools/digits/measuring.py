"""dualpca beside the references: errors in units of the condition number times 2⁻⁵²."""

import json
import warnings
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np

import dualpca
from dualpca.data.moments import Moments
from dualpca.gaussian.truncated import truncated_moments
from tools.digits import problems

EPS = 2.0**-52


@dataclass(frozen=True)
class Row:
    """One comparison: the error in units, and the condition number that the unit counts."""

    family: str
    what: str
    point: str
    condition: float
    error: float


def difference(found, wanted, unit=1.0):
    """Return the largest |found − wanted| / unit, of numbers or nested lists of texts."""
    found = np.asarray(found, dtype=float)
    flat = np.asarray(wanted, dtype=object).ravel().tolist()
    assert found.size == len(flat), f"{found.shape} beside {len(flat)} numbers"
    with localcontext() as context:
        context.prec = 60
        pairs = zip(found.ravel().tolist(), flat, strict=True)
        gaps = np.array([float(abs(Decimal(a) - Decimal(b))) for a, b in pairs])
    return float(np.max(gaps / np.broadcast_to(unit, gaps.shape)))


def row(family, what, point, found, wanted, condition, unit):
    """Return a row; `unit` is what one rounding of the inputs may do, to each number or to all."""
    error = difference(found, wanted, EPS * np.asarray(unit))
    return Row(family, what, point, float(condition), error)


def sizes(texts):
    """Return the sizes of numbers in nested lists of texts, flat."""
    return np.abs(np.asarray(texts, dtype=float)).ravel()


# --- NIST ----------------------------------------------------------------------------------


def univariate():
    """Yield means and standard deviations beside certified values."""
    for name, known in problems.nist()["univariate"].items():
        data = known.get("data")
        if data is None:
            data = problems.digits_of_pi() if name == "PiDigits" else problems.numacc(int(name[-1]))
        X = np.array(data)[:, None]
        model = dualpca.PCA(1).fit(X)
        mean, deviation = float(known["mean"]), float(known["deviation"])
        printed = 0.5 * 10.0 ** Decimal(known["mean"]).as_tuple().exponent / EPS
        exact = name.startswith(("NumAcc", "Pi"))
        unit = max(abs(mean), 0 if exact else printed)
        yield row("NIST, univariate", "mean", name, model.mean_, [known["mean"]], 1, unit)
        # numbers of 15 digits: the last one of the certified value counts too
        condition = np.hypot(1, mean / deviation)
        printed = 0.5 * 10.0 ** Decimal(known["deviation"]).as_tuple().exponent / EPS
        unit = max(condition * deviation, 0 if name.startswith("NumAcc") else printed)
        found = np.sqrt(model.explained_variance_)
        told = [known["deviation"]]
        yield row("NIST, univariate", "standard deviation", name, found, told, condition, unit)


def anova():
    """Yield sums of squares of groups, added up by the moments of each, beside certified values."""
    for name, known in problems.nist()["anova"].items():
        data = known.get("data")
        T = problems.small_steps(int(name[-2:])) if data is None else np.array(data)
        groups = [Moments.of(np.ascontiguousarray(T[:, [k]])) for k in range(T.shape[1])]
        whole = groups[0]
        for group in groups[1:]:
            whole = whole.merge(group)
        within = sum(float(group.scatter[0, 0]) for group in groups)
        between = float(whole.scatter[0, 0]) - within
        total = float(known["between"]) + float(known["within"])
        condition = np.sqrt(1 + whole.n * float(whole.mean[0]) ** 2 / total)
        for what, value in (("within", within), ("between", between)):
            told, certified = known[what], float(known[what])
            printed = 0.5 * 10.0 ** Decimal(told).as_tuple().exponent / EPS
            unit = max(condition * (certified if what == "within" else total), printed)
            yield row("NIST, ANOVA", f"squares {what}", name, value, [told], condition, unit)


# --- Closed forms ----------------------------------------------------------------------------


def linear(known):
    """Yield PCA and PPCA at every hard point."""
    q, d = problems.Q, problems.D
    for point, told in known.items():
        X = problems.table(point)
        n = len(X)
        ell = np.array(told["ell"], dtype=float)
        sigma2, largest = float(told["sigma2"]), float(told["largest"])
        deviation = np.abs(X - X.mean(axis=0)).max()
        for cls in (dualpca.PCA, dualpca.PPCA):
            if n == q + 1 and cls is dualpca.PPCA:
                continue
            model, name = cls(q).fit(X), cls.__name__
            times = n / (n - 1) if cls is dualpca.PCA else 1.0
            wanted = [_times(value, n, cls) for value in told["ell"][:q]]
            scale = times * ell[0]
            yield row(name, "mean", point, model.mean_, told["mean"], 1, largest)
            found = model.explained_variance_
            yield row(name, "variances", point, found, wanted, ell[0] / ell[q - 1], scale)
            if n == q + 1:
                continue
            noise, wide = model.noise_variance_, ell[0] / sigma2
            yield row(name, "noise", point, noise, [_times(told["sigma2"], n, cls)], wide, scale)
            which = "density, n - 1" if cls is dualpca.PCA else "density, n"
            apart = ell[0] / (ell[q - 1] - ell[q])
            condition = wide + apart + largest / np.sqrt(sigma2)
            unit = condition * (sizes(told[which]) + d)
            scores = model.score_samples(X)
            yield row(name, "log-density", point, scores, told[which], condition, unit)
            which = "projection" if cls is dualpca.PCA else "signal"
            unit = apart * deviation + largest
            again = model.reconstruct(X)
            yield row(name, "reconstruction", point, again, told[which], apart, unit)


def _times(text, n, cls):
    """Return n/(n − 1) times a number for PCA, as text."""
    if cls is not dualpca.PCA:
        return text
    with localcontext() as context:
        context.prec = 40
        return str(Decimal(text) * n / (n - 1))


def canonical(known):
    for point, told in known.items():
        X = problems.table(point)
        model = dualpca.CCA(2).fit(X[:, :2], X[:, 2:])
        condition = float(told["condition"])
        squares = np.square(model.correlations_)
        yield row(
            "CCA", "squared correlations", point, squares, told["squares"], condition, condition
        )


def kernels(known):
    """Yield the three models of a kernel at every hard point."""
    q = problems.Q
    for point, told in known.items():
        X, gamma = problems.kernel_table(point), problems.KERNEL_POINTS[point]
        n, lam, sigma2 = len(X), np.array(told["lam"], dtype=float), float(told["sigma2"])
        given = {"kernel": "rbf", "gamma": gamma}
        model = dualpca.KernelPCA(q, **given).fit(X)
        values = model.eigenvalues_
        yield row("KernelPCA", "eigenvalues", point, values, told["lam"][:q], n / lam[q - 1], n)
        apart = n / max(lam[q - 1] - lam[q], lam[q - 1] * 1e-15)
        Y = model.transform(X)
        products, unit = told["products"], apart * lam[0]
        yield row("KernelPCA", "products of scores", point, Y[:3] @ Y.T, products, apart, unit)
        if "dual" not in told:
            continue
        wide = 1 / sigma2
        model = dualpca.DualPPCA(q, **given).fit(X)
        yield row("DualPPCA", "noise", point, model.noise_variance_, [told["sigma2"]], wide, 1)
        unit = abs(float(told["dual"])) + n * (n - q) / 2 * wide
        found = model.loglikelihood_
        yield row("DualPPCA", "log-likelihood", point, found, [told["dual"]], wide, unit)
        model = dualpca.ProbabilisticKernelPCA(q, **given).fit(X)
        name = "ProbabilisticKernelPCA"
        yield row(name, "noise", point, model.noise_variance_, [told["sigma2"]], wide, 1)
        unit = abs(float(told["probabilistic"])) + (n - q) / 2 * wide
        found = model.loglikelihood_
        yield row(name, "log-likelihood", point, found, [told["probabilistic"]], wide, unit)
        B = model.coordinates_
        coordinates, unit = told["coordinates"], apart * lam[0] / n
        yield row(name, "products of points", point, B[:3] @ B.T, coordinates, apart, unit)


# --- Models that are kept -----------------------------------------------------------------------


def kept(name, known):
    """Yield what a kept model says of rows with gaps, one far out and one with nothing known."""
    family = name if name in ("HiddenMarkovPCA", "MixturePPCA") else f"{name}, rows with gaps"
    for point, told in known.items():
        path = problems.HOME / "models" / f"{name}-{problems.KEPT_POINTS.index(point)}.dpca"
        model, X = dualpca.load(path), problems.asked(point)
        largest = float(np.nanmax(np.abs(X)))
        condition = float(told["condition"])
        if "density" in told:
            unit = condition * (sizes(told["density"]) + X.shape[1])
            found = model.score_samples(X)
            yield row(family, "log-density", point, found, told["density"], condition, unit)
        if "loglikelihood" in told:
            unit = condition * (abs(float(told["loglikelihood"])) + X.size)
            found = model.score_sequences(X)
            yield row(
                name, "log-likelihood", point, found, [told["loglikelihood"]], condition, unit
            )
        if "gaps" in told:
            gone = np.where(np.isnan(X), 0.0, X - np.asarray(model.mean_))
            reach = np.repeat(np.abs(gone).max(axis=1), X.shape[1])
            unit = condition * reach + largest
            yield row(
                family, "values in gaps", point, model.impute(X), told["gaps"], condition, unit
            )
            unit = condition * (1 + sizes(told["latents"]))
            found = model.transform(X)
            yield row(family, "latents", point, found, told["latents"], condition, unit)
        if "weights" in told:
            found = model.weigh(X)
            yield row(
                family, "weights of rows", point, found, told["weights"], condition, condition
            )
        if "probabilities" in told:
            P = np.array(told["probabilities"], dtype=float)
            density = sizes(told["density"]) + X.shape[1]
            unit = condition * (P * density[:, None]).ravel() + 1e-300
            found = model.predict_proba(X)
            yield row(family, "probabilities", point, found, told["probabilities"], condition, unit)


def truncated(known):
    """Yield the moments of truncated normals."""
    for (low, high), (log_mass, mean, variance) in zip(problems.BOUNDS, known, strict=True):
        point = f"{low:.12g} to {high:.12g}"
        found = truncated_moments(np.array([low]), np.array([high]))
        ends = max(abs(v) for v in (low, high) if np.isfinite(v))
        condition = 1 + ends**2 + (ends / (high - low) if np.isfinite(high - low) else 0)
        unit = max(abs(float(log_mass)), condition)
        family = "Truncated normals (CopulaPPCA)"
        yield row(family, "log-mass", point, found.log_mass, [log_mass], condition, unit)
        spread = np.sqrt(float(variance))
        unit = condition * spread + abs(float(mean))
        yield row(family, "mean", point, found.mean, [mean], condition, unit)
        unit = condition * float(variance)
        yield row(family, "variance", point, found.variance, [variance], condition, unit)


def measured():
    """Return all rows."""
    known = json.loads((problems.HOME / "references.json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [*univariate(), *anova(), *linear(known["linear"])]
        found += canonical(known["correlations"])
        found += kernels(known["kernels"])
        for name, told in known["kept"].items():
            found += kept(name, told)
        return [*found, *truncated(known["truncated"])]
