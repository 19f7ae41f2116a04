"""What a user reads after each kind of wrong input around a finished run: one or two sentences, exit code 2 or 1."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrecgel.cli.main import main
from fedrecgel.export.runtime import Device
from fedrecgel.export.scorers import DeviceError

Capture = pytest.CaptureFixture[str]
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and a bundle of it."""
    folder = tmp_path_factory.mktemp("bad")
    rows = [f"u{user},i{(7 * user + 3 * k) % 120},{k}" for user in range(20) for k in range(8)]
    (folder / "clicks.csv").write_text("\n".join(["user,item,timestamp", *rows, *rows[:5]]) + "\n")
    words = ["--dataset", str(folder / "clicks.csv"), "--method", "itemknn", "--out", str(folder / "run"), "--quiet"]
    assert main(["train", *words]) == 0
    assert main(["export", str(folder / "run"), "-o", str(folder / "bundle")]) == 0
    return folder


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    """Copies to damage."""
    for name in ("run", "bundle"):
        shutil.copytree(place / name, tmp_path / name)
    shutil.copy(place / "clicks.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--user", "u21"], "Unknown user 'u21'"),
        (["--history", ""], "The history should name items of the run. Found none. Give at least one of its"),
        (["--history", ","], "The history should name items of the run. Found none."),
        (["--history", "x1,x2"], "The history should name items of the run. It knows none of items x1, x2."),
        (
            ["--user", "u1", "--titles", "other.csv"],
            "should have titles for items of the run. Found 1 titles for other",
        ),
        (["--user", "u1", "--titles", "cut.parquet"], "cut.parquet cannot be read"),
        (["--user", "u1", "--titles", "binary.csv"], "binary.csv cannot be read"),
        (["--user", "u1", "--titles", "bare.csv"], "bare.csv should have a column 'title'. Found: item, words."),
        (["--user", "u1", "--titles", "none.csv"], "There is no file none.csv"),
        (["--user", "u1", "--among", "other.csv"], "The list to choose among should name items of the run."),
    ],
)
def test_wrong_words(here: Path, words: list[str], message: str, capsys: Capture) -> None:
    (here / "other.csv").write_text("item,title\nz9,Elsewhere\n")
    (here / "cut.parquet").write_bytes(b"PAR1" + bytes(20))
    (here / "binary.csv").write_bytes(b"item,title\n\xff\xfe\x00,x\n")
    (here / "bare.csv").write_text("item,words\ni1,One\n")
    before = {path: path.read_bytes() for path in (here / "run").rglob("*") if path.is_file()}
    assert main(["recommend", "run", *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert {path: path.read_bytes() for path in before} == before


def test_unknown_items_of_a_history_are_told_and_left_out(here: Path, capsys: Capture) -> None:
    assert main(["recommend", "run", "--history", "i3,x1,i6,i3", "-k", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "The run does not know item x1: left out of the history.\n"
    assert len(printed.out.splitlines()) == 3


def test_duplicate_rows_are_counted_by_the_audit(here: Path, capsys: Capture) -> None:
    assert main(["data", "audit", "clicks.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["duplicate_pairs"] == 5


def cut(name: str) -> Change:
    """A file that ends in the middle."""
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: (folder / name).stat().st_size // 2]
    )


def later(folder: Path) -> None:
    """A folder of the next format."""
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "format": 3}))


def bomb(folder: Path) -> None:
    """A header that says it is huge."""
    (folder / "server.safetensors").write_bytes(struct.pack("<Q", 1 << 40) + b"{}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut("server.safetensors"), "should be a complete safetensors file. It cannot be read"),
        (cut("clients.safetensors"), "should be a complete safetensors file. It cannot be read"),
        (cut("summary.json"), "summary.json' cannot be read"),
        (cut("config.toml"), "config.toml' "),
        (bomb, "its header should have at most 1,048,576 bytes, and has 1,099,511,627,776"),
        (later, "This run folder has format 3, of a later version of fedrecgel; this one reads up to 2"),
        (lambda folder: (folder / "summary.json").write_text("[" * 100_000), "summary.json' cannot be read"),
        (lambda folder: shutil.copy(folder / "server.safetensors", folder / "clients.safetensors"), "`user_ids`"),
    ],
)
@pytest.mark.parametrize("command", [["recommend", "run", "--user", "u1"], ["forget", "run", "--user", "u1"]])
def test_damaged_folders(here: Path, command: list[str], change: Change, message: str, capsys: Capture) -> None:
    change(here / "run")
    assert main(command) in (1, 2)
    printed = capsys.readouterr()
    assert message in printed.err
    assert "unexpected" not in printed.err
    assert main(["train", "--from", "run", "--dataset", "clicks.csv", "--out", "on"]) in (1, 2)
    assert "unexpected" not in capsys.readouterr().err
    assert not (here / "on").exists()


def version(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": 2}))


def outside(folder: Path) -> None:
    """A table that names a file elsewhere."""
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"similarity.bin"', '"../../secret.bin"'))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut("similarity.bin"), "is damaged: it should have .* bytes and another checksum"),
        (cut("items.json"), "is damaged"),
        (cut("manifest.json"), r"manifest.json' cannot be read: .*\. Export the run again"),
        (version, "is a bundle of version 2, and this runtime reads version 1. Use the fedrecgel_device.py inside"),
        (outside, "A bundle should name files of its own folder. Found '../../secret.bin'"),
        (lambda folder: (folder / "manifest.json").unlink(), "It has no manifest.json that can be read"),
    ],
)
def test_damaged_bundles(here: Path, change: Change, message: str) -> None:
    change(here / "bundle")
    with pytest.raises(DeviceError, match=message):
        Device(here / "bundle")
