"""Fourteen colours that everybody can tell apart: distances as eyes without red, green or blue cones see them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from fedrecgel.display.palette import DARK, GREY, GREY_ON_DARK, LIGHT

Array = npt.NDArray[np.float64]
SEEN = {
    "by all cones": np.eye(3),
    "without red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "without green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "without blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Machado, Oliveira and Fernandes (2009), full severity, on linear RGB."""
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
CLEAR = 14
"""CIELAB; two colours side by side are told apart from about 2 on."""


def linear(colour: str) -> Array:
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light: Array) -> Array:
    xyz = TO_XYZ @ np.clip(light, 0, 1) / TO_XYZ.sum(1)
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("colours", [(*LIGHT, GREY), (*DARK, GREY_ON_DARK)], ids=["light", "dark"])
def test_any_two_colours_are_far_apart(colours: tuple[str, ...], eyes: str) -> None:
    seen = [lab(np.array(SEEN[eyes]) @ linear(colour)) for colour in colours]
    assert len(seen) == 15
    assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > CLEAR
