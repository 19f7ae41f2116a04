"""Tables from sums over clients equal the eigenvectors of the whole matrix, computed at one place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.builders import engine_of, problem_of
from tests.oracles.plain import ragged_split
from torch import Tensor

from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.run import run
from fedrecgel.methods import spectral_start
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import Need, Problem, Server

SMALL: dict[str, Any] = {"gmf_dim": 3, "mlp_dim": 5, "fraction": 0.5, "init": "spectral"}


@pytest.fixture(scope="module")
def split() -> Split:
    return ragged_split()


def rounds_of(method: FedNCF, split: Split, n: int) -> tuple[Server, list[Any], Any]:
    """The server after n rounds, all rounds, and the engine."""
    engine = engine_of(method, split)
    server = method.init_server(problem_of(split), engine.draws)
    done = list(run(method, engine, server, n, engine.draws))
    return done[-1].server, done, engine


def dense_tables(split: Split, start: Tensor, width: int) -> Tensor:
    """The same from the matrix of all users and items: no sums, no Nyström beyond its definition."""
    x = torch.zeros(split.n_users, split.n_items, dtype=torch.float64)
    for user in range(split.n_users):
        own = slice(split.train.ptr[user], split.train.ptr[user + 1])
        x[user, torch.as_tensor(split.train.items[own]).long()] = 1
    n = x.sum(0).clamp(min=1)
    a = x.sum(1).clamp(min=1)[:, None] ** -0.25 * x * n**-0.25
    s = a.T @ a
    basis = torch.linalg.qr(s @ start).Q
    images = s @ basis
    values, vectors = torch.linalg.eigh(images @ torch.linalg.inv(basis.T @ images) @ images.T)
    order = values.argsort(descending=True)[:width]
    whole: Tensor = vectors[:, order] * (values[order] / values[order[0]]).sqrt() * n[:, None] ** 0.25
    norm = float(whole.square().sum(1).mean().sqrt())
    return whole * (spectral_start.ROW_NORM / norm)


@pytest.mark.parametrize("kind", [FedNCF, FedRecGEL])
def test_tables_are_the_eigenvectors_of_the_whole_matrix(split: Split, kind: type[FedNCF]) -> None:
    """Up to signs, which a product of a table with itself does not show."""
    method = kind(**SMALL)
    engine = engine_of(method, split)
    first = method.init_server(problem_of(split), engine.draws).shared[spectral_start.BASIS]
    server, _, _ = rounds_of(method, split, spectral_start.ROUNDS)
    for name, width in (("item_gmf", 3), ("item_mlp", 5)):
        found, wanted = server.shared[name], dense_tables(split, first, width)
        torch.testing.assert_close(found @ found.T, wanted @ wanted.T, rtol=1e-8, atol=1e-10)


def test_the_column_behind_the_eigenvectors_is_popularity(split: Split) -> None:
    """In tables that have room for it; other columns are as without it."""
    rank, scale = 4, 0.5  # item_gmf is 3 wide, item_mlp 5
    with_it, without = (
        rounds_of(FedNCF(**SMALL, start_rank=rank, start_popularity=size), split, spectral_start.ROUNDS)[0].shared
        for size in (scale, 0.0)
    )
    counts = torch.bincount(torch.as_tensor(split.train.items).long(), minlength=split.n_items).double()
    logs = (counts + 1).log()
    wanted = scale * (logs - logs.mean()) / logs.std(correction=0)
    torch.testing.assert_close(with_it["item_mlp"][:, rank], wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(with_it["item_mlp"][:, :rank], without["item_mlp"][:, :rank])
    assert torch.equal(with_it["item_gmf"], without["item_gmf"])


@pytest.mark.parametrize(("init", "tau"), [("normal", 1e-8), ("spectral", 1e-3), ("kept", 1e-3)])
def test_small_gradients_make_small_steps_where_tables_do_not_start_at_random(init: Any, tau: float) -> None:
    assert FedNCF(init=init).tau == tau


def test_what_is_left_open_is_decided_by_the_number_of_clients() -> None:
    few, many = Problem(600, 10, torch.float32), Problem(2000, 10, torch.float32)
    assert [FedNCF().settled(one).init for one in (few, many)] == ["normal", "spectral"]
    assert FedNCF().settled(many, goes_on=True).init == "kept"


def test_everyone_takes_part_first_and_nobody_learns(split: Split) -> None:
    method = FedRecGEL(**SMALL)
    server, done, engine = rounds_of(method, split, spectral_start.ROUNDS)
    fresh = method.init_clients(problem_of(split), torch.arange(split.n_users), engine.draws)
    assert [len(each.cohort) for each in done] == [split.n_users] * spectral_start.ROUNDS
    assert all(each.trained.loss is None for each in done)
    assert torch.equal(engine.store.read(engine.population())["user"], fresh["user"])
    assert not any(value.any() for value in server.kept.values())


def test_then_it_learns_as_ever(split: Split) -> None:
    """Nothing of the start is left, a share of the clients trains, and the tables move."""
    start, _, _ = rounds_of(FedRecGEL(**SMALL), split, spectral_start.ROUNDS)
    server, done, _ = rounds_of(FedRecGEL(**SMALL), split, spectral_start.ROUNDS + 1)
    plain = FedRecGEL(**{**SMALL, "init": "normal"})
    assert server.shared.keys() == plain.init_server(problem_of(split), engine_of(plain, split).draws).shared.keys()
    assert len(done[-1].cohort) == split.n_users // 2
    assert done[-1].trained.loss is not None
    assert not torch.equal(server.shared["item_gmf"], start.shared["item_gmf"])


def test_a_bias_is_no_vector(split: Split) -> None:
    server, _, _ = rounds_of(FedNCF(**SMALL, model="mf"), split, spectral_start.ROUNDS)
    assert not server.shared["item_bias"].any()
    assert float(server.shared["item"].square().sum(1).mean().sqrt()) == pytest.approx(spectral_start.ROW_NORM)


def test_the_server_needs_plain_sums_and_says_what_it_gets() -> None:
    method = FedNCF(**SMALL, server_optimiser="sgd")
    assert method.server_needs == Need.SUM
    assert spectral_start.SENDS <= method.leaves_device() <= method.sends
    assert not spectral_start.SENDS & FedNCF(init="normal").leaves_device()


@pytest.mark.parametrize(("n_users", "begins"), [(999, False), (1000, True)])
def test_it_is_made_where_enough_clients_hide_each_other(n_users: int, begins: bool) -> None:
    method, problem = FedRecGEL(gmf_dim=4, mlp_dim=8), Problem(n_users, 40)
    server = method.init_server(problem, Draws(0))
    assert spectral_start.begins(server.shared) == begins
    cohort = method.cohort(server, torch.arange(n_users), 0, Draws(0))
    assert len(cohort) == (n_users if begins else n_users // 10)
    assert method.hides_from(server.shared).sum == (1000 if begins else 100)
    going_on = method.settled(problem, goes_on=True)
    assert not spectral_start.begins(going_on.init_server(problem, Draws(0)).shared)
    assert (method.settled(problem).leaves_device() >= spectral_start.SENDS) == begins


def test_a_wider_start_needs_more_clients() -> None:
    assert spectral_start.minima(128)[:2] == (1000, 3840)
    assert spectral_start.minima(512)[:2] == (2048, 15360)


def test_the_rate_falls_from_round_to_round() -> None:
    method = FedNCF(**{**SMALL, "init": "normal"}, server_optimiser="sgd", server_lr=0.5, round_decay=0.5)
    ones = {"item_gmf": torch.ones(3, 2)}
    steps = [method.step_server(Server(dict(ones)), ones, number).shared["item_gmf"][0, 0] for number in range(3)]
    assert [float(step) for step in steps] == [0.5, 0.75, 0.875]
