"""
Outliers, and why
=================

A row can be odd in two ways: far out along the components (T²), or off them (SPE). Limits are
frozen at fit; contributions name the columns.
"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from dualpca import PPCA, plots

X = scale(load_wine().data)
new = X[:40].copy()
new[7, 3] += 6.0  # one reading gone wrong
new[20] *= 3.0  # everything too large
model = PPCA(n_components=4).fit(X)
print("flagged rows:", np.flatnonzero(model.outliers(new).flagged))
figure = plots.outlier_map(model, new)
