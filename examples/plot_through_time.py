"""
States through time
===================

A signal that switches between two ways of moving. The hidden Markov model learns both and says,
at every step, which one is on.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import HiddenMarkovPCA

rng = np.random.default_rng(0)
state = np.repeat([0, 1, 0, 1], [80, 60, 90, 70])
directions = np.array([[1.0, 0.2, 0.0], [0.0, 1.0, -1.0]])
X = rng.normal(size=(300, 1)) * directions[state] + 0.2 * rng.normal(size=(300, 3))
model = HiddenMarkovPCA(2, 1, stickiness=20.0, n_init=4, random_state=0).fit(X)
probability = model.predict_proba(X)

fig, (top, bottom) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
top.plot(X, lw=0.8)
top.set_ylabel("three channels")
bottom.fill_between(np.arange(300), probability[:, 0], color="#0072b2", alpha=0.6)
bottom.plot(state == state[np.argmax(probability[:, 0])], color="k", lw=1, label="truth")
bottom.set(ylabel="probability of one state", xlabel="time")
bottom.legend(frameon=False)
plt.show()
