"""
Two tables of the same rows
===========================

:class:`~dualpca.CCA` finds what two tables share and predicts one from the other. Here the tables
are the left and the right halves of handwritten digits: the model sees the left half of a new digit
and fills in the right half.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualpca import CCA

images = load_digits().images / 16
left, right = (half.reshape(len(images), -1) for half in (images[:, :, :4], images[:, :, 4:]))
used = [half.std(axis=0) > 0.02 for half in (left, right)]  # some pixels are always white
left, right = left[:, used[0]], right[:, used[1]]
train, test = slice(0, 1500), slice(1500, None)

model = CCA(10, regularization=0.01).fit(left[train], right[train])
first, second = model.transform(left[test], right[test])
guess = model.predict(left[test])
correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(first.T, second.T, strict=True)]
share = 1 - np.sum((guess - right[test]) ** 2) / np.sum(
    (right[train].mean(axis=0) - right[test]) ** 2
)
print("correlations on new digits:", np.round(correlation, 2))
print(f"share of the right half's variance predicted from the left half: {share:.2f}")

# %%
# The first pair of canonical variates, and completed digits
# ----------------------------------------------------------

fig = plt.figure(figsize=(8, 3.6), layout="constrained")
scatter, pictures = fig.subfigures(1, 2, width_ratios=[1, 1.5])
ax = scatter.subplots()
ax.plot(first[:, 0], second[:, 0], ".", color="#0072b2", ms=4)
ax.set(xlabel="left half, variate 1", ylabel="right half, variate 1")
ax.set_title(f"correlation {correlation[0]:.2f}", fontsize=11)


def whole(a, b):
    """Return images made of both halves."""
    found = np.zeros((len(a), 2, 32))
    found[:, 0, used[0]], found[:, 1, used[1]] = a, b
    return np.concatenate([found[:, 0].reshape(-1, 8, 4), found[:, 1].reshape(-1, 8, 4)], axis=2)


rows = {"digit": right[test], "given": np.full_like(guess, np.nan), "completed": guess}
axes = pictures.subplots(3, 5)
for line, (name, half) in zip(axes, rows.items(), strict=True):
    for ax, digit in zip(line, whole(left[test], half), strict=False):
        ax.imshow(np.where(np.isnan(digit), 0.5, digit), cmap="gray_r", vmin=0, vmax=1)
        ax.axvline(3.5, color="#d55e00", lw=1)
        ax.axis("off")
    line[0].text(
        -0.15, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize=10
    )
plt.show()
