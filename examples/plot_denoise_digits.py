"""
Digits, noisy and clean
=======================

Kernel PCA learns what digits look like from 1,500 of them. New ones, with noise on top, are
projected on its components and led back by a map that was learned from latents to pixels.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualpca import PCA, KernelPCA

X = load_digits().data / 16
train, test = X[:1500], X[1500:1600]
noisy = test + 0.25 * np.random.default_rng(0).normal(size=test.shape)
rows = {
    "written": test,
    "with noise": noisy,
    "linear, q = 32": PCA(32).fit(train).reconstruct(noisy),
    "kernel, q = 32": KernelPCA(32, kernel="rbf", gamma="median", preimage="learned")
    .fit(train)
    .denoise(noisy),
}

fig, axes = plt.subplots(4, 10, figsize=(8, 3.6), layout="constrained")
for line, (name, pixels) in zip(axes, rows.items(), strict=True):
    for ax, digit in zip(line, pixels[:10], strict=True):
        ax.imshow(digit.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.axis("off")
    error = np.mean((pixels - test) ** 2)
    line[0].set_title(f"{name}, squared error {error:.4f}", loc="left", fontsize=9)
plt.show()
