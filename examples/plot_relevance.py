"""
Bayesian PCA finds the number of components
===========================================

Three of ten directions are stronger than the others. PPCA with nine components uses all nine.
Bayesian PCA gives every column of the loadings a prior variance of its own, and the variances of
columns that the data do not need go to zero. The lower figure shows how often the number is right
as the number of rows falls.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from dualpca import PPCA, BayesianPCA

rng = np.random.default_rng(0)
spread = np.repeat([1.0, 0.5], [3, 7])
X = rng.normal(size=(300, 10)) * spread
free, bayes = PPCA(9).fit(X), BayesianPCA(9).fit(X)
loadings = np.zeros((10, 9))
loadings[:, : bayes.n_components_] = bayes.loadings_

sizes = (20, 40, 80, 160, 320)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns where no direction is left
    found = [
        [BayesianPCA(9).fit(rng.normal(size=(n, 10)) * spread).n_effective_ for _ in range(20)]
        for n in sizes
    ]

fig = plt.figure(figsize=(7, 6), layout="constrained")
top, bottom = fig.subfigures(2, 1, height_ratios=[1.3, 1])
axes = top.subplots(1, 2, sharey=True)
for ax, W, title in zip(axes, (free.loadings_, loadings), ("PPCA", "Bayesian PCA"), strict=True):
    picture = ax.imshow(W, cmap="RdBu", vmin=-1, vmax=1)
    ax.set(title=f"{title}: {np.sum(np.abs(W).max(axis=0) > 1e-6)} columns", xlabel="column of W")
axes[0].set_ylabel("feature")
top.colorbar(picture, ax=axes, label="loading")
ax = bottom.subplots()
for k, counts in enumerate(found):
    number, times = np.unique(counts, return_counts=True)
    ax.scatter(np.full(number.size, k), number, s=16 * times, color="#0072b2")
ax.axhline(3, color="#d55e00", lw=1, zorder=0)
ax.set(xticks=range(5), xticklabels=sizes, xlabel="rows", ylabel="directions kept")
ax.set_title("20 tables each; area: how often; line: the truth", fontsize=10)
plt.show()
