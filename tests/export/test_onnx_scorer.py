from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.export.device_runs import N_USERS, small_run, torch_scores

from fedrecgel.errors import ConfigError
from fedrecgel.export.bundle import write_bundle, write_onnx
from fedrecgel.export.forms import form_of
from fedrecgel.export.onnx_scorer import onnx_bytes

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("name", "options"), [("fedmf", {}), ("fedncf", {"model": "mf"}), ("fedncf", {}), ("fedrecgel", {})]
)
def test_scores_are_those_of_torch(name: str, options: dict[str, object], tmp_path: Path) -> None:
    run = small_run(name, **options)
    write_onnx(run, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / "scorer.onnx"))
    everyone = np.stack([torch_scores(run, user) for user in range(N_USERS)])
    users, some = run.clients["user"].numpy(), np.array([5, 0, 129, 7])
    for items in (np.arange(len(run.item_ids)), some):
        (found,) = session.run(["scores"], {"user": users, "items": items})
        assert np.abs(found - everyone[:, items]).max() <= 1e-5 * np.abs(everyone).max()


def test_a_method_without_a_network_says_so() -> None:
    with pytest.raises(ConfigError, match=r"Method 'ease' is no network: .* Use --format bundle"):
        onnx_bytes(form_of(small_run("ease")), "ease")


def test_without_the_extra_a_bundle_goes_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "scorer.onnx" in write_bundle(small_run("fedmf"), tmp_path / "with").files
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr("fedrecgel.export.onnx_scorer.find_spec", lambda name: None)
    assert "scorer.onnx" not in write_bundle(small_run("fedmf"), tmp_path / "without").files
    with pytest.raises(ConfigError, match=r"--format onnx needs the extra `export`"):
        write_onnx(small_run("fedmf"), tmp_path / "onnx")
