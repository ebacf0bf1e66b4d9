"""New points from any model with a way to latents and back."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from dualpca import generation
from dualpca.arrays import Array, backend
from dualpca.errors import CopyWarning, expected, warn
from dualpca.estimators._attributes import attribute
from dualpca.estimators._checks import (
    check_choice,
    check_draws,
    check_number,
    check_numbers,
    generator,
)
from dualpca.estimators._shell import Estimator, parametrized
from dualpca.estimators._types import Column, Rows, Seed
from dualpca.generation import Density, GeneratorModel, LangevinChains, Nearest, Quality
from dualpca.preimages import Method

SAMPLERS = ("direct", "langevin", "mala")
DENSITIES = ("kde", "gaussian", "mixture", "subspaces")

NEARLY_COPIES = 0.25
"""Median distance to the nearest training row, in units of how far these are apart, below which
points count as copies."""

LEAST_ROWS = 10
"""Training rows from which that is judged."""

MOST_DIRECTIONS = 10
"""Most directions of a component of 'subspaces'; the rest of the latents is its noise."""


@parametrized
class Generator(MetaEstimatorMixin, Estimator):
    """Draw new points: a density over the latents of a model, and the model's inverse transform.

    x = decode(z) with z ~ π, and π a density over the latents of the training rows.

    Parameters
    ----------
    estimator : estimator
        With `transform` and `inverse_transform`: `PCA`, `PPCA`, `KernelPCA`, `DualPPCA`, a
        pipeline of them. A clone of it is fitted; scikit-learn's `FrozenEstimator(model)` uses
        a fitted model as it is.
    density : {'kde', 'gaussian', 'mixture', 'subspaces'} or Density, default='kde'
        π: kernel density estimate, shrunk to the latents' mean and covariance; a Gaussian of that
        mean and covariance; a mixture of `n_mixtures` Gaussians, or of as many subspaces of at
        most 10 directions (`MixturePPCA`), which need fewer rows and allow more latents; or a
        custom density.
    sampler : {'direct', 'langevin', 'mala'}, default='direct'
        Independent draws; Langevin chains from training latents, one per sample, whose bias goes to
        0 with `step`; or Metropolis-adjusted ones, which have none once they have mixed. In many
        dimensions a chain hardly leaves the bumps around its start (`chains` shows R̂ well above
        1): then only the starts spread samples as the density does.
    bandwidth : float, default=None
        h of 'kde', in standard deviations of the latents; None for the largest leave-one-out
        likelihood.
    shrink : bool, default=True
        'kde': bumps shaped as the latents, and all of it shrunk to their mean and covariance. False
        for the plain estimate, equally wide bumps at the latents themselves: it is wider than they
        are, most of all along components of little variance. h is then in units of the latents'
        root mean square deviation.
    n_mixtures : int, default=10
        Components of 'mixture' and 'subspaces', of each class if by class.
    by_class : bool, default=False
        One density for each class of y, weighted by its share of the rows; needs y in `fit`. One
        density for all classes reaches into the gaps between them, where samples are half one
        and half another. With few rows per class use 'subspaces'.
    temperature : float, default=1.0
        T: the covariance of every Gaussian in π times T. Below 1, samples stay closer to the
        training latents: more of them look right, and they are less varied.
    n_steps : int, default=200
        Steps of a chain; 'mala' makes as many before, to tune its step.
    step : float, default=0.1
        τ, in units of the bumps' variance (`density_.factor`): 0.1 leaves the variance of a bump
        5 % too large with 'langevin'; 'mala' only starts from it.
    decoder : str or pre-image method, default=None
        For models with `preimages`: how to come back. None is `inverse_transform`.
    random_state : None, int, Generator or RandomState, default=None
        Of the mixture's start.

    Attributes
    ----------
    estimator_ : estimator
    density_ : Density
    classes_ : array of shape (k,)
        Classes of y, if by class; `density_.parts` has their densities.
    latents_ : array of shape (n, q)
    X_fit_ : array of shape (n, d)
        The training rows, to find the nearest of.
    n_features_in_ : int

    Notes
    -----
    Kernel PCA, a kernel density estimate with ``shrink=False`` and Langevin are Algorithm 2 of "A
    survey on kernel PCA", section 7, with a fresh ξ at every step (theory 12.1, 12.2 and 14). A
    prior of the model's own is what its `sample` draws from.

    A kernel density costs O(nq) per row and step of a chain, `nearest` O(nd) per row, in blocks:
    all distances are never formed at once. Memory: the training rows and latents, O(n(d + q)).

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import Generator, KernelPCA
    >>> t = np.random.default_rng(0).uniform(0, 2 * np.pi, 200)
    >>> X = np.column_stack([np.cos(t), np.sin(t)])
    >>> model = Generator(KernelPCA(4, kernel="rbf", gamma=1.0, preimage="learned")).fit(X)
    >>> new = model.sample(50, random_state=0)
    >>> bool(np.median(abs(np.hypot(*new.T) - 1)) < 0.1)
    True
    >>> model.nearest(new).distance.shape
    (50,)
    """

    _model: GeneratorModel = field(init=False)
    _finite = True
    estimator_: Any = field(init=False)

    density_ = attribute("density")
    classes_ = attribute("classes")
    latents_ = attribute("latents")
    X_fit_ = attribute("points")

    estimator: Any
    _: KW_ONLY
    density: str | Density = "kde"
    sampler: str = "direct"
    bandwidth: float | None = None
    shrink: bool = True
    n_mixtures: int = 10
    by_class: bool = False
    temperature: float = 1.0
    n_steps: int = 200
    step: float = 0.1
    decoder: str | Method | None = None
    random_state: Seed = None

    # --- fitting ---------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        back = "inverse_transform" if self.decoder is None else "preimages"
        for name in ("fit", "transform", back):
            if isinstance(self.estimator, type) or not hasattr(self.estimator, name):
                raise ValueError(expected("estimator", f"an estimator with {name}", self.estimator))
        named = isinstance(self.density, str) and self.density in DENSITIES
        able = isinstance(self.density, Density) and not isinstance(self.density, type)
        if not (named or able):
            what = f"one of {list(DENSITIES)} or a density (of dualpca.generation)"
            raise ValueError(expected("density", what, self.density))
        check_choice("sampler", self.sampler, SAMPLERS)
        check_numbers(self, counts=("n_mixtures", "n_steps"), flags=("by_class", "shrink"))
        if self.by_class and not named:
            what = "a name where each class has its own"
            raise ValueError(expected("density", what, self.density))
        if self.bandwidth is not None:
            check_positive("bandwidth", self.bandwidth)
        check_positive("step", self.step)
        check_positive("temperature", self.temperature)

    def fit(self, X: Rows, y: Column | None = None) -> Generator:
        """Fit the model, then the density over its latents.

        Parameters
        ----------
        X : array of shape (n, d)
            Two rows or more, finite. Never modified; a copy is kept.
        y : array of shape (n,), default=None
            Handed to the estimator; the classes, if by class.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> Generator(PPCA(2).fit(X)).fit(X).latents_.shape
        (150, 2)
        """
        self._check_parameters()
        rows = self._checked(X, reset=True, min_rows=2)
        estimator = clone(self.estimator).fit(rows, y)
        latents = as_matrix(estimator.transform(rows))
        classes = class_codes(y, int(rows.shape[0])) if self.by_class else None
        rng = generator(0 if self.random_state is None else self.random_state)
        fit, points = partial(self._fit_density, rng=rng), backend.copied(rows)
        model = generation.fit_generator(points, latents, fit, classes, float(self.temperature))
        self.estimator_ = estimator
        self._keep(model)
        return self

    def _fit_density(self, Z: Array, rng: np.random.Generator) -> Density:
        """Return the density over latents that the parameters ask for."""
        if self.density == "gaussian":
            return generation.fit_gaussian(Z)
        if self.density == "kde":
            plain = not self.shrink
            return generation.fit_kernel_density(Z, self.bandwidth, not plain, isotropic=plain)
        if isinstance(self.density, str):
            subspaces = self.density == "subspaces"
            return fit_mixture(Z, int(self.n_mixtures), rng, subspaces=subspaces)
        own: Density = self.density
        own.log_density(Z[:1, :])  # one of another width says so here
        return own

    # --- new points ------------------------------------------------------------------------

    def sample(self, n_samples: int = 1, random_state: Seed = None, label: Any = None) -> Array:
        """Draw new points.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None
        label : object, default=None
            Draw from this class only, if fitted by class.

        Returns
        -------
        array of shape (n_samples, d)
            There is a `CopyWarning` if most are training rows, or nearly so: half of the first 200
            are nearer to one than a quarter of the usual distance between neighbouring rows.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> maker = Generator(PPCA(2).fit(X)).fit(X)
        >>> maker.sample(3, random_state=0).shape
        (3, 4)
        """
        new = self.decode(self.sample_latents(n_samples, random_state, label))
        self._warn_of_copies(new)
        return new

    def _warn_of_copies(self, new: Array) -> None:
        """Warn where points that should be new are training rows, or nearly so."""
        far = backend.describe(new) != backend.describe(self.X_fit_)
        if far or self.X_fit_.shape[0] < LEAST_ROWS:
            return
        found = generation.newness(new, self.X_fit_)
        if found < NEARLY_COPIES:
            warn(
                "the points drawn are copies of training rows, or nearly so: half of them are "
                f"within {found:.2g} of the usual distance between neighbouring rows. A kernel "
                "model then has a kernel too narrow for its pre-images: give it a smaller gamma, "
                "such as gamma='median', or preimage='learned'.",
                CopyWarning,
            )

    def sample_latents(
        self, n_samples: int = 1, random_state: Seed = None, label: Any = None
    ) -> Array:
        """Draw latents of new points; :meth:`decode` shows what they mean.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : None, int, Generator or RandomState, default=None
        label : object, default=None
            Draw from this class only, if fitted by class.

        Returns
        -------
        latents : array of shape (n_samples, q)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> maker = Generator(PPCA(2).fit(X)).fit(X)
        >>> maker.sample_latents(3, random_state=0).shape
        (3, 2)
        """
        model: GeneratorModel = self._fitted
        n, rng = check_draws(n_samples, random_state)
        code = self._code(label)
        if self.sampler == "direct":
            Z = model.part(code)[0].sample(n, rng)
        else:
            Z = self._run(code, n, rng, int(self.n_steps)).draws[-1, :, :]
        return backend.cast_like(Z, model.latents)

    def _code(self, label: Any) -> int | None:
        """Return the index of a class; None for all rows."""
        if label is None:
            return None
        if not self.by_class:
            raise ValueError(expected("label", "None, as by_class is False", label))
        names = self.classes_.tolist()
        if not np.isscalar(label) or label not in names:
            raise ValueError(expected("label", f"one of {names}", label))
        code: int = names.index(label)
        return code

    def chains(self, n_chains: int = 4, random_state: Seed = None) -> LangevinChains:
        """Return whole chains of `n_steps` draws, with acceptance, effective sample size and R̂.

        Parameters
        ----------
        n_chains : int, default=4
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        LangevinChains
            `draws` (n_steps, n_chains, q), `acceptance`, `step`, `effective_sample_size()`,
            `r_hat()`. Chains start at training latents that were drawn at random.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> maker = Generator(PPCA(2).fit(X), sampler="langevin", n_steps=50).fit(X)
        >>> maker.chains(4, random_state=0).draws.shape
        (50, 4, 2)
        """
        check_is_fitted(self)
        m, rng = check_draws(n_chains, random_state, "n_chains")
        if self.sampler == "direct":
            what = "'langevin' or 'mala': direct draws are independent and need no chain"
            raise ValueError(expected("sampler", what, self.sampler))
        return self._run(None, m, rng, thin=1)

    def _run(self, code: int | None, m: int, rng: np.random.Generator, thin: int) -> LangevinChains:
        model: GeneratorModel = self._fitted
        n, adjusted = int(self.n_steps), self.sampler == "mala"
        options = {"n_steps": n, "adjusted": adjusted, "warm_up": n if adjusted else 0}
        return model.chains(code, m, rng, float(self.step), thin=thin, **options)

    def decode(self, Z: Rows) -> Array:
        """Return the inputs that latents stand for, by `decoder` or `inverse_transform`.

        Parameters
        ----------
        Z : array of shape (m, q)

        Returns
        -------
        X_new : array of shape (m, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> maker = Generator(PPCA(2).fit(X)).fit(X)
        >>> maker.decode([[0.0, 0.0]]).shape
        (1, 4)
        """
        check_is_fitted(self)
        if self.decoder is None:
            return as_matrix(self.estimator_.inverse_transform(Z))
        return self.estimator_.preimages(Z, self.decoder).points

    # --- paths -----------------------------------------------------------------------------

    def interpolate(
        self, a: Any, b: Any, n: int = 10, path: str = "straight", weight: float = 1.0
    ) -> Array:
        """Return points on the way from one point to another, both ends included.

        Parameters
        ----------
        a, b : array of shape (d,) or (1, d)
        n : int, default=10
        path : {'straight', 'density'}, default='straight'
            Through latents in a straight line, or where the density is high.
        weight : float, default=1.0
            'density': how much density counts beside length.

        Returns
        -------
        array of shape (n, d)
            The ends are the reconstructions of a and b.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> maker = Generator(PPCA(2).fit(X)).fit(X)
        >>> maker.interpolate(X[0], X[1], n=5).shape
        (5, 4)
        """
        check_choice("path", path, ("straight", "density"))
        check_number("n", n, 2, integer=True)
        check_number("weight", weight, 0)
        start, end = self._latent("a", a), self._latent("b", b)
        counts = weight if path == "density" else None
        return self.decode(self._fitted.path(start, end, int(n), counts))

    def traverse(self, component: int, n: int = 9, reach: float = 2.0, at: Any = None) -> Array:
        """Return points along one component, from −reach to +reach standard deviations.

        Parameters
        ----------
        component : int
        n : int, default=9
        reach : float, default=2.0
        at : array of shape (d,) or (1, d), default=None
            The point in the middle; the mean of the latents by default.

        Returns
        -------
        array of shape (n, d)

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> maker = Generator(PPCA(2).fit(X)).fit(X)
        >>> maker.traverse(0, n=5).shape
        (5, 4)
        """
        model: GeneratorModel = self._fitted
        q = int(model.latents.shape[1])
        check_number("component", component, 0, integer=True)
        if component >= q:
            raise ValueError(expected("component", f"below {q}, the number of latents", component))
        check_number("n", n, 2, integer=True)
        check_number("reach", reach, 0)
        centre = None if at is None else self._latent("at", at)
        return self.decode(model.traversal(int(component), int(n), float(reach), centre))

    def _latent(self, name: str, x: Any) -> Array:
        """Return the latents of one point, (q,)."""
        check_is_fitted(self)
        x = x if backend.is_foreign(x) else np.asarray(x)
        x = x[None, :] if x.ndim == 1 else x
        if x.ndim != 2 or x.shape[0] != 1:
            what = f"one point of shape ({self.n_features_in_},)"
            raise ValueError(expected(name, what, tuple(x.shape)))
        rows = self._asked(x, "transform")
        return backend.working(as_matrix(self.estimator_.transform(rows)))[0, :]

    # --- quality ---------------------------------------------------------------------------

    def nearest(self, X: Rows) -> Nearest:
        """Return the training point nearest to every row, to see whether the row is new.

        Parameters
        ----------
        X : array of shape (m, d)

        Returns
        -------
        Nearest
            `index` (m,) of rows of `X_fit_`, and `distance` (m,).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> maker = Generator(PPCA(2).fit(X)).fit(X)
        >>> maker.nearest(X[:3]).index
        array([0, 1, 2])
        """
        return self._home(generation.nearest(self._asked(X, "nearest"), self.X_fit_), X)  # type: ignore[no-any-return]

    def quality(
        self,
        X: Rows,
        n_samples: int | None = None,
        k: int = 3,
        n_permutations: int = 200,
        random_state: Seed = None,
    ) -> Quality:
        """Compare samples with rows that were not used to fit.

        Parameters
        ----------
        X : array of shape (m, d)
            More than k rows. Rows of the training set would flatter.
        n_samples : int, default=None
            m by default.
        k : int, default=3
            Neighbours that define the reach of a point, for precision and recall.
        n_permutations : int, default=200
            Of the kernel two-sample test.
        random_state : None, int, Generator or RandomState, default=None

        Returns
        -------
        Quality
            `precision`, `recall`, `mmd`, `p_value`, `novelty`. A novelty of 0 is copies of
            training points, 1 is as far from them as held-out rows are.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA, Generator
        >>> X = load_iris().data
        >>> maker = Generator(PPCA(2).fit(X[::2])).fit(X[::2])
        >>> round(maker.quality(X[1::2], random_state=0).precision, 1)
        0.9
        """
        rows, rng = self._asked(X, "quality"), generator(random_state)
        for name, value in (("k", k), ("n_permutations", n_permutations)):
            check_number(name, value, 1, integer=True)
        new = self.sample(int(rows.shape[0]) if n_samples is None else n_samples, rng)
        return generation.sample_quality(new, rows, self.X_fit_, rng, int(k), int(n_permutations))


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a positive finite number."""
    check_number(name, value, 0)
    if not 0 < value < math.inf:
        raise ValueError(expected(name, "positive and finite", value))


def as_matrix(X: Rows) -> Array:
    """Return a table as an array: scikit-learn may be set to give frames."""
    return X if backend.is_foreign(X) else np.asarray(X)


def class_codes(y: Column | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes of y, and for every row the index of its class."""
    if y is None:
        raise ValueError(expected("y", f"{n} classes, as by_class is True", y))
    given = backend.to_numpy(y) if backend.is_foreign(y) else np.asarray(y)
    if given.shape != (n,):
        raise ValueError(expected("y", f"of shape ({n},), one class per row", given.shape))
    if given.dtype.kind == "f" and not np.all(np.isfinite(given)):
        raise ValueError(expected("y", "a class for every row", "NaN or infinity among them"))
    classes, codes = np.unique(given, return_inverse=True)
    return classes, codes


def fit_mixture(
    Z: Array, n_mixtures: int, rng: np.random.Generator, *, subspaces: bool
) -> generation.MixtureDensity:
    """Return a mixture of Gaussians: scikit-learn's with full covariances, or one of PPCA.

    The latter, `subspaces`, has few parameters per component, so few rows will do.
    """
    if n_mixtures > Z.shape[0]:
        raise ValueError(expected("n_mixtures", f"at most {int(Z.shape[0])}, the rows", n_mixtures))
    rows, unit, seed = backend.to_numpy(Z), np.ones(int(Z.shape[1])), int(rng.integers(2**31))
    fitted: Any
    # imported here: users of other densities need neither
    if subspaces and unit.size > 1:  # a line has no subspaces
        from dualpca.estimators.mixture import MixturePPCA

        directions = min(MOST_DIRECTIONS, unit.size - 1)
        options: dict[str, Any] = {"random_state": seed, "standardize": False}
        fitted = MixturePPCA(n_mixtures, directions, **options).fit(rows)
    else:
        from sklearn.mixture import GaussianMixture

        unit = rows.std(axis=0) + np.finfo(float).tiny  # its floor on variances is absolute
        fitted = GaussianMixture(n_mixtures, random_state=seed).fit(rows / unit)
    means, factors = fitted.means_ * unit, unit[:, None] * np.linalg.cholesky(fitted.covariances_)
    used = np.flatnonzero(fitted.weights_ > 0)
    parts = tuple(
        generation.Gaussian(*(backend.asarray(A[k], Z) for A in (means, factors))) for k in used
    )
    return generation.MixtureDensity(backend.asarray(fitted.weights_[used], Z), parts)
