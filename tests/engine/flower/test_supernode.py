"""Flower's processes on a node: what they start is the installed app, and they wait no longer than they must."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import ExecutionSpec, SubprocessExecutor
from flwr.supernode.runtime import run_clientapp

from fedrecgel.engine.flower import supernode, waits
from fedrecgel.engine.flower.supernode import replace_loading
from fedrecgel.engine.flower.waits import Eager, fetch_sooner
from fedrecgel.errors import PolicyError, RunError


def test_whatever_kind_of_app_a_server_asks_for_is_answered_by_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (SubprocessExecutor, run_superexec):  # put back what is replaced
        monkeypatch.setattr(module, "launch" if module is SubprocessExecutor else "time", None)
    started: list[Any] = []

    def superexec() -> None:
        for kind in TaskType:
            spec = ExecutionSpec(kind, "127.0.0.1:1", f"token {kind}", True, None, False, 1, False, 1, None)
            started.append(SubprocessExecutor().launch(spec))

    monkeypatch.setattr("flwr.supercore.cli.flower_superexec", superexec)
    orders, to_store = os.pipe()
    supernode._superexec(to_store)
    os.close(to_store)
    with os.fdopen(orders) as lines:
        found = [json.loads(line) for line in lines]
    assert [order["token"] for order in found] == [f"token {kind}" for kind in TaskType]
    assert len(started) == len(TaskType)


def test_the_bundle_is_compared_and_the_installed_app_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("install_from_fab", "get_load_client_app_fn"):
        monkeypatch.setattr(run_clientapp, name, getattr(run_clientapp, name))
    ours: Any = object()
    replace_loading(ours)
    with pytest.raises(PolicyError, match="nothing of it was run"):
        vars(run_clientapp)["install_from_fab"](b"something else", skip_prompt=True)
    load = vars(run_clientapp)["get_load_client_app_fn"](default_app_ref="", app_path=None, multi_app=True)
    assert load("id", "version", "hash") is ours
    monkeypatch.delattr(run_clientapp, "install_from_fab")
    with pytest.raises(RunError, match="this version of Flower"):
        replace_loading(ours)


def test_waits_grow_with_the_time_in_which_nothing_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], list[float]()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", slept.append)
    eager = Eager()
    for later in (0.0, 5.0, 1000.0):
        now[0] = 100.0 + later
        eager.sleep(3.0)
    eager.happened()
    eager.sleep(3.0)
    assert slept == [waits.SHORTEST_WAIT, 0.5, 3.0, waits.SHORTEST_WAIT]
    assert eager.monotonic() == 1100.0


def test_parts_of_a_message_are_asked_for_again_soon() -> None:
    from flwr.supercore.inflatable import inflatable_utils

    fetch_sooner()
    defaults = inflatable_utils.pull_objects.__kwdefaults__ or {}
    assert defaults["initial_backoff"] == waits.FETCH_SECONDS
