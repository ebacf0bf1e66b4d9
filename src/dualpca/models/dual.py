"""Dual probabilistic PCA: a Gaussian over feature space, known through kernel values.

`DualModel` is the fitted model, and `fit_dual` fits it to a table. `to_primal` converts it to the
same model over explicit features (`SpikedModel`), and `to_dual` back.

A point φ of feature space is known by kc_i = ⟨φ(x_i) − φ̄, φ − φ̄⟩ for anchors x_i, the training
points. A `Space` holds the anchors' coordinates on the model's directions and draws the kernel
values of noise ε ~ N(0, I) (theory 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator

from dualpca.arrays import Array, algebra, backend, cached_property
from dualpca.data import InMemoryTable, Table, in_memory
from dualpca.errors import DegenerateError, DualPCAError, expected
from dualpca.gaussian import (
    Factors,
    ParameterErrors,
    Reference,
    SpikedGaussian,
    at_least_one,
    fit_relevance,
    free_parameters,
    loglikelihood,
    selection,
    share_count,
    spiked_gaussian,
)
from dualpca.kernels import Kernel, Linear, Precomputed, feature_dimension
from dualpca.models.driver import History, Record
from dualpca.models.kernel import (
    NEGLIGIBLE_EIGENVALUE,
    Approximation,
    Directions,
    KernelChoice,
    check_variance,
    coordinates_on,
    em_of_kernel,
    in_dtype_of,
    is_incomplete,
    is_precomputed,
    kernel_operator,
    projection_on,
    uncertain_part,
    with_crew,
)
from dualpca.models.spiked import SpikedModel
from dualpca.operators import (
    Dual,
    ExpectedGram,
    Explicit,
    FeatureMap,
    MappedScatter,
    MappedSubspace,
    Projection,
    Spectrum,
    Subspace,
    UncertainSubspace,
)
from dualpca.solvers import (
    KernelOptions,
    dual_operator,
    mapped_operator,
    root_times,
    solve,
    solve_kernel,
)

DENSE_ORDER, DENSE_MOST = 512, 4096
"""Orders up to which all eigenpairs are cheap: always, and for at least as many draws as points."""

UNSPANNED = 1e-10
"""Share of the trace that pivots may leave out where they stand for all points."""

FLAT_DIRECTION = 1e-7
"""Smallest ratio of the lengths of points' features along two directions that both count."""

SINGLE_NOISE_TOL = 1e-3
"""Smallest error of drawn noise at which kernel values in float32 are accurate enough."""

EM_TOL = 1e-6
"""The `tol` of EM where 0 was asked for: at machine precision it would never stop."""

RULES = ("ard", *sorted(selection.RULES))
"""Names that `n_components` may have."""


Host = np.ndarray[Any, np.dtype[np.float64]]


# --- Feature space as the training points see it -------------------------------------------------


@dataclass(frozen=True, eq=False)
class PointSpace:
    """The span of the training points' features, exactly.

    ε on that span has kc ~ N(0, Kc): kc = Kc^{1/2} ξ, by Lanczos on the operator. With weights w
    the eigenpairs are those of D^{1/2} Kc D^{1/2}, D = diag w, and all w are positive.
    """

    points: Annotated[Array, "points n d", "or nan"]  # (n, d), or the kernel matrix
    kernel: Kernel
    weights: Annotated[Array, "n", ">= 0"]
    centered: bool
    spectrum: Spectrum
    means: Annotated[Array, "n"]
    tilt: Annotated[Array, "q"]
    memory_limit: Annotated[float, ">= 0, or inf"]

    @property
    def anchors(self) -> Array:
        """D^{-1/2} E Λ^{1/2}, (n, q)."""
        xp, spectrum = backend.namespace(self.weights), self.spectrum
        return spectrum.vectors * xp.sqrt(spectrum.values) / xp.sqrt(self.weights)[:, None]

    def operator(self, *, single: bool) -> Dual:
        """Return Kc as an operator, stored where the memory limit allows it."""
        dtype = "float32" if single else "float64"
        how = KernelOptions(center=self.centered, dtype=dtype, memory_limit=self.memory_limit)
        return dual_operator(self.points, self.kernel, self.weights, how)

    @cached_property
    def whole(self) -> tuple[Subspace | MappedSubspace, Array]:
        """Every direction in which the points vary, and the points' coordinates on them, (n, m).

        From all eigenpairs of up to 4096 points or of a kernel matrix, O(n³); otherwise in the span
        of up to 4096 pivots that leave out nothing but rounding error. Pivots of a kernel that
        needs them all take longer: of 4000 points in 10 columns 106 s, where eigenpairs take 37.
        """
        xp, n = backend.namespace(self.weights), int(self.weights.shape[0])
        if isinstance(self.kernel, Precomputed) or n <= DENSE_MOST:
            operator = self.operator(single=False)
            values, vectors = self.pairs if n <= DENSE_ORDER else self.all_pairs()
            spectrum = Spectrum(values, vectors, float(xp.sum(values)), n).ordered()
            spectrum = spectrum.head(_positive(spectrum))
            anchors = spectrum.vectors * xp.sqrt(spectrum.values) / self.roots[:, None]
            return operator.subspace(spectrum), anchors
        how = KernelOptions("cholesky", center=self.centered, n_landmarks=DENSE_MOST)
        table = InMemoryTable(self.points, self.weights)
        mapped = mapped_operator(table, self.points, self.kernel, how.features, how)  # type: ignore[arg-type]
        if mapped.left_out > UNSPANNED:
            what = f"rows that {DENSE_MOST} of them span, for densities on the span"
            remedy = "Ask for density='full', or fit with eigen_solver='nystrom'."
            raise DualPCAError(expected("X_fit_", what, n, remedy))
        spectrum = solve(mapped, mapped.shape[0], "dense")
        subspace = mapped.subspace(spectrum.head(_positive(spectrum)))
        return subspace, subspace.coordinates(self.points)

    @property
    def directions(self) -> Array:
        """E, (n, q): unit vectors of the space in which noise ξ is given."""
        return self.spectrum.vectors

    @property
    def roots(self) -> Array:
        """√w, (n,)."""
        return backend.namespace(self.weights).sqrt(self.weights)

    def noise(self, xi: Array, tol: float, *, inside: bool) -> Array:
        """Return kernel values of the ε on the span that ξ (m, n) stands for, (m, n)."""
        return self.half_noise(xi, tol, inside=inside) / self.roots

    def adjoint_noise(self, values: Array, tol: float) -> Array:
        """Return the transpose of `noise` off the directions, times values (m, n)."""
        return self.half_noise(values / self.roots, tol, inside=False)

    def half_noise(self, xi: Array, tol: float, *, inside: bool) -> Array:
        """Return K̃^{1/2} ξ, K̃ = D^{1/2} Kc D^{1/2}, off the directions or with them, (m, n).

        Through all eigenpairs where that is cheap, otherwise by Lanczos.
        """
        E, xp = self.spectrum.vectors, backend.namespace(self.weights)
        (m, n), along = map(int, xi.shape), E.T @ xi.T
        off = xi.T - E @ along
        if n <= DENSE_ORDER or (n <= DENSE_MOST and n <= m):
            values, vectors = self.pairs if n <= DENSE_ORDER else self.all_pairs()
            drawn = vectors @ (xp.sqrt(values)[:, None] * (vectors.T @ off))
        else:
            drawn = root_times(self.operator(single=tol >= SINGLE_NOISE_TOL), off, tol=tol).product
        drawn = drawn - E @ (E.T @ drawn)
        if inside:
            drawn = drawn + E @ (xp.sqrt(self.spectrum.values)[:, None] * along)
        return drawn.T

    @cached_property
    def pairs(self) -> tuple[Array, Array]:
        """All eigenpairs, of few points."""
        return self.all_pairs()

    def all_pairs(self) -> tuple[Array, Array]:
        """Return all eigenvalues of K̃, none negative, and their vectors, (n,) and (n, n)."""
        n = int(self.weights.shape[0])
        values, vectors = algebra.top_eigh(self.operator(single=False).dense(), n)
        return backend.namespace(values).where(values < 0, 0 * values, values), vectors

    def expanded(self, xi: Array) -> Array:
        """Return weights over the points' features, (m, n): their sum is ε off the directions.

        O(n³): all eigenpairs are needed. Directions without variance have no noise.
        """
        n = int(xi.shape[1])
        if n > DENSE_MOST:
            what = f"of at most {DENSE_MOST} points, to have noise drawn as a sum over them"
            remedy = "`sample_kernel` and `sample_kernel_given` draw kernel values of any number."
            raise ValueError(expected("X_fit_", what, n, remedy))
        E, xp = self.spectrum.vectors, backend.namespace(xi)
        values, vectors = self.pairs if n <= DENSE_ORDER else self.all_pairs()
        varies = values > NEGLIGIBLE_EIGENVALUE * xp.max(values)
        inverse = xp.where(
            varies, 1 / xp.sqrt(xp.where(varies, values, 1 + 0 * values)), 0 * values
        )
        off = xi - (xi @ E) @ E.T
        alpha = (((off @ vectors) * inverse) @ vectors.T) * self.roots
        if not self.centered:
            return alpha
        return alpha - xp.sum(alpha, axis=1)[:, None] * (self.weights / xp.sum(self.weights))


@dataclass(frozen=True, eq=False)
class MapSpace:
    """The space of a finite feature map f, in which everything is explicit."""

    features: Annotated[Array, "n r"]  # (n, r), f(x_i) − mean of the anchors
    axes: Annotated[Array, "r q"]
    mean: Annotated[Array, "r"]

    @cached_property
    def anchors(self) -> Array:
        """(f(x_i) − mean)ᵀV, (n, q)."""
        return self.features @ self.axes

    @cached_property
    def means(self) -> Array:
        """f(x_i)ᵀ mean, (n,)."""
        return self.features @ self.mean + self.mean @ self.mean

    @cached_property
    def tilt(self) -> Array:
        """Vᵀ mean, (q,)."""
        return self.axes.T @ self.mean

    @property
    def whole(self) -> tuple[None, Array]:
        """None, for no direction is beyond the map, and the points' features."""
        return None, self.features

    @property
    def directions(self) -> Array:
        """V, (r, q)."""
        return self.axes

    def noise(self, xi: Array, tol: float, *, inside: bool) -> Array:
        """Return kernel values of ε = ξ (m, r), off the directions or with them, (m, n); exact."""
        return (xi if inside else xi - (xi @ self.axes) @ self.axes.T) @ self.features.T

    def adjoint_noise(self, values: Array, tol: float) -> Array:
        """Return the transpose of `noise` off the directions, times values (m, n); (m, r)."""
        xi = values @ self.features
        return xi - (xi @ self.axes) @ self.axes.T

    def expanded(self, xi: Array) -> Array:
        """Return weights over the points' features, (m, n): their sum is ε off the directions.

        By least squares, O(n r²).
        """
        off, F = xi - (xi @ self.axes) @ self.axes.T, self.features + self.mean
        found = off @ backend.namespace(F).linalg.pinv(F)
        if not bool(backend.namespace(F).max(abs(found @ F - off)) <= 1e-6 * (1 + abs(off).max())):
            what = "that span the space of the features, to have noise drawn as a sum over them"
            raise DualPCAError(expected("X_fit_", what, tuple(F.shape)))
        return found


Space = PointSpace | MapSpace


# --- The model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class DualModel:
    """φ = Wh + φ̄ + ε with h ~ N(0, I_q) and ε ~ N(0, σ²I_r), W = Φcᵀ A."""

    eigenvalues: Annotated[Array, "q"]  # λ of the centred kernel, largest first
    variances: Annotated[Array, "q"]  # ℓ
    ratios: Annotated[Array, "q", "or nan"]  # λ/tr Kc
    gaussian: SpikedGaussian
    n: Annotated[float, "> 0"]  # effective number of points
    kernel: Kernel
    points: Annotated[
        Array, "points n d", "or nan"
    ]  # of positive weight, kernel matrix, or landmarks
    projector: Annotated[Directions, "d? q"]  # coordinates and distances of new points
    expansion: Subspace | UncertainSubspace | None  # the directions over points, if there are any
    space: Space
    error: Approximation
    solver: str
    history: History
    relevance: Annotated[Array, "p", ">= 0, or inf"] | None = None  # 1/α, with 'ard'
    inputs: SpikedModel | None = None  # of rows with missing values

    @property
    def n_components(self) -> int:
        """Number of components, q."""
        return self.gaussian.rank

    @property
    def n_rows(self) -> int:
        """Number of points, by weight."""
        return round(self.n)

    @property
    def subspace(self) -> Directions:
        """The directions as expansions over points; as axes of the map with random features."""
        return self.expansion or self.projector

    @property
    def coefficients(self) -> Array | None:
        """A, (n, q): W = Σ_i A_i φ(x_i)."""
        if self.expansion is None:
            return None
        A = self.expansion.coefficients * self.gaussian.spread
        return backend.cast_like(A, self.eigenvalues)

    def n_parameters(self, *, fixed_noise: bool = False) -> int:
        """Return the number of free parameters in r dimensions: rq − q(q − 1)/2 + 1, r the mean."""
        q, r = self.gaussian.rank, self.gaussian.dim
        centered = backend.to_numpy(self.space.means).any()
        count = free_parameters(q, r) - (1 if fixed_noise and q < r else 0)
        return count + (r if centered else 0)

    def posterior_mean(self, rows: Array) -> Array:
        """Return E[h | x], (m, q); with expected coordinates where values are missing."""
        return self.gaussian.posterior_mean(coordinates_on(self.projector, self.inputs, rows))

    @cached_property
    def errors(self) -> ParameterErrors | None:
        """What axes and variances may be off by; None where there is no noise or no signal.

        In the coordinates of the principal axes, of which the training points leave r.
        """
        gaussian, q = self.gaussian, self.gaussian.rank
        if not gaussian.noise > 0 or not q:
            return None
        xp = backend.namespace(gaussian.values)
        own = backend.identity(q, gaussian.spread) * gaussian.spread
        rest = backend.asarray(np.zeros((max(int(gaussian.dim) - q, 0), q)), own)
        W = xp.concat([own, rest], axis=0)
        flat = 0 * W[:, 0]
        return ParameterErrors.of(
            Factors(W, flat, flat + gaussian.noise),
            Reference(self.n, self.n),
            variances=gaussian.values,
        )

    def uncertain(self, mean: Array) -> Array:
        """Return the covariance of latents that count the errors of axes and variances, (m, q, q).

        Of points as far off the axes as points are on average.
        """
        errors, gaussian = self.errors, self.gaussian
        if errors is None or errors.complete is None:
            return self.shared_covariance(mean)
        z = backend.working(mean)
        xp, away = backend.namespace(z), max(int(gaussian.dim) - gaussian.rank, 0)
        shrinkage = gaussian.shrinkage
        real = shrinkage > 0
        Y = z * xp.where(real, 1 / xp.where(real, shrinkage, 1 + 0 * shrinkage), 0 * shrinkage)
        size = xp.sqrt(xp.sum(Y * Y, axis=1) + away * gaussian.noise)[:, None]
        return backend.cast_like(errors.complete.latent_covariance(z, size), mean)

    def posterior_covariance(self, rows: Array, mean: Array | None = None) -> Array:
        """Return Cov[h | x], (m, q, q): one matrix for all complete rows, as a view of it.

        With posterior means it counts errors of axes and variances, and rows have their own.
        """
        like = backend.vector_like(rows)
        shared = self.shared_covariance(like) if mean is None else self.uncertain(mean)
        if not is_incomplete(rows):
            return shared
        D = self.gaussian.spread / self.gaussian.values
        which, x = uncertain_part(self.inputs, rows)
        more = self.projector.coordinate_covariance(x) * D * D[:, None]
        both = backend.working(backend.take(shared, which)) + more
        return backend.replaced(shared, which, backend.cast_like(both, shared))

    def shared_covariance(self, like: Array) -> Array:
        """Return diag(σ²/ℓ) for every row of `like`, (m, q, q), as a view of one matrix."""
        variance = self.gaussian.posterior_variance
        one = variance[:, None] * backend.asarray(np.eye(variance.shape[0]), variance)
        one = backend.cast_like(one, like)
        return backend.namespace(one).broadcast_to(one, (int(like.shape[0]), *one.shape))

    def log_density(
        self,
        rows: Array,
        own: Array | None = None,
        given: Array | None = None,
        *,
        full: bool = True,
    ) -> Array:
        """Return ln N(φ; φ̄, WWᵀ + σ²I_r) of every point, (m,), theory 8.4.

        Parameters
        ----------
        rows : array of shape (m, d)
        own : array of shape (m,), optional
            k(x, x).
        given : array of shape (m, q), optional
            Coordinates Y: of ln N(φ; φ̄ + Σ Y_p v_p, σ²I_r), in place of the above.
        full : bool
            Count features off the span of the training points; otherwise they are projected on it.
        """
        found = projection_on(self.projector, rows, own) if full else self.project_on_span(rows)
        return self._density_at(found, given, self.gaussian.dim)

    def project_on_span(self, rows: Array) -> Projection:
        """Return coordinates and squared distances, of features projected on the training span."""
        whole = self._whole
        if whole is None:
            return self.projector.project(rows)
        Y = self.projector.coordinates(rows)
        return _projection(Y, algebra.squared_norms(whole.coordinates(rows)))

    @cached_property
    def _whole(self) -> Directions | None:
        """Every direction of the training points' span; None where the model's space has no more.

        That is so in the space of a feature map, or where the noise is in all features there are.
        """
        over, points = self.expansion, self.points
        if isinstance(self.space, PointSpace) and points.ndim == 2:
            d, center = int(points.shape[1]), self.space.centered
            if feature_dimension(self.kernel, d, center=center) == self.gaussian.dim:
                return None
        found = self.space.whole[0]
        if isinstance(over, UncertainSubspace) and isinstance(found, Subspace):
            return replace(over, coefficients=found.coefficients, tilt=found.tilt)
        return found

    def kernel_log_density(self, values: Array, given: Array | None = None) -> Array:
        """Return ln p(kc), or ln p(kc | h) for h of coordinates `given`, (m,), theory 8.5.

        Densities on the range of Kc, of which kc = A y with y the coordinates on all directions.
        """
        inverse, log_volume = self._back
        y = values @ inverse
        found = _projection(self.kernel_coordinates(values), algebra.squared_norms(y))
        return self._density_at(found, given, int(y.shape[1])) - log_volume

    def kernel_coordinates(self, values: Array) -> Array:
        """Return the coordinates on the directions, (m, q), of centred kernel values (m, n)."""
        if isinstance(self.space, MapSpace):
            return values @ self._back[0] @ self.space.axes
        return values @ self.projector.coefficients  # type: ignore[union-attr]

    def centred(self, values: Array) -> Array:
        """Return kc of kernel values k(x, x_i), (m, n), centred with the training means."""
        over = self.expansion
        if over is None:
            raise DualPCAError("random Fourier features have no kernel values to centre.")
        return values - self.space.means - (values @ over.base)[:, None] + over.offset

    @cached_property
    def _back(self) -> tuple[Array, float]:
        """A⁻¹, (n, m), from kernel values to coordinates kc = A y, and ln of the volume of A."""
        A = self.space.whole[1]
        xp = backend.namespace(A)
        U, s, Vt = algebra.svd(A)
        if A.shape[0] < A.shape[1] or float(s[-1]) < FLAT_DIRECTION * float(s[0]):
            what = "that vary in every direction of the feature map, for densities of kernel values"
            raise DualPCAError(expected("X_fit_", what, tuple(A.shape)))
        return (U / s) @ Vt, float(xp.sum(xp.log(s)))

    def _density_at(self, found: Projection, given: Array | None, dim: int) -> Array:
        """Return the log-density in `dim` dimensions of points where they are; given h, about Y."""
        if given is None:
            return replace(self.gaussian, dim=dim).log_density(*found)
        off = found.residual + algebra.squared_norms(found.coordinates - given)
        noise = replace(self.gaussian, values=self.gaussian.values[:0], dim=dim)
        return noise.log_density(found.coordinates[:, :0], off)

    def off_span(self, rows: Array, own: Array | None = None) -> Array:
        """Return the squared distance of features off the directions, (m,)."""
        return projection_on(self.projector, rows, own).residual

    def kernel_values(self, Y: Array, *, centered: bool = True) -> Array:
        """Return kernel values of φ̄ + Σ y_p v_p, (m, n).

        Centred, kc_i = ⟨φ(x_i) − φ̄, Σ y_p v_p⟩ (k̂c = Kc A h of De Plaen & Suykens 2023, Eq. 17);
        otherwise k_i = ⟨φ(x_i), φ̄ + Σ y_p v_p⟩, the values that a kernel smoother uses.
        """
        kc = Y @ self.space.anchors.T
        return kc if centered else kc + self.space.means + (Y @ self.space.tilt)[:, None]

    def shaped(self, xi: Array, tol: float) -> Array:
        """Return centred kernel values kc = Bξ of noise ξ ~ N(0, I), (m, n).

        B = Σ_{p≤q} λ_p n^{-1/2} e_p e_pᵀ + σ(I − EEᵀ)Kc^{1/2}, so that kc ~ N(0, Kc A Aᵀ Kc + σ²Kc)
        (theory 8.2, 8.3): the spectrum beyond q is never computed. ξ has n numbers, one per point;
        with a finite feature map as many as that has features.
        """
        gaussian = self.gaussian
        root = backend.namespace(xi).sqrt(gaussian.values)
        found = self.kernel_values((xi @ self.space.directions) * root)
        if gaussian.noise > 0:
            found = found + gaussian.noise**0.5 * self.space.noise(xi, tol, inside=False)
        return found

    def adjoint_shaped(self, values: Array, tol: float) -> Array:
        """Return Bᵀ times kernel values (m, n)."""
        gaussian = self.gaussian
        root = backend.namespace(values).sqrt(gaussian.values)
        found = (values @ self.space.anchors * root) @ self.space.directions.T
        if gaussian.noise > 0:
            found = found + gaussian.noise**0.5 * self.space.adjoint_noise(values, tol)
        return found

    def draw_noise(self, m: int, rng: np.random.Generator) -> Array:
        """Draw ξ ~ N(0, I) for `shaped`: its part along the directions, then the rest."""
        D = self.space.directions
        a = backend.normal(rng, (m, self.gaussian.rank), self.gaussian.values)
        if not self.gaussian.noise > 0:
            return a @ D.T
        xi = backend.normal(rng, (m, int(D.shape[0])), D)
        return xi + (a - xi @ D) @ D.T

    def draw_kernel(self, Y: Array, rng: np.random.Generator, tol: float) -> Array:
        """Draw kc | h ~ N(Kc A h, σ²Kc) for points of coordinates Y = h(ℓ − σ²)^{1/2}, (m, n)."""
        drawn, noise = self.kernel_values(Y), self.gaussian.noise
        if noise > 0:
            D = self.space.directions
            xi = backend.normal(rng, (int(Y.shape[0]), int(D.shape[0])), D)
            drawn = drawn + noise**0.5 * self.space.noise(xi, tol, inside=True)
        return drawn

    def draw_features(self, Y: Array, rng: np.random.Generator, *, inside: bool) -> Array:
        """Draw points φ̄ + Σ y_p v_p + ε as weights over the training points, (m, n).

        ε is noise off the directions, and along them too if `inside`.
        """
        if self.expansion is None:
            raise DualPCAError(
                "random Fourier features are no expansion over points, so that points drawn from "
                "them have no weights. Use eigen_solver='nystrom', 'cholesky' or an exact one."
            )
        noise, D = self.gaussian.noise, self.space.directions
        over, xi = self.expansion, None
        if noise > 0:
            xi = backend.normal(rng, (int(Y.shape[0]), int(D.shape[0])), D)
            Y = Y + noise**0.5 * (xi @ D) if inside else Y
        drawn = Y @ over.coefficients.T + over.base
        return drawn if xi is None else drawn + noise**0.5 * self.space.expanded(xi)

    def sample_coordinates(self, m: int, rng: np.random.Generator, *, noise: bool) -> Array:
        """Draw coordinates on the directions, (m, q), of variance ℓ with noise, ℓ − σ² without."""
        values = self.gaussian.values
        a = backend.normal(rng, (m, self.gaussian.rank), values)
        return a * (backend.namespace(a).sqrt(values) if noise else self.gaussian.spread)


def _projection(Y: Array, norms: Array) -> Projection:
    """Return coordinates, and what they leave of the squared norms."""
    left = norms - algebra.squared_norms(Y)
    return Projection(Y, backend.namespace(Y).where(left < 0, 0 * left, left))


def _positive(spectrum: Spectrum) -> int:
    """Return how many eigenvalues are not zero."""
    values = backend.to_numpy(spectrum.values)
    return int((values > NEGLIGIBLE_EIGENVALUE * float(values[0])).sum())


def sampling_operator(model: DualModel, tol: float) -> LinearOperator:
    """Return B, (n, n), for products with host arrays: kc = Bξ has the law of the model."""
    like = model.gaussian.values
    shape = int(model.space.anchors.shape[0]), int(model.space.directions.shape[0])

    def product(of: Callable[[Array, float], Array]) -> Callable[[Host], Host]:
        def times(columns: Host) -> Host:
            rows = np.asarray(columns, dtype=np.float64).reshape(len(columns), -1).T
            found: Host = backend.to_numpy(of(backend.asarray(rows, like), tol)).T
            return found.reshape(-1, *columns.shape[1:])

        return times

    forward, back = product(model.shaped), product(model.adjoint_shaped)
    return LinearOperator(
        shape, forward, back, matmat=forward, rmatmat=back, dtype=np.dtype(np.float64)
    )


# --- Fitting -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DualRequest(KernelOptions):
    """What `fit_dual` needs to know, checked."""

    n_components: int | float | str | None
    kernel: KernelChoice
    noise_variance: float | None = None  # σ², None for maximum likelihood
    noise_dim: int | None = None  # r
    method: str = "closed"  # or 'em'
    max_iter: int = 1000


class Parameters(NamedTuple):
    """The model on its operator, over points or over features."""

    spectrum: Spectrum
    gaussian: SpikedGaussian
    record: Record
    solver: str
    relevance: Array | None = None


def fit_dual(table: Table, request: DualRequest) -> DualModel:
    """Fit the dual model over the points or a finite feature map, in closed form or by EM."""
    remedy = "Load them, or use KernelPCA with landmarks or random features, for chunked data."
    table, request = with_crew(table, request.kernel, request)
    table = in_memory(table, remedy)
    if request.crew is not None and request.crew.elsewhere and table.weights is not None:
        if not np.all(table.weights > 0):  # workers have all rows
            raise ValueError(expected("sample_weight", "positive for a Dask array", 0.0))
    table = _with_weight(table, is_precomputed(request.kernel.kernel))
    operator, inputs = kernel_operator(table, request.kernel, request)
    points = table.rows
    if isinstance(operator, MappedScatter):
        operator.dim = request.noise_dim or operator.dim
        found = _fit_operator(operator, request)
        directed = operator.oriented(found.spectrum)
        found = found._replace(solver=request.eigen_solver, spectrum=directed)
        projector: Directions = operator.subspace(found.spectrum)
        expansion: Subspace | UncertainSubspace | None = operator.expansion(found.spectrum)
        points = points if operator.points is None else operator.points
        kernel = operator.map.kernel
        mean = operator.moments.mean
        features = operator.map(backend.points(points)) - mean
        space: Space = MapSpace(features, found.spectrum.vectors, mean)
        error = Approximation(operator.left_out, 0.0)
    else:
        gram, weights = operator.gram, operator.weights
        operator.dim = request.noise_dim or _noise_dimension(operator, points)
        operator = operator.without_negatives(request.rng)
        found = _fit_operator(operator, request)
        projector = expansion = operator.expansion(found.spectrum)
        kernel = expansion.kernel
        means = operator.means if operator.centered else 0 * weights
        about = (found.spectrum, means, expansion.tilt, float(request.memory_limit))
        space = PointSpace(gram.points, gram.kernel, weights, bool(operator.centered), *about)
        error = Approximation(0.0, found.spectrum.error)
    shown = in_dtype_of(points, found.spectrum, found.gaussian.values)
    relevance = found.relevance
    return DualModel(
        *shown,
        found.gaussian,
        operator.n,
        kernel,
        points,
        projector,
        expansion,
        space,
        error,
        found.solver,
        History.of(found.record),
        None if relevance is None else backend.cast_like(relevance, shown[0]),
        inputs,
    )


def _noise_dimension(operator: Dual, points: Array) -> int:
    """Return r: n, or the dimension of the features where that is finite and below n.

    De Plaen & Suykens (2023), section 2.2. Whole weights are repetitions. The expected features of
    rows with missing values are in n dimensions, whatever the kernel.
    """
    n = max(operator.shape[0], round(operator.n))
    if points.ndim != 2 or isinstance(operator.gram, ExpectedGram):
        return n
    center, d = bool(operator.centered), int(points.shape[1])
    return min(n, feature_dimension(operator.gram.kernel, d, center=center) or n)


def _with_weight(table: InMemoryTable, precomputed: bool) -> InMemoryTable:
    """Return a copy of the points that count, with their weights."""
    points, weights = table.rows, table.weights
    if weights is None:
        return InMemoryTable(backend.copied(points))
    used = np.flatnonzero(backend.to_numpy(weights) > 0)
    if used.size == int(weights.shape[0]):
        return InMemoryTable(backend.copied(points), weights)
    if precomputed:
        what = "positive with a kernel matrix, whose columns are the training points"
        raise ValueError(expected("sample_weight", what, 0.0, "Leave out rows and columns."))
    if used.size < 2:
        raise ValueError(expected("sample_weight", "positive for two rows or more", used.size))
    return InMemoryTable(backend.take(points, used), backend.take(weights, used))


def _fit_operator(operator: Dual | MappedScatter, request: DualRequest) -> Parameters:
    """Fit the model on its operator, by its spectrum or by EM."""
    check_variance(operator)
    wanted, noise, n = request.n_components, request.noise_variance, operator.n
    by_em = request.method == "em"
    if by_em and isinstance(wanted, int):
        if wanted > operator.shape[0]:
            what = f"at most {operator.shape[0]}, the number of directions"
            raise ValueError(expected("n_components", what, wanted))
        return _fit_em(operator, wanted, request)
    spectrum, name = _leading(operator, request)
    if wanted == "ard":
        return _fit_relevance(spectrum, n, noise, name)
    q = None if wanted is None and noise is not None else spectrum.rank
    gaussian = spiked_gaussian(spectrum, n, noise=noise, q=q)
    if by_em:
        return _fit_em(operator, gaussian.rank, request)
    record = Record([gaussian.limit_loglikelihood(n, operator.trace)], 1, True)
    return Parameters(spectrum.head(gaussian.rank), gaussian, record, name)


def _leading(operator: Dual | MappedScatter, request: DualRequest) -> tuple[Spectrum, str]:
    """Return the eigenpairs asked for, or that a rule finds, none of them zero."""
    wanted, noise, rank = request.n_components, request.noise_variance, operator.shape[0]
    if isinstance(wanted, int):
        rank = min(wanted, rank)
    elif wanted is None and noise is not None:  # at most tr/(nσ²) variances can exceed σ²
        most = operator.trace / (operator.n * float(noise)) if noise > 0 else math.inf
        rank = int(min(rank, max(most, 1.0)))
    spectrum, name = solve_kernel(operator, rank, request)
    positive = _positive(spectrum)
    if isinstance(wanted, int):
        q = wanted
        if q > positive:
            what = f"at most {positive}, the number of directions with variance in feature space"
            raise ValueError(expected("n_components", what, wanted))
    elif isinstance(wanted, float):
        q = min(share_count(wanted, spectrum), positive)
    elif wanted == "ard" or (wanted is None and noise is not None):
        q = positive
    else:
        rule = "evidence" if wanted is None else str(wanted)
        about = (spectrum.values, spectrum.trace, spectrum.dim, operator.n)
        q = at_least_one(rule, selection.apply_rule(rule, *about))
    return spectrum.head(q), name


def _fit_em(operator: Dual | MappedScatter, q: int, request: DualRequest) -> Parameters:
    """Fit by EM on the operator, then rotate to its principal axes."""
    r, limits = operator.dim, (request.tol or EM_TOL, request.max_iter)
    W, sigma2, record = em_of_kernel(operator, q, request.rng, request.noise_variance, *limits)
    U, s, _ = algebra.svd(W)
    gaussian = SpikedGaussian(s**2 + sigma2, sigma2, r)
    spectrum = Spectrum(operator.n * gaussian.values, U, operator.trace, r).ordered()
    if request.noise_variance == 0:  # what EM raised is no likelihood
        record.loglikelihoods = [gaussian.limit_loglikelihood(operator.n, operator.trace)]
    return Parameters(spectrum, gaussian, record, "em")


def _fit_relevance(spectrum: Spectrum, n: float, noise: float | None, name: str) -> Parameters:
    """Fit kernel Bayesian PCA: the directions that are relevant beside the noise (theory 5).

    Variances are u + σ², a little below ℓ: the prior on W shrinks them. Without a given noise one
    direction of variance is left for it: the rest is rounding error.
    """
    most = max(min(spectrum.rank, spectrum.dim) - 1, 1)
    start = spectrum.head(most if noise is None else spectrum.rank)
    found = fit_relevance(start, n, noise)
    if not found.kept.any():
        raise DegenerateError(
            "no direction is relevant beside the noise: the kernel shows no structure. Give "
            "n_components as a number, or a smaller noise_variance."
        )
    q = int(found.kept.sum())  # they are the leading ones: relevance falls with the variance
    gaussian = found.gaussian(spectrum.dim, spectrum.values)
    record = Record([loglikelihood(start, n, found)], max(found.n_iter, 1), True)
    relevance = backend.asarray(found.u / spectrum.dim, spectrum.values)
    return Parameters(spectrum.head(q), gaussian, record, name, relevance)


# --- The same model in features and in kernels ---------------------------------------------------


def to_primal(model: DualModel) -> tuple[FeatureMap, SpikedModel]:
    """Return explicit features, and the model over them; those are the rows if k is linear."""
    subspace = model.projector
    if isinstance(subspace, UncertainSubspace):
        what = "a model of complete rows: expected features are not the features of any row"
        raise DualPCAError(expected("to_primal", what, "rows with NaN"))
    if isinstance(subspace, MappedSubspace):
        feature_map, V, mean = subspace.map, subspace.axes, subspace.mean
    else:
        feature_map = Explicit(subspace.kernel)
        F = backend.working(feature_map(subspace.points))
        V, mean = F.T @ subspace.coefficients, F.T @ subspace.base
    xp, like, gaussian = backend.namespace(V), model.eigenvalues, model.gaussian
    own = SpikedGaussian(gaussian.values, gaussian.noise, int(V.shape[0]))
    trace = float(model.eigenvalues[0] / model.ratios[0])
    value = own.limit_loglikelihood(model.n, trace)
    return feature_map, SpikedModel(
        backend.cast_like(mean, like),
        backend.cast_like(xp.asarray(V.T, copy=True), like),
        model.variances,
        model.ratios,
        gaussian.noise,
        model.n_rows,
        history=History((value,), model.history.n_iter, model.history.converged),
    )


def to_dual(model: SpikedModel, points: Array | None = None) -> DualModel:
    """Return a model over the features with the linear kernel and r = d.

    Kernel values are those against `points`; by default the mean and one point along every axis.
    """
    V, mean, gaussian = model.axes, model.frame.mean, model.gaussian
    xp, n, kernel = backend.namespace(V), float(model.n_rows), Linear()
    if points is None:
        steps = (V * xp.sqrt(gaussian.values)).T
        points = mean + xp.concat([0 * mean[None, :], steps], axis=0)
    trace = n * float(gaussian.values[0] / backend.working(model.ratios)[0])
    spectrum = Spectrum(n * gaussian.values, V, trace, gaussian.dim)
    old = model.history or History((math.nan,), 1, True)
    own = xp.concat([V.T, mean[None, :]], axis=0)  # axes and mean, as points of the expansion
    eye, q = backend.identity(int(own.shape[0]), V), int(V.shape[1])
    return DualModel(
        *in_dtype_of(points, spectrum, gaussian.values),
        gaussian,
        n,
        kernel,
        points,
        MappedSubspace(Explicit(kernel), V, mean),
        Subspace(own, kernel, eye[:, :q], eye[:, q], V.T @ mean, float(mean @ mean)),
        MapSpace(points - mean, V, mean),
        Approximation(0.0, spectrum.error),
        "primal",
        History((old.loglikelihood,), old.n_iter, True),
    )
