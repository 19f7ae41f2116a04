"""The channel `secagg` on the local engine: sums as in plain, up to rounding, and nothing but sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from tests.builders import random_split
from tests.channels.reach import reachable
from tests.channels.uploads import N_ITEMS, by_loop, random_upload, setup_of
from tests.engine.flower.inprocess import same
from torch import Tensor

import fedrecgel as fr
from fedrecgel.channels.base import RoundSetup
from fedrecgel.channels.fixedpoint import FixedPointSettings
from fedrecgel.channels.masking import Secret
from fedrecgel.channels.secagg import Secagg, SecaggDevice, SecaggSettings
from fedrecgel.channels.sums import COUNTS, LOSS, Received
from fedrecgel.draws import Draws
from fedrecgel.engine import uplink
from fedrecgel.engine.gate import choose
from fedrecgel.engine.uplink import Simulated
from fedrecgel.errors import ConfigError, IncompleteError, PrivacyError, RunError
from fedrecgel.methods.messages import Need, Upload

SPLIT = random_split(n_users=40, n_items=130)
TINY: dict[str, Any] = {"gmf_dim": 4, "mlp_dim": 6, "fraction": 0.5, "rounds": 2}
BITS = FixedPointSettings(fraction_bits=30, largest=1000.0)
STEPS = ("prepare", "share", "train", "unmask")


class Losing(Simulated):
    """Some clients stay away at one step."""

    step, lost = "", frozenset[int]()

    def here(self, step: str, participant: int) -> bool:
        return step != self.step or participant not in self.lost


def channel(numbers: FixedPointSettings = BITS, **settings: Any) -> Secagg:
    return Secagg(SecaggSettings(**{"masks": "run", **settings}), numbers)


def parts(n: int, *, unequal: bool, seed: int = 0) -> list[Upload]:
    """The uploads of n clients, in chunks."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [n // 3, n - n // 3]
    weights = torch.rand(n, generator=generator).double() * 20 if unequal else torch.ones(n).double()
    found, first = [], 0
    for number, size in enumerate(sizes):
        part = random_upload(generator, size, 2 + number, weights[first : first + size])
        found.append(replace(part, ids=torch.arange(first, first + size)))
        first += size
    return found


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("n_lost", [0, 2, 6])
def test_sums_are_those_of_plain_whoever_is_lost(n_lost: int, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """0, 10 and a third of 20 clients."""
    n = 20
    lost = frozenset(Random(n_lost).sample(range(n), n_lost))
    monkeypatch.setattr(Losing, "step", step)
    monkeypatch.setattr(Losing, "lost", lost)
    kind = channel()
    way = Losing(kind, kind.device(Draws(0)), kind.server(), setup_of(Need.SUM, n))
    gone = torch.tensor(sorted(lost if step != "unmask" else ()), dtype=torch.int64)
    uploads = [choose(part, ~torch.isin(part.ids, gone)) for part in parts(n, unequal=True)]
    found = way.collect([way.leave(part) for part in uploads])
    assert isinstance(found, Received)
    sums, weight = by_loop(uploads)
    for name, value in found.total().items():
        torch.testing.assert_close(value, sums[name], rtol=0, atol=n * 2.0**-30)
    assert found.weight == pytest.approx(weight, abs=n * 2.0**-24)
    assert found.counts["#clients"] == n - len(gone)


@pytest.mark.parametrize("method", ["fedrecgel", "fedmf", "fedncf-weights", "popularity", "pfedrec"])
def test_a_run_is_that_of_plain_up_to_rounding_with_masks_and_without(method: str) -> None:
    usual: dict[str, Any] = {"popularity": {"rounds": 1}, "fedrecgel": TINY, "fedncf-weights": {**TINY, "epochs": 1}}
    options = {"evaluation": {"full": False}, **usual.get(method, {"fraction": 0.5, "rounds": 2})}
    plain, masked, spared = (
        fr.train(method, SPLIT, run={"channel": name, "dtype": "float64"}, fixed_point={"fraction_bits": 40}, **more)
        for name, more in (
            ("plain", options),
            ("secagg", {**options, "secagg": {"masks": "run", "min_clients": 10}}),
            ("secagg", {**options, "secagg": {"masks": "simulated", "min_clients": 10}}),
        )
    )
    same(masked.shared, spared.shared)
    assert masked.metrics == spared.metrics
    assert masked.history[0]["loss"] == plain.history[0]["loss"]
    same(masked.shared, plain.shared, 1e-5)
    privacy = [result.summary["privacy"] for result in (plain, masked, spared)]
    assert [one["reveals"] for one in privacy] == ["each", "sum", "sum"]
    assert [one["masks"] for one in privacy] == [None, "run", "simulated"]
    assert masked.history[0]["bytes_up"] > spared.history[0]["bytes_up"]


def test_masks_run_for_small_cohorts_unless_told_otherwise() -> None:
    assert [Secagg().plays(n) for n in (10, 32, 33)] == [True, True, False]
    assert Secagg(SecaggSettings(masks="run")).plays(1000)
    assert not Secagg(SecaggSettings(masks="simulated")).plays(10)


def test_an_upload_that_the_gate_refuses_is_a_client_that_drops_out() -> None:
    options: dict[str, Any] = {"rounds": 1, "fraction": 0.5, "evaluation": {"reference": "off", "full": False}}
    with_masks: dict[str, Any] = {"secagg": {"masks": "run", "min_clients": 10}}
    runs = [
        fr.train("fedmf", SPLIT, run={"channel": name}, gate={"max_norm": 0.014}, **options, **more)
        for name, more in (("plain", {}), ("secagg", with_masks))
    ]
    assert runs[0].history[0]["refused"] == runs[1].history[0]["refused"]
    assert 0 < runs[0].history[0]["dropped"] <= 20 // 3
    same(runs[1].shared, runs[0].shared, 1e-4)


def test_small_cohorts_are_refused() -> None:
    by_setting: dict[str, Any] = {"run": {"channel": "secagg"}, "secagg": {"min_clients": 10}}
    with pytest.raises(PrivacyError, match=r"at least secagg\.min_clients = 10 clients.*Found 9"):
        fr.train("fedmf", SPLIT, rounds=1, fraction=9.5 / 40, **by_setting)
    warned = fr.train("fedmf", SPLIT, rounds=1, fraction=0.25, **by_setting).summary["warnings"]
    assert any("secagg.min_clients = 10 is below the 50 clients" in sentence for sentence in warned)
    with pytest.raises(PrivacyError, match=r"cohorts of at least 7,680 clients.*lower method\.rank.*min_clients"):
        fr.train("spectra", SPLIT, run={"channel": "secagg"})
    with pytest.raises(ConfigError, match=r"min_clients cannot be 2"):
        fr.train("fedmf", SPLIT, run={"channel": "secagg"}, secagg={"min_clients": 2})


@pytest.mark.parametrize(("method", "least"), [("fedmf", 50), ("fedncf", 100)])
def test_each_method_states_how_many_clients_hide_one(method: str, least: int, tmp_path: Path) -> None:
    """Refused before anything is written; from the stated number on without a warning."""
    options: dict[str, Any] = {
        "rounds": 1,
        "fraction": 1.0,
        "run": {"channel": "secagg"},
        "evaluation": {"full": False},
    }
    few, enough = (random_split(n_users=n, n_items=130) for n in (least - 1, least))
    out = tmp_path / "run"
    with pytest.raises(PrivacyError, match=rf"needs cohorts of at least {least} clients.*Found {least - 1}\."):
        fr.train(method, few, out=out, **options)
    assert not out.exists()
    warned = fr.train(method, enough, **options).summary["warnings"]
    assert not any("min_clients" in sentence for sentence in warned)


def test_of_two_nodes_none_shares() -> None:
    device = channel().device(Draws(0))
    setup = setup_of(Need.SUM, 20)
    given = {one: device.contribute(setup, one) for one in (0, 10)}
    told = replace(setup, messages={one: own.public for one, own in given.items()})
    with pytest.raises(PrivacyError, match="at least 3 nodes"):
        device.share(told, 0, given[0].secret)


def test_a_method_that_needs_each_upload_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"'gpfedrec' reads uploads one by one, but channel 'secagg' reveals only"):
        fr.train("gpfedrec", SPLIT, rounds=1, run={"channel": "secagg"})


def sealed(kind: Secagg, upload: Upload, setup: RoundSetup) -> dict[str, Tensor]:
    found = kind.device(Draws(0)).seal(upload, setup)
    return {**{name: value for name, value in found.dense.items() if isinstance(value, Tensor)}, **found.rows}


def test_integers_are_as_wide_as_the_largest_sum_needs() -> None:
    upload = parts(6, unequal=False)[0]
    for cohort, wide in ((255, torch.int32), (256, torch.int64)):
        found = sealed(channel(FixedPointSettings()), upload, setup_of(Need.SUM, cohort))
        assert {value.dtype for name, value in found.items() if name not in COUNTS} == {wide}
    with pytest.raises(ConfigError, match=r"below 2\^63"):
        sealed(channel(FixedPointSettings(40, 2.0**20)), upload, setup_of(Need.SUM, 20))
    with pytest.raises(RunError, match=r"raise fixed_point\.largest"):
        sealed(channel(FixedPointSettings()), replace(upload, weight=upload.weight * 1e6), setup_of(Need.SUM, 20))


def test_weights_and_losses_leave_in_the_sum_only() -> None:
    kind, setup = channel(), setup_of(Need.SUM, 12)
    way = Simulated(kind, kind.device(Draws(0)), kind.server(), setup)
    uploads = []
    for part in parts(12, unequal=True):
        loss = part.weight * 2
        uploads.append(way.leave(replace(part, dense={**part.dense, LOSS: loss})))
    assert all(bool((upload.weight == 1).all()) for upload in uploads)
    found = way.collect(uploads)
    assert isinstance(found, Received)
    assert found.counts[LOSS] == pytest.approx(2 * found.weight, abs=1e-5)


class Watched(Simulated):
    """Remembers what left, and what the server could reach."""

    seen: list[Upload]

    def leave(self, upload: Upload) -> Upload:
        setup = self._setup
        own = {client: self._secrets[client] for client in upload.ids.tolist()}
        self.seen.append(self._devices.cover(self._devices.seal(upload, setup), setup, own))
        return super().leave(upload)


def test_what_leaves_looks_like_chance_and_betrays_nothing_by_its_shape() -> None:
    kind, setup = channel(FixedPointSettings()), setup_of(Need.SUM, 12)
    way = Watched(kind, kind.device(Draws(0)), kind.server(), setup)
    way.seen = []
    server = kind.server()
    for part in parts(12, unequal=False):
        way.leave(part)
    for upload in way.seen:
        shapes = {name: tuple(value.shape[1:]) for name, value in {**upload.dense, **upload.rows}.items()}  # type: ignore[union-attr]
        assert shapes == {
            "matrix": (3, 2),
            "bias": (1, 4),
            "number": (),
            "table": (N_ITEMS, 2),
            **dict.fromkeys(COUNTS, ()),
        }
        assert torch.equal(upload.at, torch.arange(N_ITEMS).expand(len(upload.ids), -1))
        assert (upload.rows["table"] != 0).double().mean() > 0.99, "rows that nobody touched are no longer zero"
    table = np.concatenate([upload.rows["table"].numpy().ravel() for upload in way.seen])
    assert (np.abs(table.astype(np.int64)) > 2**24).mean() > 0.95
    assert not any(isinstance(value, Draws | SecaggDevice | Secret) for value in reachable([server]))


def test_a_sum_that_honest_clients_cannot_make_is_refused() -> None:
    kind, setup = channel(FixedPointSettings(fraction_bits=20, largest=4.0)), setup_of(Need.SUM, 12)
    setup = replace(setup, magnitude=1.0)
    way = Simulated(kind, kind.device(Draws(0)), kind.server(), setup)

    def lying() -> Iterator[Upload]:
        for number, part in enumerate(parts(12, unequal=False)):
            left = way.leave(replace(part, dense={}, rows={"table": part.rows["table"].clamp(-1, 1)}))
            if number == 0:
                left.rows["table"][0, 0] += 49 << 20
            yield left

    with pytest.raises(IncompleteError, match=r"'table' is not: some node sent more"):
        way.collect(lying())


def test_a_server_cannot_have_few_opened() -> None:
    kind, setup = channel(), setup_of(Need.SUM, 12)
    way = Simulated(kind, kind.device(Draws(0)), kind.server(), setup)
    uploads = [choose(part, part.ids < 7) for part in parts(12, unequal=False)]
    with pytest.raises(PrivacyError, match="at least 8 of 12 participants"):
        way.collect([way.leave(part) for part in uploads])


def test_keys_are_fresh_in_every_round_and_for_everybody() -> None:
    device, setup = channel().device(Draws(0)), setup_of(Need.SUM, 12)
    messages = [device.contribute(replace(setup, round=number), one).public for number in range(3) for one in range(4)]
    assert len({message[:32] for message in messages}) == len({message[32:64] for message in messages}) == 12


def test_letters_are_passed_on_to_those_who_take_part() -> None:
    sent = {1: {2: b"a", 3: b"b"}, 2: {1: b"c", 9: b"d"}}
    assert uplink.pass_on(sent) == {1: {2: b"c"}, 2: {1: b"a"}}
