from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders import engine_of, problem_of, random_split
from tests.channels.reach import reachable
from tests.channels.uploads import by_loop, random_upload, setup_of
from torch import Tensor

import fedrecgel
from fedrecgel.channels.base import DeviceHalf, Plain, RoundSetup
from fedrecgel.channels.bfv import Encrypted
from fedrecgel.channels.ciphertexts import Keys
from fedrecgel.channels.fixedpoint import FixedPointSettings
from fedrecgel.cli.main import main
from fedrecgel.draws import Draws
from fedrecgel.engine.run import run
from fedrecgel.engine.uplink import fold
from fedrecgel.errors import ConfigError, PrivacyError, RunError
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedncf_weights import FedNCFWeights
from fedrecgel.methods.messages import Download, Need, Server, Upload
from fedrecgel.runs.config import from_dict
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.train import train_config
from fedrecgel.runs.training import Interrupted
from fedrecgel.storage import read_tensors
from fedrecgel.tensors import Sealed, Summed, Tensors

pytest.importorskip("tenseal", reason="the extra `crypto` is not installed")

SPLIT = random_split(10, 150)
STEP = 2.0**-20
"""One unit of the last place at the default fraction_bits."""
WIDE = FixedPointSettings(largest=1024.0)


def close_to(found: Tensors, wanted: Tensors, tolerance: dict[str, float]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert (found[name] - value).abs().max() <= tolerance[name], name


def opened(devices: DeviceHalf, tensors: Tensors) -> Tensors:
    assert all(isinstance(value, Sealed) for value in tensors.values())
    return devices.open_download(Download(tensors)).shared


def devices_of(settings: FixedPointSettings) -> DeviceHalf:
    return Encrypted(settings).device(Draws(0))


LINEAR = setup_of(Need.LINEAR)


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
@pytest.mark.parametrize("server_lr", [1.0, 0.3])
def test_fedmf_on_ciphertexts_equals_plain_within_rounding(aggregation: Any, server_lr: float) -> None:
    """Each of three rounds, from the same table: n uploads move by half a step each, the factor by 2^-16 of itself."""
    method = FedMF(dim=4, lr=0.5, aggregation=aggregation, server_lr=server_lr)
    draws = Draws(0)
    ours, plain = engine_of(method, SPLIT, channel=Encrypted()), engine_of(method, SPLIT)
    start = method.init_server(problem_of(SPLIT), draws)
    devices = ours.devices
    server = devices.seal_server(start)
    close_to(opened(devices, server.shared), start.shared, {"items": STEP / 2})
    for t in range(3):
        table = Server(opened(devices, server.shared))
        cohort = method.cohort(server, ours.population(), t, draws)
        sealed, clear = ours.train(server, cohort, t), plain.train(table, cohort, t)
        assert sealed.loss == clear.loss
        server = method.server_update(server, sealed.inbox, t, draws)
        wanted = method.server_update(table, clear.inbox, t, draws)
        factor = server_lr / (len(cohort) if aggregation == "mean" else 1)
        largest = float(clear.inbox.total()["items"].abs().max()) + len(cohort) * STEP / 2
        inexact = 0.0 if factor == 1 else 2**-16 * largest
        assert largest > 1000 * STEP, "else rounding would hide everything"
        close_to(opened(devices, server.shared), wanted.shared, {"items": factor * (len(cohort) * STEP / 2 + inexact)})
    assert torch.equal(ours.store.everyone()["user"], plain.store.everyone()["user"])


class Rounded(Plain):
    """In the clear, but with the encrypted channel's rounding."""

    def device(self, draws: Draws) -> DeviceHalf:
        return RoundedDevice()


class RoundedDevice(DeviceHalf):
    def seal_server(self, server: Server) -> Server:
        return Server({name: self.rounded(value) for name, value in server.shared.items()})

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        return replace(upload, rows={name: self.rounded(value) for name, value in upload.rows.items()})

    @staticmethod
    def rounded(value: Tensor) -> Tensor:
        return (value / STEP).round() * STEP


def test_three_rounds_differ_from_plain_by_rounding_alone() -> None:
    """With the same rounding in the clear, the table is the same to the last bit: nothing else happened to it."""
    method = FedMF(dim=4, lr=0.5, server_lr=1.0)  # a factor that ciphertexts take exactly
    tables = []
    for channel in (Encrypted(), Rounded()):
        engine = engine_of(method, SPLIT, channel=channel)
        server = engine.devices.seal_server(method.init_server(problem_of(SPLIT), engine.draws))
        *_, last = run(method, engine, server, 3, engine.draws)
        tables.append(engine.devices.unseal_server(last.server).shared["items"])
    assert torch.equal(*tables)


def test_the_server_holds_ciphertexts_and_no_key_at_any_time() -> None:
    method = FedMF(dim=4)
    engine = engine_of(method, SPLIT, channel=Encrypted())
    server = engine.devices.seal_server(method.init_server(problem_of(SPLIT), engine.draws))
    seen = [server.shared["items"]]
    for finished in run(method, engine, server, 2, engine.draws):
        seen += [*finished.server.shared.values(), *finished.trained.inbox.total().values()]
        assert not finished.server.kept
    for value in seen:
        assert isinstance(value, Sealed)
        for part in value.parts:  # type: ignore[attr-defined]
            assert not part.context().has_secret_key()
            assert not part.context().is_private()
    with pytest.raises(PrivacyError, match="sums only"):
        finished.trained.inbox.each()


def test_no_road_leads_from_the_server_half_to_a_key() -> None:
    """Nor from what it has collected; the same walk finds the key from the device half, so it can find one."""
    channel = Encrypted()
    devices, server = channel.device(Draws(0)), channel.server()
    upload = random_upload(torch.Generator().manual_seed(0), 2, 3, torch.ones(2).double())
    inbox = server.collect([devices.seal(upload, LINEAR)], LINEAR)
    assert any(isinstance(value, Keys) for value in reachable(devices))
    assert any(isinstance(value, Sealed) for value in reachable(inbox))
    for holder in (server, inbox, channel):
        assert not any(isinstance(value, Keys) or value is devices for value in reachable(holder))


def test_a_sealed_upload_does_not_say_which_rows_were_touched() -> None:
    devices = devices_of(WIDE)
    one, three = (random_upload(torch.Generator().manual_seed(0), 2, rows, torch.ones(2).double()) for rows in (1, 3))
    few, many = devices.seal(one, LINEAR), devices.seal(three, LINEAR)
    for upload in (few, many):
        assert not upload.rows
        assert upload.at.numel() == 0
    size = {name: value.n_bytes for name, value in many.dense.items() if isinstance(value, Sealed)}
    assert set(size) == {"matrix", "bias", "number", "table"}
    assert all(abs(few.dense[name].n_bytes - size[name]) < 1000 for name in size)  # type: ignore[union-attr]


@pytest.mark.parametrize("uniform", [True, False])
def test_rows_dense_tensors_factors_and_weights_against_a_loop(uniform: bool) -> None:
    devices, generator = devices_of(WIDE), torch.Generator().manual_seed(3)
    weights = [torch.ones(c).double() if uniform else torch.rand(c, generator=generator).double() * 9 for c in (3, 2)]
    uploads = [random_upload(generator, len(w), 4, w) for w in weights]
    sums, weight = by_loop(uploads)
    sealed = [devices.seal(upload, LINEAR) for upload in uploads]
    folded = [fold(upload, Need.LINEAR, weighted=True) for upload in sealed]
    for arriving in (sealed, folded, [sealed[0], folded[1]]):
        inbox = Encrypted().server().collect(arriving, LINEAR)
        close_to(opened(devices, inbox.total()), sums, dict.fromkeys(sums, 5 * STEP / 2))
        off = {name: (5 * STEP / 2 + 2**-16 * (float(v.abs().max()) + 5 * STEP)) / weight for name, v in sums.items()}
        close_to(opened(devices, inbox.mean()), {name: value / weight for name, value in sums.items()}, off)


@pytest.mark.parametrize(
    "method",
    [
        FedMF(dim=4),
        FedNCF(server_optimiser="sgd", gmf_dim=4, mlp_dim=6),
        FedNCFWeights(aggregation="mean", gmf_dim=4, mlp_dim=6, lr=1e-4),  # Adam steps along rounded signs
    ]
    + [kind() for name, kind in METHODS.items() if kind().server_needs == Need.LINEAR and name != "fedmf"],
    ids=lambda method: type(method).__name__,
)
def test_every_linear_method_runs(method: Method) -> None:
    numbers = FixedPointSettings(fraction_bits=16, largest=256.0)
    servers = []
    for channel in (Encrypted(numbers), Plain()):
        engine = engine_of(method, SPLIT, channel=channel)
        server = engine.devices.seal_server(method.init_server(problem_of(SPLIT), engine.draws))
        *_, last = run(method, engine, server, 1, engine.draws)
        assert len(engine.ranks(last.server, "test", "candidates").above) == SPLIT.n_users
        servers.append(engine.devices.unseal_server(last.server).shared)
    for name, value in servers[1].items():
        torch.testing.assert_close(servers[0][name], value, atol=1e-3, rtol=1e-3)


def test_uploads_that_were_summed_or_never_sealed_are_refused() -> None:
    upload = random_upload(torch.Generator().manual_seed(0), 2, 3, torch.ones(2).double())
    with pytest.raises(PrivacyError, match="one by one"):
        devices_of(WIDE).seal(replace(upload, dense={"bias": Summed(torch.zeros(1))}), LINEAR)
    with pytest.raises(PrivacyError, match="should receive sealed tensors"):
        Encrypted().server().collect([upload], LINEAR)


def test_what_no_device_could_open_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"Found step; use channel plain"):
        devices_of(WIDE).seal_server(Server({"items": torch.zeros(2)}, {"step": torch.zeros(())}))


def test_more_clients_than_fit_are_refused() -> None:
    devices = devices_of(FixedPointSettings(fraction_bits=40, largest=2.0**15))

    def collect(clients: int) -> Tensors:
        upload = Upload(
            torch.arange(clients),
            {"x": torch.ones(clients, 3)},
            {},
            torch.zeros(clients, 0).long(),
            torch.ones(clients),
        )
        return Encrypted().server().collect([devices.seal(upload, LINEAR)], LINEAR).total()

    assert torch.equal(opened(devices, collect(3))["x"], torch.full((3,), 3.0))
    with pytest.raises(ConfigError, match="take fewer clients"):
        collect(4)
    with pytest.raises(RunError, match=r"at most 32768 in magnitude\. Found 40000"):
        devices.seal_server(Server({"x": torch.tensor([4e4])}))


def settings_of(rounds: int = 4, **method: Any) -> Any:
    sections = {
        "data": {"name": "tiny"},
        "split": {"validation": True},
        "method": {"name": "fedmf", "dim": 4, "lr": 0.5, "server_lr": 0.3, **method},
        "run": {"rounds": rounds, "channel": "bfv"},
        "evaluation": {"every": 1},
        "checkpoint": {"every": 1},
    }
    return from_dict(sections)


VALIDATED = random_split(10, 150, validation=True)


def test_resuming_equals_not_stopping(tmp_path: Path) -> None:
    """Float32 holds fewer digits than the table behind the ciphertexts; none may be lost on the way."""
    whole, parted = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parted")
    train_config(settings_of(), VALIDATED, whole)
    with pytest.raises(Interrupted):
        train_config(settings_of(), VALIDATED, parted, should_stop=lambda: True)
    train_config(settings_of(), VALIDATED, parted, resume=True)
    for path in (RunFolder.server, RunFolder.clients, RunFolder.checkpoint):
        first, second = (read_tensors(path.fget(folder), dict)[0] for folder in (whole, parted))  # type: ignore[attr-defined]
        assert first.keys() == second.keys()
        assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("selection", ["last", "validation"])
def test_a_run_folder_holds_open_tensors_that_recommend(selection: str, tmp_path: Path) -> None:
    config = settings_of()
    reference = "on" if selection == "last" else "auto"
    config = replace(config, evaluation=replace(config.evaluation, selection=selection, reference=reference))
    result = train_config(config, VALIDATED, RunFolder(tmp_path))
    assert result.summary["privacy"]["channel"] == "bfv"
    assert result.shared["items"].dtype == torch.float32
    again = fedrecgel.open(tmp_path)
    assert torch.equal(again.shared["items"], result.shared["items"])
    assert len(again.recommend("u0", k=3)) == 3
    plain = train_config(replace(config, run=replace(config.run, channel="plain")), VALIDATED)
    assert plain.reference
    assert result.reference == (plain.reference if reference == "on" else {})
    assert ("counts" in result.summary["privacy"]["leaves_device"]) == (reference == "on")
    assert result.history[0]["loss"] == pytest.approx(plain.history[0]["loss"], abs=1e-5)
    wire = result.history[0]["bytes_up"] / result.history[0]["clients"]
    assert 250_000 < wire < 270_000
    assert plain.history[0]["bytes_up"] / plain.history[0]["clients"] == 150 * 4 * 4
    assert result.history[0]["bytes_down"] == pytest.approx(result.history[0]["bytes_up"], rel=0.01)


def test_a_method_that_reads_sums_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "--method", "fedncf", "--channel", "bfv", "--out", str(out), "--quiet"]) == 2
    assert "channel 'bfv' reveals only an encrypted sum" in capsys.readouterr().err
    assert not out.exists()
