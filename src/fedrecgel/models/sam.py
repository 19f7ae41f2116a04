"""Sharpness-aware minimisation over a client axis (Foret et al., 2021; Eq. 1-3 of the paper).

Every client perturbs its own copy by its own gradient, so a perturbed parameter always has a client axis.
"""

from __future__ import annotations

import torch

from fedrecgel.tensors import Tensors, client_norm

EPSILON = 1e-12  # keeps a zero gradient at a zero perturbation


def perturbed(parameters: Tensors, gradients: Tensors, rho: float, *, reuse: bool = False) -> Tensors:
    """The worst point of a ball of radius rho, to first order: θ + ε*, ε* = ρ ∇L / ‖∇L‖ (Eq. 2; 11 and 14).

    Args:
        parameters: with or without a client axis.
        gradients: [C, ...] per client; one norm over all tensors of a client together.
        rho: radius of the ball.
        reuse: the result may take the memory of the gradients, which saves time.

    Every tensor that has a gradient comes back perturbed, [C, ...].
    """
    scale = rho / (client_norm(gradients) + EPSILON)
    return {
        name: torch.addcmul(parameters[name], scale.view(-1, *[1] * (g.dim() - 1)), g, out=g if reuse else None)
        for name, g in gradients.items()
    }
