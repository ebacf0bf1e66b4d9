"""Hidden Markov chains by enumeration of every path: slow, and beyond doubt."""

from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp


class Enumerated(NamedTuple):
    """Everything about one short sequence, from the probabilities of all its paths."""

    loglikelihood: float
    states: np.ndarray  # (T, S), P(state at t | all rows)
    transitions: np.ndarray  # (S, S), expected number of transitions
    filtered: np.ndarray  # (T, S), P(state at t | rows up to t)
    best: tuple  # (log-probability, path)


def path_logs(start, transitions, log_b):
    """Return every path and its joint log-probability with the rows."""
    with np.errstate(divide="ignore"):
        a0, a = np.log(start), np.log(transitions)
    steps, n_states = log_b.shape
    paths = list(product(range(n_states), repeat=steps))
    logs = np.array(
        [
            a0[p[0]]
            + sum(a[i, j] for i, j in pairwise(p))
            + sum(log_b[t, s] for t, s in enumerate(p))
            for p in paths
        ]
    )
    return paths, logs


def enumerate_paths(start, transitions, log_b):
    """Return likelihood, smoothing, filtering and the best path by brute force."""
    steps, n_states = log_b.shape
    paths, logs = path_logs(start, transitions, log_b)
    total = logsumexp(logs)
    weights = np.exp(logs - total)
    states, counts = np.zeros((steps, n_states)), np.zeros((n_states, n_states))
    for path, weight in zip(paths, weights, strict=True):
        for t, s in enumerate(path):
            states[t, s] += weight
        for i, j in pairwise(path):
            counts[i, j] += weight
    filtered = np.zeros((steps, n_states))
    for t in range(steps):
        heads, head_logs = path_logs(start, transitions, log_b[: t + 1])
        for head, log in zip(heads, head_logs, strict=True):
            filtered[t, head[-1]] += np.exp(log - logsumexp(head_logs))
    best = int(np.argmax(logs))
    return Enumerated(float(total), states, counts, filtered, (float(logs[best]), paths[best]))


def dense_log_density(x, mean, covariance):
    """Return ln N of what a row observed, from the dense covariance; 0 if that is nothing."""
    seen = ~np.isnan(x)
    if not seen.any():
        return 0.0
    C, r = covariance[np.ix_(seen, seen)], (x - mean)[seen]
    _, logdet = np.linalg.slogdet(2 * np.pi * C)
    return float(-0.5 * (logdet + r @ np.linalg.solve(C, r)))


def dense_emissions(model, X):
    """Return ln p(x_t | s), (T, S), of a fitted HiddenMarkovPCA from its published parameters."""
    S, M = model.weights_.shape
    found = np.empty((len(X), S))
    for s in range(S):
        parts = []
        for m in range(M):
            W, d = model.loadings_[s][m], X.shape[1]
            C = W @ W.T + model.noise_variances_[s, m] * np.eye(d)
            logs = [dense_log_density(x, model.means_[s, m], C) for x in X]
            parts.append(np.log(model.weights_[s, m]) + np.array(logs))
        found[:, s] = logsumexp(parts, axis=0)
    return found


def weighted_ppca(X, w, q):
    """Return mean, WWᵀ + σ²I of weighted rows by a dense eigendecomposition."""
    mean = w @ X / w.sum()
    S = (w[:, None] * (X - mean)).T @ (X - mean) / w.sum()
    values, vectors = np.linalg.eigh(S)
    sigma2 = values[: X.shape[1] - q].mean()
    V = vectors[:, X.shape[1] - q :]
    return mean, (V * (values[X.shape[1] - q :] - sigma2)) @ V.T + sigma2 * np.eye(X.shape[1])


def baum_welch_step(start, transitions, log_b, lengths, X, q):
    """Return new start, transitions, means, covariances by enumeration and dense algebra."""
    ends = np.cumsum(lengths)
    found = [
        enumerate_paths(start, transitions, log_b[e - n : e])
        for e, n in zip(ends, lengths, strict=True)
    ]
    states = np.concatenate([f.states for f in found])
    counts = sum(f.transitions for f in found)
    first = sum(f.states[0] for f in found)
    emitted = [weighted_ppca(X, states[:, s], q) for s in range(len(start))]
    return first / first.sum(), counts / counts.sum(axis=1, keepdims=True), emitted
