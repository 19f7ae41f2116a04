"""Clients that push an item: they succeed without limits, and limits bind them."""

from __future__ import annotations

import pytest
from tests.audit.scenes import scene_of

from fedrecgel.audit.promotion import promotable, promote, usual_limits
from fedrecgel.engine.gate import GateSettings


def test_malicious_clients_push_their_item_and_limits_bind_them() -> None:
    scene = scene_of("fedrecgel", options={"server_lr": 0.03, "fraction": 1.0})
    assert promote(scene, 0.0, 20).er < 0.1
    assert promote(scene, 0.2, 20).er > 0.3
    assert promote(scene, 0.2, 20, usual_limits(scene)).er < 0.1


def test_limits_lie_in_the_middle_of_what_is_sent() -> None:
    scene = scene_of("fedmf")
    first, limits = (usual_limits(scene, after) for after in (0, 10))
    assert first.row_limit is not None
    assert limits.row_limit is not None
    assert limits.client_limit is not None
    assert 0 < first.row_limit < limits.row_limit < limits.client_limit, "vectors start short, and so do gradients"
    assert limits.max_norm == GateSettings().max_norm


@pytest.mark.parametrize(("method", "possible"), [("fedmf", True), ("fedrecgel", True), ("popularity", False)])
def test_only_gradients_of_downloaded_tables_can_be_forged_this_way(method: str, possible: bool) -> None:
    assert promotable(scene_of(method)) == possible
