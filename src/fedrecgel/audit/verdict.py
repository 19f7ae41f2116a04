"""The whole audit of a run: attacks that fit what its channel reveals, tests of its noise, promotion, a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fedrecgel.audit.guesses import Finding
from fedrecgel.audit.inference import attack_each, attack_sums
from fedrecgel.audit.noise import epsilon_lower_bound, noise_p, still
from fedrecgel.audit.promotion import Promotion, fixed_limits, limits_by_round, promotable, promote
from fedrecgel.audit.scene import Scene
from fedrecgel.audit.spectral import attack_spectra, basis_of
from fedrecgel.channels.accounting import spent_epsilon
from fedrecgel.channels.dp import Dp
from fedrecgel.errors import RunError

SMALL = 0.02
"""An advantage up to this is as good as none."""
COHORTS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Among which the smallest safe one is looked for."""
SHARES = (0.01, 0.05)
"""Malicious clients."""
NONE = "No promotion: the run cannot be trained from random tables."
INCOMPLETE = "Promotion is incomplete: a case cannot be trained."
LIMITED, BY_ROUND = " limited", " limited by round"
ROUNDS = 20
"""Of a run that is attacked by promotion, at most."""


@dataclass(frozen=True)
class Audit:
    """What was found."""

    channel: str
    cohort: int
    attacks: dict[str, Finding]
    by_cohort: dict[int, Finding] = field(default_factory=dict)
    """The strongest attack on sums, by the size of the cohort."""
    epsilon_lower_bound: float | None = None
    noise_p: float | None = None
    promotion: dict[str, Promotion] = field(default_factory=dict)
    promotion_error: str | None = None
    """Why cases of promotion are missing, where one could not be trained."""

    @property
    def smallest_cohort(self) -> int | None:
        """From this size on, no attack on sums has an advantage; None if none of those tried is large enough."""
        safe = None
        for n, found in sorted(self.by_cohort.items(), reverse=True):
            if found.advantage > SMALL:
                break
            safe = n
        return safe

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "channel": self.channel,
            "cohort": self.cohort,
            "attacks": {
                name: {
                    "f1": found.f1,
                    "popularity_f1": found.popularity_f1,
                    "advantage": found.advantage,
                    "low": found.low,
                    "high": found.high,
                }
                for name, found in self.attacks.items()
            },
            "epsilon_lower_bound": self.epsilon_lower_bound,
            "noise_p": self.noise_p,
            "promotion": {
                name: {"malicious": one.malicious, "ER@10": one.er, "HR@10": one.hr}
                for name, one in self.promotion.items()
            },
            "promotion_error": self.promotion_error,
        }

    @property
    def sentence(self) -> str:
        """The outcome for people."""
        if not self.attacks:
            return "The server sees ciphertexts: none of these attacks has anything to work with."
        name, worst = max(self.attacks.items(), key=lambda pair: pair[1].advantage)
        words = name.replace("_", " ")
        if worst.f1 > 0.9:
            return f"The server can read users' histories: {words} finds them with F1 {worst.f1:.2f}."
        if worst.advantage > SMALL:
            return (
                f"The server learns something about single users: {words} is {worst.advantage:.2f} better in F1 than "
                f"a guess from popularity."
            )
        return "None of these attacks tells the server more about a user than popularity does; others may."


def audit_run(scene: Scene, tell: Callable[[str], None] = lambda text: None, *, promotion: bool = True) -> Audit:
    """Everything that applies."""
    size, attacks, by_cohort = scene.cohort_size, {}, {}
    if scene.sees_each:
        tell("Attacking single uploads …")
        attacks = attack_each(scene)
    elif scene.sees_sums:
        by_cohort = attack_by_cohort(scene, tell)
        name = "cohort_sum" if basis_of(scene, start=False) is None else "co_occurrence"
        attacks[name] = by_cohort[max(by_cohort)]
        basis = basis_of(scene, start=True)
        if basis is not None:  # sums over everybody, whatever the cohorts of later rounds are
            attacks["co_occurrence"] = attack_spectra(scene, scene.split.n_users, basis)
    bound, p = None, None
    if isinstance(scene.channel, Dp) and scene.channel.account(1)["epsilon"] is not None:
        tell("Testing the noise …")
        twin = still(scene.channel)
        bound, p = epsilon_lower_bound(twin), noise_p(twin, scene.channel.account(1)["noise_multiplier"])
    pushed: dict[str, Promotion] = {}
    failed = None
    if promotion and scene.sees_sums and promotable(scene):
        pushed, failed = promote_all(scene, tell)
    return Audit(scene.channel.name, size, attacks, by_cohort, bound, p, pushed, failed)


def attack_by_cohort(scene: Scene, tell: Callable[[str], None]) -> dict[int, Finding]:
    """The strongest attack on sums over cohorts of growing size, up to the run's own."""
    sizes = sorted({n for n in COHORTS if n < scene.cohort_size} | {scene.cohort_size})
    if not scene.sums_are_exact:  # noise is made for the run's own cohort
        sizes = [scene.cohort_size]
    found, basis = {}, basis_of(scene, start=False)
    for n in sizes:
        tell(f"Attacking sums over {n} clients …")
        findings = [] if basis is None else [attack_spectra(scene, n, basis)]
        found[n] = max([*findings, attack_sums(scene, n)], key=lambda one: one.advantage)
    return found


def promote_all(scene: Scene, tell: Callable[[str], None]) -> tuple[dict[str, Promotion], str | None]:
    """Every case that could be trained, and why there are no more, if one could not."""
    found: dict[str, Promotion] = {}
    try:
        found.update(promotions(scene, tell))
    except RunError as error:  # what was found before stays found
        tell(f"{INCOMPLETE if found else NONE} {error}")
        return found, str(error)
    return found, None


def promotions(scene: Scene, tell: Callable[[str], None]) -> Iterator[tuple[str, Promotion]]:
    """Case by case: without malicious clients, with some, and with limits against them.

    Raises:
        RunError: a case cannot be trained.
    """
    scene = scene.from_random_tables()
    rounds = min(ROUNDS, scene.config.run.rounds)
    tell("Training without malicious clients …")
    honest = promote(scene, 0.0, rounds)
    yield "0%", honest
    if not honest.row_limits:
        raise RunError("The gate refused all uploads of the first round.")
    followed = promote(scene, 0.0, rounds, follow=honest.row_limits[0])
    yield f"0%{BY_ROUND}", followed
    gates = {
        "": None,
        LIMITED: fixed_limits(honest, scene.config.gate),
        BY_ROUND: limits_by_round(followed, scene.config.gate),
    }
    for name, gate in gates.items():
        for share in (0.0, *SHARES):
            if share or name == LIMITED:  # else it was before
                tell(f"Promoting an item with {share:.0%} malicious clients{name and ','}{name} …")
                yield f"{share:.0%}{name}", promote(scene, share, rounds, gate)


def claimed_epsilon(scene: Scene) -> float | None:
    """Of one round, for a client that takes part for certain."""
    z = scene.channel.account(1).get("noise_multiplier")
    return spent_epsilon(z, 1.0, 1, scene.channel.account(1)["delta"]) if z else None
