"""New points from any model with a way to latents and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from dualpca import generation
from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import (
    Saved,
    check_choice,
    check_flag,
    check_number,
    check_rows,
    generator,
)
from dualpca.estimators._latent_density import (
    check_density,
    class_codes,
    fit_by_class,
    fit_density,
    is_named,
)
from dualpca.estimators._latent_paths import as_matrix, require_finite
from dualpca.estimators._sample_quality import SampleQuality
from dualpca.generation import Chain, Density, covariance_factor

SAMPLERS = ("direct", "langevin", "mala")


class Generator(Saved, SampleQuality, MetaEstimatorMixin, BaseEstimator):
    """Draw new points: a density over the latents of a model, and the model's way back to inputs.

    x = decode(z) with z ~ π, and π a density over the latents of the training rows.

    Parameters
    ----------
    estimator : estimator
        With `transform` and `inverse_transform`: `PCA`, `PPCA`, `KernelPCA`, `DualPPCA`, a
        pipeline of them. A clone of it is fitted; scikit-learn's `FrozenEstimator(model)` takes
        a fitted model as it is.
    density : {'kde', 'gaussian', 'mixture', 'subspaces'} or Density
        π: kernel density estimate, shrunk to the latents' mean and covariance; a Gaussian of that
        mean and covariance; a mixture of `n_mixtures` Gaussians, or of as many subspaces of at
        most 10 directions (`MixturePPCA`), which need fewer rows and bear more latents; or a
        density of your own.
    sampler : {'direct', 'langevin', 'mala'}
        Independent draws; Langevin chains from training latents, one a sample, whose bias goes to
        0 with `step`; or Metropolis-adjusted ones, which have none once they have mixed. In many
        dimensions a chain hardly leaves the bumps around its start (`chains` tells, by R̂ well above
        1): then it is the starts that spread samples as the density does.
    bandwidth : float, optional
        h of 'kde', in standard deviations of the latents; None for the largest leave-one-out
        likelihood.
    n_mixtures : int
        Components of 'mixture' and 'subspaces', of each class if by class.
    by_class : bool
        One density for each class of y, weighted by its share of the rows; needs y in `fit`. One
        density for all classes reaches into the gaps between them, where samples are half one
        and half another. Few latents of each class may want 'subspaces'.
    temperature : float
        T: the covariance of every Gaussian in π times T. Below 1, samples keep nearer to the
        middle of what was seen: more of them look right, and they are less varied.
    n_steps : int
        Steps of a chain; 'mala' takes as many before, to tune its step.
    step : float
        τ, in units of the bumps' variance (`density_.factor`): 0.1 leaves the variance of a bump
        5 % too large with 'langevin'; 'mala' only starts from it.
    decoder : str or pre-image method, optional
        For models with `preimages`: how to come back. None is `inverse_transform`.
    random_state : None, int, Generator or RandomState
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
    Kernel PCA, a kernel density estimate and Langevin are "Kernel PCA: a survey", section 7, with a
    fresh ξ at every step (MATH 12.1, 12.2 and 14). A prior of the model's own is what its `sample`
    draws from.

    A kernel density costs O(nq) a row and step of a chain, `nearest` O(nd) a row, both in blocks:
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

    def __init__(
        self,
        estimator: Any,
        *,
        density: Any = "kde",
        sampler: str = "direct",
        bandwidth: float | None = None,
        n_mixtures: int = 10,
        by_class: bool = False,
        temperature: float = 1.0,
        n_steps: int = 200,
        step: float = 0.1,
        decoder: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.density = density
        self.sampler = sampler
        self.bandwidth = bandwidth
        self.n_mixtures = n_mixtures
        self.by_class = by_class
        self.temperature = temperature
        self.n_steps = n_steps
        self.step = step
        self.decoder = decoder
        self.random_state = random_state

    # --- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Generator:
        """Fit the model, then the density over its latents.

        Parameters
        ----------
        X : array of shape (n, d)
            Two rows or more, finite. Never modified; a copy is kept.
        y : array of shape (n,), optional
            Handed to the estimator; the classes, if by class.

        Returns
        -------
        self
        """
        self._check_parameters()
        rows = check_rows(self, X, reset=True, min_rows=2, finite=True)
        require_finite(rows)
        self.estimator_ = clone(self.estimator).fit(rows, y)
        self.latents_ = as_matrix(self.estimator_.transform(rows))
        Z = backend.working(self.latents_)
        self.density_ = self._fit_density(Z, y)
        self._mean = backend.namespace(Z).mean(Z, axis=0)
        self._factor = covariance_factor(Z - self._mean)
        self.X_fit_ = backend.copied(rows)
        return self

    def _fit_density(self, Z: Array, y: Any) -> Density:
        """Return the density over latents, of all rows or class by class."""
        rng = generator(0 if self.random_state is None else self.random_state)
        how = (self.bandwidth, int(self.n_mixtures), rng)
        if self.by_class:
            self.classes_, self._codes = class_codes(y, int(Z.shape[0]))
            found: Density = fit_by_class(self.density, Z, self._codes, self.classes_, *how)
        else:
            found = fit_density(self.density, Z, *how)
        T = float(self.temperature)
        return found if T == 1 else generation.tempered(found, T)

    def _check_parameters(self) -> None:
        for name in (
            "fit",
            "transform",
            "inverse_transform" if self.decoder is None else "preimages",
        ):
            if isinstance(self.estimator, type) or not hasattr(self.estimator, name):
                what = f"an estimator with {name}"
                raise ValueError(expected("estimator", what, self.estimator))
        check_density(self.density)
        check_choice("sampler", self.sampler, SAMPLERS)
        check_number("n_mixtures", self.n_mixtures, 1, integer=True)
        check_number("n_steps", self.n_steps, 1, integer=True)
        check_flag("by_class", self.by_class)
        if self.by_class and not is_named(self.density):
            what = "a name where each class has its own"
            raise ValueError(expected("density", what, self.density))
        for name in ("bandwidth", "step", "temperature"):
            value = getattr(self, name)
            if value is None and name == "bandwidth":
                continue
            check_number(name, value, 0)
            if not 0 < value < float("inf"):
                raise ValueError(expected(name, "positive and finite", value))

    # --- new points ------------------------------------------------------------------------

    def sample(self, n_samples: int = 1, random_state: Any = None, label: Any = None) -> Array:
        """Draw new points.

        Parameters
        ----------
        n_samples : int
        random_state : None, int, Generator or RandomState
        label : object, optional
            Draw from this class only, if fitted by class.

        Returns
        -------
        array of shape (n_samples, d)
        """
        return self.decode(self.sample_latents(n_samples, random_state, label))

    def sample_latents(
        self, n_samples: int = 1, random_state: Any = None, label: Any = None
    ) -> Array:
        """Draw latents of new points, (n_samples, q); `decode` shows what they mean.

        Parameters
        ----------
        n_samples : int
        random_state : None, int, Generator or RandomState
        label : object, optional
            Draw from this class only, if fitted by class.
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, 1, integer=True)
        density, rows = self._part(label)
        rng = generator(random_state)
        if self.sampler == "direct":
            Z = density.sample(int(n_samples), rng)
        else:
            chain = self._run(density, rows, int(n_samples), rng, thin=self.n_steps)
            Z = chain.draws[-1, :, :]
        return backend.cast_like(Z, self.latents_)

    def _part(self, label: Any) -> tuple[Density, np.ndarray]:
        """Return the density of a class and its rows; that of all rows without a class."""
        if label is None:
            return self.density_, np.arange(int(self.latents_.shape[0]))
        if not self.by_class:
            raise ValueError(expected("label", "None, as by_class is False", label))
        names = self.classes_.tolist()
        if not np.isscalar(label) or label not in names:
            raise ValueError(expected("label", f"one of {names}", label))
        density: Any = self.density_
        code = names.index(label)
        return density.parts[code], np.flatnonzero(self._codes == code)

    def chains(self, n_chains: int = 4, random_state: Any = None) -> Chain:
        """Return whole chains of `n_steps` draws, with acceptance, effective sample size and R̂.

        Parameters
        ----------
        n_chains : int
        random_state : None, int, Generator or RandomState

        Returns
        -------
        Chain
            `draws` (n_steps, n_chains, q), `acceptance`, `step`, `effective_sample_size()`,
            `r_hat()`. Chains start at training latents that were drawn at random.
        """
        check_is_fitted(self)
        check_number("n_chains", n_chains, 1, integer=True)
        if self.sampler == "direct":
            what = "'langevin' or 'mala': direct draws are independent and need no chain"
            raise ValueError(expected("sampler", what, self.sampler))
        density, rows = self._part(None)
        return self._run(density, rows, int(n_chains), generator(random_state), thin=1)

    def _run(
        self, density: Density, rows: np.ndarray, m: int, rng: np.random.Generator, thin: int
    ) -> Chain:
        chosen = rows[rng.integers(len(rows), size=m)]
        start = backend.working(backend.take(self.latents_, chosen))
        adjusted, n_steps = self.sampler == "mala", int(self.n_steps)
        return generation.langevin(
            density,
            start,
            float(self.step),
            n_steps,
            rng,
            adjusted=adjusted,
            warm_up=n_steps if adjusted else 0,
            thin=thin,
            factor=density.factor,
        )

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that arrays of other libraries are taken."""
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        return tags
