"""Clipping: every client's part of a group ends at its limit, and nobody else's moves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.channels.uploads import N_ITEMS, random_upload

from fedrecgel.channels.clipping import TOGETHER, Limits, apart, check_weights, group_norms, shorten
from fedrecgel.channels.sums import each_of, whole
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.messages import Upload


def upload_of(seed: int, clients: int = 4) -> Upload:
    return random_upload(torch.Generator().manual_seed(seed), clients, 3, torch.ones(clients).double())


def by_loop(upload: Upload, limits: Limits) -> list[dict[str, torch.Tensor]]:
    """One client, one whole tensor at a time."""
    upload, found = whole(upload, N_ITEMS), []
    for client in range(len(upload.ids)):
        own = {name: each_of(value)[client] for name, value in {**upload.dense, **upload.rows}.items()}
        for group, limit in limits.largest.items():
            members = [name for name in own if limits.group(name) == group]
            norm = sum(float(own[name].square().sum()) for name in members) ** 0.5
            for name in members:
                own[name] = own[name] * min(1.0, limit / norm)
        found.append(own)
    return found


@given(seed=st.integers(0, 99), limit=st.floats(0.1, 20), own=st.one_of(st.none(), st.floats(0.1, 20)))
def test_every_client_is_shortened_as_if_alone(seed: int, limit: float, own: float | None) -> None:
    limits = Limits({TOGETHER: limit} if own is None else {TOGETHER: limit, "table": own})
    upload = apart(upload_of(seed), N_ITEMS)
    clipped = whole(shorten(upload, group_norms(upload, limits), limits), N_ITEMS)
    for client, wanted in enumerate(by_loop(upload_of(seed), limits)):
        for name, value in {**clipped.dense, **clipped.rows}.items():
            torch.testing.assert_close(each_of(value)[client], wanted[name], rtol=2e-6, atol=1e-12)
    for group, norm in group_norms(clipped, limits).items():
        assert (norm <= limits.largest[group]).all()


def test_rows_sent_in_two_parts_are_joined_before_they_are_measured() -> None:
    upload = upload_of(0, clients=1)
    twice = Upload(
        upload.ids, {}, {"table": torch.ones(1, 2, 2).double()}, torch.tensor([[3, 3]]), torch.ones(1).double()
    )
    limits = Limits({TOGETHER: 1.0})
    assert group_norms(twice, limits)[TOGETHER] == pytest.approx(2.0), "as if they were two rows"
    assert group_norms(apart(twice, N_ITEMS), limits)[TOGETHER] == pytest.approx(8**0.5)
    padded = Upload(
        upload.ids, {}, {"table": torch.tensor([[[1.0, 0], [0, 0]]])}, torch.tensor([[0, 0]]), torch.ones(1)
    )
    assert apart(padded, N_ITEMS) is padded, "padding is no second part"


def test_noise_grows_with_the_root_of_the_groups_in_a_round() -> None:
    limits = Limits({TOGETHER: 2.0, "counts": 3.0})
    assert limits.spread(["counts"], 1.5) == {"counts": 4.5}
    both = limits.spread(["counts", "w", "b"], 1.5)
    assert both == pytest.approx({"counts": 4.5 * 2**0.5, "w": 3 * 2**0.5, "b": 3 * 2**0.5})
    assert Limits({TOGETHER: float("inf")}).spread(["w"], 0.0) == {"w": 0.0}


def test_clients_that_weigh_more_are_refused() -> None:
    check_weights(upload_of(0))
    heavy = random_upload(torch.Generator(), 2, 3, torch.tensor([1.0, 2.0]).double())
    with pytest.raises(PrivacyError, match="every client should weigh 1"):
        check_weights(heavy)
