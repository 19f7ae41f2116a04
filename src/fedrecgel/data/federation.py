"""Federation: one user = one client. Draws negatives and packs clients into batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor

from fedrecgel.data.history import History
from fedrecgel.data.item_sets import IntArray, ItemSets
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.errors import DataError
from fedrecgel.tensors import Ids

LEARNT_FROM = 100
"""Items from which a newcomer learns at most, so that nobody waits for a long history."""


@dataclass(frozen=True)
class SamplingSettings:
    """How a client labels items each round."""

    negatives: Annotated[int, Meta(ge=1)] = 4
    """Unobserved items per positive: distinct for that positive, drawn anew each round (N in section 5)."""
    exclude_heldout_from_negatives: bool = False
    """The leaky rule of the PFedRec family: held-out items are never drawn as negatives. Marked in results."""
    redraw: bool = True
    """Draw negatives anew each round; false keeps those of round 0, which caps what personal tables grow to."""
    repeats: bool = False
    """Train on every row, as samplers of the PFedRec family do, not on distinct items; differs where rows repeat."""


@dataclass(frozen=True)
class ClientBatch:
    """What C clients train on this round; padded entries have a False mask.

    A client's examples stand in the order of the published code: positives shuffled, each followed by its
    negatives. `rows` are the distinct items among them: the client's slice of the item table.
    """

    ids: Ids
    items: Int[Tensor, "C L"]
    labels: Float[Tensor, "C L"]
    mask: Bool[Tensor, "C L"]
    rows: Int[Tensor, "C K"]
    row_counts: Int[Tensor, "C K"]
    """How many training rows of the client show this item; 0 for a negative."""
    row_mask: Bool[Tensor, "C K"]
    slots: Int[Tensor, "C L"]
    """items[c, l] == rows[c, slots[c, l]]."""
    history: History
    """All training rows of these clients, whatever is drawn this round."""

    @property
    def n_examples(self) -> Int[Tensor, " C"]:
        """|S_u|."""
        return self.mask.sum(1)

    @property
    def row_labels(self) -> Float[Tensor, "C K"]:
        """Label of each distinct item: no item is positive and negative at once."""
        return (self.row_counts > 0).to(self.labels.dtype)

    def row_weights(self, chunk: int | None) -> Float[Tensor, "C K"]:
        """Weight of each distinct item in the client's loss.

        Args:
            chunk: examples are cut in order into chunks of this size and the loss is the sum of chunk means, so
                the examples of a short last chunk weigh more; None for the mean over all examples.

        An item drawn for two positives gets the sum of its weights: one merged example with the same gradient.
        """
        size = self.n_examples[:, None]
        if chunk is not None:
            position = torch.arange(self.mask.shape[1], device=size.device)[None, :]
            size = torch.minimum(size - position // chunk * chunk, torch.tensor(chunk, device=size.device))
        return self._on_rows(self.mask / size.clamp(min=1).to(self.labels.dtype))

    def steps(self, size: int, round: int, draws: Draws, epoch: int = 0) -> Iterator[Float[Tensor, "C K"]]:
        """One epoch of mini-batches of shuffled examples, each as the weights of distinct items in its mean.

        A client with fewer batches than others gets weights of zero when it has run out.
        """
        width = self.mask.shape[1]
        if width <= size:
            yield self.row_weights(None)
            return
        chance = draws.uniform(f"batches/{epoch}", round, self.ids.numpy()[:, None], np.arange(width)[None, :])
        chance[~self.mask.cpu().numpy()] = np.inf  # padding comes last
        position = torch.from_numpy(chance.argsort(1).argsort(1)).to(self.mask.device)
        for first in range(0, width, size):
            inside = self.mask & (position >= first) & (position < first + size)
            yield self._on_rows(inside / inside.sum(1, keepdim=True).clamp(min=1).to(self.labels.dtype))

    def triples(self, round: int, draws: Draws) -> tuple[Int[Tensor, "C T"], Int[Tensor, "C T"], Bool[Tensor, "C T"]]:
        """As many (positive, negative) pairs as there are positives, for pairwise losses: slots, and a mask.

        Positives are drawn with replacement; the negative is the first of those drawn for this turn's positive.
        """
        n_own = (self.labels > 0).sum(1)
        stride = int((self.n_examples // n_own.clamp(min=1)).max())  # a positive and its negatives
        turns = torch.arange(int(n_own.max()), device=self.mask.device)
        valid = turns < n_own[:, None]
        chance = draws.uniform("triples", round, self.ids.numpy()[:, None], turns.cpu().numpy()[None, :])
        drawn = (torch.from_numpy(chance).to(self.mask.device) * n_own[:, None]).long()
        negative = (turns * stride + 1).expand_as(drawn).where(valid, 0)
        return self.slots.gather(1, drawn * stride), self.slots.gather(1, negative), valid

    def _on_rows(self, weights: Float[Tensor, "C L"]) -> Float[Tensor, "C K"]:
        return torch.zeros_like(self.rows, dtype=self.labels.dtype).scatter_add_(1, self.slots, weights)


class Sampler(ABC):
    """Draws what devices train on from their own rows."""

    settings: SamplingSettings
    dtype: torch.dtype
    device: torch.device

    @property
    @abstractmethod
    def train(self) -> ItemSets:
        """The own rows of each device."""

    @property
    def avoided(self) -> ItemSets:
        """Items never drawn as negatives."""
        return self.train

    @property
    def n_clients(self) -> int:
        """Number of users."""
        return self.train.n_users

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return self.train.n_items

    def check_negatives(self) -> None:
        """Refuse data of which negatives cannot be drawn.

        Raises:
            DataError: a user has touched too many of the items.
        """
        free = self.n_items - int(np.diff(self.avoided.ptr).max())
        if free < self.settings.negatives:
            raise DataError(
                f"Drawing {self.settings.negatives} distinct negatives needs as many items a user has not touched. "
                f"Found {free} for the most active user. Lower sampling.negatives or use a larger catalogue."
            )

    def history(self, ids: Ids) -> History:
        """What these clients' devices know of themselves."""
        return History(self.train, ids, self.device)

    def n_examples(self, ids: Ids, *, negatives: bool = True) -> Int[Tensor, " C"]:
        """|S_u| of each client: known before anything is drawn."""
        users = ids.numpy()
        positives = self.train.n_rows(users) if self.settings.repeats else self.train.sizes(users)
        return torch.from_numpy(positives * (1 + self.settings.negatives * negatives))

    def batch(self, ids: Ids, round: int, draws: Draws, *, negatives: bool = True) -> ClientBatch:
        """This round's examples of some clients; the same whatever other clients are in the batch."""
        return self.examples(ids, round, draws, negatives=negatives).batch(0, len(ids))

    def examples(self, ids: Ids, round: int, draws: Draws, *, negatives: bool = True) -> Examples:
        """Draw this round's examples of many clients at once; without negatives, their own items alone."""
        train, k = self.train, self.settings.negatives * negatives
        users = ids.numpy()
        drawn = round if self.settings.redraw else 0
        owner, at = train.flat(users)
        if self.settings.repeats:
            owner, at = np.repeat(owner, train.counts[at]), np.repeat(at, train.counts[at])
        client = users[owner]
        nth = np.arange(len(owner)) - np.searchsorted(owner, owner)
        shuffled = np.lexsort((draws.uniform("order", drawn, client, nth), owner))
        at, nth = at[shuffled], nth[shuffled]  # owners and clients are sorted already
        numbers = nth[:, None] * k + np.arange(k)[None, :]
        others = self.avoided.outside(client, draws.uniform("negatives", drawn, client[:, None], numbers))
        items = np.concatenate([train.items[at][:, None], others], axis=1).reshape(-1)
        counts = np.concatenate([train.counts[at][:, None], np.zeros_like(others)], axis=1).reshape(-1)
        keys = np.repeat(owner, 1 + k) * self.n_items + items
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        clients = np.arange(len(users) + 1)
        return Examples(
            ids=ids,
            start=np.searchsorted(owner, clients) * (1 + k),
            items=items,
            positive=counts > 0,
            row_start=np.searchsorted(distinct, clients * self.n_items),
            rows=distinct % self.n_items,
            row_counts=counts[first],
            inverse=inverse,
            train=train,
            dtype=self.dtype,
            device=self.device,
        )


@dataclass(frozen=True, eq=False)
class Federation(Sampler):
    """Every client's training data, for a simulator or for the users a node hosts."""

    split: Split
    settings: SamplingSettings = field(default_factory=SamplingSettings)
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def train(self) -> ItemSets:
        """Training rows."""
        return self.split.train

    @property
    def avoided(self) -> ItemSets:
        """Training items; those held out, too, where the leaky rule is asked for."""
        return self.split.observed if self.settings.exclude_heldout_from_negatives else self.split.train

    def batch(self, ids: Ids, round: int, draws: Draws, *, negatives: bool = True) -> ClientBatch:
        """This round's examples of some of the federation's clients."""
        return super().batch(ids, round, draws, negatives=negatives)


@dataclass(frozen=True, eq=False)
class Newcomers(Sampler):
    """Devices that never took part: they have their own rows, and nothing is held out."""

    rows: ItemSets
    settings: SamplingSettings = field(default_factory=SamplingSettings)
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    most: int = LEARNT_FROM
    """So many of each user's items, the latest, are examples."""

    @cached_property
    def train(self) -> ItemSets:
        """The latest of them."""
        return self.rows.latest(self.most)

    @property
    def avoided(self) -> ItemSets:
        """All of them: an item of long ago is no negative."""
        return self.rows


@dataclass(frozen=True, eq=False)
class Examples:
    """The examples of many clients, one client after another without padding, and the distinct items among them."""

    ids: Ids
    start: IntArray
    """Client c has examples start[c] … start[c + 1] and distinct items row_start[c] … row_start[c + 1]."""
    items: IntArray
    positive: npt.NDArray[np.bool_]
    row_start: IntArray
    rows: IntArray
    row_counts: IntArray
    inverse: IntArray
    """Where in `rows` each example's item stands."""
    train: ItemSets
    dtype: torch.dtype
    device: torch.device

    def batch(self, first: int, last: int) -> ClientBatch:
        """Clients first … last - 1, padded to the longest of them."""
        mask, here = _padding(self.start[first : last + 1])
        row_mask, rows = _padding(self.row_start[first : last + 1])
        offsets = np.repeat(self.row_start[first:last], mask.sum(1))
        return ClientBatch(
            ids=self.ids[first:last],
            items=self._pad(mask, self.items[here]),
            labels=self._pad(mask, self.positive[here]).to(self.dtype),
            mask=torch.from_numpy(mask).to(self.device),
            rows=self._pad(row_mask, self.rows[rows]),
            row_counts=self._pad(row_mask, self.row_counts[rows]),
            row_mask=torch.from_numpy(row_mask).to(self.device),
            slots=self._pad(mask, self.inverse[here] - offsets),
            history=History(self.train, self.ids[first:last], self.device),
        )

    def _pad(self, mask: npt.NDArray[np.bool_], values: npt.NDArray[np.generic]) -> Tensor:
        out = np.zeros(mask.shape, dtype=values.dtype)
        out[mask] = values
        return torch.from_numpy(out).to(self.device)


def _padding(start: IntArray) -> tuple[npt.NDArray[np.bool_], slice]:
    """Where clients' entries stand in a rectangle, row by row, and where in the flat arrays."""
    lengths = np.diff(start)
    return np.arange(lengths.max(initial=0)) < lengths[:, None], slice(int(start[0]), int(start[-1]))
