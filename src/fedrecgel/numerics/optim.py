"""SGD and Adam: one step for many clients at once, and one for a server's tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.optim.adam import adam as torch_adam

from fedrecgel.tensors import Tensors

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # torch.optim.Adam's defaults, which the published code uses


def client_adam(
    value: Float[Tensor, "C d"],
    gradient: Float[Tensor, "C d"],
    first: Float[Tensor, "C d"],
    second: Float[Tensor, "C d"],
    steps: Int[Tensor, " C"],
    lr: float,
) -> tuple[Float[Tensor, "C d"], Float[Tensor, "C d"], Float[Tensor, "C d"], Int[Tensor, " C"]]:
    """One Adam step per client; the bias correction uses each client's own number of steps.

    Returns:
        The new value, first moment, second moment and number of steps.
    """
    steps = steps + 1
    first = torch.lerp(first, gradient, 1 - BETA1)
    second = (second * BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    count = steps[:, None].to(value.dtype)
    step_size = lr / (1 - BETA1**count)
    denominator = second.sqrt().div_((1 - BETA2**count).sqrt()).add_(EPS)
    return value - step_size * first / denominator, first, second, steps


class AdamState(NamedTuple):
    """Moments of one tensor of C clients, flattened, and how many steps each has taken."""

    first: Float[Tensor, "C d"]
    second: Float[Tensor, "C d"]
    steps: Int[Tensor, " C"]


def fresh_adam(value: Float[Tensor, "C ..."]) -> AdamState:
    """No step taken yet."""
    zeros = torch.zeros(len(value), value[0].numel(), dtype=value.dtype, device=value.device)
    return AdamState(zeros, zeros.clone(), torch.zeros(len(value), dtype=torch.int64, device=value.device))


def active_adam(
    value: Float[Tensor, "C ..."],
    gradient: Float[Tensor, "C ..."],
    state: AdamState,
    active: Bool[Tensor, " C"],
    lr: float,
) -> tuple[Float[Tensor, "C ..."], AdamState]:
    """One Adam step of the active clients; the others keep value, moments and count."""
    old = (value.flatten(1), *state)
    new = client_adam(old[0], gradient.flatten(1), *state, lr=lr)
    if not active.all():
        first, *others = (torch.where(_like(active, n), n, o) for n, o in zip(new, old, strict=True))
        return first.view(value.shape), AdamState(*others)
    return new[0].view(value.shape), AdamState(*new[1:])


def _like(active: Bool[Tensor, " C"], value: Tensor) -> Bool[Tensor, "C ..."]:
    return active.view(-1, *[1] * (value.dim() - 1))


def adam_moments(parameters: Tensors) -> Tensors:
    """Zero moments for `server_adam`."""
    moments = {f"{name}.{moment}": torch.zeros_like(value) for name, value in parameters.items() for moment in "mv"}
    return {**moments, "step": torch.zeros((), device=next(iter(parameters.values())).device)}


def server_adam(
    parameters: Tensors, gradients: Tensors, moments: Tensors, lr: float, eps: float = EPS
) -> tuple[Tensors, Tensors]:
    """One dense Adam step: rows without gradient drift on by their momentum, as in the published code.

    Args:
        parameters: what is stepped.
        gradients: of each.
        moments: of `adam_moments`, or of the step before.
        lr: the rate.
        eps: FedAdam's τ (Reddi et al., ICLR 2021): gradients that are small beside it make small steps.

    Returns:
        New parameters and new moments.
    """
    names = list(parameters)
    new = {name: parameters[name].clone() for name in names}
    kept = {name: value.clone() for name, value in moments.items()}
    torch_adam(
        [new[name] for name in names],
        [gradients[name] for name in names],
        [kept[f"{name}.m"] for name in names],
        [kept[f"{name}.v"] for name in names],
        max_exp_avg_sqs=[],
        state_steps=[kept["step"].clone() for _ in names],
        fused=True,
        amsgrad=False,
        beta1=BETA1,
        beta2=BETA2,
        lr=lr,
        weight_decay=0.0,
        eps=eps,
        maximize=False,
    )
    kept["step"] += 1
    return new, kept
