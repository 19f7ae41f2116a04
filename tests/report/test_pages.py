"""Markdown pages: every data set has its own tables, and sentences hold for all that stands below them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from docs import results_pages
from tests.documents import document_of, row_of

from fedrecgel.report.collect import Collected, collect
from fedrecgel.report.compare import RunComparison
from fedrecgel.report.pages import CHOSEN, LISTED, result_pages
from fedrecgel.report.plain import results_of
from fedrecgel.report.write import write_report
from fedrecgel.studies.cells import Row
from fedrecgel.studies.experiment import Document


def pages_of(*rows: Row, figure_files: Mapping[str, str] | None = None) -> dict[str, str]:
    documents: dict[str, list[Document]] = {"main-table": [document_of(*rows)]}
    found = Collected(Path(), records=[], groups=[], documents=documents, data={}, environment={})
    return result_pages(found, "command", figure_files or {})


def test_a_data_set_has_its_own_tables_and_no_other() -> None:
    pages = pages_of(*(row_of(name, "fedmf", 0.5) for name in ("shop", "my-shop", "shop-2")))
    assert [pages[f"results-{name}"].count("HR and NDCG of every method") for name in ("shop", "my-shop")] == [1, 1]


def test_a_page_shows_the_figures_there_are_under_their_names() -> None:
    files = {"overview-a/b": "overview-a-b", "overview-a-b": "overview-a-b-2"}
    pages = pages_of(row_of("a/b", "fedmf", 0.5), row_of("a-b", "fedmf", 0.5), figure_files=files)
    shown = {name: text.split("../figures/")[1:] for name, text in pages.items() if name.startswith("results-")}
    assert [figure.partition(")")[0] for of in shown.values() for figure in of] == [
        "overview-a-b.svg",
        "overview-a-b-2.svg",
    ]


def test_trials_are_told_of_settings_that_all_name_theirs() -> None:
    searched = replace(row_of("shop", "fedmf", 0.5), heading="FedMF on Shop: the best of 8 trials, code 1234567")
    by_hand = replace(row_of("shop", "fedncf", 0.5), heading="FedNCF on Shop: found by hand")
    assert CHOSEN in pages_of(searched)["settings"]
    told = pages_of(searched, by_hand)["settings"]
    assert CHOSEN not in told
    assert "found by hand" in told


def test_the_site_has_no_list_of_commits_to_point_to(results: Path, tmp_path: Path) -> None:
    found = collect(results)
    commits = [
        replace(record, summary={**record.run, "commit": str(number)}) for number, record in enumerate(found.records)
    ]
    pages = result_pages(replace(found, records=commits), "command", {})
    (tmp_path / "pages").mkdir()
    for name, text in pages.items():
        (tmp_path / "pages" / f"{name}.md").write_text(text, encoding="utf-8")
    assert LISTED in pages["results"]
    told = results_pages.pages(tmp_path)["index"]
    assert "conditions.md" not in told
    assert "commits; the summary of each run has its own" in told


def test_plain_runs_are_compared_once(results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def counted(*arguments: object) -> list[RunComparison]:
        calls.append(arguments)
        return results_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("fedrecgel.report.collect.results_of", counted)
    runs = sorted((results / "runs").iterdir())[:2]
    for run in runs:
        shutil.copytree(run, tmp_path / "runs" / run.name)
    write_report(tmp_path / "runs", tmp_path / "page.html", "a command", figures=False)
    assert len(calls) == 1
    assert "a command" in (tmp_path / "tables").joinpath("levels-shop.csv.md").read_text(encoding="utf-8")
