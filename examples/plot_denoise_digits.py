"""
Removing noise from digits
==========================

Linear and kernel PCA learn 1,500 handwritten digits. Noise is added to new digits, which are
projected on 32 components and mapped back to pixels. The kernel model uses a map from components to
pixels that is learned from the training digits (``preimage="learned"``).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualpca import PCA, KernelPCA

X = load_digits().data / 16
train, test = X[:1500], X[1500:1600]
noisy = test + 0.25 * np.random.default_rng(0).normal(size=test.shape)
linear = PCA(32).fit(train)
kernel = KernelPCA(32, kernel="rbf", gamma="median", preimage="learned").fit(train)
results = {
    "original": test,
    "with noise": noisy,
    "linear PCA": linear.reconstruct(noisy),
    "kernel PCA": kernel.denoise(noisy),
}

# %%
# The error is the mean squared difference from the original, over 100 digits.

fig, axes = plt.subplots(4, 8, figsize=(7, 4.2))
fig.subplots_adjust(left=0.22, right=0.99, top=0.99, bottom=0.01, wspace=0.05, hspace=0.05)
for line, (name, pixels) in zip(axes, results.items(), strict=True):
    for ax, digit in zip(line, pixels, strict=False):
        ax.imshow(digit.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.axis("off")
    error = np.mean((pixels - test) ** 2)
    words = name if name == "original" else f"{name}\nerror {error:.3f}"
    line[0].text(
        -0.15, 0.5, words, transform=line[0].transAxes, ha="right", va="center", fontsize=11
    )
plt.show()
