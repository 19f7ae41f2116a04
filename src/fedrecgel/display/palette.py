"""Colours of lines: fourteen that everybody can tell apart, and a grey for popularity, on light and on dark ground.

They were searched for: the nearest two are as far apart as can be for eyes that see all colours, and for those without
red, green or blue cones (`tests/display/test_palette.py`).
"""

from __future__ import annotations

LIGHT: tuple[str, ...] = (
    *("#3557e0", "#b85918", "#358252", "#4c316c", "#fb0ebc", "#1bbb57", "#90a0f6"),
    *("#d68e90", "#5e3e00", "#7a0f38", "#7a08fe", "#9205a7", "#a7a30c", "#c80c39"),
)
DARK: tuple[str, ...] = (
    *("#8ea6ff", "#eeea6c", "#a5f1d7", "#b459b0", "#c64f5f", "#2efc94", "#4ac6eb"),
    *("#fb9252", "#289815", "#fc3012", "#ae59fa", "#f82d90", "#bff100", "#c7926e"),
)
GREY, GREY_ON_DARK = "#6b7280", "#9aa5b8"
"""Of popularity and other references."""
N_COLOURS = len(LIGHT)


def variables(colours: tuple[str, ...], grey: str) -> str:
    """Custom properties of CSS: --c0, --c1, … and --reference."""
    return " ".join([*(f"--c{number}: {colour};" for number, colour in enumerate(colours)), f"--reference: {grey};"])


def dashed(number: int | None) -> bool:
    """Whether its colour was used before."""
    return number is not None and number >= N_COLOURS


def colour(number: int | None) -> str:
    """On light ground; None is a reference, and numbers beyond the last begin again."""
    return GREY if number is None else LIGHT[number % N_COLOURS]
