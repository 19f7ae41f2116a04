"""What a simulator knows of methods to be fast: how many clients it trains together, and where a compiled kernel helps.

Nothing here changes a result beyond rounding, and a method that is not mentioned works as well.
"""

from __future__ import annotations

from functools import singledispatch

import torch
from jaxtyping import Int
from torch import Tensor

from fedrecgel.methods.base import Method
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedncf_weights import FedNCFWeights
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.gpfedrec import GPFedRec
from fedrecgel.methods.spectra import Spectra
from fedrecgel.models.kernels import contrast, factors, guides
from fedrecgel.models.neumf import NeuMF


@singledispatch
def has_kernel(method: Method) -> bool:
    """Whether a compiled back end serves this method here, behind a channel that only adds uploads up."""
    return False


@has_kernel.register
def _(method: FedNCF) -> bool:
    """NeuMF's kernel sums over clients, so all must weigh the same; a class of somebody else may read them apart."""
    model, ours = method.backbone, type(method) in (FedNCF, FedRecGEL)
    return ours and _joint(method) and type(model) is NeuMF and model.kernel is not None


def _joint(method: FedNCF) -> bool:
    """Whether both gradients are taken at once, in one ball, as the kernel does, and every client counts the same."""
    one_ball = getattr(method, "balls", "client") == "client"
    return method.weighting == "uniform" and getattr(method, "order", "joint") == "joint" and one_ball


@has_kernel.register
def _(method: FedMF) -> bool:
    walks = method.updates == "each" and method.catalogue == 0
    return type(method) is FedMF and walks and factors.available(method.dim)


@has_kernel.register
def _(method: CoFedRec) -> bool:
    return type(method) is CoFedRec and method.reg > 0 and contrast.available(method.dim, method.temperature)


@has_kernel.register
def _(method: GPFedRec) -> bool:
    return type(method) is GPFedRec and guides.available(method.dim)


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
