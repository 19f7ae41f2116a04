from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.builders import random_split

from fedrecgel.runs.config import Config, from_dict
from fedrecgel.studies.plan import Job, Plan, config_fingerprint, estimate, probe
from fedrecgel.studies.records import Record

SMALL = from_dict({"method": {"name": "fedncf", "gmf_dim": 4, "mlp_dim": 6, "fraction": 0.5}, "run": {"rounds": 6}})


def test_the_fingerprint_knows_what_changes_numbers() -> None:
    def changed(**run: object) -> Config:
        return replace(SMALL, run=replace(SMALL.run, **run))  # type: ignore[arg-type]

    same = replace(SMALL, local=replace(SMALL.local, workers=7), data=replace(SMALL.data, dir="/elsewhere"))
    assert config_fingerprint(same) == config_fingerprint(SMALL)
    others = [changed(seed=1), changed(rounds=7), replace(SMALL, method=replace(SMALL.method, options={}))]
    assert len({config_fingerprint(config) for config in [SMALL, *others]}) == 4


def test_a_plan_has_every_run_once() -> None:
    plan = Plan.of(Path("none"), [SMALL, SMALL, replace(SMALL, run=replace(SMALL.run, seed=1))])
    assert len(plan.jobs) == len(plan.missing) == 2
    assert plan.jobs[0].folder.startswith("runs/demo-fedncf-s")


def test_time_is_estimated_from_earlier_runs() -> None:
    summary = {"rounds": 3, "seconds": {"total": 6.0}}
    earlier = Record("finished", "x", "runs/x", SMALL.to_dict(), summary)
    jobs = [Job(SMALL), Job(replace(SMALL, method=replace(SMALL.method, name="popularity", options={})))]
    found = estimate(jobs, [earlier])
    assert found.seconds == 12.0  # twice the rounds
    assert found.unknown == ("demo popularity",)


def test_a_probe_trains_and_leaves_nothing(tmp_path: Path) -> None:
    seconds = probe(Job(SMALL), random_split())
    assert seconds is not None
    assert 0 < seconds < 60
    diverging = from_dict({"method": {"name": "fedmf"}, "run": {"channel": "plain"}})
    assert probe(Job(replace(diverging, run=replace(diverging.run, device="abacus"))), random_split()) is None
    assert not list(tmp_path.iterdir())
