"""Propagation over the user-item graph: its formula, and its way back against automatic differentiation."""

from __future__ import annotations

import torch

from fedrecgel.numerics.propagation import Hop


def test_forward_is_the_formula_and_backward_its_derivative() -> None:
    torch.manual_seed(0)
    user, rows = (torch.randn(*shape, 3, dtype=torch.float64, requires_grad=True) for shape in ((2,), (2, 5)))
    neighbours, degree = torch.randn(2, 5, 3, dtype=torch.float64), torch.tensor([[0.0, 1, 2, 3, 9]] * 2).double()
    own = torch.tensor([[True, False, True, False, False], [False, True, True, True, False]])
    hop = Hop.over(0.25, own, degree)
    u, v = hop.forward(user, (rows * own[:, :, None]).sum(1), rows, neighbours)
    for c in range(2):
        mine = rows[c][own[c]]
        assert torch.allclose(u[c], 0.25 * user[c] + 0.75 * (user[c] + mine.sum(0)) / (len(mine) + 1))
        for j in range(5):
            wanted = 0.25 * rows[c, j] + 0.75 * (rows[c, j] + neighbours[c, j]) / (degree[c, j] + 1)
            assert torch.allclose(v[c, j], wanted)
    d_u, d_v = torch.randn_like(u), torch.randn_like(v)
    wanted_gradients = torch.autograd.grad([u, v], [user, rows], [d_u, d_v])
    for found, gradient in zip(hop.backward(d_u, d_v, own), wanted_gradients, strict=True):
        assert torch.allclose(found, gradient, rtol=1e-12, atol=1e-14)
