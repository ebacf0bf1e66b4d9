"""What a fitted model over feature dimensions says: of new points, and of whole kernels."""

from __future__ import annotations

from typing import Any

from scipy.linalg import helmert
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import check_finite_result, check_matrix, generator
from dualpca.estimators._feature_fits import definite_part, source_of
from dualpca.estimators._feature_inputs import (
    check_diagonal,
    kernel_rows,
    kernel_values,
    needed_rho,
    new_items,
)
from dualpca.estimators._kernel_inputs import check_kernel_matrix
from dualpca.gaussian import log_wishart
from dualpca.models.probabilistic_kernel import Placed, Placement


class FeatureModel:
    """Posteriors, densities and samples of `ProbabilisticKernelPCA`."""

    coordinates_: Array  # (n, q)
    kernel_: Any
    X_fit_: Array
    n_samples_: int
    feature_dim: float | None
    _placement: Placement
    _psi: Array  # (n,)
    _subspace: Any

    def posterior(self, X: Any, diagonal: Any = None) -> tuple[Array, Array]:
        """Return where points are, and how certain that is.

        Given the training points' latents, a point's features are a regression on them with
        coefficients b: under a flat prior b ~ N(b(x), ψ(x)/ρ · G⁻¹), see
        `Placement` for the derivation. G = ⟨WWᵀ⟩/n is the identity at the maximum, and ψ(x), the
        point's own noise, is `point_noise`. ρ is `feature_dim`, n where
        that is not given: the dimension of what n points span. The more features, the more certain.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values or distances (m, n)
        diagonal : array of shape (m,), optional
            k(x, x), where X are kernel values of new items.

        Returns
        -------
        mean : array of shape (m, q)
        covariance : array of shape (m, q, q)
        """
        rows = new_items(self, X, "posterior")
        found, like = self._place(rows, diagonal), backend.vector_like(rows)
        rho = float(self.n_samples_ if self.feature_dim is None else self.feature_dim)
        covariance = self._placement.covariance(found.noise, rho)
        return backend.cast_like(found.coordinates, like), backend.cast_like(covariance, like)

    def point_noise(self, X: Any, diagonal: Any = None) -> Array:
        """Return ψ(x) = ‖f(x) − f̄‖²/n − b(x)ᵀG b(x), the noise that is a point's own, (m,).

        Large for points that the coordinates explain badly. The training points' have the mean σ²
        (isotropic noise), or are ψ_i themselves (diagonal noise). Where distances are not Euclidean
        it can come out negative; the average over the training points stands for it then.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values or distances (m, n)
        diagonal : array of shape (m,), optional
            k(x, x), where X are kernel values of new items.
        """
        rows = new_items(self, X, "point_noise")
        return backend.cast_like(self._place(rows, diagonal).noise, backend.vector_like(rows))

    def _place(self, rows: Array, diagonal: Any) -> Placed:
        given = None if diagonal is None else check_diagonal(diagonal, rows)
        values = kernel_rows(self, rows)
        usual = float(backend.namespace(self._psi).mean(self._psi))
        found = self._placement.place(self._subspace, values, self.n_samples_, given, usual)
        check_finite_result(found.coordinates, rows)
        return found

    def get_covariance(self) -> Array:
        """Return C = BBᵀ + diag ψ, (n, n); a feature dimension has covariance n/ρ C."""
        check_is_fitted(self)
        B = backend.working(self.coordinates_)
        C = B @ B.T + self._psi * backend.identity(int(B.shape[0]), B)
        return backend.cast_like(C, self.coordinates_)

    def log_wishart(self, K: Any = None, feature_dim: float | None = None) -> float:
        """Return the log-density of a kernel matrix, as a whole, under the model.

        QᵀKQ ~ W_{n−1}(ρ, n/ρ QᵀCQ), where the columns of Q are an orthonormal basis of what is
        orthogonal to 1: the means u are free, so nothing is said along it. The singular density
        where ρ < n − 1 (see `log_wishart`). As a function of σ² it is highest at
        (n − q)/(n − 1 − q) times the estimate of the paper, which counts the direction 1 as well.

        Parameters
        ----------
        K : array of shape (n, n), optional
            A kernel over the training points; the one that was fitted unless given.
        feature_dim : float, optional
            ρ; that of the model unless given.
        """
        check_is_fitted(self)
        rho = needed_rho(self, feature_dim)
        if K is None:
            _, values, kernel = kernel_values(self, self.X_fit_, self.kernel_)
            source = source_of(self, values, kernel)
            K = definite_part(self, source, self.coordinates_)[0].dense()
        else:
            K = check_kernel_matrix(check_matrix(K, "K"), center=False)
        n = self.n_samples_
        if K.shape[0] != n:
            raise ValueError(expected("K", f"a kernel over the {n} training points", K.shape))
        Q = backend.asarray(helmert(n), self._psi)
        C = Q @ backend.working(self.get_covariance()) @ Q.T
        return log_wishart(Q @ backend.working(K) @ Q.T, n / rho * C, rho)

    def sample_kernel(self, feature_dim: int | None = None, random_state: Any = None) -> Array:
        """Draw a centred kernel matrix, of mean nC centred, (n, n).

        HFFᵀH with F = BW + E: ρ feature dimensions, each with covariance n/ρ C.

        Parameters
        ----------
        feature_dim : int, optional
            ρ; that of the model unless given.
        random_state : None, int, Generator or RandomState
        """
        check_is_fitted(self)
        rho = needed_rho(self, feature_dim)
        if rho % 1:
            raise ValueError(expected("feature_dim", "an integer, to be drawn from", rho))
        rng, B = generator(random_state), backend.working(self.coordinates_)
        xp = backend.namespace(B)
        W = backend.normal(rng, (int(B.shape[1]), int(rho)), B)
        E = backend.normal(rng, (int(B.shape[0]), int(rho)), B)
        F = (B @ W + xp.sqrt(self._psi)[:, None] * E) * (self.n_samples_ / rho) ** 0.5
        F = F - xp.mean(F, axis=0)
        return backend.cast_like(F @ F.T, self.coordinates_)
