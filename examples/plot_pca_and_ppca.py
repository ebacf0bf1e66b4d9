"""
A direction, and how sure we are of it
======================================

PCA finds the direction in which points vary most. PPCA finds the same one, and adds what noise
leaves open: where each point lies along it, with error bars, and how usual the point is.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import PPCA

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 1)) * 2.0 @ np.array([[1.0, 0.6]]) + 0.4 * rng.normal(size=(60, 2))
model = PPCA(n_components=1).fit(X)

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
points = ax.scatter(*X.T, c=model.score_samples(X), cmap="cividis", label="points")
ax.plot(*model.reconstruct(X).T, "k.", ms=4, label="reconstructed")
for x, y in zip(X, model.reconstruct(X), strict=True):
    ax.plot(*np.stack([x, y]).T, color="0.7", lw=0.8, zorder=0)
ax.set(aspect="equal", xlabel="first feature", ylabel="second feature")
fig.colorbar(points, label="log-density")
ax.legend(frameon=False)
plt.show()
