"""A recommender on one device: this file, the scorers beside it, NumPy and a bundle. No torch, no network.

::

    from fedrecgel_device import Device
    me = Device("bundle", "me.json")     # all that is private stays in this one file
    me.add(["i12", "i50"])               # oldest first
    me.recommend(10)                     # item, title, score, because

A bundle carries a copy of this file as fedrecgel_device.py, which imports the scorers under their name there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedrecgel.export.scorers import FORMS, Array, DeviceError, Own, Private

__all__ = ["Bundle", "Device", "DeviceError", "Pick"]

FORMAT, VERSION = "fedrecgel-bundle", 1
"""What a manifest calls itself. Another version is another arrangement of files."""
STATE_FORMAT = "fedrecgel-device-state"
DTYPES = {"float32": "<f4", "int32": "<i4", "int8": "<i1"}


class Pick(NamedTuple):
    """One recommendation."""

    item: int | str
    title: str | None
    score: float
    because: list[int | str]
    """Own items that speak for it, the strongest first; empty where the model does not tell."""


class Bundle:
    """The files of a folder, checked against its manifest."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = self._manifest()
        try:
            items = json.loads(self._content("items.json"))
            self.ids: list[int | str] = items["ids"]
            self.titles: list[str] | None = items["titles"]
            self._check_names()
            tables = {name: self._table(about) for name, about in self.manifest["tables"].items()}
            self.scorer = FORMS[self.manifest["form"]](tables, self.manifest["settings"], len(self.ids))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise DeviceError(
                f"'{self.folder}' should be a bundle. Its manifest.json is damaged: {error!r}."
            ) from error
        self.number = {str(item): number for number, item in enumerate(self.ids)}

    def _check_names(self) -> None:
        if not len(self.ids) == self.manifest["n_items"] == len(self.titles or self.ids):
            raise ValueError("not all items have a name")

    def _manifest(self) -> dict[str, Any]:
        path = self.folder / "manifest.json"
        try:
            found = json.loads(path.read_bytes())
        except OSError as error:
            raise DeviceError(
                f"'{self.folder}' should be a bundle. It has no manifest.json that can be read."
            ) from error
        except (ValueError, RecursionError) as error:
            raise DeviceError(f"'{path}' cannot be read: {error}. Export the run again.") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise DeviceError(f"'{path}' should be the manifest of a {FORMAT}. Found something else.")
        if found.get("version") != VERSION:
            raise DeviceError(
                f"'{self.folder}' is a bundle of version {found.get('version')!r}, and this runtime reads version "
                f"{VERSION}. Use the fedrecgel_device.py inside the bundle, or export the run again."
            )
        return found

    def _content(self, name: str) -> bytes:
        """A file of the bundle, as long as it should be and with its checksum."""
        if Path(name).name != name:
            raise DeviceError(f"A bundle should name files of its own folder. Found '{name}'.")
        about = self.manifest["files"][name]
        try:
            found = (self.folder / name).read_bytes()
        except OSError as error:
            raise DeviceError(f"'{self.folder}' lacks '{name}': {error.strerror}. Copy the folder again.") from error
        if len(found) != about["bytes"] or sha256(found).hexdigest() != about["sha256"]:
            raise DeviceError(
                f"'{self.folder / name}' is damaged: it should have {about['bytes']:,} bytes and another checksum. "
                f"Found {len(found):,}. Copy the folder again."
            )
        return found

    def _table(self, about: Mapping[str, Any]) -> Array:
        """A table as it was, or as near as 8 bits come: rows are multiplied by their scale."""
        table = np.frombuffer(self._content(about["file"]), DTYPES[about["dtype"]]).reshape(about["shape"])
        if "scales" not in about:
            return table
        scales = np.frombuffer(self._content(about["scales"]), DTYPES["float32"])
        whole: Array = table * scales[:, None]
        return whole


class Device:
    """One user's recommender: a bundle that all have in common, and a file that only this device has."""

    def __init__(self, folder: str | Path, state: str | Path | None = None) -> None:
        self.bundle = Bundle(folder)
        self.path = None if state is None else Path(state)
        self.history: list[int | str] = []
        self.private: Private = {}
        if self.path is not None and self.path.exists():
            self._read(self.path)

    @property
    def leaves_device(self) -> list[str]:
        """What training sends, by name; recommending sends nothing."""
        return list(self.bundle.manifest["leaves_device"]["training"])

    def add(self, items: Iterable[int | str]) -> None:
        """Remember items, oldest first, and learn the private part anew."""
        self._change([*self.history, *(self.bundle.ids[self._number(item)] for item in items)])

    def remove(self, item: int | str) -> None:
        """Forget an item, wherever it stands in the history."""
        known = self.bundle.ids[self._number(item)]
        self._change([other for other in self.history if other != known])

    def clear(self) -> None:
        """Forget everything; the file goes, too."""
        self.history, self.private = [], {}
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def scores(self) -> Array:
        """Of every item of the catalogue, own ones included."""
        own = self._own()
        if not len(own.items):
            raise DeviceError("There is nothing to score with: the history is empty. Add an item first.")
        return self.bundle.scorer.scores(own, self.private)

    def recommend(self, k: int = 10, reasons: int = 3) -> list[Pick]:
        """The k best items that the user does not have; of equal scores the earlier in the catalogue first."""
        if k < 1:
            raise DeviceError(f"k should be at least 1. Found {k}.")
        own, scores = self._own(), self.scores().astype(np.float64)
        scores[own.items] = -np.inf
        best = np.argsort(-scores, kind="stable")[: min(k, len(scores) - len(own.items))]
        return [self._pick(own, int(item), float(scores[item]), reasons) for item in best]

    def _pick(self, own: Own, item: int, score: float, reasons: int) -> Pick:
        shares, because = self.bundle.scorer.shares(own, self.private, item), []
        if shares is not None:
            strongest = np.argsort(-shares, kind="stable")[:reasons]
            because = [self.bundle.ids[own.items[place]] for place in strongest if shares[place] > 0]
        titles = self.bundle.titles
        return Pick(self.bundle.ids[item], titles[item] if titles else None, score, because)

    def upload(self, what: str, hold_back: bool = False) -> dict[str, Array]:
        """What this device would send to a server in training, by name; computed here, sent by nobody.

        Args:
            what: the sum it is a term of.
            hold_back: leave out the latest own item, which votes.
        """
        found = self.bundle.scorer.upload(self._own(), what, hold_back)
        if found is None:
            method = self.bundle.manifest["method"]
            raise DeviceError(f"Method '{method}' has no upload '{what}' in closed form. Training it needs fedrecgel.")
        return found

    def _own(self) -> Own:
        return Own.of([self.bundle.number[str(item)] for item in self.history])

    def _number(self, item: int | str) -> int:
        if str(item) not in self.bundle.number:
            raise DeviceError(f"Unknown item '{item}': the catalogue has {len(self.bundle.ids):,} others.")
        return self.bundle.number[str(item)]

    def _change(self, history: list[int | str]) -> None:
        self.history = history
        self.private = self.bundle.scorer.fold_in(self._own()) if history else {}
        self._write()

    def _read(self, path: Path) -> None:
        """What was kept; items that the catalogue no longer has are left out."""
        try:
            kept = json.loads(path.read_bytes())
            if (kept["format"], kept["version"]) != (STATE_FORMAT, VERSION):
                raise ValueError("it is of another version")  # noqa: TRY301 - told with all other damage below
            self.history = [item for item in kept["history"] if str(item) in self.bundle.number]
            same = kept["model"] == self.bundle.manifest["model"] and len(self.history) == len(kept["history"])
            private = {name: np.array(values, dtype=np.float64) for name, values in kept["private"].items()}
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DeviceError(f"'{path}' should be a device's own state: {error}. Restore or delete it.") from error
        if same:
            self.private = private
        else:  # another model: what was learnt against the last one means nothing to it
            self._change(self.history)

    def _write(self) -> None:
        if self.path is None:
            return
        private = {name: values.tolist() for name, values in self.private.items()}
        state = {"format": STATE_FORMAT, "version": VERSION, "model": self.bundle.manifest["model"]}
        text = json.dumps({**state, "history": self.history, "private": private}, ensure_ascii=False)
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path)  # noqa: PTH105 - both names are in one folder


def main(words: list[str]) -> int:
    """`python fedrecgel_device.py ITEM...`: ten recommendations to somebody with these items, oldest first."""
    try:
        me = Device(Path(__file__).parent)
        me.add(words)
        for rank, pick in enumerate(me.recommend(), 1):
            why = f"  because of {', '.join(map(str, pick.because))}" if pick.because else ""
            sys.stdout.write(f"{rank:>2}  {pick.title or pick.item}  {pick.score:.4f}{why}\n")
    except DeviceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
