"""A channel of one's own, in this file alone: uploads are clipped, then hidden behind masks that cancel in the sum.

Every two participants agree on a mask by Diffie and Hellman's exchange; one adds it, the other subtracts it. The group
is a toy. What is shown is the seam: settings, randomness, exchange, stages, and both engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.builders import random_split
from tests.channels.reach import reachable
from tests.engine.flower.inprocess import InProcess, config_of, same, served
from torch import Tensor

import fedrecgel as fr
from fedrecgel.channels.base import Channel, Contribution, DeviceHalf, Preparation, RoundSetup, ServerHalf
from fedrecgel.channels.chain import Chain
from fedrecgel.channels.registry import CHANNELS, register
from fedrecgel.channels.sums import Received, whole
from fedrecgel.cli.main import main
from fedrecgel.draws import Draws
from fedrecgel.engine.flower.shard import write_shards
from fedrecgel.engine.flower.wire import Letter, Lost
from fedrecgel.errors import ConfigError, IncompleteError, PrivacyError
from fedrecgel.methods.messages import Inbox, Need, Upload
from fedrecgel.runs.config import from_dict
from fedrecgel.tensors import client_norm

PRIME, BASE, KEY_BYTES = 2**127 - 1, 3, 16


@dataclass(frozen=True)
class ClipSettings:
    """How long an upload may be."""

    norm: float = 1e9
    """Longer ones are shortened to it."""


class ClipDevice(DeviceHalf):
    def __init__(self, settings: ClipSettings) -> None:
        self._norm = settings.norm

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        upload = whole(upload, setup.n_items)
        dense: dict[str, Any] = dict(upload.dense)
        length = client_norm({name: value.unsqueeze(1) for name, value in {**dense, **upload.rows}.items()})
        scale = (self._norm / length).clamp(max=1.0)
        return replace(
            upload,
            dense={name: value * _fit(scale, value) for name, value in dense.items()},
            rows={name: value * _fit(scale, value) for name, value in upload.rows.items()},
        )


class Clip(Channel):
    name, protects, section, settings_type = "clip", "nothing by itself", "my_clip", ClipSettings

    def device(self, draws: Draws) -> DeviceHalf:
        return ClipDevice(self.settings)

    def server(self) -> ServerHalf:
        return ServerHalf()


@dataclass(frozen=True)
class MaskSettings:
    """How numbers become integers."""

    bits: int = 30
    """Binary digits after the point."""


class MaskDevice(DeviceHalf):
    def __init__(self, settings: MaskSettings, draws: Draws) -> None:
        self._bits, self._draws = settings.bits, draws

    def contribute(self, setup: RoundSetup, participant: int) -> Contribution:
        secret = self._draws.key("mask", setup.round, participant)[:KEY_BYTES]
        public = pow(BASE, int.from_bytes(secret), PRIME)
        return Contribution(public.to_bytes(KEY_BYTES), secret)

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        def integers(value: Any) -> Tensor:
            weighted = value.double() * _fit(upload.weight.double(), value)
            found: Tensor = (weighted * 2**self._bits).round().long()
            return found

        upload = whole(upload, setup.n_items)
        dense = {name: integers(value) for name, value in upload.dense.items()}
        return replace(upload, dense=dense, rows={name: integers(value) for name, value in upload.rows.items()})

    def cover(self, upload: Upload, setup: RoundSetup, secrets: Mapping[int, bytes]) -> Upload:
        def covered(name: str, value: Any) -> Tensor:
            masked: Tensor = value.clone()
            for row, own in enumerate(upload.ids.tolist()):
                for other, public in setup.messages.items():
                    if other != own:
                        shared = pow(int.from_bytes(public), int.from_bytes(secrets[own]), PRIME)
                        seed = int.from_bytes(sha256(f"{shared}/{name}".encode()).digest())
                        mask = np.random.default_rng(seed).integers(-(2**63), 2**63, tuple(value.shape[1:]))
                        masked[row] += (1 if own < other else -1) * torch.from_numpy(np.asarray(mask))
            return masked

        dense = {name: covered(name, value) for name, value in upload.dense.items()}
        return replace(upload, dense=dense, rows={name: covered(name, value) for name, value in upload.rows.items()})


class MaskServer(ServerHalf):
    readable = False

    def __init__(self, settings: MaskSettings) -> None:
        self._bits = settings.bits

    def arriving(self, one: dict[str, Tensor], setup: RoundSetup) -> dict[str, Tensor]:
        return {name: value.long() for name, value in one.items()}

    def open_sums(self, received: Received, setup: RoundSetup) -> Received:
        if missing := setup.messages.keys() - set(received.ids.tolist()):
            raise IncompleteError(f"Masks cancel only if all participants answer. Missing: {sorted(missing)}.")
        dtype = received.weights.dtype
        return replace(
            received, sums={name: (value.double() / 2**self._bits).to(dtype) for name, value in received.sums.items()}
        )


class Mask(Channel):
    name, protects = "mask", "single uploads, from a server that lets everybody answer"
    reveals, prepares = Need.SUM, Preparation.EXCHANGE
    section, settings_type = "my_mask", MaskSettings

    def device(self, draws: Draws) -> DeviceHalf:
        return MaskDevice(self.settings, draws)

    def server(self) -> ServerHalf:
        return MaskServer(self.settings)


class Mine(Chain):
    name, protects, stages = "mine", Mask.protects, (Clip, Mask)


def _fit(number: Tensor, value: Tensor) -> Tensor:
    return number.view(-1, *[1] * (value.dim() - 1))


SPLIT = random_split(n_users=14, n_items=130)
TINY: dict[str, Any] = {"gmf_dim": 4, "mlp_dim": 6, "fraction": 0.5, "rounds": 2}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(Mine)
    yield
    del CHANNELS["mine"]


@pytest.mark.parametrize("method", ["fedrecgel", "popularity"])
def test_it_trains_as_plain_does_up_to_rounding(method: str) -> None:
    options = {**TINY, "server_lr": 0.01} if method == "fedrecgel" else {"rounds": 1}  # Adam magnifies rounding
    plain = fr.train(method, SPLIT, **options)
    mine = fr.train(method, SPLIT, run={"channel": "mine"}, my_mask={"bits": 45}, **options)
    same(mine.shared, plain.shared, 1e-6)
    assert mine.metrics == pytest.approx(plain.metrics)
    assert mine.summary["privacy"]["channel"] == "mine"
    up, down = (mine.history[0][key] for key in ("bytes_up", "bytes_down"))
    clients = mine.history[0]["clients"]
    assert up > plain.history[0]["bytes_up"] + KEY_BYTES * clients, "64 bits a number, and one message each"
    assert down == plain.history[0]["bytes_down"] + KEY_BYTES * clients**2


def test_the_same_seed_gives_the_same_bits() -> None:
    first, second = (fr.train("fedrecgel", SPLIT, run={"channel": "mine"}, **TINY) for _ in range(2))
    same(first.shared, second.shared)


def test_its_settings_are_its_own_sections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    words = ["train", "--channel", "mine", "--rounds", "1", "--quiet", "--set", "method.fraction=0.01"]
    words += ["--set", "evaluation.full=false"]
    assert main([*words, "--out", str(out), "--set", "my_clip.norm=0.5"]) == 0
    written = (out / "config.toml").read_text()
    assert "[my_clip]\nnorm = 0.5\n" in written
    assert "[my_mask]\nbits = 30\n" in written
    assert main(["train", str(out / "config.toml"), "--out", str(tmp_path / "again"), "--quiet"]) == 0
    same(fr.open(tmp_path / "again").shared, fr.open(out).shared)
    assert main([*words, "--out", str(tmp_path / "other"), "--set", "my_mask.bit=3"]) == 2
    assert "Unknown key 'bit' in [my_mask]. Did you mean 'bits'?" in capsys.readouterr().err


def test_runs_that_do_not_use_it_do_not_know_it() -> None:
    assert from_dict({}).to_dict().keys().isdisjoint({"my_clip", "my_mask"})
    assert {"my_clip", "my_mask", "fixed_point"} <= from_dict({"run": {"channel": "mine"}}).to_dict().keys()
    del CHANNELS["mine"]
    with pytest.raises(ConfigError, match="Unknown section 'my_clip'"):
        from_dict({"my_clip": {"norm": 1.0}})
    register(Mine)


def test_clipping_takes_effect() -> None:
    short = fr.train(
        "fedmf", SPLIT, rounds=1, run={"channel": "mine"}, my_clip={"norm": 1e-4}, dim=4, fraction=1.0, server_lr=1.0
    )
    plain = fr.train("fedmf", SPLIT, rounds=1, dim=4, fraction=1.0, server_lr=1.0)
    start = fr.train(
        "fedmf", SPLIT, rounds=1, run={"channel": "mine"}, my_clip={"norm": 1e-9}, dim=4, fraction=1.0, server_lr=1.0
    )
    step, usual = (result.shared["items"] - start.shared["items"] for result in (short, plain))
    assert 0 < step.norm() <= 14 * 1e-4 < usual.norm()


def test_a_method_that_needs_each_upload_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"'gpfedrec' reads uploads one by one, but channel 'mine' reveals only"):
        fr.train("gpfedrec", SPLIT, rounds=1, run={"channel": "mine"})


def test_the_server_of_a_simulation_sees_masked_values_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Upload] = []
    servers: list[ServerHalf] = []

    def listen(self: ServerHalf, uploads: Iterable[Upload], setup: RoundSetup) -> Inbox:
        seen.extend(arrived := list(uploads))
        servers.append(self)
        return usual(self, arrived, setup)

    usual = ServerHalf.collect
    monkeypatch.setattr(ServerHalf, "collect", listen)
    fr.train("fedmf", SPLIT, rounds=1, run={"channel": "mine"}, dim=4, fraction=1.0)
    tables = [upload.rows["items"] for upload in seen if "items" in upload.rows]
    assert sum(len(table) for table in tables) == 14
    for table in tables:
        looks_random(table)
    assert not any(isinstance(value, Draws | MaskDevice | ClipDevice) for value in reachable(servers))


def looks_random(values: Tensor) -> None:
    """Uniform over 64 bits: most numbers are huge, both signs and all bytes occur as often as they should."""
    assert values.dtype == torch.int64
    assert (values.abs() > 2**56).double().mean() > 0.95
    counts = np.bincount(values.numpy().view(np.uint8).ravel(), minlength=256)
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * np.sqrt(2 * 255)


def test_it_runs_on_nodes_which_are_its_participants(tmp_path: Path) -> None:
    answers: list[tuple[str, Letter]] = []

    def listen(node: int, kind: str, answer: Letter) -> list[Letter | Lost]:
        answers.append((kind, answer))
        return [answer]

    asked: dict[str, Any] = {"evaluation": {"reference": "on"}}
    config = config_of("fedrecgel", run={"channel": "mine"}, my_mask={"bits": 45}, **asked)
    courier = InProcess(write_shards(SPLIT, tmp_path / "nodes", 3), listen)
    mine = served(config, SPLIT, tmp_path / "mine", courier, simulated=False)
    plain = served(config_of("fedrecgel", **asked), SPLIT, tmp_path / "plain")
    same(mine.shared, plain.shared, 1e-7)
    assert mine.metrics == plain.metrics
    trained = [answer for kind, answer in answers if kind == "train" and "sum/item_gmf" in answer.tensors]
    assert len(trained) == 9
    for answer in trained:
        for name, value in answer.tensors.items():
            if name.startswith("sum/") and value.numel() > 100:
                looks_random(value)
    counts = [answer.tensors["sum/counts"] for kind, answer in answers if "sum/counts" in answer.tensors]
    assert [(value.abs() > 2**56).double().mean() > 0.9 for value in counts] == 3 * [True], "nor does the reference"
    assert mine.reference == plain.reference
    public = [answer.about["message"] for kind, answer in answers if kind == "prepare"]
    assert len(public) == len(set(public)) == 12
    told = [
        letter.about["messages"] for kind, _, letter in courier.sent if kind == "train" and "messages" in letter.about
    ]
    assert [sorted(messages.values()) for messages in told[:3]] == 3 * [sorted(public[:3])]
