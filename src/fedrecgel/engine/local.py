"""LocalEngine: all clients in this process, trained as batched tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from fedrecgel.data.federation import Federation
from fedrecgel.data.split import NO_ITEM
from fedrecgel.draws import Draws
from fedrecgel.engine.run import Trained
from fedrecgel.engine.store import ClientStore
from fedrecgel.evaluation.ranking import Ranks, rank_against
from fedrecgel.methods.base import Download, Method, Server, Upload
from fedrecgel.privacy.channel import Channel
from fedrecgel.tensors import Ids, n_bytes


@dataclass(frozen=True)
class LocalSettings:
    """How much is done at once; results do not depend on it beyond rounding."""

    chunk_examples: int = 2048
    """Padded examples trained together: small enough for the cache, large enough to batch."""
    chunk_scores: int = 8192
    """Scores computed together in evaluation."""


class LocalEngine:
    """Simulates every client; keeps their private tensors in a store the server side never reads."""

    def __init__(
        self,
        method: Method,
        federation: Federation,
        channel: Channel,
        store: ClientStore,
        draws: Draws,
        settings: LocalSettings | None = None,
    ) -> None:
        self.method, self.federation, self.channel, self.store, self.draws = method, federation, channel, store, draws
        self.settings = settings or LocalSettings()

    def population(self) -> Ids:
        """Everyone."""
        return torch.arange(self.federation.n_clients)

    def train(self, server: Server, cohort: Ids, round: int) -> Trained:
        """Train the cohort in chunks of clients of similar length.

        What the devices learnt is kept only after the last chunk, so an interrupted round leaves no trace.
        """
        down = self.method.broadcast(server, cohort)
        shared = self.method.unpack(down.shared)
        learnt: list[tuple[Ids, dict[str, Tensor]]] = []
        losses: list[Tensor] = []

        def uploads() -> Iterator[Upload]:
            for chosen in chunks_by_length(self.federation.n_examples(cohort), self.settings.chunk_examples):
                ids = cohort[chosen]
                each = {name: value[chosen] for name, value in down.each.items()}
                batch = self.federation.batch(ids, round, self.draws)
                private, upload, loss = self.method.client_update(
                    self.store.read(ids), Download(shared, each), batch, round, self.draws
                )
                learnt.append((ids, private))
                losses.append(loss)
                yield self.channel.seal(upload, round)

        inbox = self.channel.collect(uploads(), self.federation.n_items, self.method.server_needs)
        for ids, private in learnt:
            self.store.write(ids, private)
        return Trained(
            inbox,
            loss=torch.cat(losses).mean(),
            bytes_up=len(cohort) * n_bytes(inbox.total()),  # tables as dense as they are on a real wire
            bytes_down=len(cohort) * n_bytes(down.shared) + n_bytes(down.each),
        )

    def ranks(self, server: Server, held_out: str, against: str) -> Ranks:
        """Rank every client's held-out item; clients without a validation item are left out."""
        split = self.federation.split
        test, candidates = split.test, split.candidates
        if held_out == "validation":
            if split.validation is None or split.validation_candidates is None:
                raise ValueError("this split has no validation items")
            test, candidates = split.validation, split.validation_candidates
        everyone = np.flatnonzero(test != NO_ITEM)
        per_client = split.n_items if against == "catalogue" else candidates.shape[1] + 1
        size = max(1, self.settings.chunk_scores // per_client)
        down = self.method.broadcast(server, torch.from_numpy(everyone))
        shared = self.method.unpack(down.shared)
        parts = []
        for start in range(0, len(everyone), size):
            users = everyone[start : start + size]
            each = {name: value[start : start + size] for name, value in down.each.items()}
            if against == "catalogue":
                items = torch.arange(split.n_items).expand(len(users), -1)
            else:
                items = torch.from_numpy(np.concatenate([test[users, None], candidates[users]], axis=1))
            scores = self.method.score(
                self.store.read(torch.from_numpy(users)), Download(shared, each), items.to(self.federation.device)
            )
            if against == "catalogue":
                target = torch.from_numpy(test[users]).to(scores.device)[:, None]
                held = scores.gather(1, target)[:, 0]
                scores = scores.masked_fill(self._observed(users).to(scores.device), -torch.inf)
                found = rank_against(held, scores.scatter(1, target, -torch.inf))
            else:
                found = rank_against(scores[:, 0], scores[:, 1:])
            parts.append(Ranks(found.above.cpu(), found.tied.cpu()))
        return Ranks.concat(parts)

    def _observed(self, users: npt.NDArray[np.int64]) -> Bool[Tensor, "C n"]:
        """True for every item a client has touched: these are not recommended again."""
        observed = self.federation.split.observed
        owner, at = observed.flat(users)
        mask = torch.zeros(len(users), observed.n_items, dtype=torch.bool)
        mask[torch.from_numpy(owner), torch.from_numpy(observed.items[at]).long()] = True
        return mask


def chunks_by_length(lengths: Int[Tensor, " C"], budget: int) -> Iterator[Int[Tensor, " c"]]:
    """Positions of clients of similar length, longest first, at most `budget` examples after padding."""
    order = torch.argsort(lengths, descending=True, stable=True)
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        size = max(1, budget // longest)
        yield order[start : start + size]
        start += size
