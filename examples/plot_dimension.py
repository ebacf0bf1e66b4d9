"""
How many components?
====================

Five of twenty directions are stronger than the noise. Seven rules choose the number of components,
from the spectrum or from held-out rows and entries.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import PPCA

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 5)) * np.linspace(3, 1, 5) @ rng.normal(size=(5, 20)) / 2
X += rng.normal(size=X.shape)

rules = ("evidence", "bic", "parallel", "white-noise", "gavish-donoho", "cv-rows", "cv-entries")
chosen = {rule: PPCA(rule, random_state=0).fit(X).n_components_ for rule in rules}
values = np.linalg.eigvalsh(np.cov(X.T, ddof=0))[::-1]

fig, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
ax.bar(np.arange(1, 21), values, color="#0072b2")
ax.axhline(PPCA("bic").fit(X).noise_variance_, color="#d55e00", label="noise floor")
words = "\n".join(f"{rule}: {q}" for rule, q in chosen.items())
ax.text(0.97, 0.6, words, transform=ax.transAxes, ha="right", va="center")
ax.set(xlabel="direction", ylabel="variance", xticks=range(1, 21, 2))
ax.legend(frameon=False)
plt.show()
