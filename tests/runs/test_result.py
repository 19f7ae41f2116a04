from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.builders import TINY, enough_rounds, random_split, tiny

import fedrecgel
from fedrecgel.data.history import History
from fedrecgel.errors import ConfigError, FedrecgelError, RunFolderError, StorageError
from fedrecgel.methods import METHODS
from fedrecgel.methods.messages import Download
from fedrecgel.runs.result import Result

SPLIT = random_split(n_users=10, n_items=120)


@pytest.fixture(scope="module", params=["fedrecgel", "popularity"])
def result(request: pytest.FixtureRequest) -> Result:
    options = {} if request.param == "popularity" else TINY
    return fedrecgel.train(request.param, SPLIT, rounds=2, **options)


def test_saving_and_opening_loses_nothing(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    again = fedrecgel.open(tmp_path / "run")
    assert again.summary == result.summary
    assert again.history == result.history
    assert again.config.to_dict() == result.config.to_dict()
    assert (again.user_ids, again.item_ids) == (result.user_ids, result.item_ids)
    for mine, theirs in ((again.shared, result.shared), (again.clients.tensors, result.clients.tensors)):
        assert set(mine) == set(theirs)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    for user in result.user_ids:
        assert again.recommend(user, 5) == result.recommend(user, 5)
    result.save(tmp_path / "run")  # the same run again is no error
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "clients.safetensors",
        "config.toml",
        "metrics.jsonl",
        "ranks.safetensors",
        "server.safetensors",
        "summary.json",
    ]


def test_recommendations_are_the_best_items_that_the_user_does_not_have(result: Result) -> None:
    method = result.config.method.build()
    users: list[int | str] = [*result.user_ids]
    for number, user in enumerate(users):
        down, history = Download(result.shared), History(result.train, torch.tensor([number]))
        private = result.clients.of(slice(number, number + 1))
        scores = method.score(private, down, history, torch.arange(120)[None, :])[0]
        own = SPLIT.observed.items[SPLIT.observed.ptr[number] : SPLIT.observed.ptr[number + 1]].tolist()
        allowed = {result.item_ids[item]: float(scores[item]) for item in range(120) if item not in own}
        found = result.recommend(user, k=7)
        assert [entry.score for entry in found] == pytest.approx(sorted(allowed.values(), reverse=True)[:7])
        assert all(allowed[int(entry.item)] == pytest.approx(entry.score) for entry in found)
        assert len({entry.item for entry in found}) == 7
        everything = result.recommend(user, k=1000)
        assert {entry.item for entry in everything} == set(allowed)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_recommends_from_its_folder(name: str, tmp_path: Path) -> None:
    """What a run keeps is enough to score with."""
    split = random_split()
    trained = fedrecgel.train(name, split, rounds=enough_rounds(name, 2), **tiny(name))
    trained.save(tmp_path / "run")
    opened = fedrecgel.open(tmp_path / "run")
    for user in split.interactions.user_ids[:3]:
        assert opened.recommend(user, k=5) == trained.recommend(user, k=5)


def test_unknown_users(result: Result) -> None:
    with pytest.raises(ConfigError, match=r"Unknown user 'u77'\. Did you mean 'u7'"):
        result.recommend("u77")
    with pytest.raises(ConfigError, match="k should be at least 1"):
        result.recommend("u7", k=0)


def test_save_refuses_a_foreign_folder(result: Result, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(RunFolderError, match="no run folder"):
        result.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["config.toml", "summary.json", "server.safetensors", "clients.safetensors"])
def test_open_a_folder_with_a_missing_or_truncated_file(result: Result, name: str, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    path = tmp_path / "run" / name
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\n[cut")
    with pytest.raises(FedrecgelError, match=name.replace(".", r"\.")):
        fedrecgel.open(tmp_path / "run")
    path.unlink()
    with pytest.raises(StorageError if name == "clients.safetensors" else RunFolderError):
        fedrecgel.open(tmp_path / "run")


def test_a_run_whose_model_was_not_kept(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    (tmp_path / "run" / "server.safetensors").unlink()
    with pytest.raises(RunFolderError, match=r"no model\. Experiments keep models with --keep-models"):
        fedrecgel.open(tmp_path / "run")


def test_without_a_ranking_of_all_items_there_are_no_metrics_of_it(result: Result) -> None:
    assert replace(result, summary={**result.summary, "metrics_full": None}).metrics_full == {}


def test_open_foreign_tensors(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    save_file({"weight": torch.zeros(3)}, tmp_path / "run" / "server.safetensors")
    with pytest.raises(RunFolderError, match="another safetensors file"):
        fedrecgel.open(tmp_path / "run")


def test_open_nothing(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RunFolderError, match=r"no config\.toml"):
            fedrecgel.open(path)


def test_a_result_is_one_short_line(result: Result) -> None:
    shown = ", ".join(f"{name} {100 * result.metrics[name]:.2f}" for name in ("HR@10", "NDCG@10"))
    assert repr(result).endswith(f"seed 0, {result.summary['rounds']} rounds: {shown}>")
    assert len(repr(result)) < 120
