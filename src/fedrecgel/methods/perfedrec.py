"""PerFedRec: personalised federated recommendation with joint representation learning, clustering and adaptation.

Luo, Xiao and Song, "Personalized Federated Recommendation via Joint Representation Learning, User Clustering, and
Model Adaptation", CIKM 2022, https://doi.org/10.1145/3511808.3557668.

Idea: vectors are smoothed over the user-item graph. The server clusters users by their vectors, which they send, and
keeps one global item table and one per cluster; a user predicts with the mean of the global, its cluster's and, fresh
from training, its own local model. Half of the participants are drawn in proportion to the size of their cluster.

Paper to code: propagation `numerics.propagation.Hop`; BPR loss and its gradient `client_update`; clusters and their
tables `server_update`; mixture of predictions `score`; sampling by cluster `cohort`.

Deviations: the released code runs three copies of one hop, leaves negatives out of it and predicts without it
(`propagation = "native"`); here one rule serves all items, in training and prediction. One Adam object there serves
all clients in turn, which no client axis can repeat: here clients send gradients, and the global and each cluster
table has an Adam of its own. Cluster numbers may permute from round to round there (`match_clusters = False`), and
averaged copies of user vectors go stale; here a user has one vector, its own. The server learns the graph from what
participants send: each adds its vector to the neighbour sums of its items. Candidates are the same for all three
predictions, there they are drawn anew. Node dropout and attributes are not here. `noise` is on in the code, at 0.02,
on weights that are averaged; here it is on gradients, which are what is sent, and Adam amplifies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.numerics.cluster import assignment, kmeans
from fedrecgel.numerics.losses import bpr
from fedrecgel.numerics.optim import EPS, client_adam
from fedrecgel.numerics.propagation import Hop

GLOBAL = 0
"""The model every user has; models 1 … K belong to clusters, and a user not clustered yet has label 0."""
DECAY_BATCH = 1024
"""The released code divides its weight decay by this batch size, whatever the batch is."""
RELEASED: dict[str, object] = {
    "fraction": 0.1,
    "dim": 32,
    "lr": 1e-2,
    "user_lr": 1e-2,
    "local_lr": 1e-2,
    "decay": 1e-5,
    "clusters": 5,
}
"""Rates of the released code, at the common size and share of clients."""


@dataclass(frozen=True, kw_only=True)
class PerFedRec(fed.Method):
    """Global and cluster models on a user-item graph; user vectors are sent."""

    paper: ClassVar[str] = "Luo et al., CIKM 2022"
    sends: ClassVar[frozenset[str]] = frozenset({"user", "items", "neighbours", "degree"})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "released": RELEASED,
        "native": RELEASED | {"dim": 64, "propagation": "native", "match_clusters": False, "noise": 0.02},
    }
    search: ClassVar[Mapping[str, object]] = {
        "lr": {"low": 3e-4, "high": 3e-2, "log": True},
        "user_lr": {"low": 1e-2, "high": 1.0, "log": True},
    }
    contract: ClassVar[Mapping[str, object]] = {"fraction": 1.0, "clusters": 2}

    dim: fed.Size = 32
    """Size d of user and item vectors."""
    lr: fed.Rate = 1e-2
    """Learning rate of the item tables, on the server."""
    user_lr: fed.Rate = 1e-2
    """Learning rate of the user vector, on the device."""
    local_lr: fed.Rate = 1e-2
    """Size of the step from the cluster's to the local model."""
    decay: fed.Radius = 1e-5
    """Weight of the squared norms of propagated vectors."""
    clusters: fed.Size = 5
    """Clusters K of users."""
    propagation: Literal["one-rule", "native"] = "one-rule"
    """One hop for all items in training and prediction, or as in the released code."""
    match_clusters: bool = True
    """Keep the numbers of clusters from round to round by matching their centres."""
    noise: fed.Radius = 0.0
    """Scale of Laplace noise on the rows of `noise_rows` random items of each upload."""
    noise_rows: Annotated[int, Meta(ge=0)] = 100
    """How many rows get noise."""

    @property
    def server_needs(self) -> fed.Need:
        """Every upload: the server clusters users by what each sends."""
        return fed.Need.EACH

    def init_server(self, problem: fed.Problem, draws: fed.Draws) -> fed.Server:
        """One table, K copies of it, and an empty graph."""
        n, size = problem.n_items, self.clusters + 1
        bound = (6 / (n + self.dim)) ** 0.5
        items = problem.tensor(draws.generator("init/items").uniform(-bound, bound, (n, self.dim)))
        models = items.repeat(size, 1, 1)
        label = torch.full((problem.n_clients,), GLOBAL, dtype=torch.int64, device=items.device)
        shared = {"models": models, "neighbours": torch.zeros_like(items), "degree": items.new_zeros(n, 1)}
        kept = {
            "models.m": torch.zeros_like(models),
            "models.v": torch.zeros_like(models),
            "steps": torch.zeros(size, dtype=torch.int64, device=items.device),
            "users": items.new_zeros(problem.n_clients, self.dim),
            "known": torch.zeros(problem.n_clients, dtype=torch.bool, device=items.device),
            "centres": items.new_zeros(0, self.dim),
        }
        shared |= {"trained_on": models.clone(), "trained_label": label.clone()}
        return fed.Server({**shared, "label": label, "round": torch.zeros_like(label[0])}, kept)

    def init_clients(self, problem: fed.Problem, ids: fed.Ids, draws: fed.Draws) -> fed.State:
        """User vectors, Xavier-uniform over the table of all users; no local model yet."""
        bound = (6 / (problem.n_clients + self.dim)) ** 0.5
        chance = draws.uniform("init/user", 0, ids.numpy()[:, None], np.arange(self.dim)[None, :])
        user = problem.tensor(bound * (2 * chance - 1))
        steps = torch.zeros(len(ids), dtype=torch.int64, device=user.device)
        tensors = {"user": user, "user_m": torch.zeros_like(user), "user_v": torch.zeros_like(user)}
        tensors |= {"user_steps": steps, "round": steps.clone()}
        return fed.State(
            tensors, {"local": fed.PersonalTable.common(user.new_zeros(problem.n_items, self.dim), len(ids))}
        )

    def cohort(self, server: fed.Server, population: Int[Tensor, " m"], round: int, draws: fed.Draws) -> fed.Ids:
        """Half uniformly, half in proportion to the size of the user's cluster; filled up uniformly."""
        size, m = max(1, int(self.fraction * len(population))), len(population)
        generator = draws.generator("cohort", round)
        label = server.shared["label"].cpu()[population].numpy()
        weight = np.bincount(label)[label].astype(np.float64)
        half = generator.choice(m, size // 2, replace=False)
        drawn = generator.choice(m, size - size // 2, p=weight / weight.sum())
        everyone = np.concatenate([half, drawn, generator.permutation(m)])
        _, first = np.unique(everyone, return_index=True)
        return population[torch.from_numpy(everyone[np.sort(first)[:size]])]

    def broadcast(self, server: fed.Server, ids: fed.Ids) -> fed.Download:
        """The global table and the graph for all; to each the table of its cluster, and what the server has of it.

        A device cannot know whether its last answer arrived, and the graph must hold one vector of each user.
        """
        shared, ids = server.shared, ids.to(server.shared["label"].device)
        label = shared["label"][ids]
        tables = {"model": fed.StackedTable(shared["models"], label)}
        tables["trained_on"] = fed.StackedTable(shared["trained_on"], shared["trained_label"][ids], held=True)
        common = {name: shared[name] for name in ("neighbours", "degree", "round")}
        each = {"label": label}
        if "users" in server.kept:  # to score with, the rest is enough
            each |= {"held": server.kept["users"][ids], "known": server.kept["known"][ids]}
        return fed.Download({**common, "items": shared["models"][GLOBAL]}, each, tables)

    def welcome(self, server: fed.Server, n_clients: int) -> fed.Download:
        """The global model and the graph, of which newcomers are no part yet; they belong to no cluster."""
        shared = server.shared
        label = torch.full((n_clients,), GLOBAL, dtype=torch.int64, device=shared["label"].device)
        model = fed.StackedTable(shared["models"], label)
        common = {name: shared[name] for name in ("neighbours", "degree", "round")}
        held = shared["degree"].new_zeros(n_clients, self.dim)
        each = {"label": label, "held": held, "known": torch.zeros_like(label, dtype=torch.bool)}
        return fed.Download({**common, "items": shared["models"][GLOBAL]}, each, {"model": model, "trained_on": model})

    def fold_in(
        self, problem: fed.Problem, down: fed.Download, own: fed.Sampler, ids: fed.Ids, draws: fed.Draws
    ) -> fed.State:
        """The own vector and the local model, which is fresh: it was trained on the current global one."""
        private = super().fold_in(problem, down, own, ids, draws)
        now = torch.full_like(private["round"], int(down.shared["round"]))
        return fed.State({**private.tensors, "round": now}, private.tables)

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """One gradient of the BPR loss at the cluster's model; step the own vector and send it with the item part."""
        user, rows, own = private["user"], down.tables["model"].rows(batch.rows), batch.row_counts > 0
        hop = self._hop(own, down.shared["degree"][batch.rows, 0])
        if self.propagation == "native":
            hop = hop._replace(items=hop.items * own)
        u, v = hop.forward(user, (rows * own[:, :, None]).sum(1), rows, down.shared["neighbours"][batch.rows])
        better, worse, valid = batch.triples(round, draws)
        times = valid.to(u.dtype)
        n_pairs, decay = times.sum(1, keepdim=True), self.decay / DECAY_BATCH
        loss, pull = bpr((v @ u[:, :, None]).squeeze(2), better, worse, times / n_pairs.clamp(min=1))
        often = torch.zeros_like(pull).scatter_add_(1, better, times).scatter_add_(1, worse, times)
        norms = (often * v.square().sum(2)).sum(1) + n_pairs[:, 0] * u.square().sum(1)
        d_u = (pull[:, None] @ v).squeeze(1) + decay * n_pairs * u
        d_v = pull[:, :, None] * u[:, None] + decay * often[:, :, None] * v
        d_user, d_rows = hop.backward(d_u, d_v, own)

        moments = (private["user_m"], private["user_v"], private["user_steps"])
        new = client_adam(user, d_user, *moments, lr=self.user_lr)
        tensors = dict(zip(("user", "user_m", "user_v", "user_steps"), new, strict=True))
        tensors["round"] = torch.full_like(private["round"], round + 1)
        mask = own[:, :, None].to(user.dtype)
        sent = {
            "items": d_rows,
            "neighbours": mask * (tensors["user"] - down.each["held"])[:, None],  # in place of what arrived last
            "degree": mask * ~down.each["known"][:, None, None],
        }
        upload = fed.Upload(batch.ids, {"user": tensors["user"]}, sent, batch.rows, torch.ones_like(loss))
        local = -self.local_lr * d_rows / (d_rows.abs() + EPS)  # Adam's first step
        table = fed.PersonalTable.common(private.tables["local"].bases[0], len(user))
        table = table.with_rows(batch.rows, batch.row_mask, local)
        noised = self._add_noise(upload, len(down.shared["items"]), round, draws)
        return fed.ClientResult(fed.State(tensors, {"local": table}), noised, loss + 0.5 * decay * norms)

    def _hop(self, own: Bool[Tensor, "C P"], degree: Float[Tensor, "C K"]) -> Hop:
        """Half of a vector and half of the mean of its neighbourhood; in the released code, 1/4 and 3/4."""
        return Hop.over(0.25 if self.propagation == "native" else 0.5, own, degree)

    def _add_noise(self, upload: fed.Upload, n_items: int, round: int, draws: fed.Draws) -> fed.Upload:
        """Laplace noise on the gradients of random items."""
        if self.noise == 0 or self.noise_rows == 0:
            return upload
        clients, numbers = upload.ids.numpy(), np.arange(self.noise_rows)[None, :]
        draws = draws.hiding(clients, upload.rows["items"].cpu().numpy(), self.noise)
        chosen = draws.uniform("noise/item", round, clients[:, None], numbers) * n_items
        at = torch.cat([upload.at, torch.from_numpy(chosen.astype(np.int64)).to(upload.at.device)], dim=1)
        laplace = self.noise * draws.laplace("noise", round, clients, self.noise_rows * self.dim)
        noise = torch.from_numpy(laplace).to(upload.rows["items"]).view(len(clients), -1, self.dim)
        more = {name: torch.zeros_like(noise[:, :, : value.shape[2]]) for name, value in upload.rows.items()}
        more["items"] = noise
        rows = {name: torch.cat([value, more[name]], dim=1) for name, value in upload.rows.items()}
        return replace(upload, rows=rows, at=at)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """Step the global and every cluster's table with its participants' mean gradient; cluster the users anew."""
        shared, kept, total = server.shared, server.kept, inbox.total()
        gradient, members = self._mean_gradients(shared, inbox.each())
        value, slope, m, v = (
            tables.flatten(1) for tables in (shared["models"], gradient, kept["models.m"], kept["models.v"])
        )
        *new, steps = client_adam(value, slope, m, v, kept["steps"], lr=self.lr)
        models, first, second = (
            torch.where(members[:, None] > 0, tables, tables[GLOBAL]).view_as(gradient) for tables in new
        )  # a cluster without participants takes the global model
        users, known = kept["users"].clone(), kept["known"].clone()
        for upload in inbox.each():
            users[upload.ids], known[upload.ids] = torch.as_tensor(upload.dense["user"]), True
        label, centres = self._cluster(users, known, kept["centres"], draws)
        new_shared = {name: shared[name] + total[name] for name in ("neighbours", "degree")}
        new_shared |= {"models": models, "trained_on": shared["models"]}
        new_shared |= {"label": label, "trained_label": shared["label"]}
        new_shared["round"] = torch.full_like(shared["round"], round + 1)
        new_kept = {"models.m": first, "models.v": second, "steps": steps}
        return fed.Server(new_shared, {**new_kept, "users": users, "known": known, "centres": centres})

    def _mean_gradients(self, shared: fed.Tensors, uploads: list[fed.Upload]) -> tuple[Tensor, Tensor]:
        """For each model the mean gradient of its participants, and how many there are; all are the global one's."""
        sums, members = torch.zeros_like(shared["models"]), shared["models"].new_zeros(len(shared["models"]))
        for upload in uploads:
            label = shared["label"][upload.ids]
            sums[GLOBAL].index_add_(0, upload.at.flatten(), upload.rows["items"].flatten(0, 1))
            clustered = (label != GLOBAL).nonzero()[:, 0]
            at = (label[clustered, None].expand_as(upload.at[clustered]), upload.at[clustered])
            sums.index_put_(at, upload.rows["items"][clustered], accumulate=True)
            members += torch.bincount(label[clustered], minlength=len(members))
            members[GLOBAL] += len(label)
        return sums / members.clamp(min=1)[:, None, None], members

    def _cluster(
        self, users: Float[Tensor, "m d"], known: Bool[Tensor, " m"], before: Float[Tensor, "k d"], draws: fed.Draws
    ) -> tuple[Int[Tensor, " m"], Float[Tensor, "c d"]]:
        """Labels 1 … K of the users known so far, numbered as before."""
        found = kmeans(users[known], self.clusters, draws.generator("clusters"))
        numbers = torch.arange(len(found.centres), device=users.device)
        if self.match_clusters and len(before) == len(numbers):
            numbers = torch.tensor(assignment(torch.cdist(found.centres, before)), device=users.device)
        label = torch.full_like(known, GLOBAL, dtype=torch.int64)
        label[known] = numbers[found.labels] + 1
        return label, torch.empty_like(found.centres).index_copy_(0, numbers, found.centres)

    def score(
        self, private: fed.State, down: fed.Download, history: fed.History, items: Int[Tensor, "C M"]
    ) -> Float[Tensor, "C M"]:
        """The mean of the predictions of the global, the cluster's and, right after training, the local model."""
        at, own = history.pad()
        own = own & (private["round"] > 0)[:, None]  # who never trained has not joined the graph
        both = torch.cat([items, at], dim=1)
        local = down.tables["trained_on"].rows(both) + private.tables["local"].rows(both)
        models = [down.shared["items"][both], down.tables["model"].rows(both), local]
        here = torch.ones_like(down.each["label"], dtype=torch.bool)
        counts = [here, down.each["label"] != GLOBAL, private["round"] == down.shared["round"]]
        predicted = [self._predict(private["user"], rows, own, down.shared, items) for rows in models]
        used = torch.stack(counts)[:, :, None].to(predicted[0].dtype)
        return (torch.stack(predicted) * used).sum(0) / used.sum(0)

    def _predict(
        self, user: Float[Tensor, "C d"], rows: Tensor, own: Bool[Tensor, "C P"], shared: fed.Tensors, items: Tensor
    ) -> Float[Tensor, "C M"]:
        """û·v̂_j under one model; in the released code, u·v_j."""
        candidates, history = rows[:, : items.shape[1]], rows[:, items.shape[1] :]
        if self.propagation == "one-rule":
            hop, own_items = self._hop(own, shared["degree"][items, 0]), (history * own[:, :, None]).sum(1)
            user, candidates = hop.forward(user, own_items, candidates, shared["neighbours"][items])
        return (candidates @ user[:, :, None]).squeeze(2)
