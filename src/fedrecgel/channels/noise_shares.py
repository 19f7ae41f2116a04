"""Noise in shares: every device of a cohort adds a part of what the sum needs, so that nobody sees a sum without it.

A stage for a chain that hides single uploads, as masks do: alone, a share protects hardly anybody. The server knows who
takes part, so nothing is gained by sampling, and ε is that of a user who is asked in every round. On nodes metrics have
noise as well, and every measurement costs as much of the budget as a round; losses are not sent.
"""

from __future__ import annotations

from math import sqrt

from fedrecgel.channels.base import DeviceHalf, Preparation, RoundSetup, ServerHalf
from fedrecgel.channels.budget import Budget
from fedrecgel.channels.clipping import Limits
from fedrecgel.channels.dp import Noisy, NoisyDevice, add_noise
from fedrecgel.channels.sums import METRICS
from fedrecgel.draws import Draws
from fedrecgel.tensors import Ids, Tensors


class NoiseShares(Noisy):
    """Clips, and adds a share of the noise."""

    name = "noise-shares"
    protects = "nothing by itself: the sum of all shares protects every user"
    prepares = Preparation.COHORT
    withholds = True
    measures = True

    def device(self, draws: Draws) -> DeviceHalf:
        """Noise from the device's secret; in a simulation from one for all."""
        drawn = draws if draws.secret else Draws(0, self._budget.secret)
        return ShareDevice(self.limits, self._budget, drawn, self.settings.dropout)

    def server(self) -> ServerHalf:
        """Takes what arrives: the noise is in it."""
        return ServerHalf()


class ShareDevice(NoisyDevice):
    """One client's share: those who stay are enough even if as many are missing as the settings say."""

    def __init__(self, limits: Limits, budget: Budget, draws: Draws, dropout: float) -> None:
        super().__init__(limits, budget, draws)
        self._dropout = dropout

    def spread(self, setup: RoundSetup) -> float:
        """Deviation of a share by the limit: variances of independent shares add up."""
        return (self._budget.z or 0.0) / sqrt(max(1.0, len(setup.cohort) * (1 - self._dropout)))

    def seal_counts(self, counts: Tensors, ids: Ids, setup: RoundSetup) -> Tensors:
        """Metrics, each between 0 and 1, with a share of noise for the longest such vector; nothing else."""
        if METRICS not in counts:
            return {}
        gains = counts[METRICS].clamp(0, 1)
        sigma = self.spread(setup) * sqrt(gains.shape[1])
        return {METRICS: add_noise(gains, sigma, self._draws, METRICS, setup.round, ids)}
