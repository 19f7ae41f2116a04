"""Sharpness-aware minimisation over a client axis (Foret et al., 2021; Eq. 1-3 of the paper).

Every client perturbs its own copy by its own gradient, so a perturbed parameter always has a client axis.
"""

from __future__ import annotations

import torch

from fedrecgel.tensors import Tensors, client_norm

EPSILON = 1e-12  # keeps a zero gradient at a zero perturbation


def perturbed(parameters: Tensors, gradients: Tensors, rho: float) -> Tensors:
    """The worst point of a ball of radius rho, to first order: θ + ε*, ε* = ρ ∇L / ‖∇L‖ (Eq. 2; 11 and 14).

    Args:
        parameters: with or without a client axis.
        gradients: [C, ...] per client; one norm over all tensors of a client together.
        rho: radius of the ball.

    Returns:
        The perturbed value of every tensor that has a gradient, [C, ...].
    """
    scale = rho / (client_norm(gradients) + EPSILON)
    return {
        name: torch.addcmul(parameters[name], scale.view(-1, *[1] * (gradient.dim() - 1)), gradient)
        for name, gradient in gradients.items()
    }
