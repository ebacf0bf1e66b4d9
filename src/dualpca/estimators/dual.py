"""Dual probabilistic principal component analysis: PPCA in the feature space of a kernel."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from dualpca.arrays import Array, backend
from dualpca.data import refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._attributes import attribute, nested
from dualpca.estimators._checks import (
    ESTIMATED,
    check_choice,
    check_finite_result,
    check_flag,
    check_matrix,
    check_number,
    generator,
    weighted_mean,
)
from dualpca.estimators._kernel import PreImageEstimator, check_diagonal, checked_components
from dualpca.estimators._shell import on_rows, parametrized
from dualpca.estimators._types import Column, KernelLike, Rows, Seed, Weights
from dualpca.estimators.ppca import PPCA
from dualpca.gaussian import check_noise
from dualpca.kernels import Linear
from dualpca.models.dual import (
    RULES,
    DualModel,
    DualRequest,
    fit_dual,
    sampling_operator,
    to_primal,
)
from dualpca.operators import Subspace
from dualpca.preimages import Method


@parametrized
class DualPPCA(PreImageEstimator):
    """Probabilistic PCA in the feature space of a kernel, in dual form.

    The model is φ = Wz + φ̄ + ε (De Plaen & Suykens 2023).

    h ~ N(0, I_q) and ε ~ N(0, σ²I_r), with W = Φcᵀ A known through A = E (I/n − σ²Λ⁻¹)^{1/2}.
    With σ² → 0 it is `KernelPCA`, with the linear kernel (and d < n) it is `PPCA`.

    Parameters
    ----------
    n_components : int, float, str or None, default=None
        How many components to keep:

        - int: that many.
        - float between 0 and 1: as many as have this share of the variance.
        - 'evidence', 'bic', 'white-noise', 'gavish-donoho': by the spectrum.
        - 'ard': kernel Bayesian PCA, which starts from every direction and switches off those that
          are not relevant beside the noise.
        - None: 'evidence'; or, where `noise_variance` is given, the number of variances above it.

        A smooth kernel in few dimensions has no noise floor: its spectrum falls to 0, and 'ard'
        keeps most of it; give `noise_variance` then.
    kernel : str, Kernel or callable, default='rbf'
        As in :class:`KernelPCA`.
    gamma : float, 'scale', 'median', 'auto' or None, default=None
        Scale of the RBF, polynomial, sigmoid, Laplacian and chi-squared kernels. 'auto' is 1/d;
        'scale' and 'median' are found from X. None finds the width of a named RBF, Matérn, rational
        quadratic, Laplacian or chi-squared kernel: the one at which the values of the kernel over
        pairs of rows vary the most, in steps of 2^(1/4) about the median distance, from at most 400
        rows, evenly spaced. Where columns are of unlike units (the variance of one is more than 100
        times that of another), the first three get a width for every column, a multiple of its
        standard deviation. It is 1/d for polynomial and sigmoid kernels. `kernel_` has the width.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1
        Constant term of the polynomial and sigmoid kernels.
    kernel_params : dict or None, default=None
        Other parameters of a named kernel, or keyword arguments of a function.
    noise_variance : float, default=None
        σ². None for maximum likelihood, σ² = (tr − Σ_{p≤q} λ_p)/(n (r − q)). 0 is kernel PCA as a
        model (De Plaen & Suykens 2023, 'No Noise'): points have no density then (`score` says so);
        everything else works.
    center : bool, default=True
        Centre in feature space. False sets φ̄ = 0 (De Plaen & Suykens 2023, 'Uncentered Features').
    noise_dim : int, default=None
        r, the dimension of the noise. None is that of the features where the kernel knows it and it
        is below n: d for the linear kernel and the cosine, the number of monomials for polynomials,
        their sums and products (De Plaen & Suykens 2023, section 2.2). Otherwise, and where rows
        have missing values, it is n, as published (with whole weights their sum). With 'nystrom',
        'cholesky' and 'fourier' it is the dimension of the feature map. n − 1 is the dimension of
        the centred span.
    method : {'closed', 'em'}, default='closed'
        From the spectrum, or by EM, accelerated and monotone: the same model.
    eigen_solver : str, default='auto'
        As in `KernelPCA`. 'nystrom', 'cholesky' and 'fourier' fit the model in the space of a
        finite feature map, and `X_fit_` are then the landmarks ('fourier': the rows).
    tol : float, default=0.0
        Relative error of the eigenvalues; with 'em' the estimated distance to the maximum at
        which to stop. 0 is machine precision, and 1e-6 with 'em'.
    max_iter : int, default=None
        'em': largest number of steps, 1000 by default.
    random_state : None, int, Generator or RandomState, default=None
        Start of EM and of block Krylov, draw of landmarks. None is a fixed seed.
    preimage : str or Method, default='auto'
        How :meth:`inverse_transform` and :meth:`denoise` find inputs, as in :class:`KernelPCA`.
    n_landmarks : int, default=500
        Number of landmarks or random features of an approximate solver.
    landmarks : str, default='leverage'
        How landmarks are chosen, as in :class:`KernelPCA`.
    dtype : dtype or None, default=None
        Precision of the fit, as in :class:`KernelPCA`.
    memory_limit : int, default=4294967296
        Bytes that the Gram matrix may take, as in :class:`KernelPCA`.
    verbose : bool, default=False
        Print on standard error how and where the model is fitted.
    device : None, 'auto', 'cpu', 'cuda' or list, default=None
        Where to fit: None is where the rows are, 'auto' a GPU if there are enough rows. Host
        arrays are copied there and results back, so that the fitted model is on the host. Several
        GPUs share products, as in :class:`KernelPCA`.

    Attributes
    ----------
    eigenvalues_ : array of shape (q,)
        λ of the centred kernel, largest first.
    explained_variance_, explained_variance_ratio_ : array of shape (q,)
        ℓ = λ/n (with 'ard' a little less: the prior shrinks them), and λ/tr Kc.
    noise_variance_ : float
    noise_dim_ : int
        r.
    coefficients_ : array of shape (n, q)
        A over the rows of `X_fit_`: W = Σ_i A_i φ(x_i). Not with 'fourier'.
    relevance_ : array
        'ard': 1/α of every direction it started from; 0 for those switched off.
    loglikelihood_ : float
        Of all points; ∞ where q components explain everything, −∞ with `noise_variance=0` where
        they do not.
    loglikelihoods_ : list of float
    n_parameters_ : int
        Free parameters of the Gaussian in r dimensions: rq − q(q − 1)/2 + 1, and r for the mean if
        features are centred. A given `noise_variance` is none.
    n_components_, n_iter_, n_samples_, n_features_in_ : int
    converged_ : bool
    approximation_error_ : Approximation
        As in `KernelPCA`; exact solvers have `trace` 0.
    kernel_ : Kernel
        With the width that was found or given.
    gamma_ : float or None
        Its gamma; None if it has none, or every column a width of its own.
    X_fit_ : array of shape (n, d)
        Points of positive weight, the kernel matrix, or the landmarks.
    solver_ : str

    Notes
    -----
    De Plaen & Suykens, "A dual formulation for probabilistic PCA" (2023), with its misprints
    corrected (theory 8.1, 8.2, 14). Kernel values carry an index c where they are centred, always
    by the training means. Likelihoods of different r or of different kernels do not compare.

    Cost and memory are `KernelPCA`'s: one n×n array at most, none beyond `memory_limit`, and
    O(n(d + q)) per row afterwards. The spectrum beyond q is never formed, for samples of kernel
    values either: they need a few dozen products with the kernel (Lanczos).

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import DualPPCA
    >>> t = np.linspace(-7, 7, 20)
    >>> X = np.column_stack([t, np.sin(t)])
    >>> model = DualPPCA(3, kernel="rbf", gamma=1 / 8).fit(X)
    >>> round(float(model.explained_variance_ratio_.sum()), 6), round(model.noise_variance_, 6)
    (0.753663, 0.010482)
    >>> model.sample_kernel(2, random_state=0).shape
    (2, 20)
    """

    _model: DualModel = field(init=False)

    noise_variance_ = attribute("gaussian.noise")
    noise_dim_ = attribute("gaussian.dim")
    coefficients_ = attribute("coefficients")
    relevance_ = attribute("relevance")
    loglikelihood_ = attribute("history.loglikelihood")
    loglikelihoods_ = attribute("history.loglikelihoods")
    n_iter_ = attribute("history.n_iter")
    converged_ = attribute("history.converged")
    input_model_ = nested("inputs", PPCA)

    n_components: int | float | str | None = None
    _: KW_ONLY
    kernel: KernelLike = "rbf"
    gamma: float | str | None = None
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] | None = None
    noise_variance: float | None = None
    center: bool = True
    noise_dim: int | None = None
    method: str = "closed"
    eigen_solver: str = "auto"
    tol: float = 0.0
    max_iter: int | None = None
    random_state: Seed = None
    preimage: str | Method = "auto"
    n_landmarks: int = 500
    landmarks: str = "leverage"
    dtype: str | None = None
    memory_limit: float = 4 * 2**30
    verbose: bool = False
    device: str | list[str] | None = None

    @property
    def n_parameters_(self) -> int:
        """The number of free parameters; a noise that was given is none."""
        return int(self._fitted.n_parameters(fixed_noise=self.noise_variance is not None))

    # --- fitting ---------------------------------------------------------------------------

    def _request(self) -> DualRequest:
        """Check the parameters and return them for the fit."""
        q = checked_components(self.n_components, RULES)
        check_choice("method", self.method, ("closed", "em"))
        by_em = self.method == "em"
        if self.n_components == "ard" and by_em:
            raise ValueError(expected("method", "'closed' with n_components='ard'", self.method))
        if self.noise_variance is not None:
            check_noise(self.noise_variance, zero=self.n_components != "ard")
        for name in ("max_iter", "noise_dim"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, integer=True)
        # with EM, tol does not bound the error of kernel values
        dtype = "float64" if by_em and self.dtype is None else self.dtype
        most = 1000 if self.max_iter is None else int(self.max_iter)
        return self._asked_for(DualRequest, n_components=q, dtype=dtype, max_iter=most)

    def fit(self, X: Rows, y: object = None, sample_weight: Weights = None) -> DualPPCA:
        """Fit the model.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), list of items, or kernel matrix (n, n)
            Two rows or more. Never modified. NaN is accepted with RBF, linear and polynomial
            kernels (their sums and multiples): inner products are then expectations under a PPCA
            of the inputs.
        y : ignored, default=None
        sample_weight : array of shape (n,), default=None
            Non-negative. A weight of 2 counts as the row twice, 0 as no row.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> DualPPCA(2, kernel="rbf", gamma=0.5).fit(X).n_components_
        2
        """
        return self._learn(fit_dual, X, sample_weight)

    # --- latents and densities -------------------------------------------------------------

    @on_rows("n_components_")
    def transform(self, X: Array) -> Array:
        """Return the posterior mean of the latents.

        It is z = nΛ⁻¹Aᵀkc (De Plaen & Suykens 2023, Eq. 20).

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
            Kernel values as they are: they are centred here, with the training means.

        Returns
        -------
        array of shape (m, q)
            √(ℓ − σ²)/ℓ · y with y the projections of `KernelPCA`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.transform(X).shape
        (150, 2)
        """
        self._know_inputs(X)
        return self._working.posterior_mean(X)

    @on_rows()
    def posterior(self, X: Array, *, parameters: str = "auto") -> tuple[Array, Array]:
        """Return mean and covariance of the latents given each point.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values (m, n)
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            'estimated': covariances count that axes and variances are estimates. 'fixed': they
            take them as known. 'auto': as estimates, unless there are so many points that it does
            not show.

        Returns
        -------
        mean : array of shape (m, q)
        covariance : array of shape (m, q, q)
            σ²nΛ⁻¹ = diag(σ²/ℓ), and what the errors of axes and variances add. With fixed
            parameters it is the same for every complete point (then a view of one matrix).
            Rows with NaN are less certain by the covariance of their coordinates.

        Notes
        -----
        Theory 20, for a point at the average distance from the axes: where two components explain
        about as much, rows say little of how their axes lie. With fixed parameters the covariance
        is that of noise in feature space, which has one size for all rows and falls like 1/n. It
        says nothing of errors in the columns of X: see `latent_covariance`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> mean, covariance = model.posterior(X)
        >>> mean.shape, covariance.shape
        ((150, 2), (150, 2, 2))
        """
        self._know_inputs(X)
        model, estimated = self._working, self._estimated(parameters)
        mean = model.posterior_mean(X)
        return mean, model.posterior_covariance(X, mean if estimated else None)

    def _estimated(self, parameters: str) -> bool:
        """Return True if covariances are to count that axes and variances are estimates."""
        check_choice("parameters", parameters, ESTIMATED)
        errors = self._working.errors if parameters != "fixed" else None
        return errors is not None and (errors.matter or parameters == "estimated")

    def posterior_kernel(
        self, K: Rows, centered: bool = False, *, parameters: str = "auto"
    ) -> tuple[Array, Array]:
        """Return mean and covariance of the latents given kernel values against `X_fit_`.

        Parameters
        ----------
        K : array of shape (m, n)
            k(x, x_i); or kc, centred with the training means, as `sample_kernel` gives them.
        centered : bool, default=False
            Whether K is centred already.
        parameters : {'auto', 'estimated', 'fixed'}, default='auto'
            As in `posterior`.

        Returns
        -------
        mean : array of shape (m, q)
        covariance : array of shape (m, q, q)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> mean, _ = model.posterior_kernel(model.kernel_(X[:3], X))
        >>> mean.shape
        (3, 2)
        """
        model = self._working
        values, kc = self._centred_kernel(K, centered, "posterior_kernel")
        Y = model.kernel_coordinates(kc)
        mean = model.gaussian.posterior_mean(check_finite_result(Y, values))
        estimated = self._estimated(parameters)
        covariance = model.uncertain(mean) if estimated else model.shared_covariance(values)
        found = backend.cast_like(mean, values), backend.cast_like(covariance, values)
        return self._home(found, K)  # type: ignore[no-any-return]

    def _centred_kernel(self, K: Rows, centered: bool, method: str) -> tuple[Array, Array]:
        """Return kernel values as checked, and centred ones in float64."""
        check_flag("centered", centered)
        model = self._working
        if not isinstance(model.subspace, Subspace):
            raise ValueError(expected("eigen_solver", "one with points", self.eigen_solver))
        values = self._kernel_rows(K, int(model.subspace.coefficients.shape[0]), method)
        kc = backend.working(values)
        return values, kc if centered else model.centred(kc)

    @on_rows(cast=False)
    def score_samples(
        self,
        X: Array,
        diagonal: Column | None = None,
        *,
        density: str = "full",
        latents: Rows | None = None,
    ) -> Array:
        """Return the log-density of every point's features, in full or on the training span.

        Parameters
        ----------
        X : array of shape (m, d), items, or kernel values against the training points (m, n)
        diagonal : array of shape (m,), default=None
            k(x, x) of every row, where X holds kernel values, which do not tell it.
            `density='span'` does not need it.
        density : {'full', 'span'}, default='full'
            'full': all of the distance between φ and the components is noise. Low for rows unlike
            the training points; it does not integrate to 1 unless the noise is in as many
            dimensions as there are features. 'span': of φ projected on the span of the training
            points' features, where the model lives (De Plaen & Suykens 2023, Proposition 2): a
            density, but blind to what is off that span. With an RBF rows far from all others are
            projected next to the mean, and likely. Training points have the same value in both. So
            have all rows where the noise is in all features: with the linear kernel and d < n, and
            with 'nystrom', 'cholesky' and 'fourier'.
        latents : array of shape (m, q), default=None
            Latents h, one row each: return ln p(φ | h) in place of ln p(φ).

        Returns
        -------
        array of shape (m,)
            ln N(φ; φ̄, WWᵀ + σ²I_r), theory 8.4; given latents ln N(φ; φ̄ + Wh, σ²I_r).

        Notes
        -----
        The first call with 'span' finds the span: all eigenpairs of up to 4096 points, O(n³). Of
        more it needs up to 4096 that span the others to 1e-10 of the variance, as they do where the
        kernel is smooth. Then O(n²) per row, or O(nm) for m points. 'full' costs O(n(d + q)).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.score_samples(X).shape
        (150,)
        """
        self._refuse_missing(X)
        check_choice("density", density, ("span", "full"))
        given = None if latents is None else self._given_latents(latents, X, "score_samples")
        own = check_diagonal(diagonal, X)
        return self._working.log_density(X, own, given, full=density == "full")

    def _given_latents(self, latents: Rows, rows: Array, method: str) -> Array:
        """Return the coordinates that latents stand for, one row for each row of an array."""
        Z, Y = self._latent_coordinates(latents, method)
        if Z.shape[0] != rows.shape[0]:
            what = f"one row for each of the {rows.shape[0]} rows"
            raise ValueError(expected("latents", what, tuple(Z.shape)))
        return Y

    def score_kernel(
        self, K: Rows, centered: bool = False, *, latents: Rows | None = None
    ) -> Array:
        """Return the log-density of vectors of kernel values against `X_fit_`.

        Parameters
        ----------
        K : array of shape (m, n)
            k(x, x_i); or kc, centred with the training means, as `sample_kernel` gives them.
        centered : bool, default=False
            Whether K is centred already.
        latents : array of shape (m, q), default=None
            Latents h, one row each: return ln p(kc | h) in place of ln p(kc).

        Returns
        -------
        array of shape (m,)
            ln N(kc; 0, Kc A Aᵀ Kc + σ²Kc), or ln N(kc; Kc A h, σ²Kc), of kc on the range of Kc,
            theory 8.5 (De Plaen & Suykens 2023, Propositions 9 and 7, as corrected). Eigenvalues
            below 1e-12 of the largest count as 0. Values that are no kernel values of any
            point of feature space are projected on the range.

        Notes
        -----
        O(n³) once, and an array of n × n numbers. Draws of `sample_kernel` from more than 512
        points are right to `tol` only, which is too little for their density.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> kc = model.sample_kernel(3, random_state=0)
        >>> model.score_kernel(kc, centered=True).shape
        (3,)
        """
        values, kc = self._centred_kernel(K, centered, "score_kernel")
        given = None if latents is None else self._given_latents(latents, values, "score_kernel")
        found = self._working.kernel_log_density(kc, given)
        return self._home(check_finite_result(found, values), K)

    def score(self, X: Rows, y: object = None, sample_weight: Weights = None) -> float:
        """Return the average log-density of the points' features.

        Parameters
        ----------
        X : array of shape (m, d)
        y : ignored, default=None
        sample_weight : array of shape (m,), default=None

        Returns
        -------
        score : float

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> bool(model.score(X) > model.score(X + 5.0))
        True
        """
        return weighted_mean(self.score_samples(X), sample_weight)

    # --- kernel values ---------------------------------------------------------------------

    def reconstruct_kernel(
        self, X: Rows | None = None, centered: bool = True, *, latents: Rows | None = None
    ) -> Array:
        """Return the kernel values of points without their noise.

        They are k̂c = Kc A z.

        Parameters
        ----------
        X : array of shape (m, d), default=None
            Points, whose latents are their posterior means.
        centered : bool, default=True
            True: ⟨φ(x_i) − φ̄, Wh⟩, centred with the training means on both sides. False:
            ⟨φ(x_i), φ̄ + Wh⟩, to compare with `k(X, X_fit_)`. The same where `center=False`.
        latents : array of shape (m, q), default=None
            Latents h, in place of X.

        Returns
        -------
        array of shape (m, n)
            One column per row of `X_fit_` (De Plaen & Suykens 2023, Eqs. 17 and 22).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.reconstruct_kernel(X[:3]).shape
        (3, 150)
        """
        if (X is None) == (latents is None):
            what = "given, or latents in its place: one of the two"
            raise ValueError(expected("X", what, "none" if X is None else "both"))
        if latents is None:
            return self._reconstruct_kernel(X, centered=centered)
        Z, Y = self._latent_coordinates(latents, "reconstruct_kernel")
        found = self._working.kernel_values(Y, centered=centered)
        return self._home(backend.cast_like(found, Z), latents)

    @on_rows()
    def _reconstruct_kernel(self, X: Array, centered: bool = True) -> Array:
        self._know_inputs(X)
        Y = self._working.posterior_mean(X) * self._latent_scale()
        return self._working.kernel_values(Y, centered=centered)

    def sampling_operator(self, tol: float = 2e-2) -> Any:
        """Return the operator that turns standard normal numbers into draws of kernel values.

        It is S, such that kc = Sξ with ξ ~ N(0, I) is a draw of centred kernel values.

        B = Σ_{p≤q} λ_p n^{-1/2} e_p e_pᵀ + σ Σ_{p>q} λ_p^{1/2} e_p e_pᵀ is symmetric, and
        BBᵀ = Kc A Aᵀ Kc + σ²Kc (De Plaen & Suykens 2023, section 4.4 and Eq. 24). It is never
        formed: a product costs q products with vectors, and one with Kc^{1/2} (`sample_kernel`).
        With σ² = 0 only the first term is left, the sampling of kernel PCA.

        Parameters
        ----------
        tol : float, default=0.02
            As in `sample_kernel`.

        Returns
        -------
        scipy.sparse.linalg.LinearOperator of shape (n, n)
            `B @ xi`, `B.T @ k`; `B @ np.eye(n)` is the matrix. With 'nystrom', 'cholesky' and
            'fourier' (n, r): one column per feature of the map. With weights w the eigenpairs
            are those of D^{1/2} Kc D^{1/2}, D = diag w, and B has D^{-1/2} on the left.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import DualPPCA
        >>> X = np.random.default_rng(0).normal(size=(30, 2))
        >>> model = DualPPCA(3, kernel="rbf", gamma=0.5).fit(X)
        >>> B, xi = model.sampling_operator(), np.random.default_rng(1).normal(size=(4, 30))
        >>> bool(np.allclose(B @ xi.T, model.sample_kernel(noise=xi).T))
        True
        """
        check_tolerance(tol)
        return sampling_operator(self._working, float(tol))

    def sample_kernel(
        self,
        n_samples: int = 1,
        random_state: Seed = None,
        tol: float = 2e-2,
        *,
        noise: Any = None,
    ) -> Array:
        """Draw centred kernel values.

        They are kc ~ N(0, Kc A Aᵀ Kc + σ²Kc).

        De Plaen & Suykens 2023, Eq. 18, as corrected.

        kc = Bξ = Σ_{p≤q} λ_p n^{-1/2} e_p e_pᵀξ + σ (I − EEᵀ) Kc^{1/2} ξ, with Kc^{1/2} ξ by block
        Lanczos on the operator: neither the whole spectrum nor, beyond `memory_limit`, the kernel
        matrix is needed. Up to 512 points the spectrum is cheaper, and exact.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None
        tol : float, default=0.02
            Relative error, in norm, that Lanczos may leave in the noise; the variance it leaves
            out is of the order of its square.
        noise : array of shape (m, n), default=None
            ξ of your own, in place of draws; as many columns as `sampling_operator` has.

        Returns
        -------
        array of shape (n_samples, n)
            ⟨φ(x_i) − φ̄, φ − φ̄⟩ for the rows x_i of `X_fit_`, centred with the training means.
            `preimage_of_kernel(kc, centered=True)` finds inputs that have them.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.sample_kernel(3, random_state=0).shape
        (3, 150)
        """
        check_number("n_samples", n_samples, 1, integer=True)
        check_tolerance(tol)
        model = self._working
        if noise is None:
            xi = model.draw_noise(int(n_samples), generator(random_state))
        else:
            xi = backend.working(self._beside_model(check_matrix(noise, "noise"), "sample_kernel"))
            width = int(model.space.directions.shape[0])
            if xi.shape[1] != width:
                what = f"of shape (m, {width}), a column for every one of sampling_operator()"
                raise ValueError(expected("noise", what, tuple(xi.shape)))
            refuse_nonfinite(xi)
        found = model.shaped(xi, float(tol))
        return self._home(backend.cast_like(found, model.eigenvalues), noise)

    def sample_kernel_given(self, X: Rows, random_state: Seed = None, tol: float = 2e-2) -> Array:
        """Draw centred kernel values given latents.

        They are kc | z ~ N(Kc A z, σ²Kc).

        De Plaen & Suykens 2023, Eq. 14.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents h, one draw each.
        random_state : None, int, Generator or RandomState, default=None
        tol : float, default=0.02
            As in `sample_kernel`.

        Returns
        -------
        array of shape (m, n)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.sample_kernel_given(model.transform(X[:3]), random_state=0).shape
        (3, 150)
        """
        Z, Y = self._latent_coordinates(X, "sample_kernel_given")
        check_tolerance(tol)
        found = self._working.draw_kernel(Y, generator(random_state), float(tol))
        return self._home(backend.cast_like(found, Z), X)

    # --- points of feature space -----------------------------------------------------------

    def sample_features(self, n_samples: int = 1, random_state: Seed = None) -> Array:
        """Draw points of feature space, as weights over the training points.

        The points are φ ~ N(φ̄, WWᵀ + σ²I).

        De Plaen & Suykens 2023, Eq. 3.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        array of shape (n_samples, n)
            γ with φ = Σ_i γ_i φ(x_i) over the rows x_i of `X_fit_`: inner products with any x are
            `k(x, X_fit_) @ γ`; with the linear kernel `γ @ X_fit_` are rows. The noise is that on
            the span of the training points. O(n³), up to 4096 of them.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.sample_features(3, random_state=0).shape
        (3, 150)
        """
        check_number("n_samples", n_samples, 1, integer=True)
        model, rng = self._working, generator(random_state)
        Y = model.sample_coordinates(int(n_samples), rng, noise=True)
        found = model.draw_features(Y, rng, inside=False)
        return self._home(backend.cast_like(found, model.eigenvalues), None)

    def sample_features_given(self, X: Rows, random_state: Seed = None) -> Array:
        """Draw points of feature space given latents.

        The points are φ | z ~ N(Wz + φ̄, σ²I).

        De Plaen & Suykens 2023, Eq. 2, as corrected.

        Parameters
        ----------
        X : array of shape (m, q)
            Latents h, one draw each.
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        array of shape (m, n)
            Weights over the training points, as in `sample_features`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.sample_features_given(model.transform(X[:3]), random_state=0).shape
        (3, 150)
        """
        Z, Y = self._latent_coordinates(X, "sample_features_given")
        found = self._working.draw_features(Y, generator(random_state), inside=True)
        return self._home(backend.cast_like(found, Z), X)

    # --- back to inputs --------------------------------------------------------------------

    def _posterior_scale(self) -> Any:
        gaussian = self._working.gaussian
        ones = backend.namespace(gaussian.values).ones_like(gaussian.values)
        return gaussian.posterior_mean(ones[None, :]).T

    def _latent_scale(self) -> Any:
        """Return √(ℓ − σ²): latents h are the point φ̄ + Wh."""
        return self._working.gaussian.spread

    def sample(
        self,
        n_samples: int = 1,
        random_state: Seed = None,
        return_distance: bool = False,
        noise: bool = False,
    ) -> Any:
        """Draw latents from their prior and return inputs through the pre-image.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None
        return_distance : bool, default=False
            Also return the distance of each input's features from the point that was drawn.
        noise : bool, default=False
            Add the noise along the components, so that coordinates have variance ℓ in place of
            ℓ − σ². Noise off the components has no pre-image, and `sample_kernel` draws it; only
            the linear kernel has all of it here, as `PPCA.sample`.

        Returns
        -------
        array of shape (n_samples, d), or a pair with (n_samples,)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> model = DualPPCA(2, kernel="rbf", gamma=0.5).fit(X)
        >>> model.sample(3, random_state=0).shape
        (3, 4)
        """
        check_number("n_samples", n_samples, 1, integer=True)
        model, rng = self._working, generator(random_state)
        if not (noise and model.kernel == Linear()):
            Y = model.sample_coordinates(int(n_samples), rng, noise=noise)
            return self._drawn_inputs(Y, return_distance)
        points = self._home(to_primal(model)[1].sample(int(n_samples), rng), None)
        return (points, 0 * points[:, 0]) if return_distance else points

    # --- conversions -----------------------------------------------------------------------

    def to_primal(self) -> Any:
        """Return the same model in explicit features, where the kernel has finitely many.

        Returns
        -------
        PPCA or Pipeline
            With the linear kernel a fitted `PPCA`; with polynomial kernels (and sums and multiples
            of these), 'nystrom', 'cholesky' and 'fourier' a pipeline of the feature map and a
            fitted `PPCA`. Latents, posterior and σ² are the same; so is the likelihood, where
            `noise_dim_` is the number of features.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import DualPPCA
        >>> X = load_iris().data
        >>> type(DualPPCA(2, kernel="linear").fit(X).to_primal()).__name__
        'PPCA'
        """
        feature_map, model = to_primal(self._fitted)
        ppca = PPCA(self.n_components_, noise_variance=self.noise_variance)
        ppca._model, ppca.n_features_in_ = model, int(model.mean.shape[0])
        if feature_map.kernel == Linear():
            return ppca
        return Pipeline([("features", FunctionTransformer(feature_map)), ("ppca", ppca)])


def check_tolerance(tol: Any) -> None:
    """Refuse a tolerance that Lanczos cannot reach, or that is as large as the noise."""
    check_number("tol", tol, 1e-12)
    if tol >= 1:
        raise ValueError(expected("tol", "below 1, the size of the noise itself", tol))
