"""A model of one's own: one file, one line in the registry, and FedNCF and FedRecGEL train it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from jaxtyping import Float
from tests.builders import random_split
from torch import Tensor

import fedrecgel as fr
from fedrecgel.cli.main import main
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.models import MODELS
from fedrecgel.models.base import Model
from fedrecgel.tensors import Tensors
from fedrecgel.testing import check_method


@dataclass(frozen=True, kw_only=True)
class Distance(Model):
    """Score = c - ‖u - v‖²: metric learning."""

    tables: ClassVar[tuple[str, ...]] = ("place",)
    network: ClassVar[tuple[str, ...]] = ("offset",)

    @property
    def user_dim(self) -> int:
        return self.gmf_dim

    def init_shared(self, n_items: int, generator: np.random.Generator) -> dict[str, npt.NDArray[np.float64]]:
        return {"place": generator.normal(0, 0.1, (n_items, self.gmf_dim)), "offset": np.zeros((1, 1))}

    def logits(self, own: Tensors) -> Float[Tensor, "C K"]:
        return own["offset"][:, :, 0] - (own["place"] - own["user"][:, None]).square().sum(2)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "distance", Distance)  # the registry line


def test_it_passes_the_contract() -> None:
    check_method(FedRecGEL(model="distance", gmf_dim=8, fraction=1.0, server_lr=0.05, user_lr=0.05))


def test_it_trains_from_python() -> None:
    options: dict[str, Any] = {"rounds": 3, "model": "distance", "gmf_dim": 4, "fraction": 1.0, "server_lr": 0.1}
    result = fr.train("fedrecgel", random_split(), **options)
    assert set(result.shared) == {"place", "offset"}
    assert result.summary["privacy"]["leaves_device"] == ["offset", "place"]
    assert torch.isfinite(result.shared["place"]).all()
    losses = [line["loss"] for line in result.history]
    assert losses[-1] < losses[0]


def test_it_trains_from_the_command_line(tmp_path: Path) -> None:
    words = ["train", "--rounds", "2", "--set", "method.model=distance", "--out", str(tmp_path / "run"), "--quiet"]
    assert main(words) == 0
    assert set(fr.open(tmp_path / "run").shared) == {"place", "offset"}
    assert main(["recommend", str(tmp_path / "run"), "--user", "1"]) == 0
