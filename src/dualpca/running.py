"""Statistics of the E step that outlive the parameters they were taken at (MATH 4).

Sums of one set of rows can only be added to those of another if both speak of the same origin and
of the same latents. Here they are moved to a common origin, carried along when the latents are
re-expressed (parameter expansion), and computed exactly from the moments of complete rows.
"""

from __future__ import annotations

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.gaussian import LOG_2PI
from dualpca.missing import Factors, Sums
from dualpca.moments import Moments


def recentred(sums: Sums, delta: Array) -> Sums:
    """Return sums over x − μ as sums over x − μ + δ; O(dq)."""
    return sums._replace(
        xz=sums.xz + delta[:, None] * sums.z,
        x=sums.x + delta * sums.n,
        xx=sums.xx + 2 * delta * sums.x + delta * delta * sums.n,
    )


def reexpressed(sums: Sums, nu: Array, root: Array) -> Sums:
    """Return sums over z as sums over z' with z = ν + Γ^{1/2}z'; O(dq³)."""
    inverse, moved = _array.namespace(root).linalg.inv(root), shifted(sums, nu)
    return moved._replace(
        zz=inverse @ moved.zz @ inverse.T,
        z=moved.z @ inverse.T,
        xz=moved.xz @ inverse.T,
        all_zz=inverse @ moved.all_zz @ inverse.T,
        all_z=inverse @ moved.all_z,
    )


def shifted(sums: Sums, nu: Array) -> Sums:
    """Return sums over z as sums over z − ν; O(dq²)."""
    zz, z = _moved(sums.zz, sums.z, sums.n, nu)
    all_zz, all_z = _moved(sums.all_zz[None, :, :], sums.all_z[None, :], sums.all_n[None, ...], nu)
    xz = sums.xz - sums.x[:, None] * nu
    return sums._replace(zz=zz, z=z, xz=xz, all_zz=all_zz[0, :, :], all_z=all_z[0, :])


def _moved(zz: Array, z: Array, n: Array, nu: Array) -> tuple[Array, Array]:
    """Return Σ(z − ν)(z − ν)ᵀ (k, q, q) and Σ(z − ν) (k, q) from those of z."""
    across = z[:, :, None] * nu
    squares = n[:, None, None] * (nu[:, None] * nu[None, :])
    rows = nu[:, None] * z[:, None, :]
    return zz - across - rows + squares, z - n[:, None] * nu


def moment_sums(moments: Moments, factors: Factors) -> Sums:
    """Return the sums of complete rows from their moments alone, O(d²q): exact at any parameters.

    With A = Σ w(x − μ)(x − μ)ᵀ and E[z] = B(x − μ), B = P⁻¹WᵀΨ⁻¹: Σ (x − μ)E[z]ᵀ = ABᵀ and
    Σ E[zzᵀ] = nP⁻¹ + BABᵀ.
    """
    xp, W, psi = _array.namespace(factors.W), factors.W, factors.psi
    d, q = int(W.shape[0]), int(W.shape[1])
    n, delta = moments.n, moments.mean - factors.mu
    A = moments.scatter + n * delta[:, None] * delta[None, :]
    P = _array.asarray(np.eye(q), W) + W.T @ (W / psi[:, None])
    covariance = xp.linalg.inv(P)
    B = covariance @ (W / psi[:, None]).T
    xz, z = A @ B.T, n * (B @ delta)
    zz, xx = n * covariance + B @ xz, xp.linalg.diagonal(A)
    ones = xp.ones_like(psi)
    distance = xp.sum(xx / psi) - xp.sum(xz * (W / psi[:, None]))
    logdet = xp.linalg.slogdet(P).logabsdet + xp.sum(xp.log(psi)) + d * LOG_2PI
    return Sums(
        zz=ones[:, None, None] * zz,
        z=ones[:, None] * z,
        n=n * ones,
        xz=xz,
        x=n * delta,
        xx=xx,
        all_zz=zz,
        all_z=z,
        all_n=xp.sum(n * ones) / d,
        loglikelihood=-0.5 * (n * logdet + distance),
    )
