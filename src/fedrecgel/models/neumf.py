"""NeuMF (He et al., 2017) over a client axis, with its gradients written out.

For user vectors u = (u1, u2) and item rows v1, v2::

    z1 = W1_item v2 + (W1_user u2 + b1)        h1 = relu(z1)
    z2 = W2 h1 + b2, z3 = W3 h2 + b3           h = relu(z), layer by layer
    logit = out_gmf · (u1 * v1) + out_mlp · h3 + out_bias

Two facts keep this cheap. The item half of layer 1 is the same for all clients, so it is computed once per item and
gathered. And a client meets W1_user and b1 only through `a φ = W1_user u2 + b1` with `a = sqrt(1 + ‖u2‖²)`: the
gradient with respect to (W1_user, b1) has rank one, and φ is the coordinate in which its norm is the plain norm. So the
matrices W1_user of the clients are never built.

A point holds what a client sees of the shared tensors: its item rows [C, K, d], φ [C, 1, h], and the network, without
a client axis as long as all clients share it. Weight matrices are [out, in], biases [1, out], output weights [in, 1].
`logits` is the same model without these economies, for clients that have a network of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding, linear

from fedrecgel.models.base import INIT_SD, Model
from fedrecgel.models.gradients import Gradients, LocalLoss, Part, Point, sam_gradients
from fedrecgel.models.kernels import kernels_allowed
from fedrecgel.models.kernels.neumf import Kernel, kernel
from fedrecgel.numerics.losses import bce
from fedrecgel.numerics.optim import EPS
from fedrecgel.tensors import Factors, Tensors


@dataclass(frozen=True)
class NeuMFPoint(Point):
    """A point, with the user's half of layer 1 folded in as φ."""

    half: Float[Tensor, "C K h"] | None
    """W1_item v2 of each row, gathered; None where a client moved them."""

    def with_shared(self, moved: Tensors) -> NeuMFPoint:
        """The point with some of the tensors moved, each client's on its own."""
        return replace(self, shared={**self.shared, **moved}, half=None)


@dataclass(frozen=True, kw_only=True)
class NeuMF(Model):
    """A product and a tower of three layers."""

    tables: ClassVar[tuple[str, ...]] = ("item_gmf", "item_mlp")
    network: ClassVar[tuple[str, ...]] = (
        *("w1_user", "w1_item", "b1", "w2", "b2", "w3", "b3"),
        *("out_gmf", "out_mlp", "out_bias"),
    )

    hidden: tuple[int, int, int] = (128, 64, 32)
    """Widths of the tower's layers."""

    @property
    def user_dim(self) -> int:
        """u1 and u2 side by side."""
        return self.gmf_dim + self.mlp_dim

    @property
    def kernel(self) -> Kernel | None:
        """The compiled back end for these sizes, if it can be built here."""
        return kernel(self.gmf_dim, self.mlp_dim, self.hidden)

    def _kernel(self, like: Tensor) -> Kernel | None:
        return self.kernel if kernels_allowed(like) else None

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

    def logits(self, own: Tensors) -> Float[Tensor, "C K"]:
        """Scores where every client has a copy of its own of everything."""
        user = own["user"][:, None]
        first = user[:, :, self.gmf_dim :] @ own["w1_user"].mT + own["b1"]
        hidden = torch.baddbmm(first, own["item_mlp"], own["w1_item"].mT).relu()
        for layer in (2, 3):
            hidden = torch.baddbmm(own[f"b{layer}"], hidden, own[f"w{layer}"].mT).relu()
        gmf = user[:, :, : self.gmf_dim] * own["item_gmf"]
        return (gmf @ own["out_gmf"] + hidden @ own["out_mlp"] + own["out_bias"]).squeeze(2)

    def prepare(self, shared: Tensors) -> Tensors:
        """Add W1_item v2 of every item: computed once a round, then gathered."""
        compiled = self._kernel(shared["item_mlp"])
        half = compiled.item_half(shared) if compiled else shared["item_mlp"] @ shared["w1_item"].T
        return {**shared, "item_half": half}

    def scores(self, shared: Tensors, user: Float[Tensor, "C d"], items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """Logits at the shared point."""
        if compiled := self._kernel(user):
            return compiled.scores(shared, user, items)
        gmf = embedding(items, shared["item_gmf"]).mul_(user[:, None, : self.gmf_dim]) @ shared["out_gmf"]
        z1 = embedding(items, shared["item_half"]).add_(self._user_half(shared, user)[:, None])
        return (gmf + _tower(shared, z1)[-1] @ shared["out_mlp"] + shared["out_bias"]).squeeze(2)

    def gradients(
        self,
        shared: Tensors,
        user: Float[Tensor, "C d"],
        loss: LocalLoss,
        rho_ur: float = 0.0,
        rho_co: float = 0.0,
        of: Part = "both",
        balls: Sequence[str] = (),
    ) -> Gradients:
        """∇L at the worst points of radius (ρ_ur, ρ_co); a compiled back end sums the network's over clients."""
        if of == "both" and not balls and (compiled := self._kernel(user)):
            return compiled.gradients(shared, user, loss, rho_ur, rho_co)
        with torch.no_grad():  # written out, so there is nothing for autograd to keep books of
            return sam_gradients(self, shared, user, loss, rho_ur, rho_co, of, balls)

    def adam(
        self, shared: Tensors, gradients: Tensors, moments: Tensors, lr: float, eps: float = EPS
    ) -> tuple[Tensors, Tensors]:
        """One Adam step of the shared tensors."""
        compiled = self._kernel(shared["item_mlp"])
        return (compiled.server_adam if compiled else super().adam)(shared, gradients, moments, lr, eps)

    def point(self, shared: Tensors, rows: Int[Tensor, "C K"], user: Float[Tensor, "C d"]) -> NeuMFPoint:
        """Where clients stand who see these rows of the shared tensors."""
        seen = {name: shared[name] for name in self.network}
        seen |= {name: embedding(rows, shared[name]) for name in self.tables}
        return self.with_user(NeuMFPoint(seen, user, embedding(rows, shared["item_half"])), user)

    def with_user(self, point: Point, user: Float[Tensor, "C d"]) -> NeuMFPoint:
        """The point with other user vectors, where all clients share the network."""
        phi = self._user_half(point.shared, user)[:, None] / self.stretch(user)
        return replace(point, shared={**point.shared, "phi": phi}, user=user)  # type: ignore[return-value]

    def _user_half(self, shared: Tensors, user: Float[Tensor, "C d"]) -> Float[Tensor, "C h"]:
        return user[:, self.gmf_dim :] @ shared["w1_user"].T + shared["b1"]

    def stretch(self, user: Float[Tensor, "C d"]) -> Float[Tensor, "C 1 1"]:
        """The number a of each client."""
        return (1 + user[:, self.gmf_dim :].square().sum(1)).sqrt()[:, None, None]

    def _first(self, point: NeuMFPoint) -> Float[Tensor, "C K h"]:
        """z1, whose item half is gathered at the shared point and computed where a client moved it."""
        user_half = self.stretch(point.user) * point.shared["phi"]
        if point.half is not None:
            return point.half + user_half
        return torch.baddbmm(user_half, point.shared["item_mlp"], point.shared["w1_item"].mT)

    def differentiate(self, point: Point, loss: LocalLoss) -> NeuMFSlopes:
        """∇L at a point, written out."""
        if not isinstance(point, NeuMFPoint):
            raise TypeError("a point of NeuMF comes from its own `point`")
        seen = point.shared
        gmf = seen["item_gmf"] * point.user[:, None, : self.gmf_dim]
        activations = _tower(seen, self._first(point))
        logit = _output(gmf, seen["out_gmf"]) + _output(activations[-1], seen["out_mlp"]) + seen["out_bias"]
        losses, slope = bce(logit.squeeze(2), loss.labels, loss.weights)
        error = slope.unsqueeze(2)
        errors: list[Tensor] = []
        back = error * seen["out_mlp"].mT
        for layer in (3, 2, 1):
            torch.ops.aten.threshold_backward.grad_input(back, activations[layer - 1], 0, grad_input=back)  # ReLU
            errors.insert(0, back)
            if layer > 1:
                back = back @ seen[f"w{layer}"]
        return NeuMFSlopes(self, point, losses, gmf, [seen["item_mlp"], *activations], errors, error)


@dataclass(frozen=True)
class NeuMFSlopes:
    """The forward and backward quantities of one pass, and the gradients made of them."""

    model: NeuMF
    point: NeuMFPoint
    loss: Float[Tensor, " C"]
    gmf: Float[Tensor, "C K g"]
    inputs: list[Float[Tensor, "C K _"]]
    """Of each layer of the tower: v2, h1, h2, and last the tower's output."""
    errors: list[Float[Tensor, "C K _"]]
    """∂L/∂z of each layer."""
    error: Float[Tensor, "C K 1"]
    """∂L/∂logit."""

    def user(self) -> Float[Tensor, "C d"]:
        """By (u1, u2), where the network is shared by all clients."""
        seen = self.point.shared
        gmf = (self.error.mT @ seen["item_gmf"]).squeeze(1) * seen["out_gmf"].T
        return torch.cat([gmf, self.errors[0].sum(1) @ seen["w1_user"]], dim=1)

    def _rows(self) -> Tensors:
        seen, u1 = self.point.shared, self.point.user[:, None, : self.model.gmf_dim]
        return {"item_gmf": self.error * (u1 * seen["out_gmf"].mT), "item_mlp": self.errors[0] @ seen["w1_item"]}

    def _output(self) -> Tensors:
        return {
            "out_gmf": _weighted_sum(self.gmf, self.error),
            "out_mlp": _weighted_sum(self.inputs[-1], self.error),
            "out_bias": self.error.sum(1, keepdim=True),
        }

    def seen(self) -> Tensors:
        """By what the client sees, φ instead of W1_user and b1."""
        gradients = {
            **self._rows(),
            "phi": self.model.stretch(self.point.user) * self.errors[0].sum(1, keepdim=True),
            "w1_item": self.errors[0].mT @ self.inputs[0],
            **self._output(),
        }
        for layer in (2, 3):
            gradients[f"w{layer}"] = self.errors[layer - 1].mT @ self.inputs[layer - 1]
            gradients[f"b{layer}"] = self.errors[layer - 1].sum(1, keepdim=True)
        return gradients

    def sent(self) -> tuple[dict[str, Tensor | Factors], Tensors]:
        """By the shared tensors: matrices of the network as factors, and item rows."""
        rows, first = self._rows(), self.errors[0].sum(1, keepdim=True)
        network: dict[str, Tensor | Factors] = {
            "w1_user": Factors(first, self.point.user[:, None, self.model.gmf_dim :]),
            "w1_item": Factors(self.errors[0], self.inputs[0]),
            "b1": first,
            **self._output(),
        }
        for layer in (2, 3):
            network[f"w{layer}"] = Factors(self.errors[layer - 1], self.inputs[layer - 1])
            network[f"b{layer}"] = self.errors[layer - 1].sum(1, keepdim=True)
        return network, rows


def _tower(seen: Tensors, z1: Float[Tensor, "C K h"]) -> list[Float[Tensor, "C K _"]]:
    """Activations of every layer; z1 is overwritten."""
    activations = [z1.relu_()]
    for layer in (2, 3):
        activations.append(_affine(activations[-1], seen[f"w{layer}"], seen[f"b{layer}"]).relu_())
    return activations


def _affine(x: Float[Tensor, "C K i"], weight: Tensor, bias: Tensor) -> Float[Tensor, "C K o"]:
    """X Wᵀ + b in one operation, for a shared [o, i] or a per-client [C, o, i] matrix."""
    return linear(x, weight, bias[0]) if weight.dim() == 2 else torch.baddbmm(bias, x, weight.mT)


def _output(x: Float[Tensor, "C K i"], weight: Tensor) -> Float[Tensor, "C K 1"]:
    """X w for shared [i, 1] or per-client [C, i, 1] weights, for which a sum is faster than many small products."""
    return x @ weight if weight.dim() == 2 else (x * weight.mT).sum(2, keepdim=True)


def _weighted_sum(x: Float[Tensor, "C K i"], weights: Float[Tensor, "C K 1"]) -> Float[Tensor, "C i 1"]:
    """Xᵀ w, multiplied from the side on which memory is read in order."""
    return (weights.mT @ x).mT
