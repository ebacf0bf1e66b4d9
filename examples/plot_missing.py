"""
Missing values, filled with error bars
======================================

A fifth of the entries of a table is hidden. :class:`~dualpca.PPCA` is fitted to the rest and fills
the gaps. Each filled entry has a standard deviation, and so an interval. The 90 % intervals should
hold nine in ten of the hidden values.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from dualpca import PPCA

# %%
# Hide entries and fill them
# --------------------------
# Columns have different units, so they are standardised.

X = load_wine().data
X = (X - X.mean(axis=0)) / X.std(axis=0)
rng = np.random.default_rng(0)
hidden = rng.random(X.shape) < 0.2
table = np.where(hidden, np.nan, X)
model = PPCA(n_components=4).fit(table)
filled, std = model.impute(table, return_std=True)

truth, guess, reach = X[hidden], filled[hidden], 1.645 * std[hidden]
inside = np.abs(truth - guess) < reach
print(f"{100 * inside.mean():.0f} % of {truth.size} intervals hold the hidden value")

# %%
# Forty of the filled entries
# ---------------------------
# Entries are sorted by their hidden value. Filled values are nearer to the mean than the hidden
# ones: what the other columns do not tell cannot be predicted, and the intervals say so.

some = np.sort(rng.choice(truth.size, 40, replace=False))
some = some[np.argsort(truth[some])]
places = np.arange(40)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.errorbar(
    places,
    guess[some],
    yerr=reach[some],
    fmt="o",
    color="#0072b2",
    ms=5,
    lw=1.5,
    label="filled, 90 % interval",
)
ax.plot(places, truth[some], "x", color="#d55e00", ms=7, mew=2, label="hidden value")
ax.set(xlabel="hidden entry, sorted by its value", ylabel="standardised value", xticks=[])
ax.legend(loc="upper left")
plt.show()
