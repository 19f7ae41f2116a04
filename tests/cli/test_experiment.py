from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.results import METHODS, patch_runner, words, write_csv

from fedrecgel.cli.main import main
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.result import Result
from fedrecgel.runs.train import train_config
from fedrecgel.studies.records import ResultsLog
from fedrecgel.studies.tasks import TrainTask

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "shop.csv")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Tasks run in this process."""
    patch_runner(monkeypatch)
    return monkeypatch


def document(root: Path, kind: str = "main-table") -> Any:
    return json.loads((root / f"{kind}.json").read_text())


def test_a_table_from_real_processes(csv: Path, capsys: Capture) -> None:
    out = csv.parent / "results"
    assert main(words("main-table", csv, out, "--jobs", "2")) == 0
    printed = capsys.readouterr()
    assert "8 runs, 0 of them finished before" in printed.err
    assert "[8/8]" in printed.err
    for name in ("popularity", "fedncf", "fedrecgel", "fedmf", "Holm"):
        assert name in printed.out
    records = ResultsLog(out).read().values()
    assert {record.status for record in records} == {"finished"}
    for record in records:
        assert {"config.toml", "metrics.jsonl", "summary.json", "ranks.safetensors", "generalisation.json"} <= {
            path.name for path in (out / record.folder).iterdir()
        }
        assert record.run["commit"] is None or len(record.run["commit"]) >= 40
    assert json.loads((out / "data" / "shop.csv.json").read_text())["users"] == 20


def test_the_same_command_again_runs_nothing_and_says_the_same(
    csv: Path, here: pytest.MonkeyPatch, capsys: Capture
) -> None:
    out = csv.parent / "results"
    assert main(words("main-table", csv, out)) == 0
    first, before, lines = capsys.readouterr().out, document(out), (out / "results.jsonl").read_text()
    here.setattr(TrainTask, "run", lambda self, should_stop: pytest.fail("a finished run was run again"))
    assert main(words("main-table", csv, out)) == 0
    again = capsys.readouterr()
    assert "8 runs, 8 of them finished before." in again.err
    assert first.rpartition("\n\n")[0] == again.out.rpartition("\n\n")[0]
    assert document(out) == before
    assert (out / "results.jsonl").read_text() == lines


def test_experiments_share_runs(csv: Path, here: pytest.MonkeyPatch, capsys: Capture) -> None:
    out = csv.parent / "results"
    assert main(words("main-table", csv, out)) == 0
    assert main(words("ablation", csv, out)) == 0
    assert "8 runs, 1 of them finished before. The rest takes about" in capsys.readouterr().err


def test_interrupted_and_repeated_equals_not_interrupted(csv: Path, here: pytest.MonkeyPatch, capsys: Capture) -> None:
    calls = iter(range(100))

    def press(config: Config, *arguments: Any, **options: Any) -> Result:
        if next(calls) == 2:
            signal.raise_signal(signal.SIGINT)  # while the third run trains
        return train_config(config, *arguments, **options)

    here.setattr("fedrecgel.studies.tasks.train_config", press)
    assert main(words("main-table", csv, csv.parent / "results")) == 130
    said = capsys.readouterr().err
    assert "stopped, will be continued" in said
    assert "The same command goes on from here" in said
    assert len(ResultsLog(csv.parent / "results").read()) == 2
    here.setattr("fedrecgel.studies.tasks.train_config", train_config)
    assert main(words("main-table", csv, csv.parent / "results", "--quiet")) == 0
    assert main(words("main-table", csv, csv.parent / "straight", "--quiet")) == 0
    tables = [json.dumps(document(csv.parent / name)) for name in ("results", "straight")]
    stopped, straight = (_without_times(json.loads(table)) for table in tables)
    assert stopped == straight


def _without_times(table: dict[str, object]) -> dict[str, object]:
    """The document without what may differ: how long it took and where it lies."""
    table.pop("command")
    for row in table["rows"]:  # type: ignore[attr-defined]
        row.pop("seconds")
    return table


def test_a_failed_run_is_reported_and_the_others_go_on(csv: Path, here: pytest.MonkeyPatch, capsys: Capture) -> None:
    run = TrainTask.run

    def fail(self: TrainTask, should_stop: object) -> None:
        if self.config.method.name == "fedmf":
            raise MemoryError("too large")
        run(self, should_stop)  # type: ignore[arg-type]

    here.setattr(TrainTask, "run", fail)
    out = csv.parent / "results"
    assert main(words("main-table", csv, out)) == 1
    printed = capsys.readouterr()
    assert "shop.csv fedmf seed 0: FAILED: MemoryError: too large" in printed.err
    assert "fedrecgel" in printed.out
    failed = [record for record in ResultsLog(out).read().values() if record.status == "failed"]
    assert len(failed) == 2
    here.setattr(TrainTask, "run", run)
    assert main(words("main-table", csv, out)) == 0
    assert "8 runs, 6 of them finished before" in capsys.readouterr().err


def test_slow_methods_may_have_fewer_seeds_and_the_table_says_so(
    csv: Path, here: pytest.MonkeyPatch, capsys: Capture
) -> None:
    out = csv.parent / "results"
    assert main(words("main-table", csv, out, "--seeds-of", f"fedmf=0,{csv}/fedncf=1")) == 0
    printed = capsys.readouterr()
    assert "5 runs" in printed.err
    assert "Rows without results: fedmf (not run)." in printed.out
    row = next(row for row in document(out)["rows"] if row["method"] == "fedncf")
    assert row["seeds"] == [0]
    assert main(words("main-table", csv, out, "--seeds-of", "fedmf=few")) == 2
    assert "--seeds-of takes NAME=N" in capsys.readouterr().err


def test_a_table_of_what_is_finished_runs_nothing(csv: Path, here: pytest.MonkeyPatch, capsys: Capture) -> None:
    out = csv.parent / "results"
    assert main(words("main-table", csv, out, "--seeds-of", "fedmf=0,fedncf=1")) == 0
    (out / "results.jsonl").unlink()  # as if killed before it could write
    here.setattr(TrainTask, "run", lambda self, should_stop: pytest.fail("something was run"))
    capsys.readouterr()
    assert main(words("main-table", csv, out, "--finished")) == 0
    printed = capsys.readouterr().out
    assert "Rows without results: fedmf (not run)." in printed
    assert "1 of 2" in printed
    assert {row["method"]: len(row["seeds"]) for row in document(out)["rows"]} == {
        "popularity": 2,
        "fedncf": 1,
        "fedrecgel": 2,
    }


def test_models_are_kept_where_something_is_measured_on_them(csv: Path, here: pytest.MonkeyPatch) -> None:
    for out, more, kept in (
        ("slim", [], {"fedncf", "fedrecgel"}),
        ("full", ["--keep-models"], set(METHODS.split(","))),
    ):
        chosen = ["--set", "evaluation.selection=validation"]
        assert main(words("main-table", csv, csv.parent / out, "--quiet", *chosen, *more)) == 0
        records = ResultsLog(csv.parent / out).read().values()
        models = {r.run["method"] for r in records if (csv.parent / out / r.folder / "clients.safetensors").exists()}
        assert models - {"popularity"} == kept
        assert bool(list((csv.parent / out).rglob("best-*.safetensors"))) == bool(more)


def test_a_run_another_process_finished_meanwhile_is_left_alone(csv: Path, here: pytest.MonkeyPatch) -> None:
    out = csv.parent / "results"
    assert main(words("main-table", csv, out)) == 0
    record = next(record for record in ResultsLog(out).read().values() if record.run["method"] == "popularity")
    assert not (out / record.folder / "server.safetensors").exists()
    before = {path: path.stat().st_mtime_ns for path in (out / record.folder).iterdir()}
    TrainTask("again", from_dict(record.config), out / record.folder).run(lambda: False)
    assert {path: path.stat().st_mtime_ns for path in (out / record.folder).iterdir()} == before


def test_a_plan_runs_nothing(csv: Path, capsys: Capture) -> None:
    assert main(words("main-table", csv, csv.parent / "results", "--plan")) == 0
    printed = capsys.readouterr().out
    assert "s per run" in printed
    assert "on one process" in printed
    assert not (csv.parent / "results").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--datasets", "filmtrus"], "Did you mean 'filmtrust'?"),
        (["--methods", "fedncv"], "Did you mean 'fedncf'?"),
        (["--settings", "tune"], "Did you mean 'tuned'?"),
        (["--settings", "tuned,long"], "takes one of the settings"),
        (["--seeds", "0"], "should be at least 1"),
        (["--configs", "absent"], "--configs should name a folder"),
        (["--set", "method.rho_c=1"], "Did you mean 'rho_co'?"),
    ],
)
def test_wrong_input_is_one_clear_sentence(more: list[str], message: str, csv: Path, capsys: Capture) -> None:
    assert main(words("main-table", csv, csv.parent / "results", *more)) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert not (csv.parent / "results").exists()


def test_long_settings_train_methods_without_a_server_rate(
    csv: Path, here: pytest.MonkeyPatch, capsys: Capture
) -> None:
    long = ["--methods", "pfedrec,fedncf", "--settings", "long"]
    assert main(words("main-table", csv, csv.parent / "results", *long)) == 0
    printed = capsys.readouterr().out
    assert "half of the clients, 200 rounds; 3 rounds" in printed
    assert "half of the clients, server rate 0.005, 200 rounds; 3 rounds" in printed


def test_a_method_of_a_file_has_its_class_as_label(csv: Path, capsys: Capture) -> None:
    file, out = csv.parent / "mine.py", csv.parent / "results"
    file.write_text("from fedrecgel.methods.fedmf import FedMF\n\n\nclass BiasMF(FedMF):\n    pass\n")
    name = f"{file}:BiasMF"
    assert main(words("main-table", csv, out, "--methods", f"fedncf,{name}", "--seeds-of", f"{csv}/{name}=1")) == 0
    printed = capsys.readouterr()
    assert "shop.csv BiasMF seed 0" in printed.err
    assert name not in printed.out.partition("results are in")[0]
    row = next(row for row in document(out)["rows"] if row["method"] == name)
    assert (row["label"], row["seeds"]) == ("BiasMF", [0])
    assert main(["report", str(out), "--no-figures"]) == 0
    assert "BiasMF (" in (out / "pages" / "results.md").read_text()
    file.unlink()  # the report needs no method
    assert main(["report", str(out), "--no-figures"]) == 0


@pytest.mark.parametrize("kind", ["sensitivity", "ablation", "landscape"])
def test_each_experiment_names_its_methods(kind: str, csv: Path, capsys: Capture) -> None:
    assert main(words(kind, csv, csv.parent / "results", "--methods", "fedrecgel", "--plan")) == 0
    capsys.readouterr()
    assert main(words(kind, csv, csv.parent / "results", "--methods", "fedmf")) == 2
    assert f"Unknown method of '{kind}' 'fedmf'" in capsys.readouterr().err


def test_results_are_not_written_into_a_file(csv: Path, capsys: Capture) -> None:
    assert main(words("ablation", csv, csv)) == 2
    assert "--out should be a folder that can be written" in capsys.readouterr().err


def test_a_grid_is_made_of_numbers(csv: Path, capsys: Capture) -> None:
    assert main(words("sensitivity", csv, csv.parent / "results", "--grid", "0,many")) == 2
    assert "--grid takes numbers" in capsys.readouterr().err
