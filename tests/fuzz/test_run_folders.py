"""Run folders with any damage: whoever reads one gets what the run wrote, or one sentence, and never anything else."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import shutil
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tests.fuzz.budget import inputs
from tests.results import write_csv

import fedrecgel
from fedrecgel.cli.main import main
from fedrecgel.errors import FedrecgelError
from fedrecgel.report.collect import collect
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.settings import settings_mark
from fedrecgel.storage import EARLIER, read_tensors

Files = dict[str, bytes]
SETTINGS = ("method.gmf_dim=2", "method.mlp_dim=3", "evaluation.selection=test", "evaluation.every=1")
TRAIN = ["train", "--quiet", "--method", "fedncf", *(word for setting in SETTINGS for word in ("--set", setting))]
ROUNDS = 2
NAMES = (
    "config.toml",
    "metrics.jsonl",
    "summary.json",
    "server.safetensors",
    "clients.safetensors",
    "ranks.safetensors",
    "checkpoint/state.safetensors",
    "checkpoint/best-1.safetensors",
    "checkpoint/.lock",
)
TEXT = NAMES[:3]
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    float("nan"),
    float("-inf"),
    "",
    "x",
    "\udc80",
    "../..",
    [],
    [[]],
    {},
    {"x": []},
)
"""Values of other types, and of the right type but out of range."""
GARBAGE = (
    b"",
    b"\n",
    b"\xff\xfe\x00",
    b"{}",
    b"[]\n",
    b"null",
    b'{"a":' * 5000,
    b"[" * 100_000,
    b"a = " + b"[" * 5000,
    b"NaN\n",
    b"9" * 5000 + b"\n",
    b"\xff" * 8,
    (1 << 62).to_bytes(8, "little") + b"{}",
    (2).to_bytes(8, "little") + b"{}",
    (1 << 20).to_bytes(8, "little") + b"{" + b" " * (1 << 20),
)


def read_files(folder: Path) -> Files:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lay_out(files: Files, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def timeless(value: Any) -> Any:
    """The same without what a clock measured, and without the commit, which may change while this runs."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if "seconds" not in key and key != "commit"}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Place:
    """Two runs on one file, and the folder where they are damaged."""

    csv: Path
    folder: Path
    run: Files
    other: Files

    def command(self, *words: str) -> tuple[int, str]:
        """Exit code and what was printed; an exception nobody expected is a failure."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(words))
        assert "unexpected" not in err.getvalue(), err.getvalue()
        assert code in (0, 1, 2)
        told = [line for line in err.getvalue().splitlines() if line.startswith("fedrecgel: ")]
        assert code == 0 or len(told) == 1, "one sentence, behind what was said of the folder before"
        return code, out.getvalue()

    def opens(self) -> object:
        found = fedrecgel.open(self.folder)
        best = [found.recommend(user, 5) for user in found.user_ids[:3]]
        ranks = {name: (r.above.tolist(), r.tied.tolist()) for name, r in found.ranks.against.items()}
        mark = settings_mark(found.config.to_dict())  # what changes no number may change
        return found.summary, found.history, mark, found.item_ids, best, ranks

    def recommends(self) -> object:
        return self.command("recommend", str(self.folder), "--user", "u3", "--json")

    def reports(self) -> object:
        found = collect(self.folder)
        (record,), (group,) = found.records, found.groups
        return vars(record) | {"config": settings_mark(record.config)}, group.label, group.curves

    def is_finished(self) -> object:
        words = [word for word in TRAIN if word != "--quiet"]
        return self.command(*words, "--dataset", str(self.csv), "--rounds", str(ROUNDS), "--out", str(self.folder))

    def goes_on(self) -> object:
        words = ["--dataset", str(self.csv), "--rounds", str(ROUNDS + 1), "--resume", "--out", str(self.folder)]
        code, _ = self.command(*TRAIN, *words)
        if code:
            return code, ""
        folder = RunFolder(self.folder)
        tensors = [read_tensors(path, dict)[0] for path in (folder.server, folder.clients)]
        models = [{name: (str(v.dtype), v.tolist()) for name, v in file.items()} for file in tensors]
        return code, models, timeless(folder.read_history()), timeless(folder.read_summary())


USES: tuple[Callable[[Place], object], ...] = (
    Place.opens,
    Place.recommends,
    Place.reports,
    Place.is_finished,
    Place.goes_on,
)
COUNTS: Counter[str] = Counter()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    room = tmp_path_factory.mktemp("runs")
    csv = write_csv(room / "shop.csv")
    for name, seed in (("run", "0"), ("other", "1")):
        words = ["--dataset", str(csv), "--rounds", str(ROUNDS), "--seed", seed, "--out", str(room / name)]
        assert main([*TRAIN, *words]) == 0
    run, other = read_files(room / "run"), read_files(room / "other")
    for files in (run, other):  # which round was best may differ; the damage is to a file of a fixed name
        best = next(name for name in files if "best" in name)
        assert set(files) - {best} == set(NAMES) - {"checkpoint/best-1.safetensors"}
    yield Place(csv, room / "damaged", run, other)
    print(f"\n{dict(COUNTS)}")


@pytest.fixture(scope="module")
def expected(place: Place) -> dict[str, object]:
    """What every use gives on the sound folder."""
    found = {}
    for use in USES:
        lay_out(place.run, place.folder)
        found[use.__name__] = use(place)
    return found


@st.composite
def byte_damage(draw: st.DrawFn, content: bytes) -> bytes:
    """Some bytes changed, lost or added."""
    at = draw(st.integers(0, max(0, len(content) - 1)))
    kind = draw(st.sampled_from(["flip", "cut", "insert", "overwrite", "double"]))
    if kind == "flip" and content:
        return content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
    if kind == "cut":
        return content[:at]
    if kind == "double":
        return content + content
    more = draw(st.binary(min_size=1, max_size=8))
    return content[:at] + more + content[at + (len(more) if kind == "overwrite" else 0) :]


@st.composite
def odd_value(draw: st.DrawFn, document: Any) -> Any:
    """The same document with one value, at any depth, replaced or missing."""
    document = copy.deepcopy(document)
    inner = document
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not keys:
            return document
        key = draw(st.sampled_from(keys))
        if isinstance(inner[key], dict | list) and inner[key] and draw(st.booleans()):
            inner = inner[key]
        elif draw(st.integers(0, 5)) == 0:
            del inner[key]
            return document
        else:
            inner[key] = draw(st.sampled_from(ODD))
            return document


def dumps(name: str, document: Any) -> bytes:
    """JSON or TOML, with whatever surrogates and numbers came in."""
    if name == "config.toml":
        with contextlib.suppress(TypeError, UnicodeEncodeError):  # TOML has no null
            return tomli_w.dumps(document).encode()
        return b"[run]\nrounds = 1\n"
    lines = document if name == "metrics.jsonl" else [document]
    return ("\n".join(json.dumps(line) for line in lines) + "\n").encode()


def loads(name: str, content: bytes) -> Any:
    if name == "config.toml":
        return tomllib.loads(content.decode())
    return [json.loads(line) for line in content.splitlines()] if name == "metrics.jsonl" else json.loads(content)


@st.composite
def damaged(draw: st.DrawFn, run: Files, other: Files) -> Files:
    """A run folder in which something happened to one file."""
    files = dict(run)
    name = draw(st.sampled_from(sorted(files)))
    kinds = ["bytes", "bytes", "garbage", "other run", "other file", "gone", "folder"]
    kind = draw(st.sampled_from([*kinds, "value", "value", "value"] if name in TEXT else kinds))
    if kind == "bytes":
        files[name] = draw(byte_damage(files[name]))
    elif kind == "garbage":
        files[name] = draw(st.sampled_from(GARBAGE))
    elif kind == "other run":
        files[name] = other.get(name, b"")
    elif kind == "other file":
        files[name] = files[draw(st.sampled_from(sorted(files)))]
    elif kind == "value":
        files[name] = dumps(name, draw(odd_value(loads(name, files[name]))))
    else:
        del files[name]
        if kind == "folder":
            files[f"{name}/inside"] = b""
    return files


def outcome(place: Place, use: Callable[[Place], object]) -> object:
    """What a use gives, or None if it refused with a sentence."""
    COUNTS["tried"] += 1
    try:
        found = use(place)
    except FedrecgelError:
        found = None
    if isinstance(found, tuple) and found[0] in (1, 2):
        found = None
    COUNTS["same" if found is not None else "typed"] += 1
    return found


@given(data=st.data())
@inputs(200)
def test_damage_is_refused_or_changes_nothing(place: Place, expected: dict[str, object], data: st.DataObject) -> None:
    files = data.draw(damaged(place.run, place.other), label="files")
    use = data.draw(st.sampled_from(USES), label="use")
    lay_out(files, place.folder)
    found = outcome(place, use)
    assert found is None or found == expected[use.__name__]


@pytest.fixture(scope="module")
def earlier(place: Place) -> Files:
    """The same run as the version before checksums wrote it."""
    return as_earlier(place.run, place.folder)


def as_earlier(files: Files, folder: Path) -> Files:
    lay_out(files, folder)
    run = RunFolder(folder)
    for path in (run.server, run.clients, run.ranks):
        tensors, about, _ = read_tensors(path, dict)
        save_file(tensors, path, {EARLIER: json.dumps(about)})
    summary = json.loads(run.summary.read_bytes())
    run.summary.write_text(json.dumps({key: value for key, value in summary.items() if key not in ("seal", "run")}))
    return read_files(folder)


@given(data=st.data())
@inputs(60)
def test_a_damaged_run_of_an_earlier_version_is_read_or_refused(
    place: Place, earlier: Files, data: st.DataObject
) -> None:
    """Without checksums damage may pass, but not as an error nobody expected."""
    files = data.draw(damaged(earlier, place.other), label="files")
    use = data.draw(st.sampled_from(USES[:3]), label="use")
    lay_out(files, place.folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome(place, use)


def test_every_flipped_bit_of_a_tensor_file_is_noticed(place: Place) -> None:
    generator = torch.Generator().manual_seed(0)
    for name in NAMES[3:7]:
        size = 8 * len(place.run[name])
        for bit in torch.randint(size, (75,), generator=generator).tolist():
            content = bytearray(place.run[name])
            content[bit // 8] ^= 1 << bit % 8
            path = place.folder / "flipped.safetensors"
            lay_out({path.name: bytes(content)}, place.folder)
            with pytest.raises(FedrecgelError, match=r"flipped\.safetensors"):
                read_tensors(path, dict)


@pytest.mark.parametrize("name", ["server.safetensors", "clients.safetensors", "ranks.safetensors"])
def test_the_model_of_another_run_is_refused(place: Place, name: str) -> None:
    lay_out({**place.run, name: place.other[name]}, place.folder)
    with pytest.raises(FedrecgelError, match=rf"{name}' belongs to another run"):
        fedrecgel.open(place.folder)


def test_the_seal_names_every_file_but_the_checkpoint(place: Place) -> None:
    seal = msgspec.json.decode(place.run["summary.json"])["seal"]
    assert set(seal["files"]) == {*NAMES[:2], *NAMES[3:6]}
