"""Clients that push an item: they succeed without limits, and limits bind them."""

from __future__ import annotations

import pytest
from tests.audit.scenes import scene_of

from fedrecgel.audit.promotion import fixed_limits, limits_by_round, promotable, promote
from fedrecgel.engine.gate import GateSettings


def test_malicious_clients_push_their_item_and_limits_bind_them() -> None:
    scene = scene_of("fedrecgel", options={"server_lr": 0.03, "fraction": 1.0})
    honest = promote(scene, 0.0, 20)
    assert honest.er < 0.1
    assert promote(scene, 0.2, 20).er > 0.3
    assert promote(scene, 0.2, 20, fixed_limits(honest, GateSettings())).er < 0.1
    assert honest.row_limits[0] < honest.first_limits[0] < honest.first_limits[1]


def test_limits_that_follow_are_those_of_a_run_with_known_ones() -> None:
    scene = scene_of("fedmf")
    honest = promote(scene, 0.0, 4)
    followed = promote(scene, 0.0, 4, follow=honest.row_limits[0])
    assert followed.row_limits[0] == honest.row_limits[0]
    assert followed.row_limits[1] == honest.row_limits[0], "what was sent in the round before"
    again = promote(scene, 0.0, 4, limits_by_round(followed, GateSettings()))
    assert (again.er, again.hr) == (followed.er, followed.hr)


@pytest.mark.parametrize(("method", "possible"), [("fedmf", True), ("fedrecgel", True), ("popularity", False)])
def test_only_gradients_of_downloaded_tables_can_be_forged_this_way(method: str, possible: bool) -> None:
    assert promotable(scene_of(method)) == possible
