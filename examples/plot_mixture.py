"""
A mixture of local PCA models
=============================

Three elongated clusters point in different directions. :class:`~dualpca.MixturePPCA` finds the
clusters together with their directions.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import MixturePPCA

rng = np.random.default_rng(0)
parts = []
for centre, slope in (((0, 0), 0.2), ((4, 1), -1.0), ((1, 5), 3.0)):
    along = rng.normal(size=(120, 1)) @ np.array([[1.0, slope]]) / np.hypot(1, slope) * 1.5
    parts.append(np.array(centre) + along + 0.2 * rng.normal(size=(120, 2)))
X = np.concatenate(parts)
model = MixturePPCA(n_mixtures=3, n_components=1, random_state=0).fit(X)
labels = model.predict(X)

fig, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
for k, (colour, mark) in enumerate((("#0072b2", "o"), ("#d55e00", "^"), ("#009e73", "s"))):
    ax.plot(*X[labels == k].T, mark, color=colour, ms=3, label=f"component {k}")
ax.set(aspect="equal", title=f"log-likelihood {model.score(X):.2f} per row")
ax.legend(frameon=False)
plt.show()
