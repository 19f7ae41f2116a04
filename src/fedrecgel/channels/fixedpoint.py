"""Floats as integers: x is kept as round(x · 2^exponent), so that sums do not depend on order and can be encrypted.

Rounding: a value moves by at most 2^-(exponent + 1); sums and differences of integers add no error; a public factor is
kept to 16 significant bits, a relative error of at most 2^-16, and exactly if it has no more than these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Meta
from torch import Tensor

from fedrecgel.errors import RunError

FACTOR_BITS = 16
"""Significant bits of a public factor: each costs one bit of the range that is left for sums."""


@dataclass(frozen=True)
class FixedPointSettings:
    """How a channel that encrypts or masks writes numbers; `plain` does not use it."""

    fraction_bits: Annotated[int, Meta(ge=1, le=40)] = 20
    """Binary digits after the point of what a device sends: 20 round to multiples of 1e-6."""
    largest: Annotated[float, Meta(gt=0)] = 8.0
    """Largest magnitude a device sends; it refuses to send more, because sums over clients could overflow."""

    @property
    def bound(self) -> int:
        """The largest magnitude as an integer."""
        return math.ceil(math.ldexp(self.largest, self.fraction_bits))


def to_integers(values: Tensor, numbers: FixedPointSettings) -> npt.NDArray[np.int64]:
    """Values as flat integers, halves rounded to even.

    Raises:
        RunError: a value is not finite or larger than agreed.
    """
    wide = values.detach().cpu().double().flatten()
    largest = float(wide.abs().max()) if len(wide) else 0.0
    if not largest <= numbers.largest:
        raise RunError(
            f"Numbers to send should be at most {numbers.largest:g} in magnitude. Found {largest:g}: "
            f"lower a learning rate, or raise fixed_point.largest."
        )
    # Scaling by a power of two is exact, so the only error is that of rounding.
    scaled: npt.NDArray[np.float64] = torch.ldexp(wide, torch.tensor(numbers.fraction_bits)).numpy()
    return np.rint(scaled).astype(np.int64)


def to_floats(integers: npt.NDArray[np.int64], exponent: int, dtype: torch.dtype) -> Tensor:
    """What integers stand for; exact in float64 below 2^53, then rounded to `dtype`."""
    return torch.from_numpy(np.ldexp(integers.astype(np.float64), -exponent)).to(dtype)


def as_ratio(factor: float) -> tuple[int, int]:
    """A public factor as m / 2^s with s ≥ 0 and m of at most 16 significant bits, in lowest terms.

    Raises:
        RunError: the factor is zero or not finite.
    """
    if not math.isfinite(factor) or factor == 0:
        raise RunError(f"A sealed tensor should be scaled by a finite number other than 0. Found {factor}.")
    mantissa, power = math.frexp(factor)
    m, s = round(math.ldexp(mantissa, FACTOR_BITS)), FACTOR_BITS - power
    spare = (m & -m).bit_length() - 1
    m, s = m >> spare, s - spare
    return (m << -s, 0) if s < 0 else (m, s)
