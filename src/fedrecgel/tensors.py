"""Named tensors, and matrices kept as their factors.

Letters used in every signature: `C` clients, `L` labelled examples of a client, `K` distinct items a client
touches, `M` candidates, `n` items, `d` a dimension. Axis 0 of a client-side tensor is always `C`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from mmap import mmap
from tempfile import TemporaryFile
from typing import Any, NamedTuple
from weakref import finalize, ref

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.errors import PrivacyError

Tensors = dict[str, Tensor]
"""Named tensors: the state_dict idiom, and the unit that travels."""

Ids = Int[Tensor, " C"]
"""Numbers of clients."""

MADV_DONTNEED = 4
"""As Linux numbers it; systems without `madvise` do without."""
ON_DISK_FROM = 2 << 30
"""Bytes from which a tensor of all clients lives in a file that the system writes out when memory is short."""


@dataclass(frozen=True)
class Factors:
    """One matrix per client, kept as `left[c].T @ right[c]`.

    The gradient of a weight matrix is such a product over a client's examples. A server that only needs the
    sum over clients gets it from one flat product, without ever building a matrix per client.
    """

    left: Float[Tensor, "C K a"]
    right: Float[Tensor, "C K b"]

    def each(self) -> Float[Tensor, "C a b"]:
        """The matrix of every client."""
        return self.left.mT @ self.right

    def total(self) -> Float[Tensor, "a b"]:
        """The sum over clients."""
        return self.left.flatten(0, 1).T @ self.right.flatten(0, 1)

    def scale(self, by: Float[Tensor, " C"]) -> Factors:
        """Each client's matrix times its own number."""
        return Factors(self.left * by[:, None, None], self.right)


@dataclass(frozen=True)
class Summed:
    """A sum over clients that was taken early; what each of them sent is gone."""

    value: Tensor


class Sealed(Tensor):
    """A tensor that its holder cannot read: it can be added, subtracted, scaled and summed over clients, nothing else.

    What a server holds behind an encrypting channel. It has a shape and a type, so a formula written for tensors runs
    on it unchanged; a formula that would have to see values is refused.
    """

    # Operations arrive in __torch_dispatch__ only, as torch's own wrappers have it.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def n_bytes(self) -> int:
        """What it weighs on the wire."""
        raise NotImplementedError

    def plus(self, other: Any) -> Sealed:
        """The sum of two sealed tensors."""
        raise NotImplementedError

    def times(self, factor: float) -> Sealed:
        """A multiple; the factor is public."""
        raise NotImplementedError

    def over_clients(self) -> Sealed:
        """The sum over axis 0."""
        raise NotImplementedError

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}(shape={tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Sealed:
        """What `+`, `-`, `*` and `/` become."""
        aten = torch.ops.aten
        match args:
            case (Sealed() as left, Sealed() as right) if func is aten.add.Tensor and not kwargs:
                return left.plus(right)
            case (Sealed() as left, Sealed() as right) if func is aten.sub.Tensor and not kwargs:
                return left.plus(right.times(-1.0))
            case (Sealed() as value, int() | float() as factor) if func is aten.mul.Tensor:
                return value.times(float(factor))
            case (Sealed() as value, int() | float() as divisor) if func is aten.div.Tensor:
                return value.times(1 / divisor)
            case (Sealed() as value, [0]) if func is aten.sum.dim_IntList and not kwargs:
                return value.over_clients()
        raise PrivacyError(
            f"A server may only add, subtract and scale what is sealed. Found '{func}': "
            f"the method should declare a larger server_needs, or use channel plain."
        )


def client_norm(values: Mapping[str, Tensor]) -> Float[Tensor, " C"]:
    """Euclidean norm of each client's slice of all tensors together."""
    norms = [torch.linalg.vector_norm(value.flatten(1), dim=1) for value in values.values()]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return norm


def move(values: Mapping[str, Tensor], device: torch.device) -> Tensors:
    """The same tensors on a device."""
    return {name: value.to(device) for name, value in values.items()}


def copy(values: Mapping[str, Tensor]) -> Tensors:
    """The same values in memory of their own."""
    return {name: value.clone() for name, value in values.items()}


def n_bytes(values: Mapping[str, Tensor]) -> int:
    """What these tensors weigh on the wire."""
    return sum(
        value.n_bytes if isinstance(value, Sealed) else value.numel() * value.element_size()
        for value in values.values()
    )


def is_whole(items: Int[Tensor, "C M"], n_items: int) -> bool:
    """Whether these are all items in order, the same for everybody: then a product with a whole table scores them."""
    if items.shape[1] != n_items or (len(items) > 1 and items.stride(0) != 0) or not len(items):
        return False
    return torch.equal(items[0], torch.arange(n_items, device=items.device))


def pick(scores: Float[Tensor, "C n"], items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
    """Of the scores of all items those of some; where these are all, the same tensor."""
    return scores if is_whole(items, scores.shape[1]) else scores.gather(1, items)


def grow(table: Tensor, n_rows: int, most: int) -> Tensor:
    """A table with more rows, whose values are undefined; room for `most` rows is taken once, page by page.

    The rows it had stay where they are if this function made the table, so it can grow row by row. For the first rows
    of a larger tensor the rows behind them are room too.
    """
    shape = (n_rows, *table.shape[1:])
    end = (table.storage_offset() + prod(shape)) * table.element_size()
    if table.is_contiguous() and table.untyped_storage().nbytes() >= end:
        return table.as_strided(shape, table.stride())
    room = lazy_zeros((most, *table.shape[1:]), table.dtype, table.device)
    room[: len(table)] = table
    return room[:n_rows]


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros whose memory is taken page by page where it is written: most of a million clients may never be drawn."""
    size = prod(shape) * dtype.itemsize
    if device.type != "cpu" or size == 0:
        return torch.zeros(shape, dtype=dtype, device=device)
    if size < ON_DISK_FROM:
        return torch.frombuffer(mmap(-1, size), dtype=dtype).view(shape)
    with TemporaryFile() as file:  # a file without a name, in the folder of TMPDIR: it is gone with the tensor
        file.truncate(size)
        pages, handle = mmap(file.fileno(), size), os.dup(file.fileno())
    found = torch.frombuffer(pages, dtype=dtype).view(shape)
    _files[found.data_ptr()] = _File(ref(pages), handle)
    finalize(pages, _close, found.data_ptr())
    return found


class _File(NamedTuple):
    """Where a large tensor lives."""

    pages: ref[mmap]
    handle: int


_files: dict[int, _File] = {}
"""By the address of the tensor."""


def _close(address: int) -> None:
    os.close(_files.pop(address).handle)


def put_rows(table: Tensor, at: Int[Tensor, " i"], values: Tensor, columns: slice = slice(None)) -> None:
    """`table[at, columns] = values`; where the table lives in a file, by writing to that.

    Writing to pages of a file takes a fault for each of them, several times the cost of the copy.
    """
    file = _files.get(table.untyped_storage().data_ptr()) if table.device.type == "cpu" else None
    if file is None or not table.is_contiguous() or table.dim() < 2:
        table[(at, columns) if table.dim() > 1 else at] = values.to(table.dtype)
        return
    row, first = table.stride(0), columns.indices(table.shape[1])[0] * table.stride(1)
    values = values.to(table.dtype).contiguous()
    for place, value in zip(at.tolist(), values, strict=True):
        offset = (table.storage_offset() + place * row + first) * table.element_size()
        rest = memoryview(value.view(torch.uint8).numpy()).cast("B")
        while rest:
            written = os.pwrite(file.handle, rest, offset)
            rest, offset = rest[written:], offset + written


def release(table: Tensor) -> None:
    """Give back the memory of a tensor that lives in a file: its pages are read again when they are needed."""
    file = _files.get(table.untyped_storage().data_ptr()) if table.device.type == "cpu" else None
    pages = file.pages() if file else None
    if pages is not None and hasattr(pages, "madvise"):
        pages.madvise(MADV_DONTNEED)
