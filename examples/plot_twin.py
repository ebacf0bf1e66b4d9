"""
Digits on a curved map (GPLVM)
==============================

Two hundred handwritten digits are placed on two coordinates. The plane of PCA puts most digits on
top of each other. :class:`~dualpca.TwinKernelPCA`, a Gaussian process latent variable model, bends
the map. It sees no labels, yet most nearest neighbours are the same digit.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from dualpca import PCA, TwinKernelPCA

X, y = (values[:200] for values in load_digits(return_X_y=True))
X = X / 16
maps = {
    "PCA": PCA(2).fit_transform(X),
    "twin kernel PCA": TwinKernelPCA(2, kernel="linear", feature_dim=64, tol=1e-3)
    .fit(X)
    .coordinates_,
}

fig, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
for ax, (name, Z) in zip(axes, maps.items(), strict=True):
    apart = cdist(Z, Z)
    np.fill_diagonal(apart, np.inf)
    same = np.mean(y[apart.argmin(axis=1)] == y)
    for (a, b), digit in zip(Z, y, strict=True):
        colour = plt.colormaps["tab10"](int(digit))
        ax.text(a, b, str(digit), color=colour, ha="center", va="center", fontsize=8, weight="bold")
    low, high = Z.min(axis=0), Z.max(axis=0)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
    ax.set_title(f"{name}: {100 * same:.0f} % of nearest neighbours alike", fontsize=10)
    ax.margins(0.05)
plt.show()
