"""How well the current model of a run ranks: each question is put once, and whole catalogues show their lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedrecgel.data.split import Split
from fedrecgel.engine.base import Engine, Measured, measured
from fedrecgel.engine.local import LocalEngine
from fedrecgel.evaluation.coverage import Coverage
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.methods.messages import Server
from fedrecgel.runs.config import EvaluationSettings
from fedrecgel.tensors import Ids

FULL_SCORES = 5_000_000_000
"""Scores of whole catalogues that are computed unless more users are asked for: minutes, not hours."""


class Measuring:
    """What a run knows of its current model."""

    def __init__(
        self, engine: Engine, split: Split, settings: EvaluationSettings, ranked: Callable[[int, int], None]
    ) -> None:
        self._engine, self._split, self._settings, self._ranked = engine, split, settings, ranked
        self._known: dict[tuple[str, str], Measured] = {}
        """Of the current model: nodes are asked for it once."""
        self.coverage: dict[str, float] | None = None
        """Of the whole catalogue, since it was last ranked; on nodes lists stay there."""
        self.popular: dict[str, float] | None = None
        """How much of these lists is popular anyway."""
        self.sampled: Ids | None = None
        """The clients whose whole catalogue was ranked, where these were not all."""

    def forget(self) -> None:
        """The model has changed."""
        self._known.clear()

    def of(self, server: Server, held_out: str, against: str) -> Measured:
        """Metrics of this server's model, the current one, over all clients."""
        settings, asked = self._settings, (held_out, against)
        if asked not in self._known:
            self._known[asked] = (
                measured(self._ranks(self._engine, server, held_out, against), settings.ks, settings.ties)
                if isinstance(self._engine, LocalEngine)
                else self._engine.measure(server, held_out, against, settings.ks, settings.ties)
            )
        return self._known[asked]

    def _ranks(self, engine: LocalEngine, server: Server, held_out: str, against: str) -> Ranks:
        """Where the clients are here, count what the whole catalogue's lists show, too."""
        if against != "catalogue":
            return engine.ranks(server, held_out, against)
        lists = Coverage(self._split.n_items, self._settings.ks)
        most = self._settings.full_users or max(1, FULL_SCORES // self._split.n_items)
        self.sampled = engine.sample(held_out, most)
        ranks = engine.ranks(server, held_out, against, lists, self.sampled, self._ranked)
        self.coverage = lists.result()
        self.popular = lists.popular(np.bincount(self._split.train.items, minlength=self._split.n_items))
        return ranks
