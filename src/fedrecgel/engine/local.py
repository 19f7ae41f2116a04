"""LocalEngine: all clients in this process, trained as batched tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

from fedrecgel.channels.base import Channel, RoundSetup
from fedrecgel.channels.sums import LOSS
from fedrecgel.data.federation import Examples, Federation
from fedrecgel.draws import Draws
from fedrecgel.engine.base import Measured, Trained, measured
from fedrecgel.engine.chunks import Chunk, blocks_of, chunks_of
from fedrecgel.engine.economies import footprint, kernel_for, scores_at_once
from fedrecgel.engine.gate import GateSettings, check_declared, form_of, nobodys_upload, sift
from fedrecgel.engine.ranking import Ranking
from fedrecgel.engine.store import ClientStore
from fedrecgel.engine.uplink import Simulated, Uplink
from fedrecgel.engine.workers import Workers, one_thread
from fedrecgel.errors import ConfigError, RunError
from fedrecgel.evaluation.coverage import Coverage, Shown
from fedrecgel.evaluation.ranking import Ranks, TieRule
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import ClientResult, Download, Problem, Server, Upload
from fedrecgel.models.kernels import allow_kernels
from fedrecgel.models.kernels.compiler import compiler, library
from fedrecgel.tables import State
from fedrecgel.tensors import Ids, n_bytes, release

EXAMPLES_AT_ONCE = 2_000_000
"""Examples drawn together: drawing takes some 150 bytes for each, and a million clients may train in one round."""


@dataclass(frozen=True)
class LocalSettings:
    """How much is done at once; metrics do not depend on it beyond rounding."""

    workers: Annotated[int, Meta(ge=0)] = 0
    """Threads that train and score chunks at the same time; 0 takes all cores. Any number gives the same bits."""
    accelerate: bool | Literal["auto"] = "auto"
    """Train through a compiled kernel where there is one; it agrees to rounding. true needs a C++ compiler, false takes
    none; "auto" takes one that is built already, builds it for long runs, and config.toml records what it chose."""
    chunk_examples: Annotated[int, Meta(ge=1)] = 3072
    """Padded examples trained together: small enough for the cache, large enough to batch."""
    chunk_scores: Annotated[int, Meta(ge=1)] = 8192
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
        gate: GateSettings | None = None,
    ) -> None:
        self.method, self.federation, self.channel, self.store, self.draws = method, federation, channel, store, draws
        self.settings, self.gate = settings or LocalSettings(), gate or GateSettings()
        if method.samples_negatives:
            federation.check_negatives()
        kernel = kernel_for(method, channel, federation.dtype, federation.device)
        self.accelerated = self.settings.accelerate is True and kernel is not None
        """Whether compiled back ends of models are in use: decided here and nowhere else."""
        if self.accelerated and library(kernel) is None:
            raise ConfigError(
                f"local.accelerate = true needs a C++ compiler that can build {kernel.file if kernel else ''} "
                f"(`CXX`, c++ or g++). Found {compiler() or 'none'}, and it could not be used. Take 'auto' or false."
            )
        self.devices, self._inbound = channel.device(draws.own), channel.server()
        keep_freed_memory()
        self._workers = Workers(self.settings.workers)

    def population(self) -> Ids:
        """Everyone."""
        return torch.arange(self.federation.n_clients)

    def train(self, server: Server, cohort: Ids, round: int) -> Trained:
        """Broadcast, train the cohort, collect.

        Raises:
            RunError: the gate refused every upload.
        """
        setup = RoundSetup.of(self.method, round, cohort, self.federation.n_items, shared=server.shared)
        self.channel.check_cohort(type(self.method).__name__, len(cohort), setup)
        if not len(cohort):  # a channel drew each client by chance; its noise tells nobody
            data = self.federation
            problem = Problem(data.n_clients, data.n_items, data.dtype, data.device)
            forms = form_of(self.method, server, problem, round)
            return Trained(self._inbound.collect([nobodys_upload(forms)], setup), None, 0, 0, 0, {})
        uplink = Simulated(self.channel, self.devices, self._inbound, setup)
        trained = self.train_with(self.method.broadcast(server, cohort), cohort, round, uplink)
        for value in server.kept.values():
            release(value)
        if not trained.n_answers:
            raise RunError(
                f"Uploads of round {round + 1} should be finite and no longer than gate.max_norm = "
                f"{self.gate.max_norm:g}. None is: training diverged. Lower a learning rate or a radius; "
                f"the last checkpoint is untouched."
            )
        return trained

    @one_thread()
    def train_with(self, down: Download, cohort: Ids, round: int, uplink: Uplink) -> Trained:
        """Train the cohort in chunks of clients of similar length, several at a time.

        Chunks are summed in their own order whatever the number of workers, so the result is the same to the bit. What
        the devices learnt is kept only after the last chunk, so an interrupted round leaves no trace.
        """
        negatives = self.method.samples_negatives
        lengths = self.federation.n_examples(cohort, negatives=negatives)
        order = torch.argsort(lengths, descending=True, stable=True)  # clients of similar length need little padding
        weights = footprint(self.method, lengths[order], self.federation.n_items, compiled=self.accelerated)
        blocks = blocks_of(chunks_of(weights, self.settings.chunk_examples), lengths[order], EXAMPLES_AT_ONCE)

        def draw(block: list[Chunk]) -> Examples:
            clients = cohort[order[block[0][0] : block[-1][1]]]
            return self.federation.examples(clients, round, self.draws, negatives=negatives)

        drawn = self._workers.begin(lambda: [draw(block) for block in blocks[:1]])
        opened = self.devices.open_download(down)  # every device does; a simulator once for all

        def chunks() -> Iterator[tuple[Chunk, Examples, int]]:
            """With the examples of their block and its first client; later blocks are drawn when it is their turn."""
            for block, examples in zip(blocks, chain(drawn(), map(draw, blocks[1:])), strict=True):
                yield from ((chunk, examples, block[0][0]) for chunk in block)

        def train_chunk(part: tuple[Chunk, Examples, int]) -> ClientResult:
            (first, last), examples, start = part
            batch = examples.batch(first - start, last - start)
            received = opened.of(order[first:last])
            with allow_kernels(self.accelerated):
                result = self.method.client_update(self.store.lend(batch.ids), received, batch, round, self.draws)
            check_declared(result.upload, self.method)
            result = sift(result, self.gate, round)
            upload = result.upload
            if getattr(uplink, "takes_losses", False) and result.loss is not None:  # on nodes that hide them
                upload = replace(upload, dense={**upload.dense, LOSS: result.loss})
            return result._replace(upload=uplink.leave(upload))

        learnt: list[tuple[Ids, State]] = []
        losses: list[Tensor] = []
        bytes_up, n_answers = 0, 0

        def uploads() -> Iterator[Upload]:
            nonlocal bytes_up, n_answers
            for result in self._workers.in_order(train_chunk, chunks()):
                ids = result.upload.ids
                if len(ids):
                    learnt.append((ids, result.private))
                    n_answers += len(ids)
                    if result.loss is not None:
                        losses.append(result.loss)
                    bytes_up += len(ids) * result.upload.n_bytes(self.federation.n_items)
                    yield result.upload

        inbox = uplink.collect(uploads())
        for ids, private in learnt:
            self.store.write(ids, private)
        self.store.release()
        n_refused = len(cohort) - n_answers
        return Trained(
            inbox,
            loss=torch.cat(losses).mean() if losses else None,
            bytes_up=bytes_up + uplink.sent_up,
            bytes_down=len(cohort) * n_bytes(down.shared) + uplink.sent_down + down.own_bytes,
            n_answers=n_answers,
            refused={"norm": n_refused} if n_refused else {},
        )

    def measure(self, server: Server, held_out: str, against: str, ks: Sequence[int], ties: TieRule) -> Measured:
        """From ranks: a simulator has them all."""
        return measured(self.ranks(server, held_out, against), ks, ties)

    def ranks(
        self,
        server: Server,
        held_out: str,
        against: str,
        lists: Coverage | None = None,
        sample: Ids | None = None,
        watch: Callable[[int, int], None] = lambda done, clients: None,
    ) -> Ranks:
        """Rank every client's held-out items; clients without any are left out.

        Args:
            server: the model.
            held_out: which items.
            against: the candidates or the whole catalogue.
            lists: counts what clients are shown.
            sample: some of the clients, from `sample`.
            watch: hears how many clients are done, and of how many.
        """
        clients = self.ranked(held_out) if sample is None else sample
        return self.ranks_with(self.method.broadcast(server, clients), held_out, against, lists, sample, watch)

    def sample(self, held_out: str, most: int) -> Ids | None:
        """At most so many of the clients that have such items, at random, the same in all rounds; None if all fit."""
        everyone = self.ranked(held_out)
        if len(everyone) <= most:
            return None
        chosen = self.draws.generator("sample").choice(len(everyone), most, replace=False)
        return everyone[torch.from_numpy(chosen).sort().values]

    def ranked(self, held_out: str) -> Ids:
        """The clients that have such held-out items."""
        return torch.from_numpy(Ranking.of(self.federation.split, held_out, "candidates").clients)

    @one_thread()
    def ranks_with(
        self,
        down: Download,
        held_out: str,
        against: str,
        lists: Coverage | None = None,
        sample: Ids | None = None,
        watch: Callable[[int, int], None] = lambda done, clients: None,
    ) -> Ranks:
        """Rank with what those clients received."""
        some = None if sample is None else sample.numpy()
        ranking = Ranking.of(self.federation.split, held_out, against, some)
        everyone = ranking.clients
        whole = against == "catalogue"
        budget = scores_at_once(self.method, self.settings.chunk_scores, compiled=self.accelerated, whole=whole)
        size = max(1, budget // ranking.n_scores)
        down = self.devices.open_download(down)

        # Written in place: small results left between the large blocks would keep the allocator from reusing them.
        ranks = ranking.blank()
        place = ranks.ptr if ranks.ptr is not None else torch.arange(len(everyone) + 1)

        def rank_block(start: int) -> list[Shown]:
            users = everyone[start : start + size]
            items, ids = ranking.items(users), torch.from_numpy(users)
            received, history = down.of(slice(start, start + size)), self.federation.history(ids)
            with allow_kernels(self.accelerated):
                scores = self.method.score(
                    self.store.look(ids), received, history, items.to(self.federation.device)
                ).cpu()
            found = ranking.rank(users, scores)
            here = slice(int(place[start]), int(place[start + len(users)]))
            ranks.above[here] = found.above
            ranks.tied[here] = found.tied
            return [] if lists is None else lists.shown(scores, ranking.left_out(users))

        starts = range(0, len(everyone), size)
        for start, shown in zip(starts, self._workers.in_order(rank_block, starts), strict=True):
            if lists is not None:
                lists.add(shown)
            watch(min(start + size, len(everyone)), len(everyone))
            self.store.release()
        return ranks


@cache
def keep_freed_memory() -> None:
    """Ask glibc not to return memory that the next chunk takes again, which costs a page fault for each page."""
    mmap_threshold, trim_threshold = -3, -1  # as malloc.h numbers them
    with suppress(OSError, AttributeError, TypeError):  # other systems, other allocators
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 32 << 20)
        library.mallopt(trim_threshold, 256 << 20)
