"""Every setting of a run: TOML and `--set` in, frozen dataclasses out; an unknown key names its nearest neighbour."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import tomli_w
import torch
from msgspec import Meta

from fedrecgel.channels.base import Channel
from fedrecgel.channels.budget import DpSettings
from fedrecgel.channels.registry import CHANNELS, channel_sections
from fedrecgel.channels.secagg import Secagg
from fedrecgel.data.federation import SamplingSettings
from fedrecgel.data.load import DataSettings, data_label
from fedrecgel.data.split import SplitSettings
from fedrecgel.engine.flower.settings import FlowerSettings
from fedrecgel.engine.gate import GateSettings
from fedrecgel.engine.local import LocalSettings
from fedrecgel.errors import ConfigError, unknown
from fedrecgel.evaluation.ranking import TieRule
from fedrecgel.methods import Method, find_method, full_name, method_label
from fedrecgel.methods.outside import SESSION
from fedrecgel.storage import read_toml

AS_BEFORE = {("split", "kind"): "leave-one-out"}
"""Settings that config.toml leaves out at these values, so that runs of earlier versions stay the same runs."""
RETIRED = {"faults": {"dropout": 0.0, "host_of": 0, "seconds": 0.0}}
"""Sections that older run folders hold, at the values at which they meant nothing."""
IN_EVERY_RUN = CHANNELS["bfv"].sections()
"""Sections of channels that every config holds, because runs of earlier versions do."""
Count = Annotated[int, Meta(ge=1)]
T = TypeVar("T")


@dataclass(frozen=True)
class RunSettings:
    """How long, from which seed, and where."""

    rounds: Count = 100
    """Communication rounds; methods that know how many they need take these, for example 1 for references."""
    seed: Annotated[int, Meta(ge=0)] = 0
    """Seed of everything but the split, which has its own."""
    device: str = "cpu"
    """A torch device: cpu, cuda, cuda:1, mps."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of all tensors."""
    engine: Literal["local", "flower"] = "local"
    """Where the clients live: in this process, or on Flower's nodes."""
    channel: str = "plain"
    """What is between the devices and the server: plain; secagg, bfv (extra `crypto`); dp, local-dp (extra `dp`);
    secagg+dp (both). On nodes secagg unless another is asked for; in one process plain, since a simulation sees
    everything anyway."""
    final: bool = False
    """Train on all interactions: nothing is held out and nothing measured."""
    start: str | None = None
    """Folder of a finished run to go on from, with its data or new ones."""
    start_mark: str | None = None
    """Checksum of the model there; filled in, and compared when the run is repeated."""


@dataclass(frozen=True)
class EvaluationSettings:
    """How results are measured and which round is reported."""

    every: Count = 10
    """Rounds between evaluations on the candidates; the last round is always evaluated."""
    ks: Annotated[tuple[Count, ...], Meta(min_length=1)] = (5, 10)
    """Cut-offs K of HR@K and NDCG@K."""
    ties: TieRule = "expected"
    """Equal scores count by expectation over random order, or all against the held-out item."""
    full: bool = True
    """Also rank against the whole catalogue, once, for the reported round."""
    full_users: Annotated[int, Meta(ge=0)] = 0
    """Users whose whole catalogue is ranked, drawn at random; 0 takes all, or as many as five billion scores allow."""
    selection: Literal["last", "validation", "test"] = "last"
    """Report the last round, the best on the validation item, or the best on the test item (marked as such)."""
    reference: Literal["auto", "on", "off"] = "auto"
    """Also measure popularity, which sends every user's item counts; auto: only on engine local, channel plain."""


@dataclass(frozen=True)
class CheckpointSettings:
    """How often a run is saved, to be resumed from there."""

    every: Count = 10
    """Rounds between checkpoints; also written when a run ends or is interrupted."""


@dataclass(frozen=True)
class MethodSettings:
    """Which method, and its hyper-parameters by name."""

    name: str = "fedrecgel"
    """A name that `fedrecgel methods` lists, or `path/to/file.py:Class`."""
    variant: str | None = None
    """A named set of hyper-parameters, for example fedrecgel's `paper`."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Hyper-parameters that differ from the defaults."""

    def build(self) -> Method:
        """The method with these hyper-parameters: defaults, then the variant, then the options."""
        kind = find_method(self.name)
        chosen: Mapping[str, object] = {}
        if self.variant is not None:
            chosen = lookup(f"variant of '{self.name}'", self.variant, kind.variants)
        return build(kind, {**chosen, **self.options}, "method")


@dataclass(frozen=True)
class Config:
    """All settings of one run, one field per section of the TOML file."""

    data: DataSettings = field(default_factory=DataSettings)
    split: SplitSettings = field(default_factory=SplitSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    method: MethodSettings = field(default_factory=MethodSettings)
    run: RunSettings = field(default_factory=RunSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    local: LocalSettings = field(default_factory=LocalSettings)
    channels: Mapping[str, Any] = field(default_factory=lambda: channel_settings("plain"))
    """Sections of channels by name, each in its own table of the file."""
    gate: GateSettings = field(default_factory=GateSettings)
    flower: FlowerSettings = field(default_factory=FlowerSettings)

    @property
    def default_out(self) -> Path:
        """runs/<dataset>-<method>-s<seed>, and -continued for a run that goes on from another."""
        name = f"{data_label(self.data.name)}-{method_label(self.method.name)}-s{self.run.seed}"
        return Path("runs") / (name if self.run.start is None else f"{name}-continued")

    def channel(self) -> Channel:
        """The channel with its settings."""
        return CHANNELS[self.run.channel].build(self.channels)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every setting, defaults included; settings without a value are left out, as TOML has no null."""
        own = {section.name: getattr(self, section.name) for section in fields(self) if section.name != "channels"}
        sections = {name: asdict(values) for name, values in {**own, **self.channels}.items()}
        sections["method"] = {"name": self.method.name, "variant": self.method.variant, **asdict(self.method.build())}
        return {
            name: {
                key: list(v) if isinstance(v, tuple) else v
                for key, v in values.items()
                if v is not None and AS_BEFORE.get((name, key)) != v
            }
            for name, values in sections.items()
        }

    def to_toml(self) -> str:
        """As a file that `fedrecgel train` takes.

        Warns if the method's class is in no file: other processes then read the numbers, but cannot use the model.
        """
        if self.method.name.startswith(f"{SESSION}:"):
            warnings.warn(
                f"This run can be opened in this Python session only, because the class "
                f"'{method_label(self.method.name)}' is in no file. Move it to a file, import it, and train again.",
                stacklevel=3,
            )
        return tomli_w.dumps(self.to_dict())


def section_types() -> dict[str, type]:
    """The dataclass of every section, those of registered channels included."""
    hints = get_type_hints(Config)
    own = {entry.name: hints[entry.name] for entry in fields(Config) if entry.name != "channels"}
    return {**own, **channel_sections()}


def channel_settings(name: str) -> dict[str, Any]:
    """Default settings of the channel of this name.

    Those of others stay out: a run does not depend on channels it does not use.
    """
    kinds = {**IN_EVERY_RUN, **(CHANNELS[name].sections() if name in CHANNELS else {})}
    return {section: kind() for section, kind in kinds.items()}


def lookup(kind: str, name: str, valid: Mapping[str, T]) -> T:
    """The entry of this name, or an error with the nearest one."""
    if name not in valid:
        raise ConfigError(unknown(kind, name, valid))
    return valid[name]


def build(kind: type[T], values: Mapping[str, object], section: str) -> T:
    """A frozen dataclass from untyped values, each checked against its annotation."""
    hints = get_type_hints(kind, include_extras=True)
    names = {entry.name: entry for entry in fields(kind) if entry.init}  # type: ignore[arg-type]
    checked = {}
    for key, value in values.items():
        if key not in names:
            raise ConfigError(unknown("key", key, names, f"in [{section}]"))
        if get_origin(hints[key]) is Literal and isinstance(value, str) and value not in get_args(hints[key]):
            raise ConfigError(unknown(f"{section}.{key}", value, get_args(hints[key])))
        try:
            checked[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            default = names[key].default
            usual = "" if default is MISSING else f" The default is {default!r}."
            raise ConfigError(f"{section}.{key} cannot be {value!r}: {error}.{usual}") from error
    return kind(**checked)


def from_dict(sections: Mapping[str, object]) -> Config:
    """A config from nested values; every key is checked."""
    parts: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    hints = section_types()
    for section, values in sections.items():
        if section == "search":
            raise ConfigError(
                "[search] belongs to `fedrecgel tune`, which writes a best.toml to train with. "
                "Tune this file, or take the table out."
            )
        if RETIRED.get(section) == values:
            continue
        if section not in hints:
            raise ConfigError(unknown("section", section, hints))
        if not isinstance(values, Mapping):
            raise ConfigError(f"[{section}] should be a table of settings. Found {values!r}.")
        if section == "method":
            known = {key: values[key] for key in ("name", "variant") if key in values}
            options = {key: value for key, value in values.items() if key not in known}
            given = build(MethodSettings, known, section)
            parts[section] = replace(given, name=full_name(given.name), options=options)
        else:
            place = channels if section in channel_sections() else parts
            place[section] = build(hints[section], values, section)
    config = Config(**parts)
    run, stated = sections.get("run", {}), config.method.build().rounds
    stating = run if isinstance(run, Mapping) else {}
    if stated is not None and "rounds" not in stating:
        config = replace(config, run=replace(config.run, rounds=stated))
    if config.run.engine == "flower" and "channel" not in stating:
        config = replace(config, run=replace(config.run, channel=Secagg.name))
    return _check(replace(config, channels={**channel_settings(config.run.channel), **channels}))


def _check(config: Config) -> Config:
    """Settings that are wrong only together."""
    stated = config.method.build().rounds
    if stated is not None and config.run.rounds < stated:
        raise ConfigError(
            f"Method '{method_label(config.method.name)}' needs {stated} rounds at these settings. "
            f"Found run.rounds = {config.run.rounds}. Leave it out, or ask for {stated} or more."
        )
    lookup("channel", config.run.channel, CHANNELS)
    if config.run.final and config.evaluation.selection != "last":
        raise ConfigError("A final model holds nothing out to select a round with. Set evaluation.selection = 'last'.")
    if config.evaluation.reference == "on" and DpSettings in CHANNELS[config.run.channel].sections().values():
        raise ConfigError("The budget of dp does not cover popularity beside a run. Leave evaluation.reference out.")
    if config.evaluation.selection == "validation":
        config = replace(config, split=replace(config.split, validation=True))
    if config.run.engine == "flower":
        if config.run.start is not None:
            raise ConfigError("Engine 'local' alone goes on from another run. Add --engine local, or leave --from out.")
        if config.split.kind != "leave-one-out":
            raise ConfigError(f"Engine 'flower' needs split.kind = 'leave-one-out'. Found '{config.split.kind}'.")
        on_nodes = [name for name, kind in CHANNELS.items() if kind.on_nodes]
        for key, possible in (("device", ["cpu"]), ("channel", on_nodes)):
            if (found := getattr(config.run, key)) not in possible:
                wanted = " or ".join(f"'{name}'" for name in possible)
                raise ConfigError(f"Engine 'flower' needs run.{key} = {wanted}. Found '{found}'.")
        config = replace(config, checkpoint=CheckpointSettings(1))  # nodes forget what a finished round replaced
    return config


def check_device(config: Config) -> None:
    """Refuse a device this machine does not have; opening a run elsewhere needs none."""
    try:
        torch.zeros(1, device=config.run.device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(f"run.device = '{config.run.device}' cannot be used here: {reason}. Try 'cpu'.") from error


def parse_assignment(text: str) -> tuple[str, str, object]:
    """`section.key=value` as (section, key, value); the value is read as TOML, else as plain text."""
    path, equals, value = text.partition("=")
    section, dot, key = path.strip().partition(".")
    if not (equals and dot and section and key):
        raise ConfigError(f"--set takes section.key=value, for example method.rho_co=0.05. Found '{text}'.")
    try:
        return section, key, tomllib.loads(f"v = {value}")["v"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return section, key, value.strip()


def read_sections(path: Path) -> dict[str, Any]:
    """The tables of a config file, unchecked."""
    try:
        return read_toml(path)
    except FileNotFoundError as error:
        raise ConfigError(f"There is no config file '{path}'.") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"Config file '{path}' cannot be read: {error}.") from error


def read_config(path: Path | None, assignments: Sequence[tuple[str, str, object]] = ()) -> Config:
    """A config file, then overrides; defaults for the rest."""
    return from_dict(with_assignments(read_sections(path) if path is not None else {}, assignments))


def with_assignments(sections: dict[str, Any], assignments: Sequence[tuple[str, str, object]]) -> dict[str, Any]:
    """Sections with overrides.

    An override of method.name drops the other method settings: they belong to the other method.
    """
    for section, key, value in sorted(assignments, key=lambda given: given[:2] != ("method", "name")):
        table = sections.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"[{section}] should be a table of settings. Found {table!r}.")
        if (section, key) == ("method", "name") and not _same_method(table.get("name", "fedrecgel"), value):
            table.clear()
        table[key] = value
    return sections


def _same_method(one: object, other: object) -> bool:
    """Whether two names mean one method; a file's config has an absolute path where a command may have a relative."""
    return one == other or (isinstance(one, str) and isinstance(other, str) and full_name(one) == full_name(other))
