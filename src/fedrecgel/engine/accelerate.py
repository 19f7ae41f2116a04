"""`local.accelerate`: the same client updates through a native kernel, where there is one; else the method as it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from fedrecgel.data.federation import ClientBatch
from fedrecgel.draws import Draws
from fedrecgel.methods.base import ClientResult, Download, Method, Server, Upload
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.models.kernels.compiler import library, padded_size, usable
from fedrecgel.models.kernels.contrast import native_contrast
from fedrecgel.models.kernels.neumf import kernel
from fedrecgel.tables import State
from fedrecgel.tensors import Tensors


def accelerated(method: Method) -> Method | None:
    """A method with the same results, or None where no kernel fits or none can be built.

    Uploads of FedNCF and FedRecGEL are summed over clients already, so they serve a simulator whose channel would only
    add them up.
    """
    if type(method) is CoFedRec and method.reg > 0 and library("contrast.cpp", D=method.dim):
        return NativeCoFedRec(**asdict(method))
    if type(method) is FedMF and library("factors.cpp", D=padded_size(method.dim)):
        return NativeFedMF(**asdict(method))
    if not isinstance(method, FedNCF) or method.weighting != "uniform" or kernel(method.model) is None:
        return None
    if type(method) is FedNCF:
        return NativeFedNCF(**asdict(method))
    if type(method) is FedRecGEL and method.order == "joint" and method.g_norm == 0:
        return NativeFedRecGEL(**asdict(method))
    return None


def _native_update(
    method: FedNCF, rho_co: float, rho_ur: float, private: State, down: Download, batch: ClientBatch
) -> ClientResult | None:
    compiled, user = kernel(method.model), private["user"]
    if compiled is None or not usable(user.dtype, user.device):
        return None
    weights = batch.row_weights(method.chunk if method.reduction == "chunks" else None)
    lengths = batch.row_mask.sum(1)
    found = compiled.gradients(down.shared, user, batch.rows, lengths, batch.row_labels, weights, rho_co, rho_ur)
    upload = Upload(batch.ids, found.dense, found.rows, batch.rows, method.client_weights(batch))
    return ClientResult(method.step_user(private, found.user), upload, found.loss)


class NativeScores(FedNCF):
    """What both methods do beside a client update, through the kernel."""

    def footprint(self, n_examples: Int[Tensor, " C"], n_items: int) -> Int[Tensor, " C"]:
        """The kernel keeps item rows of a chunk, but activations of one block only."""
        return (n_examples + 7) // 8

    def unpack(self, shared: Tensors) -> Tensors:
        """As FedNCF."""
        compiled = kernel(self.model)
        if compiled is None or not usable(shared["item_mlp"].dtype, shared["item_mlp"].device):
            return super().unpack(shared)
        return {**shared, "item_half": compiled.item_half(shared)}

    def step_server(self, server: Server, gradient: Tensors) -> Server:
        """As FedNCF."""
        compiled, table = kernel(self.model), server.shared["item_mlp"]
        if self.server_optimiser != "adam" or compiled is None or not usable(table.dtype, table.device):
            return super().step_server(server, gradient)
        return Server(*compiled.server_adam(server.shared, gradient, server.kept, self.server_lr))

    def score(self, private: State, down: Download, items: Int[Tensor, "C M"]) -> Float[Tensor, "C M"]:
        """As FedNCF."""
        compiled, user = kernel(self.model), private["user"]
        if compiled is None or not usable(user.dtype, user.device):
            return super().score(private, down, items)
        return compiled.scores(down.shared, user, items)


@dataclass(frozen=True, kw_only=True)
class NativeFedNCF(NativeScores):
    """FedNCF through the kernel."""

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """As FedNCF; on another device or in double precision literally so."""
        native = _native_update(self, 0.0, 0.0, private, down, batch)
        return super().client_update(private, down, batch, round, draws) if native is None else native


@dataclass(frozen=True, kw_only=True)
class NativeFedRecGEL(NativeScores, FedRecGEL):
    """FedRecGEL through the kernel."""

    def client_update(
        self, private: State, down: Download, batch: ClientBatch, round: int, draws: Draws
    ) -> ClientResult:
        """As FedRecGEL; on another device or in double precision literally so."""
        native = _native_update(self, self.rho_co, self.rho_ur, private, down, batch)
        return super().client_update(private, down, batch, round, draws) if native is None else native


@dataclass(frozen=True, kw_only=True)
class NativeCoFedRec(CoFedRec):
    """CoFedRec with the contrastive term through its kernel."""

    def contrast(
        self, tables: Float[Tensor, "C n d"], labels: Int[Tensor, " n"], anchors: Int[Tensor, " a"] | None
    ) -> tuple[Float[Tensor, " C"], Float[Tensor, "C n d"]]:
        """As CoFedRec; on another device or in double precision literally so."""
        if not usable(tables.dtype, tables.device):
            return super().contrast(tables, labels, anchors)
        return native_contrast(
            tables, labels, anchors, temperature=self.temperature, base_temperature=self.base_temperature
        )


@dataclass(frozen=True, kw_only=True)
class NativeFedMF(FedMF):
    """FedMF with the walk through the examples as a kernel."""

    def footprint(self, n_examples: Int[Tensor, " C"], n_items: int) -> Int[Tensor, " C"]:
        """No step of the kernel is too small, so that chunks may be."""
        return n_examples // 4

    def walk(
        self, user: Float[Tensor, "C d"], rows: Float[Tensor, "C K d"], batch: ClientBatch, counts: Bool[Tensor, "C L"]
    ) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C K d"], Float[Tensor, " C"]]:
        """As FedMF; on another device or in double precision literally so."""
        size = padded_size(self.dim)
        compiled = library("factors.cpp", D=size)
        if compiled is None or not usable(user.dtype, user.device):
            return super().walk(user, rows, batch, counts)
        user, rows = (pad(value, (0, size - self.dim)) for value in (user, rows))  # zeros stay zeros all the way
        walked, gradient, loss = torch.empty_like(user), torch.empty_like(rows), user.new_empty(len(user))
        sizes = (*counts.shape, rows.shape[1], self.loss == "squared", self.repeated == "last")
        read, numbers = (user, rows, batch.slots, batch.labels, counts), (self.lr, self.reg_user, self.reg_item)
        compiled.call("walk", sizes, read, numbers, (walked, gradient, loss))
        return walked[:, : self.dim], gradient[:, :, : self.dim], loss
