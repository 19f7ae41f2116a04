"""Results whose names somebody chose to do harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMED = {"dataset": "shop.csv", "method": "fedmf"}
"""What the results of the tests are called, as far as others choose it."""


def poisoned(results: Path, folder: Path, *, dataset: str, method: str, words: str) -> Path:
    """A copy of an experiments' folder with these names in it; `words` stand where a setting or a command would.

    Run folders are linked: the report only reads them.
    """
    folder.mkdir()
    (folder / "runs").symlink_to(results / "runs")
    for path in (*results.glob("*.json*"), *results.glob("data/*.json")):
        target = folder / path.relative_to(results)
        target.parent.mkdir(exist_ok=True)
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        target.write_text("\n".join(json.dumps(_renamed(json.loads(line), dataset, method, words)) for line in lines))
    return folder


def _renamed(value: Any, dataset: str, method: str, words: str) -> Any:
    def named(text: str) -> str:
        if text.endswith(NAMED["dataset"]):
            return dataset
        return method if text == NAMED["method"] else text

    def walk(value: Any, key: str = "") -> Any:
        match value:
            case dict():
                return {named(own): walk(content, own) for own, content in value.items()}
            case list():
                return [walk(content) for content in value]
            case str() if key in ("command", "channel", "commit", "error"):
                return words
            case str() if key != "folder":
                return named(value)
        return value

    found = walk(value)
    if "config" in found:
        found["config"]["run"]["seed"] = words
    return found
