"""
Filling holes, with error bars
==============================

A fifth of a table is taken out. PPCA is fitted to what is left, and says what was there and how
surely: the truth should lie within the 90 % intervals nine times in ten.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from dualpca import PPCA

X = scale(load_wine().data)
holes = np.random.default_rng(0).random(X.shape) < 0.2
model = PPCA(n_components=4).fit(np.where(holes, np.nan, X))
filled, std = model.impute(np.where(holes, np.nan, X), return_std=True)

truth, guess, spread = X[holes], filled[holes], std[holes]
inside = np.abs(truth - guess) < 1.645 * spread
fig, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
ax.errorbar(guess, truth, xerr=1.645 * spread, fmt=".", color="#0072b2", ecolor="0.8", lw=0.8)
ax.plot([-3, 3], [-3, 3], color="0.4", lw=1)
ax.set(
    xlabel="imputed, with 90 % interval",
    ylabel="what had been there",
    xlim=(-4, 4),
    ylim=(-4, 4),
    title=f"{100 * inside.mean():.0f} % of {truth.size} intervals hold the truth",
)
plt.show()
