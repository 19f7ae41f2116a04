"""A new method is one file and one line: this file, and the line that the fixture adds to the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.builders import random_split

import fedrecgel as fr
from fedrecgel.cli.main import main
from fedrecgel.draws import Draws
from fedrecgel.methods.base import Radius
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.messages import Inbox, Need, Server
from fedrecgel.search.space import default_space
from fedrecgel.testing import check_method


@dataclass(frozen=True, kw_only=True)
class BallMF(FedMF):
    """FedMF whose server keeps item vectors inside a ball."""

    paper: ClassVar[str] = "tests/extension/test_method.py"
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"tight": {"radius": 0.01}}
    search: ClassVar[Mapping[str, object]] = {"radius": {"low": 0.1, "high": 10.0, "log": True}}
    contract: ClassVar[Mapping[str, object]] = {"lr": 0.1, "radius": 3.0}

    radius: Radius = 1.0
    """Largest length of an item vector."""

    @property
    def server_needs(self) -> Need:
        """The sum: lengths of encrypted vectors are unknown."""
        return Need.SUM

    def server_update(self, server: Server, inbox: Inbox, round: int, draws: Draws) -> Server:
        """Take off the gradients, then shorten vectors that are too long."""
        after = super().server_update(server, inbox, round, draws)
        items = after.shared["items"]
        shorter = (self.radius / items.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
        return Server({**after.shared, "items": items * shorter}, after.kept)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fr.METHODS, "ball-mf", BallMF)  # the registry line


def test_the_contract_with_the_settings_of_the_class() -> None:
    settings: dict[str, Any] = dict(BallMF.contract)
    check_method(BallMF(**settings))


def test_python_trains_saves_and_opens_it(tmp_path: Path) -> None:
    result = fr.train("ball-mf", random_split(), rounds=3, variant="tight", dim=4)
    assert result.shared["items"].norm(dim=1).max() == pytest.approx(0.01, rel=1e-5)
    result.save(tmp_path / "run")
    assert fr.open(tmp_path / "run").recommend("u3", 5) == result.recommend("u3", 5)


def test_commands_know_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--method", "ball-mf", "--rounds", "1", "--set", "method.dim=4", "--quiet"]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    assert main(["methods", "ball-mf"]) == 0
    assert "Largest length of an item vector." in capsys.readouterr().out
    assert main(["methods"]) == 0
    assert "tests/extension/test_method.py" in capsys.readouterr().out


def test_its_space_is_searched_by_default() -> None:
    assert default_space("ball-mf") == {"method.fraction": [0.1, 0.5, 1.0], "method.radius": BallMF.search["radius"]}
