"""EASE: the linear model that rebuilds a history from its other items. Centralised: the server sees every history.

H. Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019, https://doi.org/10.1145/3308558.3313710

Idea: ridge regression of the binary user-item matrix X on itself, under the constraint that no item explains itself.
The solution has a closed form: with P = (XᵀX + λI)⁻¹, B = I − P · diag(1 / diag P). A user's scores are x B.

Deviations: where there are fewer users than items, P comes from the smaller matrix of users by Woodbury's identity,
P = (I − Xᵀ(XXᵀ + λI)⁻¹X) / λ: the same numbers in less time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.errors import ConfigError
from fedrecgel.methods import author as fed
from fedrecgel.numerics.counts import CountMatrix, blocks_of, gram_columns
from fedrecgel.tensors import pick

LARGEST = 30_000
"""Items. The weights take 4 n² bytes, and while they are fitted up to 8 n² more: 11 GB at this size."""


@dataclass(frozen=True, kw_only=True)
class EASE(fed.Centralised):
    """Closed-form item-to-item regression with a zero diagonal."""

    paper: ClassVar[str] = "Steck, WWW 2019"
    draws_nothing: ClassVar[bool] = True
    search: ClassVar[Mapping[str, object]] = {"reg": {"low": 10.0, "high": 30_000.0, "log": True}, **fed.FADING}

    reg: fed.Rate = 300.0
    """Ridge penalty λ."""

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """No weights yet."""
        n = problem.n_items
        check_catalogue("ease", n)
        return fed.Server({"weights": torch.zeros(n, n, dtype=problem.dtype, device=problem.device)})

    def fit(self, seen: CountMatrix, shared: fed.Tensors) -> fed.Tensors:
        """B = I − P · diag(1 / diag P)."""
        weights = torch.empty_like(shared["weights"])
        for first, last, p in _inverse_columns(seen.binary(), self.reg):
            own = p[first:last].diagonal()
            weights[:, first:last] = p / -own
            weights[first:last, first:last].fill_diagonal_(0)
        return {"weights": weights}

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The sum of the own items' rows of B, each as heavy as its item is recent."""
        return pick(fed.add_rows(down.shared["weights"], history, self.decay), items)


def check_catalogue(method: str, n_items: int) -> None:
    """Refuse a catalogue whose pairs do not fit into memory.

    Raises:
        ConfigError: it is too large.
    """
    if n_items > LARGEST:
        raise ConfigError(
            f"Method '{method}' keeps a weight for each pair of items, which fits for at most {LARGEST:,} items. "
            f"Found {n_items:,}. Use itemknn or ials."
        )


def _inverse_columns(x: CountMatrix, reg: float) -> Iterator[tuple[int, int, Float[Tensor, "n b"]]]:
    """Columns first … last - 1 of P = (XᵀX + λI)⁻¹, a block at a time."""
    if x.n_rows >= x.n_columns:
        inverse = _ridge_inverse(x, reg)
        for first, last in blocks_of(x.n_columns):
            yield first, last, inverse[:, first:last]
        return
    by_item = x.transpose()
    inverse, whole = _ridge_inverse(by_item, reg), by_item.sparse()
    for first, last in blocks_of(x.n_columns):
        half = torch.sparse.mm(by_item.part(first, last).sparse(), inverse)
        p = torch.sparse.mm(whole, half.mT) / -reg
        p[first:last].diagonal().add_(1 / reg)
        yield first, last, p


def _ridge_inverse(x: CountMatrix, reg: float) -> Float[Tensor, "q q"]:
    """(XᵀX + λI)⁻¹ through its Cholesky factor, all three in the same memory."""
    gram = x.counts.new_empty(x.n_columns, x.n_columns)
    for first, last, columns in gram_columns(x):
        gram[:, first:last] = columns
    gram.diagonal().add_(reg)
    gram = gram.mT  # symmetric; LAPACK works in place on columns
    torch.linalg.cholesky(gram, out=gram)
    return torch.cholesky_inverse(gram, out=gram)
