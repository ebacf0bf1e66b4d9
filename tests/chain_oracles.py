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
