"""Differential privacy at the level of users: clipped uploads, Gaussian noise, a budget that a run cannot exceed.

Three places for the noise. `dp`: the server, who sees clipped uploads, adds it to their sum before anything else is
done with it; clients take part by a secret draw of their own (Poisson sampling), which the accountant counts on.
`local-dp`: every device, to what it sends. Third, every device a share of it, behind masks, so that nobody ever sees a
sum without noise: noise_shares.py.

Noise comes from a generator keyed by a secret, which the checkpoint holds, and by what it hides: a round that is
repeated repeats its noise, and noise never comes back under another sum, where one could be subtracted from the other.
Adaptive limits: Andrew et al., "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021,
https://arxiv.org/abs/1905.03871.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from fedrecgel.channels.base import Channel, DeviceHalf, Plan, RoundSetup, ServerHalf
from fedrecgel.channels.budget import Budget, DpSettings
from fedrecgel.channels.clipping import UNEQUAL, Limits, apart, check_weights, group_norms, shorten
from fedrecgel.channels.sums import Received, each_of, whole
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, PrivacyError
from fedrecgel.methods.messages import Need, Upload
from fedrecgel.tensors import Ids, Tensors

BELOW = "below limit: "
"""Prefix of the tensor that says which clients stayed below the limit of a group."""
GRID_BITS = 24
"""Noise and sums are multiples of 2^-24 of the noise's deviation, so that the last digits of a result say nothing."""
BIT_NOISE = 0.05
"""Noise on the number of clients below a limit, by the size of the cohort (Andrew et al.)."""


def add_noise(value: Tensor, sigma: float, draws: Draws, name: str, round: int, ids: Ids) -> Tensor:
    """Every slice of axis 0 with Gaussian noise of its own, both rounded to one grid.

    Whatever the value is, results lie on the same grid: in floating point alone, the digits of a result would tell
    which values it can come from (Mironov, CCS 2012). Rounding moves a value by far less than the noise does.
    """
    if sigma == 0:
        return value
    grid = 2.0 ** (math.floor(math.log2(sigma)) - GRID_BITS)
    flat = value.detach().cpu().double().unsqueeze(1).flatten(1)  # a number per slice is a vector, too
    clients = ids.numpy()
    hidden = draws.hiding(clients, flat.numpy(), sigma)
    noise = torch.from_numpy(hidden.normal(f"dp/{name}", round, clients, flat.shape[1]))
    exact = (flat / grid).round() + (noise * (sigma / grid)).round()
    return (exact * grid).view(value.shape).to(value)


class Noisy(Channel):
    """Base of channels with a budget."""

    section, settings_type = "dp", DpSettings
    amplified = False
    """Whether taking part by a secret draw makes the promise stronger."""
    measures = False
    """Whether metrics from nodes have noise, too, and cost as much of the budget as rounds do."""

    def __init__(self, settings: DpSettings | None = None) -> None:
        super().__init__(settings)
        self.limits = self.settings.limits()
        self._budget = Budget(self.settings, amplified=self.amplified, measures=self.measures)

    def begin(self, plan: Plan) -> int:
        """As many rounds as the budget allows."""
        if "weight" in plan.names:
            raise PrivacyError(UNEQUAL)
        if self.settings.adaptive and (plan.on_nodes or not self.amplified):
            where = "on nodes" if plan.on_nodes else f"in channel '{self.name}'"
            raise ConfigError(f"dp.adaptive belongs to channel 'dp' on engine local. Limits {where} are fixed.")
        return self._budget.begin(plan)

    def keep(self) -> Tensors:
        """Secret, noise and limits."""
        limits = {f"limit/{group}": torch.tensor(v, dtype=torch.float64) for group, v in self.limits.largest.items()}
        return {**self._budget.keep(), **limits}

    def restore(self, kept: Tensors) -> None:
        """The same."""
        self._budget.restore(kept)
        self.limits.largest = {group: float(kept[f"limit/{group}"]) for group in self.limits.largest}

    def account(self, rounds: int) -> dict[str, Any]:
        """What so many rounds spent."""
        return self._budget.account(rounds, self.limits)

    def warnings(self) -> list[str]:
        """What weakens the promise."""
        return self._budget.warnings()


class Dp(Noisy):
    """Noise by the server, on sums over a secret random cohort."""

    name = "dp"
    reveals = Need.SUM
    protects = "every user, from all who see the model: a server that is trusted adds noise to sums of clipped uploads"
    shows = "every upload, clipped; its method reads their sum with noise"
    amplified = True

    def draw(self, population: Int[Tensor, " m"], round: int) -> Ids:
        """Every client takes part with the same probability, whoever else does; drawn from the secret."""
        chance = self._draws.uniform("dp/cohort", round, population.numpy(), np.zeros(1, dtype=np.int64))
        return population[torch.from_numpy(chance < self._budget.rate)]

    @property
    def _draws(self) -> Draws:
        return Draws(0, self._budget.secret)

    def device(self, draws: Draws) -> DeviceHalf:
        """Clips."""
        return ClippingDevice(self.limits, adaptive=self.settings.adaptive)

    def server(self) -> ServerHalf:
        """Adds noise."""
        return NoisyServer(self.limits, self._budget)


class ClippingDevice(DeviceHalf):
    """Shortens what every client sends, and says who was below the limit where that is asked for."""

    def __init__(self, limits: Limits, *, adaptive: bool = False) -> None:
        self._limits, self._adaptive = limits, adaptive

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        """Every client on its own."""
        check_weights(upload)
        upload = apart(upload, setup.n_items)
        norms = group_norms(upload, self._limits)
        clipped = shorten(upload, norms, self._limits)
        if not self._adaptive:
            return clipped
        bits = {
            BELOW + group: (norm <= self._limits.largest[group]).to(upload.weight.dtype) - 0.5
            for group, norm in norms.items()
        }
        return replace(clipped, dense={**clipped.dense, **bits})


class NoisyServer(ServerHalf):
    """The one place where exact sums exist; nothing but noisy ones leaves it."""

    def __init__(self, limits: Limits, budget: Budget) -> None:
        self._limits, self._budget = limits, budget

    def open_sums(self, received: Received, setup: RoundSetup) -> Received:
        """Noise on every sum; divided by the expected number of clients, since the true one depends on them."""
        budget, draws = self._budget, Draws(0, self._budget.secret)
        sums = {name: value for name, value in received.sums.items() if not name.startswith(BELOW)}
        below = {name: value for name, value in received.sums.items() if name.startswith(BELOW)}
        sigmas = self._limits.spread(sums, _update_noise(budget, len(below)))
        nobody = torch.zeros(1, dtype=torch.int64)

        def noisy(name: str, value: Tensor, sigma: float) -> Tensor:
            return add_noise(value[None], sigma, draws, name, setup.round, nobody)[0]

        found = {name: noisy(name, value, sigmas[name]) for name, value in sums.items()}
        bits = {name: noisy(name, value, _bit_noise(budget)) for name, value in below.items()}
        self._adapt(bits)
        return Received(found, budget.expected, received.ids, received.weights)

    def _adapt(self, bits: Tensors) -> None:
        """Limits move towards the quantile."""
        settings = self._budget.settings
        for name, value in bits.items():
            share = float(value) / self._budget.expected + 0.5
            self._limits.largest[name.removeprefix(BELOW)] *= math.exp(
                -settings.adapt_rate * (share - settings.quantile)
            )


def _bit_noise(budget: Budget) -> float:
    return BIT_NOISE * budget.expected if budget.z else 0.0


def _update_noise(budget: Budget, n_bits: int) -> float:
    """What is left for the sums, so that with the noise on `n_bits` counts, which a user changes by 1/2, z is kept.

    Raises:
        ConfigError: nothing is left.
    """
    z = budget.z or 0.0
    if not n_bits or not z:
        return z
    left = z**-2 - n_bits / (2 * _bit_noise(budget)) ** 2
    if left <= 0:
        raise ConfigError(
            f"dp.adaptive needs a cohort larger than {budget.expected:.0f} clients at this noise. Leave it out, or "
            f"raise method.fraction."
        )
    return 1 / math.sqrt(left)


class LocalDp(Noisy):
    """Noise by every device, on all it sends."""

    name = "local-dp"
    protects = "every user, also from the server: each device adds noise to its upload, far more than a sum would need"
    shows = "every upload, clipped and with noise"
    withholds = True

    def begin(self, plan: Plan) -> int:
        """As many rounds as the budget allows; on nodes nothing is measured.

        Raises:
            ConfigError: ranks of single users would leave nodes as they are.
        """
        if plan.on_nodes and plan.measured(plan.rounds):
            raise ConfigError(
                "Channel 'local-dp' on nodes sends nothing without noise, so nothing can be measured there: ranks of "
                "held-out items would leave as they are. Train with --final, or take channel secagg+dp, whose metrics "
                "have noise."
            )
        return super().begin(plan)

    def device(self, draws: Draws) -> DeviceHalf:
        """Clips and adds noise from the device's secret; in a simulation from one for all."""
        return NoisyDevice(self.limits, self._budget, draws if draws.secret else Draws(0, self._budget.secret))

    def server(self) -> ServerHalf:
        """Takes what arrives."""
        return ServerHalf()


class NoisyDevice(DeviceHalf):
    """Noise for one client at a time: another history would change its upload by twice the limit at most."""

    def __init__(self, limits: Limits, budget: Budget, draws: Draws) -> None:
        self._limits, self._budget, self._draws = limits, budget, draws

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        """Tables whole: rows without noise would be seen."""
        clipped = whole(ClippingDevice(self._limits).seal(upload, setup), setup.n_items)
        tensors = {name: each_of(value) for name, value in {**clipped.dense, **clipped.rows}.items()}
        sigmas = self._limits.spread(tensors, self.spread(setup))
        noisy = {
            name: add_noise(value, sigmas[name], self._draws, name, setup.round, clipped.ids)
            for name, value in tensors.items()
        }
        return replace(
            clipped,
            dense={name: noisy[name] for name in clipped.dense},
            rows={name: noisy[name] for name in clipped.rows},
        )

    def spread(self, setup: RoundSetup) -> float:
        """Deviation of a device's noise by the limit."""
        return 2 * (self._budget.z or 0.0)
