"""Write a report: the page, and beside it tables and figures for papers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fedrecgel.display.chart import Chart, by_file
from fedrecgel.display.tabular import Table
from fedrecgel.display.text import slugs
from fedrecgel.errors import ConfigError, RunFolderError
from fedrecgel.report import attacks, facts
from fedrecgel.report.collect import Collected, collect
from fedrecgel.report.examples import example_tables
from fedrecgel.report.html import render
from fedrecgel.report.lists import list_tables
from fedrecgel.report.own_charts import training_curves, upload_curves
from fedrecgel.report.pages import result_pages
from fedrecgel.report.people import people_tables
from fedrecgel.runs.config import lookup
from fedrecgel.storage import write_text
from fedrecgel.studies.archive import SUFFIX, archives, unpack


@dataclass(frozen=True)
class Written:
    """How much was written."""

    tables: int
    figures: int
    missing: str = ""
    """Why there are no figures, if there are none."""


def write_report(root: Path, page: Path, command: str, *, figures: bool = True) -> Written:
    """Write the page, `tables/` in Markdown and LaTeX, `pages/` and `figures/` in PNG, SVG and PDF beside it.

    Packed results (`studies/archive.py`) are read where there are any, and nothing else of the folder.

    Raises:
        RunFolderError: the folder holds no finished run, or a link would lead out of the folder of the page.
    """
    for name in ("tables", "figures", "pages"):
        if (page.parent / name).is_symlink():
            raise RunFolderError(
                f"'{page.parent / name}' should be a folder. Found a link; remove it or choose another -o."
            )
    found: Collected
    with opened(root) as found:
        return _write(found, page, command, figures)


@contextmanager
def opened(root: Path) -> Iterator[Collected]:
    """The results in a folder, in the packed files there, or in one packed file.

    Raises:
        RunFolderError: there are no results, or no finished run among them.
    """
    packed = archives(root)
    if not packed and not root.is_dir():
        raise RunFolderError(f"'{root}' should be a folder with results, or packed ones (*{SUFFIX}). There is none.")
    if not packed:
        yield collect(root)
        return
    with TemporaryDirectory() as folder:
        unpack(packed, Path(folder))
        yield collect(Path(folder))


def write_figure(root: Path, name: str, target: Path, command: str) -> None:
    """Draw one figure of a report.

    Raises:
        ConfigError: there is none of this name, the target ends otherwise, or matplotlib is missing.
        RunFolderError: there are no results.
    """
    try:
        from fedrecgel.report.drawing import FORMATS, figure_of, save
    except ImportError as error:
        raise ConfigError("--figure needs matplotlib. Install the extra: fedrecgel[report].") from error
    if target.suffix[1:] not in FORMATS:
        raise ConfigError(f"A figure is written to a file that ends in .{', .'.join(FORMATS)}. Found '{target}'.")
    with opened(root) as found:
        save(figure_of(lookup("figure", name, by_file(all_charts(found, command)))), target)


def _write(found: Collected, page: Path, command: str, figures: bool) -> Written:
    write_text(page, render(found, command))
    tables = list(all_tables(found, command))
    folder = page.parent / "tables"
    for name, table in zip(slugs(table.name for table in tables), tables, strict=True):
        write_text(folder / f"{name}.md", table.markdown() + "\n")
        write_text(folder / f"{name}.tex", table.latex() + "\n")
    charts = list(all_charts(found, command))
    figure_files = {chart.name: name for name, chart in by_file(charts).items()}
    for name, text in result_pages(found, command, figure_files).items():
        write_text(page.parent / "pages" / f"{name}.md", text)
    if not figures:
        return Written(len(tables), 0)
    try:
        from fedrecgel.report.drawing import draw_all
    except ImportError:
        return Written(len(tables), 0, "No PNG, SVG and PDF: matplotlib is missing. Get it with the extra 'report'.")
    return Written(len(tables), draw_all(charts, page.parent / "figures"))


def all_tables(found: Collected, command: str) -> Iterator[Table]:
    """Every table of a report."""
    for document in found.in_order:
        yield from document.tables()
    if found.main is None:
        for result in found.plain_results(command):
            yield from result.tables()
    yield from people_tables(found)
    yield from list_tables(found)
    yield from example_tables(found)
    for table in (facts.generalisation_table(found), facts.data_table(found)):
        if table is not None:
            yield table
    yield facts.protocol_table(found)
    yield facts.privacy_table(found)
    yield from attacks.attack_tables(found)
    yield facts.environment_table(found)


def all_charts(found: Collected, command: str) -> Iterator[Chart]:
    """Every chart of a report that papers show, too."""
    charts = training_curves(found, command) + upload_curves(found, command)
    if found.main is None:
        charts += [chart for result in found.plain_results(command) for chart in result.charts()]
    for document in found.in_order:
        charts += document.charts(found.finished)
    yield from (chart for chart in charts if chart.where != "page")
