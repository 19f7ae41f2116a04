"""Pages of results from what `fedrecgel report` writes: one per data set, one per question.

`python -m docs.results_pages REPORT [PAGE…]` writes docs/results/ again, or these pages of it, from the folder of a
report. A page whose tables it has not stays as it is, and so do sections of the settings: results of several reports
can stand beside each other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.results_figure import results_figure

FOLDER = Path(__file__).parent / "results"
ASSETS = Path(__file__).parent / "assets" / "results"
MAIN = ": HR and NDCG of every method"
ORIGIN = (
    "`fedrecgel report results` makes this table and the pages of its data sets again, without training. Runs behind "
    "[an earlier main table](earlier.md) (one split, 100 rounds, 8 trials; four data sets, also GPFedRec and "
    "CoFedRec), [SAM](sam.md), [radii](radii.md), [landscapes](landscape.md), [the bound](bound.md) and "
    "[quirks](quirks.md) are not in the repository: the commands below these tables train them again."
)
"""Below the findings: what can be made again of what is in the repository."""
OVERVIEW = "Every method on every data set"
TOPICS = {
    "what quirks of the released codes are worth": ("quirks", "What quirks of the released codes are worth"),
    "which part needs SAM": ("sam", "Does sharpness-awareness help, and where?"),
    "rho_": ("radii", "The radii one by one"),
    "Settings of every row": ("settings", "Where the settings come from"),
    "accuracy against ε": ("privacy", "Accuracy against ε"),
    "every budget in full": ("privacy", "Accuracy against ε"),
    "average loss at a distance": ("landscape", "Loss landscapes"),
    "flatness in numbers": ("landscape", "Loss landscapes"),
    "Training loss, held-out loss and the bound": ("bound", "Training loss, held-out loss and the bound"),
    "": ("conditions", "How these numbers were made"),
}
"""The page of a table by words of its title; the last takes the rest."""
TITLES = {
    "filmtrust": "FilmTrust",
    "amazon-video": "Amazon-Video",
    "lastfm-2k": "Lastfm-2K",
    "lastfm-2k-distinct": "Lastfm-2K, distinct pairs",
}


@dataclass(frozen=True)
class Report:
    """The parts of a report's page of tables."""

    commits: str
    findings: dict[str, str]
    """By data set, what came out in plain words."""
    tables: dict[str, str]
    """Tables with their notes by title."""


def report_text(folder: Path) -> str:
    """What a report says, on one page: the page of all tables, or its pages in a row."""
    whole = folder / "tables" / "results.md"
    if whole.exists():
        return whole.read_text(encoding="utf-8")
    parts: list[str] = []
    for page in sorted((folder / "pages").glob("*.md")):
        text, _, made = page.read_text(encoding="utf-8").partition("\n---\n")
        tables = re.findall(r"^### .+?(?=^#{1,3} |\Z)", text, re.MULTILINE | re.DOTALL)
        parts = [made.strip(), *parts, *tables]
        if page.stem.startswith("results-"):
            told = re.findall(r"^- (.+)$", text.partition("\n## ")[0], re.MULTILINE)
            parts.insert(0, f"**{page.stem.removeprefix('results-')}.** {' '.join(told)}\n")
    return "\n".join(parts)


def read_report(text: str) -> Report:
    """The parts of a page that `fedrecgel report` wrote."""
    commits = re.search(r"from runs of commit ([0-9a-f, ]+)", text)
    findings = dict(re.findall(r"^\*\*([\w-]+)\.\*\* (.+)$", text, re.MULTILINE))
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)[1:]
    tables = {title: body.strip() for title, body in zip(parts[::2], parts[1::2], strict=True)}
    return Report(commits[1].strip() if commits else "", findings, tables)


def pages(report: Report) -> dict[str, str]:
    """The text of every page of which the report has tables, by name."""
    found: dict[str, list[str]] = {}
    settings: list[str] = []
    for title, body in report.tables.items():
        if title == OVERVIEW:
            found["index"] = [_overview(report, body)]
        elif title.endswith(MAIN):
            dataset = title.removesuffix(MAIN)
            kept, own = _without_settings(body)
            settings += [f"## {TITLES.get(dataset, dataset)}", "", *own, ""]
            found[dataset] = [_dataset_page(report, dataset, kept)]
        else:
            name, heading = next(topic for words, topic in TOPICS.items() if words in title)
            found.setdefault(name, [f"# {heading}\n"]).append(f"## {title}\n\n{body}\n")
    if settings:
        found["settings"] = ["# Where the settings come from\n", "\n".join(settings)]
    return {name: "\n".join(parts).rstrip() + "\n" + _made(report) for name, parts in found.items()}


def _without_settings(body: str) -> tuple[str, list[str]]:
    lines = body.splitlines()
    own = [line.replace("- Settings: ", "- ") for line in lines if line.startswith("- Settings: ")]
    return "\n".join(line for line in lines if not line.startswith("- Settings: ")), own


def _overview(report: Report, body: str) -> str:
    sentences = "\n".join(
        f"- **[{TITLES.get(name, name)}]({name}.md)**: {text}" for name, text in report.findings.items()
    )
    return (
        "# Results\n\nEvery method beside popularity, which needs no learning, and beside centralised rankers, which "
        f"see all data in one place. The page of a data set has its figure and its tables.\n\n{sentences}\n\n"
        f"{ORIGIN}\n\n## {OVERVIEW}\n\n{body}\n"
    )


def _dataset_page(report: Report, dataset: str, body: str) -> str:
    title = TITLES.get(dataset, dataset)
    figure = f"![{title}: every method beside popularity, with intervals](../assets/results/{dataset}.svg)"
    return (
        f"# {title}\n\n{figure}\n\n{report.findings.get(dataset, '')}\n\n"
        "Quirks of published codes are on [a page of their own](quirks.md), and so is where the "
        f"[settings](settings.md) come from.\n\n## HR and NDCG of every method\n\n{body}\n"
    )


def _made(report: Report) -> str:
    """Where the numbers come from, below the page."""
    return f"\n[^made]\n\n[^made]: Generated by `fedrecgel report` from runs of commit {report.commits}.\n"


def _with_old_sections(new: str, old: str) -> str:
    """The page, with sections of the old one whose titles it has not."""
    first, *parts = re.split(r"^(?=## )", new.partition("\n[^made]")[0].rstrip() + "\n\n", flags=re.MULTILINE)
    sections = {part.splitlines()[0]: part for part in parts}
    _, *before = re.split(r"^(?=## )", old.partition("\n[^made]")[0].rstrip() + "\n\n", flags=re.MULTILINE)
    sections = {part.splitlines()[0]: part for part in before} | sections
    return first + "".join(sections.values())


def write(folder: Path, only: Sequence[str] = ()) -> Iterable[Path]:
    """Write the pages and figures of a report, or only some pages."""
    report = read_report(report_text(folder))
    for name, page in pages(report).items():
        place = FOLDER / f"{name}.md"
        if only and name not in only:
            continue
        if name == "settings" and place.exists():
            page = _with_old_sections(page, place.read_text(encoding="utf-8")).rstrip() + "\n"
        place.write_text(page, encoding="utf-8")
        yield place
    for title, body in report.tables.items():
        if title.endswith(MAIN) and (not only or title.removesuffix(MAIN) in only):
            place = ASSETS / f"{title.removesuffix(MAIN)}.svg"
            drawn = folder / "figures" / f"overview-{place.name}"
            shown = drawn.read_text(encoding="utf-8") if drawn.exists() else results_figure(body)
            place.write_text(shown, encoding="utf-8")
            yield place


if __name__ == "__main__":
    for written in write(Path(sys.argv[1]), sys.argv[2:]):
        print(written)
