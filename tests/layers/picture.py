"""Reads the drawings of CONTRIBUTING.md: rooms, the way from a row to a number, one round."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.layers.pages import ROOT, blocks

ROOM = re.compile(r"│ ([┌├└ ]) (\w+) {2,}(\S.*?) *│")
STEP = re.compile(r"(?: ▼|  ) (\S+) +(?:(\S+\.py): ([\w.]+) +)?(\S.*)")
CALL = re.compile(r"\b[A-Z]\w+\.\w+|\b[A-Z]\w+")


class Step(NamedTuple):
    """A line of the way from a row to a number: what there is, and the function that made it."""

    thing: str
    path: str
    function: str


class Message(NamedTuple):
    """A line of the round with an arrow: who sends what to whom; both ends are methods of a class."""

    sender: str
    carries: str
    receiver: str


def drawing(first: str) -> list[str]:
    """The lines of the drawing whose first line contains this text."""
    found = [block.lines for block in blocks(ROOT / "CONTRIBUTING.md") if block.language == "text"]
    (lines,) = [lines for lines in found if first in lines[0]]
    return lines


def rooms() -> list[set[str]]:
    """Rooms in the order of imports; those under one bracket share a place."""
    order: list[set[str]] = []
    for line in drawing("─ ground ─"):
        if match := ROOM.fullmatch(line):
            bracket, name, _ = match.groups()
            if bracket in "├└":
                order[-1].add(name)
            else:
                order.append({name})
    return order


def steps() -> list[Step]:
    """The way from a row to a number; the first step, a file, has no function."""
    matches = [(line, STEP.fullmatch(line)) for line in drawing("file ")]
    unread = [line for line, match in matches if match is None]
    assert not unread, f"no steps: {unread}"
    return [Step(match[1], match[2] or "", match[3] or "") for _, match in matches if match]


def calls() -> list[str]:
    """Every method of a class in the round, from top to bottom."""
    return [name for line in drawing("on the way")[1:] for name in CALL.findall(line) if "." in name]


def messages() -> list[Message]:
    """The lines of the round with an arrow, in the direction of the arrow."""
    found = []
    for line in drawing("on the way")[1:]:
        if "▶" in line or "◀" in line:
            left, carries, right = CALL.findall(line)
            found.append(Message(left, carries, right) if "▶" in line else Message(right, carries, left))
    return found
