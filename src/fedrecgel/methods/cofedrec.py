"""CoFedRec: co-clustering for federated recommendation.

He et al., "Co-clustering for Federated Recommender System", WWW 2024, https://arxiv.org/abs/2411.01690.

Idea: every client keeps an item table of its own. Each round the server clusters the items by the mean table, picks one
item cluster and one client, finds the clients whose view of that cluster is similar, and gives them the mean of their
tables. The item clusters also travel to the clients, as labels of a supervised contrastive term on their tables.

Paper to code: local steps `client_update`; contrastive term `numerics.contrast.contrast`; item clusters
`numerics.cluster.kmeans`; group of similar users up to the elbow of their similarities `_group` and
`numerics.cluster.elbow`.

Deviations: as in the released code, one group is formed per round, everybody else keeps the own table, and the mean
table is never sent. The group's table is not written onto devices: it waits in the next download, and `score` sees it
there. A user who never took part scores with the initial table (the code takes the previous user's). The code applies
cross-entropy to sigmoid outputs (`saturating_bce`) and makes two passes (`epochs`; the common protocol has one).
`anchors` > 0 is an approximation: the contrastive term is the mean over that many random rows, not over all items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedrecgel.data.federation import ClientBatch
from fedrecgel.draws import Draws
from fedrecgel.methods.base import (
    ClientResult,
    Download,
    Fraction,
    Inbox,
    Method,
    Need,
    Problem,
    Radius,
    Rate,
    Server,
    Size,
    Upload,
)
from fedrecgel.models.linear import alternate, linear_scores, linear_start
from fedrecgel.numerics.cluster import elbow, kmeans
from fedrecgel.numerics.contrast import contrast
from fedrecgel.tables import NO_TABLE, StackedTable, State
from fedrecgel.tensors import Ids

UNLABELLED = -1


@dataclass(frozen=True, kw_only=True)
class CoFedRec(Method):
    """Personal item tables, shared within one group of similar users per round."""

    paper: ClassVar[str] = "He et al., WWW 2024"
    sends: ClassVar[frozenset[str]] = frozenset({"items"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"native": {"epochs": 2}}

    fraction: Fraction = 1.0
    """Share of clients drawn each round."""
    dim: Size = 32
    """Size d of item vectors."""
    lr: Rate = 0.1
    """Learning rate of the score function."""
    lr_eta: Rate = 80.0
    """The item table learns at lr · n · lr_eta."""
    batch_size: Size = 256
    """Examples in a local step."""
    epochs: Size = 1
    """Passes over the round's examples."""
    clusters: Size = 30
    """Item clusters K."""
    restarts: Size = 10
    """Starts of k-means; the tightest clustering counts."""
    reg: Radius = 0.005
    """Weight of the contrastive term."""
    temperature: Rate = 0.1
    """Temperature τ of the contrastive term."""
    base_temperature: Rate = 0.5
    """Temperature τ_b it is scaled by."""
    anchors: Annotated[int, Meta(ge=0)] = 0
    """0 takes the contrastive term over all items, at n² cost; else over so many random ones (an approximation)."""
    storage: Literal["full", "bfloat16"] = "full"
    """Precision in which tables are kept and sent: that of the run, or 16 bits."""
    saturating_bce: bool = True
    """No gradient from examples whose sigmoid is 0 or 1 in single precision, as in the released code."""

    @property
    def server_needs(self) -> Need:
        """It compares clients with each other."""
        return Need.EACH

    def footprint(self, n_examples: Int[Tensor, " C"], n_items: int) -> Int[Tensor, " C"]:
        """A client trains its whole table."""
        return torch.full_like(n_examples, max(1, n_items // 4))

    def init_server(self, problem: Problem, draws: Draws) -> Server:
        """No labels and no groups yet."""
        labels = torch.full((problem.n_items,), UNLABELLED, dtype=torch.int64, device=problem.device)
        group_of = torch.full((problem.n_clients,), NO_TABLE, dtype=torch.int64, device=problem.device)
        groups = self._stored(problem.tensor(torch.zeros(0, problem.n_items, self.dim)))
        return Server({"labels": labels, "groups": groups, "group_of": group_of})

    def _stored(self, table: Tensor) -> Tensor:
        return table.to(torch.bfloat16) if self.storage == "bfloat16" else table

    def init_clients(self, problem: Problem, ids: Ids, draws: Draws) -> State:
        """The same score function and table, N(0, 1), for all."""
        layer = problem.tensor(linear_start(self.dim, (self.dim + 1,), draws.generator("init/score")))
        start = problem.tensor(draws.generator("init/items").standard_normal((problem.n_items, self.dim)))
        tensors = {"w": layer[:-1].expand(len(ids), -1), "b": layer[-1].expand(len(ids))}
        return State({**tensors, "items": self._stored(start).expand(len(ids), -1, -1)})

    def broadcast(self, server: Server, ids: Ids) -> Download:
        """Item labels for all; the group's table for who was in one since it last trained."""
        group = server.shared["group_of"][ids]
        labels, groups = {"labels": server.shared["labels"]}, server.shared["groups"]
        tables = {"group": StackedTable(groups, group)} if len(groups) else {}
        return Download(labels, {"group": group}, tables)

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """Score function and table in turn; the contrastive term moves every row."""
        w, b, labels = private["w"], private["b"], down.shared["labels"]
        table, client = self._table(private, down), torch.arange(len(b), device=b.device)[:, None]
        labelled = self.reg > 0 and bool((labels != UNLABELLED).all())
        lr_items = self.lr * table.shape[1] * self.lr_eta
        losses, batches = torch.zeros_like(b), torch.zeros_like(b)
        for epoch in range(self.epochs):
            for weights in batch.steps(self.batch_size, round, draws, epoch):
                active = (weights.sum(1) > 0).to(b.dtype)
                loss, w, b, rows = alternate(
                    table[client, batch.rows],
                    w,
                    b,
                    batch.row_labels,
                    weights,
                    lr=self.lr,
                    saturating=self.saturating_bce,
                )
                if labelled:
                    term, gradient = self.contrast(table, labels, self._anchors(len(labels), round, draws))
                    loss = loss + self.reg * term * active
                    table.sub_(gradient * (lr_items * self.reg * active)[:, None, None])
                table.index_put_((client, batch.rows), -lr_items * rows, accumulate=True)
                losses += loss
                batches += active
        kept = self._stored(table)
        upload = Upload(batch.ids, {"items": kept}, {}, batch.rows[:, :0], torch.ones_like(b))
        return ClientResult(State({"w": w, "b": b, "items": kept}), upload, losses / batches.clamp(min=1))

    def contrast(
        self, tables: Float[Tensor, "C n d"], labels: Int[Tensor, " n"], anchors: Int[Tensor, " a"] | None
    ) -> tuple[Float[Tensor, " C"], Float[Tensor, "C n d"]]:
        """The contrastive term of each table and its gradient."""
        return contrast(tables, labels, anchors, temperature=self.temperature, base_temperature=self.base_temperature)

    def _table(self, private: State, down: Download) -> Float[Tensor, "C n d"]:
        """The own table, or the group's if it is newer; in the precision of the run."""
        table = private["items"].to(private["w"].dtype, copy=True)
        grouped = (down.each["group"] != NO_TABLE).nonzero()[:, 0]
        if len(grouped):
            table[grouped] = down.tables["group"][grouped].dense().to(table.dtype)
        return table

    def _anchors(self, n_items: int, round: int, draws: Draws) -> Int[Tensor, " a"] | None:
        if self.anchors == 0 or self.anchors >= n_items:
            return None
        return torch.from_numpy(draws.generator("anchors", round).choice(n_items, self.anchors, replace=False))

    def server_update(self, server: Server, inbox: Inbox, round: int, draws: Draws) -> Server:
        """Cluster the items, form one group of clients, remember its mean table."""
        generator = draws.generator("groups", round)
        labels = kmeans(inbox.mean()["items"], self.clusters, generator, self.restarts).labels
        uploads = sorted(inbox.each(), key=lambda upload: int(upload.ids.min()))
        ids = torch.cat([upload.ids for upload in uploads])
        tables = [table for upload in uploads for table in _each(upload)]
        leader, cluster = generator.random(2)
        chosen = torch.unique(labels)[int(cluster * len(torch.unique(labels)))]
        members = self._group(tables, ids.argsort()[int(leader * len(ids))], labels == chosen)
        total = torch.zeros_like(tables[0], dtype=torch.float64)
        for k in members:
            total += tables[k]

        group_of = server.shared["group_of"].clone()
        group_of[ids] = NO_TABLE  # they trained on: what they got before is in their own tables
        used = torch.unique(group_of[group_of != NO_TABLE])
        renumbered = torch.searchsorted(used, group_of.clamp(min=0))
        group_of = torch.where(group_of == NO_TABLE, NO_TABLE, renumbered)
        group_of[ids[members]] = len(used)
        groups = torch.cat([server.shared["groups"][used], (total / len(members)).to(tables[0].dtype)[None]])
        return Server({"labels": labels, "groups": groups, "group_of": group_of})

    def _group(self, tables: list[Tensor], leader: Tensor, items: Tensor) -> list[int]:
        """Clients in descending similarity to the leader on some items, up to the elbow of that curve."""
        view = tables[int(leader)][items].double()
        similar = torch.stack([cosine_similarity(view, table[items].double()).sum() for table in tables])
        similar[int(leader)] = torch.inf  # first, whatever rounding says
        order = similar.argsort(descending=True, stable=True)
        curve = similar[order]
        curve[0] = float(items.sum())
        return order[: elbow(curve) + 1].tolist()

    def score(self, private: State, down: Download, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """The own score function on the own table, or on the group's if it is newer."""
        rows = private.rows("items", items)
        if "group" in down.tables:
            grouped = (down.each["group"] != NO_TABLE)[:, None, None]
            rows = torch.where(grouped, down.tables["group"].rows(items), rows)
        return linear_scores(rows.to(private["w"].dtype), private["w"], private["b"])


def _each(upload: Upload) -> list[Tensor]:
    """The table of each client."""
    tables = upload.dense["items"]
    if not isinstance(tables, Tensor):
        raise TypeError("tables travel as tensors")
    return list(tables)
