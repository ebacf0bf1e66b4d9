"""Tables at the points where digits are lost, made of whole numbers, the same on any machine."""

import json
from pathlib import Path

import numpy as np

HOME = Path(__file__).parent


def uniform(seed):
    """Yield numbers of (−1, 1), by a linear congruence: exact in float64."""
    state = seed
    while True:
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        yield ((state >> 34) - 2**29) / 2**29


def numbers(n, d, seed):
    """Return an array of sums of four uniform numbers, (n, d)."""
    draw = uniform(seed)
    return np.array([sum(next(draw) for _ in range(4)) for _ in range(n * d)]).reshape(n, d)


def product(Z, A):
    """Return Z A, one column after the other: BLAS rounds as its version likes."""
    total = np.zeros((len(Z), A.shape[1]))
    for k, row in enumerate(A):
        total = total + Z[:, k, None] * row
    return total


def signal(n, d, q, seed, noise):
    """Return rows with q directions of falling size, and noise."""
    Z, A, E = numbers(n, q, seed), numbers(q, d, seed + 1), numbers(n, d, seed + 2)
    return product(Z * 2.0 ** -np.arange(q), A) + noise * E


N, D, Q = 20, 4, 2


def hadamard(order):
    """Return a matrix of ±1 with orthogonal columns, the first of ones alone."""
    H = np.ones((1, 1))
    while len(H) < order:
        H = np.block([[H, H], [H, -H]])
    return H


def with_variances(ell):
    """Return 16 rows whose directions have these variances, but for one rounding."""
    return product(hadamard(16)[:, 1:5] * np.sqrt(ell), hadamard(4) / 2)


def table(point):
    """Return the rows of a hard point."""
    if point == "plain":
        return signal(N, D, Q, 1, 0.25)
    if point == "means 1e8 deviations away":
        return signal(N, D, Q, 2, 0.25) + 1e8
    if point == "variances over 12 orders":
        return signal(N, D, Q, 3, 0.25) * np.array([1.0, 1e2, 1e4, 1e6])
    if point == "n = q + 1":
        return signal(Q + 1, D, Q, 4, 0.25)
    if point == "n = q + 2":
        return signal(Q + 2, D, Q, 4, 0.25)
    if point == "nearly equal eigenvalues":
        return with_variances([3.0, 1.0, 1.0 - 1e-8, 0.25])
    if point == "noise 1e-10 of the largest variance":
        return with_variances([2.0, 1.0, 2e-10, 2e-10])
    if point == "noise 1e-8 of the largest variance":
        return with_variances([2.0, 1.0, 2e-8, 2e-8])
    raise ValueError(point)


POINTS = (
    "plain",
    "means 1e8 deviations away",
    "variances over 12 orders",
    "n = q + 1",
    "n = q + 2",
    "nearly equal eigenvalues",
    "noise 1e-10 of the largest variance",
)


def with_gaps(X, every=7):
    """Return the rows without every seventh entry; each keeps half of its own."""
    X = X.copy()
    X.flat[3::every] = np.nan
    return X


KEPT_POINTS = (
    "plain",
    "means 1e8 deviations away",
    "variances over 12 orders",
    "noise 1e-8 of the largest variance",
)


def gaps(point):
    """Return the rows with gaps that a kept model was fitted to."""
    X = table(point)
    return with_gaps(np.concatenate([X, X[0] + (X[::-1] - X[0]) * (1 + 2.0**-6)]))


def asked(point):
    """Return the rows that a kept model is asked about, one far out and one with nothing known."""
    X = gaps(point)[:12]
    X[3] = X[3] + 30 * (X[3] - X[4])
    X[5] = np.nan
    return X


KERNEL_POINTS = {
    "plain": 0.5,
    "means 1e8 deviations away": 0.5,
    "a kernel that is nearly constant": 1e-8,
    "a kernel that is nearly the identity": 50.0,
    "n = q + 1": 0.5,
    "nearly equal eigenvalues": 0.5,
}
"""Points of kernels, and gamma."""


def kernel_table(point):
    """Return the rows of a hard point of kernels."""
    if point == "nearly equal eigenvalues":  # a square, one corner moved by 1e-7
        X = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [0.5, 0.5], [-0.5, -0.5]])
        X[4:] = [[0.5, -0.5], [-0.5, 0.5]]
        X = np.concatenate([X, X @ np.array([[0.0, 1.0], [-1.0, 0.0]]) * 0.75])
        X[0, 0] += 1e-7
        return X
    if point in ("n = q + 1", "means 1e8 deviations away", "plain"):
        return table(point)
    return table("plain")


BOUNDS = (
    (0.0, 1.0),
    (-1.0, 2.0),
    (0.5, np.inf),
    (-np.inf, -3.0),
    (5.0, 6.0),
    (8.0, np.inf),
    (30.0, 30.5),
    (37.0, np.inf),
    (-100.0, -99.0),
    (1.0, 1.0 + 2.0**-30),
    (6.0, 6.0 + 2.0**-20),
    (-1e-8, 1e-8),
    (-40.0, 40.0),
    (0.04, 0.08),
)
"""Bounds of truncated normals."""


# --- NIST's reference data: read or made by their rule ------------------------------------


def nist():
    """Return what is stored: certified values as printed, and data that follow no rule."""
    return json.loads((HOME / "nist.json").read_text())


def numacc(number):
    """Return the data that NIST defines by a rule."""
    if number == 1:
        return [10000001.0, 10000003.0, 10000002.0]
    base = {2: "1.", 3: "1000000.", 4: "10000000."}[number]
    return [float(base + "2")] + [float(base + digit) for _ in range(500) for digit in "13"]


def digits_of_pi(count=5000):
    """Return the first digits of π, the 3 included, as NIST's file has them.

    By Machin's formula in whole numbers. The 957th digit of π is 8, of the file 3, and the
    certified values are those of the file.
    """
    one = 10 ** (count + 10)

    def arctangent(x):
        term = total = one // x
        k, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    pi, found = 4 * (4 * arctangent(5) - arctangent(239)) // 10**10, []
    for _ in range(count + 1):  # the last one first
        pi, digit = divmod(pi, 10)
        found.append(float(digit))
    found = found[::-1][:count]
    return [3.0 if k == 956 else digit for k, digit in enumerate(found)]


def small_steps(number):
    """Return SmLs01 to SmLs09 as a table of replicates × 9 treatments.

    Treatment k has the mean 0.4 or, of even k, 0.3 and, of odd k from 3 on, 0.5; the first
    replicate lies on it, the others 0.1 below and above in turn; 1, 10⁶ or 10¹² are added.
    """
    replicates = (21, 201, 2001)[(number - 1) % 3]
    leading = ("1.", "1000000.", "1000000000000.")[(number - 1) // 3]
    columns = []
    for k in range(1, 10):
        middle = 4 if k == 1 else 3 if k % 2 == 0 else 5
        steps = [middle] + [middle + (-1 if i % 2 == 0 else 1) for i in range(replicates - 1)]
        columns.append([float(f"{leading}{step}") for step in steps])
    return np.array(columns).T
