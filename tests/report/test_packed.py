"""Packed results make the same page, tables and tests as the folder they come from, and nothing else can be in them."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from fedrecgel.cli.main import main
from fedrecgel.errors import FedrecgelError, RunFolderError, StorageError
from fedrecgel.report.write import opened, write_report
from fedrecgel.studies.archive import pack, unpack


def _written(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_report_of_packed_results_is_that_of_the_folder(results: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    assert main(["report", str(results), "--pack", str(packed / "all.tar.xz")]) == 0
    assert [path.name for path in packed.iterdir()] == ["all.tar.xz"]
    unkept = shutil.ignore_patterns("server.safetensors", "clients.safetensors")  # examples need a model
    shutil.copytree(results, tmp_path / "plain", ignore=unkept)
    write_report(tmp_path / "plain", tmp_path / "a" / "report.html", "fedrecgel report results", figures=False)
    write_report(packed, tmp_path / "b" / "report.html", "fedrecgel report results", figures=False)
    assert _written(tmp_path / "a") == _written(tmp_path / "b")


def test_one_packed_file_is_enough(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack(results, tmp_path / "all.tar.xz")
    assert main(["report", str(tmp_path / "all.tar.xz"), "--no-figures"]) == 0
    assert '<section id="main-table"' in (tmp_path / "report.html").read_text()
    assert main(["report", str(tmp_path / "none.tar.xz")]) == RunFolderError.exit_code
    assert "or packed ones (*.tar.xz). There is none" in capsys.readouterr().err


def test_what_is_unpacked_is_what_was_there_without_models(results: Path, tmp_path: Path) -> None:
    pack(results, tmp_path / "all.tar.xz")
    unpack([tmp_path / "all.tar.xz"], tmp_path / "folder")
    found, before = _written(tmp_path / "folder"), _written(results)
    assert found.items() <= before.items()
    assert not any(name.endswith(("server.safetensors", "clients.safetensors")) for name in found)
    ranks = {name for name in before if name.endswith("ranks.safetensors")}
    assert ranks
    assert ranks <= found.keys()


def test_the_same_results_are_the_same_bytes(results: Path, tmp_path: Path) -> None:
    for name in ("a.tar.xz", "b.tar.xz"):
        pack(results, tmp_path / name)
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()


def test_several_archives_are_one_folder_unless_they_disagree(results: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(results, other, ignore=shutil.ignore_patterns("*.safetensors"))
    (other / "results.jsonl").write_bytes(b"")
    pack(results, tmp_path / "a.tar.xz")
    pack(other, tmp_path / "b.tar.xz")
    unpack([tmp_path / "a.tar.xz", tmp_path / "b.tar.xz"], tmp_path / "both")
    assert (tmp_path / "both" / "results.jsonl").read_bytes() == (results / "results.jsonl").read_bytes()
    summary = next(other.glob("runs/*/summary.json"))
    summary.write_text("{}", encoding="utf-8")
    pack(other, tmp_path / "b.tar.xz")
    with pytest.raises(RunFolderError, match=r"has another 'runs/.*/summary\.json'"):
        unpack([tmp_path / "a.tar.xz", tmp_path / "b.tar.xz"], tmp_path / "again")


def test_archives_keep_their_own_data_facts_and_documents(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, other := tmp_path / "other")
    (other / "main-table.json").unlink()
    facts = next((other / "data").iterdir())
    for path, key, value in ((facts, "ceiling", 0.5), (other / "sensitivity.json", "command", "another")):
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}), encoding="utf-8")
    summary = next(other.glob("runs/*/summary.json"))  # the same run, trained again: only its time differs
    again = json.loads(summary.read_text())
    summary.write_text(json.dumps(again | {"seconds": {"total": 9.0}}), encoding="utf-8")
    (packed := tmp_path / "packed").mkdir()
    for folder, name in ((results, "one.tar.xz"), (other, "two.tar.xz")):
        pack(folder, packed / name)
    with opened(packed) as found:
        assert {f"{facts.stem} (one)", f"{facts.stem} (two)"} <= found.data.keys()
        assert found.data[f"{facts.stem} (two)"]["ceiling"] == 0.5
        assert [document.command for document in found.documents["sensitivity"]][1:] == ["another"]
        assert found.main is not None


def test_two_main_tables_are_refused(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, other := tmp_path / "other")
    table = json.loads((other / "main-table.json").read_text())
    (other / "main-table.json").write_text(json.dumps(table | {"command": "another"}), encoding="utf-8")
    (packed := tmp_path / "packed").mkdir()
    for folder, name in ((results, "one.tar.xz"), (other, "two.tar.xz")):
        pack(folder, packed / name)
    with pytest.raises(RunFolderError, match="one main table"), opened(packed):
        pass


def test_archives_of_several_machines_name_them_all(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, other := tmp_path / "other")
    (machine := json.loads((results / "environment.json").read_text()))["cores"] = 96
    (other / "environment.json").write_text(json.dumps(machine), encoding="utf-8")
    for folder, name in ((results, "a.tar.xz"), (other, "b.tar.xz")):
        pack(folder, tmp_path / name)
    unpack([tmp_path / "a.tar.xz", tmp_path / "b.tar.xz"], tmp_path / "both")
    found = json.loads((tmp_path / "both" / "environment.json").read_text())
    assert found["cores"].endswith("; 96")
    assert found["system"] == machine["system"]


@pytest.mark.parametrize(
    "name", ["../outside.json", "/outside.json", "runs/x/server.safetensors", "runs/x/code.py", "a/../../outside.json"]
)
def test_foreign_files_are_refused(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as file:
        info = tarfile.TarInfo(name)
        info.size = 2
        file.addfile(info, io.BytesIO(b"{}"))
    with pytest.raises(StorageError, match="which is none"):
        unpack([tmp_path / "bad.tar.xz"], tmp_path / "inner" / "folder")
    assert not list(tmp_path.rglob("*outside*"))


def test_a_link_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as file:
        info = tarfile.TarInfo("summary.json")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(info)
    with pytest.raises(StorageError, match="which is none"):
        unpack([tmp_path / "bad.tar.xz"], tmp_path / "folder")


def test_damage_and_nothing_to_pack_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "torn.tar.xz").write_bytes(b"\xfd7zXZ\x00 torn")
    assert main(["report", str(tmp_path)]) == FedrecgelError.exit_code
    assert "should be packed results" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--pack", str(tmp_path / "x.tar.xz")]) == RunFolderError.exit_code
    assert "should hold finished runs" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--pack", str(tmp_path / "x.zip")]) == RunFolderError.exit_code
    assert "packed into a file *.tar.xz" in capsys.readouterr().err
