"""`fedrecgel.train`, one call from data to a result, and `fedrecgel.rounds`, the same round by round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedrecgel.channels.registry import channel_sections
from fedrecgel.data.interactions import Interactions
from fedrecgel.data.load import load
from fedrecgel.data.split import Split
from fedrecgel.data.whole import hold_nothing_out
from fedrecgel.errors import ConfigError
from fedrecgel.methods import Method, name_of
from fedrecgel.runs.acceleration import settle
from fedrecgel.runs.config import Config, check_device, from_dict
from fedrecgel.runs.continued import folder_of
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.notebook import measured_at
from fedrecgel.runs.progress import Progress, watched
from fedrecgel.runs.result import Result
from fedrecgel.runs.train import train_config
from fedrecgel.runs.training import Training

Section = Mapping[str, Any]
"""Settings of a section by name."""


def train(
    method: str | Method,
    data: Any,
    *,
    rounds: int | None = None,
    seed: int = 0,
    variant: str | None = None,
    channel: str | None = None,
    device: str | None = None,
    split: Section | None = None,
    evaluation: Section | None = None,
    sampling: Section | None = None,
    local: Section | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    final: bool = False,
    start: str | Path | Result | None = None,
    progress: bool | None = None,
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
        variant: a named set of hyper-parameters of the method, for example `released`.
        channel: what is between devices and server: plain, secagg, bfv, dp, secagg+dp, local-dp.
        device: a torch device, as in `cuda`.
        split: how to split data that are not split yet, as in `{"kind": "ratio"}`; see `fedrecgel config split`.
        evaluation: how to measure, as in `{"every": 5, "selection": "validation"}`.
        sampling: how negatives are drawn.
        local: how the simulation runs, as in `{"accelerate": True}`.
        out: run folder to write while training; else use `Result.save` afterwards.
        resume: continue the interrupted run in `out`.
        final: train on all interactions, hold nothing out and measure nothing; `rounds` must be given, unless the
            method knows how many it needs.
        start: a finished run to go on from, or its folder: users and items are matched by name, new ones are added.
        progress: show a bar; by default on a terminal and in a notebook.
        **options: hyper-parameters of the method, or settings of further sections, as in `secagg={"min_clients": 50}`.
            A method object has its hyper-parameters already.

    Raises:
        ConfigError: a name or a value is wrong, or an object comes with hyper-parameters.
        DataError: the data cannot be read or split.
    """
    given = {"rounds": rounds, "device": device, "channel": channel}
    options |= {"variant": variant} if variant is not None else {}
    sections = _sections(evaluation=evaluation, sampling=sampling, local=local)
    config, made = _prepare(method, data, given, seed, sections, split, options, final=final, start=start)
    folder, opened = None if out is None else RunFolder(Path(out)), start if isinstance(start, Result) else None
    with Progress(config, quiet=not (watched() if progress is None else progress)) as bar:
        return train_config(config, made, folder, resume=resume, start=opened, watch=bar.watch)


@dataclass(frozen=True)
class Round:
    """A finished round of a run that is watched: its numbers, and the way to its model."""

    number: int
    """Rounds finished so far."""
    loss: float | None
    """Mean training loss of the round's clients; None for a method that has none."""
    metrics: dict[str, float]
    """HR@K, NDCG@K and MRR on the test items against the candidates; empty where the round was not evaluated."""
    validation: dict[str, float]
    """The same on the validation items, if the split has them: what may decide when to stop."""
    line: Mapping[str, Any]
    """All that is known of the round, as in metrics.jsonl."""
    _training: Training = field(repr=False)

    def result(self) -> Result:
        """End the run here; the same result as that of a run of so many rounds.

        Raises:
            ConfigError: later rounds are trained already.
        """
        if self._training.round != self.number:
            raise ConfigError(
                f"Round {self.number} is over: the model is that of round {self._training.round}. Ask for the result "
                "in the loop, before the next round."
            )
        self._training.end_here()
        return self._training.finish()


def rounds(
    method: str | Method,
    data: Any,
    rounds: int | None = None,
    *,
    seed: int = 0,
    variant: str | None = None,
    every: int = 1,
    split: Section | None = None,
    sampling: Section | None = None,
    local: Section | None = None,
    **options: Any,
) -> Iterator[Round]:
    """Train round by round: yields after each one, and trains the next one only when it is asked for.

        for round in fr.rounds("fedmf", split, 200):
            if round.metrics["NDCG@10"] < best - 0.01:
                break
        result = round.result()

    Args:
        method: as in `train`.
        data: as in `train`.
        rounds: at most so many.
        seed: seed of everything but the split.
        variant: a named set of hyper-parameters of the method.
        every: rounds between evaluations.
        split: how to split data that are not split yet.
        sampling: how negatives are drawn.
        local: how the simulation runs.
        **options: hyper-parameters and further sections, as in `train`.

    Raises:
        ConfigError: a name or a value is wrong.
        DataError: the data cannot be read or split.
    """
    options |= {"variant": variant} if variant is not None else {}
    evaluation = {**options.pop("evaluation", {}), "every": every}
    sections = _sections(evaluation=evaluation, sampling=sampling, local=local)
    config, made = _prepare(method, data, {"rounds": rounds}, seed, sections, split, options)
    check_device(config)
    training = Training(settle(config, made), made, None)
    return (_round_of(line, training) for line in training.steps())


def _round_of(line: Mapping[str, Any], training: Training) -> Round:
    return Round(line["round"], line["loss"], measured_at(line), line.get("validation", {}), line, training)


def _sections(**given: Section | None) -> dict[str, Any]:
    return {name: dict(values) for name, values in given.items() if values is not None}


def _prepare(
    method: str | Method,
    data: Any,
    run: Mapping[str, Any],
    seed: int,
    sections: dict[str, Any],
    how: Section | None,
    options: dict[str, Any],
    *,
    final: bool = False,
    start: str | Path | Result | None = None,
) -> tuple[Config, Split]:
    """The config of a run from Python, and its data."""
    names = ("run", "checkpoint", "gate", *channel_sections())
    sections |= {name: options.pop(name) for name in names if name in options}
    selects = sections.get("evaluation", {}).get("selection") == "validation"
    split = _split_of(data, how, {"validation": True} if selects else {})
    if final:
        split = hold_nothing_out(split.interactions, split.settings)
    rows = split.interactions
    sections["data"] = rows.loaded_as or {"name": rows.name, "min_interactions": rows.min_interactions}
    sections["split"] = asdict(split.settings)
    sections["method"] = _method_section(method, options)
    given = {name: value for name, value in run.items() if value is not None}
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
    return config, split


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
