"""What a simulator knows of methods to be fast: how many clients it trains together, and where a compiled kernel helps.

Nothing here changes a result beyond rounding, and a method that is not mentioned works as well.
"""

from __future__ import annotations

from functools import singledispatch

import torch
from jaxtyping import Int
from torch import Tensor

from fedrecgel.channels.base import Channel, Plain
from fedrecgel.methods.base import Method
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedncf_weights import FedNCFWeights
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.gpfedrec import GPFedRec
from fedrecgel.methods.spectra import Spectra
from fedrecgel.models.kernels import contrast, factors, guides, neumf
from fedrecgel.models.kernels.compiler import Recipe, library, usable
from fedrecgel.models.neumf import NeuMF


@singledispatch
def kernel_of(method: Method) -> Recipe | None:
    """The compiled back end that serves this method, behind a channel that only adds uploads up; None without one."""
    return None


@kernel_of.register
def _(method: FedNCF) -> Recipe | None:
    """NeuMF's kernel sums over clients, so all must weigh the same; a class of somebody else may read them apart."""
    model = method.backbone
    if type(method) not in (FedNCF, FedRecGEL) or not _joint(method) or type(model) is not NeuMF:
        return None
    return neumf.recipe(model.gmf_dim, model.mlp_dim, model.hidden)


def _joint(method: FedNCF) -> bool:
    """Whether both gradients are taken at once, in one ball, as the kernel does, and every client counts the same."""
    one_ball = getattr(method, "balls", "client") == "client"
    return method.weighting == "uniform" and getattr(method, "order", "joint") == "joint" and one_ball


@kernel_of.register
def _(method: FedMF) -> Recipe | None:
    walks = method.updates == "each" and method.catalogue == 0
    return factors.recipe(method.dim) if type(method) is FedMF and walks else None


@kernel_of.register
def _(method: CoFedRec) -> Recipe | None:
    contrasts = type(method) is CoFedRec and method.reg > 0
    return contrast.recipe(method.dim, method.temperature) if contrasts else None


@kernel_of.register
def _(method: GPFedRec) -> Recipe | None:
    return guides.recipe(method.dim) if type(method) is GPFedRec else None


def has_kernel(method: Method) -> bool:
    """Whether that is there, compiled if need be."""
    return library(kernel_of(method)) is not None


def kernel_for(method: Method, channel: Channel, dtype: torch.dtype, device: torch.device) -> Recipe | None:
    """The same for a run: what a kernel has summed can be neither masked nor encrypted one by one."""
    return kernel_of(method) if type(channel) is Plain and usable(dtype, device) else None


PRODUCT_SCORES = 1 << 22
"""Scores of the whole catalogue that one product makes: as many as stay in the last cache."""


def scores_at_once(method: Method, usual: int, *, compiled: bool, whole: bool) -> int:
    """Scores computed together where `usual` are of a method nothing is known of; a kernel cuts blocks itself."""
    if whole and method.scores_by_product:
        return max(usual, PRODUCT_SCORES)
    return (8 if compiled else 1) * usual


@singledispatch
def footprint(method: Method, n_examples: Int[Tensor, " C"], n_items: int, *, compiled: bool) -> Int[Tensor, " C"]:
    """How many examples' worth of memory each client takes: as many train together as fit the budget."""
    return n_examples


@footprint.register
def _(method: FedNCF, n_examples: Int[Tensor, " C"], n_items: int, *, compiled: bool) -> Int[Tensor, " C"]:
    """The kernel keeps item rows of a chunk, but activations of one block only."""
    return (n_examples + 7) // 8 if compiled else n_examples


@footprint.register
def _(method: FedMF, n_examples: Int[Tensor, " C"], n_items: int, *, compiled: bool) -> Int[Tensor, " C"]:
    """The loop over examples is long and every step of it small, except in the kernel."""
    return n_examples // (4 if compiled else 64)


@footprint.register
def _(method: FedNCFWeights, n_examples: Int[Tensor, " C"], n_items: int, *, compiled: bool) -> Int[Tensor, " C"]:
    """A network and its moments for each client take the room of some hundred examples."""
    return n_examples + 128


@footprint.register
def _(method: GPFedRec, n_examples: Int[Tensor, " C"], n_items: int, *, compiled: bool) -> Int[Tensor, " C"]:
    """A client fills its whole table, once."""
    return n_examples + n_items // 64


@footprint.register
def _(method: CoFedRec, n_examples: Int[Tensor, " C"], n_items: int, *, compiled: bool) -> Int[Tensor, " C"]:
    """A client trains its whole table; the kernel one after another, so that a few share what a chunk costs."""
    return torch.full_like(n_examples, max(1, n_items // (32 if compiled else 4)))


@footprint.register
def _(method: Spectra, n_examples: Int[Tensor, " C"], n_items: int, *, compiled: bool) -> Int[Tensor, " C"]:
    """With pairs, each own item of a client is a row over the whole catalogue."""
    return n_examples * (1 + (method.pair_cells(n_items) or n_items) // 256) if method.pairs else n_examples
