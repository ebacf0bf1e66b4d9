"""
Generating digits
=================

New digits are drawn from a density over the latents of kernel PCA and decoded to pixels. One
density per class keeps the draws away from the gaps between classes. A draw should look like a
digit without being a copy of a training digit.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualpca import Generator, KernelPCA

X, y = load_digits(return_X_y=True)
X = X / 16
order = np.random.default_rng(0).permutation(len(X))
train, held_out = order[:1200], order[1200:]
model = KernelPCA(30, kernel="rbf", gamma="median", preimage="learned").fit(X[train])

# %%
# One density, or one per class
# -----------------------------
# Both are compared with digits that were not used for the fit. Precision is the share of draws that
# lie among those digits, recall the share of those digits that lie among the draws. Novelty is the
# distance of a draw from its nearest training digit, relative to the same distance of the held-out
# digits: 1 is as new as a real digit, 0 is a copy.

makers = {
    "one density": Generator(model, random_state=0).fit(X[train]),
    "one per class": Generator(model, by_class=True, random_state=0).fit(X[train], y[train]),
}
for name, maker in makers.items():
    found = maker.quality(X[held_out], random_state=0)
    print(
        f"{name:14s} precision {found.precision:.2f}, recall {found.recall:.2f}, "
        f"novelty {found.novelty:.2f}"
    )

# %%
# Draws from one density per class
# --------------------------------
# Below each draw is its nearest training digit.

maker = makers["one per class"]
new = np.concatenate([maker.sample(1, random_state=k, label=k) for k in range(10)])
near = X[train][maker.nearest(new).index]

fig, axes = plt.subplots(2, 10, figsize=(8, 2.1))
fig.subplots_adjust(left=0.11, right=0.995, top=0.98, bottom=0.02, wspace=0.06, hspace=0.06)
for line, pixels, name in zip(axes, (new, near), ("drawn", "nearest"), strict=True):
    for ax, digit in zip(line, pixels, strict=True):
        ax.imshow(digit.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.axis("off")
    line[0].text(
        -0.15, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize=11
    )
plt.show()
