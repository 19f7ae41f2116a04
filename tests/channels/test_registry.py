"""Which channels there are, and which method may use which."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from fedrecgel.channels.base import Channel, Plain
from fedrecgel.channels.registry import CHANNELS, channel_sections, check_channel, register
from fedrecgel.errors import PrivacyError
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.messages import Need
from fedrecgel.methods.popularity import Popularity

PAGE = Path(__file__).resolve().parents[2] / "docs" / "privacy.md"


def veiled(most: Need) -> Channel:
    """A channel that reveals no more than this."""

    class Veiled(Plain):
        name = "veiled"
        reveals = most

    return Veiled()


class Curious(FedNCF):
    """A method that compares clients."""

    @property
    def server_needs(self) -> Need:
        return Need.EACH


@pytest.mark.parametrize(
    ("method", "reveals"),
    [
        (Popularity(), Need.LINEAR),
        (FedNCF(server_optimiser="sgd", init="normal"), Need.LINEAR),
        (FedNCF(), Need.SUM),
        (Curious(), Need.EACH),
    ],
)
def test_a_channel_that_reveals_enough_is_accepted(method: Method, reveals: Need) -> None:
    check_channel("any", method, veiled(reveals))
    check_channel("any", method, Plain())


def test_a_refusal_names_the_alternatives() -> None:
    with pytest.raises(PrivacyError) as caught:
        check_channel("curious", Curious(), veiled(Need.SUM))
    message = str(caught.value)
    assert "'curious' reads uploads one by one" in message
    assert "'veiled' reveals only their sum" in message
    assert "Use channel plain" in message
    assert named(message) == {name for name, kind in METHODS.items() if kind().server_needs <= Need.SUM}
    with pytest.raises(PrivacyError, match="only an encrypted sum") as caught:
        check_channel("fedncf", FedNCF(), veiled(Need.LINEAR))
    linear = named(str(caught.value))
    assert {"popularity", "fedmf"} <= linear
    assert not {"fedncf", "perfedrec"} & linear


def named(message: str) -> set[str]:
    """The methods a refusal offers."""
    return set(message.partition("needs less: ")[2].rstrip(".").split(", "))


def test_registered_channels_know_their_names_and_are_documented() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    for name, kind in CHANNELS.items():
        assert kind.name == name
        assert f"`{name}` {kind.protects}" in page


def test_a_name_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(veiled(Need.SUM))
    monkeypatch.setitem(CHANNELS, "veiled", kind)
    assert register(kind) is kind
    with pytest.raises(ValueError, match="'veiled' already"):
        register(type(veiled(Need.SUM)))


def test_sections_are_those_of_all_channels() -> None:
    assert set(channel_sections()) == {"fixed_point", "secagg", "dp"}


def test_a_section_of_another_channel_is_refused() -> None:
    @dataclass(frozen=True)
    class Others:
        """Settings of something else."""

        largest: int = 1
        """A number."""

    class Rival(Plain):
        name, section, settings_type = "rival", "fixed_point", Others

    with pytest.raises(ValueError, match=r"there is a section \[fixed_point\] of another channel already"):
        register(Rival)
    assert "rival" not in CHANNELS
