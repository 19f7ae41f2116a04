from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from tests.builders import random_split

import fedrecgel
from fedrecgel.report.collect import groups_of
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.settings import read_settings
from fedrecgel.studies.fingerprints import complete_settings, config_fingerprint, recorded_fingerprint
from fedrecgel.studies.plan import Job, Plan, estimate, probe, slowest_first
from fedrecgel.studies.records import Record, ResultsLog, finished_record, is_complete

SMALL = from_dict({"method": {"name": "fedncf", "gmf_dim": 4, "mlp_dim": 6, "fraction": 0.5}, "run": {"rounds": 6}})


def test_the_fingerprint_knows_what_changes_numbers() -> None:
    def changed(**run: object) -> Config:
        return replace(SMALL, run=replace(SMALL.run, **run))  # type: ignore[arg-type]

    same = replace(SMALL, local=replace(SMALL.local, workers=7), data=replace(SMALL.data, dir="/elsewhere"))
    assert config_fingerprint(same) == config_fingerprint(SMALL)
    sampled = [replace(SMALL, evaluation=replace(SMALL.evaluation, full_users=number)) for number in (0, 9)]
    assert [config_fingerprint(config) == config_fingerprint(SMALL) for config in sampled] == [True, False]
    others = [changed(seed=1), changed(rounds=7), replace(SMALL, method=replace(SMALL.method, options={}))]
    assert len({config_fingerprint(config) for config in [SMALL, *others]}) == 4


def test_a_plan_has_every_run_once() -> None:
    plan = Plan.of(Path("none"), [SMALL, SMALL, replace(SMALL, run=replace(SMALL.run, seed=1))])
    assert len(plan.jobs) == len(plan.missing) == 2
    assert plan.jobs[0].folder.startswith("runs/demo-fedncf-s")


def test_a_run_of_a_version_with_fewer_settings_is_the_same_run(tmp_path: Path) -> None:
    """What a later setting meant before it was there: `released` says so, else the default."""
    now = from_dict({"method": {"name": "fedncf", "reg_user": 0.0}})
    settings = now.to_dict()
    before = {name: values for name, values in settings.items() if name != "gate"}
    before["method"] = {key: value for key, value in settings["method"].items() if key != "reg_user"}
    assert recorded_fingerprint(before) == config_fingerprint(now)
    assert recorded_fingerprint(before) != config_fingerprint(from_dict({"method": {"name": "fedncf"}}))
    assert recorded_fingerprint({**settings, "method": {"name": "elsewhere.py:Mine"}}) is None  # it would run the file
    assert recorded_fingerprint({**settings, "gone": {"key": 1}}) is None

    folder = tmp_path / "runs" / "demo-fedncf-s0-0lder"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(before), encoding="utf-8")
    for name in ("summary.json", "generalisation.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    plan = Plan.of(tmp_path, [now, SMALL])
    assert plan.missing == [Job(SMALL)]
    assert plan.finished(Job(now)) == "runs/demo-fedncf-s0-0lder"
    ResultsLog(tmp_path).append(Record("failed", "an older one", "runs/x", before, None))
    assert ResultsLog(tmp_path).read().keys() == {config_fingerprint(now)}


def test_records_have_the_settings_that_came_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the file and in run folders: else a report takes the same run of two versions for two configurations."""
    result = fedrecgel.train("fedncf", random_split(), rounds=1, gmf_dim=4, mlp_dim=6, reg_user=0.0)
    folder = tmp_path / "runs" / "one"
    now = result.config.to_dict()
    before = {name: values for name, values in now.items() if name != "gate"}
    before["method"] = {key: value for key, value in now["method"].items() if key != "reg_user"}
    with monkeypatch.context() as version:
        version.setattr(Config, "to_dict", lambda config: before)
        result.save(folder)
    assert complete_settings(before) == now
    assert complete_settings(now) == now

    assert not is_complete(folder)
    (folder / "generalisation.json").write_text("null", encoding="utf-8")
    assert is_complete(folder)
    assert read_settings(folder / "config.toml") == before
    later = finished_record(tmp_path, "runs/one", "mark")
    assert later.config == now
    log = ResultsLog(tmp_path)
    log.append(Record("finished", "mark", "runs/one", before, result.summary))
    (earlier,) = log.read().values()
    assert earlier.config == now
    (group,) = groups_of(tmp_path, [later, earlier])
    assert len(group.records) == 2


def test_what_cannot_be_known_of_a_record_stays_as_it_is(tmp_path: Path) -> None:
    elsewhere = Record("failed", "mark", "runs/x", {"method": {"name": "elsewhere.py:Mine"}}, None)
    ResultsLog(tmp_path).append(elsewhere)
    assert ResultsLog(tmp_path).read() == {"mark": elsewhere}


def test_time_is_estimated_from_earlier_runs() -> None:
    summary = {"rounds": 3, "seconds": {"total": 6.0}}
    earlier = Record("finished", "x", "runs/x", SMALL.to_dict(), summary)
    jobs = [Job(SMALL), Job(replace(SMALL, method=replace(SMALL.method, name="popularity", options={})))]
    found = estimate(jobs, [earlier])
    assert found.seconds == 12.0  # twice the rounds
    assert found.unknown == ("demo popularity",)


def test_slow_runs_come_first() -> None:
    def job(method: str, rounds: int = 6) -> Job:
        return Job(from_dict({"method": {"name": method, "fraction": 0.5}, "run": {"rounds": rounds}}))

    jobs = [job("popularity", 1), job("fedncf"), job("fedncf", 60), job("gpfedrec"), job("fedmf")]
    assert [one.label.split()[1] for one in slowest_first(jobs, [])] == [
        "fedncf",
        "gpfedrec",
        "fedncf",
        "fedmf",
        "popularity",
    ]
    summary = {"rounds": 3, "seconds": {"total": 600.0}}
    known = Record("finished", "x", "runs/x", job("fedmf").config.to_dict(), summary)
    quick = Record("finished", "y", "runs/y", job("fedncf").config.to_dict(), {"rounds": 3, "seconds": {"total": 0.1}})
    assert slowest_first(jobs[1:3] + jobs[4:], [known, quick])[0].config.method.name == "fedmf"


def test_a_probe_trains_and_leaves_nothing(tmp_path: Path) -> None:
    seconds = probe(Job(SMALL), random_split())
    assert seconds is not None
    assert 0 < seconds < 60
    diverging = from_dict({"method": {"name": "fedmf"}, "run": {"channel": "plain"}})
    assert probe(Job(replace(diverging, run=replace(diverging.run, device="abacus"))), random_split()) is None
    assert not list(tmp_path.iterdir())
