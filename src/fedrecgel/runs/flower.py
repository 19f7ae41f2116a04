"""A run under Flower, from three sides: the process that submits it, the server's app, and what a node makes of it."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedrecgel.channels.base import Channel, DeviceHalf
from fedrecgel.channels.registry import check_channel
from fedrecgel.channels.secagg import MIN_PARTICIPANTS
from fedrecgel.data.split import Split
from fedrecgel.draws import Draws
from fedrecgel.engine.flower.asking import RemoteRun
from fedrecgel.engine.flower.bindings import Bindings, read_hosts
from fedrecgel.engine.flower.disk import DiskStore
from fedrecgel.engine.flower.engine import FlowerEngine
from fedrecgel.engine.flower.node import Work
from fedrecgel.engine.flower.roster import Roster
from fedrecgel.engine.flower.settings import FlowerSettings
from fedrecgel.engine.flower.shard import blank_split, read_shard, rejoin, write_shards
from fedrecgel.engine.flower.simulation import simulate
from fedrecgel.engine.flower.superlink import Connection, connected
from fedrecgel.engine.flower.wire import Courier
from fedrecgel.engine.store import ClientStore
from fedrecgel.errors import ConfigError, PrivacyError, RunError, StorageError
from fedrecgel.methods import method_label
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Problem
from fedrecgel.runs.acceleration import settle
from fedrecgel.runs.allowed import allowed_rounds
from fedrecgel.runs.config import Config, from_dict
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.host import Host
from fedrecgel.runs.policy import read_policy
from fedrecgel.runs.result import Result, open_run
from fedrecgel.runs.settings import FREE_TO_CHANGE, run_fingerprint, settings_fingerprint
from fedrecgel.runs.train import train_config
from fedrecgel.runs.training import Interrupted, Line, check_first_cohort
from fedrecgel.storage import lock_folder, write_text

NAME, HOSTS = "run-name", "hosts.json"
"""Beside the checkpoint: the name of the run on its nodes, and which key hosts whom."""
WATCH_SECONDS = 0.5
"""Between two looks at a run's folder."""
STATUS_SECONDS = 30.0
"""Between two questions to the SuperLink while the run seems to go on."""


def work_of(text: str) -> Work:
    """What a node makes of the settings in a letter."""
    config = from_dict(json.loads(text))
    method, channel = config.method.build(), config.channel()
    allowed_rounds(config, method, channel, 1)  # finds how much noise a device adds, for any number of clients
    return Work(
        method,
        config.sampling,
        getattr(torch, config.run.dtype),
        config.run.seed,
        config.local,
        config.gate,
        channel,
        selects=config.evaluation.selection != "last",
        fingerprint=settings_fingerprint(config.to_dict(), FREE_TO_CHANGE),
        ks=tuple(config.evaluation.ks),
        ties=config.evaluation.ties,
    )


def serve(
    courier: Courier,
    order: Mapping[str, Any],
    *,
    shards: Path | None = None,
    watch: Callable[[Line], None] = lambda line: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """The server's app: wait for nodes, then train as usual, with an engine that asks them.

    Args:
        courier: the way to the nodes.
        order: what was submitted.
        shards: of a simulation, whose nodes share a disk with the server.
        watch: called after every round.
        should_stop: asked after every round.
    """
    config, folder = from_dict(json.loads(order["config"])), RunFolder(Path(order["folder"]))
    resume = order["resume"]
    remembered = folder.checkpoint.parent / HOSTS
    # A simulation's nodes are ours, and their keys are new in every process: there is nothing to remember.
    bindings = Bindings.read(remembered) if resume and not shards else Bindings()
    if order.get("hosts"):
        bindings.obey(read_hosts(order["hosts"]))
    roster = Roster(courier, config.flower, bindings)
    roster.gather()
    split = blank_split(roster.facts)
    name = _run_name(config, split, folder, resume=resume)

    def begin() -> None:
        write_text(folder.checkpoint.parent / NAME, name)
        bindings.place = None if shards else remembered
        bindings.save()

    def complete(result: Result) -> Result:
        warnings = [*result.summary["warnings"], *bindings.warnings]
        warned = replace(result, summary={**result.summary, "warnings": warnings})
        return _gather(warned, shards, name) if shards else warned

    def host(config: Config, method: Method, channel: Channel, problem: Problem, split: Split) -> Host:
        run = RemoteRun(name_on_nodes(name, config), json.dumps(config.to_dict()))
        engine = FlowerEngine(method, channel, problem, roster, courier, run, config.flower, config.gate)
        return Host(engine, engine, DeviceHalf())  # of the server's state, nodes seal nothing

    train_config(
        config,
        split,
        folder,
        resume=resume,
        watch=watch,
        should_stop=should_stop,
        host=host,
        begin=begin,
        complete=complete,
    )


def _run_name(config: Config, split: Split, folder: RunFolder, *, resume: bool) -> str:
    """Names the nodes' state of this run: two runs with the same settings must not share it."""
    place = folder.checkpoint.parent / NAME
    if resume and place.exists():
        found = place.read_bytes()
        if not re.fullmatch(rb"[0-9a-f]{12}-[0-9a-f]{8}", found):
            raise StorageError(
                f"'{place}' should hold the name of a run. Restore it, or start again in another folder."
            )
        return found.decode()
    fingerprint = run_fingerprint(config.to_dict(), split.fingerprint)
    return f"{fingerprint[:12]}-{secrets.token_hex(4)}"


def name_on_nodes(name: str, config: Config) -> str:
    """The name of a run and its method, as nodes take it: popularity beside a run is a run of its own."""
    return f"{name}-{re.sub('[^0-9a-z]+', '-', method_label(config.method.name).lower())}"


def _gather(result: Result, shards: Path, name: str) -> Result:
    """A simulation's result with what its nodes kept: here, and only here, they share a disk with the server."""
    config, rounds = result.config, int(result.clients["rounds"])
    method, draws = config.method.build(), Draws(config.run.seed)
    dtype = getattr(torch, config.run.dtype)
    problem = Problem(len(result.user_ids), len(result.item_ids), dtype)
    everyone = ClientStore(method, problem, draws)
    nodes = [read_shard(place) for place in sorted(shards.glob("node-*"))]
    for node in nodes:
        store = DiskStore(node.state / name_on_nodes(name, config), method, problem, draws, rounds=rounds)
        ids = store.trained()
        if len(ids):
            everyone.write(ids, store.read(ids))
    train, user_ids = rejoin(nodes)
    observed, _ = rejoin(nodes, "observed")
    return replace(result, clients=everyone.everyone(), train=train, user_ids=user_ids, observed=observed)


def train_on_flower(
    config: Config,
    split: Split | None,
    folder: RunFolder,
    *,
    resume: bool = False,
    watch: Callable[[Line], None] = lambda line: None,
    should_stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda sentence: None,
) -> Result | None:
    """Submit a run, wait for it, and open its folder; None if the folder is on the server's machine only.

    Args:
        config: every setting; `flower.superlink` decides between a simulation and a deployment.
        split: the data, for a simulation; in a deployment the nodes have it.
        folder: where the server's app writes.
        resume: continue from the folder's checkpoint.
        watch: called after every round.
        should_stop: asked again and again; when true, the run is stopped and Interrupted raised.
        say: told what "auto" settings mean.

    Raises:
        RunError: the run failed, with the reason its server or node gave.
    """
    check_start(config, split)
    folder.claim_unfinished(config.to_dict(), resume=resume)
    config = settle(config, split, folder, resume=resume, say=say)
    order: dict[str, str | bool] = {
        "config": json.dumps(config.to_dict()),
        "folder": str(folder.path.resolve()),
        "resume": resume,
        "hosts": _operators_word(config.flower),
    }
    if config.flower.superlink is not None:
        with connected(config.flower.superlink, config.flower.certificate) as connection:
            _watch(connection, connection.submit(order), folder, watch, should_stop)
    elif split is None:
        raise ValueError("a simulation needs the data")
    else:
        with lock_folder(folder.path, folder.checkpoint.parent / ".submitted"):
            folder.claim_unfinished(config.to_dict(), resume=resume)  # again: under the lock
            shards = folder.checkpoint.parent.resolve() / "nodes"
            write_shards(split, shards, config.flower.nodes)
            here = partial(serve, order=order, shards=shards, watch=watch, should_stop=should_stop)
            simulate(here, work_of, read_policy, shards, config.flower.nodes)
    return open_run(folder.path) if folder.summary.exists() else None


def check_start(config: Config, split: Split | None) -> None:
    """Refuse here what nodes would refuse, before anything is started.

    Raises:
        PrivacyError: the method, the cohort or the number of nodes does not fit the channel.
        ConfigError: the channel's budget does not fit the run, or a setting means a run to go on from.
    """
    method, channel, draws = config.method.build(), config.channel(), Draws(config.run.seed)
    check_channel(config.method.name, method, channel)
    allowed_rounds(config, method, channel, 1 if split is None else split.n_users)
    if channel.hides and config.flower.superlink is None and config.flower.nodes < MIN_PARTICIPANTS:
        raise PrivacyError(
            f"Channel '{channel.name}' needs at least {MIN_PARTICIPANTS} nodes, because of two each knows the other's "
            f"part of a sum. Found flower.nodes = {config.flower.nodes}."
        )
    if split is not None:
        problem = Problem(split.n_users, split.n_items, getattr(torch, config.run.dtype))
        method = method.settled(problem)
        check_first_cohort(method, channel, problem, method.init_server(problem, draws), draws)


def _operators_word(settings: FlowerSettings) -> str:
    """The file that says who hosts whom, read where the run is submitted; empty without one."""
    if settings.hosts is None:
        return ""
    if settings.superlink is None:
        raise ConfigError("flower.hosts names keys of real nodes. A simulation has none: leave it out.")
    try:
        text = Path(settings.hosts).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"flower.hosts should name a file that can be read: {error}.") from error
    read_hosts(text)
    return text


def _watch(
    connection: Connection,
    run: str,
    folder: RunFolder,
    watch: Callable[[Line], None],
    should_stop: Callable[[], bool],
) -> None:
    """Report rounds as they are written, until the run ends; a run that did not complete is a failure."""
    asked = time.monotonic()
    n_seen = len(folder.read_history())
    with connection.following(run) as process:
        while True:
            time.sleep(WATCH_SECONDS)
            ended = process.poll() is not None
            lines = folder.read_history()
            for line in lines[n_seen:]:
                watch(line)
            n_seen = len(lines)
            if should_stop():
                connection.stop(run)
                raise Interrupted(len(folder.read_history()))  # rounds went on until the request arrived
            if ended or time.monotonic() > asked + STATUS_SECONDS:
                status, asked = connection.status(run), time.monotonic()
                if status == "finished:completed":
                    return
                if status.startswith("finished"):
                    raise RunError(f"The run under Flower ended as '{status}'. {connection.failure(run)}")
