"""A kernel follows a pointer only to a tensor of the type, shape and layout that its C++ declares."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from typing import Any

import pytest
import torch
from torch import Tensor

from fedrecgel.models.kernels.compiler import Recipe, library
from fedrecgel.models.kernels.signature import Signature, signatures_of

SOURCE = """
static void inner(const float* anything) {}
// Adds.
extern "C" void add(int n, int flag, const float* __restrict x /*[n, G + M]*/, const int64_t* at /*[k]*/,
                    const bool* mask /*[k, 2]*/, float lr, float rate, float* sum /*[n]*/) {
  int local = 3;
}
"""
MACROS = {"G": 2, "M": 3}


def arguments(**changed: Tensor) -> list[Tensor]:
    whole = {
        "x": torch.zeros(4, 5),
        "at": torch.zeros(7, dtype=torch.int64),
        "mask": torch.zeros(7, 2, dtype=torch.bool),
        "sum": torch.zeros(1, 4),
    }
    return list({**whole, **changed}.values())


def signature() -> Signature:
    return signatures_of(SOURCE)["add"]


def test_a_signature_is_read_from_the_source() -> None:
    assert set(signatures_of(SOURCE)) == {"add"}
    found = signature()
    assert (found.integers, found.n_numbers) == (("n", "flag"), 2)
    assert [(pointer.name, pointer.dtype) for pointer in found.pointers] == [
        ("x", torch.float32),
        ("at", torch.int64),
        ("mask", torch.bool),
        ("sum", torch.float32),
    ]
    found.check((4, 0), (0.1, 0.2), arguments(), MACROS)


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"x": torch.zeros(4, 5, dtype=torch.float64)}, TypeError, "'x' should be torch.float32"),
        ({"at": torch.zeros(7, dtype=torch.int32)}, TypeError, "'at' should be torch.int64"),
        ({"mask": torch.zeros(7, 2)}, TypeError, "'mask' should be torch.bool"),
        ({"x": torch.zeros(4, 5, device="meta")}, TypeError, "on the CPU. Found torch.float32 on meta"),
        ({"x": torch.zeros(5, 4).T}, ValueError, "'x' should be contiguous"),
        ({"x": torch.zeros(4, 6)}, ValueError, r"'x' should have the shape \['n', 'G \+ M'\]. Found \(4, 6\)"),
        ({"x": torch.zeros(5, 4)}, ValueError, "'x' should have the shape"),
        ({"x": torch.zeros(20)}, ValueError, "'x' should have the shape"),
        ({"at": torch.zeros(6, dtype=torch.int64)}, ValueError, "'mask' should have the shape"),
        ({"sum": torch.zeros(3)}, ValueError, "'sum' should have the shape"),
    ],
)
def test_a_tensor_that_would_be_misread_is_refused(
    changed: dict[str, Tensor], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        signature().check((4, 0), (0.1, 0.2), arguments(**changed), MACROS)


def test_numbers_and_their_count() -> None:
    with pytest.raises(ValueError, match="at most 2,147,483,647"):
        signature().check((2**31, 0), (0.1, 0.2), arguments(), MACROS)
    for sizes, numbers, tensors in [((4,), (0.1, 0.2), arguments()), ((4, 0), (), arguments()), ((4, 0), (1, 2), [])]:
        with pytest.raises(TypeError, match="integers, numbers and tensors"):
            signature().check(sizes, numbers, tensors, MACROS)


@pytest.mark.parametrize("name", ["neumf.cpp", "contrast.cpp", "factors.cpp"])
def test_every_pointer_of_ours_declares_its_shape(name: str) -> None:
    source = files("fedrecgel.models.kernels").joinpath(name).read_text(encoding="utf-8")
    macros = {letter for letter in ("G", "M", "H1", "H2", "H3", "D") if re.search(rf"\b{letter}\b", source)}
    found = signatures_of(source)
    assert len(found) == source.count('extern "C"')
    for function in found.values():
        assert function.pointers
        for pointer in function.pointers:
            letters = {term for words in pointer.shape for term in words.split(" + ") if not term.isdigit()}
            assert "" not in letters, pointer
            assert letters <= macros | {*function.integers, "items", "n"}, pointer


@pytest.mark.skipif(library(Recipe.of("factors.cpp", D=16)) is None, reason="needs a C++ compiler at run time")
def test_a_library_refuses_before_it_calls() -> None:
    compiled = library(Recipe.of("factors.cpp", D=16))
    assert compiled is not None
    user, rows, slots = torch.zeros(2, 16), torch.zeros(2, 3, 16), torch.zeros(2, 4, dtype=torch.int64)
    labels, counts, loss = torch.zeros(2, 4), torch.ones(2, 4, dtype=torch.bool), torch.empty(2)
    whole: dict[str, Any] = {
        "sizes": (2, 4, 3, 0, 0),
        "read": (user, rows.mT.contiguous().mT, slots, labels, counts),  # what is read may lie anyhow
        "numbers": (0.1, 0.0, 0.0),
        "written": (torch.empty_like(user), torch.empty(2, 3, 16), loss),
    }
    compiled.call("walk", **whole)
    assert loss.tolist() == pytest.approx([4 * math.log(2)] * 2)
    with pytest.raises(ValueError, match="'gradient' should be contiguous"):
        compiled.call("walk", **{**whole, "written": (user, torch.empty(2, 16, 3).mT, loss)})
    with pytest.raises(TypeError, match=r"'loss' should be torch\.float32"):
        compiled.call("walk", **{**whole, "written": (user, rows, loss.double())})
