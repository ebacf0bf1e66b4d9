"""
Mixed columns: numbers, categories, counts and limits
=====================================================

The columns of a wine table become a category, grades, a boolean, counts, text with a detection
limit, and numbers with a long tail. A fifth of the entries is hidden. :class:`~dualpca.CopulaPPCA`
reads the kinds of the columns from the frame, places every wine on a map, and fills each entry with
a value of its own kind, with an interval or with a probability for every level.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine

from dualpca import PPCA, CopulaPPCA

wine = load_wine(as_frame=True)
X = wine.data.copy()
X["cultivar"] = np.array(["A", "B", "C"])[wine.target]
X["alcohol"] = pd.cut(X["alcohol"], [0, 12.5, 13.3, 20], labels=["light", "medium", "strong"])
X["hue"] = pd.array(X["hue"] > 0.95, dtype="boolean")
X["flavanoids"] = ["<1.0" if v < 1 else f"{v:.2f}" for v in X["flavanoids"]]
X["color_intensity"] = np.exp(X["color_intensity"] / 2)
hidden = np.random.default_rng(0).random(X.shape) < 0.2
table = X.mask(hidden)

model = CopulaPPCA(n_components=2).fit(table)
filled, low, high = model.impute(table, return_interval=True)
print(pd.Series(model.column_kinds_))
print(filled[["alcohol", "hue", "flavanoids", "color_intensity", "cultivar"]].head())

# %%
# How often is it right? Beside it the most frequent level (or the median), and PPCA after one-hot
# coding, the usual way to make numbers of such a table; five tables, each with other gaps.

levels = ["cultivar", "alcohol", "hue"]
numeric = [name for name in X if X[name].dtype.kind in "fi"]


def usual(table):
    """Fill with medians and most frequent levels."""
    return table.apply(lambda c: c.fillna(c.median() if c.name in numeric else c.mode()[0]))


def one_hot(table):
    """Fill by PPCA of numbers and indicators of levels."""
    coded = pd.get_dummies(table[numeric + levels], columns=levels, dtype=float)
    own = {name: [c for c in coded if c.startswith(f"{name}_")] for name in levels}
    for name in levels:
        coded.loc[table[name].isna(), own[name]] = np.nan
    done = PPCA(2, standardize=True).fit(coded).impute(coded)
    best = {name: done[own[name]].idxmax(axis=1).str.removeprefix(f"{name}_") for name in levels}
    return done.assign(**best)


def copula(table):
    """Fill by the copula model."""
    return CopulaPPCA(2).fit(table).impute(table)


def errors(values, hidden):
    """Return the share of wrong levels, and the error of numbers beside the median's."""
    gone = {name: hidden[:, list(X).index(name)] for name in X}
    wrong = [(values[n].astype(str) != X[n].astype(str))[gone[n]] for n in levels]
    off = [
        np.abs(values[n] - X[n])[gone[n]].mean()
        / np.abs(X[n].mask(gone[n]).median() - X[n])[gone[n]].mean()
        for n in numeric
    ]
    return np.concatenate(wrong).mean(), np.mean(off)


gaps = [np.random.default_rng(seed).random(X.shape) < 0.2 for seed in range(5)]
ways = {"median, most frequent": usual, "PPCA, one-hot": one_hot, "CopulaPPCA": copula}
found = {
    way: np.mean([errors(fill(X.mask(gone)), gone) for gone in gaps], axis=0)
    for way, fill in ways.items()
}

# %%
# On the left the map: rings are wines whose cultivar was hidden, in the colour of the most probable
# one. In the middle the column with a long tail; on the right the errors.

fig, axes = plt.subplots(1, 3, figsize=(10.6, 3.9), layout="constrained")
colours = dict(zip("ABC", ("#0072b2", "#d55e00", "#009e73"), strict=True))
T, known = model.transform(table), table["cultivar"].notna()
for level, colour in colours.items():
    these = filled["cultivar"] == level
    axes[0].scatter(*T[these & known].T, s=14, color=colour, alpha=0.7, label=level)
    axes[0].scatter(*T[these & ~known].T, s=45, facecolor="none", edgecolor=colour, lw=1.3)
W = pd.DataFrame(model.loadings_, index=model.loading_names_)
for name in ("hue=True", "flavanoids", "color_intensity", "alcohol", "proline", "malic_acid"):
    tip = 2.4 * W.loc[name]
    axes[0].annotate("", tip, (0, 0), arrowprops={"arrowstyle": "->", "color": "0.35"})
    axes[0].text(*(1.12 * tip), name, fontsize=8, ha="center", va="center", color="0.2")
axes[0].set(xlabel="first latent", ylabel="second latent", title="one map of all kinds of columns")
axes[0].margins(0.12)
axes[0].set_xlim(-3.4, 2.8)
axes[0].legend(title="cultivar", fontsize=8)

name = "color_intensity"
gone = hidden[:, list(X).index(name)]
middle = filled[name][gone]
spread = np.abs([low[name][gone] - middle, high[name][gone] - middle])
axes[1].errorbar(X[name][gone], middle, yerr=spread, fmt="o", ms=4, color="#0072b2", ecolor="0.8")
ends = [X[name].min(), X[name].max()]
axes[1].plot(ends, ends, color="0.4", lw=1)
of_numbers = hidden[:, [list(X).index(n) for n in numeric]]
inside = ((low[numeric] <= X[numeric]) & (X[numeric] <= high[numeric])).to_numpy()[of_numbers]
axes[1].set(xscale="log", yscale="log", xlabel=f"{name}, what had been there")
axes[1].set(ylabel="imputed, with 90 % interval")
axes[1].set(title=f"intervals hold {100 * inside.mean():.0f} % of {inside.size} hidden numbers")

places = np.arange(2)
for k, (way, values) in enumerate(found.items()):
    colour = ("0.75", "#56b4e9", "#0072b2")[k]
    bars = axes[2].bar(places + 0.27 * (k - 1), values, 0.25, color=colour, label=way)
    axes[2].bar_label(bars, fmt="%.2f", fontsize=8)
axes[2].set(xticks=places, xticklabels=["wrong levels", "error of numbers,\nrelative to medians"])
axes[2].set(ylim=(0, 1.35), title="entries that were taken out")
axes[2].legend(fontsize=8)
plt.show()
