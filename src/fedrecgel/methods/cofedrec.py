"""CoFedRec: co-clustering for federated recommendation.

He et al., "Co-clustering for Federated Recommender System", WWW 2024, https://arxiv.org/abs/2411.01690.

Idea: every client keeps an item table of its own. Each round the server clusters the items by the mean table, picks one
item cluster and one client, finds the clients whose view of that cluster is similar, and gives them the mean of their
tables. The item clusters also travel to the clients, as labels of a supervised contrastive term on their tables.

Paper to code: local steps `client_update`; contrastive term `models.contrast`; item clusters
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

from fedrecgel.errors import ConfigError
from fedrecgel.methods import author as fed
from fedrecgel.models.contrast import descend
from fedrecgel.models.linear import alternate, linear_scores, linear_start
from fedrecgel.numerics.cluster import elbow, kmeans

UNLABELLED = -1
RELEASED: dict[str, object] = {
    "fraction": 1.0,
    "dim": 32,
    "lr": 0.1,
    "lr_eta": 80.0,
    "batch_size": 256,
    "epochs": 1,
    "clusters": 30,
    "restarts": 10,
    "reg": 0.005,
    "temperature": 0.1,
    "base_temperature": 0.5,
}
"""Settings of the released code."""


@dataclass(frozen=True, kw_only=True)
class CoFedRec(fed.Method):
    """Personal item tables, shared within one group of similar users per round."""

    paper: ClassVar[str] = "He et al., WWW 2024"
    sends: ClassVar[frozenset[str]] = frozenset({"items"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"released": RELEASED, "native": RELEASED | {"epochs": 2}}
    search: ClassVar[Mapping[str, object]] = {
        "lr": {"low": 1e-2, "high": 1.0, "log": True},
        "lr_eta": {"low": 1.0, "high": 100.0, "log": True},
        "reg": {"low": 1e-4, "high": 1e-2, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {"lr_eta": 1.0, "clusters": 4}

    fraction: fed.Fraction = 1.0
    """Share of clients drawn each round."""
    dim: fed.Size = 32
    """Size d of item vectors."""
    lr: fed.Rate = 0.1
    """Learning rate of the score function."""
    lr_eta: fed.Rate = 80.0
    """The item table learns at lr · n · lr_eta."""
    batch_size: fed.Size = 256
    """Examples in a local step."""
    epochs: fed.Size = 1
    """Passes over the round's examples."""
    clusters: fed.Size = 30
    """Item clusters K."""
    restarts: fed.Size = 10
    """Starts of k-means; the tightest clustering counts."""
    reg: fed.Radius = 0.005
    """Weight of the contrastive term."""
    temperature: fed.Rate = 0.1
    """Temperature τ of the contrastive term."""
    base_temperature: fed.Rate = 0.5
    """Temperature τ_b that scales the contrastive term."""
    anchors: Annotated[int, Meta(ge=0)] = 0
    """0 takes the contrastive term over all items, at n² cost; else over so many random ones (an approximation)."""
    storage: Literal["full", "bfloat16"] = "full"
    """Precision in which tables are kept and sent: that of the run, or 16 bits."""
    saturating_bce: bool = True
    """No gradient from examples whose sigmoid is 0 or 1 in single precision, as in the released code."""

    @property
    def server_needs(self) -> fed.Need:
        """Every upload: the server compares clients with each other."""
        return fed.Need.EACH

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """No labels and no groups yet."""
        labels = torch.full((problem.n_items,), UNLABELLED, dtype=torch.int64, device=problem.device)
        group_of = torch.full((problem.n_clients,), fed.NO_TABLE, dtype=torch.int64, device=problem.device)
        groups = self._store(problem.tensor(torch.zeros(0, problem.n_items, self.dim)))
        return fed.Server({"labels": labels, "groups": groups, "group_of": group_of})

    def _store(self, table: Tensor) -> Tensor:
        return table.to(torch.bfloat16) if self.storage == "bfloat16" else table

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """The same score function and table, N(0, 1), for all."""
        layer = problem.tensor(linear_start(self.dim, (self.dim + 1,), draws.public.generator("init/score")))
        start = problem.tensor(draws.public.generator("init/items").standard_normal((problem.n_items, self.dim)))
        return fed.State.start(len(ids), {"w": layer[:-1], "b": layer[-1], "items": self._store(start)})

    def broadcast(self, server: fed.Server, ids: fed.Ids) -> fed.Download:
        """Item labels for all; the group's table for clients that were in a group since they last trained."""
        group = server.shared["group_of"][ids]
        labels, groups = {"labels": server.shared["labels"]}, server.shared["groups"]
        tables = {"group": fed.StackedTable(groups, group)} if len(groups) else {}
        return fed.Download(labels, {"group": group}, tables)

    def welcome(self, server: fed.Server, n_clients: int) -> fed.Download:
        """Nothing: a newcomer would know its own items alone.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "Method 'cofedrec' cannot recommend to a user who never took part: its server has no item table for all, "
            "only those of groups. Train again with this user's rows, or choose another method."
        )

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """Score function and table in turn; the contrastive term moves every row."""
        labels, table = down.shared["labels"], self._table(private, down)
        labelled = self.reg > 0 and bool((labels != UNLABELLED).all())
        anchors = self._anchors(len(labels), round, draws) if labelled else None
        temperatures = {"temperature": self.temperature, "base_temperature": self.base_temperature}
        client = torch.arange(len(table), device=table.device)[:, None]
        lr_items = self.lr * table.shape[1] * self.lr_eta

        def step(
            layer: tuple[Tensor, Tensor], weights: Float[Tensor, "C K"], active: Float[Tensor, " C"]
        ) -> tuple[tuple[Tensor, Tensor], Float[Tensor, " C"]]:
            rows = table[client, batch.rows]
            loss, w, b, gradient = alternate(rows, *layer, batch.row_labels, weights, self.lr, self.saturating_bce)
            if labelled:
                term = descend(table, labels, anchors, lr_items * self.reg * active, **temperatures)
                loss = loss + self.reg * term * active
            table.index_put_((client, batch.rows), -lr_items * gradient, accumulate=True)
            return (w, b), loss

        start = (private["w"], private["b"])
        (w, b), loss = fed.local_epochs(step, start, batch, self.epochs, self.batch_size, round, draws)
        kept = self._store(table)
        upload = fed.Upload(batch.ids, {"items": kept}, {}, batch.rows[:, :0], torch.ones_like(b))
        return fed.ClientResult(fed.State({"w": w, "b": b, "items": kept}), upload, loss)

    def _table(self, private: fed.State, down: fed.Download) -> Float[Tensor, "C n d"]:
        """The own table, or the group's if it is newer; in the precision of the run."""
        table = private["items"].to(private["w"].dtype, copy=True)
        grouped = (down.each["group"] != fed.NO_TABLE).nonzero()[:, 0]
        if len(grouped):
            table[grouped] = down.tables["group"][grouped].dense().to(table.dtype)
        return table

    def _anchors(self, n_items: int, round: int, draws: fed.Draws) -> Int[Tensor, " a"] | None:
        if self.anchors == 0 or self.anchors >= n_items:
            return None
        return torch.from_numpy(draws.public.generator("anchors", round).choice(n_items, self.anchors, replace=False))

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
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
        group_of[ids] = fed.NO_TABLE  # they trained since: what they received before is in their own tables
        used = torch.unique(group_of[group_of != fed.NO_TABLE])
        renumbered = torch.searchsorted(used, group_of.clamp(min=0))
        group_of = torch.where(group_of == fed.NO_TABLE, fed.NO_TABLE, renumbered)
        group_of[ids[members]] = len(used)
        groups = torch.cat([server.shared["groups"][used], (total / len(members)).to(tables[0].dtype)[None]])
        return fed.Server({"labels": labels, "groups": groups, "group_of": group_of})

    def _group(self, tables: list[Tensor], leader: Tensor, items: Tensor) -> list[int]:
        """Clients in descending similarity to the leader on some items, up to the elbow of that curve."""
        view = tables[int(leader)][items].double()
        similar = torch.stack([cosine_similarity(view, table[items].double()).sum() for table in tables])
        similar[int(leader)] = torch.inf  # the leader is first, whatever rounding does
        order = similar.argsort(descending=True, stable=True)
        curve = similar[order]
        curve[0] = float(items.sum())
        return order[: elbow(curve) + 1].tolist()

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The own score function on the own table, or on the group's if it is newer."""
        rows = private.rows("items", items)
        if "group" in down.tables:
            grouped = (down.each["group"] != fed.NO_TABLE)[:, None, None]
            rows = torch.where(grouped, down.tables["group"].rows(items), rows)
        return linear_scores(rows.to(private["w"].dtype), private["w"], private["b"])


def _each(upload: fed.Upload) -> list[Tensor]:
    """The table of each client."""
    tables = upload.dense["items"]
    if not isinstance(tables, Tensor):
        raise TypeError("tables travel as tensors")
    return list(tables)
