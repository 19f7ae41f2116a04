"""The protocol on bare integers: exact whoever is lost, closed to whoever lies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from fedrecgel.channels.masking import (
    Circle,
    Kept,
    Published,
    Revealed,
    Secret,
    cover,
    open_envelopes,
    publish,
    reveal,
    share,
    uncover,
)
from fedrecgel.channels.masks import Words
from fedrecgel.engine.uplink import pass_on
from fedrecgel.errors import IncompleteError, PrivacyError

STEPS = ("publish", "share", "cover", "reveal")
SIZE = 40


@dataclass
class Played:
    """A round up to the last step."""

    circle: Circle
    sharers: list[int]
    arrived: list[int]
    kept: dict[int, Kept]
    uploads: dict[int, dict[str, Words]]
    values: dict[int, dict[str, Words]]
    lost: set[int] = field(default_factory=set)

    def revealed(self) -> dict[int, Revealed]:
        return {
            one: reveal(self.kept[one], one, self.circle, self.arrived) for one in self.arrived if one not in self.lost
        }

    def masked(self) -> dict[str, Words]:
        return total(self.uploads, self.arrived)


def total(values: dict[int, dict[str, Words]], who: Collection[int]) -> dict[str, Words]:
    """The slow way, in Python's integers."""
    names = next(iter(values.values()))
    return {
        name: np.array(
            [sum(int(values[one][name][at]) for one in who) % 2 ** (8 * like.itemsize) for at in range(len(like))],
            dtype=like.dtype,
        )
        for name, like in names.items()
    }


def play(n: int, lost: Collection[int] = (), step: str = "", seed: int = 0) -> Played:
    random, rng = Random(seed), np.random.default_rng(seed)
    everyone = random.sample(range(10_000), n)
    missing = {everyone[number] for number in lost}

    def gone(at: str) -> set[int]:
        return missing if at == step else set()

    secrets = {one: Secret(random.randbytes(32)) for one in everyone}
    circle = Circle.of({one: publish(secrets[one]) for one in everyone if one not in gone("publish")})
    sent = {one: share(secrets[one], one, circle) for one in circle.published if one not in gone("share")}
    envelopes = pass_on(sent)
    values: dict[int, dict[str, Words]] = {
        one: {"a": rng.integers(0, 2**32, SIZE).astype(np.uint32), "b": rng.integers(0, 2**63, 3).astype(np.uint64)}
        for one in sent
    }
    uploads = {one: {name: value.copy() for name, value in own.items()} for one, own in values.items()}
    kept = {one: open_envelopes(secrets[one], one, circle, envelopes[one], envelopes) for one in sent}
    for one in sent:
        cover(uploads[one], secrets[one], one, circle, envelopes[one])
    arrived = [one for one in sent if one not in gone("cover")]
    return Played(circle, list(sent), arrived, kept, uploads, values, gone("reveal"))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("n", "n_lost"), [(3, 0), (3, 1), (4, 1), (6, 2), (10, 0), (10, 1), (10, 3), (30, 3), (30, 9)])
def test_the_sum_is_exact_whoever_is_lost_at_any_step(n: int, n_lost: int, step: str) -> None:
    played = play(n, Random(n).sample(range(n), n_lost), step)
    sums = played.masked()
    uncover(sums, played.circle, played.sharers, played.arrived, played.revealed())
    for name, value in total(played.values, played.arrived).items():
        np.testing.assert_array_equal(sums[name], value)
    assert len(played.arrived) == n - (n_lost if step != "reveal" else 0)


def test_losses_at_several_steps_add_up() -> None:
    played = play(12, [0, 1], "cover")
    played.lost = set(played.arrived[:2])
    sums = played.masked()
    uncover(sums, played.circle, played.sharers, played.arrived, played.revealed())
    np.testing.assert_array_equal(sums["a"], total(played.values, played.arrived)["a"])


def test_uploads_look_like_chance_and_have_one_size() -> None:
    played = play(10)
    for one, own in played.uploads.items():
        assert {name: (value.shape, value.dtype) for name, value in own.items()} == {
            "a": ((SIZE,), np.dtype(np.uint32)),
            "b": ((3,), np.dtype(np.uint64)),
        }
        assert np.count_nonzero(own["a"] == played.values[one]["a"]) == 0


def test_nobody_reveals_both_secrets_of_a_neighbour() -> None:
    played = play(10, [2, 5, 6], "cover")
    for told in played.revealed().values():
        assert not told.masks.keys() & told.keys.keys()
        assert told.masks.keys() <= set(played.arrived)
        assert not told.keys.keys() & set(played.arrived)
    everyone = {one for told in played.revealed().values() for one in told.masks | told.keys}
    assert everyone == set(played.sharers)


def test_a_server_that_tells_two_stories_opens_one_secret_at_most() -> None:
    """It tells some, the victim always, that the victim's upload arrived, and others that it did not."""
    played = play(9)
    victim, others = played.arrived[0], played.arrived[1:]
    threshold = played.circle.plan.threshold
    for told_yes in range(len(others) + 1):
        stories = [played.arrived] * (1 + told_yes) + [others] * (len(others) - told_yes)
        asked = zip([victim, *others], stories, strict=True)
        told = [reveal(played.kept[one], one, played.circle, story) for one, story in asked]
        of_mask, of_key = (sum(victim in getattr(one, name) for one in told) for name in ("masks", "keys"))
        assert (of_mask >= threshold) + (of_key >= threshold) <= 1


def test_a_sum_of_few_is_not_opened() -> None:
    played = play(10)
    one = played.arrived[0]
    for story in (played.arrived[:6], [one], [], played.arrived[1:], [*played.arrived[:9], 10**6]):
        with pytest.raises(PrivacyError, match="at least 7 of 10 participants"):
            reveal(played.kept[one], one, played.circle, story)


def test_with_too_few_shares_the_round_fails() -> None:
    played = play(10, [0, 1, 2], "cover")
    played.lost = set(played.arrived[:3])
    with pytest.raises(IncompleteError, match="come off with 6 right shares"):
        uncover(played.masked(), played.circle, played.sharers, played.arrived, played.revealed())


def test_a_wrong_share_is_found_out_and_never_gives_a_wrong_sum() -> None:
    played = play(10, [0, 1], "cover")
    honest = played.revealed()
    liar = played.arrived[0]
    lies = dict.fromkeys(played.sharers, bytes(16))
    lying = Revealed(lies, lies)
    sums = played.masked()
    uncover(sums, played.circle, played.sharers, played.arrived, {**honest, liar: lying})
    np.testing.assert_array_equal(sums["a"], total(played.values, played.arrived)["a"])
    with pytest.raises(IncompleteError, match="of which too few are right"):
        uncover(played.masked(), played.circle, played.sharers, played.arrived, dict.fromkeys(played.arrived, lying))


def test_a_server_that_swaps_keys_is_noticed_when_shares_arrive() -> None:
    """It stands between two neighbours with keys of its own, and seals shares of its own for one of them."""
    secrets = {one: Secret(bytes([one]) * 32) for one in range(5)}
    honest = {one: publish(secrets[one]) for one in secrets}
    envelopes = pass_on({one: share(secrets[one], one, Circle.of(honest)) for one in secrets})
    swapped = {**honest, 3: publish(Secret(b"evil" * 8))}
    with pytest.raises(PrivacyError, match="said to be from 3 are not"):
        open_envelopes(secrets[1], 1, Circle.of(swapped), envelopes[1], envelopes)
    with pytest.raises(PrivacyError, match="said to be from 2 are not"):
        open_envelopes(secrets[1], 1, Circle.of(honest), {**envelopes[1], 2: envelopes[1][0]}, envelopes)
    with pytest.raises(PrivacyError, match="said to be from 9 are not"):
        open_envelopes(secrets[1], 1, Circle.of(honest), {9: envelopes[1][0]}, envelopes)


def test_a_server_that_withholds_envelopes_gets_no_upload() -> None:
    """With neighbours whose envelopes do not arrive there is no mask: without any, the own mask is all that is left."""
    secrets = {one: Secret(bytes([one]) * 32) for one in range(9)}
    circle = Circle.of({one: publish(secrets[one]) for one in secrets})
    envelopes = pass_on({one: share(secrets[one], one, circle) for one in secrets})
    mine = envelopes[1]
    for given, sharers in (
        ({1: mine[1]}, [1]),
        ({1: mine[1]}, list(secrets)),
        ({one: mine[one] for one in range(5)}, list(range(5))),
        ({one: mine[one] for one in mine if one != 1}, list(secrets)),
        ({one: mine[one] for one in mine if one != 4}, list(secrets)),
    ):
        with pytest.raises(PrivacyError, match="at least 6 of 9 participants should have sent shares"):
            open_envelopes(secrets[1], 1, circle, given, sharers)
    six = list(range(6))
    kept = open_envelopes(secrets[1], 1, circle, {one: mine[one] for one in six}, six)
    reveal(kept, 1, circle, six)
    with pytest.raises(PrivacyError, match="at least 6 of 9"):  # 7 and 8 share no mask with it
        reveal(kept, 1, circle, [0, 1, 2, 3, 7, 8])


def test_what_is_published_is_read_or_refused() -> None:
    message = publish(Secret(bytes(32)))
    assert b"".join(Published.read(message)) == message
    with pytest.raises(PrivacyError, match="should publish 96 bytes"):
        Published.read(message[:-1])
