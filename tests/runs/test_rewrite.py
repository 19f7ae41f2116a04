from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.builders import enough_rounds, random_split, tiny

import fedrecgel
from fedrecgel.cli.main import main
from fedrecgel.errors import ConfigError, RunFolderError
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.result import Result
from fedrecgel.runs.rewrite import complete, forget, without
from fedrecgel.tables import State

SPLIT = random_split(n_users=10, n_items=120)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    fedrecgel.train("fedmf", SPLIT, rounds=2, out=tmp_path / "run", dim=4)
    return tmp_path / "run"


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("name", ["fedmf", "pfedrec", "gpfedrec", "cofedrec", "perfedrec", "spectra", "fedrecgel"])
def test_nothing_is_left_of_one_user_and_all_of_the_others(name: str, tmp_path: Path) -> None:
    before = fedrecgel.train(name, SPLIT, rounds=enough_rounds(name, 2), out=tmp_path, **tiny(name))
    assert forget(tmp_path, "u3").found
    after = fedrecgel.open(tmp_path)
    assert after.user_ids == [user for user in before.user_ids if user != "u3"]
    assert b'"u3"' not in everything(tmp_path)
    for user in after.user_ids:
        found, expected = after.recommend(user, 5), before.recommend(user, 5)
        assert [best.item for best in found] == [best.item for best in expected]
        assert [best.score for best in found] == pytest.approx([best.score for best in expected])
    with pytest.raises(ConfigError, match="Unknown user 'u3'"):
        after.recommend("u3")
    assert after.metrics == before.metrics
    assert after.summary["forgotten_users"] == 1
    assert not (tmp_path / "checkpoint" / "state.safetensors").exists()
    assert after.ranks.test != before.ranks.test
    rest = torch.tensor([number for number, user in enumerate(before.user_ids) if user != "u3"])
    for against, ranks in before.ranks.against.items():
        assert torch.equal(after.ranks.against[against].above, ranks.above[rest])


def test_several_held_out_items_go_together() -> None:
    data = SPLIT.interactions
    result = fedrecgel.train("popularity", data, split={"kind": "last-n", "n": 2})
    rest = np.delete(np.arange(10), 4)
    ranks, before = without(result, rest).ranks.against["catalogue"], result.ranks.against["catalogue"]
    if before.ptr is None or len(before.ptr) != 11:
        pytest.fail("the case is not met")
    assert ranks.ptr is not None
    expected = [before.above[before.ptr[u] : before.ptr[u + 1]].tolist() for u in rest]
    assert [ranks.above[ranks.ptr[k] : ranks.ptr[k + 1]].tolist() for k in range(9)] == expected


def test_the_command_says_what_remains(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forget", str(run), "--user", "u3"]) == 0
    printed = capsys.readouterr().out
    assert f"Private part, history and ranks of user 'u3' are gone from {run}." in printed
    assert "The shared model still contains what the user's uploads (items) added to it in up to 2 rounds" in printed
    assert "--from can continue it" in printed
    before = everything(run)
    assert main(["forget", str(run), "--user", "u3"]) == 0
    assert capsys.readouterr().out == f"'{run}' holds nothing of a user 'u3'. Nothing was changed.\n"
    assert everything(run) == before
    assert main(["forget", str(run.parent), "--user", "u3"]) == 2
    assert "should be a run folder" in capsys.readouterr().err


def test_a_forgotten_user_can_come_back_in_a_continued_run(run: Path) -> None:
    forget(run, "u3")
    found = fedrecgel.train("fedmf", SPLIT, rounds=1, dim=4, start=run).summary["start"]
    assert found["users"] == {"matched": 9, "added": 1, "missing": 0}


class Stopped(Exception):  # noqa: N818 - no error: a test plays it
    """As if the power were cut."""


def test_stopped_anywhere_it_is_the_old_run_or_completed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, real = 12, Path.replace
    outcomes = set()
    for stop in range(places):
        folder = run.with_name(f"stop-{stop}")
        shutil.copytree(run, folder)
        calls = 0

        def cut(path: Path, target: Any, stop: int = stop) -> Any:
            nonlocal calls
            calls += 1
            if calls > stop:
                raise Stopped
            return real(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", cut)
            try:
                forget(folder, "u3")
            except Stopped:
                outcomes.add("stopped")
        try:
            users = fedrecgel.open(folder).user_ids
            assert len(users) in (9, 10)
            outcomes.add(f"{len(users)} users")
        except RunFolderError as error:
            assert "was being changed" in str(error)  # noqa: PT017 - one of three ends
            outcomes.add("told")
        forget(folder, "u3")
        assert len(fedrecgel.open(folder).user_ids) == 9
        assert not RunFolder(folder).rewritten.exists()
    assert outcomes >= {"stopped", "told", "10 users"}


def test_half_written_files_are_thrown_away(run: Path) -> None:
    room = RunFolder(run).rewritten
    room.mkdir()
    (room / "clients.safetensors").write_bytes(b"half")
    assert len(fedrecgel.open(run).user_ids) == 10
    complete(RunFolder(run))
    assert not room.exists()
    assert len(fedrecgel.open(run).user_ids) == 10


def test_users_on_nodes_are_not_here(run: Path) -> None:
    result = fedrecgel.open(run)
    replace(result, clients=State({"rounds": torch.tensor([2])})).save(run.with_name("nodes"))
    assert (
        forget(run.with_name("nodes"), "u3").sentences[0].endswith("they stayed on their nodes. Nothing was changed.")
    )


def test_titles_are_kept_with_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    titles = run.with_name("titles.csv")
    titles.write_text("item,title\n" + "".join(f"{item},Film {item}\n" for item in range(100, 220)))
    checkpoint = (run / "checkpoint" / "state.safetensors").read_bytes()
    for words in (["--titles", str(titles)], []):
        assert main(["recommend", str(run), "--user", "u3", "-k", "1", *words]) == 0
        assert "  Film " in capsys.readouterr().out
    assert (run / "checkpoint" / "state.safetensors").read_bytes() == checkpoint
    assert main(["export", str(run), "-o", str(run.with_name("bundle"))]) == 0
    assert json.loads((run.with_name("bundle") / "items.json").read_text())["titles"][0] == "Film 100"


def test_a_later_format_is_refused_with_a_sentence(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["format"] == 2
    (run / "summary.json").write_text(json.dumps({**summary, "format": 3}))
    with pytest.raises(RunFolderError, match="has format 3, of a later version of fedrecgel; this one reads up to 2"):
        fedrecgel.open(run)


def test_a_run_of_one_user_is_deleted_whole(run: Path) -> None:
    result: Result = fedrecgel.open(run)
    alone = without(result, np.array([3]))
    alone.save(run.with_name("alone"))
    with pytest.raises(ConfigError, match="is the only user of"):
        forget(run.with_name("alone"), "u3")
