"""neumf.cpp, the native kernel of FedNCF and FedRecGEL."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from fedrecgel.models.gradients import Gradients, LocalLoss
from fedrecgel.models.kernels.compiler import Library, Recipe, library
from fedrecgel.numerics.optim import BETA1, BETA2, EPS
from fedrecgel.tensors import Summed, Tensors

NETWORK = ("item_half", "w1_user", "w1_item", "b1", "w2", "b2", "w3", "b3", "out_gmf", "out_mlp", "out_bias")
"""Shared tensors in the order of the kernel's arguments."""
SUMMED = NETWORK[1:]
"""Their gradients come back as sums over clients."""


class Kernel:
    """The compiled functions for a model of certain sizes."""

    def __init__(self, library: Library, gmf_dim: int, mlp_dim: int, first: int) -> None:
        self._library, self._gmf_dim, self._mlp_dim, self._first = library, gmf_dim, mlp_dim, first

    def gradients(
        self, shared: Tensors, user: Float[Tensor, "C d"], loss: LocalLoss, rho_ur: float, rho_co: float
    ) -> Gradients:
        """Both sharpness-aware gradients of C clients at (θ_co, θ_ur); radius 0 gives the plain gradient."""
        (clients, width), new = loss.rows.shape, user.new_empty
        value, g_ur = new(clients), new(user.shape)
        row_gmf, row_mlp = (new(clients, width, size) for size in (self._gmf_dim, self._mlp_dim))
        sums = {name: user.new_zeros(shared[name].shape) for name in SUMMED}
        clicks = (loss.mask.sum(1), loss.rows, loss.labels, loss.weights)
        read = (*clicks, user, shared["item_gmf"], shared["item_mlp"], *_network(shared))
        written = (value, g_ur, row_gmf, row_mlp, *sums.values())
        self._library.call("neumf_gradients", (clients, width), read, (rho_co, rho_ur), written)
        network = {name: Summed(total) for name, total in sums.items()}
        return Gradients(value, g_ur, network, {"item_gmf": row_gmf, "item_mlp": row_mlp})

    def scores(self, shared: Tensors, user: Float[Tensor, "C d"], items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """Logits."""
        scores = user.new_empty(items.shape)
        network = [value for name, value in zip(NETWORK, _network(shared), strict=True) if name != "w1_item"]
        self._library.call("neumf_scores", items.shape, (items, user, shared["item_gmf"], *network), (), (scores,))
        return scores

    def item_half(self, shared: Tensors) -> Float[Tensor, "n h"]:
        """W1_item v2 of every item."""
        table = shared["item_mlp"]
        half = table.new_empty(len(table), self._first)
        self._library.call("neumf_item_half", (len(table),), (table, shared["w1_item"]), (), (half,))
        return half

    def server_adam(
        self, parameters: Tensors, gradients: Tensors, moments: Tensors, lr: float, eps: float = EPS
    ) -> tuple[Tensors, Tensors]:
        """As `optim.server_adam`, in one pass over memory."""
        step = int(moments["step"]) + 1
        numbers = (1 - BETA1, BETA2, 1 - BETA2, eps, lr / (1 - BETA1**step), (1 - BETA2**step) ** 0.5)
        new, kept = {}, {"step": moments["step"] + 1}
        for name, value in parameters.items():
            read = (value, gradients[name], moments[f"{name}.m"], moments[f"{name}.v"])
            written = tuple(value.new_empty(value.shape) for _ in range(3))
            self._library.call("adam", (value.numel(),), read, numbers, written)
            new[name], kept[f"{name}.m"], kept[f"{name}.v"] = written
        return new, kept


def _network(shared: Tensors) -> list[Tensor]:
    return [shared[name] for name in NETWORK]


def recipe(gmf_dim: int, mlp_dim: int, hidden: tuple[int, int, int]) -> Recipe | None:
    """The kernel for a model of these sizes; None if there is none."""
    first, second, third = hidden
    return Recipe.of("neumf.cpp", G=gmf_dim, M=mlp_dim, H1=first, H2=second, H3=third)


def kernel(gmf_dim: int, mlp_dim: int, hidden: tuple[int, int, int]) -> Kernel | None:
    """The same, compiled; None if that fails here."""
    found = library(recipe(gmf_dim, mlp_dim, hidden))
    return None if found is None else Kernel(found, gmf_dim, mlp_dim, hidden[0])
