"""NeuMF (He et al., 2017) over a client axis, with its gradients written out.

For user vectors u = (u1, u2) and item rows v1, v2::

    z1 = W1_item v2 + (W1_user u2 + b1)        h1 = relu(z1)
    z2 = W2 h1 + b2, z3 = W3 h2 + b3           h = relu(z), layer by layer
    logit = out_gmf · (u1 * v1) + out_mlp · h3 + out_bias

Two facts keep this cheap. The item half of layer 1 is the same for all clients, so it is computed once per item and
gathered. And a client meets W1_user and b1 only through `a φ = W1_user u2 + b1` with `a = sqrt(1 + ‖u2‖²)`: the
gradient with respect to (W1_user, b1) has rank one, and φ is the coordinate in which its norm is the plain norm. So the
matrices W1_user of the clients are never built.

A `view` holds what a client sees of the shared tensors: its item rows [C, K, d], φ [C, 1, h], and the network, without
a client axis as long as all clients share it. Weight matrices are [out, in], biases [1, out], output weights [in, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody uses

from fedrecgel.tensors import Factors, Tensors

INIT_SD = 0.01
"""Standard deviation of initial embeddings."""


class Signals(NamedTuple):
    """The forward and backward quantities of one pass that gradients are made of."""

    gmf: Float[Tensor, "C K g"]
    inputs: list[Float[Tensor, "C K _"]]
    """Of each layer of the tower: v2, h1, h2, …, and last the tower's output."""
    errors: list[Float[Tensor, "C K _"]]
    """∂L/∂z of each layer."""
    error: Float[Tensor, "C K 1"]
    """∂L/∂logit."""


@dataclass(frozen=True)
class NeuMF:
    """The sizes of the model; parameters are passed in."""

    gmf_dim: int = 32
    mlp_dim: int = 128
    hidden: tuple[int, ...] = (128, 64, 32)

    @property
    def user_dim(self) -> int:
        """u1 and u2 side by side."""
        return self.gmf_dim + self.mlp_dim

    def init_shared(self, n_items: int, generator: np.random.Generator) -> dict[str, npt.NDArray[np.float64]]:
        """Item tables N(0, 0.01²), tower Xavier-uniform, output uniform ±√(3/fan_in), biases zero."""
        sizes = (2 * self.mlp_dim, *self.hidden)
        out = np.sqrt(3 / (self.gmf_dim + self.hidden[-1]))
        shared = {
            "item_gmf": generator.normal(0, INIT_SD, (n_items, self.gmf_dim)),
            "item_mlp": generator.normal(0, INIT_SD, (n_items, self.mlp_dim)),
        }
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes), start=1):
            bound = np.sqrt(6 / (fan_in + fan_out))
            shared[f"w{layer}"] = generator.uniform(-bound, bound, (fan_out, fan_in))
            shared[f"b{layer}"] = np.zeros((1, fan_out))
        first = shared.pop("w1")
        shared["w1_user"], shared["w1_item"] = first[:, : self.mlp_dim].copy(), first[:, self.mlp_dim :].copy()
        shared["out_gmf"] = generator.uniform(-out, out, (self.gmf_dim, 1))
        shared["out_mlp"] = generator.uniform(-out, out, (self.hidden[-1], 1))
        shared["out_bias"] = np.zeros((1, 1))
        return shared

    def item_half(self, shared: Tensors) -> Float[Tensor, "n h"]:
        """W1_item v2 of every item: computed once a round, then gathered."""
        return shared["item_mlp"] @ shared["w1_item"].T

    def view(self, shared: Tensors, rows: Int[Tensor, "C K"]) -> Tensors:
        """What clients need of the shared tensors to score these items."""
        network = {name: value for name, value in shared.items() if not name.startswith("item_")}
        return {
            **network,
            "rows_gmf": F.embedding(rows, shared["item_gmf"]),
            "rows_half": F.embedding(rows, shared["item_half"]),
        }

    def training_view(self, shared: Tensors, rows: Int[Tensor, "C K"]) -> Tensors:
        """The same and the rows of layer 1's input, of which gradients are made."""
        return {**self.view(shared, rows), "rows_mlp": F.embedding(rows, shared["item_mlp"])}

    def meet(self, view: Tensors, user: Float[Tensor, "C d"]) -> Tensors:
        """The view with the user's half of layer 1 folded in as φ."""
        return {**view, "phi": self._user_half(view, user)[:, None] / self._stretch(user)}

    def _user_half(self, view: Tensors, user: Float[Tensor, "C d"]) -> Float[Tensor, "C h"]:
        return user[:, self.gmf_dim :] @ view["w1_user"].T + view["b1"]

    def _stretch(self, user: Float[Tensor, "C d"]) -> Float[Tensor, "C 1 1"]:
        return (1 + user[:, self.gmf_dim :].square().sum(1)).sqrt()[:, None, None]

    def _first(self, view: Tensors, user: Float[Tensor, "C d"]) -> Float[Tensor, "C K h"]:
        """z1, whose item half is gathered at the shared point and computed where a client perturbed it."""
        user_half = self._stretch(user) * view["phi"]
        if "rows_half" in view:
            return view["rows_half"] + user_half
        return torch.baddbmm(user_half, view["rows_mlp"], view["w1_item"].mT)

    def _forward(
        self, view: Tensors, user: Float[Tensor, "C d"]
    ) -> tuple[Float[Tensor, "C K 1"], Float[Tensor, "C K g"], list[Float[Tensor, "C K _"]]]:
        gmf = view["rows_gmf"] * user[:, None, : self.gmf_dim]
        inputs = self._tower(view, self._first(view, user))
        return _output(gmf, view["out_gmf"]) + _output(inputs[-1], view["out_mlp"]) + view["out_bias"], gmf, inputs

    def _tower(self, view: Tensors, z1: Float[Tensor, "C K h"]) -> list[Float[Tensor, "C K _"]]:
        """Activations of every layer; z1 is overwritten."""
        activations = [z1.relu_()]
        for layer in range(2, len(self.hidden) + 1):
            activations.append(_affine(activations[-1], view[f"w{layer}"], view[f"b{layer}"]).relu_())
        return activations

    def scores(self, view: Tensors, user: Float[Tensor, "C d"]) -> Float[Tensor, "C K"]:
        """Logits at the shared point; the rows of the view are overwritten."""
        gmf = view["rows_gmf"].mul_(user[:, None, : self.gmf_dim]) @ view["out_gmf"]
        h = self._tower(view, view["rows_half"].add_(self._user_half(view, user)[:, None]))[-1]
        return (gmf + h @ view["out_mlp"] + view["out_bias"]).squeeze(2)

    def signals(
        self, view: Tensors, user: Float[Tensor, "C d"], labels: Float[Tensor, "C K"], weights: Float[Tensor, "C K"]
    ) -> tuple[Float[Tensor, " C"], Signals]:
        """Weighted binary cross-entropy of each client, and what its gradients are made of."""
        logit, gmf, activations = self._forward(view, user)
        losses = F.binary_cross_entropy_with_logits(logit.squeeze(2), labels, weight=weights, reduction="none").sum(1)
        error = (weights * (torch.sigmoid(logit.squeeze(2)) - labels)).unsqueeze(2)
        errors: list[Tensor] = []
        back = error * view["out_mlp"].mT
        for layer in range(len(self.hidden), 0, -1):
            torch.ops.aten.threshold_backward.grad_input(back, activations[layer - 1], 0, grad_input=back)  # ReLU
            errors.insert(0, back)
            if layer > 1:
                back = back @ view[f"w{layer}"]
        return losses, Signals(gmf, [view["rows_mlp"], *activations], errors, error)

    def user_gradient(self, view: Tensors, signals: Signals) -> Float[Tensor, "C d"]:
        """∇L with respect to (u1, u2), where the network is shared by all clients."""
        gmf = (signals.error.mT @ view["rows_gmf"]).squeeze(1) * view["out_gmf"].T
        return torch.cat([gmf, signals.errors[0].sum(1) @ view["w1_user"]], dim=1)

    def _row_gradients(self, view: Tensors, user: Float[Tensor, "C d"], signals: Signals) -> Tensors:
        gmf = user[:, None, : self.gmf_dim] * view["out_gmf"].mT
        return {"rows_gmf": signals.error * gmf, "rows_mlp": signals.errors[0] @ view["w1_item"]}

    def shared_gradients(self, view: Tensors, user: Float[Tensor, "C d"], signals: Signals) -> Tensors:
        """∇L of each client with respect to its view, in the coordinates of the view: for norms and perturbations."""
        gradients = {
            **self._row_gradients(view, user, signals),
            "phi": self._stretch(user) * signals.errors[0].sum(1, keepdim=True),
            "w1_item": signals.errors[0].mT @ signals.inputs[0],
            "out_gmf": _weighted_sum(signals.gmf, signals.error),
            "out_mlp": _weighted_sum(signals.inputs[-1], signals.error),
            "out_bias": signals.error.sum(1, keepdim=True),
        }
        for layer in range(2, len(self.hidden) + 1):
            gradients[f"w{layer}"] = signals.errors[layer - 1].mT @ signals.inputs[layer - 1]
            gradients[f"b{layer}"] = signals.errors[layer - 1].sum(1, keepdim=True)
        return gradients

    def upload(
        self, view: Tensors, user: Float[Tensor, "C d"], signals: Signals
    ) -> tuple[dict[str, Tensor | Factors], Tensors]:
        """∇L of each client with respect to the shared tensors: the network, as factors, and its item rows."""
        rows = self._row_gradients(view, user, signals)
        first = signals.errors[0].sum(1, keepdim=True)
        network: dict[str, Tensor | Factors] = {
            "w1_user": Factors(first, user[:, None, self.gmf_dim :]),
            "w1_item": Factors(signals.errors[0], signals.inputs[0]),
            "b1": first,
            "out_gmf": _weighted_sum(signals.gmf, signals.error),
            "out_mlp": _weighted_sum(signals.inputs[-1], signals.error),
            "out_bias": signals.error.sum(1, keepdim=True),
        }
        for layer in range(2, len(self.hidden) + 1):
            network[f"w{layer}"] = Factors(signals.errors[layer - 1], signals.inputs[layer - 1])
            network[f"b{layer}"] = signals.errors[layer - 1].sum(1, keepdim=True)
        return network, {"item_gmf": rows["rows_gmf"], "item_mlp": rows["rows_mlp"]}


def _affine(x: Float[Tensor, "C K i"], weight: Tensor, bias: Tensor) -> Float[Tensor, "C K o"]:
    """X Wᵀ + b in one operation, for a shared [o, i] or a per-client [C, o, i] matrix."""
    return F.linear(x, weight, bias[0]) if weight.dim() == 2 else torch.baddbmm(bias, x, weight.mT)


def _output(x: Float[Tensor, "C K i"], weight: Tensor) -> Float[Tensor, "C K 1"]:
    """X w for shared [i, 1] or per-client [C, i, 1] weights, for which a sum is faster than many small products."""
    return x @ weight if weight.dim() == 2 else (x * weight.mT).sum(2, keepdim=True)


def _weighted_sum(x: Float[Tensor, "C K i"], weights: Float[Tensor, "C K 1"]) -> Float[Tensor, "C i 1"]:
    """Xᵀ w, multiplied from the side on which memory is read in order."""
    return (weights.mT @ x).mT
