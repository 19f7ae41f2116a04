"""GPFedRec: graph-guided personalisation for federated recommendation.

Zhang et al., "GPFedRec: Graph-guided Personalization for Federated Recommendation", KDD 2024,
https://arxiv.org/abs/2305.07866.

Idea: from the item tables clients send, the server builds a graph of similar users and smooths the tables over it: one
guide table R_u per user; their mean is the new global table. Clients start from the global table and are pulled
towards their guide while they train.

Paper to code: local loss with the pull towards R_u `client_update`; graph `numerics.graph`; smoothing and global table
`models.guided`.

Deviations: the released code fills its default "cosine" matrix with distances, so every user is linked to those unlike
it; here the most similar are linked (`native_cosine_distance`, the variant `native`). Its rows are user ids in an array
of participants, which works only when all take part; here non-participants keep their last guide. Clients send the
rows they touched and how far the others went towards the guide, which the server knows: the same table; with `noise`
the table goes whole. Tables of the first rounds are much alike; `centred` compares what changed since the global table.
`graph = "scalable"` is an approximation: similarities of random projections (sparse signs, 1,024 numbers a table), k
nearest neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from fedrecgel.errors import ConfigError
from fedrecgel.methods import author as fed
from fedrecgel.models.guided import GuidedTables, blend
from fedrecgel.models.private_network import PrivateNetwork
from fedrecgel.numerics.graph import Smoother
from fedrecgel.tensors import grow

NO_GUIDE = 0
"""The place of the empty guide of clients that never took part; the others have one each, in order of first use."""
RELEASED: dict[str, object] = {
    "fraction": 1.0,
    "dim": 32,
    "layers": (32, 16, 8),
    "lr": 0.1,
    "lr_eta": 80.0,
    "reg": 1.0,
    "batch_size": 256,
    "epochs": 1,
    "neighbours": 0,
    "threshold": 1.0,
    "hops": 1,
}
"""Settings of the released code."""


@dataclass(frozen=True, kw_only=True)
class GPFedRec(fed.Method):
    """Personal item tables pulled towards the mean of similar users' tables."""

    paper: ClassVar[str] = "Zhang et al., KDD 2024"
    sends: ClassVar[frozenset[str]] = frozenset({"items", "pull"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "released": RELEASED,
        "native": RELEASED | {"native_cosine_distance": True},
    }
    search: ClassVar[Mapping[str, object]] = {
        "lr": {"low": 1e-2, "high": 1.0, "log": True},
        "lr_eta": {"low": 1.0, "high": 100.0, "log": True},
        "reg": {"low": 3e-2, "high": 3.0, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {"lr_eta": 20.0}

    fraction: fed.Fraction = 1.0
    """Share of clients drawn each round."""
    dim: fed.Size = 32
    """Size d of user and item vectors."""
    layers: Annotated[tuple[fed.Size, ...], Meta(min_length=1)] = (32, 16, 8)
    """Widths of the private network's hidden layers."""
    lr: fed.Rate = 0.1
    """Learning rate of the private network."""
    lr_eta: fed.Rate = 80.0
    """Users learn at lr · lr_eta / fraction - lr, items at lr · n · lr_eta - lr."""
    reg: fed.Radius = 1.0
    """Weight of the pull towards the guide."""
    batch_size: fed.Size = 256
    """Examples in a local step."""
    epochs: fed.Size = 1
    """Passes over the round's examples."""
    neighbours: Annotated[int, Meta(ge=0)] = 0
    """Users each is smoothed with; 0 takes all above the threshold."""
    threshold: fed.Radius = 1.0
    """Users more similar than this times the mean similarity are linked."""
    hops: fed.Size = 1
    """How often tables are smoothed (L)."""
    graph: Literal["exact", "scalable"] = "exact"
    """Similarities of whole tables, or of random projections (an approximation; needs neighbours > 0)."""
    projection: fed.Size = 1024
    """Numbers a projected table keeps."""
    centred: bool = False
    """Compare what tables changed since the global one, not the tables."""
    native_cosine_distance: bool = False
    """Use cosine distances as if they were similarities, as the released code does."""
    noise: fed.Radius = 0.0
    """Scale of Laplace noise on every entry of what is sent; 0 sends none."""
    storage: Literal["full", "bfloat16"] = "full"
    """Precision in which personal and guide tables are kept: that of the run, or 16 bits."""
    saturating_bce: bool = True
    """No gradient from examples whose sigmoid is 0 or 1 in single precision, as in the released code."""

    def __post_init__(self) -> None:
        if self.graph == "scalable" and self.neighbours == 0:
            raise ConfigError("method.graph = 'scalable' links nearest neighbours. Set method.neighbours, say to 20.")

    @property
    def network(self) -> PrivateNetwork:
        """What each client scores with."""
        return PrivateNetwork(self.dim, self.layers)

    @property
    def server_needs(self) -> fed.Need:
        """Every upload: the server compares clients with each other."""
        return fed.Need.EACH

    @property
    def continues(self) -> bool:
        """Guides are made anew each round; until then a client has none."""
        return True

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """The item table, N(0, 1); no guide but an empty one, which all clients have for now."""
        items = problem.tensor(draws.generator("init/items").standard_normal((problem.n_items, self.dim)))
        guides = torch.zeros_like(items, dtype=self._storage(items))[None]
        guide_of = torch.full((problem.n_clients,), NO_GUIDE, dtype=torch.int64, device=items.device)
        return fed.Server({"items": items}, {"guides": guides, "guide_of": guide_of})

    def _storage(self, like: Tensor) -> torch.dtype:
        return torch.bfloat16 if self.storage == "bfloat16" else like.dtype

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """The same user vector and network for all; an empty table until the first round."""
        public = draws.public
        start = self.network.start(public.generator("init/user"), public.generator("init/network"))
        common = {name: problem.tensor(value) for name, value in start.items()}
        items = torch.zeros(1, dtype=self._storage(common["user"]), device=problem.device)
        common["items"] = items.expand(problem.n_items, self.dim)
        common["trained"] = torch.zeros((), dtype=torch.int64, device=problem.device)
        return fed.State.start(len(ids), common)

    def broadcast(self, server: fed.Server, ids: fed.Ids) -> fed.Download:
        """The global table for all, and each its guide."""
        if "guides" not in server.kept:  # enough to score with
            return fed.Download(server.shared)
        which = server.kept["guide_of"][ids]
        guide = fed.StackedTable(server.kept["guides"], which)
        return fed.Download(server.shared, {"guided": which != NO_GUIDE}, {"guide": guide})

    def welcome(self, server: fed.Server, n_clients: int) -> fed.Download:
        """The global table and no guide: newcomers have no neighbours yet."""
        items = server.shared["items"]
        nobody = torch.zeros(n_clients, dtype=torch.int64, device=items.device)
        return fed.Download(
            server.shared, {"guided": nobody != NO_GUIDE}, {"guide": fed.StackedTable(items[None], nobody)}
        )

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """SGD on user, network and item table at once, the latter pulled towards the guide."""
        everything = down.shared["items"]
        start, guided = everything[batch.rows], down.each["guided"][:, None, None]
        guide = torch.where(guided, down.tables["guide"].rows(batch.rows).to(start.dtype), start)
        lr_items = self.lr * len(everything) * self.lr_eta - self.lr
        rates = {"user": self.lr * self.lr_eta / self.fraction - self.lr, "rows": lr_items}
        strength = 2 * self.reg * lr_items / everything.numel()  # 0.5 at the published settings, whatever n is

        def step(
            before: tuple[fed.Tensors, Tensor], weights: Float[Tensor, "C K"], active: Float[Tensor, " C"]
        ) -> tuple[tuple[fed.Tensors, Tensor], Float[Tensor, " C"]]:
            own, left = before
            pull = (strength * active)[:, None, None] * (own["rows"] - guide)
            loss, gradient = self.network.gradient(own, batch.row_labels, weights, saturating=self.saturating_bce)
            own = {name: value - rates.get(name, self.lr) * gradient[name] for name, value in own.items()}
            return ({**own, "rows": own["rows"] - pull}, left * (1 - strength * active)), loss

        first = ({**self._own(private), "rows": start}, start.new_ones(len(start)))
        (own, left), loss = fed.local_epochs(step, first, batch, self.epochs, self.batch_size, round, draws)
        rows, pulled = own.pop("rows"), 1 - left
        untouched = start + pulled[:, None, None] * (guide - start)  # rows without examples, in closed form
        sent = (rows - untouched) * batch.row_mask[:, :, None]
        table = self._whole_table(everything, down, pulled)
        mine = batch.row_mask.nonzero()[:, 0]
        table[mine, batch.rows[batch.row_mask]] = rows[batch.row_mask].to(table.dtype)
        upload = fed.Upload(batch.ids, {"pull": pulled}, {"items": sent}, batch.rows, torch.ones_like(pulled))
        if self.noise > 0:
            upload = self._add_noise(upload, table - everything, round, draws)
        tensors = {**own, "items": table, "trained": private["trained"] + 1}
        return fed.ClientResult(fed.State(tensors), upload, loss)

    def _whole_table(
        self, everything: Float[Tensor, "n d"], down: fed.Download, pulled: Float[Tensor, " C"]
    ) -> Float[Tensor, "C n d"]:
        """Where a table without examples ends up: between the global one and the guide."""
        guide, guided = down.tables["guide"], down.each["guided"]
        if not isinstance(guide, fed.StackedTable):
            guide = fed.StackedTable(guide.dense(), torch.arange(len(pulled), device=pulled.device))
        found = blend(everything, guide.stack, guide.which, pulled * guided)
        return found.to(self._storage(everything))

    def _add_noise(
        self, upload: fed.Upload, change: Float[Tensor, "C n d"], round: int, draws: fed.Draws
    ) -> fed.Upload:
        """The whole change with noise on every entry; nothing is sent without noise, so the pull is not sent."""
        clients = upload.ids.numpy()
        own = draws.hiding(clients, change.cpu().numpy(), self.noise)
        noise = self.noise * own.laplace("noise", round, clients, change[0].numel())
        everywhere = torch.arange(change.shape[1], device=change.device).expand(len(change), -1)
        rows = {"items": change + torch.from_numpy(noise).to(change).view_as(change)}
        dense = {"pull": torch.zeros_like(upload.weight)}
        return replace(upload, dense=dense, rows=rows, at=everywhere)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """Smooth the tables over the graph of similar users; guides are written in place."""
        uploads = inbox.each()
        ids = torch.cat([upload.ids for upload in uploads])
        tables = self._tables(server, uploads, ids)
        smoother = self._smoother(tables, round, draws)
        guides, guide_of = self._room(server, ids)
        items = tables.smooth(smoother, self.hops, guides, guide_of[ids])
        return fed.Server({"items": items}, {"guides": guides, "guide_of": guide_of})

    def _room(self, server: fed.Server, ids: fed.Ids) -> tuple[Float[Tensor, "g n d"], Int[Tensor, " m"]]:
        """The guides with a place for each of these clients, and everybody's place."""
        guides, guide_of = server.kept["guides"], server.kept["guide_of"].clone()
        new = ids[guide_of[ids] == NO_GUIDE]
        guide_of[new] = torch.arange(len(guides), len(guides) + len(new), device=guide_of.device)
        return grow(guides, len(guides) + len(new), len(guide_of) + 1), guide_of

    def _tables(self, server: fed.Server, uploads: list[fed.Upload], ids: fed.Ids) -> GuidedTables:
        """What clients hold after training."""
        which = server.kept["guide_of"][ids]
        pull = torch.cat([torch.as_tensor(upload.dense["pull"]) for upload in uploads]) * (which != NO_GUIDE)
        rows = [(upload.at, upload.rows["items"]) for upload in uploads]
        return GuidedTables.of(server.shared["items"], server.kept["guides"], which, pull, rows)

    def _smoother(self, tables: GuidedTables, round: int, draws: fed.Draws) -> Smoother:
        """The graph of similar users."""
        if self.graph == "scalable":
            generator = draws.generator("projection", round)
            similarity = tables.projected_cosines(self.projection, generator, centred=self.centred)
        else:
            similarity = tables.cosines(centred=self.centred)
        if self.native_cosine_distance:
            similarity = 1 - similarity
        if self.neighbours > 0:
            return Smoother.k_nearest(similarity, self.neighbours)
        return Smoother.above_mean(similarity, self.threshold)

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The own network on the own table, as local training left them; a newcomer takes the global table."""
        own, trained = self._own(private), private["trained"][:, None, None] > 0
        rows = private.rows("items", items).to(own["user"].dtype)
        return self.network.logits(own, torch.where(trained, rows, down.shared["items"][items]))

    def _own(self, private: fed.State) -> fed.Tensors:
        return {name: private[name] for name in self.network.names}
