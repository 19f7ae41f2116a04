"""Names and colours that tell configurations apart."""

from __future__ import annotations

from typing import Any

from fedrecgel.methods import METHODS
from fedrecgel.studies.colours import colours_of
from fedrecgel.studies.labels import labels_of


def settings(method: str, rounds: int = 10, **options: object) -> dict[str, dict[str, Any]]:
    return {"method": {"name": method, **options}, "run": {"rounds": rounds, "seed": 0}}


def test_a_method_that_stands_alone_has_its_name() -> None:
    assert labels_of([settings("fedmf"), settings("fedncf", lr=0.1)]) == ["fedmf", "fedncf"]


def test_as_few_settings_as_tell_them_apart() -> None:
    three = [settings("fedmf", lr=0.1, dim=8), settings("fedmf", lr=0.5, dim=16), settings("fedmf", 20, lr=0.5, dim=8)]
    assert labels_of(three[:2]) == ["fedmf, lr 0.1", "fedmf, lr 0.5"]
    assert labels_of(three) == ["fedmf, lr 0.1, dim 8", "fedmf, lr 0.5, dim 16", "fedmf, lr 0.5, dim 8"]
    assert labels_of([three[0], settings("fedmf", 20, lr=0.1, dim=8)]) == ["fedmf, 10 rounds", "fedmf, 20 rounds"]
    assert labels_of([three[0], three[0]], [False, True]) == ["fedmf, plain path", "fedmf, accelerated"]


def test_fourteen_lines_have_fourteen_colours() -> None:
    found = colours_of({name: name for name in METHODS})
    coloured = [number for number in found.values() if number is not None]
    assert len(coloured) == len(set(coloured)) == 14
    assert max(coloured) < 14
    own = colours_of({f"mine {number}": "mine" for number in range(14)})
    assert sorted(own.values(), key=str) == sorted(range(14), key=str)


def test_a_method_keeps_its_colour_whoever_is_beside_it() -> None:
    alone, beside = (
        colours_of({"fedmf": "fedmf"}),
        colours_of({"x": "mine", "a": "fedmf", "b": "fedmf", "c": "spectra"}),
    )
    assert alone["fedmf"] == beside["a"]
    assert len(set(beside.values())) == 4
