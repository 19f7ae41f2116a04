"""Settings and budget of differential privacy: how much noise, how many rounds, what was spent."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta

from fedrecgel.channels.accounting import allowed_rounds, needed_noise, spent_epsilon
from fedrecgel.channels.base import Plan
from fedrecgel.channels.clipping import TOGETHER, Limits
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, unknown
from fedrecgel.tensors import Tensors

SECRET_BYTES = 32

Limit = Annotated[float, Meta(gt=0)]


@dataclass(frozen=True)
class DpSettings:
    """How much may be learnt about any one user: channels `dp`, `local-dp` and `secagg+dp`."""

    epsilon: Annotated[float, Meta(gt=0)] = 8.0
    """Budget ε: a run stops before it exceeds it; inf for none."""
    delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    """Probability δ with which the promise may fail; should be far below one by the number of users."""
    noise_multiplier: Annotated[float, Meta(ge=0)] | None = None
    """Noise by a user's largest contribution; left out, the smallest at which `run.rounds` rounds fit the budget."""
    clip: Limit = 1.0
    """Largest norm of what one user sends in a round, all tensors without a limit of their own together."""
    clips: dict[str, Limit] = field(default_factory=dict)
    """Limits of single tensors by name; every one is a group of its own, and noise grows by √groups."""
    adaptive: bool = False
    """Move the limits towards a quantile of the users' norms, which costs a little of the budget; channel `dp` on
    engine local."""
    quantile: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    """Share of users below an adaptive limit."""
    adapt_rate: Annotated[float, Meta(gt=0)] = 0.2
    """How fast an adaptive limit moves."""
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.34
    """`secagg+dp`: share of a cohort that may be missing, or work with the server, without weakening the noise."""
    noise: Literal["secret", "seed"] = "secret"
    """Key of noise and sampling: a new secret, or `run.seed`, which repeats a run and protects nobody."""

    def limits(self) -> Limits:
        """As a run begins."""
        return Limits({TOGETHER: self.clip, **self.clips})


class Budget:
    """What a run may spend, and the secret its noise comes from; devices never see it."""

    def __init__(self, settings: DpSettings, *, amplified: bool, measures: bool = False) -> None:
        self.settings, self._amplified, self._measures = settings, amplified, measures
        self._measured: Callable[[int], int] = lambda rounds: 0
        self.secret = token_bytes(SECRET_BYTES)
        self.z = settings.noise_multiplier
        self.rate = self.expected = 1.0
        self._n_clients = 1
        self._planned = 0
        self._earlier = 0
        """Measurements at the ends of runs that were given more rounds afterwards."""

    def begin(self, plan: Plan) -> int:
        """Find the noise; how many rounds fit.

        Raises:
            ConfigError: none does, or limits and noise do not fit together.
        """
        settings = self.settings
        for name in settings.clips:
            if name not in plan.names:
                raise ConfigError(unknown("tensor", name, plan.names, "in dp.clips"))
        self._n_clients, self.expected, self._planned = plan.n_clients, plan.fraction * plan.n_clients, plan.rounds
        self.rate = plan.fraction if self._amplified else 1.0
        if settings.noise == "seed":
            self.secret = Draws(plan.seed).key("dp", 0, 0)
        if self._measures:
            self._measured = plan.measured
        most = self._sums(plan.rounds)
        if self.z is None:
            self.z = needed_noise(settings.epsilon, self.rate, most, settings.delta)
        if self.z > 0 and math.inf in (settings.clip, *settings.clips.values()):
            raise ConfigError("Noise needs limits: dp.clip and dp.clips should be finite. Found inf.")
        sums = allowed_rounds(self.z, self.rate, most, settings.epsilon, settings.delta)
        rounds = bisect_right(range(plan.rounds + 1), sums, key=self._sums) - 1
        if rounds == 0:
            once = spent_epsilon(self.z, self.rate, self._sums(1), settings.delta)
            raise ConfigError(
                f"dp.epsilon = {settings.epsilon:g} should allow one round at least, which costs {once:.3g} with "
                f"dp.noise_multiplier = {self.z:g}. Raise one of them, or leave the multiplier out."
            )
        return rounds

    def _sums(self, rounds: int) -> int:
        """Noisy sums up to the end of so many rounds, those of metrics among them."""
        return rounds + self._measured(rounds) + self._earlier if rounds else 0

    def keep(self) -> Tensors:
        """Secret, noise and what was measured beyond the plan, for a checkpoint."""
        secret = torch.frombuffer(bytearray(self.secret), dtype=torch.uint8)
        noise = torch.tensor(self.z or 0.0, dtype=torch.float64)
        return {"secret": secret, "noise_multiplier": noise, "plan": torch.tensor([self._planned, self._earlier])}

    def restore(self, kept: Tensors) -> None:
        """Go on with the noise of the first rounds, also where more rounds are asked for than at the start."""
        self.secret, self.z = bytes(kept["secret"].tolist()), float(kept["noise_multiplier"])
        planned, self._earlier = kept["plan"].tolist()
        if planned != self._planned:  # its end may have been measured, with noise of its own
            self._earlier += self._measured(1)

    def account(self, rounds: int, limits: Limits) -> dict[str, Any]:
        """For the summary."""
        z, delta = self.z or 0.0, self.settings.delta
        epsilon = spent_epsilon(z, self.rate, self._sums(rounds), delta)
        rule = {"rule": "poisson", "rate": self.rate} if self._amplified else {"rule": "known to the server"}
        largest = {group: value if math.isfinite(value) else None for group, value in limits.largest.items()}
        clip = largest if len(largest) > 1 else largest[TOGETHER]
        finite = epsilon if math.isfinite(epsilon) else None
        promised = {"epsilon": finite, "delta": None if finite is None else delta}
        return {**promised, "noise_multiplier": z, "clip": clip, "sampling": rule}

    def warnings(self) -> list[str]:
        """What weakens the promise, in sentences."""
        found = []
        if self._measured(1) and self.z:
            found.append(
                "Metrics have the channel's noise in them, and each measurement cost as much of the budget as a round: "
                "measure seldom (evaluation.every, evaluation.full). Losses were not sent."
            )
        if self.settings.noise == "seed":
            found.append("Noise and sampling come from run.seed: whoever knows it can take the noise away again.")
        if self.settings.delta * self._n_clients > 0.1:
            found.append(
                f"dp.delta = {self.settings.delta:g} is large for {self._n_clients:,} users: it should be far below "
                f"{1 / self._n_clients:.0e}."
            )
        return found
