"""FedRecGEL: federated recommendation with generalised embedding learning.

Yu, Feng, Li, Zhang, Wang and Chen, "Sharpness-Aware Minimization for Generalized Embedding Learning in Federated
Recommendation", WWW 2026, https://doi.org/10.1145/3774904.3792579.

Idea: the users of an item are tasks, and flat minima generalise over tasks. So a client takes its gradients where the
loss is worst in a ball: radius ρ_ur around its user vector, ρ_co around the shared tensors; these the server averages.

Paper to code: ε_ur Eq. 11, g_ur Eq. 12, ε_co Eq. 14 and g_co Eq. 15 `models.gradients.sam_gradients`; step Eq. 13
`FedNCF.step_user`; Algorithm 1 `client_update` and `server_update`.

Deviations: the variant `released` follows the released code, `paper` Algorithm 1, with η = 1e-3, at which its g_norm
does not diverge; defaults add a spectral start and a falling rate. All draw 10% of the clients. The paper names neither
η nor this share. With both radii 0 this is FedNCF.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from fedrecgel.methods import author as fed
from fedrecgel.methods import spectral_start
from fedrecgel.methods.fedncf import RELEASED, FedNCF
from fedrecgel.numerics.pac_bayes import regulariser_slopes


@dataclass(frozen=True, kw_only=True)
class FedRecGEL(FedNCF):
    """FedNCF with hierarchical sharpness-aware gradients."""

    paper: ClassVar[str] = "Yu et al., WWW 2026"
    sends: ClassVar[frozenset[str]] = FedNCF.sends | {"g_norm"}
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "released": RELEASED | {"rho_co": 0.02, "rho_ur": 0.02},
        "paper": RELEASED
        | {"rho_co": 0.02, "rho_ur": 0.02, "order": "user-first", "reduction": "mean", "g_norm": 1.0}
        | {"user_optimiser": "sgd", "user_lr": 1e-3, "server_optimiser": "sgd", "server_lr": 1e-3},
    }
    search: ClassVar[Mapping[str, object]] = {
        "server_lr": {"low": 3e-4, "high": 1e-1, "log": True},
        "user_lr": {"low": 1e-2, "high": 1.0, "log": True},
        "rho_co": {"low": 1e-2, "high": 1.0, "log": True},
        "rho_ur": {"low": 1e-2, "high": 1.0, "log": True},
    }

    rho_co: fed.Radius = 0.02
    """Radius ρ_co of the ball around the shared tensors, Eq. 14; 0 switches it off (w/o-shared)."""
    rho_ur: fed.Radius = 0.02
    """Radius ρ_ur of the ball around the private user vector, Eq. 11; 0 switches it off (w/o-non-shared)."""
    balls: Literal["client", "item"] = "client"
    """One ball of radius ρ_co around all a client sees of the shared tensors, or one around each item and the rest."""
    order: Literal["joint", "user-first"] = "joint"
    """Both gradients at the old user vector (released code), or the shared one after the user step (Algorithm 1)."""
    g_norm: fed.Radius = 0.0
    """Multiplier of g_norm = ∇f^k (Algorithm 1, line 2): 1 is literal and shrinks weights to zero; the code has 0."""

    @property
    def server_needs(self) -> fed.Need:
        """With g_norm the server multiplies what it received."""
        return fed.Need.SUM if self.g_norm > 0 else super().server_needs

    def leaves_device(self) -> frozenset[str]:
        """What FedNCF sends, and the factor of g_norm if there is one."""
        return super().leaves_device() | ({"g_norm"} if self.g_norm > 0 else set())

    def client_update(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.ClientResult:
        """ClientUpdate of Algorithm 1."""
        if spectral_start.begins(down.shared):
            return super().client_update(private, down, batch, round, draws)
        model, user, loss = self.backbone, private["user"], self.local_loss(batch)
        shared, c = down.derive(model.prepare), self.decay(down.shared, user, batch)
        balls = model.tables if self.balls == "item" else ()
        if self.order == "joint":
            found = model.gradients(shared, user, loss, self.rho_ur, self.rho_co, balls=balls)  # Eq. 11, 12, 14 and 15
            stepped = self.step_user(private, found.user + c[:, None] * user, batch)  # Eq. 13
            upload = self.pack(found, batch)
        else:
            found = model.gradients(shared, user, loss, rho_ur=self.rho_ur, of="user")  # Eq. 11 and 12
            stepped = self.step_user(private, found.user + c[:, None] * user, batch)  # Eq. 13
            user = stepped["user"]
            after = model.gradients(shared, user, loss, rho_co=self.rho_co, of="shared", balls=balls)  # Eq. 14 and 15
            upload = self.pack(after, batch)
        if self.g_norm > 0:
            upload = replace(upload, dense={**upload.dense, "g_norm": c})
        return fed.ClientResult(stepped, upload, found.loss)

    def local_round(
        self, private: fed.State, down: fed.Download, batch: fed.ClientBatch, round: int, draws: fed.Draws
    ) -> fed.State:
        """Eq. 11 to 13 alone, as the shared part stays as it is."""
        user, shared = private["user"], down.derive(self.backbone.prepare)
        found = self.backbone.gradients(shared, user, self.local_loss(batch), rho_ur=self.rho_ur, of="user")
        return self.step_user(private, found.user + self.decay(down.shared, user, batch)[:, None] * user, batch)

    def decay(self, shared: fed.Tensors, user: Float[Tensor, "C d"], batch: fed.ClientBatch) -> Float[Tensor, " C"]:
        """The number c with g_norm = c θ of each client; it travels instead of the dense c θ_co."""
        if self.g_norm == 0:
            return user.new_zeros(len(user))
        parameters = [shared[name] for name in sorted(shared)]  # one order in every process
        return self.g_norm * regulariser_slopes(parameters, user, batch.n_examples, self.rho_co, self.rho_ur)

    def server_update(self, server: fed.Server, inbox: fed.Inbox, round: int, draws: fed.Draws) -> fed.Server:
        """One step with the mean of g_co + g_norm."""
        if spectral_start.begins(server.shared):
            return self.start_server(server, inbox, round)
        mean = inbox.mean()
        if self.g_norm > 0:
            mean = {name: mean[name] + mean["g_norm"] * value for name, value in server.shared.items()}
        return self.step_server(server, mean, round)
