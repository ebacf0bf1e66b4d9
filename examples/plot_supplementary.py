"""
Supplementary columns
=====================

Chemical measurements place the wines. The cultivar and the alcohol are not part of the fit and are
shown where they fall: white diamonds are the mean positions of the three cultivars, and the dashed
arrow points where alcohol rises.
"""

from sklearn.datasets import load_wine

import dualpca
from dualpca import plots

X, cultivar = load_wine(return_X_y=True, as_frame=True)
chemistry = X.drop(columns=["alcohol", "proline"])
cultivar = cultivar.map({0: "Barolo", 1: "Grignolino", 2: "Barbera"})
beside = X[["alcohol"]].assign(cultivar=cultivar)
model = dualpca.PPCA(2, standardize=True).fit(chemistry)
found = dualpca.supplementary(model, chemistry, beside)
print("correlations of alcohol:", found.numbers.correlation.round(2))
print("v-tests of the cultivars:\n", found.levels.v_test.round(1))
figure = plots.biplot(model, chemistry, cultivar, n_features=6, supplementary=found)
