"""
Looking at what is filled in
============================

Air quality in New York, 1973: ozone is missing on a quarter of the days. Where are entries missing,
what is filled in, and how far can that be trusted?
"""

import matplotlib.pyplot as plt
import pandas as pd

from dualpca import CopulaPPCA, datasets, plots

found = datasets.airquality()
X = pd.DataFrame(found.X, columns=found.columns).drop(columns="Day")
model = CopulaPPCA(random_state=0).fit(X)

# %%
# Where entries are missing
# -------------------------
# Each line is a set of columns that are missing together.

plots.missing_map(X)
plt.show()

# %%
# What is filled in
# -----------------
# Five completed tables beside what was measured. Ozone is missing on ordinary days: the values
# filled in are spread like the measured ones. The copula fills no ozone below zero.

plots.imputed_values(model, X, random_state=0)
plt.show()

# %%
# Two columns against each other: where both are known, and where one was filled in by a draw.

plots.imputed_values(model, X, kind="scatter", columns=["Ozone", "Temp"])
plt.show()

# %%
# How far it can be trusted
# -------------------------
# Every known entry is predicted from the rest of its row by a model that has not seen it. Ozone
# follows the other columns; of solar radiation they know little, and its intervals are wide.

plots.overimpute(model, X)
plt.show()
