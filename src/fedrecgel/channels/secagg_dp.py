"""Secure aggregation of noisy uploads: the sum that masks leave has the noise of all devices in it."""

from __future__ import annotations

from fedrecgel.channels.chain import Chain
from fedrecgel.channels.noise_shares import NoiseShares
from fedrecgel.channels.secagg import Secagg


class SecaggDp(Chain):
    """Clip, add a share of the noise, mask; the server sees a noisy sum and nothing else."""

    name = "secagg+dp"
    stages = (NoiseShares, Secagg)
    shows = "only their sum, with noise in it"
    protects = "every user, also from the server: it sees sums only, and the noise is in them before it does"
