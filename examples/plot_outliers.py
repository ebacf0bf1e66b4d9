"""
Outliers and the columns behind them
====================================

A row can be unusual in two ways: far from the mean along the components (Hotelling's T²), or far
from the components (the squared prediction error, SPE). Limits are fixed by the fit. Contributions
name the columns behind a flagged row.
"""

import numpy as np
from sklearn.datasets import load_wine

from dualpca import PPCA, plots

data = load_wine()
X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
model = PPCA(n_components=4).fit(X)

# %%
# Two rows are changed
# --------------------
# Row 7 gets one wrong reading, and all readings of row 20 are three times too large.

new = X[:40].copy()
new[7, 3] += 6.0
new[20] *= 3.0
found = model.outliers(new)
print("flagged rows:", np.flatnonzero(found.flagged))
print(f"expected among 40 ordinary rows: {found.expected:.0f}")
figure = plots.outlier_map(model, new)

# %%
# Why rows 13 and 25 are flagged too
# ----------------------------------
# Nobody changed them. The limits are set so that 5 % of ordinary rows lie beyond one of them, which
# is 2 of 40. A level closer to 1 flags fewer: at 0.99 only the changed rows are left.

print("flagged at 0.99:", np.flatnonzero(model.outliers(new, level=0.99).flagged))

# %%
# Which columns are behind row 7
# ------------------------------
# The largest contribution is that of the reading that was changed.

contribution = model.contributions(new[[7]])[0]
print("largest contribution:", data.feature_names[int(np.argmax(contribution))])
print("changed reading:     ", data.feature_names[3])
