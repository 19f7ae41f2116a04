from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrecgel.engine.flower import ledger
from fedrecgel.engine.flower.ledger import FILE, spend
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.wire import Letter
from fedrecgel.errors import PolicyError, StorageError


def letter(round: int, n_users: int = 12) -> Letter:
    return Letter({"round": round}, {"ids": torch.arange(n_users)})


def test_letters_are_counted_over_all_runs_within_the_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, now = Policy(rounds=2, days=1.0), 1e9
    monkeypatch.setattr(ledger, "time", lambda: now)
    spend(tmp_path, policy, "train", letter(0), "settings")
    spend(tmp_path, policy, "train", letter(0), "another")
    with pytest.raises(PolicyError, match=r"answers 2 letters of this kind in 1 days \(policy.rounds\)"):
        spend(tmp_path, policy, "train", letter(0), "a third")
    now += 86_401.0
    spend(tmp_path, policy, "train", letter(0), "a third")
    assert len(json.loads((tmp_path / FILE).read_text())) == 3, "what was trained is compared for ever"


def test_rankings_are_forgotten_after_the_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e9
    monkeypatch.setattr(ledger, "time", lambda: now)
    asked = Letter({"round": 1, "against": "catalogue"}, {"ids": torch.arange(12)})
    for _ in range(3):
        spend(tmp_path, Policy(full_rankings=1, days=1.0), "rank", asked, "settings")
        now += 86_401.0
    assert len(json.loads((tmp_path / FILE).read_text())) == 1


def test_a_letter_that_comes_again_costs_as_much(tmp_path: Path) -> None:
    """Noise may differ, and the mean of many answers would have none."""
    policy = Policy(rounds=2)
    for _ in range(2):
        spend(tmp_path, policy, "train", letter(0), "settings")
    with pytest.raises(PolicyError, match=r"policy\.rounds"):
        spend(tmp_path, policy, "train", letter(0), "settings")


def test_a_refused_letter_is_not_counted(tmp_path: Path) -> None:
    policy = Policy(rounds=1)
    spend(tmp_path, policy, "train", letter(0), "settings")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(PolicyError):
        spend(tmp_path, policy, "train", letter(1), "settings")
    assert (tmp_path / FILE).read_bytes() == before


def test_the_same_settings_and_round_are_answered_for_one_set_of_users(tmp_path: Path) -> None:
    """They fix what a node draws, whatever a server calls its run."""
    spend(tmp_path, Policy(), "train", letter(0, 12), "settings")
    with pytest.raises(PolicyError, match=r"for other users.*another seed"):
        spend(tmp_path, Policy(), "train", letter(0, 11), "settings")
    spend(tmp_path, Policy(), "train", letter(0, 12), "settings")
    spend(tmp_path, Policy(), "train", letter(1, 11), "settings")
    spend(tmp_path, Policy(), "train", letter(0, 11), "other settings")


@given(st.binary(max_size=60).filter(lambda content: content.strip() != b"[]"))
def test_a_damaged_ledger_is_no_fresh_budget(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("node")
    (folder / FILE).write_bytes(content)
    with pytest.raises(StorageError, match="should list the letters"):
        spend(folder, Policy(), "train", letter(0), "settings")
