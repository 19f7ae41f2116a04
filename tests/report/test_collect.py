"""Which runs count as the same configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrecgel.report.collect import Group, groups_of
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.settings import CHANGE_NO_NUMBER
from fedrecgel.studies.fingerprints import config_fingerprint
from fedrecgel.studies.records import Record

PLAIN = from_dict({"method": {"name": "fedmf"}})


def record(config: Config, *, accelerated: bool = False) -> Record:
    summary: dict[str, Any] = {
        "dataset": "demo",
        "method": "fedmf",
        "seed": config.run.seed,
        "data": {"users": 2},
        "accelerated": accelerated,
    }
    mark = config_fingerprint(config)
    return Record("finished", mark, f"runs/{mark}", config.to_dict(), summary)


def groups(*records: Record) -> list[Group]:
    return groups_of(Path("none"), records)


def changed(section: str, **values: object) -> Config:
    return replace(PLAIN, **{section: replace(getattr(PLAIN, section), **values)})


OTHERS = {
    ("checkpoint", "every"): changed("checkpoint", every=3),
    ("data", "dir"): changed("data", dir="elsewhere"),
    ("local", "workers"): changed("local", workers=3),
    ("run", "start"): changed("run", start="elsewhere"),
}


def test_every_setting_of_the_list_is_tried_here() -> None:
    assert OTHERS.keys() == CHANGE_NO_NUMBER


@pytest.mark.parametrize("setting", sorted(OTHERS), ids=".".join)
def test_settings_that_change_no_number_make_no_group(setting: tuple[str, str]) -> None:
    """Neither here nor in the fingerprint that finds a finished run again."""
    other = OTHERS[setting]
    assert other != PLAIN
    assert config_fingerprint(other) == config_fingerprint(PLAIN)
    assert len(groups(record(PLAIN), record(other))) == 1


def test_seeds_are_one_group_in_order() -> None:
    (group,) = groups(record(changed("run", seed=1)), record(PLAIN))
    assert [item.run["seed"] for item in group.records] == [0, 1]


def test_a_split_of_its_own_makes_no_group() -> None:
    (group,) = groups(record(PLAIN), record(replace(changed("split", seed=43), run=replace(PLAIN.run, seed=1))))
    assert len(group.records) == 2


def test_a_curve_says_what_a_client_has_sent_until_then(tmp_path: Path) -> None:
    found = record(PLAIN)
    folder = tmp_path / found.folder
    folder.mkdir(parents=True)
    lines = [{"round": n, "loss": 1.0, "bytes_up": 3_000_000, **({"HR@10": 0.5} if n > 1 else {})} for n in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (group,) = groups_of(tmp_path, [found])
    assert (group.curves["HR@10"].rounds, group.curves["HR@10"].megabytes) == ([2, 3], [3.0, 4.5])


@pytest.mark.parametrize("other", [changed("local", chunk_examples=7), changed("run", rounds=7)])
def test_settings_that_may_change_a_number_do(other: Config) -> None:
    assert len(groups(record(PLAIN), record(other))) == 2


def test_accelerated_and_plain_runs_are_apart() -> None:
    """By the path that was taken, too: the same settings train plainly where there is no compiler."""
    asked = changed("local", accelerate=True)
    labels = [group.label for group in groups(record(PLAIN), record(asked, accelerated=True))]
    assert labels == ["fedmf, plain path", "fedmf, accelerated"]
    assert len(groups(record(asked), record(replace(asked, run=replace(asked.run, seed=1)), accelerated=True))) == 2
