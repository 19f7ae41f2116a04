"""A metric of one's own, made in this file alone, in everything a run and an experiment write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jaxtyping import Float
from tests.builders import random_split
from tests.results import SETTINGS, patch_runner, words, write_csv
from torch import Tensor

import fedrecgel as fr
from fedrecgel.cli.main import main
from fedrecgel.evaluation.metrics import METRICS, Metric

Capture = pytest.CaptureFixture[str]


def precision(rank: Float[Tensor, " r"], k: int) -> Float[Tensor, " r"]:
    """Precision@K: the share of relevant items among the first K."""
    return (rank <= k).to(rank.dtype) / k


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "Precision@K", Metric(precision))


def test_from_python() -> None:
    result = fr.train("popularity", random_split(), evaluation={"ks": [3, 10]})
    assert list(result.metrics) == ["HR@3", "NDCG@3", "Precision@3", "HR@10", "NDCG@10", "Precision@10", "MRR"]
    for found in (result.metrics, result.metrics_full, result.reference["popularity"], result.history[-1]):
        assert found["Precision@10"] == pytest.approx(found["HR@10"] / 10, abs=1e-12)


def test_from_the_command_line(tmp_path: Path, capsys: Capture) -> None:
    csv, run = write_csv(tmp_path / "shop.csv"), tmp_path / "run"
    small = [word for setting in SETTINGS for word in ("--set", setting)]
    assert main(["train", "--dataset", str(csv), "--rounds", "2", "--out", str(run), *small]) == 0
    head, _, popularity, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["HR@5", "NDCG@5", "Precision@5", "HR@10", "NDCG@10", "Precision@10", "MRR"]
    assert len(popularity) == len(head)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(line["Precision@5"] == pytest.approx(line["HR@5"] / 5, abs=1e-12) for line in lines)
    summary = json.loads((run / "summary.json").read_text())
    assert {"Precision@5", "Precision@10"} <= summary["metrics"].keys() & summary["metrics_full"].keys()


def test_in_the_main_table_and_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    patch_runner(monkeypatch)
    csv, out = write_csv(tmp_path / "shop.csv"), tmp_path / "results"
    assert main(words("main-table", csv, out)) == 0
    printed = capsys.readouterr().out
    assert "Precision@10" in printed
    assert "Precision@10, all items" in printed
    rows = json.loads((out / "main-table.json").read_text())["rows"]
    for row in rows:
        cells = row["cells"]["candidates"]
        assert cells["Precision@5"]["mean"] == pytest.approx(cells["HR@5"]["mean"] / 5, abs=1e-12)
    assert main(["report", str(out), "--no-figures"]) == 0
    page = (out / "report.html").read_text()
    assert ">Precision@5</button>" in page
    (data,) = page.split('id="figure-data">')[1:]
    figures = json.loads(data.partition("</script>")[0])["figures"].values()
    panels = [list(figure["panels"]) for figure in figures if "panels" in figure]
    assert ["HR@10", "NDCG@10", "Precision@10", "loss"] in panels  # over rounds
    assert ["HR@10", "NDCG@10", "Precision@10"] in panels  # over uploads


def test_earlier_runs_get_it_from_their_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Popularity's row of the ablation comes from summaries, which do not have it; the table says so."""
    patch_runner(monkeypatch)
    csv, out = write_csv(tmp_path / "shop.csv"), tmp_path / "results"
    with monkeypatch.context() as before:
        before.delitem(METRICS, "Precision@K")
        assert main(words("ablation", csv, out, "--quiet")) == 0
    assert main(words("ablation", csv, out, "--finished", "--quiet")) == 0
    cells = json.loads((out / "ablation.json").read_text())["rows"][0]["row"]["cells"]["candidates"]
    assert cells["Precision@10"]["mean"] == pytest.approx(cells["HR@10"]["mean"] / 10, abs=1e-12)
    assert main(["report", str(out), "--no-figures"]) == 0
    table = (out / "tables" / "ablation-shop.csv-published.md").read_text()
    (popularity,) = (line for line in table.splitlines() if line.startswith("| popularity"))
    assert popularity.count("| – ") == 4  # two cut-offs, and the two differences no such row has
