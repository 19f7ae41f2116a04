"""The centralised ceilings from their definitions: dense matrices, one user or item at a time, numpy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrecgel.data.split import Split

Matrix = npt.NDArray[np.float64]


def counts(split: Split) -> Matrix:
    """The user-item matrix of training rows."""
    found = np.zeros((split.n_users, split.n_items))
    for user in range(split.n_users):
        own = slice(split.train.ptr[user], split.train.ptr[user + 1])
        found[user, split.train.items[own]] = split.train.counts[own]
    return found


def cosines(met: Matrix, shrinkage: float) -> Matrix:
    """Similarity of each pair of different items."""
    columns = [set(np.flatnonzero(column)) for column in met.T]
    found = np.zeros((len(columns), len(columns)))
    for i, users in enumerate(columns):
        for j, others in enumerate(columns):
            if i != j and users & others:
                found[i, j] = len(users & others) / (np.sqrt(len(users) * len(others)) + shrinkage)
    return found


def regressions(met: Matrix, reg: float) -> Matrix:
    """EASE by what it means: column i is the ridge regression of item i on all other items."""
    x = (met > 0).astype(float)
    weights = np.zeros((x.shape[1], x.shape[1]))
    for item in range(x.shape[1]):
        others = np.arange(x.shape[1]) != item
        gram = x[:, others].T @ x[:, others] + reg * np.eye(others.sum())
        weights[others, item] = np.linalg.solve(gram, x[:, others].T @ x[:, item])
    return weights


def least_squares(met: Matrix, fixed: Matrix, alpha: float, reg: float, nu: float) -> Matrix:
    """Hu et al., Eq. 4, with the diagonal matrix of confidences written out."""
    solved = []
    for row in met:
        confidence = 1 + alpha * row
        gram = fixed.T @ np.diag(confidence) @ fixed + reg * confidence.sum() ** nu * np.eye(fixed.shape[1])
        solved.append(np.linalg.solve(gram, fixed.T @ (confidence * (row > 0))))
    return np.array(solved)


def weighted_loss(met: Matrix, users: Matrix, items: Matrix, alpha: float, reg: float) -> float:
    """Hu et al., Eq. 3."""
    error = (1 + alpha * met) * ((met > 0) - users @ items.T) ** 2
    return float(error.sum() + reg * ((users**2).sum() + (items**2).sum()))


def low_pass(met: Matrix, dim: int, ideal: float, degree: float) -> Matrix:
    """GF-CF by its definition: the linear filter and, by a dense decomposition, the ideal one."""
    x = (met > 0).astype(float)
    by_user, by_item = np.maximum(x.sum(1), 1) ** -0.5, np.maximum(x.sum(0), 1) ** degree
    r = np.diag(by_user) @ x @ np.diag(1 / by_item)
    _, _, right = np.linalg.svd(r, full_matrices=False)
    strongest = right[:dim].T
    found: Matrix = r.T @ r + ideal * np.diag(1 / by_item) @ strongest @ strongest.T @ np.diag(by_item)
    return found


def faded(split: Split, decay: float) -> Matrix:
    """Weights of the own items by their place in the history, counted back from the latest."""
    found = np.zeros((split.n_users, split.n_items))
    for user in range(split.n_users):
        for entry in range(split.train.ptr[user], split.train.ptr[user + 1]):
            age = 0 if split.train.recency is None else int(split.train.recency[entry])
            found[user, split.train.items[entry]] = (1 + age) ** -decay
    return found
