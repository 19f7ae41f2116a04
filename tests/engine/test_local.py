from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from tests.builders import TINY, engine_of, problem_of, random_split
from torch import Tensor

from fedrecgel.data.federation import ClientBatch, Examples, Federation
from fedrecgel.data.split import NO_ITEM, Split
from fedrecgel.draws import Draws
from fedrecgel.engine import local
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.engine.run import run
from fedrecgel.errors import PrivacyError
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import ClientResult, Download, Server
from fedrecgel.methods.popularity import Popularity
from fedrecgel.tables import State

SPLIT = random_split(n_users=14, n_items=130, validation=True)


def trained(method: Method, local: LocalSettings | None = None, rounds: int = 3) -> tuple[LocalEngine, Server]:
    engine = engine_of(method, SPLIT, local=local)
    server = method.init_server(problem_of(SPLIT), engine.draws)
    for finished in run(method, engine, server, rounds, engine.draws):
        server = finished.server
    return engine, server


@pytest.mark.parametrize("method", [FedNCF(**TINY), FedRecGEL(**TINY), Popularity()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("size", [1, 150, 10**9])
def test_chunks_do_not_matter(method: Method, size: int) -> None:
    usual, usual_server = trained(method)
    other, other_server = trained(method, LocalSettings(chunk_examples=size, chunk_scores=size))
    private = (usual.store.everyone().pack(), other.store.everyone().pack())
    for first, second in (private, (usual_server.shared, other_server.shared)):
        for name in first:
            torch.testing.assert_close(first[name], second[name], rtol=1e-9, atol=1e-11)
    for held_out in ("test", "validation"):
        for against in ("candidates", "catalogue"):
            first_ranks, second_ranks = (engine.ranks(usual_server, held_out, against) for engine in (usual, other))
            assert torch.equal(first_ranks.above, second_ranks.above)
            assert torch.equal(first_ranks.tied, second_ranks.tied)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_do_not_change_a_bit(workers: int) -> None:
    method = FedRecGEL(**{**TINY, "fraction": 1.0})
    usual, usual_server = trained(method, LocalSettings(workers=3, chunk_examples=60))
    other, other_server = trained(method, LocalSettings(workers=workers, chunk_examples=60))
    private = (usual.store.everyone().pack(), other.store.everyone().pack())
    for first, second in (private, (usual_server.shared, other_server.shared)):
        assert all(torch.equal(first[name], second[name]) for name in first)
    blocks = LocalSettings(workers=workers, chunk_scores=200)
    for against in ("candidates", "catalogue"):
        alone = engine_of(method, SPLIT, local=blocks)
        alone.store.load(usual.store.everyone())
        assert pairs(alone.ranks(usual_server, "test", against)) == pairs(usual.ranks(usual_server, "test", against))


@pytest.mark.parametrize(
    "method", [FedRecGEL(**{**TINY, "fraction": 1.0}), Popularity()], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize("workers", [1, 2])
def test_examples_are_drawn_some_at_a_time_and_change_no_bit(
    method: Method, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn all at once, those of a million clients take several GB."""
    drawn: list[int] = []
    draw = Federation.examples

    def watch(federation: Federation, ids: Tensor, round: int, draws: Draws, *, negatives: bool) -> Examples:
        drawn.append(int(federation.n_examples(ids, negatives=negatives).sum()))
        return draw(federation, ids, round, draws, negatives=negatives)

    monkeypatch.setattr(Federation, "examples", watch)
    settings = LocalSettings(workers=workers, chunk_examples=40)
    usual, usual_server = trained(method, settings)
    assert len(drawn) == 3  # one for each round
    monkeypatch.setattr(local, "EXAMPLES_AT_ONCE", 60)
    other, other_server = trained(method, settings)
    longest = int(usual.federation.n_examples(usual.population(), negatives=method.samples_negatives).max())
    assert max(drawn[3:]) <= max(60, longest) < min(drawn[:3])
    for first, second in (
        (usual.store.everyone().pack(), other.store.everyone().pack()),
        (usual_server.shared, other_server.shared),
    ):
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


def naive_ranks(
    engine: LocalEngine, server: Server, split: Split, held_out: str, against: str
) -> list[tuple[int, int]]:
    """One user at a time, one item at a time."""
    assert split.validation is not None
    assert split.validation_candidates is not None
    targets, candidates = split.test, split.candidates
    if held_out == "validation":
        targets, candidates = split.validation, split.validation_candidates
    found = []
    for user in range(split.n_users):
        if targets[user] == NO_ITEM:
            continue
        ids, items = torch.tensor([user]), torch.arange(split.n_items)[None, :]
        history = engine.federation.history(ids)
        scores = engine.method.score(engine.store.read(ids), Download(server.shared), history, items)[0].tolist()
        others = candidates[user].tolist()
        if against == "catalogue":
            touched = split.observed.items[split.observed.ptr[user] : split.observed.ptr[user + 1]].tolist()
            others = [item for item in range(split.n_items) if item not in touched]
        own = scores[targets[user]]
        found.append((sum(scores[item] > own for item in others), sum(scores[item] == own for item in others)))
    return found


def pairs(ranks: Ranks) -> list[tuple[int, int]]:
    return list(zip(ranks.above.tolist(), ranks.tied.tolist(), strict=True))


@pytest.mark.parametrize("held_out", ["test", "validation"])
@pytest.mark.parametrize("against", ["candidates", "catalogue"])
@pytest.mark.parametrize("method", [Popularity(), FedNCF(**TINY)], ids=lambda m: type(m).__name__)
def test_ranks_against_a_loop(method: Method, held_out: str, against: str) -> None:
    """Popularity has many ties; in the random data some test items are also training items."""
    engine, server = trained(method)
    found = pairs(engine.ranks(server, held_out, against))
    assert found == naive_ranks(engine, server, SPLIT, held_out, against)
    assert not isinstance(method, Popularity) or any(tied for _, tied in found)


def test_ranking_validation_items_needs_them() -> None:
    method = Popularity()
    split = random_split()
    engine = engine_of(method, split)
    with pytest.raises(ValueError, match="no validation items"):
        engine.ranks(method.init_server(problem_of(split), engine.draws), "validation", "candidates")


@dataclass(frozen=True, kw_only=True)
class Fragile(FedNCF):
    """Breaks on the device of one client."""

    fragile: ClassVar[int] = 0

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        if round == 1 and self.fragile in batch.ids.tolist():
            raise KeyboardInterrupt
        return super().client_update(private, down, batch, round, draws)


def test_an_interrupted_round_leaves_no_trace() -> None:
    lengths = SPLIT.train.ptr[1:] - SPLIT.train.ptr[:-1]
    Fragile.fragile = int(lengths.argmin())  # the longest go first, so this one is in the last chunk
    method = Fragile(**{**TINY, "fraction": 1.0})
    engine = engine_of(method, SPLIT, local=LocalSettings(chunk_examples=1))
    server = method.init_server(problem_of(SPLIT), engine.draws)
    rounds = run(method, engine, server, 3, engine.draws)
    server = next(rounds).server
    before = {name: value.clone() for name, value in engine.store.everyone().tensors.items()}
    shared = {name: value.clone() for name, value in server.shared.items()}
    with pytest.raises(KeyboardInterrupt):
        next(rounds)
    after: dict[str, Tensor] = engine.store.everyone().tensors
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(shared[name], server.shared[name]) for name in shared)
    assert int(before["user_steps"].max()) == 1


def test_what_travels() -> None:
    method = FedNCF(**TINY).settled(problem_of(SPLIT))
    engine = engine_of(method, SPLIT, dtype=torch.float32)
    server = method.init_server(problem_of(SPLIT, torch.float32), engine.draws)
    finished = next(run(method, engine, server, 1, engine.draws))
    size = 4 * sum(value.numel() for value in server.shared.values())
    assert len(finished.cohort) == 7
    assert (finished.trained.bytes_up, finished.trained.bytes_down) == (7 * size, 7 * size)
    assert set(finished.trained.inbox.total()) == method.leaves_device()


def test_what_is_not_declared_does_not_leave() -> None:
    class Chatty(FedMF):
        """Sends what it does not declare."""

        sends: ClassVar[frozenset[str]] = frozenset({"other"})

    method = Chatty(dim=4)
    engine = engine_of(method, SPLIT)
    server = method.init_server(problem_of(SPLIT), engine.draws)
    with pytest.raises(PrivacyError, match="Chatty declares other and sends items, too"):
        engine.train(server, engine.population(), 0)
