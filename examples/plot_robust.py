"""
Robust PCA: axes that outliers do not turn
==========================================

A fifth of the rows is wrong, all in the same way. PPCA gives its first axis to them and does not
flag them. :class:`~dualpca.RobustPPCA` starts from the most central rows, weights rows by a t
distribution and sets aside those too far even for its tails. It holds until about a third of the
rows are wrong.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import PPCA, RobustPPCA


def table(share, seed=0, n=300, d=10):
    """Return rows around two directions, `share` of them wrong, and the directions."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(d, 2)))[0]
    X = rng.normal(size=(n, 2)) * [4.5, 3.0] @ axes.T + rng.normal(size=(n, d))
    wrong = rng.permutation(n) < share * n
    place = rng.normal(size=d)
    X[wrong] = 30 * place / np.linalg.norm(place) + rng.normal(size=(wrong.sum(), d))
    return X, axes, wrong


def angle(model, axes):
    """Return the largest angle between the fitted and the true plane, in degrees."""
    cosines = np.linalg.svd(model.components_ @ axes, compute_uv=False)
    return np.degrees(np.arccos(min(1.0, cosines.min())))


X, axes, wrong = table(0.2)
models = {"PPCA": PPCA(2).fit(X), "RobustPPCA": RobustPPCA(2).fit(X)}
fig, panels = plt.subplots(1, 3, figsize=(9.2, 3.5), layout="constrained")
for ax, (name, model) in zip(panels, models.items(), strict=False):
    found = model.outliers(X)
    for rows, colour, label in ((~wrong, "#0072b2", "right"), (wrong, "#d55e00", "wrong")):
        ax.plot(found.t2[rows], found.spe[rows], ".", color=colour, label=label)
    ax.axvline(found.t2_limit[0], color="0.4", lw=1)
    ax.axhline(found.spe_limit[0], color="0.4", lw=1)
    caught, alarms = found.flagged[wrong].mean(), found.flagged[~wrong].mean()
    title = f"{name} flags {caught:.0%} of the wrong rows,\n{alarms:.0%} of the right ones"
    ax.set(xscale="log", yscale="log", xlabel="T²")
    ax.set_title(title, fontsize=10)
panels[0].set_ylabel("SPE")
panels[0].legend(loc="lower left")

shares = [0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35]
for name, kind, colour in (("PPCA", PPCA, "#d55e00"), ("RobustPPCA", RobustPPCA, "#0072b2")):
    angles = []
    for share in shares:
        X, axes, _ = table(share, seed=1)
        angles.append(angle(kind(2).fit(X), axes))
    panels[2].plot(shares, angles, "o-", color=colour, label=name)
    print(f"{name:10s}", *(f"{a:5.1f}°" for a in angles))
panels[2].set(
    xlabel="share of wrong rows", ylabel="largest angle to the true plane, °", ylim=(0, 90)
)
panels[2].set_title("The plane that was found", fontsize=10)
panels[2].legend(loc="center")
plt.show()
