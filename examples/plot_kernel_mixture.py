"""
A mixture in the space of a kernel
==================================

A ring surrounds a disc. Both have the same centre, so a mixture of ellipses cannot separate them.
The same mixture in the feature space of an RBF kernel does.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import MixturePPCA

rng = np.random.default_rng(0)
angle, truth = rng.uniform(0, 2 * np.pi, 400), np.repeat([0, 1], 200)
radius = np.where(truth, 2.0, 0.6 * np.sqrt(rng.random(400))) + 0.12 * rng.normal(size=400)
X = np.c_[radius * np.cos(angle), radius * np.sin(angle)]

models = {
    "in the plane": MixturePPCA(2, 1, n_init=5, random_state=0),
    "in the kernel's space": MixturePPCA(
        2, 2, kernel="rbf", kernel_params={"gamma": 0.5}, n_directions=5, n_init=5, random_state=0
    ),
}
grid = np.stack(np.meshgrid(np.linspace(-3, 3, 80), np.linspace(-3, 3, 80)), axis=-1)
fig, axes = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    labels = model.fit_predict(X)
    flip = np.mean(labels == truth) < 0.5
    p = model.predict_proba(grid.reshape(-1, 2))[:, 0 if flip else 1].reshape(80, 80)
    ax.contourf(grid[..., 0], grid[..., 1], p, levels=20, cmap="PuOr", alpha=0.6, vmin=0, vmax=1)
    for k, mark in enumerate("o^"):
        ax.plot(*X[truth == k].T, mark, color="k", ms=3, mfc="none", mew=0.6)
    right = np.mean((labels == truth) != flip)
    ax.set(title=f"{name}: {100 * right:.0f} % correct", aspect="equal")
plt.show()
