from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.builders import enough_rounds, tiny

import fedrecgel
from fedrecgel.data.interactions import Interactions
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, RunFolderError
from fedrecgel.methods import METHODS
from fedrecgel.methods.messages import Problem
from fedrecgel.runs.continued import Continued, match
from fedrecgel.runs.result import Result
from fedrecgel.tables import State

PAIRS = [(user, int(item)) for user in range(14) for item in np.random.default_rng(user).permutation(60)[:12]]
REFUSED = {"cofedrec", "perfedrec"}
LEARNT = [name for name in METHODS if name not in REFUSED and METHODS[name](**tiny(name)).rounds is None]


def rows(*, users: range, items: range) -> Interactions:
    """Some of the pairs, named, in an order of their own."""
    found = [(f"u{user}", f"i{item}") for user, item in PAIRS if user in users and item in items]
    frame = {"user": [user for user, _ in found], "item": [item for _, item in found], "timestamp": range(len(found))}
    return fedrecgel.load({name: list(values) for name, values in frame.items()})


OLD, NEW = rows(users=range(12), items=range(55)), rows(users=range(2, 14), items=range(5, 60))


def train(name: str, data: Interactions, **options: Any) -> Result:
    settings = {"rounds": enough_rounds(name, 2), "evaluation": {"full": False}, "split": {"candidates": 5}}
    return fedrecgel.train(name, data, **{**tiny(name), **settings, **options})


@pytest.fixture(scope="module")
def mf() -> Result:
    return train("fedmf", OLD)


def test_names_are_matched_whatever_their_type() -> None:
    found = match([3, 5, 7], ["7", "x", "3"])
    assert (found.old.tolist(), found.new.tolist(), found.missing) == ([0, 2], [2, 0], [5])
    assert found.counts == {"matched": 2, "added": 1, "missing": 1}
    assert match([], [1]).counts == {"matched": 0, "added": 1, "missing": 0}


def whole(state: State) -> dict[str, torch.Tensor]:
    """Every private tensor of each client, tables in full."""
    one = state.of(slice(None))
    return {**one.tensors, **{name: table.dense() for name, table in one.tables.items()}}


@pytest.mark.parametrize("name", LEARNT)
def test_what_is_known_is_kept_and_the_rest_is_as_the_method_begins(name: str) -> None:
    earlier = train(name, OLD)
    split, draws = NEW.split(candidates=5), Draws(7)
    method, problem = earlier.config.method.build(), Problem(split.n_users, split.n_items)
    continued = Continued(earlier, "there", method, problem, split, draws)
    initial = method.init_server(problem, draws)
    found, (ids, private) = continued.shared(initial), continued.private()
    assert found.kept.keys() == initial.kept.keys()
    known = {name: number for number, name in enumerate(earlier.item_ids)}
    item = [known.get(name) for name in NEW.item_ids]
    assert None in item
    for key, value in found.shared.items():
        if value.shape[:1] != (split.n_items,):
            assert torch.equal(value, earlier.shared[key])
            continue
        for here, there in enumerate(item):
            assert torch.equal(value[here], initial.shared[key][here] if there is None else earlier.shared[key][there])
    before, after = whole(earlier.clients), whole(private)
    fresh = whole(method.init_clients(problem, ids, draws))
    assert before.keys() == after.keys()
    for number, user in enumerate(ids.tolist()):
        there = earlier.user_ids.index(NEW.user_ids[user])
        for key, value in after.items():
            if before[key].shape[1:2] != (len(earlier.item_ids),):
                assert torch.equal(value[number], before[key][there])
                continue
            scale = private.tables[key].scale[number] if key in private.tables else 1
            for here, place in enumerate(item):
                old = fresh[key][number][here] * scale if place is None else before[key][there][place]
                torch.testing.assert_close(value[number][here], old)


def test_the_summary_counts_and_names(mf: Result) -> None:
    start = train("fedmf", NEW, start=mf).summary["start"]
    here, there = ({*map(str, data.user_ids)} for data in (NEW, OLD))
    assert start["users"] == {"matched": len(here & there), "added": len(here - there), "missing": len(there - here)}
    items, earlier = ({*map(str, data.item_ids)} for data in (NEW, OLD))
    matched = {"matched": len(items & earlier), "added": len(items - earlier), "missing": len(earlier - items)}
    assert start["items"] == matched
    assert start["missing_users"] == ["u0", "u1"]
    known, now = (
        {(f"u{user}", f"i{item}") for user, item in PAIRS if user in users and item in kept}
        for users, kept in ((range(12), range(55)), (range(2, 14), range(5, 60)))
    )
    assert start["interactions"] == {
        "matched": len(known & now),
        "added": len(now - known),
        "missing": len(known - now),
    }
    assert start["kept"] == {"shared": ["items"], "private": True}


def test_nothing_is_forgotten_silently(mf: Result) -> None:
    warnings = train("fedmf", NEW, start=mf).summary["warnings"]
    assert any("2 users of the run that was continued are not in the new data" in text for text in warnings)
    assert any("not in this run: u0, u1." in text for text in warnings)
    assert any("interactions of the run that was continued are not in the new data" in text for text in warnings)


def test_titles_of_known_items_stay(mf: Result) -> None:
    titled = replace(mf, item_titles=[f"title of {item}" for item in mf.item_ids])
    more = train("fedmf", NEW, start=titled)
    known = {str(item) for item in mf.item_ids}
    assert more.item_titles == [f"title of {i}" if str(i) in known else str(i) for i in more.item_ids]
    assert any(str(item) in known for item in more.item_ids)


def test_held_out_items_that_were_trained_on_are_told(mf: Result) -> None:
    same = train("fedmf", OLD, start=mf).summary
    assert same["start"]["heldout_trained"] == 0
    assert not any("too high" in text for text in same["warnings"])
    other = train("fedmf", OLD, start=mf, split={"candidates": 5, "kind": "ratio", "share": 0.5}).summary
    assert other["start"]["heldout_trained"] > 0.5
    assert any("so metrics are too high" in text for text in other["warnings"])


def test_sums_begin_again(mf: Result) -> None:
    earlier = train("itemknn", OLD)
    found, alone = train("itemknn", NEW, start=earlier), train("itemknn", NEW)
    assert found.metrics == alone.metrics
    assert found.summary["start"]["notes"] == ["ItemKNN sums up the new data from the start: nothing is carried over."]


def test_a_continued_run_is_better_than_a_new_one_of_the_same_length() -> None:
    clicks = fedrecgel.load("demo").split()
    earlier = fedrecgel.train("fedmf", clicks, rounds=8, evaluation={"full": False})
    more = fedrecgel.train("fedmf", clicks, rounds=1, start=earlier, evaluation={"full": False})
    alone = fedrecgel.train("fedmf", clicks, rounds=1, evaluation={"full": False})
    assert more.metrics["NDCG@10"] > alone.metrics["NDCG@10"] + 0.1


def test_it_is_repeated_from_its_config_and_resumed_to_the_bit(mf: Result, tmp_path: Path) -> None:
    mf.save(tmp_path / "old")
    options = {"rounds": 3, "checkpoint": {"every": 1}}
    once = train("fedmf", NEW, start=tmp_path / "old", out=tmp_path / "once", **options)
    short = train("fedmf", NEW, start=tmp_path / "old", out=tmp_path / "twice", **{**options, "rounds": 2})
    twice = train("fedmf", NEW, start=tmp_path / "old", out=tmp_path / "twice", resume=True, **options)
    assert short.summary["rounds"] == 2
    for result in (twice, fedrecgel.open(tmp_path / "once"), train("fedmf", NEW, start=mf, **options)):
        assert torch.equal(result.shared["items"], once.shared["items"])
        assert torch.equal(result.clients["user"], once.clients["user"])
        assert result.config.run.start_mark == once.config.run.start_mark
    assert json.loads((tmp_path / "once" / "summary.json").read_text())["start"]["folder"] == str(tmp_path / "old")


def test_another_model_in_the_folder_is_noticed(mf: Result, tmp_path: Path) -> None:
    train("fedmf", OLD, seed=1).save(tmp_path / "old")
    run = {"start_mark": "0" * 64}
    with pytest.raises(ConfigError, match="is not the run that this one was continued from, or was changed since"):
        train("fedmf", NEW, start=tmp_path / "old", run=run)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dim": 8}, r"Sizes should be those of the run to continue.*items is of shape \(\d+, 4\).*\(\d+, 8\)"),
        ({"run": {"engine": "flower"}}, "Engine 'local' alone goes on from another run"),
    ],
)
def test_settings_that_do_not_fit_are_refused(mf: Result, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        train("fedmf", NEW, start=mf, **options)


def test_another_method_is_refused(mf: Result) -> None:
    with pytest.raises(ConfigError, match=r"continued with its own method.*is of 'fedmf', here it is 'pfedrec'"):
        train("pfedrec", NEW, start=mf)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_methods_whose_server_knows_its_clients_say_so(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be continued: its server keeps something for each client"):
        train(name, NEW, start=train(name, OLD))


def test_a_spectral_start_is_not_made_again() -> None:
    earlier = train("fedncf", OLD, init="spectral", rounds=5)
    with pytest.raises(ConfigError, match=r"Take the settings of that run, with method.init = 'auto'"):
        train("fedncf", NEW, start=earlier, init="spectral")
    assert train("fedncf", NEW, start=earlier, init="auto").summary["start"]["kept"]["private"]
    with pytest.raises(ConfigError, match=r"Take the settings of that run\.$"):
        train("fedncf", NEW, start=earlier, model="mf")


@pytest.mark.parametrize("name", ["fedncf", "fedrecgel"])
def test_tables_are_kept_where_there_is_a_run_to_keep_them_from(name: str) -> None:
    earlier = train(name, OLD)
    kept, left_open = (train(name, NEW, start=earlier, init=init).shared for init in ("kept", "auto"))
    assert all(torch.equal(value, left_open[key]) for key, value in kept.items())
    with pytest.raises(ConfigError, match=r"'kept' keeps the tables of an earlier run, and there is none\. Name it"):
        train(name, OLD, init="kept")


def test_a_folder_without_private_parts_lends_its_shared_part(mf: Result) -> None:
    deployed = replace(mf, clients=State({"rounds": torch.tensor([2])}), user_ids=list(range(len(mf.user_ids))))
    found = train("fedmf", NEW, start=deployed).summary["start"]
    assert found["users"] == {"matched": 0, "added": NEW.n_users, "missing": 0}
    assert found["kept"] == {"shared": ["items"], "private": False}
    assert "they stayed on their devices: all users start anew" in found["notes"][0]


def test_a_budget_spent_before_comes_on_top(mf: Result) -> None:
    private = {**mf.summary, "privacy": {**mf.summary["privacy"], "epsilon": 3.0}}
    warnings = train("fedmf", NEW, start=replace(mf, summary=private)).summary["warnings"]
    assert any("spent a privacy budget of its own (epsilon 3.00); that of this run comes on top" in w for w in warnings)


def test_an_unfinished_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="should be a run folder"):
        train("fedmf", NEW, start=tmp_path)
