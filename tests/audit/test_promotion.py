"""Clients that push an item: they succeed without limits, and limits bind them."""

from __future__ import annotations

import pytest
import torch
from tests.audit.scenes import scene_of

from fedrecgel.audit.promotion import ROUNDING, Tampering, fixed_limits, limits_by_round, promotable, promote
from fedrecgel.audit.verdict import audit_run
from fedrecgel.channels.base import DeviceHalf, Plain, RoundSetup
from fedrecgel.engine.gate import GateSettings
from fedrecgel.engine.uplink import Simulated
from fedrecgel.errors import ConfigError
from fedrecgel.methods.messages import Need, Upload
from fedrecgel.runs.allowed import check_limits


def test_malicious_clients_push_their_item_and_limits_bind_them() -> None:
    scene = scene_of("fedrecgel", options={"server_lr": 0.03, "fraction": 1.0, "init": "normal"})
    honest = promote(scene, 0.0, 20)
    assert honest.er < 0.1
    assert promote(scene, 0.2, 20).er > 0.3
    assert promote(scene, 0.2, 20, fixed_limits(honest, GateSettings())).er < 0.1
    assert honest.row_limits[0] < honest.first_limits[0] < honest.first_limits[1]


def test_malicious_clients_send_no_number_that_masks_cannot_carry() -> None:
    """Their devices would refuse it. Honest ones may send what the method states, which is more in FedRAP."""
    options = {"server_lr": 0.03, "fraction": 1.0, "init": "normal"}
    scene = scene_of("fedrecgel", "secagg", options=options, secagg={"min_clients": 10})
    assert promote(scene, 0.2, 20).er > 0.1
    generous = scene_of("fedrap", "secagg", options={"fraction": 1.0}, secagg={"min_clients": 10})
    assert promote(generous, 0.2, 15).hr > 0


def test_forged_numbers_are_within_their_limit_when_they_are_rounded() -> None:
    """As large as may be, in single precision and times the weight: a device behind masks refuses what is beyond."""
    generator, most, largest = torch.Generator().manual_seed(0), 8.0, []
    setup = RoundSetup(0, torch.arange(2), 5, Need.SUM)
    for _ in range(200):
        rows = {"items": 1e3 * torch.randn(2, 3, 4, generator=generator)}
        weight = 1 + 9 * torch.rand(2, generator=generator)
        upload = Upload(torch.arange(2), {}, rows, torch.zeros(2, 3, dtype=torch.int64), weight)
        way = Simulated(Plain(), DeviceHalf(), Plain().server(), setup)
        goal = {"items": torch.randn(4, generator=generator)}
        forged = Tampering(way, torch.tensor([1]), 0, goal, 1e9, GateSettings(), 0, most).leave(upload)
        sent = forged.rows["items"][1] * weight[1]
        largest.append(float(sent.abs().max()))
    assert max(largest) <= most
    assert min(largest) > most * (1 - 3 * ROUNDING)


def test_an_audit_outlives_a_run_that_cannot_be_attacked_by_promotion() -> None:
    """Rates so high that gradients outgrow what masks carry."""
    told: list[str] = []
    options = {"server_lr": 3.0, "fraction": 1.0, "init": "normal", "reg_user": 0.0}
    scene = scene_of("fedrecgel", "secagg", options=options, secagg={"min_clients": 10})
    found = audit_run(scene, told.append)
    assert found.attacks
    assert not found.promotion
    assert "No promotion: the run cannot be trained from random tables. Numbers to send" in told[-1]


def test_a_run_through_a_kernel_is_attacked_like_any_other() -> None:
    """`config.toml` of a run records that it had one."""
    options = {"gmf_dim": 32, "mlp_dim": 128, "init": "normal"}
    found = promote(scene_of("fedrecgel", options=options, local={"accelerate": True}), 0.2, 1)
    assert found == promote(scene_of("fedrecgel", options=options, local={"accelerate": False}), 0.2, 1)


def test_promotion_is_tried_from_random_tables() -> None:
    """Limits that fit gradients would cut the counts of a spectral start, so a run that has one refuses them."""
    scene = scene_of("fedrecgel", options={"init": "spectral", "start_rank": 4})
    assert scene.from_random_tables().method.init == "normal"  # type: ignore[attr-defined]
    plain = scene_of("fedmf")
    assert plain.from_random_tables() is plain
    with pytest.raises(ConfigError, match=r"should fit gradients.*Set method.init = 'normal'"):
        check_limits(GateSettings(row_limits=(0.1,)), scene.method, scene.first_server(start=True).shared)
    check_limits(GateSettings(row_limit=0.1), plain.method, plain.first_server(start=True).shared)
    check_limits(GateSettings(), scene.method, scene.first_server(start=True).shared)


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
