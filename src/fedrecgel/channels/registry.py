"""Channels by name; a new one is one file and one line in CHANNELS, or a call of `register` from outside."""

from __future__ import annotations

from fedrecgel.channels.base import Channel, Plain
from fedrecgel.channels.bfv import Encrypted
from fedrecgel.channels.dp import Dp, LocalDp
from fedrecgel.channels.secagg import Secagg
from fedrecgel.channels.secagg_dp import SecaggDp
from fedrecgel.errors import PrivacyError
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Need

CHANNELS: dict[str, type[Channel]] = {
    "plain": Plain,
    "secagg": Secagg,
    "bfv": Encrypted,
    "dp": Dp,
    "secagg+dp": SecaggDp,
    "local-dp": LocalDp,
}
"""A library that a channel needs is imported when the channel first encrypts."""


SEES = {Need.LINEAR: "only an encrypted sum", Need.SUM: "only their sum", Need.EACH: "every upload"}
"""What a channel reveals of the uploads of a round, in words."""


def what_it_shows(name: str) -> str:
    """What the server sees over a channel, in words; nothing for one that is not known here."""
    kind = CHANNELS.get(name)
    return "" if kind is None else kind.shows or SEES[kind.reveals]


def server_sees(method: Method) -> dict[str, str]:
    """By channel, what the server sees of a method's uploads, and of how many clients at least."""
    found = {}
    for name, kind in CHANNELS.items():
        least = f", of cohorts from {method.smallest_sum:,} clients on" * kind.hides
        fits = method.server_needs <= kind.reveals
        found[name] = what_it_shows(name) + least if fits else "refused: the server needs more"
    return found


def register(kind: type[Channel]) -> type[Channel]:
    """Add a channel of one's own, under its name, for this process; its section can be set from then on.

    Every process that has to know it registers it: under Flower the server's app and every node.

    Raises:
        ValueError: the name is taken, or its section is that of another channel.
    """
    known = channel_sections()
    for section, settings in kind.sections().items():
        if known.get(section, settings) is not settings:
            raise ValueError(f"there is a section [{section}] of another channel already")
    if CHANNELS.setdefault(kind.name, kind) is not kind:
        raise ValueError(f"there is a channel '{kind.name}' already")
    return kind


def channel_sections() -> dict[str, type]:
    """The sections of all channels, by name."""
    return {name: section for kind in CHANNELS.values() for name, section in kind.sections().items()}


def check_channel(method_name: str, method: Method, channel: Channel) -> None:
    """Refuse a method whose server needs to see more than the channel reveals."""
    if method.server_needs <= channel.reveals:
        return
    wants = {Need.LINEAR: "their sum", Need.SUM: "their plain sum", Need.EACH: "uploads one by one"}
    channels = [name for name, kind in CHANNELS.items() if method.server_needs <= kind.reveals]
    others = [name for name, kind in METHODS.items() if kind().server_needs <= channel.reveals]
    raise PrivacyError(
        f"Method '{method_name}' reads {wants[method.server_needs]}, but channel '{channel.name}' reveals "
        f"{SEES[channel.reveals]}. Use channel {' or '.join(channels)}, or a method that needs less: "
        f"{', '.join(others) or 'none'}."
    )
