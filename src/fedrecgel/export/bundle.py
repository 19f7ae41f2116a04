"""Folders for devices: a manifest with checksums, tables, item names, and what reads them.

Both kinds hold the same model: a bundle adds the Python runtime, a web folder the page. The manifest is written last
and taken away first, so a folder that has one is complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrecgel.errors import ConfigError
from fedrecgel.export.forms import Array, Form, form_of
from fedrecgel.export.onnx_scorer import has_graph, onnx_bytes
from fedrecgel.export.rounding import round_rows
from fedrecgel.export.runtime import FORMAT, VERSION
from fedrecgel.runs.result import Result
from fedrecgel.storage import UNREADABLE, make_folder, read_bytes, remove, write_atomically

Precision = Literal["float32", "int8"]
MANIFEST, ITEMS, SCORER = "manifest.json", "items.json", "scorer.onnx"
RUNTIME = {"runtime": "fedrecgel_device", "scorers": "fedrecgel_scorers"}
"""Modules of this folder that a bundle carries, and their names there."""
PAGE = ("index.html", "page.css", "page.js", "worker.js", "model.js")
"""The files of the page."""
LARGEST_PAGE = 400_000_000
"""Bytes of tables that a browser should load."""


@dataclass(frozen=True)
class Written:
    """What was written: bytes of each file."""

    folder: Path
    files: Mapping[str, int]

    @property
    def n_bytes(self) -> int:
        """All files together."""
        return sum(self.files.values())


def write_bundle(
    run: Result, folder: Path, titles: Sequence[str] | None = None, precision: Precision = "float32"
) -> Written:
    """A folder whose own fedrecgel_device.py recommends without torch.

    Raises:
        ConfigError: the method cannot be exported, or the folder holds something else.
        StorageError: it could not be written.
    """
    form, more = form_of(run), _runtime()
    if has_graph(form):
        more[SCORER] = onnx_bytes(form, run.summary["method"])
    return _write(run, form, folder, titles, precision, more)


def write_onnx(run: Result, folder: Path, titles: Sequence[str] | None = None) -> Written:
    """A folder with the scorer of a network as ONNX, and beside it the names of its items and all its tables.

    Raises:
        ConfigError: the method is no network or cannot be exported, or the folder holds something else.
        StorageError: it could not be written.
    """
    form = form_of(run)
    return _write(run, form, folder, titles, "float32", {SCORER: onnx_bytes(form, run.summary["method"])})


def write_web(
    run: Result, folder: Path, titles: Sequence[str] | None = None, precision: Precision = "float32"
) -> Written:
    """A folder that any web server can host: the model runs in the page.

    Raises:
        ConfigError: the method cannot be exported or is too large, or the folder holds something else.
        StorageError: it could not be written.
    """
    form = form_of(run)
    size = sum(table.size * (1 if precision == "int8" and name in form.rounded else 4)
               for name, table in form.tables.items())  # fmt: skip
    if size > LARGEST_PAGE:
        raise ConfigError(
            f"A page should load at most {LARGEST_PAGE / 1e6:.0f} MB. Found {size / 1e6:,.0f} MB of tables. "
            f"Use --precision int8, or a method without a weight for each pair of items."
        )
    return _write(run, form, folder, titles, precision, {name: _asset("page", name) for name in PAGE})


def _write(
    run: Result,
    form: Form,
    folder: Path,
    titles: Sequence[str] | None,
    precision: Precision,
    more: Mapping[str, bytes],
) -> Written:
    earlier = claim(folder)
    names = {"ids": run.item_ids, "titles": None if titles is None else list(titles)}
    content = {ITEMS: json.dumps(names, ensure_ascii=False).encode(), **more}
    tables: dict[str, dict[str, Any]] = {}
    for name, table in form.tables.items():
        tables[name] = _table(name, table, content, eight_bits=precision == "int8" and name in form.rounded)
    files = {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in content.items()}
    model = {"form": form.kind, "settings": form.settings, "tables": tables}
    marks = [files[name]["sha256"] for name in sorted({ITEMS, *content.keys() - more.keys()})]
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "method": run.summary["method"],
        **model,
        "precision": precision,
        "n_items": len(run.item_ids),
        "leaves_device": {"recommending": [], "training": sorted(run.summary["privacy"]["leaves_device"])},
        "model": sha256(json.dumps([model, marks], sort_keys=True).encode()).hexdigest(),
        "made": {"dataset": run.summary["dataset"], "fedrecgel": version("fedrecgel")},
        "files": files,
    }
    content[MANIFEST] = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False).encode()
    make_folder(folder)
    for name in (MANIFEST, *sorted(earlier - content.keys())):
        remove(folder / name)
    for name, data in content.items():  # the manifest is the last of them
        write_atomically(folder / name, lambda path, data=data: path.write_bytes(data))  # type: ignore[misc]
    return Written(folder, {name: len(data) for name, data in content.items()})


def _table(name: str, table: Array, content: dict[str, bytes], *, eight_bits: bool) -> dict[str, Any]:
    """Add a table to the files, little-endian and row by row; returns what the manifest says about it."""
    about: dict[str, Any] = {"file": f"{name}.bin", "dtype": table.dtype.name, "shape": list(table.shape)}
    if eight_bits:
        table, scales = round_rows(table)
        about |= {"dtype": "int8", "scales": f"{name}.scales.bin"}
        content[about["scales"]] = scales.astype("<f4").tobytes()
    little = np.ascontiguousarray(table).astype(table.dtype.newbyteorder("<"), copy=False)
    content[about["file"]] = little.tobytes()
    return about


def claim(folder: Path) -> set[str]:
    """The files of an earlier export in a folder, which may be replaced.

    Raises:
        ConfigError: it holds something else, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"-o should be a folder. '{folder}' is a file.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return set()
    try:
        found = json.loads(read_bytes(folder / MANIFEST))
        names = {name for name in found["files"] if Path(name).name == name} if found["format"] == FORMAT else None
    except (*UNREADABLE, KeyError, TypeError):
        names = None
    if names is None:
        raise ConfigError(f"-o should be a new folder or an earlier export. '{folder}' holds something else.")
    return names


def _runtime() -> dict[str, bytes]:
    """The source of the runtime, whose parts find each other in any folder."""
    found = {}
    for module, name in RUNTIME.items():
        text = _asset(f"{module}.py").decode()
        for other, there in RUNTIME.items():
            text = text.replace(f"from {__package__}.{other} import", f"from {there} import")
        found[f"{name}.py"] = text.encode()
    return found


def _asset(*names: str) -> bytes:
    return resources.files("fedrecgel.export").joinpath(*names).read_bytes()
