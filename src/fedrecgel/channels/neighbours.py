"""Who shares masks with whom, and how many shares open a secret.

Bell, Bonawitz, Gascón, Lepoint and Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS
2020, https://eprint.iacr.org/2020/704: masks between all pairs cost each participant as many masks as there are others.
With k neighbours each, on a circle whose order nobody chooses, the cost is flat, and two things may go wrong, by
chance: too few neighbours of somebody are left to open a mask, and then the round is repeated; or so many of them work
with the server that they could. `plan` takes the smallest k that keeps each below `FAILURE` a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from math import comb
from typing import NamedTuple

DROPPED = 1 / 3
"""Share of the participants that may be lost on the way, at any steps."""
COLLUDING = 0.05
"""Share of the participants that may work with the server, where not everybody is everybody's neighbour."""
FAILURE = 1e-4
"""Largest probability, in a round, of either mishap."""
COMPLETE = 24
"""Up to so many participants everybody is everybody's neighbour: nothing is left to chance then."""


class Plan(NamedTuple):
    """What a round with so many participants takes."""

    degree: int
    """Neighbours of each participant."""
    threshold: int
    """Shares that open a secret; every neighbour holds one, and so does the participant itself."""
    fewest: int
    """Participants whose uploads must arrive: with fewer, nobody opens anything."""


@cache
def plan(n: int) -> Plan:
    """Degree and threshold for n participants.

    Up to `COMPLETE` of them, more than half of all shares open a secret. Then a server that tells some that an upload
    arrived, and others that it did not, opens at most one of that participant's two secrets. It could still open sums
    over fewer than `fewest`, and with more participants both secrets. So nodes agree on who arrived before they open
    anything: see `quorum`.
    """
    lost = int(DROPPED * n)
    everybody = Plan(n - 1, n // 2 + 1, n - lost)
    if n <= COMPLETE:
        return everybody
    for degree in range(2, n - 1, 2):
        threshold = _largest_threshold(n, degree, lost)
        if threshold and max(_opened(n, degree, threshold), _cut(n, degree, lost)) <= FAILURE:
            return Plan(degree, threshold, n - lost)
    return everybody


def quorum(n: int) -> int:
    """How many of n must say the same: any two such groups share somebody who does not work with the server."""
    return (n + int(COLLUDING * n)) // 2 + 1


def _largest_threshold(n: int, degree: int, lost: int) -> int:
    """The most shares that somebody's neighbours can be relied on to give; 0 if there is no such number."""
    chance, threshold = 0.0, 0
    while threshold <= degree:
        chance += n * _chance(n - 1, n - 1 - lost, degree, threshold)  # that exactly so many of them are left
        if chance > FAILURE:
            return threshold
        threshold += 1
    return threshold


def _opened(n: int, degree: int, threshold: int) -> float:
    """The probability that somebody has enough neighbours who work with the server."""
    corrupt = int(COLLUDING * n)
    return n * sum(_chance(n - 1, corrupt, degree, found) for found in range(threshold, degree + 1))


def _cut(n: int, degree: int, lost: int) -> float:
    """The probability that the rest falls apart: two gaps on the circle, each as wide as half of all neighbours."""
    gap = (lost + int(COLLUDING * n)) / n
    return float((n * gap ** (degree // 2)) ** 2 / 2)


def _chance(n: int, marked: int, drawn: int, found: int) -> float:
    """The hypergeometric distribution: so many marked ones among those drawn."""
    return comb(marked, found) * comb(n - marked, drawn - found) / comb(n, drawn) if drawn >= found else 0.0


def circle(messages: Mapping[int, bytes]) -> list[int]:
    """All participants in an order that follows from what all of them sent: fresh in every round, chosen by nobody."""
    everything = sha256()
    for participant, message in sorted(messages.items()):
        everything.update(b"%d/%d/" % (participant, len(message)) + message)
    seed = everything.digest()
    return sorted(messages, key=lambda participant: sha256(seed + b"%d" % participant).digest())


def neighbours(order: Sequence[int], degree: int) -> dict[int, list[int]]:
    """The nearest on either side of each participant; all others, if the degree says so."""
    n = len(order)
    if degree >= n - 1:
        return {one: sorted(other for other in order if other != one) for one in order}
    steps = [step for half in range(1, degree // 2 + 1) for step in (-half, half)]
    return {one: sorted(order[(at + step) % n] for step in steps) for at, one in enumerate(order)}
