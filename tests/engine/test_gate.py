from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import TINY, engine_of, problem_of, random_split
from torch import Tensor

from fedrecgel.channels.sums import add_up
from fedrecgel.data.federation import ClientBatch
from fedrecgel.draws import Draws
from fedrecgel.engine.gate import (
    Amount,
    Form,
    GateSettings,
    Refusal,
    admissible,
    check_clients,
    check_form,
    far_above_middle,
    form_of,
    shorten_rows,
    sift,
)
from fedrecgel.errors import RunError
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import ClientResult, Download, Need, Upload
from fedrecgel.tables import State
from fedrecgel.tensors import Factors, Summed

SPLIT = random_split(n_users=14, n_items=130)
BAD = {
    "nan": torch.nan,
    "inf": torch.inf,
    "-inf": -torch.inf,
    "huge": 1e30,
    "above the bound": 2 * GateSettings().max_norm,
}


def result_of(method: Method, ids: Tensor) -> ClientResult:
    engine = engine_of(method, SPLIT)
    server = method.init_server(problem_of(SPLIT), engine.draws)
    down = method.broadcast(server, ids)
    return method.client_update(engine.store.read(ids), down, SPLIT_BATCH(engine, ids), 0, engine.draws)


def SPLIT_BATCH(engine: object, ids: Tensor) -> ClientBatch:  # noqa: N802
    return engine.federation.batch(ids, 0, engine.draws)  # type: ignore[attr-defined, no-any-return]


def spoilt(result: ClientResult, client: int, value: float, where: str) -> ClientResult:
    """The same result with one number of one client's upload changed."""
    upload = result.upload
    if where == "rows":
        rows = {name: tensor.clone() for name, tensor in upload.rows.items()}
        rows[next(iter(rows))][client, 0, 0] = value
        return result._replace(upload=replace(upload, rows=rows))
    dense = dict(upload.dense)
    for name, found in dense.items():
        if isinstance(found, Factors) and where == "factors":
            left = found.left.clone()
            left[client] = value
            dense[name] = Factors(left, found.right)
            break
        if isinstance(found, Tensor) and where == "dense":
            changed = found.clone()
            changed[client] = value
            dense[name] = changed
            break
    return result._replace(upload=replace(upload, dense=dense))


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("where", ["rows", "dense", "factors"])
@pytest.mark.parametrize("bad", [[0], [4], [1, 3], [0, 1, 2, 3, 4]], ids=str)
def test_the_sum_is_that_without_the_refused_clients(kind: str, where: str, bad: list[int]) -> None:
    method, everyone = FedRecGEL(**TINY), torch.arange(5)
    result = result_of(method, everyone)
    for client in bad:
        result = spoilt(result, client, BAD[kind] * (1e9 if where == "factors" else 1), where)
    sifted = sift(result, GateSettings())
    left = [client for client in range(5) if client not in bad]
    assert sifted.upload.ids.tolist() == left
    honest = result_of(method, everyone)
    kept = torch.tensor(left, dtype=torch.int64)
    for name, value in sifted.private.tensors.items():
        assert torch.equal(value, honest.private[name][kept])
    if left:
        without = _only(honest.upload, kept)
        ours, theirs = (add_up([part], SPLIT.n_items, Need.SUM).mean() for part in (sifted.upload, without))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def _only(upload: Upload, kept: Tensor) -> Upload:
    dense = {
        name: Factors(value.left[kept], value.right[kept]) if isinstance(value, Factors) else value[kept]  # type: ignore[index]
        for name, value in upload.dense.items()
    }
    rows = {name: value[kept] for name, value in upload.rows.items()}
    return Upload(upload.ids[kept], dense, rows, upload.at[kept], upload.weight[kept])


def test_a_healthy_result_passes_untouched() -> None:
    result = result_of(FedNCF(**TINY), torch.arange(6))
    assert sift(result, GateSettings()) is result


@given(st.floats(0.01, 100.0), st.integers(1, 6))
def test_the_bound_is_exact(scale: float, n_rows: int) -> None:
    values = torch.full((1, n_rows, 2), scale, dtype=torch.float64)
    left = torch.full((1, 3, 2), scale, dtype=torch.float64)
    left[0, 1:] = 0
    factors = Factors(left, torch.ones(1, 3, 2, dtype=torch.float64))
    upload = Upload(
        torch.arange(1), {"w": factors}, {"t": values}, torch.arange(n_rows)[None], torch.ones(1, dtype=torch.float64)
    )
    norm = (2 * n_rows * scale**2 + 4 * scale**2) ** 0.5  # the matrix LᵀR has four entries equal to `scale`
    assert bool(admissible(upload, GateSettings(max_norm=norm * 1.0001)))
    assert not bool(admissible(upload, GateSettings(max_norm=norm * 0.9999)))


@pytest.mark.parametrize("weight", [0.0, -89.0, 1e12, torch.nan, torch.inf])
def test_weights_out_of_range_are_refused(weight: float) -> None:
    result = result_of(FedNCF(**TINY), torch.arange(3))
    weights = torch.tensor([1.0, weight, 1.0], dtype=torch.float64)
    sifted = sift(result._replace(upload=replace(result.upload, weight=weights)), GateSettings())
    assert sifted.upload.ids.tolist() == [0, 2]


def test_a_loss_that_is_no_number_is_refused() -> None:
    result = result_of(FedNCF(**TINY), torch.arange(3))
    sifted = sift(result._replace(loss=torch.tensor([0.5, torch.nan, 0.5])), GateSettings())
    assert sifted.upload.ids.tolist() == [0, 2]


def test_a_sum_is_judged_as_a_whole() -> None:
    one = torch.ones(2)
    upload = Upload(torch.arange(2), {"w": Summed(torch.tensor([30.0, 40.0]))}, {}, torch.zeros(2, 0).long(), one)
    assert admissible(upload, GateSettings(max_norm=25.0)).all()
    assert not admissible(upload, GateSettings(max_norm=24.9)).any()


def amounts(*pairs: tuple[float, int]) -> list[Amount]:
    return [Amount(torch.tensor([value], dtype=torch.float64), n) for value, n in pairs]


def refused(*pairs: tuple[float, int], spread: float = 100.0) -> list[int]:
    """Which of these nodes, each with the mean over so many clients."""
    return [number for number, far in enumerate(far_above_middle(amounts(*pairs), spread)) if far.any()]


def test_one_of_ten_that_is_far_above_the_others_is_refused() -> None:
    honest = [(1 + 0.1 * k, 6) for k in range(9)]
    assert refused(*honest, (1e4, 6)) == [9]
    assert refused(*honest, (60.0, 6)) == []  # within 52.7 times the middle, 1.45
    assert refused(*honest, (0.0, 6)) == []


def test_the_bound_is_that_of_the_formula() -> None:
    others = [(1.0, 25), (1.0, 25), (1.0, 25), (1.0, 25)]
    assert refused(*others, (35.9, 25)) == []  # 100 · (0.2 + 0.8 / 5)
    assert refused(*others, (36.1, 25)) == [4]
    assert refused(*others, (499.9, 1)) == []  # a mean over 25 may be a fifth of what one client sends
    assert refused(*others, (500.1, 1)) == [4]
    assert refused(*others, (27.9, 100)) == []
    assert refused(*others, (28.1, 100)) == [4]
    assert refused(*others, (3.59, 25), spread=10.0) == []
    assert refused(*others, (3.61, 25), spread=10.0) == [4]


def test_a_node_that_claims_most_clients_does_not_set_the_middle() -> None:
    honest = [(1.0, 5), (1.2, 5), (0.8, 5)]
    assert refused((1e4, 10_000), *honest) == [0]
    assert refused((1e-4, 10_000), *honest) == []  # nor can it have others refused by sending next to nothing


def test_a_client_of_its_own_node_may_be_far_above_means_over_hundreds() -> None:
    assert refused(*[(0.1, 400)] * 9, (30.0, 1)) == []


@pytest.mark.parametrize("n_nodes", [0, 1, 2])
def test_fewer_than_three_cannot_be_compared(n_nodes: int) -> None:
    assert refused(*[(10.0**k, 1) for k in range(0, 6 * n_nodes, 6)]) == []


def test_where_nodes_differ_much_more_is_let_through() -> None:
    """Powers of three: the middle deviation is two of them, and ten times that is allowed."""
    honest = [(3.0**k, 1) for k in range(9)]
    assert refused(*honest) == []
    assert refused(*honest[:8], (3.0**23, 1)) == []
    assert refused(*honest[:8], (3.0**25, 1)) == [8]


def test_where_most_send_nothing_nothing_can_be_compared() -> None:
    assert refused((0.0, 1), (0.0, 1), (0.0, 1), (3.0, 1)) == []


@given(
    st.lists(st.tuples(st.floats(0.01, 10.0), st.integers(1, 500)), min_size=2, max_size=8),
    st.lists(st.tuples(st.floats(0.0, 1e30), st.integers(1, 10**6)), max_size=7),
    st.floats(1.0, 1000.0),
)
def test_a_minority_gets_nothing_through_that_is_far_above_every_honest_answer(
    honest: list[tuple[float, int]], hostile: list[tuple[float, int]], spread: float
) -> None:
    hostile = hostile[: len(honest) - 1]
    found = far_above_middle(amounts(*honest, *hostile), spread)
    if len(found) < 3:
        return
    for (value, n), far in zip(hostile, found[len(honest) :], strict=True):
        scaled = [own * max(1.0, size / n) ** 0.5 for own, size in honest]
        most, apart = max(scaled), max(scaled) / min(scaled)
        if value > 1.000001 * most * max(spread * (0.2 + 0.8 / n**0.5), apart**10):
            assert bool(far)


@given(st.lists(st.tuples(st.floats(1.0, 2.0), st.integers(1, 500)), min_size=3, max_size=9), st.randoms())
def test_answers_alike_are_all_taken_in_any_order(honest: list[tuple[float, int]], random: Random) -> None:
    assert refused(*honest) == []
    random.shuffle(honest)
    assert refused(*honest) == []


@pytest.mark.parametrize("method", METHODS)
def test_the_form_is_that_of_real_uploads(method: str) -> None:
    made = METHODS[method]()
    server = made.init_server(problem_of(SPLIT), Draws(0))
    forms = form_of(made, server, problem_of(SPLIT), 0)
    upload = result_of(made, torch.arange(4)).upload
    assert forms.keys() == {*upload.dense, *upload.rows}
    for name, value in upload.dense.items():
        whole = value.each() if isinstance(value, Factors) else value
        assert isinstance(whole, Tensor)
        assert forms[name] == Form(tuple(whole.shape[1:]), whole.dtype, over_items=False)
    for name, value in upload.rows.items():
        assert forms[name] == Form((SPLIT.n_items, value.shape[2]), value.dtype, over_items=True)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"w": torch.zeros(3, 2), "b": torch.zeros(3)}, "shape"),
        ({"w": torch.zeros(1, 2), "b": torch.zeros(2)}, "shape"),
        ({"w": torch.zeros(2, 2), "b": torch.zeros(())}, "shape"),
        ({"w": torch.zeros(2, 2)}, "names"),
        ({"w": torch.zeros(2, 2), "b": torch.zeros(2), "c": torch.zeros(2)}, "names"),
        ({"w": torch.zeros(2, 2), "b": torch.zeros(2, dtype=torch.float64)}, "dtype"),
        ({"w": torch.zeros(2, 2), "b": torch.zeros(2, dtype=torch.int64)}, "dtype"),
    ],
)
def test_another_form_is_refused(found: dict[str, Tensor], reason: str) -> None:
    forms = {"w": Form((2, 2), torch.float32, over_items=False), "b": Form((2,), torch.float32, over_items=False)}
    check_form({"w": torch.zeros(2, 2), "b": torch.zeros(2)}, forms, ())
    with pytest.raises(Refusal, match=reason):
        check_form(found, forms, ())


@pytest.mark.parametrize(
    ("ids", "reason"),
    [([1, 1], "twice"), ([1, 7], "clients"), ([[1]], "clients"), ([1.0], "clients")],
)
def test_only_clients_that_were_asked_answer_and_once(ids: list[object], reason: str) -> None:
    check_clients(torch.tensor([2, 1]), torch.tensor([1, 2, 3]))
    with pytest.raises(Refusal, match=reason):
        check_clients(torch.tensor(ids), torch.tensor([1, 2, 3]))


class OneBadClient(FedNCF):
    """Client 3's upload is no number in every round."""

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        result = super().client_update(private, down, batch, round, draws)
        mine = (batch.ids == 3).nonzero()[:, 0]
        return spoilt(result, int(mine[0]), torch.nan, "rows") if len(mine) else result


def test_the_local_engine_leaves_a_bad_client_out_and_counts_it() -> None:
    method, honest = OneBadClient(**{**TINY, "fraction": 1.0}), FedNCF(**{**TINY, "fraction": 1.0})
    engine, other = engine_of(method, SPLIT), engine_of(honest, SPLIT)
    server = method.init_server(problem_of(SPLIT), engine.draws)
    everyone = engine.population()
    trained = engine.train(server, everyone, 0)
    without = other.train(server, everyone[everyone != 3], 0)
    assert trained.n_answers == 13
    assert trained.refused == {"norm": 1}
    for name, value in without.inbox.mean().items():
        torch.testing.assert_close(trained.inbox.mean()[name], value, rtol=1e-12, atol=1e-15)
    untouched = engine_of(honest, SPLIT).store.read(torch.tensor([3]))
    assert torch.equal(engine.store.read(torch.tensor([3]))["user"], untouched["user"])


def test_a_round_in_which_all_are_refused_is_a_failure() -> None:
    engine = engine_of(OneBadClient(**TINY), SPLIT)
    server = engine.method.init_server(problem_of(SPLIT), engine.draws)
    with pytest.raises(RunError, match="training diverged"):
        engine.train(server, torch.tensor([3]), 0)


def test_limits_shorten_rows_and_then_whole_uploads() -> None:
    rows = torch.tensor([[[3.0, 4], [0, 1]], [[0, 0], [0.1, 0]]])
    upload = Upload(torch.arange(2), {}, {"items": rows}, torch.tensor([[0, 1], [0, 1]]), torch.ones(2))
    assert shorten_rows(upload, GateSettings()) is upload
    by_row = shorten_rows(upload, GateSettings(row_limit=2.0)).rows["items"]
    torch.testing.assert_close(by_row[0], torch.tensor([[1.2, 1.6], [0, 1]]))
    torch.testing.assert_close(by_row[1], rows[1])
    by_round = GateSettings(row_limits=(2.0, 9.0))
    assert torch.equal(shorten_rows(upload, by_round, 0).rows["items"], by_row)
    assert torch.equal(shorten_rows(upload, by_round, 5).rows["items"], upload.rows["items"]), "the last one holds"
    both = shorten_rows(upload, GateSettings(row_limit=2.0, client_limit=1.0)).rows["items"]
    torch.testing.assert_close(both[0], by_row[0] / 5**0.5)
    torch.testing.assert_close(both[1], rows[1])
