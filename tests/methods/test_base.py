from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedrecgel.methods.messages import Download
from fedrecgel.tensors import Tensors

DOWN = Download({"a": torch.tensor([1.0])}, {"own": torch.arange(3.0)})


@dataclass(frozen=True)
class Scale:
    by: float

    def apply(self, shared: Tensors) -> Tensors:
        return {"a": self.by * shared["a"]}


def test_what_is_derived_is_computed_once_for_all_parts_of_a_download() -> None:
    calls = []

    def compute(shared: Tensors) -> Tensors:
        calls.append(shared)
        return {"twice": 2 * shared["a"]}

    part = DOWN.of(torch.tensor([1]))
    assert part.derive(compute) is DOWN.derive(compute) is DOWN.of(slice(0, 2)).derive(compute)
    assert len(calls) == 1
    assert part.each["own"].tolist() == [1.0]


def test_equal_models_share_it_and_others_do_not() -> None:
    assert DOWN.derive(Scale(2.0).apply) is DOWN.derive(Scale(2.0).apply)
    assert DOWN.derive(Scale(3.0).apply)["a"].item() == 3.0
    assert [DOWN.derive(lambda shared, by=by: by * shared["a"]).item() for by in (2, 3)] == [2.0, 3.0]  # type: ignore[misc]


def test_another_shared_part_starts_anew() -> None:
    assert DOWN.derive(Scale(2.0).apply)["a"].item() == 2.0
    assert replace(DOWN, shared={"a": torch.tensor([5.0])}).derive(Scale(2.0).apply)["a"].item() == 10.0


def test_one_may_be_derived_from_another() -> None:
    inner = Scale(2.0).apply
    outer = DOWN.derive(lambda shared: DOWN.derive(inner)["a"] + shared["a"])
    assert outer.item() == 3.0
