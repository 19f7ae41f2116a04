"""`fedrecgel.train`: one call from data to a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fedrecgel.channels.registry import channel_sections
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.load import load
from fedrecgel.data.split import Split
from fedrecgel.data.whole import hold_nothing_out
from fedrecgel.errors import ConfigError
from fedrecgel.methods import Method, name_of
from fedrecgel.runs.config import from_dict
from fedrecgel.runs.continued import folder_of
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.result import Result
from fedrecgel.runs.training import train_config


def train(
    method: str | Method,
    data: Any,
    *,
    rounds: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    final: bool = False,
    start: str | Path | Result | None = None,
    **options: Any,
) -> Result:
    """Train a method on data.

    Args:
        method: a name that `fedrecgel methods` lists, `path/to/file.py:Class`, or a method object, whose fields are the
            hyper-parameters. An object's run can be opened again by other processes if its class is registered or
            stands in a file, which the run remembers; else it can be trained, and saving it warns.
        data: a split, interactions, or what `fedrecgel.load` takes: a data frame, a path or a name.
        rounds: communication rounds; by default 100, or 1 for a reference that needs no more.
        seed: seed of everything but the split.
        out: run folder to write while training; else use `Result.save` afterwards.
        resume: continue the interrupted run in `out`.
        final: train on all interactions, hold nothing out and measure nothing; `rounds` must be given, unless the
            method knows how many it needs.
        start: a finished run to go on from, or its folder: users and items are matched by name, new ones are added.
        **options: hyper-parameters of the method, its `variant`, or settings of other sections, as in
            `evaluation={"every": 5}`; `split={...}` says how to split data that are not split yet. A method object
            has its hyper-parameters already.

    Raises:
        ConfigError: a name or a value is wrong, or an object comes with hyper-parameters.
        DataError: the data cannot be read or split.
    """
    names = ("run", "sampling", "evaluation", "checkpoint", "local", "gate", *channel_sections())
    sections = {name: options.pop(name) for name in names if name in options}
    selects = sections.get("evaluation", {}).get("selection") == "validation"
    split = _split_of(data, options.pop("split", None), {"validation": True} if selects else {})
    if final:
        split = hold_nothing_out(split.interactions, split.settings)
    rows = split.interactions
    sections["data"] = rows.loaded_as or {"name": rows.name, "min_interactions": rows.min_interactions}
    sections["split"] = asdict(split.settings)
    sections["method"] = _method_section(method, options)
    given = {} if rounds is None else {"rounds": rounds}
    sections["run"] = {**given, "seed": seed, "final": final, **sections.get("run", {})}
    if start is not None:
        sections["run"]["start"] = folder_of(start)
    config = from_dict(sections)
    if final and "rounds" not in sections["run"] and config.method.build().rounds is None:
        raise ConfigError(
            "A final model measures nothing, so it cannot tell when to stop. Give rounds=…, for example those of a "
            "finished run: fedrecgel.open(RUN).summary['protocol']['selected_round']."
        )
    if config.split != split.settings:
        raise ConfigError("selection = 'validation' needs validation items. Make the split with validation=True.")
    if config.run.engine != "local":
        raise ConfigError(f"From Python runs are local. Start engine '{config.run.engine}' with `fedrecgel train`.")
    folder, opened = None if out is None else RunFolder(Path(out)), start if isinstance(start, Result) else None
    return train_config(config, split, folder, resume=resume, start=opened)


def _split_of(data: object, how: Mapping[str, Any] | None, needed: Mapping[str, Any]) -> Split:
    """The data with something held out."""
    if not isinstance(data, Split):
        return (data if isinstance(data, Interactions) else load(data)).split(**{**needed, **(how or {})})
    if how is not None:
        raise ConfigError("The data are split already. Leave split={…} out, or hand over interactions.")
    return data


def _method_section(method: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in [method]."""
    if isinstance(method, str):
        return {"name": method, **options}
    if not isinstance(method, Method):
        found = f"the class {method.__name__}; write {method.__name__}()" if isinstance(method, type) else repr(method)
        raise ConfigError(f"The method should be a name or a method object. Found {found}.")
    if options:
        raise ConfigError(
            f"A method object has its hyper-parameters already. Found {', '.join(sorted(options))} beside it: "
            f"set them where {type(method).__name__}(…) is made."
        )
    values = {entry.name: getattr(method, entry.name) for entry in fields(method) if entry.init}
    return {"name": name_of(type(method)), **values}
