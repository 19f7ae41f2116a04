from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels.uploads import by_loop, random_upload, setup_of
from torch import Tensor

from fedrecgel.channels.base import Plain
from fedrecgel.engine.uplink import fold
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.messages import Need
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
    server, setup = Plain().server(), setup_of(Need.SUM)
    inbox = server.collect(uploads, setup)
    early = server.collect([fold(upload, Need.SUM, weighted=False) for upload in uploads], setup)
    for box in (inbox, early):
        close(box.total(), sums)
        close(box.mean(), {name: value / weight for name, value in sums.items()})


def test_uploads_are_not_modified() -> None:
    upload = random_upload(torch.Generator().manual_seed(0), 1, 3, torch.ones(1).double())
    bias = upload.dense["bias"]
    assert isinstance(bias, Tensor)
    before = bias.clone(), upload.rows["table"].clone()
    Plain().server().collect([upload, upload], setup_of(Need.SUM)).mean()
    assert torch.equal(bias, before[0])
    assert torch.equal(upload.rows["table"], before[1])


def test_single_uploads_only_for_a_method_that_declared_it() -> None:
    uploads = [random_upload(torch.Generator().manual_seed(0), 2, 3, torch.ones(2).double())]
    assert Plain().server().collect(uploads, setup_of(Need.EACH)).each() == uploads
    assert fold(uploads[0], Need.EACH, weighted=False) is uploads[0]
    early = fold(uploads[0], Need.SUM, weighted=False)
    assert not any(isinstance(value, Tensor | Factors) for value in early.dense.values())
    for need in (Need.LINEAR, Need.SUM):
        with pytest.raises(PrivacyError, match=r"Need\.EACH"):
            Plain().server().collect(uploads, setup_of(need)).each()
