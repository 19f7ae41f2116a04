"""Which runs are paired, and which are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrecgel.errors import ConfigError, RunFolderError
from fedrecgel.evaluation.ranking import Ranks
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.ranks_file import RankFile
from fedrecgel.studies.paired import FinishedRun, all_pairs, configurations_of, couples


def run_of(method: str, seed: int = 0, test: str = "t", hits: float = 0.5, **settings: object) -> FinishedRun:
    """A run of 300 users, of which a share has its item first."""
    config: Config = from_dict({"method": {"name": method, **settings}, "run": {"seed": seed}})
    luck = np.random.default_rng([seed, len(method)]).random(300)
    above = torch.from_numpy(np.where(luck < hits, 0, 50))
    ranks = RankFile(test, {"candidates": Ranks(above, torch.zeros_like(above))})
    summary = {"method": method, "seed": seed, "dataset": "demo"}
    return FinishedRun(f"{method}-s{seed}", config.to_dict(), summary, ranks)


def pairs_of(*runs: FinishedRun) -> list[tuple[int, int]]:
    first, second = configurations_of(runs)
    return [(first.runs[a].seed, second.runs[b].seed) for a, b in couples(first, second)]


def test_runs_are_paired_by_test_items_then_by_seed() -> None:
    mine = [run_of("fedmf", seed) for seed in (0, 1)]
    assert pairs_of(*mine, run_of("fedncf", 1), run_of("fedncf", 0)) == [(0, 0), (1, 1)]
    assert pairs_of(*mine, run_of("fedncf", 7), run_of("fedncf", 1)) == [(1, 1), (0, 7)]
    assert pairs_of(*mine, run_of("popularity")) == [(0, 0), (1, 0)]
    assert pairs_of(run_of("popularity"), *mine) == [(0, 0), (0, 1)]
    own = [run_of("fedmf", 0, "a"), run_of("fedmf", 1, "b"), run_of("fedncf", 1, "b"), run_of("fedncf", 0, "c")]
    assert pairs_of(*own) == [(1, 1)]


def test_configurations_of_one_method_are_named_by_what_differs() -> None:
    found = configurations_of([run_of("fedmf", seed, lr=lr) for lr in (0.1, 0.5) for seed in (0, 1)])
    assert [(one.label, len(one.runs)) for one in found] == [("fedmf, lr 0.1", 2), ("fedmf, lr 0.5", 2)]


def test_runs_on_other_splits_are_refused_with_the_reason() -> None:
    first, second = run_of("fedmf"), run_of("fedncf", test="another")
    with pytest.raises(ConfigError, match="the data changed between them"):
        all_pairs(configurations_of([first, second]))
    settings = {**second.settings, "split": {**second.settings["split"], "seed": 7}}
    with pytest.raises(ConfigError, match=r"Found split\.seed = 42 and 7\."):
        all_pairs(configurations_of([first, replace(second, settings=settings)]))
    elsewhere = replace(second, summary={**second.summary, "dataset": "folder/shop.csv"})
    with pytest.raises(ConfigError, match=r"data sets demo and shop\.csv"):
        all_pairs(configurations_of([first, elsewhere]))


def test_one_configuration_and_a_run_given_twice_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 of one configuration"):
        configurations_of([run_of("fedmf", 0), run_of("fedmf", 1)])
    with pytest.raises(ConfigError, match="twice"):
        configurations_of([run_of("fedmf"), run_of("fedmf")])
    with pytest.raises(RunFolderError, match="every user's rank"):
        replace(run_of("fedmf"), ranks=RankFile("t", {})).checked()


def test_the_pairs_of_a_metric_are_one_family() -> None:
    runs = [run_of(name, seed, hits=hits) for name, hits in {"fedmf": 0.9, "fedncf": 0.5}.items() for seed in range(5)]
    alone = {pair.metric: pair.comparison for pair in all_pairs(configurations_of(runs))}
    more = all_pairs(configurations_of([*runs, *(run_of("spectra", seed) for seed in range(5))]))
    assert alone["HR@10"].verdict == "above"
    (same,) = (p.comparison for p in more if (p.first, p.second, p.metric) == ("fedmf", "fedncf", "HR@10"))
    assert same.p == alone["HR@10"].p
    assert same.low < alone["HR@10"].low < alone["HR@10"].high < same.high
