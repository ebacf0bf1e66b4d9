"""
Two views of the same things
============================

Canonical correlation as a model: what two sets of measurements share, and one set predicted from
the other.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_linnerud
from sklearn.preprocessing import scale

from dualpca import CCA

exercise, body = (scale(A) for A in load_linnerud(return_X_y=True))
model = CCA(1).fit(exercise, body)
first, second = model.transform(exercise, body)

fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.plot(first[:, 0], second[:, 0], "o", color="#0072b2")
ax.set(xlabel="exercise, shared direction", ylabel="body, shared direction")
plt.show()
