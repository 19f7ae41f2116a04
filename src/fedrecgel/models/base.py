"""What a model is: parameters in, scores out, over a client axis.

Its parameters are the user vector, private to each client, and shared tensors: tables with a row for each item, of
which a client sees its own rows, and a network, of which it sees all. A model writes `init_shared` and `logits`;
gradients come from autograd unless it writes them out, too, as NeuMF does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from fedrecgel.models.gradients import Gradients, LocalLoss, Part, Point, Slopes, differentiate, sam_gradients
from fedrecgel.numerics.optim import EPS, server_adam
from fedrecgel.tensors import Tensors

INIT_SD = 0.01
"""Standard deviation of initial vectors."""


@dataclass(frozen=True, kw_only=True)
class Model(ABC):
    """The sizes of a model; parameters are passed in."""

    tables: ClassVar[tuple[str, ...]]
    """Shared tensors that have a row for each item."""
    network: ClassVar[tuple[str, ...]]
    """All other shared tensors, of two dimensions each."""

    gmf_dim: int = 32
    """Size of vectors that are multiplied."""
    mlp_dim: int = 128
    """Size of vectors that enter a tower."""

    @property
    @abstractmethod
    def user_dim(self) -> int:
        """Size of a user vector."""

    @abstractmethod
    def init_shared(self, n_items: int, generator: np.random.Generator) -> dict[str, npt.NDArray[np.float64]]:
        """Shared tensors before training."""

    @abstractmethod
    def logits(self, own: Tensors) -> Float[Tensor, "C K"]:
        """Scores of each client's rows: tables are [C, K, d], the network [C, …], and `user` is [C, d]."""

    def prepare(self, shared: Tensors) -> Tensors:
        """What a device computes from the download before it trains or scores."""
        return shared

    def scores(self, shared: Tensors, user: Float[Tensor, "C d"], items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """Scores of any items."""
        return self.logits(_copies(self.point(shared, items, user)))

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
        """∇L at the worst points of radius (ρ_ur, ρ_co); items of tables in `balls` have a ball each."""
        return sam_gradients(self, shared, user, loss, rho_ur, rho_co, of, balls)

    def adam(
        self, shared: Tensors, gradients: Tensors, moments: Tensors, lr: float, eps: float = EPS
    ) -> tuple[Tensors, Tensors]:
        """One Adam step of the shared tensors, on the server: new tensors and new moments."""
        return server_adam(shared, gradients, moments, lr, eps)

    def point(self, shared: Tensors, rows: Int[Tensor, "C K"], user: Float[Tensor, "C d"]) -> Point:
        """Where clients stand who see these rows of the shared tensors."""
        seen = {name: embedding(rows, shared[name]) for name in self.tables}
        return Point({**seen, **{name: shared[name] for name in self.network}}, user)

    def with_user(self, point: Point, user: Float[Tensor, "C d"]) -> Point:
        """The point with other user vectors."""
        return replace(point, user=user)

    def differentiate(self, point: Point, loss: LocalLoss) -> Slopes:
        """∇L at a point."""
        return AutogradSlopes(self.tables, *differentiate(self.logits, _copies(point), loss.labels, loss.weights))


def _copies(point: Point) -> Tensors:
    """Everything with a client axis; what clients have in common is expanded, not copied."""
    clients = len(point.user)
    own = {name: v if v.dim() == 3 else v.expand(clients, *v.shape) for name, v in point.shared.items()}
    return {**own, "user": point.user}


@dataclass(frozen=True)
class AutogradSlopes:
    """All gradients of one backward pass."""

    tables: tuple[str, ...]
    loss: Float[Tensor, " C"]
    found: Tensors

    def user(self) -> Float[Tensor, "C d"]:
        """By the user vector."""
        return self.found["user"]

    def seen(self) -> Tensors:
        """By what the client sees."""
        return {name: value.clone() for name, value in self.found.items() if name != "user"}

    def sent(self) -> tuple[Tensors, Tensors]:
        """The network, and rows of tables."""
        network = {name: value for name, value in self.found.items() if name not in (*self.tables, "user")}
        return network, {name: self.found[name] for name in self.tables}
