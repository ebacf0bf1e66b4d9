"""Ways to fit kernel PCA: exactly over the points, or through a finite feature map."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend, note, shown
from dualpca.errors import SpectrumWarning, expected
from dualpca.estimators._kernel_inputs import kernel_of
from dualpca.estimators._kernel_results import (
    Approximation,
    KernelFit,
    Novelty,
    keep,
    rank_of,
    refuse_overflow,
)
from dualpca.estimators._mapped_fits import from_mapped, with_novelty
from dualpca.estimators._uncertain import (
    as_uncertain,
    input_model,
    uncertain_dual,
    uncertain_subspace,
)
from dualpca.kernels import Function, Kernel, Precomputed
from dualpca.operators import (
    Dual,
    Fused,
    Given,
    Gram,
    Landmarks,
    Spectrum,
    leave_out_negatives,
    make_gram,
    map_rows,
    pivoted_cholesky,
    stored_bytes,
    warn_of_cancellation,
)
from dualpca.solvers import SOLVERS, Krylov, Solver, choose, tell

LOOSE = 1e-2
"""The smallest `tol` at which 'auto' may leave a part of the trace out."""


SINGLE_TOL = 1e-6
"""The smallest `tol` at which float32 kernel values are taken without being asked for."""


def fit_exact(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> KernelFit:
    """Fit from eigenpairs of the centred kernel over all points."""
    operator = Dual(gram_of(model, X, kernel), None, weights, center=model.center)
    refuse_overflow(operator.total)
    spectrum, name = solved(model, operator, kernel)
    if model.dtype is None and too_coarse(operator, spectrum, float(model.tol)):
        gram = gram_of(model, X, kernel, double=True)
        operator = Dual(gram, None, weights, center=model.center)
        spectrum, name = solved(model, operator, kernel)
    warn_of_cancellation(X, operator.total, operator.trace)
    error = Approximation(0.0, spectrum.error)
    residual = operator.off_span(spectrum)
    subspace, novelty = operator.subspace(spectrum), Novelty(residual, operator.weights)
    return KernelFit(subspace, spectrum, operator.n, error, name, residual, novelty)


def too_coarse(operator: Dual, spectrum: Spectrum, tol: float) -> bool:
    """Tell whether float32 kernel values leave a larger error of the eigenvalues than `tol`."""
    if not operator.single or spectrum.rank == 0 or spectrum.error > tol:
        return operator.single and spectrum.rank > 0
    largest = float(backend.to_numpy(operator.gram.diag()).max())
    return bool(np.finfo(np.float32).eps * largest > tol * float(spectrum.values[-1]))


def fit_incomplete(model: Any, X: Array, weights: Array | None) -> tuple[KernelFit, Kernel]:
    """Fit rows with NaN: inner products are expectations under a PPCA of the inputs."""
    if model._solver_name in ("nystrom", "cholesky", "fourier"):
        what = "an exact solver ('auto', 'dense', 'krylov') for rows with NaN"
        raise ValueError(expected("eigen_solver", what, model.eigen_solver))
    model.input_model_ = input_model(X, weights)
    rows = as_uncertain(model.input_model_, X)
    kernel = kernel_of(model, rows.mean)
    operator = uncertain_dual(rows, kernel, weights, model.center)
    spectrum, name = solved(model, operator, kernel)
    subspace = uncertain_subspace(operator, spectrum, rows, kernel)
    error = Approximation(0.0, spectrum.error)
    residual = operator.off_span(spectrum)
    novelty = Novelty(residual, operator.weights)
    return KernelFit(subspace, spectrum, operator.n, error, name, residual, novelty), kernel


def solved(model: Any, operator: Dual, kernel: Kernel) -> tuple[Spectrum, str]:
    """Return the eigenpairs asked for, and the solver that found them."""
    rank = rank_of(model, operator.shape[0])
    name = model._solver_name
    if name == "auto" or (name == "krylov" and np.isinf(Krylov.cost(operator, rank))):
        name = choose(operator, rank)  # a block that fills the space gains nothing on 'dense'
    rng = np.random.default_rng(model._seed)
    if not kernel.definite:
        leave_out_negatives(operator, rng)
    with warnings.catch_warnings():
        if not (kernel.definite and isinstance(kernel, Precomputed | Function)):
            # said already, with how much there is; or no more than rounding error
            warnings.simplefilter("ignore", SpectrumWarning)
        tell(name, operator, rank)
        spectrum = _solver(model, name).solve(operator, rank, rng)
    return keep(model, operator.oriented(spectrum), operator.eps * operator.total), name


def _solver(model: Any, name: str) -> Solver:
    """Return the solver with the parameters of the model."""
    if name == "krylov" and model.max_iter is not None:
        return Krylov(tol=float(model.tol), max_passes=int(model.max_iter))
    return SOLVERS[name](tol=float(model.tol))


def gram_of(model: Any, X: Array, kernel: Kernel, *, double: bool = False) -> Gram:
    """Return the kernel over the points, stored where the memory limit allows it.

    Only kernels of the distance are taken in float32 unasked: centring takes away what an offset
    adds to others, such as xᵀy, and with it the digits.
    """
    if isinstance(kernel, Precomputed):
        return Given(X, kernel)
    n = int(X.shape[0])
    loose = model.dtype is None and model.tol >= SINGLE_TOL and kernel.invariant
    single = not double and (model.dtype == "float32" or loose)
    size = stored_bytes(n, single=single)
    gram = make_gram(X, kernel, single=single, stored=size <= model.memory_limit)
    how = f"stored, {shown(size)}" if size <= model.memory_limit else "computed in every pass"
    how = "fused with its products" if isinstance(gram, Fused) else how
    note(f"kernel of {n}x{n}: {how}, {'single' if single else 'double'} precision")
    return gram


def fit_auto(model: Any, X: Array, kernel: Kernel, weights: Array | None) -> KernelFit:
    """Fit exactly, unless `tol` is loose and the kernel too large to store.

    Then landmarks by pivoted Cholesky are tried first: they are kept if what they leave out of
    the trace is within `tol`, which bounds the error of every eigenvalue.
    """
    n = int(X.shape[0])
    fits = stored_bytes(n, single=True) <= model.memory_limit
    small = fits or isinstance(kernel, Precomputed)
    if model.tol < LOOSE or small or X.ndim == 1:
        return fit_exact(model, X, kernel, weights)
    rng = np.random.default_rng(model._seed)
    found = pivoted_cholesky(X, kernel, model.n_landmarks, float(model.tol), rng, weights)
    feature_map = Landmarks.of(backend.take(X, found.index), kernel)
    mapped = map_rows(feature_map, X, weights, center=model.center)
    if mapped.left_out > model.tol:
        return fit_exact(model, X, kernel, weights)
    fit = from_mapped(model, feature_map, mapped)._replace(solver="cholesky")
    return with_novelty(fit, X, weights)
