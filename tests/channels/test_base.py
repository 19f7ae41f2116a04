from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels.uploads import N_ITEMS, by_loop, random_upload
from torch import Tensor

from fedrecgel.channels.base import CHANNELS, Plain, check_channel
from fedrecgel.channels.fixedpoint import FixedPointSettings
from fedrecgel.errors import PrivacyError
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Download, Inbox, Method, Need, Server, Upload
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.popularity import Popularity
from fedrecgel.tensors import Factors, Tensors


def close(found: Tensors, expected: Tensors) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_sums_and_means_against_a_loop(seed: int, sizes: list[int], uniform: bool, order: Random) -> None:
    generator = torch.Generator().manual_seed(seed)
    uploads = [
        random_upload(
            generator,
            size,
            rows=2 + k,
            weights=torch.ones(size).double() if uniform else torch.rand(size, generator=generator).double() * 50,
        )
        for k, size in enumerate(sizes)
    ]
    sums, weight = by_loop(uploads)
    order.shuffle(uploads)
    inbox = Plain().collect(uploads, N_ITEMS, Need.SUM)
    early = Plain().collect([Plain().fold(upload, Need.SUM) for upload in uploads], N_ITEMS, Need.SUM)
    for box in (inbox, early):
        close(box.total(), sums)
        close(box.mean(), {name: value / weight for name, value in sums.items()})


def test_uploads_are_not_modified() -> None:
    upload = random_upload(torch.Generator().manual_seed(0), 1, 3, torch.ones(1).double())
    bias = upload.dense["bias"]
    assert isinstance(bias, Tensor)
    before = bias.clone(), upload.rows["table"].clone()
    Plain().collect([upload, upload], N_ITEMS, Need.SUM).mean()
    assert torch.equal(bias, before[0])
    assert torch.equal(upload.rows["table"], before[1])


def test_single_uploads_only_for_a_method_that_declared_it() -> None:
    uploads = [random_upload(torch.Generator().manual_seed(0), 2, 3, torch.ones(2).double())]
    assert Plain().collect(uploads, N_ITEMS, Need.EACH).each() == uploads
    assert Plain().fold(uploads[0], Need.EACH) is uploads[0]
    assert not any(isinstance(value, Tensor | Factors) for value in Plain().fold(uploads[0], Need.SUM).dense.values())
    for need in (Need.LINEAR, Need.SUM):
        with pytest.raises(PrivacyError, match=r"Need\.EACH"):
            Plain().collect(uploads, N_ITEMS, need).each()


@dataclass(frozen=True)
class Veiled:
    """A channel that reveals less."""

    reveals: Need
    name: str = "veiled"

    def close(self, server: Server) -> Server:
        return server

    def open(self, down: Download) -> Download:
        return down

    def opened(self, server: Server) -> Server:
        return server

    def seal(self, upload: Upload, n_items: int, round: int) -> Upload:
        return upload

    def fold(self, upload: Upload, needs: Need) -> Upload:
        return upload

    def collect(self, uploads: Iterable[Upload], n_items: int, needs: Need) -> Inbox:
        return Plain().collect(uploads, n_items, needs)


class Curious(FedNCF):
    """A method that compares clients."""

    @property
    def server_needs(self) -> Need:
        return Need.EACH


@pytest.mark.parametrize(
    ("method", "reveals"),
    [
        (Popularity(), Need.LINEAR),
        (FedNCF(server_optimiser="sgd"), Need.LINEAR),
        (FedNCF(), Need.SUM),
        (Curious(), Need.EACH),
    ],
)
def test_a_channel_that_reveals_enough_is_accepted(method: Method, reveals: Need) -> None:
    check_channel("any", method, Veiled(reveals))
    check_channel("any", method, Plain())


def test_a_refusal_names_the_alternatives() -> None:
    with pytest.raises(PrivacyError) as caught:
        check_channel("curious", Curious(), Veiled(Need.SUM))
    message = str(caught.value)
    assert "'curious' reads uploads one by one" in message
    assert "'veiled' reveals only their sum" in message
    assert "Use channel plain" in message
    assert named(message) == {name for name, kind in METHODS.items() if kind().server_needs <= Need.SUM}
    with pytest.raises(PrivacyError, match="only an encrypted sum") as caught:
        check_channel("fedncf", FedNCF(), Veiled(Need.LINEAR))
    linear = named(str(caught.value))
    assert {"popularity", "fedmf"} <= linear
    assert not {"fedncf", "perfedrec"} & linear


def named(message: str) -> set[str]:
    """The methods a refusal offers."""
    return set(message.partition("needs less: ")[2].rstrip(".").split(", "))


def test_registered_channels_know_their_names() -> None:
    assert {name: kind(FixedPointSettings()).name for name, kind in CHANNELS.items()} == {
        name: name for name in CHANNELS
    }
