"""Which colour a line has: that of its method, the same in every figure and on every page."""

from __future__ import annotations

from collections.abc import Mapping

from fedrecgel.display.palette import N_COLOURS

OF_METHODS = {
    name: number
    for number, name in enumerate(
        (
            "fedrecgel",
            "fedmf",
            "spectra",
            "fedncf",
            "pfedrec",
            "fedrap",
            "perfedrec",
            "cofedrec",
            "gpfedrec",
            "ials",
            "ease",
            "itemknn",
            "gfcf",
            "fedncf-weights",
        )
    )
}
"""Methods without one are references, in grey, or somebody's own, in a colour that is free."""
GREY = frozenset({"popularity", "seen-first"})


def colours_of(methods: Mapping[str, str]) -> dict[str, int | None]:
    """A colour for each label of these methods: distinct for up to fourteen, None for references.

    The first of a method's configurations has the method's colour.
    """
    found: dict[str, int | None] = {}
    for label, method in methods.items():
        own = OF_METHODS.get(method)
        if method in GREY:
            found[label] = None
        elif own is not None and own not in found.values():
            found[label] = own
    wanted = set(found.values()) | {OF_METHODS.get(method) for method in methods.values()}
    free = [number for number in range(N_COLOURS) if number not in wanted]
    rest = [label for label in methods if label not in found]
    for place, label in enumerate(rest):
        found[label] = free[place] if place < len(free) else N_COLOURS + place
    return found
