"""The runtime of a bundle: the same scores as torch, one file of its own, and its errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.builders import random_interactions
from tests.export.device_runs import N_USERS, history_of, small_run, torch_scores

from fedrecgel.data.federation import LEARNT_FROM, Federation, SamplingSettings
from fedrecgel.data.split import Split, leave_one_out
from fedrecgel.draws import Draws
from fedrecgel.export.bundle import write_bundle
from fedrecgel.export.runtime import Device, DeviceError
from fedrecgel.methods.messages import Download
from fedrecgel.methods.spectra import Spectra, Stage
from fedrecgel.tables import State
from fedrecgel.tensors import Factors

FADING = {"decay": 0.5}
FROM_HISTORY: list[tuple[str, dict[str, Any]]] = [
    ("popularity", {}),
    ("itemknn", FADING),
    ("ease", FADING),
    ("gfcf", FADING),
    ("ials", FADING),
    ("ials", {"nu": 0.0}),
    ("spectra", {}),
    ("spectra", {"pairs": True}),
]
LEARNT: list[tuple[str, dict[str, Any]]] = [
    ("fedmf", {}),
    ("fedmf", {"updates": "batch", "loss": "squared"}),
    ("fedmf", {"examples": "positives"}),
    ("fedncf", {}),
    ("fedncf", {"model": "mf", "user_optimiser": "sgd", "reduction": "mean"}),
    ("fedrecgel", {"chunk": 7, "rho_ur": 0.1, "server_lr": 0.01}),
]


def label(case: object) -> str:
    return case if isinstance(case, str) else "-".join(f"{key}={value}" for key, value in dict(case).items())  # type: ignore[call-overload]


def check_close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal up to a share of the largest, so that small scores are not equal by being small."""
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_bundle(small_run("spectra"), tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.mark.parametrize(("name", "options"), FROM_HISTORY, ids=label)
def test_scores_from_a_history_are_those_of_torch(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    run = small_run(name, **options)
    write_bundle(run, tmp_path / "bundle")
    for user in range(0, N_USERS, 7):
        me = Device(tmp_path / "bundle")
        me.add(history_of(run, user))
        check_close(me.scores(), torch_scores(run, user))
        assert [pick.item for pick in me.recommend(5)] == [best.item for best in run.recommend(history=me.history, k=5)]


@pytest.mark.parametrize(("name", "options"), LEARNT, ids=label)
def test_scores_of_a_trained_vector_are_those_of_torch(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    run = small_run(name, **options)
    write_bundle(run, tmp_path / "bundle")
    for user in range(0, N_USERS, 7):
        me = Device(tmp_path / "bundle")
        me.add(history_of(run, user)[:1])
        me.private = {"user": run.clients["user"][user].numpy()}
        check_close(me.scores(), torch_scores(run, user))


@pytest.mark.parametrize(("name", "options"), LEARNT, ids=label)
def test_a_vector_is_learnt_as_torch_learns_it(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """A newcomer's, in all local rounds; with and without repeated items, with one item alone, with very many."""
    run = small_run(name, **options)
    write_bundle(run, tmp_path / "bundle")
    many = [*run.item_ids[20:], *run.item_ids[:7]]
    assert len(many) > LEARNT_FROM
    for history in (history_of(run, 3), history_of(run, 11), history_of(run, 5)[:1], many):
        me = Device(tmp_path / "bundle")
        me.add(history)
        folded = run.fold_in(history).audience.private["user"][0]
        check_close(me.private["user"], folded.double().numpy(), 1e-4)  # torch learns in single precision
        assert [pick.item for pick in me.recommend(5)] == [best.item for best in run.recommend(history=history, k=5)]


def test_reasons_add_up(tmp_path: Path) -> None:
    """Every own item's share of two scores explains their difference but for what is common to all."""
    for name, options in FROM_HISTORY[1:]:
        run = small_run(name, **options)
        write_bundle(run, tmp_path / "bundle")
        me = Device(tmp_path / "bundle")
        me.add(history_of(run, 3))
        scorer, own, scores = me.bundle.scorer, me._own(), me.scores()
        sums = [scorer.shares(own, {}, item) for item in range(8)]
        explained = np.array([shares.sum() for shares in sums if shares is not None])
        if name == "spectra":
            explained += scorer.common(scorer.settings["mixture"])[:8]  # type: ignore[attr-defined]
        np.testing.assert_allclose(np.diff(explained), np.diff(scores[:8]), rtol=1e-4, atol=1e-5)


def test_own_items_that_speak_for_a_pick_come_strongest_first(tmp_path: Path) -> None:
    run = small_run("ease")
    write_bundle(run, tmp_path / "bundle")
    me = Device(tmp_path / "bundle")
    me.add(history_of(run, 3))
    weights = run.shared["weights"].numpy()
    number = {item: place for place, item in enumerate(run.item_ids)}
    for pick in me.recommend(3):
        shares = {item: weights[number[item], number[pick.item]] for item in set(me.history)}
        best = sorted((item for item in shares if shares[item] > 0), key=lambda item: -shares[item])[:3]
        assert pick.because == best


def test_network_picks_name_own_items_nearby(tmp_path: Path) -> None:
    write_bundle(small_run("fedmf"), tmp_path / "bundle")
    me = Device(tmp_path / "bundle")
    me.add(history_of(small_run("fedmf"), 3))
    assert all(set(pick.because) <= set(me.history) for pick in me.recommend(3))


# Uploads


def spectra_upload(run: Any, user: int, stage: Stage, *, held: bool) -> dict[str, np.ndarray[Any, Any]]:
    """What `Spectra.client_update` sends in the first round of a stage, dense as it travels."""
    method: Spectra = run.config.method.build()
    number = method.parts * next(
        n for n, turn in enumerate(method.turns) if turn.stage is stage and turn.holds_back == held
    )
    split: Split = leave_one_out(random_interactions(N_USERS, len(run.item_ids)))
    batch = Federation(split, SamplingSettings()).batch(torch.tensor([user]), number, Draws(0), negatives=False)
    result = method.client_update(State(), Download(run.shared), batch, number, Draws(0))
    sent = result.upload.dense.items()
    found = {name: np.asarray((value.each() if isinstance(value, Factors) else value)[0]) for name, value in sent}  # type: ignore[index]
    for name, rows in result.upload.rows.items():
        found[name] = np.zeros((len(run.item_ids), rows.shape[2]))
        np.add.at(found[name], result.upload.at[0].numpy(), rows[0].numpy())
    return found


@pytest.mark.parametrize("held", [True, False], ids=["held", "all"])
@pytest.mark.parametrize("stage", list(Stage), ids=lambda stage: stage.name.lower())
def test_an_upload_is_what_a_client_sends(stage: Stage, held: bool, tmp_path: Path) -> None:
    if not held and stage in (Stage.COUNTS, Stage.VOTE):
        pytest.skip("always with a row held back")
    run = small_run("spectra", pairs=True)
    write_bundle(run, tmp_path / "bundle")
    for user in (3, 8):
        me = Device(tmp_path / "bundle")
        me.add(history_of(run, user))
        expected = spectra_upload(run, user, stage, held=held)
        what = {Stage.VOTE: "votes"}.get(stage, stage.name.lower())
        found = me.upload(what, hold_back=held)
        assert found.keys() == expected.keys()
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_upload_without_a_closed_form_is_refused(tmp_path: Path) -> None:
    write_bundle(small_run("fedmf"), tmp_path / "bundle")
    me = Device(tmp_path / "bundle")
    me.add([100])
    with pytest.raises(DeviceError, match=r"Method 'fedmf' has no upload 'items' in closed form"):
        me.upload("items")
    assert me.leaves_device == ["items"]


# The own file


def test_the_own_file_keeps_history_and_vector(tmp_path: Path) -> None:
    write_bundle(small_run("fedmf"), tmp_path / "bundle")
    state = tmp_path / "me.json"
    me = Device(tmp_path / "bundle", state)
    me.add([104, 111])
    me.add(["120"])
    again = Device(tmp_path / "bundle", state)
    assert again.history == [104, 111, 120]
    np.testing.assert_array_equal(again.scores(), me.scores())
    again.remove(111)
    assert Device(tmp_path / "bundle", state).history == [104, 120]
    again.clear()
    assert not state.exists()
    assert list(tmp_path.iterdir()) == [tmp_path / "bundle"]


def test_another_model_learns_from_the_kept_history(tmp_path: Path) -> None:
    write_bundle(small_run("fedmf"), tmp_path / "bundle")
    Device(tmp_path / "bundle", tmp_path / "me.json").add([104, 111])
    write_bundle(small_run("fedmf", updates="batch", loss="squared"), tmp_path / "bundle")
    fresh = Device(tmp_path / "bundle")
    fresh.add([104, 111])
    np.testing.assert_array_equal(Device(tmp_path / "bundle", tmp_path / "me.json").scores(), fresh.scores())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": "x"}', '{"format": "fedrecgel-device-state", "version": 9}']
)
def test_a_damaged_own_file_is_named(bundle: Path, text: str) -> None:
    (bundle.parent / "me.json").write_text(text)
    with pytest.raises(DeviceError, match=r"me.json' should be a device's own state: .*Restore or delete it"):
        Device(bundle, bundle.parent / "me.json")


# Bad input


def test_unknown_items_and_empty_histories(bundle: Path) -> None:
    me = Device(bundle)
    with pytest.raises(DeviceError, match=r"Unknown item 'x': the catalogue has 130 others"):
        me.add(["x"])
    with pytest.raises(DeviceError, match=r"the history is empty. Add an item first"):
        me.recommend()
    me.add([100])
    with pytest.raises(DeviceError, match=r"k should be at least 1. Found 0"):
        me.recommend(0)
    assert len(me.recommend(1000)) == 129


def change(bundle: Path, **values: object) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, **values}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"version": 2},
            "is a bundle of version 2, and this runtime reads version 1. Use the fedrecgel_device.py inside",
        ),
        ({"format": "zip"}, "should be the manifest of a fedrecgel-bundle. Found something else"),
        ({"form": "magic"}, "Its manifest.json is damaged: KeyError"),
        (
            {"tables": {"vectors": {"file": "../../secret", "dtype": "float32", "shape": [1]}}},
            "files of its own folder",
        ),
        ({"tables": {"vectors": {"file": "vectors.bin", "dtype": "object", "shape": [1]}}}, "is damaged: KeyError"),
        ({"tables": None}, "Its manifest.json is damaged"),
        ({"n_items": 4}, "not all items have a name"),
    ],
)
def test_a_bundle_of_another_kind_is_refused(bundle: Path, values: dict[str, object], message: str) -> None:
    change(bundle, **values)
    with pytest.raises(DeviceError, match=message):
        Device(bundle)


def test_damaged_and_missing_files_are_named(bundle: Path) -> None:
    whole = (bundle / "vectors.bin").read_bytes()
    (bundle / "vectors.bin").write_bytes(whole[:-4])
    with pytest.raises(DeviceError, match=r"vectors.bin' is damaged: .*Copy the folder again"):
        Device(bundle)
    (bundle / "vectors.bin").write_bytes(b"\x01" + whole[1:])
    with pytest.raises(DeviceError, match=r"vectors.bin' is damaged"):
        Device(bundle)
    (bundle / "vectors.bin").unlink()
    with pytest.raises(DeviceError, match=r"lacks 'vectors.bin': No such file or directory"):
        Device(bundle)
    (bundle / "manifest.json").write_bytes(b"{")
    with pytest.raises(DeviceError, match=r"manifest.json' cannot be read: .*Export the run again"):
        Device(bundle)
    shutil.rmtree(bundle)
    with pytest.raises(DeviceError, match=r"has no manifest.json that can be read"):
        Device(bundle)


# Alone


def test_the_bundle_runs_by_itself_without_torch(bundle: Path) -> None:
    """Its own copy, in a Python that sees neither this package nor torch."""
    expected = Device(bundle)
    expected.add([104, 111])
    ask = (
        "import sys, fedrecgel_device as d; me = d.Device('.'); me.add([104, 111]);"
        "print(*(pick.item for pick in me.recommend(5)));"
        "print([name for name in ('torch', 'fedrecgel', 'pyarrow', 'onnxruntime') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", ask], cwd=bundle, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [" ".join(str(pick.item) for pick in expected.recommend(5)), "[]"]
    words = [sys.executable, str(bundle / "fedrecgel_device.py"), "104", "111"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    first = expected.recommend(1)[0]
    assert done.stdout.splitlines()[0].split()[:3] == ["1", str(first.item), f"{first.score:.4f}"]
    assert len(done.stdout.splitlines()) == 10
    done = subprocess.run([*words[:2], "x"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "Unknown item 'x': the catalogue has 130 others.\n")
