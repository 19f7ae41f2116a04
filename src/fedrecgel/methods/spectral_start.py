"""Item tables that start from eigenvectors: before a method learns, three rounds of sums over all clients.

The stages S0 and S1 of `spectra` (docs/methods/spectra.md, Eq. 1 to 3): a round of counts, then power iterations on the
item-item matrix Σ aᵀa with a = m^-¼ x D_n^-¼ of each client. A client sends terms of sums, nonzero on own items; users
start as they would without it, and nobody takes a gradient step before the last sum is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedrecgel.methods import author as fed
from fedrecgel.numerics.own_rows import OwnRows
from fedrecgel.numerics.spectral_scores import damping, standardise
from fedrecgel.numerics.spectrum import nystrom, orthonormal

ROUNDS = 3
"""Sums before the first gradient: one of counts, and one of each power iteration."""
USER_POWER = 0.25
"""Exponent of the normalisation by sizes of histories."""
ROW_NORM = 0.5
"""Root mean square norm of a table's rows at the start."""
COUNTS, BASIS = "start_counts", "start_basis"
"""What the server hands out for these rounds, and takes back afterwards."""
SENDS = frozenset({"counts", "spectrum"})
"""What leaves the device in them."""


LEAST_COHORT = 1000
"""Clients that a sum must cover, however small the rank is."""
HIDING_COHORT = 30
"""Clients for each number of the rank, from which on the attack of docs/privacy.md on sums of S1 gains nothing."""


def minima(rank: int) -> fed.Minima:
    """Clients that hide each other in sums of this rank: fewer than the rank would give co-occurrences away.

    Far more where histories are short: the audit found Amazon-Video's users at 16 times the rank, not at 31 times.
    """
    least = max(4 * rank, LEAST_COHORT)
    return fed.Minima(least, max(HIDING_COHORT * rank, least), drawn=False)


def begins(shared: fed.Tensors) -> bool:
    """Whether clients that receive this are in one of the first rounds."""
    return BASIS in shared


def first_tensors(problem: fed.Problem, rank: int, draws: fed.Draws) -> fed.Tensors:
    """No counts, and a random basis."""
    rank = min(rank, problem.n_items, problem.n_clients)
    start = problem.tensor(draws.generator("init/basis").normal(size=(problem.n_items, rank)))
    return {COUNTS: start.new_zeros(problem.n_items, 1), BASIS: orthonormal(start)}


def own_terms(shared: fed.Tensors, batch: fed.ClientBatch, round: int) -> fed.Upload:
    """The own term of this round's sum."""
    own = OwnRows.of(batch.history, batch.labels.dtype)
    if round == 0:
        rows = {"counts": own.x[:, :, None]}
    else:
        a = own.m.clamp(min=1)[:, None] ** -USER_POWER * own.x * damping(shared[COUNTS])[own.items]
        projected = embedding_bag(own.items, shared[BASIS], per_sample_weights=a, mode="sum")
        rows = {"spectrum": a[:, :, None] * projected[:, None]}
    return fed.Upload(batch.ids, {}, rows, own.items, torch.ones_like(own.m))


def step(
    shared: fed.Tensors, sums: fed.Tensors, round: int, tables: Sequence[str], popularity: float = 0.0
) -> fed.Tensors:
    """The shared tensors after a sum; after the last one the tables stand on eigenvectors, and nothing else is left.

    Args:
        shared: before the sum.
        sums: over all clients.
        round: which sum it is.
        tables: which of the shared tensors start from it.
        popularity: standard deviation of a further column, the logarithm of the counts; 0 for none.
    """
    if round == 0:
        return {**shared, COUNTS: sums["counts"]}
    if round < ROUNDS - 1:
        return {**shared, BASIS: orthonormal(sums["spectrum"])}
    vectors, values = nystrom(sums["spectrum"], shared[BASIS])
    whole = vectors * (values / values[0]).sqrt() / damping(shared[COUNTS])[:, None]
    rest = left(shared)
    starts = {name: _replace_columns(rest[name], whole) for name in tables if rest[name].shape[1] > 1}
    if popularity > 0:
        column = popularity * standardise((shared[COUNTS].clamp(min=0) + 1).log().mT).mT
        starts = {name: _put_column(table, column, whole.shape[1]) for name, table in starts.items()}
    return {**rest, **starts}


def left(shared: fed.Tensors) -> fed.Tensors:
    """What there is besides."""
    return {name: value for name, value in shared.items() if name not in (COUNTS, BASIS)}


def _replace_columns(table: Float[Tensor, "n d"], whole: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
    """As many columns as there are eigenvectors; further ones stay random. A bias of width 1 is no vector."""
    chosen = whole[:, : table.shape[1]]
    scaled = chosen * (ROW_NORM / chosen.square().sum(1).mean().sqrt())
    return torch.cat([scaled, table[:, chosen.shape[1] :]], 1).contiguous()


def _put_column(table: Float[Tensor, "n d"], column: Float[Tensor, "n 1"], at: int) -> Float[Tensor, "n d"]:
    """This column behind the eigenvectors, if the table is wider than their number."""
    if at >= table.shape[1]:
        return table
    return torch.cat([table[:, :at], column, table[:, at + 1 :]], 1).contiguous()
