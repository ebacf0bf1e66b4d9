"""
Digits that nobody wrote
========================

A density over the latents of kernel PCA, samples from it, decoded by a pre-image; below each its
nearest training digit.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from dualpca import Generator, KernelPCA

X = load_digits().data / 16
model = KernelPCA(30, kernel="rbf", gamma="median", preimage="learned").fit(X)
maker = Generator(model, random_state=0).fit(X)
new = maker.sample(10, random_state=0)
near = X[maker.nearest(new).index]

fig, axes = plt.subplots(2, 10, figsize=(9, 2.1), layout="constrained")
for k in range(10):
    axes[0, k].imshow(new[k].reshape(8, 8), cmap="gray_r")
    axes[1, k].imshow(near[k].reshape(8, 8), cmap="gray_r")
for ax in axes.flat:
    ax.axis("off")
axes[0, 0].set_title("new", loc="left")
axes[1, 0].set_title("nearest", loc="left")
plt.show()
