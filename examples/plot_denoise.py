"""
Removing noise from a circle
============================

Points on a circle have noise. Kernel PCA projects them on its leading components and finds pre-
images, which lie near the circle. Linear PCA can only project on a straight line.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualpca import PCA, KernelPCA

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, 200)
X = np.c_[np.cos(angle), np.sin(angle)] + 0.1 * rng.normal(size=(200, 2))

results = {
    "noisy": X,
    "linear PCA, q = 1": PCA(1).fit(X).reconstruct(X),
    "kernel PCA, q = 6": KernelPCA(6, kernel="rbf", gamma=1.0).fit(X).denoise(X),
}
fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for ax, (name, Z) in zip(axes, results.items(), strict=True):
    ax.plot(*X.T, ".", color="0.8")
    ax.plot(*Z.T, ".", color="#0072b2")
    off = np.sqrt(np.mean((np.linalg.norm(Z, axis=1) - 1) ** 2))
    ax.set(title=f"{name}\n{off:.3f} from the circle", aspect="equal")
plt.show()
