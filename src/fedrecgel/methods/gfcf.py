"""GF-CF: a graph filter in closed form. Centralised: the server sees every history.

Y. Shen, Y. Wu, Y. Zhang, C. Shan, J. Zhang, K. B. Letaief and D. Li, "How Powerful is Graph Convolution for
Recommendation?", CIKM 2021, https://doi.org/10.1145/3459637.3482264

Idea: a history is a signal on the graph of items that are touched together. What a graph convolution learns in many
epochs is mostly a low-pass filter, and that needs no learning. GF-CF adds two filters: a linear one, the normalised
co-occurrences P = RᵀR with R = D_U^-½ X D_I^-½, and an ideal one, which keeps the strongest singular directions V of R.

Deviations: an exponent b in place of ½ for the item degrees of the ideal filter and of R; ½ is the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.methods.ease import check_catalogue
from fedrecgel.numerics.counts import CountMatrix, gram_columns
from fedrecgel.tensors import pick


@dataclass(frozen=True, kw_only=True)
class GFCF(fed.Centralised):
    """Linear and ideal low-pass filter over co-occurrences."""

    paper: ClassVar[str] = "Shen et al., CIKM 2021"
    draws_nothing: ClassVar[bool] = True
    search: ClassVar[Mapping[str, object]] = {
        "ideal": {"low": 0.03, "high": 3.0, "log": True},
        "dim": [64, 128, 256],
        "degree": [0.25, 0.5],
        **fed.FADING,
    }
    contract: ClassVar[Mapping[str, object]] = {"dim": 8}

    dim: fed.Size = 256
    """Singular directions that the ideal filter keeps."""
    ideal: fed.Radius = 0.3
    """Weight of the ideal filter beside the linear one, α."""
    degree: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Exponent b of item degrees."""

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """No filter yet."""
        n = problem.n_items
        check_catalogue("gfcf", n)
        return fed.Server({"filter": torch.zeros(n, n, dtype=problem.dtype, device=problem.device)})

    def fit(self, seen: CountMatrix, shared: fed.Tensors) -> fed.Tensors:
        """P + α D^-b V Vᵀ D^b, a block of columns at a time."""
        seen = seen.binary()
        by_user = seen.ptr.diff().clamp(min=1).double() ** -0.5
        by_item = seen.at.bincount(minlength=seen.n_columns).clamp(min=1).double() ** self.degree
        r = CountMatrix(seen.ptr, seen.at, by_user[seen.owners] / by_item[seen.at], seen.n_columns)
        left, right = (directions := _strongest(r, self.dim)) / by_item[:, None], directions * by_item[:, None]
        whole = torch.empty_like(shared["filter"])
        for first, last, columns in gram_columns(r):
            whole[:, first:last] = columns + self.ideal * left @ right[first:last].mT
        return {"filter": whole}

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The own items' rows of the filter, each as heavy as its item is recent."""
        return pick(fed.add_rows(down.shared["filter"], history, self.decay), items)


def _strongest(r: CountMatrix, dim: int) -> Float[Tensor, "n k"]:
    """Right singular vectors of the largest singular values; their signs, which are arbitrary, cancel in V Vᵀ."""
    from scipy.sparse import csr_array  # a third of a second that every other method saves
    from scipy.sparse.linalg import svds

    matrix = csr_array((r.counts.cpu().numpy(), r.at.cpu().numpy(), r.ptr.cpu().numpy()), shape=(r.n_rows, r.n_columns))
    smaller = min(matrix.shape)
    if dim >= smaller:  # as many as there are; the iterative solver wants fewer
        _, values, right = np.linalg.svd(matrix.toarray(), full_matrices=False)
        right = right[values > values[0] * 1e-10]
    else:
        _, _, right = svds(matrix, k=dim, v0=np.ones(smaller))
    return torch.from_numpy(np.ascontiguousarray(right.T)).to(r.counts)
