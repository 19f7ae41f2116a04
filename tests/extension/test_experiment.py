"""An experiment of one's own, made in this file alone: options, runs, tables, charts, section and findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from tests.results import SETTINGS, patch_runner, write_csv

from fedrecgel.cli.main import main
from fedrecgel.display.chart import Chart, StepLine, Steps
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.errors import ConfigError
from fedrecgel.runs.config import Config
from fedrecgel.studies import EXPERIMENTS
from fedrecgel.studies.cells import SHOWN, Row, RowPlan, configs_of, load_group, plan_row
from fedrecgel.studies.experiment import Document, Experiment, Option, Scope
from fedrecgel.studies.presets import Presets
from fedrecgel.studies.records import Record
from fedrecgel.studies.rows import among_candidates, seeds_entry

Capture = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Shares(Document):
    """What is reached with fewer clients per round."""

    rows: list[Row]

    def tables(self) -> list[Table]:
        lines = [[Entry(row.label), *among_candidates(row, SHOWN), seeds_entry(row)] for row in self.rows]
        return [Table("shares", "Fewer clients per round", ["share", *SHOWN, "seeds"], lines, (), self.command)]

    def charts(self, records: Sequence[Record]) -> list[Chart]:
        means = [100 * row.cells["candidates"]["HR@10"].mean for row in self.rows]
        shares = [float(row.label) for row in self.rows]
        steps = Steps("HR@10 over the share", "share", shares, "HR@10, %", [StepLine("HR@10", means, 0)])
        return [Chart("shares", "Fewer clients per round", steps, self.command)]

    def findings(self) -> dict[str, list[str]]:
        return {row.dataset: [f"{len(self.rows)} shares were tried."] for row in self.rows}


@dataclass(frozen=True)
class SharesExperiment(Experiment):
    """FedMF with several shares of clients per round."""

    name = "shares"
    help = "fewer clients per round"
    document = Shares
    title = "Fewer clients"
    about = "What is reached with fewer clients per round."
    options = (Option("--shares", "X,Y", "of the clients (default 0.5,1)", "0.5,1"),)
    methods = ("fedmf",)

    @cached_property
    def plans(self) -> list[RowPlan]:
        scope = self.scope
        return [
            plan_row(scope.presets, dataset, "fedmf", setting, scope.seeds, label=share, changes=[_share(share)])
            for dataset in scope.datasets
            for setting in scope.settings
            for share in self.option("shares").split(",")
        ]

    def configs(self) -> list[Config]:
        return configs_of(self.plans)

    def reduce(self, root: Path, records: dict[str, Record], command: str) -> Shares:
        found = load_group(root, self.plans, records)
        return Shares(command, [runs.row() for runs in found.values()])


def _share(text: str) -> tuple[str, str, object]:
    try:
        return "method", "fraction", float(text)
    except ValueError as error:
        raise ConfigError(f"--shares takes numbers, as in 0.5,1. Found '{text}'.") from error


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, SharesExperiment.name, SharesExperiment)
    patch_runner(monkeypatch)


def command(folder: Path, *more: str) -> list[str]:
    small = [word for setting in SETTINGS[3:] for word in ("--set", setting)]
    csv = write_csv(folder / "shop.csv")
    where = ["--datasets", str(csv), "--out", str(folder / "results")]
    return ["experiment", "shares", *where, "--seeds", "2", "--rounds", "2", *small, *more]


def test_the_command_line_offers_and_runs_it(tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["experiment", "shares", "--help"])
    assert "of the clients (default 0.5,1)" in capsys.readouterr().out
    assert main(command(tmp_path, "--shares", "0.2,1")) == 0
    printed = capsys.readouterr()
    assert "4 runs, 0 of them finished before" in printed.err
    title, head, first, second = printed.out.splitlines()[:4]
    assert (title, head.split()) == ("Fewer clients per round", ["share", *SHOWN, "seeds"])
    assert (first.split()[0], second.split()[0]) == ("0.2", "1")
    document = json.loads((tmp_path / "results" / "shares.json").read_text())
    assert "--shares 0.2,1" in document["command"]
    assert [len(row["folders"]) for row in document["rows"]] == [2, 2]


def test_wrong_options_are_refused_before_anything_runs(tmp_path: Path, capsys: Capture) -> None:
    assert main(command(tmp_path, "--shares", "few")) == 2
    assert "--shares takes numbers" in capsys.readouterr().err
    assert main(command(tmp_path, "--methods", "fedncf")) == 2
    assert "Unknown method of 'shares' 'fedncf'" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_the_report_shows_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert main(command(tmp_path, "--quiet")) == 0
    assert main(["report", str(tmp_path / "results")]) == 0
    page = (tmp_path / "results" / "report.html").read_text()
    section = page.partition('<section id="shares">')[2].partition("</section>")[0]
    assert section.startswith("<h2>Fewer clients</h2>")
    assert 'data-figure="steps" data-key="figure-' in section
    assert 'id="table-shares"' in section
    assert "<li>2 shares were tried.</li>" in page
    assert (tmp_path / "results" / "figures" / "shares.svg").exists()
    assert "| 0.5 |" in (tmp_path / "results" / "tables" / "shares.md").read_text()


def test_from_python(tmp_path: Path) -> None:
    scope = Scope(Presets(tmp_path, rounds=1), ("demo",), 1, ("published",), options={"shares": "0.1"})
    (config,) = SharesExperiment(scope).configs()
    assert config.method.build().fraction == 0.1
