"""Pauses of silent nodes."""

from __future__ import annotations

from fedrecgel.engine.flower.rests import LONGEST, Rests


def letters_until_asked(rests: Rests[str]) -> int:
    rests.silent("a")
    missed = 0
    while rests.resting("a"):
        rests.missed("a")
        missed += 1
    return missed


def test_pauses_grow_up_to_a_bound_and_end_with_an_answer() -> None:
    rests: Rests[str] = Rests()
    assert not rests.resting("a")
    assert [letters_until_asked(rests) for _ in range(8)] == [1, 2, 4, 8, 16, 32, LONGEST, LONGEST]
    assert not rests.resting("b")
    rests.answered("a")
    assert letters_until_asked(rests) == 1
