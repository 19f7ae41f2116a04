"""Pages of results on the site: those that `fedrecgel report` writes, under the site's names.

`python -m docs.results_pages REPORT [PAGE…]` copies them, or some of them, from the folder of a report to
docs/results/. Other pages stay as they are, and so do settings of data sets that the report lacks: results of several
reports can stand beside each other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedrecgel.report.pages import LISTED

FOLDER = Path(__file__).parent / "results"
ASSETS = Path(__file__).parent / "assets" / "results"
NAMES = {"results": "index", "ablation": "sam", "sensitivity": "radii", "generalisation": "bound"}
"""Of the site, where they differ from a report's."""
TITLES = {
    "filmtrust": "FilmTrust",
    "amazon-video": "Amazon-Video",
    "lastfm-2k": "Lastfm-2K",
    "lastfm-2k-distinct": "Lastfm-2K, distinct pairs",
}
ABOUT = (
    "Every method beside popularity, which needs no learning, and beside centralised rankers, which see all data in "
    "one place. The page of a data set has its figure and its tables.\n"
)
ORIGIN = (
    "`fedrecgel report results` makes this table and the pages of its data sets again, without training. Runs behind "
    "[an earlier main table](earlier.md) (one split, 100 rounds, 8 trials), [SAM](sam.md), [radii](radii.md), "
    "[landscapes](landscape.md), [the bound](bound.md) and [quirks](quirks.md) are not in the repository: the commands "
    "below these tables train them again.\n"
)
"""What can be made again of what is in the repository."""
ELSEWHERE = (
    "Quirks of published codes are on [a page of their own](quirks.md), and so is where the [settings](settings.md) "
    "come from.\n"
)


def pages(report: Path) -> dict[str, str]:
    """The site's pages of a report, by name."""
    found = {}
    for path in sorted((report / "pages").glob("*.md")):
        name = NAMES.get(path.stem, path.stem.removeprefix("results-"))
        text = re.sub(r"\]\(results-([^)]+\.md\))", r"](\1", path.read_text(encoding="utf-8"))
        text = text.replace("](../figures/overview-", "](../assets/results/")
        text = text.replace("](../figures/uploads-", "](../assets/results/uploads-")
        text = text.replace(LISTED, "; the summary of each run has its own")
        for dataset, title in TITLES.items():
            text = re.sub(rf"^(##? \[?){dataset}(?=\]|$)", rf"\g<1>{title}", text, flags=re.MULTILINE)
        first, start, rest = text.partition("\n## ")
        if name == "index":
            text = f"{first}\n{ABOUT}{start}{rest}".replace("\n## Every method", f"\n{ORIGIN}\n## Every method", 1)
        elif path.stem.startswith("results-"):
            text = f"{first}\n{ELSEWHERE}{start}{rest}"
        found[name] = re.sub(r"\n{3,}", "\n\n", text)
    return found


def with_old_sections(new: str, old: str) -> str:
    """The page, with sections of the old one whose titles it has not."""
    first, *parts = re.split(r"^(?=## )", new.partition("\n[^made]")[0].rstrip() + "\n\n", flags=re.MULTILINE)
    sections = {part.splitlines()[0]: part for part in parts}
    _, *before = re.split(r"^(?=## )", old.partition("\n[^made]")[0].rstrip() + "\n\n", flags=re.MULTILINE)
    sections = {part.splitlines()[0]: part for part in before} | sections
    return (first + "".join(sections.values())).rstrip() + "\n"


def write(report: Path, only: Sequence[str] = ()) -> Iterable[Path]:
    """Write the pages and figures of a report, or only some pages."""
    for name, text in pages(report).items():
        if only and name not in only:
            continue
        place = FOLDER / f"{name}.md"
        old = place.read_text(encoding="utf-8") if place.exists() else ""
        place.write_text(with_old_sections(text, old) if name == "settings" else text, encoding="utf-8")
        yield place
        for kind, target in (("overview", f"{name}.svg"), ("uploads", f"uploads-{name}.svg")):
            drawn = report / "figures" / f"{kind}-{name}.svg"
            if drawn.exists():
                (ASSETS / target).write_bytes(drawn.read_bytes())
                yield ASSETS / target


if __name__ == "__main__":
    for written in write(Path(sys.argv[1]), sys.argv[2:]):
        print(written)
