from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from tests.export.device_runs import history_of, small_run

from fedrecgel.errors import ConfigError
from fedrecgel.export import bundle as module
from fedrecgel.export.bundle import PAGE, write_bundle, write_web
from fedrecgel.export.rounding import as_rounded
from fedrecgel.export.runtime import Device


def test_the_manifest_describes_every_file(tmp_path: Path) -> None:
    written = write_bundle(small_run("spectra"), tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    there = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert there == written.files.keys() == {*manifest["files"], "manifest.json"}
    for name, about in manifest["files"].items():
        content = (tmp_path / "bundle" / name).read_bytes()
        assert about == {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    assert manifest["leaves_device"]["recommending"] == []
    assert "spectrum" in manifest["leaves_device"]["training"]
    assert written.n_bytes == sum(path.stat().st_size for path in (tmp_path / "bundle").iterdir())


def test_a_web_folder_has_the_page_and_no_python(tmp_path: Path) -> None:
    there = set(write_web(small_run("spectra"), tmp_path / "web").files)
    assert set(PAGE) < there
    assert not [name for name in there if name.endswith(".py")]


@pytest.mark.parametrize("name", ["spectra", "ease", "itemknn", "fedmf"])
def test_eight_bits_are_those_of_rounded_tables(name: str, tmp_path: Path) -> None:
    run = small_run(name)
    whole = write_bundle(run, tmp_path / "whole").files
    small = write_bundle(run, tmp_path / "small", precision="int8").files
    device = Device(tmp_path / "small")
    for table in device.bundle.manifest["tables"]:
        exact = Device(tmp_path / "whole").bundle.scorer.tables[table]
        rounded = f"{table}.scales.bin" in small
        np.testing.assert_array_equal(device.bundle.scorer.tables[table], as_rounded(exact) if rounded else exact)
        assert small[f"{table}.bin"] == whole[f"{table}.bin"] // (4 if rounded else 1)
    assert [name for name in small if name.endswith(".scales.bin")]
    device.add(history_of(run, 3))
    assert len(device.recommend(5)) == 5


def test_titles_are_shown_whatever_they_contain(tmp_path: Path) -> None:
    run = small_run("spectra")
    titles = [f"<script>alert({number})</script> Ünïcode 猫" for number in range(len(run.item_ids))]
    write_bundle(run, tmp_path / "bundle", titles)
    assert "猫" in (tmp_path / "bundle" / "items.json").read_text(encoding="utf-8")
    me = Device(tmp_path / "bundle")
    me.add([104])
    pick = me.recommend(1)[0]
    assert pick.title == titles[run.item_ids.index(pick.item)]  # type: ignore[arg-type]


def test_an_earlier_export_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    write_bundle(small_run("spectra"), tmp_path / "bundle")
    write_bundle(small_run("ease"), tmp_path / "bundle")
    assert Device(tmp_path / "bundle").bundle.manifest["method"] == "ease"
    assert not (tmp_path / "bundle" / "vectors.bin").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("important")
    with pytest.raises(ConfigError, match=r"new folder or an earlier export. '.*other' holds something else"):
        write_bundle(small_run("ease"), tmp_path / "other")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"-o should be a folder. '.*file' is a file"):
        write_bundle(small_run("ease"), tmp_path / "file")


def test_a_page_too_large_for_a_browser_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_PAGE", 30_000)
    with pytest.raises(ConfigError, match=r"Use --precision int8, or a method without a weight for each pair"):
        write_web(small_run("ease"), tmp_path / "web")
    write_web(small_run("ease"), tmp_path / "web", precision="int8")
