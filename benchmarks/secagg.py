"""What masks cost: 100 clients with 330,000 numbers each, none, a tenth and a third of them lost.

python benchmarks/secagg.py [--clients N] [--numbers N]

Processor time, so that a busy machine counts little. A client's: keys, shares, envelopes, masks. The server's: adding
up, and taking masks off the sum. Bytes: of all four steps, over the upload of the same numbers as float32.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from random import Random
from time import process_time

import msgspec
import numpy as np

from fedrecgel.channels.masking import Circle, Secret, cover, open_envelopes, publish, reveal, share, uncover
from fedrecgel.engine.uplink import pass_on


@dataclass
class Cost:
    """Of one round."""

    client_ms: float = 0.0
    up: float = 0.0
    """Bytes sent by a client, over those of plain."""
    down: float = 0.0
    """The same of what a client receives beside the model."""
    server_seconds: float = 0.0
    plan: str = field(default="")


def measure(n: int, size: int, lost: int, step: str) -> Cost:
    """A round in which so many clients are lost at a step; its sum is checked.

    Raises:
        AssertionError: the sum is not exact.
    """
    random, rng = Random(0), np.random.default_rng(0)
    missing = set(random.sample(range(n), lost))
    values = rng.integers(0, 1 << 20, (n, size)).astype(np.uint32)
    started = process_time()
    secrets = [Secret(random.randbytes(32)) for _ in range(n)]
    circle = Circle.of({one: publish(secret) for one, secret in enumerate(secrets)})
    sent = {one: share(secrets[one], one, circle) for one in range(n)}
    envelopes, uploads, kept = pass_on(sent), {}, {}
    for one in range(n):
        kept[one] = open_envelopes(secrets[one], one, circle, envelopes[one], envelopes)
        uploads[one] = {"table": values[one].copy()}
        cover(uploads[one], secrets[one], one, circle, envelopes[one])
    arrived = [one for one in range(n) if step != "upload" or one not in missing]
    told = {one: reveal(kept[one], one, circle, arrived) for one in arrived if step != "unmask" or one not in missing}
    client = process_time() - started
    started = process_time()
    total = {"table": np.zeros(size, dtype=np.uint32)}
    for one in arrived:
        total["table"] += uploads[one]["table"]
    uncover(total, circle, list(sent), arrived, told)
    server = process_time() - started
    np.testing.assert_array_equal(total["table"], values[arrived].sum(0, dtype=np.uint32))
    letters = sum(map(len, sent[0].values()))
    plain = 4 * size
    return Cost(
        1e3 * client / n,
        (plain + 96 + letters + len(msgspec.msgpack.encode(told[min(told)]))) / plain,
        (n * 96 + letters + 8 * len(arrived)) / plain,
        server,
        f"{circle.plan.degree} neighbours, {circle.plan.threshold} shares open a mask",
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--numbers", type=int, default=330_000)
    given = parser.parse_args()
    print(f"{given.clients} clients x {given.numbers:,} numbers: {measure(given.clients, 100, 0, 'upload').plan}")
    print(f"{'lost':>6} {'at':<8} {'ms a client':>12} {'bytes up':>9} {'and down':>9} {'server s':>9}")
    for share_lost, step in ((0.0, "upload"), (0.1, "upload"), (0.1, "unmask"), (1 / 3, "upload"), (1 / 3, "unmask")):
        lost = int(share_lost * given.clients)
        found = measure(given.clients, given.numbers, lost, step)
        print(
            f"{share_lost:>6.0%} {step if lost else '':<8} {found.client_ms:>12.1f} {found.up:>8.3f}x "
            f"{found.down:>8.3f}x {found.server_seconds:>9.2f}"
        )


if __name__ == "__main__":
    main()
