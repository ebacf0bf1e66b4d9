"""Rows, kernels and random numbers for tests of feature maps."""

import numpy as np

from dualpca import KernelPCA

GAMMA = 0.3


def rows(n=80, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) + 0.5


def random(seed=0):
    return np.random.default_rng(seed)


def rbf(q=None, solver="nystrom", **options):
    return KernelPCA(q, kernel="rbf", gamma=GAMMA, eigen_solver=solver, **options)
