"""Gradients of a model's loss over a client axis, and sharpness-aware ones (Foret et al., 2021; Eq. 1-3 of the paper).

Every client has a copy of its own of whatever it differentiates or perturbs, so clients share nothing and one backward
pass serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedrecgel.numerics.losses import bce
from fedrecgel.tensors import Factors, Summed, Tensors, client_norm

EPSILON = 1e-12  # keeps a zero gradient at a zero perturbation
Part = Literal["both", "user", "shared"]


class LocalLoss(NamedTuple):
    """What clients minimise: the weighted cross-entropy of their distinct items."""

    rows: Int[Tensor, "C K"]
    """Which items."""
    mask: Bool[Tensor, "C K"]
    """False for padding."""
    labels: Float[Tensor, "C K"]
    weights: Float[Tensor, "C K"]
    """0 for padding."""


@dataclass(frozen=True)
class Point:
    """Where clients stand in parameter space."""

    shared: Tensors
    """What they see of the shared tensors: rows of tables [C, K, d], and the network with or without a client axis."""
    user: Float[Tensor, "C d"]

    def with_shared(self, moved: Tensors) -> Point:
        """The point with some of these tensors moved, each client's on its own."""
        return replace(self, shared={**self.shared, **moved})


class Gradients(NamedTuple):
    """What a client update needs of a model."""

    loss: Float[Tensor, " C"]
    user: Float[Tensor, "C d"]
    network: Mapping[str, Tensor | Factors | Summed]
    """[C, ...] each, for every shared tensor that is no table."""
    rows: Tensors
    """[C, K, d] each, for every table."""


@runtime_checkable
class Slopes(Protocol):
    """∇L of each client at a point; parts that nobody asks for need not be computed."""

    @property
    def loss(self) -> Float[Tensor, " C"]:
        """L."""

    def user(self) -> Float[Tensor, "C d"]:
        """By the user vector."""

    def seen(self) -> Tensors:
        """By `Point.shared`, [C, ...] each in memory of its own: for norms and perturbations."""

    def sent(self) -> tuple[Mapping[str, Tensor | Factors | Summed], Tensors]:
        """By the shared tensors, as they leave the device: the network, and rows of tables."""


@runtime_checkable
class Differentiable(Protocol):
    """A model, as far as its gradients are concerned."""

    def point(self, shared: Tensors, rows: Int[Tensor, "C K"], user: Float[Tensor, "C d"]) -> Point:
        """Where clients stand who see these rows of the shared tensors."""

    def with_user(self, point: Point, user: Float[Tensor, "C d"]) -> Point:
        """The point with other user vectors."""

    def differentiate(self, point: Point, loss: LocalLoss) -> Slopes:
        """∇L there."""


def sam_gradients(
    model: Differentiable,
    shared: Tensors,
    user: Float[Tensor, "C d"],
    loss: LocalLoss,
    rho_ur: float,
    rho_co: float,
    of: Part,
    balls: Sequence[str] = (),
) -> Gradients:
    """∇L of each client at the worst points near (θ_co, θ_ur); radius 0 gives the plain gradient.

    Args:
        model: what scores.
        shared: θ_co, as `Model.prepare` returned it.
        user: θ_ur.
        loss: L.
        rho_ur: radius of the ball around the user vector.
        rho_co: radius of the ball around what the client sees of the shared tensors.
        of: which gradients are wanted; the others are empty.
        balls: tables whose items have a ball each; what is left of the shared tensors has one together.
    """
    point = model.point(shared, loss.rows, user)
    here = model.differentiate(point, loss)
    value, g_ur = here.loss, user[:0]
    if of != "shared":
        g_ur = here.user()
        if rho_ur > 0:
            worst = perturb_in_place({"user": user}, {"user": g_ur.clone()}, rho_ur)["user"]  # Eq. 11
            g_ur = model.differentiate(model.with_user(point, worst), loss).user()  # Eq. 12
    if of == "user":
        return Gradients(value, g_ur, {}, {})
    if rho_co > 0:
        point = point.with_shared(perturb_in_place(point.shared, here.seen(), rho_co, balls))  # Eq. 14
        del here  # its memory serves the next pass
        here = model.differentiate(point, loss)  # Eq. 15
    return Gradients(value, g_ur, *here.sent())


def perturb_in_place(parameters: Tensors, gradients: Tensors, rho: float, balls: Sequence[str] = ()) -> Tensors:
    """The worst point of a ball of radius rho, to first order: θ + ε*, ε* = ρ ∇L / ‖∇L‖ (Eq. 2).

    Args:
        parameters: with or without a client axis.
        gradients: [C, ...] per client; one norm over all tensors of a client together. Their memory takes the result.
        rho: radius of the ball.
        balls: tables [C, K, d] whose rows have balls of their own: one for each item, over all these tables.

    Every tensor that has a gradient comes back perturbed, [C, ...].
    """
    if balls:
        items = {name: gradients[name].flatten(0, 1) for name in balls}  # each item of each client moves on its own
        rest = {name: g for name, g in gradients.items() if name not in balls}
        moved = perturb_in_place({name: parameters[name].flatten(0, 1) for name in balls}, items, rho)
        apart = {name: value.view_as(gradients[name]) for name, value in moved.items()}
        return {**(perturb_in_place(parameters, rest, rho) if rest else {}), **apart}
    scale = rho / (client_norm(gradients) + EPSILON)
    return {
        name: torch.addcmul(parameters[name], scale.view(-1, *[1] * (g.dim() - 1)), g, out=g)
        for name, g in gradients.items()
    }


def differentiate(
    logits: Callable[[Tensors], Float[Tensor, "C K"]],
    own: Tensors,
    labels: Float[Tensor, "C K"],
    weights: Float[Tensor, "C K"],
    *,
    saturating: bool = False,
) -> tuple[Float[Tensor, " C"], Tensors]:
    """Cross-entropy of each client and its gradient by every tensor of `own`, [C, ...] each, through autograd."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in own.items()}
        scores = logits(leaves)
        loss, slope = bce(scores.detach(), labels, weights, saturating=saturating)
        found = torch.autograd.grad(scores, list(leaves.values()), grad_outputs=slope)
    return loss, dict(zip(leaves, found, strict=True))
