"""The generalisation bound of Lemma 2 for a trained run."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from fedrecgel.data.federation import ClientBatch, Federation
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.chunks import chunks_of
from fedrecgel.errors import ConfigError
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.models.gradients import perturb_in_place
from fedrecgel.numerics.pac_bayes import Bound, admissible_sigma, lemma2
from fedrecgel.runs.result import Result
from fedrecgel.tensors import Tensors


def generalisation_bound(
    result: Result, split: Split, *, gamma: float = 0.05, loss_bound: float | None = None
) -> Bound:
    """The right-hand side of Lemma 2, averaged over clients.

    S are the labelled examples of one more round: N counts them all, since all of them train the shared tensors. The
    inner maxima are taken as the method takes them, by one first-order step each, private part first. L is the largest
    loss of any client unless given. With millions of parameters the bound is vacuous; `Bound.vacuous` says so.

    Args:
        result: a run of FedRecGEL.
        split: the data it was trained on.
        gamma: the bound fails with at most this probability.
        loss_bound: an upper bound L of the loss.
    """
    method = result.config.method.build()
    if not isinstance(method, FedRecGEL) or min(method.rho_co, method.rho_ur) <= 0:
        raise ConfigError("Lemma 2 needs two positive radii: a run of fedrecgel with rho_co > 0 and rho_ur > 0.")
    if split.fingerprint != result.summary["protocol"]["fingerprint"]:
        raise ConfigError("The bound needs the split the run was trained on. Found another one.")
    method = replace(method, reduction="mean")
    draws = Draws(result.config.run.seed)
    federation = Federation(split, result.config.sampling, result.clients["user"].dtype)
    shared = method.backbone.prepare(result.shared)
    everyone = torch.arange(split.n_users)
    lengths, order = federation.n_examples(everyone).sort(descending=True)
    examples = federation.examples(order, result.config.run.rounds, draws)
    losses = []
    for chunk in chunks_of(lengths, result.config.local.chunk_examples):
        batch = examples.batch(*chunk)
        losses.append(_worst_case_loss(method, result.clients["user"][batch.ids], shared, batch))
    worst = torch.cat(losses).double()
    n_shared = sum(value.numel() for value in result.shared.values())
    n_private, n_records = result.clients["user"].shape[1], int(lengths.sum())
    squared_norm = sum(float(value.double().square().sum()) for value in result.shared.values())
    squared_norm += float(result.clients["user"].double().square().sum(1).mean())
    return lemma2(
        float(worst.mean()),
        squared_norm,
        n_parameters=n_shared + n_private,
        n_records=n_records,
        sigma=admissible_sigma(
            method.rho_co, method.rho_ur, n_shared=n_shared, n_private=n_private, n_records=n_records
        ),
        gamma=gamma,
        loss_bound=float(worst.max()) if loss_bound is None else loss_bound,
    )


def _worst_case_loss(
    method: FedRecGEL, user: Float[Tensor, "C d"], shared: Tensors, batch: ClientBatch
) -> Float[Tensor, " C"]:
    """The two maxima, each by one first-order step: the private part first, then the shared one."""
    model, loss = method.backbone, method.local_loss(batch)
    gradient = model.gradients(shared, user, loss, of="user").user
    user = perturb_in_place({"user": user}, {"user": gradient.clone()}, method.rho_ur)["user"]
    point = model.point(shared, batch.rows, user)
    balls = model.tables if method.balls == "item" else ()
    worst = perturb_in_place(point.shared, model.differentiate(point, loss).seen(), method.rho_co, balls)
    return model.differentiate(point.with_shared(worst), loss).loss
