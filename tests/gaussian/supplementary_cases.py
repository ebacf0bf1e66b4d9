"""Tables with columns beside them, for tests of supplementary variables."""

import numpy as np
from sklearn.datasets import load_iris

IRIS = load_iris()


ACTIVE, WIDTH = IRIS.data[:, :3], IRIS.data[:, 3]


SPECIES = IRIS.target_names[IRIS.target]


BESIDE = {"Petal.Width": WIDTH, "Species": SPECIES}


def close(found, theirs, rtol=1e-8):
    """Compare with numbers printed to ten digits."""
    np.testing.assert_allclose(found, theirs, rtol=rtol)


# --- missing values ----------------------------------------------------------------------------


def simulated(n, missing, seed=0):
    """Rows of two latents, numbers and classes that depend on the latents, and the latents."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    W = np.linalg.qr(rng.normal(size=(8, 2)))[0] * [3.0, 2.0]
    X = z @ W.T + rng.normal(size=(n, 8))
    number = z @ [0.6, -0.5] + rng.normal(size=n) * np.sqrt(1 - 0.61)
    group = np.where(z[:, 0] + rng.normal(size=n) > 0.5, "high", "low")
    X[rng.random(X.shape) < missing] = np.nan
    return X, number, group, z
