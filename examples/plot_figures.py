"""
Figures for a paper
===================

Chemical analyses of 178 wines: where the wines lie with ellipses of the three cultivars, which
columns make the components, and how many components there are.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

from dualpca import PCA, plots

wine = load_wine(as_frame=True)
X = wine.data.rename(columns={"od280/od315_of_diluted_wines": "od280/od315"})
cultivar = wine.target.map({0: "Barolo", 1: "Grignolino", 2: "Barbera"})
model = PCA(3, standardize=True).fit(X)

# %%
# Rows and groups
# ---------------
# A further wine of a cultivar lies within the large ellipse with a probability of 95 %, the mean of
# the cultivar within the small one. The furthest wines are named by their number.

Z = model.transform(X)
names = [str(i) if max(abs(z[:2])) > 3.9 else None for i, z in enumerate(Z)]
plots.latent_scatter(model, X, cultivar, groups="both", level=0.95, labels=names)
plt.show()

# %%
# Columns
# -------
# Correlations with the components, and what each column contributes to both of them.

figure = plt.figure(figsize=(11, 5), layout="constrained")
left, right = figure.subfigures(1, 2)
plots.correlation_circle(model, X, ax=left)
plots.quality_bars(model, X, show="contribution", ax=right)
plt.show()

# %%
# Loadings with their uncertainty
# -------------------------------
# The model is refitted to bootstraps of the rows. Grey intervals hold 0.

plots.loading_plot(model, X, random_state=0)
plt.show()

# %%
# How many components
# -------------------
# Three eigenvalues are larger than permuted columns have them.

plots.scree(model, X, parallel=True)
plt.show()
