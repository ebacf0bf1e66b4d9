"""
Kernel PCA with uncertainty
===========================

:class:`~dualpca.DualPPCA` has the components of kernel PCA, and a density: rows far from the curve
are unlikely. Where the error of the columns is known, it says what that does to the position of a
row along the curve.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import DualPPCA

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, 400)
circle = np.column_stack([np.cos(angle), np.sin(angle)])
X = circle + 0.1 * rng.normal(size=(400, 2))

model = DualPPCA(4, gamma=1.0).fit(X)

# %%
# Left: the log-density over the plane, relative to its largest value. Right: the first two latents
# of twenty rows, with what an error of 0.1 in both columns does to them (90 % ellipses).
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
grid = np.stack(np.meshgrid(*2 * [np.linspace(-2, 2, 81)]), axis=-1)
density = model.score_samples(grid.reshape(-1, 2)).reshape(81, 81)
filled = left.contourf(
    *grid.T, (density - density.max()).T, range(-400, 1, 50), cmap="Blues", extend="min"
)
left.plot(*X.T, ".", color="#d55e00", ms=2)
left.set(title="log-density", aspect="equal")
fig.colorbar(filled, ax=left, shrink=0.8)

latents = model.transform(X)
right.plot(*latents[:, :2].T, ".", color="#bbbbbb", ms=3)
around = np.column_stack([np.cos(np.linspace(0, 7, 60)), np.sin(np.linspace(0, 7, 60))])
for row in X[:20]:
    middle = model.transform(row[None])[0, :2]
    spread = model.latent_covariance(row[None], noise=0.1)[0, :2, :2]
    ring = middle + 2.146 * around @ np.linalg.cholesky(spread + 1e-12 * np.eye(2)).T
    right.plot(*ring.T, color="#0072b2", lw=1)
right.set(title="where rows are", xlabel="first latent", ylabel="second latent", aspect="equal")
plt.show()

# %%
# The centre of the circle is the mean of the rows, and yet unlikely, since no row is near it:
for name, point in {"on the circle": (1, 0), "its centre": (0, 0), "far away": (20, 0)}.items():
    print(f"{name:14s}{model.score_samples([point])[0]:8.0f}")
