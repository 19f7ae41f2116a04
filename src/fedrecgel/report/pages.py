"""Results as Markdown pages: a start, one page for each data set, and one for each question and for what is behind.

A page begins with its sentences; commits stand in a footnote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fedrecgel.display.tabular import Table
from fedrecgel.display.text import in_markdown, markdown_code, prose, slug
from fedrecgel.report import facts
from fedrecgel.report.collect import Collected
from fedrecgel.report.findings import findings_of
from fedrecgel.studies import EXPERIMENTS
from fedrecgel.studies.main_table import MainTableExperiment
from fedrecgel.studies.presets import TRIALS
from fedrecgel.studies.records import Record

SETTINGS = "Settings: "
"""How notes of the main table begin that stand on a page of their own."""
CHOSEN = (
    "Settings were chosen on the validation item, never on test items: each line says of how many trials they are the "
    "best, and by which code."
)
FEW = 3
"""So many sentences and commits are told at once."""
OF_DATASET = ("main", "levels", "differences")
"""Tables with one data set each, which their names end in."""
FIGURES = {
    "overview": "every method beside popularity, with intervals",
    "uploads": "the level each federated method reaches, by the megabytes a client has sent",
}
"""On the page of a data set, and what they show."""
LISTED = "; `conditions.md` lists them"
"""Behind a number of commits."""


def result_pages(found: Collected, command: str, figure_files: Mapping[str, str]) -> dict[str, str]:
    """Pages by the name of their file, without its suffix.

    Args:
        found: the results.
        command: what makes the pages.
        figure_files: names of the figures' files by those of their charts; they are beside the pages in `../figures`.
    """
    sentences = {finding.dataset: finding.sentences[:FEW] for finding in findings_of(found)}
    results = [found.main] if found.main else found.plain_results(command)
    tables = [table for result in results for table in result.tables()]
    datasets = found.main.by_dataset if found.main else dict.fromkeys(group.dataset for group in found.groups)
    pages: dict[str, list[str]] = {"results": ["# Results", ""]}
    for dataset in datasets:
        name = slug(f"results-{dataset}", {*pages, *EXPERIMENTS})
        told = [*_told(sentences.get(dataset, [])), ""]
        names = {f"{kind}-{dataset}" for kind in OF_DATASET}
        own = [_short(table, dataset) for table in tables if table.name in names]
        pages["results"] += [f"## [{in_markdown(dataset)}]({name}.md)", "", *told]
        pages[name] = [f"# {in_markdown(dataset)}", "", *told, *_figures(dataset, figure_files), *_written(own)]
    pages["results"] += _written(table for table in tables if table.name == "main-overview")
    if settings := _settings(tables):
        headings = [note for table in tables for note in table.notes if note.startswith(SETTINGS)]
        chosen = [CHOSEN, ""] if all(map(TRIALS.search, headings)) else []
        pages["settings"] = ["# Where the settings come from", "", *chosen, *settings]
    origin = _origin(_of_results(found), command)
    made = {name: "\n".join([*lines, *origin]) for name, lines in pages.items()}
    return made | {name: "\n".join([*lines, *_origin(found.finished, command)]) for name, lines in _others(found)}


def _others(found: Collected) -> Iterator[tuple[str, list[str]]]:
    """A page for each other question, and two for what is behind the numbers."""
    for name, documents in found.documents.items():
        if name != MainTableExperiment.name:
            told = [(dataset, told) for document in documents for dataset, told in document.findings().items()]
            sentences = _told(f"{dataset}: {sentence}" for dataset, of in told for sentence in of)
            tables = _written(table for document in documents for table in document.tables())
            about = EXPERIMENTS[name]
            yield name, [f"# {about.title}", "", about.about, "", *sentences, "", *tables]
    if (bound := facts.generalisation_table(found)) is not None:
        yield "generalisation", [f"# {bound.title}", "", *_written([bound])]
    behind = (facts.data_table(found), facts.protocol_table(found), facts.privacy_table(found))
    shown = [table for table in (*behind, facts.environment_table(found)) if table is not None]
    yield "conditions", ["# How these numbers were made", "", *_written(shown)]


def _of_results(found: Collected) -> list[Record]:
    """The runs of the main table, or all."""
    folders = {folder for row in found.main.rows for folder in row.folders} if found.main else set()
    return [record for record in found.finished if record.folder in folders] or found.finished


def _told(sentences: Iterable[str]) -> list[str]:
    return [f"- {in_markdown(sentence)}" for sentence in sentences]


def _figures(dataset: str, files: Mapping[str, str]) -> list[str]:
    """What each method reaches, and with how many bytes, as far as there are figures of it."""
    found = ((told, files.get(f"{kind}-{dataset}")) for kind, told in FIGURES.items())
    lines = [f"![{in_markdown(f'{dataset}: {told}')}](../figures/{name}.svg)" for told, name in found if name]
    return [line for figure in lines for line in (figure, "")]


def _short(table: Table, dataset: str) -> Table:
    """Without the data set's name, and what is said on the page of the settings."""
    notes = [note for note in table.notes if not note.startswith(SETTINGS)]
    return replace(table, title=table.title.removeprefix(f"{dataset}: "), notes=notes)


def _settings(tables: Iterable[Table]) -> list[str]:
    """Where the settings of every row come from, by data set."""
    lines = []
    for table in tables:
        own = [note.removeprefix(SETTINGS) for note in table.notes if note.startswith(SETTINGS)]
        if own:
            title = table.name.removeprefix("main-")
            lines += [f"## {in_markdown(title)}", "", *(f"- {prose(note)}" for note in own), ""]
    return lines


def _written(tables: Iterable[Table]) -> list[str]:
    """Tables as sections of a page."""
    return [line for table in tables for line in (table.markdown().replace("### ", "## ", 1), "")]


def _origin(records: Iterable[Record], command: str) -> list[str]:
    """The footnote: what made the page, and of which commits."""
    commits = sorted({str(record.run["commit"] or "installed")[:10] for record in records})
    told = f"{len(commits)} commits{LISTED}"
    if len(commits) <= FEW:
        told = f"commit {in_markdown(', '.join(commits))}"
    return ["", "[^made]", "", f"[^made]: Generated by {markdown_code(command)} from runs of {told}.", ""]
