"""Ranks of several held-out items from the engine, beside a plain loop over one client at a time."""

from __future__ import annotations

import pytest
import torch
from tests.builders import engine_of, problem_of, random_interactions, tiny

from fedrecgel.data.protocols import make_split
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.evaluation.coverage import Coverage
from fedrecgel.methods import METHODS
from fedrecgel.methods.messages import Server


def trained(kind: str, method: str, chunk_scores: int = 8192) -> tuple[LocalEngine, Server]:
    split = make_split(random_interactions(14, 150, longest=30), kind=kind, validation=True, candidates=20)
    engine = engine_of(METHODS[method](**tiny(method)), split, local=LocalSettings(chunk_scores=chunk_scores))
    server = engine.method.init_server(problem_of(split), engine.draws)
    inbox = engine.train(server, engine.population(), 0).inbox
    return engine, engine.method.server_update(server, inbox, 0, engine.draws)


def by_hand(engine: LocalEngine, server: Server, which: str, against: str) -> list[tuple[int, int]]:
    """(above, tied) of each held-out item, from all scores of its client."""
    split, found = engine.federation.split, []
    held_out = split.held_out(which)
    for user in range(split.n_users):
        ids = torch.tensor([user])
        everything = torch.arange(split.n_items)[None]
        down = engine.method.broadcast(server, ids)
        scores = engine.method.score(engine.store.look(ids), down, engine.federation.history(ids), everything)[0]
        own = held_out.items[held_out.ptr[user] : held_out.ptr[user + 1]].tolist()
        seen = set(split.observed.items[split.observed.ptr[user] : split.observed.ptr[user + 1]].tolist())
        others = held_out.candidates[user].tolist()
        if against == "catalogue":
            others = [item for item in range(split.n_items) if item not in seen]
        listed = scores[torch.tensor([*own, *others])]
        found += [(int((listed > scores[item]).sum()), int((listed == scores[item]).sum()) - 1) for item in own]
    return found


@pytest.mark.parametrize("kind", ["last-n", "ratio", "temporal"])
@pytest.mark.parametrize("method", ["popularity", "fedncf"])
@pytest.mark.parametrize("against", ["candidates", "catalogue"])
def test_ranks_of_several_against_a_loop(kind: str, method: str, against: str) -> None:
    engine, server = trained(kind, method)
    for which in ("test", "validation"):
        ranks = engine.ranks(server, which, against)
        assert list(zip(ranks.above.tolist(), ranks.tied.tolist(), strict=True)) == by_hand(
            engine, server, which, against
        )
        sizes = engine.federation.split.held_out(which).sizes
        assert ranks.ptr is not None
        assert ranks.ptr.diff().tolist() == sizes[sizes > 0].tolist()


def test_blocks_change_nothing() -> None:
    (one, server), (other, again) = trained("ratio", "popularity"), trained("ratio", "popularity", chunk_scores=200)
    lists = [Coverage(150, (5, 10)) for _ in range(2)]
    found = [
        engine.ranks(s, "test", "catalogue", n)
        for engine, s, n in zip((one, other), (server, again), lists, strict=True)
    ]
    assert torch.equal(found[0].above, found[1].above)
    assert torch.equal(found[0].tied, found[1].tied)
    assert lists[0].result() == pytest.approx(lists[1].result(), abs=1e-12)
