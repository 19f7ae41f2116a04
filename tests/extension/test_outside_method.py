"""A method outside the package is one file, named by its path or announced by an installed package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.builders import random_split
from tests.engine.flower.inprocess import config_of, served

import fedrecgel as fr
from fedrecgel.cli.main import main
from fedrecgel.errors import ConfigError, RunFolderError
from fedrecgel.methods import METHODS, find_method
from fedrecgel.runs.config import read_config
from fedrecgel.runs.train import train_config

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "new_method.py"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a method in my.py and data in shop.csv."""
    shutil.copy(EXAMPLE, tmp_path / "my.py")
    rows = [f"u{user},{(10 * user + k) % 160},{k}" for user in range(20) for k in range(10)]
    (tmp_path / "shop.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*words: str, method: str = "my.py:TinyMF") -> int:
    return main(["train", "--dataset", "shop.csv", "--method", method, "--rounds", "2", "--quiet", *words])


def elsewhere(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which has imported nothing yet."""
    return subprocess.run([sys.executable, "-m", "fedrecgel", *words], capture_output=True, text=True, check=False)


def test_train_remembers_the_file_and_other_processes_find_it(here: Path, capsys: Capture) -> None:
    assert train("--set", "method.lr=1.5") == 0
    run = here / "runs" / "shop-TinyMF-s0"
    config = read_config(run / "config.toml")
    assert config.method.name == f"{here.resolve() / 'my.py'}:TinyMF"
    assert json.loads((run / "summary.json").read_text())["method"] == "TinyMF"
    assert main(["recommend", str(run), "--user", "u3", "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)
    (here / "deeper").mkdir()
    os.chdir(here / "deeper")  # the fixture leads back
    theirs = elsewhere("recommend", str(run), "--user", "u3", "--json")
    assert json.loads(theirs.stdout) == ours
    data = f"data.name={here / 'shop.csv'}"
    assert main(["train", str(run / "config.toml"), "--set", data, "--out", "again", "--quiet"]) == 0
    assert fr.open("again").history[-1]["loss"] == fr.open(run).history[-1]["loss"]


def test_a_run_goes_on_from_another_spelling_of_the_path(here: Path) -> None:
    assert train("--out", "run") == 0
    words = ["--dataset", "shop.csv", "--method", f"{here}/../{here.name}/my.py:TinyMF", "--out", "run", "--quiet"]
    assert main(["train", *words, "--rounds", "3", "--resume"]) == 0
    assert len(fr.open("run").history) == 3
    kept = ["--method", "my.py:TinyMF", "--out", "kept", "--quiet"]  # the file's hyper-parameters belong to this method
    (here / "mine.toml").write_text(
        f"[data]\nname = 'shop.csv'\n[run]\nrounds = 1\n[method]\nname = '{here / 'my.py'}:TinyMF'\nlr = 1.25\n"
    )
    assert main(["train", "mine.toml", *kept]) == 0
    assert fr.open("kept").config.method.options["lr"] == 1.25


def test_a_file_that_is_gone_is_named_with_the_way_out(here: Path) -> None:
    assert train("--out", "run") == 0
    (here / "my.py").rename(here / "moved.py")
    gone = elsewhere("recommend", "run", "--user", "u3")
    assert gone.returncode == 2
    assert gone.stderr == (
        f"fedrecgel: Method 'TinyMF' should be in the file {here.resolve() / 'my.py'}, which does not exist. "
        f"Correct method.name (in --method, or in config.toml of a saved run), or put it back.\n"
    )
    config = here / "run" / "config.toml"
    config.write_text(config.read_text().replace("my.py:", "moved.py:"))
    assert elsewhere("recommend", "run", "--user", "u3").returncode == 0
    config.write_text(config.read_text().replace(":TinyMF", ":OtherMF"))
    with pytest.raises(RunFolderError, match=r"config\.toml' was changed after the run"):  # another class
        fr.open("run")


def test_tune_looks_where_the_class_says(here: Path) -> None:
    (here / "mine.toml").write_text(
        "[data]\nname = 'shop.csv'\n[run]\nrounds = 2\n[evaluation]\nevery = 1\n[method]\nname = 'my.py:TinyMF'\n"
    )
    assert main(["tune", "mine.toml", "--trials", "2"]) == 0
    folder = here / "runs" / "tune-shop-TinyMF-s0"
    trials = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert [trial["state"] for trial in trials] == ["finished", "finished"]
    assert trials[1]["parameters"].keys() == {"method.fraction", "method.lr"}
    assert main(["train", str(folder / "best.toml"), "--quiet"]) == 0


def test_methods_explains_it(here: Path, capsys: Capture) -> None:
    assert main(["methods", "my.py:TinyMF"]) == 0
    text = capsys.readouterr().out
    assert "A new method in one file" in text
    assert "    lr = 2.0" in text
    assert main(["methods", "my.py:TinyMF", "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert (facts["name"], facts["hyperparameters"]) == ("my.py:TinyMF", {"fraction": 0.5, "lr": 2.0})


def test_nodes_find_it_by_its_path(here: Path) -> None:
    config, split = config_of("my.py:TinyMF"), random_split(n_users=14, n_items=130)
    local = train_config(config_of("my.py:TinyMF", run={"engine": "local"}), split)
    remote = served(config, split, here / "run")
    assert remote.metrics == local.metrics
    assert remote.recommend("u3", 4)[0].item == local.recommend("u3", 4)[0].item


def test_an_object_is_its_class_and_its_fields(here: Path) -> None:
    split = random_split()
    tiny: Any = find_method("my.py:TinyMF")
    result = fr.train(tiny(lr=1.5), split, rounds=2)
    assert result.summary["metrics"] == fr.train("my.py:TinyMF", split, rounds=2, lr=1.5).summary["metrics"]
    assert result.config.method.build() == tiny(lr=1.5)
    result.save("run")
    assert elsewhere("recommend", "run", "--user", "u3").returncode == 0
    with pytest.raises(ConfigError, match=r"has its hyper-parameters already\. Found lr, variant beside it"):
        fr.train(tiny(), split, lr=1.0, variant="x")
    ours = fr.train(METHODS["popularity"](), split)
    assert (ours.config.method.name, ours.config.run.rounds) == ("popularity", 1)


def test_a_class_of_a_notebook_trains_and_saving_says_where_it_opens(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    exec(compile((here / "my.py").read_text(), "<cell 1>", "exec"), vars(notebook))
    result = fr.train(notebook.TinyMF(), random_split(), rounds=1)
    with pytest.warns(UserWarning, match=r"in this Python session only, because the class 'TinyMF' is in no file"):
        result.save("run")
    assert fr.open("run").recommend("u3") == result.recommend("u3")
    gone = elsewhere("recommend", "run", "--user", "u3")
    assert gone.returncode == 2
    assert "was defined in a Python session" in gone.stderr
    config = here / "run" / "config.toml"
    config.write_text(config.read_text().replace("session:", f"{here / 'my.py'}:"))
    assert elsewhere("recommend", "run", "--user", "u3").returncode == 0, "the way out works"


@pytest.fixture
def installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a package with these entry points; its module is a copy of the example."""

    def install(lines: str) -> None:
        site = here / "site"
        (site / "shop_methods-1.0.dist-info").mkdir(parents=True)
        (site / "shop_methods-1.0.dist-info" / "METADATA").write_text("Name: shop-methods\nVersion: 1.0\n")
        (site / "shop_methods-1.0.dist-info" / "entry_points.txt").write_text(f"[fedrecgel.methods]\n{lines}\n")
        shutil.copy(EXAMPLE, site / "shop_methods.py")
        monkeypatch.delitem(sys.modules, "shop_methods", raising=False)
        monkeypatch.syspath_prepend(str(site))

    return install


def test_an_entry_point_is_named_like_ours(here: Path, installed: Callable[[str], None], capsys: Capture) -> None:
    installed("shop-mf = shop_methods:TinyMF")
    assert train(method="shop-mf") == 0
    assert fr.open("runs/shop-shop-mf-s0").config.method.name == "shop-mf"
    assert main(["methods"]) == 0
    assert "shop-mf         federated   examples/new_method.py" in capsys.readouterr().out
    kind: Any = find_method("shop-mf")
    assert fr.train(kind(), random_split(), rounds=1).config.method.name == "shop-mf"
    assert train(method="shop-fm") == 2
    assert "Did you mean 'shop-mf'?" in capsys.readouterr().err


def test_a_broken_entry_point_harms_nobody_who_does_not_ask(
    here: Path, installed: Callable[[str], None], capsys: Capture
) -> None:
    installed("broken = shop_methods:Absent\nworse = not_there:X\nnumber = shop_methods:__name__\nfedmf = not_there:X")
    assert train(method="fedmf") == 0, "a built-in name wins"
    assert main(["methods", "--json"]) == 0
    printed = capsys.readouterr()
    assert [entry["name"] for entry in json.loads(printed.out)] == list(METHODS)
    assert printed.err.count("is left out") == 3
    for name, says in (
        ("broken", "'broken' of shop-methods cannot be imported: shop_methods:Absent raises AttributeError"),
        ("worse", "'worse' of shop-methods cannot be imported: not_there:X raises ModuleNotFoundError"),
        ("number", "'number' should be a class derived from fedrecgel.Method. Found a str."),
    ):
        assert train(method=name) == 2
        assert says in capsys.readouterr().err
