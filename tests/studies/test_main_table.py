"""Marks and comparisons of the main table, on ranks made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.ranks import lay_out

from fedrecgel.studies.experiment import Scope
from fedrecgel.studies.main_table import MainTable, MainTableExperiment
from fedrecgel.studies.presets import Presets, Setting


def experiment(
    *methods: str, seeds: int = 3, configs: Path = Path("none"), setting: Setting = "tuned", seeds_of: str = ""
) -> MainTableExperiment:
    options = {"seeds_of": seeds_of}
    return MainTableExperiment(Scope(Presets(configs), ("demo",), seeds, (setting,), methods, options))


def reduced(root: Path, hits: dict[str, float], seeds: int = 5) -> MainTable:
    chosen = experiment(*(name for name in hits if name != "popularity"), seeds=seeds)
    return chosen.reduce(root, lay_out(root, chosen.plans, hits), "command")


def test_best_and_runner_up_are_marked_where_they_are_far_apart(tmp_path: Path) -> None:
    table = reduced(tmp_path, {"popularity": 0.5, "fedncf": 0.9, "fedrecgel": 0.7, "fedmf": 0.3})
    marks = {row.method: row.cells["candidates"]["HR@10"].mark for row in table.rows}
    assert marks == {"fedncf": "best", "fedrecgel": "second", "fedmf": None, "popularity": None}
    above = {row.method: row.cells["candidates"]["HR@10"].popularity for row in table.rows}
    assert {name: found.sign for name, found in above.items() if found} == {"fedncf": 1, "fedrecgel": 1, "fedmf": -1}
    assert above["popularity"] is None


def test_nothing_is_marked_where_methods_are_alike(tmp_path: Path) -> None:
    table = reduced(tmp_path, {"popularity": 0.5, "fedncf": 0.5, "fedrecgel": 0.5, "fedmf": 0.5})
    assert {cell.mark for row in table.rows for cell in row.cells["candidates"].values()} == {None}
    assert {pair.comparison.sign for pair in table.pairs} == {0}


def test_a_number_can_be_followed_to_its_folders(tmp_path: Path) -> None:
    table = reduced(tmp_path, {"popularity": 0.5, "fedncf": 0.9}, seeds=3)
    row = next(row for row in table.rows if row.method == "fedncf")
    assert row.folders == ["runs/fedncf-0", "runs/fedncf-1", "runs/fedncf-2"]
    assert row.cells["candidates"]["HR@10"].mean == pytest.approx(0.9, abs=0.05)
    assert (row.up, row.down) == (20.0, 40.0)


def test_missing_seeds_are_named_and_the_rest_is_compared(tmp_path: Path) -> None:
    chosen = experiment("fedncf", "fedrecgel")
    records = lay_out(tmp_path, chosen.plans, {"popularity": 0.5, "fedncf": 0.9, "fedrecgel": 0.6})
    lost = next(mark for mark, record in records.items() if record.folder == "runs/fedncf-1")
    del records[lost]
    table = chosen.reduce(tmp_path, records, "command")
    row = next(row for row in table.rows if row.method == "fedncf")
    assert (row.seeds, row.missing_seeds) == ([0, 2], [1])
    pair = next(pair for pair in table.pairs if {pair.first, pair.second} == {"fedncf", "fedrecgel"})
    assert pair.comparison.seeds == 2


def test_one_seed_says_nothing(tmp_path: Path) -> None:
    """But rankers without luck are compared: popularity with a row of more seeds, above."""
    table = reduced(tmp_path, {"popularity": 0.5, "fedncf": 0.9, "ease": 0.7}, seeds=1)
    signs = {pair.first: pair.comparison.sign for pair in table.pairs if pair.metric == "HR@10"}
    assert signs == {"fedncf": 0, "ease": 1}


def test_rows_without_results_are_named_with_the_reason(tmp_path: Path) -> None:
    chosen = experiment("fedncf", "fedmf", "fedrap", seeds=2, seeds_of="fedrap=0")
    hits = {"popularity": 0.5, "fedncf": 0.9, "fedmf": 0.5}
    records = lay_out(tmp_path, chosen.plans, hits)
    for mark, record in list(records.items()):
        if "fedmf" in record.folder:
            records[mark] = replace(record, status="failed", summary=None)
    assert chosen.reduce(tmp_path, records, "command").left_out == {"demo": ["fedmf (failed)", "fedrap (not run)"]}


def test_every_seed_has_a_split_of_its_own_and_all_methods_share_it() -> None:
    """Popularity draws nothing, but candidates differ from split to split."""
    for plan in experiment("fedncf").plans:
        assert [origin.config.split.seed for origin in plan.origins] == [42, 43, 44]
        assert [origin.config.run.seed for origin in plan.origins] == [0, 1, 2]


def test_a_split_seed_on_the_command_line_is_that_of_every_run() -> None:
    scope = Scope(Presets(Path("none"), overrides=(("split", "seed", 7),)), ("demo",), 3, ("tuned",), ("fedncf",))
    popularity, fedncf = MainTableExperiment(scope).plans
    assert [origin.config.split.seed for origin in fedncf.origins] == [7, 7, 7]
    assert len(popularity.origins) == 1


def test_seeds_on_different_splits_are_compared_pair_by_pair(tmp_path: Path) -> None:
    chosen = experiment("fedncf")
    hits = {"popularity": 0.5, "fedncf": 0.9}
    records = lay_out(tmp_path, chosen.plans, hits, test="split {seed}")
    (pair,) = {(p.first, p.comparison.seeds) for p in chosen.reduce(tmp_path, records, "command").pairs}
    assert pair == ("fedncf", 3)


def test_all_rows_have_one_split(tmp_path: Path) -> None:
    """One method's tuned settings hold out a validation item: popularity and the untuned train without it, too."""
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "fedncf.toml").write_text(
        '[method]\nname = "fedncf"\n[evaluation]\nselection = "validation"\n'
    )
    chosen = experiment("fedncf", "fedmf", configs=tmp_path)
    assert {config.split.validation for config in chosen.configs()} == {True}
    plain = experiment("fedncf", "fedmf", configs=tmp_path, setting="published")
    assert {config.split.validation for config in plain.configs()} == {False}


def test_runs_on_other_test_items_are_not_compared(tmp_path: Path) -> None:
    chosen = experiment("fedncf")
    hits = {"popularity": 0.5, "fedncf": 0.9}
    records = lay_out(tmp_path, chosen.plans[:1], hits, test="one")
    records |= lay_out(tmp_path, chosen.plans[1:], hits, test="another")
    table = chosen.reduce(tmp_path, records, "command")
    assert table.pairs == []
    assert chosen.plans[1].load(tmp_path, records) is not None
