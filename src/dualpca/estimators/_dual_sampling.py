"""Kernel values and samples of the dual model (S0, Eqs. 14, 17 and 18)."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import check_finite_result, check_matrix, check_number, generator
from dualpca.estimators._kernel_inputs import new_points
from dualpca.estimators._preimages import PreImages
from dualpca.gaussian import SpikedGaussian
from dualpca.kernels import Linear
from dualpca.models.dual import AnchorSpace, draw, draw_given, signal
from dualpca.preimages import PreImage


class KernelSamples(PreImages):
    """Kernel values, samples and pre-images of a model with latents h ~ N(0, I).

    Subclasses provide `_space`, `_gaussian` and `transform`. Latents h stand for the point
    φ̄ + Wh of feature space, whose coordinates on the unit directions are √(ℓ − σ²) h.
    """

    _space: AnchorSpace
    _gaussian: SpikedGaussian

    # --- kernel values ---------------------------------------------------------------------

    def reconstruct_kernel(self, X: Any, centered: bool = True) -> Array:
        """Return the kernel values of the posterior means of X, k̂c = Kc A h.

        Parameters
        ----------
        X : array of shape (m, d)
        centered : bool
            True: ⟨φ(x_i) − φ̄, Wh⟩, centred with the training means on both sides. False:
            ⟨φ(x_i), φ̄ + Wh⟩, to compare with `k(X, X_fit_)`. The same where `center=False`.

        Returns
        -------
        array of shape (m, n)
            One column a row of `X_fit_` (S0, Eq. 17).
        """
        rows = new_points(self, X, "reconstruct_kernel", allow_nan=True)
        Z = backend.working(self.transform(X))  # type: ignore[attr-defined]
        found = signal(self._space, Z * self._gaussian.spread, centered=centered)
        return backend.cast_like(found, backend.vector_like(rows))

    def sample_kernel(
        self, n_samples: int = 1, random_state: Any = None, tol: float = 2e-2
    ) -> Array:
        """Draw centred kernel values, kc ~ N(0, Kc A Aᵀ Kc + σ²Kc) (S0, Eq. 18, as corrected).

        kc = Σ_{p≤q} λ_p n^{-1/2} e_p a_p + σ (I − EEᵀ) Kc^{1/2} ξ, with Kc^{1/2} ξ by block
        Lanczos on the operator: neither the whole spectrum nor, beyond `memory_limit`, the kernel
        matrix is needed. Up to 512 points the spectrum is cheaper, and exact.

        Parameters
        ----------
        n_samples : int
        random_state : None, int, Generator or RandomState
        tol : float
            Relative error, in norm, that Lanczos may leave in the noise; the variance it leaves
            out is of the order of its square.

        Returns
        -------
        array of shape (n_samples, n)
            ⟨φ(x_i) − φ̄, φ − φ̄⟩ for the rows x_i of `X_fit_`, centred with the training means.
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        check_tolerance(tol)
        rng = generator(random_state)
        found = draw(self._space, self._gaussian, int(n_samples), rng, float(tol))
        return backend.cast_like(found, self.eigenvalues_)

    def sample_kernel_given(self, X: Any, random_state: Any = None, tol: float = 2e-2) -> Array:
        """Draw centred kernel values given latents, kc | h ~ N(Kc A h, σ²Kc) (S0, Eq. 14).

        Parameters
        ----------
        X : array of shape (m, q)
            Latents h, one draw each.
        random_state : None, int, Generator or RandomState
        tol : float
            As in `sample_kernel`.

        Returns
        -------
        array of shape (m, n)
        """
        Z = self._finite_latents(X, "sample_kernel_given")
        check_tolerance(tol)
        rng = generator(random_state)
        return backend.cast_like(draw_given(self._space, self._gaussian, Z, rng, float(tol)), X)

    # --- back to inputs --------------------------------------------------------------------

    def sample(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        return_distance: bool = False,
        noise: bool = False,
    ) -> Any:
        """Draw latents from their prior and come back to inputs through the pre-image.

        Parameters
        ----------
        n_samples : int
        random_state : None, int, Generator or RandomState
        return_distance : bool
            Also return how far the features of each input are from the point that it stands for.
        noise : bool
            Add the noise along the components, so that coordinates have variance ℓ in place of
            ℓ − σ². Noise off the components has no pre-image, and `sample_kernel` draws it; only
            the linear kernel has all of it here, as `PPCA.sample`.

        Returns
        -------
        array of shape (n_samples, d), or a pair with (n_samples,)
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        if noise and self.kernel_ == Linear():
            points = self.to_primal().sample(n_samples, random_state)  # type: ignore[attr-defined]
            distance = 0 * points[:, 0]
        else:
            Y = self._draw_coordinates(int(n_samples), random_state, noise)
            found = self._method(None).find(self._span(), Y, None)
            points, distance = backend.cast_like(found.points, self.eigenvalues_), found.distance
        return (points, distance) if return_distance else points

    def _draw_coordinates(self, m: int, random_state: Any, noise: bool) -> Array:
        gaussian = self._gaussian
        a = backend.normal(generator(random_state), (m, gaussian.rank), gaussian.values)
        root = backend.namespace(a).sqrt(gaussian.values)
        return a * (root if noise else gaussian.spread)

    def preimages(self, X: Any, method: Any = None, start: Any = None) -> PreImage:
        """Return inputs whose features are close to φ̄ + Wh.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents h.
        method : str or Method, optional
            'smoother', 'fixed-point', 'gradient', 'distance', 'learned' or 'auto' (the best of
            all for each row); the parameter `preimage` unless given.
        start : array of shape (m, d), optional
            Where iterations start, beside their own guesses.

        Returns
        -------
        PreImage
            `points` (m, d), `distance` (m,), the distance in feature space that is left, and
            `iterations` (m,).
        """
        Y = self._finite_latents(X, "preimages") * self._gaussian.spread
        found = super().preimages(Y, method, start)
        return PreImage(backend.cast_like(found.points, check_matrix(X, "X")), *found[1:])

    def preimage_weights(self, X: Any) -> Array:
        """Return weights over the points, (m, n): Σ_i weight_i φ(x_i) = φ̄ + Wh.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents h.
        """
        Z = self._finite_latents(X, "preimage_weights")
        return super().preimage_weights(Z * self._gaussian.spread)

    def _finite_latents(self, X: Any, method: str) -> Array:
        """Check rows of latents, and return them in float64."""
        Z = self._latents(X, method)
        return check_finite_result(backend.working(Z), Z)


def check_tolerance(tol: Any) -> None:
    """Refuse a tolerance that Lanczos cannot reach or that means nothing."""
    check_number("tol", tol, 1e-12)
    if tol >= 1:
        raise ValueError(expected("tol", "below 1, the size of the noise itself", tol))
