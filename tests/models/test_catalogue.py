from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrecgel.models.catalogue import CatalogueLoss, gram_of_items


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 2))
def test_loss_and_gradients_are_those_of_the_plain_sum_over_all_items(seed: int, weight: float) -> None:
    """Two clients, one with padding, against autograd over every item of the catalogue, in float64."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    user = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    items, own = torch.tensor([[1, 4, 7], [2, 0, 0]]), torch.tensor([[True, True, True], [True, False, False]])
    loss = CatalogueLoss(weight)
    found = loss.differentiate(user, table[items], own, gram_of_items({"items": table}))
    by_table = torch.zeros_like(table)
    for client in range(2):
        u, v = user[client].clone().requires_grad_(), table.clone().requires_grad_()
        mine = items[client][own[client]].tolist()
        plain = sum(((1 - u @ v[j]) ** 2 if j in mine else weight * (u @ v[j]) ** 2) for j in range(len(table)))
        assert isinstance(plain, torch.Tensor)
        g_user, g_table = torch.autograd.grad(plain, [u, v])
        torch.testing.assert_close(found.loss[client], plain.detach(), rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(found.user[client], g_user, rtol=1e-11, atol=1e-12)
        by_table += g_table
    rows = torch.zeros_like(table).index_add(0, items[own], found.rows[own])
    assert not found.rows[~own].any()
    torch.testing.assert_close(rows + loss.rest(table, user.mT @ user), by_table, rtol=1e-11, atol=1e-12)
