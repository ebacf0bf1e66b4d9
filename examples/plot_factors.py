"""
Factor analysis and rotation
============================

Nine tests measure three abilities of 600 people. Factor analysis finds the space of the abilities,
but any rotation of its axes fits equally well. Varimax chooses the rotation in which every test has
few large loadings, and the abilities appear. Each test has a noise variance of its own.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import FactorAnalysis

rng = np.random.default_rng(0)
tests = [f"{kind} {k}" for kind in ("words", "numbers", "shapes") for k in (1, 2, 3)]
W = np.kron(np.eye(3), [[1.0], [0.9], [0.8]]) + 0.15
noise = rng.uniform(0.2, 1.0, 9)
X = rng.normal(size=(600, 3)) @ W.T + rng.normal(size=(600, 9)) * np.sqrt(noise)

plain = FactorAnalysis(3).fit(X)
turned = FactorAnalysis(3, rotation="varimax").fit(X)
print("log-density per row:", round(plain.score(X), 6), round(turned.score(X), 6))

fig, axes = plt.subplots(1, 3, figsize=(8, 4), width_ratios=[1, 1, 1.3], layout="constrained")
for ax, model, title in zip(axes, (plain, turned), ("no rotation", "varimax"), strict=False):
    picture = ax.imshow(model.components_.T, cmap="RdBu", vmin=-1.2, vmax=1.2, aspect="auto")
    ax.set(title=title, xlabel="factor", xticks=range(3), yticks=range(9))
    ax.set_yticklabels(tests if model is plain else [])
fig.colorbar(picture, ax=axes[1], label="loading")
axes[2].plot(noise, range(9), "o", mfc="none", color="k", label="true")
axes[2].plot(turned.noise_variance_, range(9), "o", color="#d55e00", ms=4, label="found")
axes[2].set(title="noise of each test", yticks=[], ylim=(8.5, -0.5), xlim=(0, 1.2))
axes[2].legend(frameon=False)
plt.show()
