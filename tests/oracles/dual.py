"""The dual model, dense and slow: features written down, then primal PPCA of them.

Nothing here imports dualpca. A kernel matrix K is given features F with F F^T = Kc by its own
eigendecomposition, padded with zeros to r columns; everything follows from `oracles.ppca` of F.
"""

from dataclasses import dataclass

import numpy as np

from tests import oracles


@dataclass(frozen=True)
class DualModel:
    """A primal PPCA of explicit features of the training points, and the centred kernel."""

    Kc: np.ndarray  # (n, n), or K itself where nothing is centred
    F: np.ndarray  # (n, r)
    primal: oracles.Model

    @property
    def marginal(self):
        """Covariance of kc = F (phi - mean), (n, n)."""
        return self.F @ self.primal.covariance @ self.F.T

    @property
    def conditional(self):
        """Mean map (n, q) and covariance (n, n) of kc given h."""
        return self.F @ self.primal.W, self.primal.sigma2 * self.F @ self.F.T

    @property
    def posterior(self):
        """Mean map (n, q) and covariance (q, q) of h given kc, for kc in the range of Kc."""
        q = self.primal.W.shape[1]
        M_inv = np.linalg.inv(self.primal.W.T @ self.primal.W + self.primal.sigma2 * np.eye(q))
        return np.linalg.pinv(self.F).T @ self.primal.W @ M_inv, self.primal.sigma2 * M_inv


def centre(K, weights=None, center=True):
    return oracles.centred_kernel(K, weights) if center else np.array(K)


def dual(K, q, center=True, r=None, sigma2=None):
    """Return the maximum-likelihood model of a kernel matrix, noise in r dimensions (n unless)."""
    Kc = centre(K, center=center)
    n = len(K)
    r = n if r is None else r
    lam, E = oracles.eigh_descending(Kc)
    lam = np.where(lam > 1e-13 * lam[0], lam, 0.0)
    F = np.zeros((n, max(n, r)))
    F[:, :n] = E * np.sqrt(lam)
    assert not np.any(F[:, r:]), "r is below the rank of the kernel"
    return DualModel(Kc, F[:, :r], oracles.ppca(F[:, :r], q, center=False, sigma2=sigma2))


def features(K_both, n, center=True):
    """Return explicit features of n training points and of new ones, from the kernel of all.

    Their origin is the mean of the training points.
    """
    lam, E = oracles.eigh_descending(K_both)
    F = E * np.sqrt(np.maximum(lam, 0.0))
    return F - F[:n].mean(axis=0) if center else F


def on_span(F, n, r, negligible=1e-6):
    """Return coordinates (., r) of features projected on the span of the first n, padded by 0.

    Directions whose singular value is below `negligible` of the largest are none.
    """
    _, s, Vt = np.linalg.svd(F[:n], full_matrices=False)
    Z = F @ Vt[s > negligible * s[0]].T
    return np.pad(Z, ((0, 0), (0, r - Z.shape[1])))


def cross(K_new, K, center=True):
    """Return kc of new points, centred with the training means, term by term."""
    if not center:
        return np.array(K_new)
    n = len(K)
    ones = np.ones(n)
    return np.array([k - K @ ones / n - ones @ k / n + ones @ K @ ones / n**2 for k in K_new])


def squared_norms(K_new, diag, K, center=True):
    """Return ||phi(x) - mean||^2 of new points."""
    if not center:
        return np.array(diag)
    n = len(K)
    return diag - 2 * K_new.sum(axis=1) / n + K.sum() / n**2


def sampling_matrix(K, q, center=True, sigma2=None):
    """Return B of kc = B xi from all eigenpairs, and the noise (S0, section 4.4 and Table 4)."""
    Kc, n = centre(K, center=center), len(K)
    lam, E = oracles.eigh_descending(Kc)
    lam = np.maximum(lam, 0)
    sigma2 = (lam.sum() - lam[:q].sum()) / (n * (n - q)) if sigma2 is None else sigma2
    head = np.where(np.arange(n) < q, lam / np.sqrt(n), np.sqrt(sigma2 * lam))
    return (E * head) @ E.T, sigma2


def element_of_values(k, K, base=None):
    """Return weights over the points of the element with kernel values k; centred with a base."""
    if base is None:
        return np.linalg.pinv(K, rcond=1e-12, hermitian=True) @ k
    H = np.eye(len(K)) - np.outer(np.ones(len(K)), base)
    alpha = np.linalg.pinv(H @ K @ H.T, rcond=1e-12, hermitian=True) @ k
    return H.T @ alpha + base
