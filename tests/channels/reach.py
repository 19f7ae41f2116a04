"""Everything that can be reached from an object: what its holder could get hold of."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType


def reachable(start: object) -> list[object]:
    """Through attributes, items and what functions closed over."""
    found: list[object] = []
    waiting, seen = [start], set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, type | ModuleType):
            continue
        seen.add(id(value))
        found.append(value)
        if isinstance(value, Mapping):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        waiting += getattr(value, "__dict__", {}).values()
        waiting += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        waiting += [getattr(value, "__self__", None)]
    return found
