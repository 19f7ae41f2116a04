"""Eigenvectors from sums over clients, and how scores spread over a catalogue without computing them all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

FLOOR = 1e-6
"""Smallest eigenvalue that is inverted, relative to the largest. It lies above the noise of fixed-point sums."""
LEVEL = 1e-12
"""Scores whose variance is below this share of their mean square are all the same but for rounding."""


def orthonormal(columns: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """An orthonormal basis of what these columns span."""
    basis: Tensor = torch.linalg.qr(columns.double()).Q
    return basis.to(columns.dtype).contiguous()  # as a file gives it back: the order in memory decides the last bits


def nystrom(
    images: Float[Tensor, "n k"], basis: Float[Tensor, "n k"]
) -> tuple[Float[Tensor, "n k"], Float[Tensor, " k"]]:
    """Eigenvectors and eigenvalues, largest first, of a symmetric matrix S that is known only as Z = S Q.

    S is close to Z B⁻¹ Zᵀ with B = Qᵀ Z. Its eigenvectors are the left singular vectors of Z B^(-1/2); a rotation on
    the right, which the symmetric root would add, changes none of them.
    """
    z, q = images.double(), basis.double()
    core = q.mT @ z
    values, rotation = torch.linalg.eigh((core + core.mT) / 2)
    values = values.clamp(min=max(FLOOR * float(values[-1]), torch.finfo(values.dtype).tiny))
    vectors, roots, _ = torch.linalg.svd(z @ (rotation * values.rsqrt()), full_matrices=False)
    vectors *= torch.where(vectors.pow(3).sum(0) < 0, -1, 1)  # a sign that rounding does not change
    return vectors.to(images.dtype).contiguous(), roots.square().to(images.dtype)


def nearest_gram(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """A sum of p pᵀ as it is; with noise on it, the nearest matrix that can be one: symmetric, no value below 0."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    if values[0] >= -FLOOR * values[-1].abs():
        return matrix
    nearest: Tensor = (vectors * values.clamp(min=0)) @ vectors.mT
    return nearest


@dataclass(frozen=True, eq=False)
class Spread:
    """Mean and covariance of the rows of a table: with them, those of q · row over all rows for any q."""

    mean: Float[Tensor, " k"]
    covariance: Float[Tensor, "k k"]

    @classmethod
    def of(cls, table: Float[Tensor, "n k"]) -> Spread:
        """From column sums and the Gram matrix, in double precision."""
        rows = table.double()
        mean = rows.mean(0)
        return cls(mean, rows.mT @ rows / len(rows) - torch.outer(mean, mean))

    def standardise(self, query: Float[Tensor, "C k"]) -> tuple[Float[Tensor, "C k"], Float[Tensor, "C 1"]]:
        """A query q' and a number c such that q' · row - c has mean 0 and deviation 1 over all rows.

        Both are 0 where q gives all rows the same score.
        """
        mean, scale = self.measure(query)
        return (query.double() * scale).to(query.dtype), (mean * scale).to(query.dtype)

    def measure(self, query: Float[Tensor, "C k"]) -> tuple[Float[Tensor, "C 1"], Float[Tensor, "C 1"]]:
        """Mean and inverse deviation of q · row over all rows, the latter 0 where all are the same."""
        wide = query.double()
        mean, variance = wide @ self.mean, ((wide @ self.covariance) * wide).sum(1).clamp(min=0)
        flat = variance <= LEVEL * (variance + mean.square())
        return mean[:, None], torch.where(flat, 0, variance.where(~flat, 1).rsqrt())[:, None]
