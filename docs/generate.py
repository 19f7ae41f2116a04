"""Write the parts of the documentation that repeat the code or results: settings, methods, pictures, a table.

Run `python -m docs.generate` after a change of settings, methods or results. `tests/layers/test_docs.py` compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args, get_origin, get_type_hints

from docs.pictures import pictures

from fedrecgel.cli.common import field_docs
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import section_types
from fedrecgel.studies.presets import Presets

ROOT = Path(__file__).resolve().parents[1]


def settings_text() -> str:
    """Every setting of every section, then the hyper-parameters of every method, as Markdown tables."""
    parts = []
    for section, kind in section_types().items():
        parts.append(f"### [{section}]\n\n{_sentence(kind)}\n\n{_table(kind, leave_out=('options',))}")
        if section == "method":
            parts += [
                f"#### [method] with name = {name!r}\n\n{_sentence(method)}\n\n{_table(method)}"
                + "".join(f"\n\nVariant `{variant}`: {_values(values)}." for variant, values in method.variants.items())
                for name, method in METHODS.items()
            ]
    return "\n\n".join(parts)


def _sentence(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _values(values: Any) -> str:
    return ", ".join(f"`{key} = {_toml(value)}`" for key, value in values.items())


def _table(kind: Any, leave_out: tuple[str, ...] = ()) -> str:
    docs, hints = field_docs(kind), get_type_hints(kind, include_extras=True)
    rows = ["| key | default | values | meaning |", "|---|---|---|---|"]
    for entry in fields(kind):
        if entry.name in leave_out:
            continue
        default = "none" if entry.default in (None, MISSING) else f"`{_toml(entry.default)}`"
        meaning = docs[entry.name].replace("|", "\\|")
        rows.append(f"| `{entry.name}` | {default} | {_type(hints[entry.name])} | {meaning} |")
    return "\n".join(rows)


def _toml(value: object) -> str:
    """A value as a config file spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _type(hint: Any) -> str:
    """What a value may be, in words."""
    if hasattr(hint, "__metadata__"):
        meta, limits = hint.__metadata__[0], (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))
        bounds = [f"{sign} {getattr(meta, name)}" for name, sign in limits if getattr(meta, name) is not None]
        return " ".join([_type(hint.__origin__), ", ".join(bounds)])
    if get_origin(hint) is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in get_args(hint))
    if get_origin(hint) is tuple:
        return f"list of {_type(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        return f"table of {_type(get_args(hint)[1])}"
    if parts := [part for part in get_args(hint) if part is not type(None)]:
        return " or ".join(map(_type, parts))
    return {str: "text", int: "integer", float: "number", bool: "`true`, `false`"}[hint]


def methods_text() -> str:
    """Kind, uploads and needs of every method, as a Markdown table."""
    rows = ["| method | kind | paper | leaves the device | the server needs |", "|---|---|---|---|---|"]
    for name, kind in METHODS.items():
        sent = ", ".join(f"`{value}`" for value in sorted(kind().leaves_device())) or "nothing"
        needs = kind().server_needs.name.lower()
        rows.append(f"| [{name}]({name}.md) | {kind.kind} | {kind.paper} | {sent} | `{needs}` |")
    return "\n".join(rows)


ROWS = ("popularity", "fedrecgel", "spectra", "fedmf", "fedncf", "ials")
"""Of the table of all methods, those the README shows."""
LEAKS = "lastfm-2k"
"""Most of its held-out items stand in the training rows: not for a first look."""


def overview_text() -> str:
    """HR@10 of some methods on all data sets, from the table that `fedrecgel report` wrote."""
    text = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    lines = text.partition("## Every method on every data set\n\n")[2].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in _table_lines(lines)]
    honest = [number for number, name in enumerate(table[0]) if name != LEAKS]
    head, _, *rows = ([line[number] for number in honest] for line in table)
    found = {row[0].partition(",")[0]: row for row in rows}
    shown = ["| HR@10, % | " + " | ".join(head[1:]) + " |", "|---|" + "---:|" * len(head[1:])]
    for name in ROWS:
        if name in found:
            cells = [re.sub(r" *[^\d.▲▼ ].*", "", cell.partition(" / ")[0]).strip() or "–" for cell in found[name][1:]]
            shown.append(f"| {found[name][0]} | {' | '.join(cells)} |")
    return "\n".join(shown)


def _table_lines(lines: Iterable[str]) -> Iterator[str]:
    return takewhile(lambda line: line.startswith("|"), lines)


def budgets_text() -> str:
    """How many trials the file of each method and data set is the best of, as a Markdown table."""
    presets = Presets(ROOT / "configs")
    folders = sorted({path.parent.name for path in (ROOT / "configs").glob("*/*.toml")} - {"dp", "dp-none"})
    rows = [f"| trials | {' | '.join(folders)} |", f"|---|{'---:|' * len(folders)}"]
    for name in METHODS:
        files = [ROOT / "configs" / folder / f"{name}.toml" for folder in folders]
        if any(file.exists() for file in files):
            found = [presets.origin(folder, name, "tuned", 0) for folder in folders]
            cells = ("by hand" if origin.trials is None else str(origin.trials) for origin in found)
            rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def fold_in_text() -> str:
    """Newcomers beside the same users trained, from the records of benchmarks/fold_in.py, as a Markdown table."""
    lines = (ROOT / "benchmarks" / "fold_in.jsonl").read_text(encoding="utf-8").splitlines()
    cells: dict[tuple[str, str], list[Any]] = {}
    for line in map(json.loads, lines):
        cells.setdefault((line["dataset"], line["method"]), []).append(line)
    rows = [
        "| data set | method | rounds | seeds | folded in | trained | popularity | ms, median | longest | its items |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (dataset, method), found in cells.items():
        scores = " | ".join(
            "/".join(f"{100 * fmean(line[who][name] for line in found):.2f}" for name in ("HR@10", "NDCG@10"))
            for who in ("folded_in", "trained", "popularity")
        )
        times = " | ".join(f"{max(line[name] for line in found):.1f}" for name in ("ms_median", "ms_longest"))
        longest = max(line["longest"] for line in found)
        rounds = "/".join(sorted({str(line["rounds"]) for line in found}))
        rows.append(f"| {dataset} | {method} | {rounds} | {len(found)} | {scores} | {times} | {longest} |")
    return "\n".join(rows)


PAGES = {
    ROOT / "README.md": ("overview", overview_text),
    ROOT / "docs" / "config.md": ("settings", settings_text),
    ROOT / "docs" / "tuning.md": ("budgets", budgets_text),
    ROOT / "docs" / "use.md": ("fold-in", fold_in_text),
    ROOT / "docs" / "methods" / "index.md": ("methods", methods_text),
}
"""Generated pages: the mark around the generated part, and what writes it."""


def regenerate(page: Path) -> str:
    """The text of a page with its generated part as it should be."""
    mark, text = PAGES[page]
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->")
    _, end, after = rest.partition(f"<!-- /{mark} -->")
    return f"{before}{start}\n\n{text()}\n\n{end}{after}"


if __name__ == "__main__":
    for name in PAGES:
        name.write_text(regenerate(name), encoding="utf-8")
    for place, drawing in pictures().items():
        place.write_text(drawing, encoding="utf-8")
