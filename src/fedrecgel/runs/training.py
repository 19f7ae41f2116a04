"""Train: the loop around `engine.run.run` that evaluates, selects, records and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from fedrecgel.channels.base import Channel, RoundSetup
from fedrecgel.channels.registry import check_channel
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.checkpoint import Checkpoint, Snapshot
from fedrecgel.engine.economies import kernel_for
from fedrecgel.engine.local import LocalEngine
from fedrecgel.engine.run import Round, run
from fedrecgel.engine.store import ClientStore
from fedrecgel.errors import RunError, RunFolderError
from fedrecgel.evaluation.metrics import is_metric
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Problem, Server
from fedrecgel.models.kernels import with_kernels
from fedrecgel.runs.allowed import allowed_rounds, check_limits
from fedrecgel.runs.config import Config, MethodSettings
from fedrecgel.runs.continued import Continued
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.host import Hosting, simulated
from fedrecgel.runs.measuring import Measuring
from fedrecgel.runs.ranks_file import RankFile, test_fingerprint
from fedrecgel.runs.reference import has_reference
from fedrecgel.runs.result import Result
from fedrecgel.runs.resumable import read_resumable
from fedrecgel.runs.settings import run_fingerprint
from fedrecgel.runs.summary import summarise
from fedrecgel.runs.verdict import NOTHING_MEASURED, verdicts
from fedrecgel.tensors import copy, move

NOBODY = Ranks(*torch.empty(2, 0, dtype=torch.int64))
"""Ranks where nothing is held out."""
CHECKPOINT_SHARE = 20
"""Rounds between two checkpoints take at least so many times as long as writing one."""
Line = dict[str, Any]
"""One round of metrics.jsonl."""


class Interrupted(Exception):  # noqa: N818 - not an error: the run can be resumed
    """Training stopped on request after this many rounds."""

    def __init__(self, rounds: int) -> None:
        super().__init__(f"stopped after round {rounds}")
        self.rounds = rounds


def check_first_cohort(method: Method, channel: Channel, problem: Problem, server: Server, draws: Draws) -> None:
    """Refuse cohorts that are too small for the channel before anything is trained or written."""
    cohort = method.cohort(server, torch.arange(problem.n_clients), 0, draws)
    setup = RoundSetup.of(method, 0, cohort, problem.n_items, shared=server.shared)
    channel.check_cohort(type(method).__name__, len(cohort), setup)


class Training:
    """One run in progress."""

    def __init__(
        self,
        config: Config,
        split: Split,
        folder: RunFolder | None,
        host: Hosting | None = None,
        start: Result | None = None,
        ranked: Callable[[int, int], None] = lambda done, clients: None,
    ) -> None:
        started = time.perf_counter()
        self._ranked = ranked
        self.config, self.split, self.folder, self._host = config, split, folder, host or simulated
        self.settings = config.to_dict()
        self.draws = Draws(config.run.seed)
        device, dtype = torch.device(config.run.device), getattr(torch, config.run.dtype)
        problem = Problem(split.n_users, split.n_items, dtype, device)
        self.method = config.method.build().settled(problem, goes_on=start is not None)
        self.channel = channel = config.channel()
        check_channel(config.method.name, self.method, channel)
        self.engine, self.store, self.devices = self._host(config, self.method, channel, problem, split)
        self.accelerated = isinstance(self.engine, LocalEngine) and self.engine.accelerated
        if config.run.engine == "flower" and config.flower.superlink is None and config.local.accelerate is True:
            self.accelerated = kernel_for(self.method, channel, dtype, device) is not None  # the nodes insist on it
        server, self.continued = self.method.init_server(problem, self.draws), None
        if start is not None and isinstance(self.store, ClientStore):
            self.continued = Continued(start, str(config.run.start), self.method, problem, split, self.draws)
            server = self.continued.shared(server)
            self.store.write(*self.continued.private())
        self.server = self.devices.seal_server(server)
        check_first_cohort(self.method, channel, problem, self.server, self.draws)
        check_limits(config.gate, self.method, self.server.shared)
        self.last_round = allowed_rounds(config, self.method, channel, split.n_users)
        self.round = 0
        self.best_round: int | None = None
        self.best_value = -math.inf
        self._best: Snapshot | None = None  # in memory only when there is no folder to keep it in
        self.measuring = Measuring(self.engine, split, config.evaluation, ranked)
        self.popularity: Ranks | None = None
        """Ranks by popularity, once it is measured."""
        self.history: list[Line] = []
        self._saved_at, self._saving = started, 0.0
        """When the last checkpoint was complete, and how many seconds it took."""
        self._saved_best: int | None = None
        """The best round that the last checkpoint names: its snapshot must stay."""
        self.seconds_total = time.perf_counter() - started

    @property
    def fingerprint(self) -> str:
        """What a checkpoint of this run carries."""
        return run_fingerprint(self.settings, self.split.fingerprint, accelerated=self.accelerated)

    def fit(self, watch: Callable[[Line], None], should_stop: Callable[[], bool]) -> None:
        """Train up to the last round."""
        for line in self.steps(should_stop):
            watch(line)

    def steps(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Line]:
        """Train up to the last round, and yield the line of each; nothing is trained unless the next one is asked for.

        Raises:
            Interrupted: it was asked to stop before the last round.
        """
        started = time.perf_counter()
        every = self.config.checkpoint.every
        if self.round == 0 and self.channel.keep():  # a round that is begun again must find its secrets
            self._checkpoint()
        rounds = run(self.method, self.engine, self.server, self.last_round, self.draws, self.round, self.channel.draw)
        for finished in with_kernels(rounds, self.accelerated):  # the server's step, too
            seconds = time.perf_counter() - started
            line = self._record(finished, seconds)
            self.seconds_total += time.perf_counter() - started
            started = time.perf_counter()
            stop = should_stop()
            if stop or self.round == self.last_round or (self.round % every == 0 and self._checkpoint_pays()):
                self._checkpoint()
            self.seconds_total += time.perf_counter() - started
            yield line
            if self.round >= self.last_round:  # also where it was ended here
                return
            if stop:
                raise Interrupted(self.round)
            started = time.perf_counter()

    def end_here(self) -> None:
        """Make the round that is finished the last one: the run is then one of so many rounds."""
        if self.config.run.rounds != self.round:
            self.config = replace(self.config, run=replace(self.config.run, rounds=self.round))
            self.settings, self.last_round = self.config.to_dict(), self.round
        self._evaluate_late()

    def _evaluate_late(self) -> None:
        """The last round is always evaluated, also where it was not meant to be the last."""
        late = bool(self.history) and f"HR@{max(self.config.evaluation.ks)}" not in self.history[-1]
        if late and self.round == self.last_round and not self.config.run.final:
            self._evaluate_line(self.history[-1])

    def _record(self, finished: Round, seconds: float) -> Line:
        """Take over a finished round: check it, evaluate it when due, write its line."""
        self.server, self.round = finished.server, finished.number + 1
        self.measuring.forget()
        loss = None if finished.trained.loss is None else float(finished.trained.loss)
        if loss is not None and not math.isfinite(loss):
            raise RunError(
                f"The loss of round {self.round} is {loss}: training diverged. Lower a learning rate or a radius; "
                f"the last checkpoint is untouched."
            )
        line: Line = {
            "round": self.round,
            "loss": loss,
            "seconds_train": seconds,
            "seconds_evaluate": 0.0,
            "clients": finished.trained.n_answers,
            "dropped": len(finished.cohort) - finished.trained.n_answers,
            "refused": dict(finished.trained.refused),
            "bytes_up": finished.trained.bytes_up,
            "bytes_down": finished.trained.bytes_down,
        }
        due = self.round % self.config.evaluation.every == 0 or self.round == self.last_round
        if due and not self.config.run.final:
            self._evaluate_line(line)
        self.history.append(line)
        if self.folder is not None:
            self.folder.append(line)
        return line

    def _evaluate_line(self, line: Line) -> None:
        started = time.perf_counter()
        line |= self.evaluate("test", "candidates")
        if self.split.validation is not None:
            line["validation"] = self.evaluate("validation", "candidates")
        self._select(line)
        line["seconds_evaluate"] = time.perf_counter() - started

    def evaluate(self, held_out: str, against: str) -> dict[str, float]:
        """Metrics of the current model over all clients."""
        return self.measuring.of(self.server, held_out, against).metrics

    def _select(self, line: Line) -> None:
        """Keep a copy of the best model so far, by HR at the largest K; the earliest wins a draw."""
        selection = self.config.evaluation.selection
        if selection == "last":
            return
        found = line["validation"] if selection == "validation" else line
        value = found[f"HR@{max(self.config.evaluation.ks)}"]
        if value > self.best_value:
            self.best_round, self.best_value = self.round, value
            shared = self.devices.unseal_server(self.server).shared
            snapshot = Snapshot(self.round, self.fingerprint, shared, self.store.everyone())
            if self.folder is not None:
                self.folder.forget_other_bests(self._saved_best)  # room first: snapshots may weigh gigabytes
                snapshot.write(self.folder.best(self.round))
            else:
                self._best = replace(snapshot, shared=copy(snapshot.shared), clients=snapshot.clients.copy())

    def _checkpoint_pays(self) -> bool:
        """Whether training took long enough since the last one: private state of a million users takes seconds."""
        return time.perf_counter() - self._saved_at >= CHECKPOINT_SHARE * self._saving

    def _checkpoint(self) -> None:
        if self.folder is None:
            return
        started = time.perf_counter()
        totals = {"seconds_total": self.seconds_total, "best_value": self.best_value}
        clients, path = self.store.everyone(), self.folder.checkpoint
        server = self.devices.unseal_server(self.server)
        kept = self.channel.keep()
        saved = Checkpoint(self.round, self.fingerprint, server, clients, self.best_round, totals, self.history, kept)
        saved.write(path)
        self.folder.forget_other_bests(self.best_round)
        self._saved_best = self.best_round
        self._saved_at = time.perf_counter()
        self._saving = self._saved_at - started

    def restore(self) -> None:
        """Go back to the folder's last checkpoint; a run killed before its first one starts again."""
        if self.folder is None:
            raise RunFolderError("Only a run with a folder can be resumed.")
        saved = read_resumable(self.folder, self.config, self.fingerprint)
        if saved is not None:
            self.history = [dict(line) for line in saved.history]
            device = torch.device(self.config.run.device)
            server = Server(move(saved.server.shared, device), move(saved.server.kept, device))
            self.server = self.devices.seal_server(server)
            self.round, self.best_round = saved.round, saved.best_round
            self._saved_best = saved.best_round
            self.store.load(saved.clients.to(device), give=True)
            self.best_value, self.seconds_total = saved.totals["best_value"], saved.totals["seconds_total"]
            if saved.channel:
                self.channel.restore(saved.channel)
                self.last_round = allowed_rounds(self.config, self.method, self.channel, self.split.n_users)
            self._evaluate_late()  # stopped here earlier, on the way to more rounds
        self.folder.reopen(self.config.to_toml(), self.history)

    def finish(self) -> Result:
        """Evaluate the reported model once more in full."""
        started = time.perf_counter()
        reported = self.round
        if self.best_round is not None:
            reported = self.best_round
            if reported != self.round:
                self._return_to(reported)
        settings, final = self.config.evaluation, self.config.run.final
        against = ["candidates", "catalogue"] if settings.full else ["candidates"]
        measures = {} if final else {name: self.measuring.of(self.server, "test", name) for name in against}
        full = measures["catalogue"].metrics if settings.full and not final else None
        known = {name: one.ranks for name, one in measures.items() if one.ranks is not None}
        if self.measuring.sampled is not None:
            del known["catalogue"]  # ranks are kept where everybody has one
        ranks = dict.fromkeys(against, NOBODY) if final else known
        seconds_full = time.perf_counter() - started
        reference = self._reference() if has_reference(self.config) and not final else {}
        self.seconds_total += time.perf_counter() - started
        summary = summarise(self, reported, full, reference, seconds_full)
        found = [NOTHING_MEASURED] if final else verdicts(self, ranks.get("candidates"), self.popularity)
        summary["warnings"] += found
        data = self.split.interactions
        return Result(
            self.config,
            summary,
            self.history,
            shared=move(self.devices.unseal_server(self.server).shared, torch.device("cpu")),
            clients=self.store.everyone().to(torch.device("cpu")),
            train=self.split.train,
            user_ids=data.user_ids,
            item_ids=data.item_ids,
            ranks=RankFile(test_fingerprint(self.split), ranks),
            observed=self.split.observed,
            item_titles=self.continued.titles() if self.continued else data.item_titles,
        )

    def _return_to(self, round: int) -> None:
        """Take back the model of the selected round."""
        self.measuring.forget()
        self.server = Server({})  # frees what only training needs before the snapshot is read
        best = self._best
        if best is None and self.folder is not None:
            best = Snapshot.read(self.folder.best(round), self.fingerprint)
        if best is None:
            raise RunError(f"The model of round {round} is gone.")
        device = torch.device(self.config.run.device)
        self.server = Server(move(best.shared, device))
        self.store.load(best.clients.to(device))

    def _reference(self) -> dict[str, dict[str, float]]:
        """Popularity on the same split, through the same engine and, on nodes, through the same channel."""
        method = MethodSettings("popularity")
        # A simulator spares itself the sealing, and its summary says what devices would send; nodes send it sealed.
        channel = "plain" if self.config.run.engine == "local" else self.config.run.channel
        run = replace(self.config.run, rounds=1, channel=channel)
        gate = self.config.gate.without_limits  # they fit the uploads of the run's own method
        config = replace(self.config, method=method, run=run, gate=gate)
        reference = Training(config, self.split, None, self._host, ranked=self._ranked)
        reference.fit(lambda line: None, lambda: False)
        last = reference.history[-1]
        shown = reference.measuring
        self.popularity = shown.of(reference.server, "test", "candidates").ranks
        found = {"candidates": {name: last[name] for name in last if is_metric(name)}}
        if self.config.evaluation.full:
            found["catalogue"] = reference.evaluate("test", "catalogue")
        if shown.coverage is not None and shown.popular is not None:
            found |= {"coverage": shown.coverage, "popular": shown.popular}
        return found
