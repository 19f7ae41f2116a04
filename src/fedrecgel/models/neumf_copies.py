"""NeuMF where every client has a copy of its own of everything, as local epochs leave it.

`models.neumf` is for clients that share a network and saves itself the matrices per client; here they differ, so each
tensor has a client axis and each product is a batched one. Names are those of the shared tensors; item tables hold the
client's rows.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.models.neumf import NeuMF
from fedrecgel.numerics.losses import bce
from fedrecgel.tensors import Tensors


def copies_scores(model: NeuMF, own: Tensors) -> Float[Tensor, "C K"]:
    """Logits of every client's rows."""
    user = own["user"][:, None]
    first = user[:, :, model.gmf_dim :] @ own["w1_user"].mT + own["b1"]
    hidden = torch.baddbmm(first, own["item_mlp"], own["w1_item"].mT).relu()
    for layer in range(2, len(model.hidden) + 1):
        hidden = torch.baddbmm(own[f"b{layer}"], hidden, own[f"w{layer}"].mT).relu()
    gmf = user[:, :, : model.gmf_dim] * own["item_gmf"]
    return (gmf @ own["out_gmf"] + hidden @ own["out_mlp"] + own["out_bias"]).squeeze(2)


def copies_gradients(
    model: NeuMF, own: Tensors, labels: Float[Tensor, "C K"], weights: Float[Tensor, "C K"]
) -> tuple[Float[Tensor, " C"], Tensors]:
    """Loss of each client and its gradient; clients do not meet, so one backward pass serves all."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in own.items()}
        logits = copies_scores(model, leaves)
        loss, slope = bce(logits.detach(), labels, weights)
        found = torch.autograd.grad(logits, list(leaves.values()), grad_outputs=slope)
    return loss, dict(zip(leaves, found, strict=True))
