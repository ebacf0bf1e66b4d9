"""Three ways to fit PPCA: from the spectrum, by EM, and from incomplete rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from dualpca.arrays import Array, algebra, backend
from dualpca.data import ChunkedTable, Columns, Moments, effective_rows, observed_weights
from dualpca.errors import DegenerateError, expected
from dualpca.estimators._base import generator, used_rows, watch_of
from dualpca.estimators._components import (
    CROSS_VALIDATED,
    at_least_one,
    check_request,
    cross_validated,
    is_count,
    leading,
    rows_of,
)
from dualpca.gaussian import Factors, SpikedGaussian, given_noise, maximum_likelihood
from dualpca.models.driver import Record
from dualpca.models.incomplete import LEAST_NOISE, fit_incomplete
from dualpca.models.incomplete_selection import choose_bic, choose_in_parts
from dualpca.models.spiked import NO_NOISE, em_of_operator, ppca_step
from dualpca.models.streaming import Stream
from dualpca.operators import Primal, Scatter, Spectrum


class Fitted(NamedTuple):
    """A fitted model and how it was found; the record ends with the final log-likelihood."""

    mean: Array  # (d,)
    spectrum: Spectrum
    gaussian: SpikedGaussian
    record: Record
    n_rows: int
    n: float  # effective number of rows: their weight, less what is missing
    endless: bool = False  # a stream: nothing to converge to, and no warning that it did not


def fit_closed(model: Any, operator: Primal | Scatter, count: int) -> Fitted:
    """Fit from the spectrum."""
    spectrum = _spectrum(model, operator, count)
    gaussian = _rule(model, spectrum, operator.n)
    gaussian.require_density()
    record = Record([gaussian.loglikelihood(operator.n, spectrum.trace)], 1, True)
    return Fitted(
        operator.frame.mean, spectrum.head(gaussian.rank), gaussian, record, count, operator.n
    )


def _rule(model: Any, spectrum: Spectrum, n: float) -> SpikedGaussian:
    if model.noise_variance is None:
        return maximum_likelihood(spectrum, n, spectrum.rank)
    asked = None if model.n_components is None else spectrum.rank
    return given_noise(spectrum, n, float(model.noise_variance), asked)


def _spectrum(model: Any, operator: Primal | Scatter, count: int) -> Spectrum:
    """Return the leading eigenpairs: all that can matter, where σ² decides how many do."""
    request: Any = model.n_components
    if request is None and model.noise_variance is None:
        request = "evidence"
    check_request(request, count, operator.dim, model.solver)
    if request in CROSS_VALIDATED:
        request = chosen(model, *rows_of(operator), min(count, operator.dim))
    if request is None:  # at most tr/(nσ²) variances can exceed σ²
        bound = operator.trace / (operator.n * float(model.noise_variance))
        request = int(min(count, operator.dim, max(bound, 1.0)))
    seed = 0 if model.random_state is None else generator(model.random_state)
    return leading(request, operator, count, solver=model.solver, tol=0.0, seed=seed)


def chosen(model: Any, X: Array | ChunkedTable, weights: Array | None, most: int) -> int:
    """Return q by cross-validation; the curve behind it becomes `selection_`."""
    model.selection_ = cross_validated(model.n_components, X, weights, most)
    return at_least_one(model.n_components, model.selection_.chosen)


def fit_em(model: Any, operator: Primal | Scatter, count: int) -> Fitted:
    """Fit by EM on the operator."""
    check_request(model.n_components, count, operator.dim, model.solver)
    n = operator.n
    if is_count(model.n_components):
        q = at_least_one_factor(model)
    else:
        q = _rule(model, _spectrum(model, operator, count), n).rank
    noise, rng = model.noise_variance, start_of(model)
    limits = (model.tol, model.max_iter)
    W, sigma2, record = em_of_operator(operator, q, n, rng, noise, *limits, watch=watch_of(model))
    record.add(ppca_step(operator, W, sigma2, n)[2])
    vanished = noise is None and sigma2 <= 10 * NO_NOISE * operator.trace / n / operator.dim
    spectrum, gaussian = _principal_axes(W, sigma2, operator.trace / n, vanished)
    return Fitted(operator.frame.mean, spectrum, gaussian, record, count, n)


def fit_incomplete_rows(model: Any, X: Array, weights: Array | None) -> Fitted:
    """Fit rows with NaN by the likelihood of what was observed."""
    w, noise = observed_weights(X, weights), model.noise_variance
    limits = {"tol": model.tol, "max_iter": model.max_iter, "n_init": model.n_init}
    watch = watch_of(model)
    q = _count_with_holes(model, X, w)
    factors, record = fit_incomplete(X, w, q, start_of(model), noise=noise, watch=watch, **limits)
    return Fitted(
        factors.mu, *_reading(model, factors), record, used_rows(X, w), effective_rows(X, w)
    )


def fit_incomplete_parts(model: Any, parts: ChunkedTable, columns: Columns) -> Fitted:
    """Fit a table in parts with NaN: every step of EM is a pass over the parts."""
    q, noise = _count_in_parts(model, parts, columns), model.noise_variance
    limits = {"tol": model.tol, "max_iter": model.max_iter, "n_init": model.n_init}
    watch = watch_of(model)
    factors, record = fit_incomplete(
        parts, None, q, start_of(model), noise=noise, watch=watch, **limits
    )
    n = float(columns.n.mean())
    return Fitted(factors.mu, *_reading(model, factors), record, columns.used, n)


def _reading(model: Any, factors: Factors) -> tuple[Spectrum, SpikedGaussian]:
    """Return factors of equal noise on their principal axes."""
    d, sigma2 = int(factors.W.shape[0]), float(factors.psi[0])
    total = float(backend.namespace(factors.W).sum(factors.W * factors.W)) + d * sigma2
    if model.noise_variance is None and sigma2 <= 10 * LEAST_NOISE * total / d:
        raise DegenerateError(
            f"the noise of {factors.W.shape[1]} components fell below {10 * LEAST_NOISE:g} of the "
            "average variance: where values are missing, that cannot be told from no noise at all. "
            "Use fewer components, or give noise_variance."
        )
    return _principal_axes(factors.W, sigma2, total, vanished=False)


def open_stream(model: Any, state: Moments | Stream | None) -> Stream:
    """Return the stream that takes incomplete chunks, with the moments of complete ones in it."""
    if not is_count(model.n_components):
        what = "an int where partial_fit meets missing values: rows are not kept for a rule"
        raise ValueError(expected("n_components", what, model.n_components))
    q = at_least_one_factor(model)
    if isinstance(state, Stream):
        if q != state.q:
            what = f"{state.q}, as when the stream began"
            remedy = "Give all chunks to a new model."
            raise ValueError(expected("n_components", what, q, remedy))
        return state
    return Stream(q, model.noise_variance, model.tol, model.max_iter, state)


def fit_stream(model: Any, stream: Stream, count: int) -> Fitted:
    """Read the model off a stream; rows that still wait are counted in, the stream is as before."""
    if stream.running is None and stream.rows is None and stream.moments is not None:
        return fit_closed(model, Scatter(stream.moments), count)
    check_request(model.n_components, count, model.n_features_in_, model.solver)
    factors, record = stream.settle(start_of(model)).model()
    return Fitted(factors.mu, *_reading(model, factors), record, count, float(count), endless=True)


def _count_with_holes(model: Any, X: Array, weights: Array | None) -> int:
    """Return q: given, by BIC, or the one that best predicts what was hidden."""
    n, d = int(X.shape[0]), int(X.shape[1])
    if model.n_components in CROSS_VALIDATED:
        return chosen(model, X, weights, min(n, d) - 1)
    return _given_or_bic(model, X, weights, n, d)


def _count_in_parts(model: Any, parts: ChunkedTable, columns: Columns) -> int:
    """Return q as `_count_with_holes` does, with the rows in parts."""
    most = min(columns.rows, parts.d) - 1
    if model.n_components in CROSS_VALIDATED:
        model.selection_ = choose_in_parts(model.n_components, parts, most, holes=True)
        return at_least_one(model.n_components, model.selection_.chosen)
    return _given_or_bic(model, parts, None, columns.rows, parts.d)


def _given_or_bic(
    model: Any, X: Array | ChunkedTable, weights: Array | None, n: int, d: int
) -> int:
    if is_count(model.n_components):
        check_request(model.n_components, n, d, model.solver)
        return at_least_one_factor(model)
    if model.n_components == "bic":
        return at_least_one("bic", choose_bic(X, weights, min(n, d) - 1))
    what = f"an int, 'bic' or one of {list(CROSS_VALIDATED)} where values are missing"
    remedy = "Other rules read the spectrum of complete rows."
    raise ValueError(expected("n_components", what, model.n_components, remedy))


def at_least_one_factor(model: Any) -> int:
    """Return q, which EM cannot do without."""
    if model.n_components < 1:
        what = "at least 1 with method='em' or missing values"
        raise ValueError(expected("n_components", what, model.n_components))
    return int(model.n_components)


def start_of(model: Any) -> Any:
    """Return the generator that starts EM; None is a fixed seed."""
    return generator(0 if model.random_state is None else model.random_state)


def _principal_axes(
    W: Array, sigma2: float, total: float, vanished: bool
) -> tuple[Spectrum, SpikedGaussian]:
    """Rotate loadings to principal axes; a noise that vanished is 0, and no density is left."""
    d = int(W.shape[0])
    U, s, _ = algebra.svd(W)
    gaussian = SpikedGaussian(s**2 + sigma2, 0.0 if vanished else sigma2, d)
    gaussian.require_density()
    return Spectrum.of(gaussian.values, U, total, d), gaussian
