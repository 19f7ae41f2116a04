"""Spectra: rounds, cohorts, drop-out, fixed point, nodes, and users who were never asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import engine_of, problem_of, random_split
from tests.engine.flower.inprocess import config_of, same, served
from torch import Tensor

from fedrecgel.channels.base import Channel, DeviceHalf, RoundSetup, ServerHalf
from fedrecgel.channels.fixedpoint import FixedPointSettings, to_floats, to_integers
from fedrecgel.channels.sums import whole
from fedrecgel.data.history import History
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError
from fedrecgel.methods import spectra
from fedrecgel.methods.messages import Need, Server, Upload
from fedrecgel.methods.spectra import Spectra, Stage
from fedrecgel.runs.config import from_dict
from fedrecgel.runs.train import train_config
from fedrecgel.tables import State

SMALL: dict[str, Any] = {"rank": 6, "dim": 3, "spectral_rounds": 2, "factor_rounds": 2, "final_rounds": 1}
SPLIT = random_split(30, 80, candidates=20)


class Rounded(Channel):
    """Fixed point, as an aggregation that adds integers has it; the server sees the sum."""

    name = "rounded"
    reveals = Need.SUM
    protects = "nothing: a test"
    numbers = FixedPointSettings(fraction_bits=20, largest=4096.0)

    def device(self, draws: Draws) -> DeviceHalf:
        return RoundedDevice()

    def server(self) -> ServerHalf:
        return ServerHalf()


class RoundedDevice(DeviceHalf):
    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        upload = whole(upload, setup.n_items)
        dense = {name: rounded(value) for name, value in upload.dense.items() if isinstance(value, Tensor)}
        return replace(upload, dense=dense, rows={name: rounded(value) for name, value in upload.rows.items()})


def rounded(value: Tensor) -> Tensor:
    integers = to_integers(value, Rounded.numbers)
    return to_floats(integers, Rounded.numbers.fraction_bits, value.dtype).view(value.shape)


def trained(method: Spectra, split: Split, channel: Channel | None = None, stays_away: float = 0.0) -> Server:
    """All rounds; some of each cohort do not answer."""
    engine, draws = engine_of(method, split, channel=channel), Draws(0)
    server = method.init_server(problem_of(split), draws)
    for t in range(method.rounds):
        cohort = method.cohort(server, engine.population(), t, draws)
        there = np.random.default_rng(t).permutation(len(cohort))[: max(1, round((1 - stays_away) * len(cohort)))]
        server = method.server_update(server, engine.train(server, cohort[np.sort(there)], t).inbox, t, draws)
    return server


def scores_of(method: Spectra, server: Server, split: Split) -> Tensor:
    everyone = torch.arange(split.n_users)
    catalogue = torch.arange(split.n_items).expand(split.n_users, -1)
    return method.score(State(), method.broadcast(server, everyone), History(split.train, everyone), catalogue)


def test_it_states_its_rounds() -> None:
    config = from_dict({"method": {"name": "spectra"}})
    method = config.method.build()
    assert config.run.rounds == method.rounds == 1 + 3 + 5 + 1 + 1 + 3
    assert from_dict({"method": {"name": "spectra", "fraction": 0.1}}).run.rounds == 10 * config.run.rounds
    assert from_dict({"method": {"name": "spectra"}, "run": {"rounds": 99}}).run.rounds == 99


def test_fewer_rounds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'spectra' needs 14 rounds at these settings\. Found run\.rounds = 10"):
        from_dict({"method": {"name": "spectra"}, "run": {"rounds": 10}})


def test_more_rounds_are_further_ones_of_the_factorisation() -> None:
    method = Spectra(**SMALL)
    assert method.turn(method.rounds + 5)[0].stage is Stage.FACTORS
    assert not method.turn(method.rounds + 5)[0].holds_back


@given(st.integers(1, 60), st.floats(0.05, 1.0), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_the_cohorts_of_a_sum_are_disjoint_and_cover_everyone(n_clients: int, fraction: float, turn: int) -> None:
    method, population = Spectra(**SMALL, fraction=fraction), torch.arange(n_clients) + 7
    rounds = range(turn * method.parts, (turn + 1) * method.parts)
    asked = torch.cat([method.cohort(Server({}), population, t, Draws(3)) for t in rounds])
    assert torch.equal(asked.sort().values, population)


@pytest.mark.parametrize(("voters", "scores", "wanted"), [(9, 10_000, 9), (9, 60, 6)])
def test_few_vote(monkeypatch: pytest.MonkeyPatch, voters: int, scores: int, wanted: int) -> None:
    monkeypatch.setattr(spectra, "VOTERS", voters)
    monkeypatch.setattr(spectra, "SCORES_VOTED_ON", scores)
    method, server = Spectra(**SMALL, fraction=0.5), Server({"counts": torch.zeros(10, 1)})
    sizes = {Stage.VOTE: 0, Stage.SPECTRUM: 0}
    for t in range(method.rounds):
        stage = method.turn(t)[0].stage
        if stage in sizes:
            sizes[stage] += len(method.cohort(server, torch.arange(40), t, Draws(0)))
    assert sizes == {Stage.VOTE: wanted, Stage.SPECTRUM: 3 * 40}


def test_sums_of_parts_are_the_sum() -> None:
    """A third of the clients each round comes to the same as everybody at once."""
    at_once, in_parts = Spectra(**SMALL), Spectra(**SMALL, fraction=1 / 3)
    wanted, found = trained(at_once, SPLIT), trained(in_parts, SPLIT)
    torch.testing.assert_close(
        scores_of(in_parts, found, SPLIT), scores_of(at_once, wanted, SPLIT), rtol=1e-7, atol=1e-7
    )


def test_without_some_answers_sums_are_those_of_the_population() -> None:
    method = Spectra(**SMALL)
    full, fewer = trained(method, SPLIT), trained(method, SPLIT, stays_away=1 / 3)
    totals = [float(server.shared["counts"].sum()) for server in (full, fewer)]
    assert totals[1] == pytest.approx(totals[0], rel=0.2)
    assert totals[1] != totals[0]
    assert torch.isfinite(scores_of(method, fewer, SPLIT)).all()


@pytest.mark.parametrize("pairs", [False, True])
def test_fixed_point_changes_little(pairs: bool) -> None:
    method = Spectra(**SMALL, pairs=pairs)
    plain, fixed = trained(method, SPLIT), trained(method, SPLIT, Rounded())
    assert torch.equal(plain.shared["mixture"], fixed.shared["mixture"])
    difference = scores_of(method, plain, SPLIT) - scores_of(method, fixed, SPLIT)
    assert 0 < float(difference.abs().max()) < 1e-3


def test_nodes_agree_with_one_process(tmp_path: Path) -> None:
    split = random_split(n_users=14, n_items=130)
    config = config_of("spectra", method=SMALL)
    local = train_config(replace(config, run=replace(config.run, engine="local")), split)
    remote = served(config, split, tmp_path / "run")
    same(local.shared, remote.shared, 1e-9)
    assert [line["clients"] for line in local.history] == [line["clients"] for line in remote.history]


def test_a_user_who_was_never_asked_is_served_from_a_history() -> None:
    method = Spectra(**SMALL)
    server = trained(method, SPLIT)
    own = SPLIT.train.items[: SPLIT.train.ptr[1]]
    assert SPLIT.train.recency is not None
    recency = SPLIT.train.recency[: len(own)]
    newcomer = ItemSets(SPLIT.n_items, np.array([0, len(own)]), own, np.ones_like(own), recency)
    found = method.score(
        State(),
        method.broadcast(server, torch.tensor([0])),
        History(newcomer, torch.tensor([0])),
        torch.arange(80)[None],
    )
    torch.testing.assert_close(found[0], scores_of(method, server, SPLIT)[0])


def test_shares_of_own_items_sum_to_the_score() -> None:
    """Up to a constant of each user, which the standardisation takes off, and what popularity adds for everybody."""
    method, ids = Spectra(**SMALL), torch.arange(30)
    server = trained(method, SPLIT)
    alone = {"mixture": torch.tensor([0.4, 0.6, 0, 0, 0.3, 0.5, 0], dtype=torch.float64)}
    server = replace(server, shared={**server.shared, **alone})
    history, everything = History(SPLIT.train, ids), torch.arange(80).expand(30, -1)
    shares = method.explain(method.broadcast(server, ids), history, everything)
    assert shares.shape[2] == history.pad()[0].shape[1]
    assert not shares[~history.pad()[1][:, None].expand_as(shares)].any()
    rest = shares.sum(2) - scores_of(method, server, SPLIT)
    torch.testing.assert_close(rest, rest[:, :1].expand_as(rest), rtol=0, atol=1e-9)


def test_before_the_first_sums_it_is_popularity() -> None:
    method, engine = Spectra(**SMALL), engine_of(Spectra(**SMALL), SPLIT)
    server = method.init_server(problem_of(SPLIT), Draws(0))
    server = method.server_update(server, engine.train(server, engine.population(), 0).inbox, 0, Draws(0))
    scores = scores_of(
        method, replace(server, shared={**server.shared, "mixture": torch.tensor([1.0, 1, 1, 0, 1, 0, 0])}), SPLIT
    )
    counts = server.shared["counts"][:, 0]
    assert torch.equal(scores[0].argsort(stable=True), counts.argsort(stable=True))
    assert torch.equal(scores[0], scores[1])


def test_plain_uploads_are_the_history() -> None:
    """What the docs warn of: rows that are not zero, in the very first round."""
    method, engine, ids = Spectra(**SMALL), engine_of(Spectra(**SMALL), SPLIT), torch.arange(30)
    down = method.broadcast(method.init_server(problem_of(SPLIT), Draws(0)), ids)
    batch = engine.federation.batch(ids, 0, Draws(0), negatives=False)
    upload = whole(method.client_update(State(), down, batch, 0, Draws(0)).upload, SPLIT.n_items)
    for client, table in enumerate(upload.rows["counts"]):
        own = slice(SPLIT.train.ptr[client], SPLIT.train.ptr[client + 1])
        assert table.any(1).nonzero()[:, 0].tolist() == SPLIT.train.items[own].tolist()


def test_a_sum_must_cover_far_more_clients_than_the_rank() -> None:
    assert Spectra().smallest_cohort == 1024
    assert Spectra(rank=16).smallest_cohort == 1000
    assert Spectra().smallest_sum == 7680
    assert Spectra(rank=16).smallest_sum == 1000


def test_pairs_of_many_items_are_hashed() -> None:
    method = Spectra(pairs=True)
    assert method.pair_cells(30_000) is None
    assert method.pair_cells(30_001) == (1 << 22) // 30_001
    assert Spectra(pairs=True, sketch=True).pair_cells(2_000) == (1 << 22) // 2_000


def test_hashed_pairs_with_room_for_all_score_as_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectra, "CELLS", 80 * 1024)
    exact, hashed = Spectra(**SMALL, pairs=True), Spectra(**SMALL, pairs=True, sketch=True)
    weights = {"mixture": torch.tensor([0.0, 0, 0, 1, 1, 0.5, 0], dtype=torch.float64)}  # pairs alone
    found = []
    for method in (exact, hashed):
        server = trained(method, SPLIT)
        found.append(scores_of(method, replace(server, shared={**server.shared, **weights}), SPLIT))
    known = torch.zeros_like(found[0], dtype=torch.bool)
    for client in range(30):
        known[client, SPLIT.train.items[SPLIT.train.ptr[client] : SPLIT.train.ptr[client + 1]]] = True
    exact_scores, hashed_scores = (scores[~known] for scores in found)
    assert float(torch.corrcoef(torch.stack([exact_scores, hashed_scores]))[0, 1]) > 0.95
