"""Sums under masks: what each participant and the server do, in four steps. Nothing here knows tensors or networks.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017,
https://doi.org/10.1145/3133956.3133982, between neighbours as in `channels/neighbours.py`:

1. `publish`: two fresh public keys, and a commitment to the seed of the own mask.
2. `share`: the seeds of the own mask and of the key for masks, cut into shares, one sealed envelope for each neighbour
   and one for oneself.
3. `cover`: the own mask, and one with every neighbour who shared: one of the two adds it, the other subtracts it.
4. `reveal`: of every neighbour one share: of its own mask if its upload arrived, of its key if not. Never both. Of
   oneself a share of the mask, not its seed: a server could tell all others that this upload is lost, get the key
   from them, and read the upload.

`uncover` takes off all masks from the sum. What was opened is compared with what was published, so a wrong share cannot
give a wrong sum: the round fails and is repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from fedrecgel.channels.masks import SEED_BYTES, Words, add_mask, agree, derive, private_key, public_bytes
from fedrecgel.channels.neighbours import Plan, circle, neighbours, plan
from fedrecgel.channels.shares import KEY_BYTES, Pair, combine, disclose, enclose, split
from fedrecgel.errors import IncompleteError, PrivacyError

PUBLIC_BYTES = 96


class Published(NamedTuple):
    """What everybody may know of a participant."""

    mask_key: bytes
    envelope_key: bytes
    commitment: bytes

    @classmethod
    def read(cls, message: bytes) -> Published:
        """From its 96 bytes.

        Raises:
            PrivacyError: it is something else.
        """
        if len(message) != PUBLIC_BYTES:
            raise PrivacyError(f"A participant should publish {PUBLIC_BYTES} bytes. Found {len(message)}.")
        return cls(message[:32], message[32:64], message[64:])


class Circle(NamedTuple):
    """Who takes part in a round, and who is whose neighbour."""

    published: Mapping[int, Published]
    plan: Plan
    neighbours: Mapping[int, list[int]]

    @classmethod
    def of(cls, messages: Mapping[int, bytes]) -> Circle:
        """The same for everybody who has the same messages."""
        found = plan(len(messages))
        published = {participant: Published.read(message) for participant, message in messages.items()}
        return cls(published, found, neighbours(circle(messages), found.degree))

    def holders(self, participant: int) -> list[int]:
        """Who has shares of a participant's secrets: its neighbours and itself."""
        return sorted([*self.neighbours[participant], participant])


class Secret(msgspec.Struct, frozen=True):
    """What a participant keeps from the first step to the third."""

    root: bytes

    @property
    def mask_seed(self) -> bytes:
        """Of its own mask."""
        return derive(self.root, "own mask")

    @property
    def key_seed(self) -> bytes:
        """Of its key for masks with neighbours."""
        return derive(self.root, "mask key")

    @property
    def envelope_key(self) -> Any:
        """With which envelopes are sealed; no share of it exists."""
        return private_key(derive(self.root, "envelope key", KEY_BYTES))


class Kept(msgspec.Struct, frozen=True):
    """What a participant keeps from the third step to the last: no key any more."""

    shares: dict[int, tuple[bytes, bytes]]
    """Of every neighbour who shared, and of itself."""


class Revealed(msgspec.Struct, frozen=True):
    """What a participant tells the server in the last step."""

    masks: dict[int, bytes]
    """Shares of the own masks of those whose uploads arrived."""
    keys: dict[int, bytes]
    """Shares of the keys of those whose uploads did not."""


def publish(secret: Secret) -> bytes:
    """Step 1: public keys and the commitment."""
    keys = public_bytes(private_key(secret.key_seed)) + public_bytes(secret.envelope_key)
    return keys + commit(secret.mask_seed)


def commit(seed: bytes) -> bytes:
    """Tells whether a seed is the right one, and nothing else about it."""
    return derive(seed, "commitment", 32)


def share(secret: Secret, me: int, circle: Circle) -> dict[int, bytes]:
    """Step 2: an envelope for each holder."""
    holders, threshold = circle.holders(me), circle.plan.threshold
    masks = split(secret.mask_seed, threshold, holders)
    keys = split(secret.key_seed, threshold, holders)
    key = secret.envelope_key
    return {
        holder: enclose(
            Pair(masks[holder], keys[holder]), _envelope(key, me, holder, holder, circle), _about(me, holder)
        )
        for holder in holders
    }


def open_envelopes(
    secret: Secret, me: int, circle: Circle, envelopes: Mapping[int, bytes], sharers: Collection[int]
) -> Kept:
    """Before step 3: what must be kept for step 4.

    Args:
        secret: its own.
        me: its number.
        circle: of this round.
        envelopes: by sender, those for this participant.
        sharers: all who sent envelopes to anybody, this one among them.

    Raises:
        PrivacyError: an envelope is not from the neighbour it is said to be from, or some were withheld. With whoever
            sent none there is no mask, so a server that withholds them all would get the upload under the own mask
            alone, which others open for it.
    """
    key, shares = secret.envelope_key, {}
    for sender, envelope in envelopes.items():
        near = sender in circle.holders(me)
        pair = disclose(envelope, _envelope(key, sender, me, sender, circle), _about(sender, me)) if near else None
        if pair is None:
            raise PrivacyError(
                f"Shares should come from a neighbour, sealed for this participant. Those said to be from {sender} "
                f"are not: somebody on the way changed keys or envelopes, and nothing is sent."
            )
        shares[sender] = (pair.mask, pair.key)
    if shares.keys() != set(sharers) & set(circle.holders(me)) or me not in shares or len(sharers) < circle.plan.fewest:
        raise PrivacyError(
            f"Before an upload leaves, at least {circle.plan.fewest} of {len(circle.published)} participants should "
            f"have sent shares, this one among them, and all that are for it should be here. They are not, and nothing "
            f"is sent."
        )
    return Kept(shares)


def _envelope(key: Any, sender: int, holder: int, other: int, circle: Circle) -> bytes:
    return agree(key, circle.published[other].envelope_key, f"envelope/{sender}/{holder}", KEY_BYTES)


def _about(sender: int, holder: int) -> bytes:
    return b"%d to %d" % (sender, holder)


def cover(values: Mapping[str, Words], secret: Secret, me: int, circle: Circle, sharers: Collection[int]) -> None:
    """Step 3: put all masks on unsigned integers, in place.

    Args:
        values: what this participant would send.
        secret: its own.
        me: its number.
        circle: of this round.
        sharers: whose envelopes arrived; with other neighbours there is no mask, as nobody could take it off.
    """
    add_mask(values, secret.mask_seed)
    key = private_key(secret.key_seed)
    for other in set(sharers) - {me}:
        add_mask(values, agree(key, circle.published[other].mask_key, "mask"), subtract=me > other)


def reveal(kept: Kept, me: int, circle: Circle, arrived: Collection[int]) -> Revealed:
    """Step 4: one share of each neighbour, and one of the own mask.

    Raises:
        PrivacyError: so few uploads arrived, or are said to have, that their sum is not to be opened.
    """
    who = set(arrived)
    strangers = who & set(circle.holders(me)) - kept.shares.keys()  # said to have arrived, without a mask in between
    if me not in who or strangers or not who <= circle.published.keys() or len(who) < circle.plan.fewest:
        raise PrivacyError(
            f"A sum is opened if the uploads of at least {circle.plan.fewest} of {len(circle.published)} participants "
            f"arrived, this one's among them. The server names {len(who)}."
        )
    masks = {other: pair[0] for other, pair in kept.shares.items() if other in who}
    keys = {other: pair[1] for other, pair in kept.shares.items() if other not in who}
    return Revealed(masks, keys)


def uncover(
    sums: Mapping[str, Words],
    circle: Circle,
    sharers: Collection[int],
    arrived: Collection[int],
    revealed: Mapping[int, Revealed],
) -> None:
    """Take all masks off a sum, in place.

    Args:
        sums: of the uploads that arrived.
        circle: of this round.
        sharers: whose envelopes were passed on.
        arrived: whose uploads are in the sum.
        revealed: by participant, what it told in the last step.

    Raises:
        IncompleteError: too few shares, or wrong ones; then `sums` are of no use.
    """
    for participant in sorted(arrived):
        shares = {holder: told.masks[participant] for holder, told in revealed.items() if participant in told.masks}
        published = circle.published[participant]
        seed = _open(shares, participant, circle, lambda found, want=published: commit(found) == want.commitment)
        add_mask(sums, seed, subtract=True)
    for participant in sorted(set(sharers) - set(arrived)):
        shares = {holder: told.keys[participant] for holder, told in revealed.items() if participant in told.keys}
        published = circle.published[participant]
        seed = _open(
            shares, participant, circle, lambda found, want=published: public_bytes(private_key(found)) == want.mask_key
        )
        key = private_key(seed)
        for other in set(circle.neighbours[participant]) & set(arrived):
            add_mask(sums, agree(key, circle.published[other].mask_key, "mask"), subtract=other < participant)


def _open(shares: Mapping[int, bytes], participant: int, circle: Circle, is_right: Any) -> bytes:
    """A participant's secret; if some shares are wrong, from others."""
    holders, threshold = circle.holders(participant), circle.plan.threshold
    good = {holder: one for holder, one in shares.items() if holder in holders and len(one) == SEED_BYTES}
    around = 2 * sorted(good)
    for start in range(len(good) if len(good) >= threshold else 0):  # some of these leave out any single holder
        chosen = around[start : start + threshold]
        found = combine({holder: good[holder] for holder in chosen}, threshold, holders)
        if is_right(found):
            return found
    raise IncompleteError(
        f"The masks of a participant come off with {threshold} right shares. Found {len(good)}"
        f"{', of which too few are right' if len(good) >= threshold else ''}."
    )
