"""
States of a time series
=======================

Three channels switch between two regimes. In one regime the first channel moves; in the other the
second and third move in opposite directions. Means do not change, only the direction of the
movement. :class:`~dualpca.HiddenMarkovPCA` learns both regimes and returns the probability of each
at every step.
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
second = int(np.argmax(probability[state == 1].mean(axis=0)))
path = model.predict(X) == second
print(f"{100 * np.mean(path == (state == 1)):.1f} % of the steps have the right state")

# %%
# Shaded: the true second regime. The probability follows it from the movement of the channels
# alone.

fig, (top, bottom) = plt.subplots(
    2, 1, figsize=(7, 4.6), sharex=True, height_ratios=[2, 1], layout="constrained"
)
steps = np.arange(300)
for k, colour in enumerate(("#0072b2", "#009e73", "#d55e00")):
    top.plot(steps, X[:, k] - 5 * k, color=colour, lw=1)
    top.text(-6, -5 * k, f"channel {k + 1}", color=colour, ha="right", va="center")
top.set(yticks=[], xlim=(0, 299))
bottom.plot(steps, probability[:, second], color="k", lw=1.5)
bottom.set(xlabel="time step", ylabel="probability\nof regime 2", ylim=(-0.05, 1.05))
for ax in (top, bottom):
    ax.fill_between(
        steps, 0, 1, where=state == 1, color="0.88", step="mid", zorder=0,
        transform=ax.get_xaxis_transform(),
    )  # fmt: skip
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
