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

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.methods import spectral_start
from fedrecgel.numerics.least_squares import LeastSquares
from fedrecgel.numerics.mixtures import GRID, GRID_WITH_PAIRS, Mixture, choose_best
from fedrecgel.numerics.own_rows import OwnRows
from fedrecgel.numerics.pair_sketch import pair_rows
from fedrecgel.numerics.spectral_scores import Scorer, damping
from fedrecgel.numerics.spectrum import nearest_gram, nystrom, orthonormal
from fedrecgel.tensors import Factors

VOTERS, SCORES_VOTED_ON = 20_000, 200_000_000
"""At most so many clients vote, and fewer where the catalogue is large: voters times items is bounded, too."""
COUNTED = ("counts", "recent", "weights")
"""Sums over clients, for each own item: of 1, of what is left of it with a decay of `FADE`, and of its weight in S2."""
FADE = 0.5
"""Decay of what `recent` counts."""
LARGEST, CELLS = 30_000, 1 << 22
"""Items of which all pairs are kept, 4 n² bytes; of more, pairs are hashed into about so many cells."""


class Stage(Enum):
    """What the sum of a turn is for."""

    COUNTS = "S0"
    SPECTRUM = "S1"
    FACTORS = "S2"
    PAIRS = "S3"
    VOTE = "S4"


class Turn(NamedTuple):
    """One sum over all clients, taken in one round or, with a part of the clients each, in several."""

    stage: Stage
    holds_back: bool
    """Whether devices leave one row of their own out, because it votes."""
    ends: bool = True
    """Whether this is the last turn of its stage for now."""


@dataclass(frozen=True, kw_only=True)
class Spectra(fed.Method):
    """A spectral filter, a matrix factorisation and popularity, mixed by a vote; all of it from sums over clients."""

    paper: ClassVar[str] = "this package; parts of GF-CF, PriviRec and iALS"
    sends: ClassVar[frozenset[str]] = frozenset(
        {"counts", "spectrum", "targets", "gram", "weighted_gram", "pairs", "votes"}
    )
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "full": {"pairs": True},
        "sketched": {"pairs": True, "sketch": True},
    }
    search: ClassVar[Mapping[str, object]] = {
        "reg": {"low": 3e-3, "high": 0.3, "log": True},
        "alpha": {"low": 10.0, "high": 1000.0, "log": True},
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
    alpha: fed.Rate = 180.0
    """Confidence α in the factorisation of the own item of a user who has one; with m items each has α m^-1/4."""
    step: fed.Fraction = 0.5
    """Share of the item side's preconditioned step that is taken."""
    spectral_rounds: fed.Size = 3
    """Sums of S1 before the vote; one more follows with all rows."""
    factor_rounds: fed.Size = 5
    """Sums of S2 before the vote."""
    final_rounds: fed.Size = 3
    """Sums of S2 after the vote, with all rows."""
    pairs: bool = False
    """Add co-occurrences of items: a table of all pairs, which travels whole."""
    sketch: bool = False
    """With `pairs`: hash them into 2^22 cells instead. Above 30,000 items that is done anyway."""
    vote: bool = True
    """Hold one row back and vote; false trains on all rows at once and mixes both parts half and half."""

    @property
    def scores_by_product(self) -> bool:
        """A device's vectors times all items."""
        return True

    @property
    def samples_negatives(self) -> bool:
        """Own items are all there is."""
        return False

    @property
    def fold_in_rounds(self) -> int:
        """Newcomers are scored at once."""
        return 0

    @property
    def grid(self) -> tuple[Mixture, ...]:
        """Mixtures that a vote chooses from."""
        return GRID_WITH_PAIRS if self.pairs else GRID

    def leaves_device(self) -> frozenset[str]:
        """What this plan sends."""
        left_out = {Stage.PAIRS: "pairs", Stage.VOTE: "votes"}
        planned = {turn.stage for turn in self.turns}
        return self.sends - {name for stage, name in left_out.items() if stage not in planned}

    def pair_cells(self, n_items: int) -> int | None:
        """Cells per item of hashed pairs; None where each pair has its own."""
        return max(1, CELLS // n_items) if self.sketch or n_items > LARGEST else None

    @property
    def smallest_cohort(self) -> int:
        """Clients a sum must cover to hide each: sums of S1 over fewer than k give their co-occurrences away."""
        return spectral_start.minima(self.rank).cohort

    @property
    def smallest_sum(self) -> int:
        """Far more than that, where histories are short."""
        return spectral_start.minima(self.rank).sum

    @property
    def magnitude(self) -> float:
        """Weighted products of factors."""
        return fed.LARGE

    @property
    def turns(self) -> list[Turn]:
        """All sums in their order."""
        counts, spectrum = Turn(Stage.COUNTS, self.vote), Turn(Stage.SPECTRUM, self.vote)
        first = [counts, *[spectrum._replace(ends=False)] * (self.spectral_rounds - 1), spectrum]
        first += [Turn(Stage.FACTORS, self.vote)] * self.factor_rounds + [Turn(Stage.PAIRS, self.vote)] * self.pairs
        if not self.vote:
            return first
        last = [Turn(Stage.SPECTRUM, False), *[Turn(Stage.FACTORS, False)] * self.final_rounds]
        last += [Turn(Stage.PAIRS, False)] * self.pairs
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
            **{name: start.new_zeros(n, 1) for name in COUNTED},
            "vectors": orthonormal(start),
            "values": start.new_zeros(rank),
            "items": start.new_zeros(n, min(self.dim, rank)),
            "mixture": start.new_tensor(self.grid[0]),
        }
        kept = {"n_clients": problem.tensor([problem.n_clients])}
        return fed.Server(shared, {**kept, **{f"all_{name}": start.new_zeros(n, 1) for name in COUNTED}})

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """Nothing private is learnt: the own rows are all a device needs."""
        return fed.State()

    def cohort(self, server: fed.Server, population: Int[Tensor, " m"], round: int, draws: fed.Draws) -> fed.Ids:
        """One of the parts into which a sum's clients are dealt out: all clients, or those who vote."""
        number, part = divmod(round, self.parts)
        order = torch.from_numpy(draws.generator("cohort", number).permutation(len(population)))
        if self.turn(round)[0].stage is Stage.VOTE:
            order = order[: min(VOTERS, max(1, SCORES_VOTED_ON // len(server.shared["counts"])))]
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
        dense: dict[str, Tensor | Factors] = {}
        rows: fed.Tensors = {}
        match turn.stage:
            case Stage.COUNTS:
                columns = [column for some in (own, everything) for column in (some.x, some.fade(FADE), some.weigh())]
                rows["counts"] = torch.stack(columns, 2)
            case Stage.SPECTRUM:
                rows["spectrum"] = down.derive(self._scorer).spectral_rows(own)
            case Stage.FACTORS:
                scorer = down.derive(self._scorer)
                weights = own.weigh()
                user, y = scorer.factorisation.fold_in(own, weights, scorer.items, scorer.gram)
                rows["targets"] = scorer.factorisation.targets(own, weights, user, y).to(ones.dtype)
                user = user.to(ones.dtype)[:, None]
                weighted = weights.sum(1)[:, None, None] * user
                dense |= {"gram": Factors(user, user), "weighted_gram": Factors(weighted, user)}
            case Stage.PAIRS:
                counts = down.shared["counts"]
                rows["pairs"] = pair_rows(own, counts, self.pair_cells(len(counts)))
            case Stage.VOTE:
                votes = down.derive(self._scorer).votes(own, everything.items_at(held), self.grid)
                dense["votes"] = votes * held.any(1)[:, None]
        return fed.ClientResult(private, fed.Upload(batch.ids, dense, rows, own.items, ones))

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """Add this round's part; when the sum is complete, take the stage's step.

        Who did not answer is assumed to be like those who did: sums grow to the whole population's.
        """
        turn, part, complete = self.turn(round)
        sums = {**inbox.total(), "clients": server.kept["n_clients"].new_tensor([inbox.weight])}
        if part:
            sums = {name: server.kept[f"sum_{name}"] + value for name, value in sums.items()}
        kept = {name: value for name, value in server.kept.items() if not name.startswith("sum_")}
        if not complete:
            return fed.Server(server.shared, {**kept, **{f"sum_{name}": value for name, value in sums.items()}})
        n_clients = kept["n_clients"]
        share = n_clients / sums.pop("clients")
        sums = {name: value * share for name, value in sums.items()}
        shared = dict(server.shared)
        match turn.stage:
            case Stage.COUNTS:
                found = sums["counts"].clamp(min=0).chunk(2, 1)  # noise of a channel may be below
                fewer, everything = (part.mT.unsqueeze(2) for part in found)
                kept |= {f"all_{name}": column.clone() for name, column in zip(COUNTED, everything, strict=True)}
                shared |= {name: column.clone() for name, column in zip(COUNTED, fewer, strict=True)}
            case Stage.SPECTRUM:
                shared |= self._spectral_step(shared, sums["spectrum"], turn)
            case Stage.FACTORS:
                terms = sums["targets"], nearest_gram(sums["gram"]), nearest_gram(sums["weighted_gram"])
                stepped = self._least_squares.step_items(
                    shared["items"], shared["weights"], terms, float(n_clients), self.step
                )
                shared["items"] = stepped.to(shared["items"].dtype)
            case Stage.PAIRS:
                shared["pairs" if self.pair_cells(len(shared["counts"])) is None else "pair_sketch"] = sums["pairs"]
            case Stage.VOTE:
                shared["mixture"] = shared["mixture"].new_tensor(self.grid[choose_best(sums["votes"])])
                shared |= {name: kept[f"all_{name}"].clone() for name in COUNTED}
        return fed.Server(shared, kept)

    def _spectral_step(self, shared: fed.Tensors, images: Float[Tensor, "n k"], turn: Turn) -> fed.Tensors:
        """Q ← qr(Z), or at the end Nyström's eigenvectors (Eq. 2), from which item vectors start (Eq. 3)."""
        if not turn.ends:
            return {"vectors": orthonormal(images)}
        vectors, values = nystrom(images, shared["vectors"])
        if shared["items"].any():  # warm
            return {"vectors": vectors, "values": values}
        dim = shared["items"].shape[1]
        start = vectors[:, :dim] * (values[:dim] / values[0]).sqrt() / damping(shared["counts"])[:, None]
        start *= 0.5 / start.square().sum(1).mean().sqrt()
        return {"vectors": vectors, "values": values, "items": start}

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The mixture that was chosen, from the own rows alone (Eq. 7)."""
        own = OwnRows.of(history, down.shared["vectors"].dtype)
        return down.derive(self._scorer).score(own, Mixture(*down.shared["mixture"].tolist()), items)

    def explain(self, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M H"]:
        """How much each own item, in the order of `history.pad`, speaks for each of these; popularity has no share."""
        own = OwnRows.of(history, down.shared["vectors"].dtype)
        return down.derive(self._scorer).shares(own, Mixture(*down.shared["mixture"].tolist()), items)

    def _scorer(self, shared: fed.Tensors) -> Scorer:
        return Scorer(shared, self._least_squares)

    @property
    def _least_squares(self) -> LeastSquares:
        return LeastSquares(self.reg, self.alpha)
