"""Spectra: a recommender made of sums over clients, in a few rounds, without user vectors.

This package's own composition. Its parts: the graph filter of GF-CF (Shen et al., "How Powerful is Graph Convolution
for Recommendation?", CIKM 2021, https://arxiv.org/abs/2108.07567), computed by a distributed power iteration as in
PriviRec (Nicolas et al., "Secure Federated Graph-Filtering for Recommender Systems", https://arxiv.org/abs/2501.16888),
and iALS (Hu et al., ICDM 2008; Rendle et al., RecSys 2022), whose item side is solved here from sums.

Idea: everything the server needs of the histories is a sum of one term per client. Counts of items (S0), the leading
eigenvectors of the item-item matrix (S1) and item vectors of a matrix factorisation (S2) come out of such sums. A
device scores with its own history alone. How the parts are mixed is put to a vote (S4): each device holds one own row
back, tries a small grid of mixtures on it and sends how well each did. Then the stages go on, warm, with all rows.

Paper to code: docs/methods/spectra.md has each formula, numbered as the comments here.

Deviations: of GF-CF, half the exponents of the normalisation and a soft filter instead of an ideal one; of iALS, half a
preconditioned step of the item side per round instead of an exact solution, since that would need each user's vector.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from fedrecgel.methods import author as fed
from fedrecgel.numerics.counts import blocks_of
from fedrecgel.numerics.mixtures import GRID, Mixture, ndcg_of_mixtures
from fedrecgel.numerics.own_rows import OwnRows
from fedrecgel.numerics.spectrum import Spread, nystrom, orthonormal
from fedrecgel.tensors import Factors

USER_POWER = ITEM_POWER = 0.25
"""a and b of the normalisation m^-a x n^-b."""
VOTERS = 20_000
"""At most so many clients vote."""
SCORES_AT_ONCE = 1 << 19
"""Scores a vote computes together."""
LEAST_COHORT = 1000
"""Clients that a sum must cover, however small the rank is."""


class Stage(Enum):
    """What the sum of a turn is for."""

    COUNTS = "S0"
    SPECTRUM = "S1"
    FACTORS = "S2"
    VOTE = "S4"


class Turn(NamedTuple):
    """One sum over all clients, taken in one round or, with a part of the clients each, in several."""

    stage: Stage
    holds_back: bool
    """Whether devices leave one row of their own out, because it votes."""
    ends: bool = True
    """Whether this is the last turn of its stage for now."""


class Ready(NamedTuple):
    """What a device computes from a download before it scores."""

    vectors: Float[Tensor, "n k"]
    vector_spread: Spread
    values: Float[Tensor, " k"]
    items: Float[Tensor, "n d"]
    item_spread: Spread
    gram: Float[Tensor, "d d"]
    damping: Float[Tensor, " n"]
    popularity: Float[Tensor, " n"]


@dataclass(frozen=True, kw_only=True)
class Spectra(fed.Method):
    """A spectral filter, a matrix factorisation and popularity, mixed by a vote; all of it from sums over clients."""

    paper: ClassVar[str] = "this package; parts of GF-CF, PriviRec and iALS"
    sends: ClassVar[frozenset[str]] = frozenset(
        {"clients", "counts", "spectrum", "targets", "gram", "weighted_gram", "votes"}
    )
    search: ClassVar[Mapping[str, object]] = {
        "reg": {"low": 3e-3, "high": 0.3, "log": True},
        "alpha": {"low": 6.0, "high": 600.0, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {
        "rank": 4, "dim": 3, "spectral_rounds": 2, "factor_rounds": 2, "final_rounds": 2
    }  # fmt: skip

    fraction: fed.Fraction = 1.0
    """Share of clients asked each round; a sum over all takes 1 / fraction rounds, rounded up."""
    rank: fed.Size = 256
    """Eigenvectors k; no more than there are items or clients."""
    dim: fed.Size = 64
    """Size d of the factorisation's vectors; no more than the rank."""
    reg: fed.Rate = 0.03
    """Penalty λ of the factorisation."""
    alpha: fed.Rate = 60.0
    """Confidence α of an own item in the factorisation."""
    step: fed.Fraction = 0.5
    """Share of the item side's preconditioned step that is taken."""
    spectral_rounds: fed.Size = 3
    """Sums of S1 before the vote; one more follows with all rows."""
    factor_rounds: fed.Size = 5
    """Sums of S2 before the vote."""
    final_rounds: fed.Size = 3
    """Sums of S2 after the vote, with all rows."""
    vote: bool = True
    """Hold one row back and vote; false trains on all rows at once and mixes both parts half and half."""

    @property
    def samples_negatives(self) -> bool:
        """Own items are all there is."""
        return False

    @property
    def smallest_cohort(self) -> int:
        """Clients a sum must cover to hide each: sums of S1 over fewer than k give their co-occurrences away."""
        return max(4 * self.rank, LEAST_COHORT)

    @property
    def turns(self) -> list[Turn]:
        """All sums in their order."""
        counts, spectrum = Turn(Stage.COUNTS, self.vote), Turn(Stage.SPECTRUM, self.vote)
        first = [counts, *[spectrum._replace(ends=False)] * (self.spectral_rounds - 1), spectrum]
        first += [Turn(Stage.FACTORS, self.vote)] * self.factor_rounds
        if not self.vote:
            return first
        last = [Turn(Stage.SPECTRUM, False), *[Turn(Stage.FACTORS, False)] * self.final_rounds]
        return [*first, Turn(Stage.VOTE, True), *last]

    @property
    def parts(self) -> int:
        """Rounds that a sum over all clients takes."""
        return ceil(1 / self.fraction - 1e-9)

    @property
    def rounds(self) -> int:
        """Rounds of all turns."""
        return len(self.turns) * self.parts

    def turn(self, round: int) -> tuple[Turn, int, bool]:
        """What a round is for, its number among those that share a sum, and whether it completes the sum.

        Rounds beyond the plan are further ones of S2.
        """
        number, part = divmod(round, self.parts)
        planned = self.turns
        turn = planned[number] if number < len(planned) else Turn(Stage.FACTORS, False)
        return turn, part, part == self.parts - 1

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """A random basis Q; no eigenvalues and no vectors yet, so that scores are those of popularity."""
        n = problem.n_items
        rank = min(self.rank, n, problem.n_clients)
        start = problem.tensor(draws.generator("init/basis").normal(size=(n, rank)))
        shared = {
            "counts": start.new_zeros(n, 1),
            "vectors": orthonormal(start),
            "values": start.new_zeros(rank),
            "items": start.new_zeros(n, min(self.dim, rank)),
            "mixture": start.new_tensor(GRID[0]),
        }
        return fed.Server(
            shared, {"n_clients": problem.tensor([problem.n_clients]), "all_counts": start.new_zeros(n, 1)}
        )

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """Nothing private is learnt: the own rows are all a device needs."""
        return fed.State()

    def cohort(self, server: fed.Server, population: Int[Tensor, " m"], round: int, draws: fed.Draws) -> fed.Ids:
        """One of the parts into which a sum's clients are dealt out: all clients, or those who vote."""
        number, part = divmod(round, self.parts)
        order = torch.from_numpy(draws.generator("cohort", number).permutation(len(population)))
        if self.turn(round)[0].stage is Stage.VOTE:
            order = order[:VOTERS]
        return population[order[part :: self.parts].sort().values]

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """The own term of this round's sum."""
        turn, _, _ = self.turn(round)
        everything = OwnRows.of(batch.history, batch.labels.dtype)
        held = everything.choose_one(batch.ids, draws)
        own = everything.without(held) if turn.holds_back else everything
        ones = torch.ones(len(batch.ids), dtype=own.x.dtype, device=own.x.device)
        dense: dict[str, Tensor | Factors] = {"clients": ones[:, None]}
        rows: fed.Tensors = {}
        match turn.stage:
            case Stage.COUNTS:
                rows["counts"] = torch.stack([own.x, everything.x], 2)
            case Stage.SPECTRUM:
                rows["spectrum"] = self._spectral_rows(own, down.shared)
            case Stage.FACTORS:
                user, rows["targets"] = self._factor_rows(own, down)
                dense["gram"] = Factors(user[:, None], user[:, None])
                dense["weighted_gram"] = Factors((own.m[:, None] * user)[:, None], user[:, None])
            case Stage.VOTE:
                dense["votes"] = self._votes(own, everything.items_at(held), held.any(1), down.derive(self._prepare))
        return fed.ClientResult(private, fed.Upload(batch.ids, dense, rows, own.items, ones))

    def _spectral_rows(self, own: OwnRows, shared: fed.Tensors) -> Float[Tensor, "C H k"]:
        """a_uᵀ (a_u Q) on the own items (Eq. 1)."""
        a = own.m.clamp(min=1)[:, None] ** -USER_POWER * own.x * _damping(shared["counts"])[own.items]
        projected = embedding_bag(own.items, shared["vectors"], per_sample_weights=a, mode="sum")
        return a[:, :, None] * projected[:, None]

    def _factor_rows(self, own: OwnRows, down: fed.Download) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C H d"]]:
        """p_u, and p_u (1 + α - α p_u · y_i) for the own items (Eq. 4, 5)."""
        item, gram = down.derive(_gram)
        user, y = self._fold_in(own, item, gram)
        errors = own.x * (1 + self.alpha - self.alpha * (y @ user[:, :, None]).squeeze(2))
        return user.to(own.x.dtype), (errors[:, :, None] * user[:, None]).to(own.x.dtype)

    def _fold_in(
        self, own: OwnRows, item: Float[Tensor, "n d"], gram: Float[Tensor, "d d"]
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C H d"]]:
        """p_u = (YᵀY + α Y_HᵀY_H + λ (n + α m_u))⁻¹ (1 + α) Σ y_i, and Y_H (Eq. 4)."""
        y = item[own.items] * own.x[:, :, None]
        left = torch.baddbmm(gram.expand(len(y), -1, -1), y.mT, y, alpha=self.alpha)
        left.diagonal(dim1=1, dim2=2).add_(self.reg * (len(item) + self.alpha * own.m)[:, None])
        right = (1 + self.alpha) * y.sum(1)
        return torch.cholesky_solve(right[:, :, None], torch.linalg.cholesky(left)).squeeze(2), y

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """Add this round's part; when the sum is complete, take the stage's step.

        Who did not answer is assumed to be like those who did: sums grow to the whole population's.
        """
        turn, part, complete = self.turn(round)
        sums = inbox.total()
        if part:
            sums = {name: server.kept[f"sum_{name}"] + value for name, value in sums.items()}
        kept = {name: value for name, value in server.kept.items() if not name.startswith("sum_")}
        if not complete:
            return fed.Server(server.shared, {**kept, **{f"sum_{name}": value for name, value in sums.items()}})
        n_clients = kept["n_clients"]
        share = n_clients / sums["clients"].to(n_clients.dtype)
        sums = {name: value * share for name, value in sums.items()}
        shared = dict(server.shared)
        match turn.stage:
            case Stage.COUNTS:
                shared["counts"], kept["all_counts"] = sums["counts"].split(1, dim=1)
            case Stage.SPECTRUM:
                shared |= self._spectral_step(shared, sums["spectrum"], turn)
            case Stage.FACTORS:
                shared["items"] = self._factor_step(shared, sums, float(n_clients))
            case Stage.VOTE:
                best = int((sums["votes"] == sums["votes"].max()).nonzero()[0])  # the first of equals
                shared["mixture"] = shared["mixture"].new_tensor(GRID[best])
                shared["counts"] = kept["all_counts"]
        return fed.Server(shared, kept)

    def _spectral_step(self, shared: fed.Tensors, images: Float[Tensor, "n k"], turn: Turn) -> fed.Tensors:
        """Q ← qr(Z), or at the end Nyström's eigenvectors (Eq. 2), from which item vectors start (Eq. 3)."""
        if not turn.ends:
            return {"vectors": orthonormal(images)}
        vectors, values = nystrom(images, shared["vectors"])
        if shared["items"].any():  # warm
            return {"vectors": vectors, "values": values}
        dim = shared["items"].shape[1]
        start = vectors[:, :dim] * (values[:dim] / values[0]).sqrt() / _damping(shared["counts"])[:, None]
        start *= 0.5 / start.square().sum(1).mean().sqrt()
        return {"vectors": vectors, "values": values, "items": start}

    def _factor_step(self, shared: fed.Tensors, sums: fed.Tensors, n_clients: float) -> Float[Tensor, "n d"]:
        """y_i ← y_i + step (G + α n_i W + λ_i)⁻¹ (T_i - G y_i - λ_i y_i) (Eq. 6)."""
        y, counts = shared["items"].double(), shared["counts"].double()
        gram = sums["gram"].double()
        heavy = sums["weighted_gram"].double() / counts.sum().clamp(min=1)
        penalty = self.reg * (n_clients + self.alpha * counts)
        residual = sums["targets"].double() - y @ gram - penalty * y
        after = torch.empty_like(y)
        for first, last in blocks_of(len(y)):
            left = gram + self.alpha * counts[first:last, :, None] * heavy
            left.diagonal(dim1=1, dim2=2).add_(penalty[first:last])
            solved = torch.cholesky_solve(residual[first:last, :, None], torch.linalg.cholesky(left)).squeeze(2)
            after[first:last] = y[first:last] + self.step * solved
        return after.to(shared["items"].dtype)

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """w_L z(L) + w_A z(A) + w_P z(log(n + 1)) from the own rows alone (Eq. 7)."""
        ready = down.derive(self._prepare)
        own = OwnRows.of(history, ready.vectors.dtype)
        mixture = Mixture(*down.shared["mixture"].tolist())
        filtered, below_filtered = self._filter_query(own, ready, mixture)
        folded, below_folded = self._factor_query(own, ready)
        scores = mixture.popularity * ready.popularity[items]
        scores += mixture.filter * (_dot(filtered, ready.vectors, items) - below_filtered)
        return scores + mixture.factors * (_dot(folded, ready.items, items) - below_folded)

    def _prepare(self, shared: fed.Tensors) -> Ready:
        vectors, values, counts = shared["vectors"], shared["values"], shared["counts"]
        item, gram = _gram(shared)
        popularity = (counts.squeeze(1) + 1).log()
        deviation = popularity.std(correction=0)
        popularity = (popularity - popularity.mean()) / torch.where(deviation > 0, deviation, 1)
        return Ready(
            vectors, Spread.of(vectors), values, shared["items"], Spread.of(item), gram, _damping(counts), popularity
        )

    def _filter_query(
        self, own: OwnRows, ready: Ready, mixture: Mixture
    ) -> tuple[Float[Tensor, "C k"], Float[Tensor, "C 1"]]:
        """What the eigenvectors are multiplied by: w_H x_u D^-b V h(σ), standardised (Eq. 8)."""
        weights = own.x * own.recency_weights(mixture.decay) * ready.damping[own.items]
        largest = ready.values[0]
        response = ready.values / torch.where(largest > 0, ready.values + mixture.strength * largest, 1)
        query = embedding_bag(own.items, ready.vectors, per_sample_weights=weights, mode="sum") * response
        return ready.vector_spread.standardise(query)

    def _factor_query(self, own: OwnRows, ready: Ready) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C 1"]]:
        """What the item vectors are multiplied by: p_u, standardised (Eq. 9)."""
        user, _ = self._fold_in(own, ready.items.double(), ready.gram)
        return ready.item_spread.standardise(user.to(ready.items.dtype))

    def _votes(
        self, own: OwnRows, target: Int[Tensor, " C"], votes: Bool[Tensor, " C"], ready: Ready
    ) -> Float[Tensor, "C g"]:
        """NDCG@10 of the row held back, over the whole catalogue, for each mixture of the grid (Eq. 10)."""
        size = max(1, SCORES_AT_ONCE // len(ready.items))
        parts = torch.arange(len(target), device=target.device).split(size)
        return (
            torch.cat([self._votes_at_once(own.of_clients(some), target[some], ready) for some in parts])
            * votes[:, None]
        )

    def _votes_at_once(self, own: OwnRows, target: Int[Tensor, " c"], ready: Ready) -> Float[Tensor, "c g"]:
        """The same for a few clients, one setting of the filter after another."""
        query, below = self._factor_query(own, ready)
        folded = query @ ready.items.mT - below
        popular = ready.popularity.expand_as(folded)
        found, same_filter = folded.new_empty(len(target), len(GRID)), defaultdict[tuple[float, float], list[int]](list)
        for number, mixture in enumerate(GRID):
            same_filter[mixture.strength, mixture.decay if own.later is not None else 0.0].append(number)
        for numbers in same_filter.values():
            query, below = self._filter_query(own, ready, GRID[numbers[0]])
            scores = torch.stack([query @ ready.vectors.mT - below, folded, popular], 1)
            weights = folded.new_tensor([GRID[number][:3] for number in numbers])
            found[:, numbers] = ndcg_of_mixtures(scores, weights, target, own)
        return found


def _dot(query: Float[Tensor, "C k"], table: Float[Tensor, "n k"], items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
    """Query times the rows of these items; of few items only those rows are read."""
    if 4 * items.shape[1] < len(table):
        return (table[items] @ query[:, :, None]).squeeze(2)
    return (query @ table.mT).gather(1, items)


def _damping(counts: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
    """n^-b, of counts that are at least 1."""
    return counts.squeeze(1).clamp(min=1) ** -ITEM_POWER


def _gram(shared: fed.Tensors) -> tuple[Float[Tensor, "n d"], Float[Tensor, "d d"]]:
    """Y in double precision, and YᵀY."""
    item = shared["items"].double()
    return item, item.mT @ item
