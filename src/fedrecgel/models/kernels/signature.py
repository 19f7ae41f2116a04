"""What a compiled function takes, read from its C++: a pointer is followed only where a tensor of its kind stands.

Pointers carry their shape as a comment: `const float* user /*[clients, G + M]*/`. Its words are the function's own
integers, the sizes it was compiled for, numbers, or new letters, which stand for one size within a call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {"float": torch.float32, "bf16": torch.bfloat16, "int64_t": torch.int64, "bool": torch.bool}
LARGEST_INT = 2**31 - 1
FUNCTION = re.compile(r'extern "C" void (\w+)\((.*?)\) \{', re.DOTALL)
PARAMETER = re.compile(r"(?:const )?(\w+)(\*?) (?:__restrict )?(\w+)(?: /\*\[(.*?)\]\*/)?(?:,|$)")


@dataclass(frozen=True)
class Pointer:
    """A tensor that a function reads or writes."""

    name: str
    dtype: torch.dtype
    shape: tuple[str, ...]

    def check(self, value: Tensor, sizes: dict[str, int]) -> None:
        """Refuse a tensor that the function would misread; `sizes` learns the letters it does not know.

        Raises:
            TypeError: it has another type, or is not in the machine's own memory.
            ValueError: its shape is another one, or its numbers do not lie one after another.
        """
        if value.dtype != self.dtype or value.device.type != "cpu":
            raise TypeError(f"'{self.name}' should be {self.dtype} on the CPU. Found {value.dtype} on {value.device}.")
        if not value.is_contiguous():
            raise ValueError(f"'{self.name}' should be contiguous. Found strides {value.stride()}.")
        # Where one size is given, any shape with so many numbers does: biases are [1, n] here.
        found = tuple(value.shape) if len(self.shape) > 1 else (value.numel(),)
        fits = (_size(words, size, sizes) == size for words, size in zip(self.shape, found, strict=True))
        if len(found) != len(self.shape) or not all(fits):
            raise ValueError(f"'{self.name}' should have the shape {list(self.shape)}. Found {found} with {sizes}.")


def _size(words: str, found: int, sizes: dict[str, int]) -> int:
    """The size that `G + M` or `3` stands for; a new letter stands for what is found."""
    terms = words.split(" + ")
    if len(terms) == 1 and not words.isdigit():
        return sizes.setdefault(words, found)
    return sum(int(term) if term.isdigit() else sizes[term] for term in terms)


@dataclass(frozen=True)
class Signature:
    """The parameters of a function, in their order: integers, tensors read, numbers, tensors written."""

    integers: tuple[str, ...]
    n_numbers: int
    pointers: tuple[Pointer, ...]

    def check(
        self, integers: Sequence[int], numbers: Sequence[float], tensors: Sequence[Tensor], macros: Mapping[str, int]
    ) -> None:
        """Refuse arguments that do not fit.

        Raises:
            TypeError: there are too many or too few, or a tensor is of another type.
            ValueError: a number is too large, or a tensor has another shape.
        """
        found = (len(integers), len(numbers), len(tensors))
        wanted = (len(self.integers), self.n_numbers, len(self.pointers))
        if found != wanted:
            raise TypeError(f"There should be {wanted} integers, numbers and tensors. Found {found}.")
        if not all(0 <= value <= LARGEST_INT for value in integers):
            raise ValueError(f"Sizes should be at most {LARGEST_INT:,}. Found {tuple(integers)}.")
        sizes = {**macros, **dict(zip(self.integers, integers, strict=True))}
        for pointer, value in zip(self.pointers, tensors, strict=True):
            pointer.check(value, sizes)


def signatures_of(source: str) -> dict[str, Signature]:
    """Every function that C++ source exports."""
    return {name: _signature(" ".join(words.split())) for name, words in FUNCTION.findall(source)}


def _signature(words: str) -> Signature:
    found: list[tuple[str, str, str, str]] = PARAMETER.findall(words)
    return Signature(
        tuple(name for kind, star, name, _ in found if kind == "int" and not star),
        sum(kind == "float" and not star for kind, star, _, _ in found),
        tuple(Pointer(name, DTYPES[kind], tuple(shape.split(", "))) for kind, star, name, shape in found if star),
    )
