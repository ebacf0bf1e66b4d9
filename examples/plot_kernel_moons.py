"""
Kernel PCA of two moons
=======================

No direction in the plane separates the two moons. In the feature space of an RBF kernel the first
component does.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from dualpca import PCA, KernelPCA

X, y = make_moons(200, random_state=0)
views = {
    "the points": X,
    "linear PCA": PCA(2).fit_transform(X),
    "kernel PCA": KernelPCA(2, kernel="rbf", gamma=20.0).fit_transform(X),
}
fig, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for ax, (name, Z) in zip(axes, views.items(), strict=True):
    for k, (colour, mark) in enumerate((("#0072b2", "o"), ("#d55e00", "^"))):
        ax.plot(*Z[y == k].T, mark, color=colour, ms=3)
    ax.set_title(name)
plt.show()
