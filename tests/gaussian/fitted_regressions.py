"""Regressions on the stored tables, plainly: what they offer is named as statsmodels names it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

HOME = Path(__file__).parent / "mice"
TERMS = {
    "linear": ["(Intercept)", "age", "dose", "treated"],
    "logistic": ["(Intercept)", "age", "dose", "treated"],
    "cox": ["age", "dose", "treated"],
}


def stored(name):
    """Return a table that tests/gaussian/mice/pooled.R wrote."""
    return pd.read_csv(HOME / f"{name}.csv")


def tables():
    """Return the completed tables."""
    return [one for _, one in stored("tables").groupby("table")]


def regressors(kind, table):
    """Return the design matrix."""
    columns = table[["age", "dose", "treated"]].to_numpy(dtype=float)
    return columns if kind == "cox" else np.column_stack([np.ones(len(table)), columns])


def linear(A, y):
    """Return coefficients, their covariance and the log-likelihood at its best variance."""
    n, k = A.shape
    b = np.linalg.solve(A.T @ A, A.T @ y)

    def loglike(b):
        return -n / 2 * (np.log(2 * np.pi * np.mean((y - A @ b) ** 2)) + 1)

    return b, np.sum((y - A @ b) ** 2) / (n - k) * np.linalg.inv(A.T @ A), loglike


def logistic(A, y):
    """Return coefficients, their covariance and the log-likelihood, by Newton's method."""

    def parts(b):
        p = 1 / (1 + np.exp(-A @ b))
        return A.T @ (y - p), A.T @ (A * (p * (1 - p))[:, None])

    def loglike(b):
        p = 1 / (1 + np.exp(-A @ b))
        return np.sum(np.log(np.where(y == 1, p, 1 - p)))

    return *newton(parts, A.shape[1]), loglike


def cox(A, time, event):
    """Return coefficients, their covariance and the log-likelihood; no two times are the same."""
    order = np.argsort(-time)
    A, event = A[order], event[order]

    def parts(b):
        score, information = np.zeros(len(b)), np.zeros((len(b), len(b)))
        for i in np.flatnonzero(event):
            w = np.exp(A[: i + 1] @ b)
            w /= w.sum()
            mean = w @ A[: i + 1]
            score += A[i] - mean
            information += (A[: i + 1] - mean).T @ ((A[: i + 1] - mean) * w[:, None])
        return score, information

    def loglike(b):
        risks = np.log(np.cumsum(np.exp(A @ b)))
        return np.sum((A @ b - risks)[event == 1])

    return *newton(parts, A.shape[1]), loglike


def newton(parts, k):
    b = np.zeros(k)
    for _ in range(30):
        score, information = parts(b)
        b = b + np.linalg.solve(information, score)
    return b, np.linalg.inv(parts(b)[1])


def result(kind, table):
    """Return a fit that offers what a result of statsmodels does."""
    A = regressors(kind, table)
    if kind == "cox":
        found = cox(A, table.time.to_numpy(), table.event.to_numpy())
    else:
        y = table[{"linear": "y", "logistic": "ill"}[kind]].to_numpy(dtype=float)
        found = (linear if kind == "linear" else logistic)(A, y)
    b, C, loglike = found
    model = SimpleNamespace(exog=A, exog_names=TERMS[kind], loglike=loglike)
    if kind == "cox":
        model.status = table.event.to_numpy()
    return SimpleNamespace(
        params=b, cov_params=lambda: C, df_resid=len(A) - A.shape[1], llf=loglike(b), model=model
    )


def results(kind):
    """Return the fits to all stored tables."""
    return [result(kind, table) for table in tables()]


def fitter(table):
    """Return a fit that offers what a fitter of lifelines does."""
    found = result("cox", table)
    names = pd.Index(TERMS["cox"], name="covariate")
    return SimpleNamespace(
        params_=pd.Series(found.params, index=names),
        variance_matrix_=pd.DataFrame(found.cov_params(), index=names, columns=names),
        event_observed=table.event,
        log_likelihood_=found.llf,
    )
