from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedrecgel.errors import PrivacyError
from fedrecgel.methods.base import Inbox, Method, Need, Upload
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.popularity import Popularity
from fedrecgel.privacy.channel import CHANNELS, Plain, check_channel
from fedrecgel.tensors import Factors, Tensors

N_ITEMS = 9


def random_upload(generator: torch.Generator, clients: int, rows: int, weights: Tensor) -> Upload:
    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    dense: dict[str, Tensor | Factors] = {
        "matrix": Factors(random(clients, rows, 3), random(clients, rows, 2)),
        "bias": random(clients, 1, 4),
        "number": random(clients),
    }
    at = torch.randint(0, N_ITEMS, (clients, rows), generator=generator)  # may repeat: padding points to row 0
    return Upload(torch.arange(clients), dense, {"table": random(clients, rows, 2)}, at, weights)


def by_loop(uploads: list[Upload]) -> tuple[Tensors, float]:
    """The weighted sum over clients, one client and one row at a time."""
    sums: Tensors = {
        "matrix": torch.zeros(3, 2),
        "bias": torch.zeros(1, 4),
        "number": torch.zeros(()),
        "table": torch.zeros(N_ITEMS, 2),
    }
    sums = {name: value.double() for name, value in sums.items()}
    weight = 0.0
    for upload in uploads:
        for client, w in enumerate(upload.weight.tolist()):
            weight += w
            for name, value in upload.dense.items():
                if isinstance(value, Factors):
                    sums[name] += w * value.left[client].T @ value.right[client]
                elif isinstance(value, Tensor):
                    sums[name] += w * value[client]
            for row, at in enumerate(upload.at[client].tolist()):
                sums["table"][at] += w * upload.rows["table"][client, row]
    return sums, weight


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

    def seal(self, upload: Upload, round: int) -> Upload:
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
    assert message.endswith("popularity, fedncf, fedrecgel.")
    with pytest.raises(PrivacyError, match=r"only an encrypted sum.*needs less: popularity\.$"):
        check_channel("fedncf", FedNCF(), Veiled(Need.LINEAR))


def test_registered_channels_know_their_names() -> None:
    assert {name: kind().name for name, kind in CHANNELS.items()} == {name: name for name in CHANNELS}
