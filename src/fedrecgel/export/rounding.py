"""Tables in 8 bits: every row has a scale of its own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LARGEST = 127
"""What the largest entry of a row becomes."""


def round_rows(table: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Whole numbers from -127 to 127, and what each row of them is multiplied by; a row of zeros has scale 0."""
    scales = (np.abs(table).max(1, initial=0) / LARGEST).astype(np.float32)
    whole = np.rint(table / np.where(scales > 0, scales, 1)[:, None])
    return whole.clip(-LARGEST, LARGEST).astype(np.int8), scales


def as_rounded(table: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The table that a device reads back."""
    whole, scales = round_rows(table)
    return whole * scales[:, None]
