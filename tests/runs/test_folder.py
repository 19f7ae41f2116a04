from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.settings import run_fingerprint
from fedrecgel.storage import write_text


def config(**run: Any) -> Config:
    return from_dict({"run": run})


FINISHED: dict[str, Any] = {
    "dataset": "demo",
    "method": "fedrecgel",
    "variant": None,
    "seed": 0,
    "rounds": 100,
    "data": {"users": 2, "items": 3, "interactions": 4},
    "protocol": {
        "split": "leave-one-out",
        "ties": "",
        "candidates": 99,
        "equal_scores": "expected",
        "negatives": "",
        "selection": "last",
        "selected_round": 100,
        "fingerprint": "abc",
    },
    "metrics": {},
    "metrics_full": None,
    "reference": {"popularity": {}},
    "reference_full": {"popularity": None},
    "seconds": {"train": 1.0, "evaluate": 1.0, "total": 2.0},
    "bytes": {"up": 1, "down": 2},
    "privacy": {"channel": "plain", "leaves_device": []},
    "versions": {},
    "commit": None,
}
"""A summary as an earlier version wrote it, without a seal."""


def started(path: Path, *, lines: int = 3, summary: object = None) -> RunFolder:
    folder = RunFolder(path)
    write_text(folder.config, config().to_toml())
    write_text(folder.metrics, "".join(json.dumps({"round": k + 1}) + "\n" for k in range(lines)))
    if summary is not None:
        write_text(folder.summary, json.dumps(summary))
    return folder


def _with_variant(base: Config) -> dict[str, dict[str, Any]]:
    sections = base.to_dict()
    return {**sections, "method": {**sections["method"], "variant": "paper"}}


def files(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_new_or_empty_folder_is_free(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "new").claim(config().to_dict(), resume=False) == "new"
    assert RunFolder(tmp_path).claim(config().to_dict(), resume=False) == "new"
    with pytest.raises(RunFolderError, match="no run to resume"):
        RunFolder(tmp_path / "new").claim(config().to_dict(), resume=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_not_a_run_folder_is_left_alone(resume: bool, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match="not empty and is no run folder"):
        RunFolder(tmp_path).claim(config().to_dict(), resume=resume)
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder(tmp_path / "thesis.tex").claim(config().to_dict(), resume=resume)
    assert list(files(tmp_path).values()) == [b"years of work"]


def test_an_interrupted_run_needs_resume(tmp_path: Path) -> None:
    folder = started(tmp_path)
    before = files(tmp_path)
    with pytest.raises(RunFolderError, match=r"up to round 3.*--resume"):
        folder.claim(config().to_dict(), resume=False)
    assert folder.claim(config().to_dict(), resume=True) == "resumed"
    assert files(tmp_path) == before


def test_a_finished_run_is_finished_until_more_rounds_are_asked_for(tmp_path: Path) -> None:
    folder = started(tmp_path, summary=FINISHED)
    for resume in (False, True):
        assert folder.claim(config().to_dict(), resume=resume) == "finished"
    assert folder.claim(config(rounds=200).to_dict(), resume=True) == "resumed"
    with pytest.raises(RunFolderError, match="--resume"):
        folder.claim(config(rounds=200).to_dict(), resume=False)


@pytest.mark.parametrize("resume", [False, True])
def test_another_run_is_refused_with_the_difference(resume: bool, tmp_path: Path) -> None:
    folder = started(tmp_path, summary=FINISHED)
    with pytest.raises(RunFolderError, match=r"another run: there run\.seed = 0, here 1"):
        folder.claim(config(seed=1).to_dict(), resume=resume)
    with pytest.raises(RunFolderError, match=r"there method\.variant = None, here 'paper'"):
        folder.claim(_with_variant(config()), resume=resume)


def test_a_broken_config_or_summary(tmp_path: Path) -> None:
    folder = started(tmp_path)
    folder.summary.write_text('{"rounds": 1')
    with pytest.raises(StorageError, match=r"summary\.json' cannot be read"):
        folder.claim(config().to_dict(), resume=True)
    folder.config.write_text("[run\n")
    with pytest.raises(RunFolderError, match=r"config\.toml' cannot be read"):
        folder.claim(config().to_dict(), resume=True)


def test_rewind_drops_later_rounds_and_a_torn_line(tmp_path: Path) -> None:
    folder = started(tmp_path, lines=4)
    with folder.metrics.open("a") as file:
        file.write('{"round": 5, "lo')
    assert [line["round"] for line in folder.read_history()] == [1, 2, 3, 4]
    folder.summary.write_text("{}")
    folder.reopen("", folder.read_history()[:3])
    assert not folder.summary.exists(), "a folder with a summary is complete"
    folder.append({"round": 4, "loss": 0.5})
    assert folder.read_history() == [{"round": 1}, {"round": 2}, {"round": 3}, {"round": 4, "loss": 0.5}]
    folder.reopen("", [])
    assert folder.metrics.read_text() == ""


def test_only_one_process_writes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.lock(), pytest.raises(RunFolderError, match="Another process"), folder.lock():
        pass
    with folder.lock():
        assert folder.claim(config().to_dict(), resume=False) == "new", "a lock alone makes no run"


def test_history_before_the_first_round(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).read_history() == []
    with pytest.raises(RunFolderError, match="no finished run"):
        RunFolder(tmp_path).read_summary()


def test_the_fingerprint_sees_what_shapes_a_round() -> None:
    base = run_fingerprint(config().to_dict(), "split")
    assert run_fingerprint(config(rounds=7).to_dict(), "split") == base
    assert run_fingerprint(from_dict({"checkpoint": {"every": 3}, "data": {"dir": "x"}}).to_dict(), "split") == base
    changed: list[dict[str, dict[str, Any]]] = [
        {"run": {"seed": 1}},
        {"method": {"rho_co": 0.3}},
        {"evaluation": {"every": 3}},
        {"sampling": {"negatives": 3}},
    ]
    others = [run_fingerprint(from_dict(change).to_dict(), "split") for change in changed]
    assert len({base, run_fingerprint(config().to_dict(), "other"), *others}) == len(changed) + 2


def test_the_same_settings_on_other_data_are_refused(tmp_path: Path) -> None:
    folder = started(tmp_path, summary=FINISHED)
    folder.check_data("abc")
    with pytest.raises(RunFolderError, match="other data"):
        folder.check_data("xyz")


@pytest.mark.parametrize("content", ["[]", "{}", '{"rounds": 100}'])
def test_a_summary_of_something_else(content: str, tmp_path: Path) -> None:
    folder = started(tmp_path, summary=FINISHED)
    folder.summary.write_text(content)
    with pytest.raises(RunFolderError, match="summary of a run"):
        folder.read_summary()


def test_a_folder_of_an_earlier_version_is_known_again(tmp_path: Path) -> None:
    """It held a section that is gone, and lacks settings that are new; both mean what the defaults mean."""
    settings = from_dict({"run": {"rounds": 3}}).to_dict()
    older = {**settings, "faults": {"dropout": 0.0, "host_of": 0, "seconds": 0.0}}
    older["method"] = {key: value for key, value in settings["method"].items() if key != "model"}
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.config.write_text(tomli_w.dumps(older))
    with pytest.raises(RunFolderError, match="Continue it with --resume"):
        folder.claim(settings, resume=False)
    changed = from_dict({"run": {"rounds": 3}, "method": {"model": "mf"}}).to_dict()
    with pytest.raises(RunFolderError, match=r"there method\.model = 'neumf', here 'mf'"):
        folder.claim(changed, resume=False)
