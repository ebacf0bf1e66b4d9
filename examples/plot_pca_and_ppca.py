"""
What PPCA adds to PCA
=====================

PCA finds the direction in which points vary most and projects the points on it. PPCA finds the same
direction and adds a noise model. It gives every point a density, an interval for its score, and a
reconstruction that is pulled towards the mean because part of what was measured is noise.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import PCA, PPCA

rng = np.random.default_rng(3)
X = rng.normal(size=(40, 1)) * 1.5 @ np.array([[1.0, 0.5]]) + 0.6 * rng.normal(size=(40, 2))
pca, ppca = PCA(1).fit(X), PPCA(n_components=1).fit(X)
mean, covariance = ppca.posterior(X)
std = np.sqrt(covariance[0, 0, 0])
print(f"noise standard deviation {np.sqrt(ppca.noise_variance_):.2f}")
print(f"the standard deviation of a score, given its row, is {std:.2f}")

# %%
# Left: projections on the axis. Right: lines of equal density, which hold 50 % and 90 % of new
# points, and the reconstructions, four of them with their 90 % intervals.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, model, name in zip(axes, (pca, ppca), ("PCA", "PPCA"), strict=True):
    back = model.reconstruct(X)
    for x, y in zip(X, back, strict=True):
        ax.plot(*np.stack([x, y]).T, color="0.8", lw=0.8, zorder=0)
    ax.plot(*X.T, "o", color="#0072b2", ms=4, label="points")
    ax.plot(*back.T, ".", color="#d55e00", ms=7, label="reconstructions")
    ax.set(title=name, aspect="equal", xlabel="first feature")
axes[0].set_ylabel("second feature")

angle = np.linspace(0, 2 * np.pi, 100)
root = np.linalg.cholesky(ppca.get_covariance())
for share in (0.5, 0.9):
    ring = (
        ppca.mean_ + np.sqrt(-2 * np.log(1 - share)) * np.c_[np.cos(angle), np.sin(angle)] @ root.T
    )
    axes[1].plot(
        *ring.T, color="0.4", lw=1, ls="-" if share == 0.5 else "--", label=f"{share:.0%} of points"
    )
for k in np.argsort(mean[:, 0])[[1, 9, 30, 37]]:
    ends = ppca.inverse_transform(mean[k] + 1.645 * std * np.array([[-1.0], [1.0]]))
    axes[1].plot(*ends.T, color="#d55e00", lw=6, alpha=0.3, solid_capstyle="round")
axes[1].legend(loc="upper left", fontsize=9)
plt.show()
