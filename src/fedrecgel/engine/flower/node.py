"""What a node does with a letter: introduce itself, prepare a round, train some of its users, rank for them.

It is the local engine over the users of one shard. What it sends is what the method declares and no more, through the
device half of the channel: the sum over its users where the server needs a sum, else one whole table per user. Outside
a simulation its own policy decides first.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from secrets import token_bytes
from typing import Any

import torch

from fedrecgel.channels.base import Channel, Preparation, RoundSetup
from fedrecgel.channels.sums import METRICS
from fedrecgel.data.federation import Federation, SamplingSettings
from fedrecgel.draws import Draws
from fedrecgel.engine.flower.disk import DiskStore, keep_since, since, sweep
from fedrecgel.engine.flower.exchange import State, keep, take
from fedrecgel.engine.flower.ledger import spend
from fedrecgel.engine.flower.outgoing import Outgoing
from fedrecgel.engine.flower.peers import identity
from fedrecgel.engine.flower.policy import Policy
from fedrecgel.engine.flower.secret import SECRET_BYTES, own_secret
from fedrecgel.engine.flower.shard import DATA, Shard, read_shard
from fedrecgel.engine.flower.steps import Steps
from fedrecgel.engine.flower.wire import Letter, unpack_download
from fedrecgel.engine.gate import GateSettings
from fedrecgel.engine.local import LocalEngine, LocalSettings
from fedrecgel.errors import ConfigError, DataError, FedrecgelError, PolicyError, PrivacyError, RunError
from fedrecgel.evaluation.metrics import client_metrics, metric_names
from fedrecgel.evaluation.ranking import Ranks, TieRule
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Problem, Upload
from fedrecgel.methods.outside import GROUP, is_outside, method_label
from fedrecgel.tensors import Ids

log = logging.getLogger("flwr")  # stands in the log of the node


@dataclass(frozen=True)
class Work:
    """All a node must know of a run."""

    method: Method
    sampling: SamplingSettings
    dtype: torch.dtype
    seed: int
    local: LocalSettings
    gate: GateSettings
    channel: Channel
    selects: bool
    """Whether an earlier round may be reported, so that the state after it must be kept."""
    fingerprint: str = ""
    """Of all settings that shape a round, by which a policy knows a run."""
    ks: tuple[int, ...] = (5, 10)
    """Cut-offs of the metrics, where a node sums them itself."""
    ties: TieRule = "expected"


def _in_words(answer: Callable[[Node, str, Letter], Letter]) -> Callable[[Node, str, Letter], Letter]:
    """Whatever a letter makes a node stumble over is an error that says so."""

    @wraps(answer)
    def answered(node: Node, kind: str, letter: Letter) -> Letter:
        try:
            return answer(node, kind, letter)
        except FedrecgelError:
            raise
        except Exception as error:
            raise DataError(f"A node should be able to answer '{kind}'. {type(error).__name__}: {error}") from error

    return answered


class Node:
    """The users of one shard."""

    def __init__(
        self,
        place: Path,
        work_of: Callable[[str], Work],
        *,
        simulated: bool = True,
        policy: Policy | None = None,
        key: Path | None = None,
    ) -> None:
        """In a simulation nothing limits the server, which is the user's own; elsewhere a policy does, always."""
        self._folder = place.parent if place.name == DATA else place
        self._work_of = work_of
        self._policy = None if simulated else policy or Policy()
        self._key = key

    @_in_words
    def answer(self, kind: str, letter: Letter) -> Letter:
        """Do what a letter asks for: "hello", "prepare", "share", "train", "rank", "confirm" or "unmask".

        Raises:
            FedrecgelError: it asks for something else, whatever that is.
        """
        shard = _opened(self._folder)
        if kind == "hello":
            return Letter({"facts": dict(shard.facts)}, {"users": shard.users})
        strangers = int((~torch.isin(letter.tensors["ids"], shard.users)).sum())
        if strangers:
            raise DataError(f"A node should host every client it is asked for. {strangers} of these live elsewhere.")
        policy = self._policy
        if policy is not None:
            _check_name(policy, letter.about["work"])
        work = self._work_of(letter.about["work"])
        if policy is not None:
            policy.check_work(work.method, work.channel.name, work.fingerprint)
            if kind != "rank":
                check = policy.check_hidden if work.channel.hides else policy.check_cohort
                check(work.method, letter.tensors["ids"], len(shard.users), redraws=work.sampling.redraw)
        problem = Problem(shard.split.n_users, shard.split.n_items, work.dtype)
        folder, rounds = shard.state / _folder_name(letter.about["run"]), _number(letter.about["round"])
        steps = None
        if work.channel.hides:
            own = None if policy is None else identity(self._key, policy.peers)
            steps = Steps(
                work.method, work.channel, problem.n_items, folder, shard.folder, work.fingerprint, letter, policy, own
            )
            if kind == "prepare":
                return steps.prepare(work.seed)
            if kind in ("share", "confirm", "unmask"):
                answers = {"share": steps.share, "confirm": steps.confirm, "unmask": steps.unmask}
                return answers[kind]()
            steps.check_purpose(kind)
        if kind == "prepare":
            return _prepare(work, folder, problem, letter)
        if policy is not None:
            spend(shard.folder, policy, kind, letter, work.fingerprint)
            if not folder.exists():
                sweep(shard.state, policy.keep_days)
        draws = Draws(work.seed, b"" if policy is None else own_secret(shard.state, work.fingerprint))
        store = DiskStore(folder, work.method, problem, draws, rounds=rounds)
        federation = Federation(shard.split, work.sampling, work.dtype)
        engine = LocalEngine(work.method, federation, work.channel, store, draws, work.local, work.gate)
        try:
            if kind == "train":
                if not work.selects:
                    store.merge()
                return _train(engine, store, folder, letter, policy, steps, len(shard.users))
            return _rank(engine, folder, letter, work, steps)
        except (PolicyError, PrivacyError):
            raise
        except Exception as error:
            if policy is None or not work.channel.hides:
                raise
            log.exception("This node could not answer '%s'", kind)
            raise RunError(
                f"A node could not answer '{kind}'. Behind masks only its own log says why: what went wrong tells of "
                f"its users. Often numbers are too large: lower a learning rate, or raise fixed_point.largest."
            ) from error


def _check_name(policy: Policy, work: str) -> None:
    """A server in the simulation is the user who wrote the file; elsewhere it must not choose what a node imports."""
    name = str(json.loads(work)["method"]["name"])
    if is_outside(name):
        raise ConfigError(
            f"A node runs methods that are installed on it. Found '{method_label(name)}' in a file: install it as a "
            f"package that announces it under the entry-point group '{GROUP}'."
        )
    policy.check_name(name)


def _prepare(work: Work, folder: Path, problem: Problem, letter: Letter) -> Letter:
    """Contribute to the exchange of a round; what must stay secret is on disk before anything is sent.

    Every exchange draws from a new secret: masks that come back could be subtracted.
    """
    setup = _setup(work.method, problem.n_items, letter)
    participant = int(letter.tensors["ids"].min())
    given = work.channel.device(Draws(work.seed, token_bytes(SECRET_BYTES))).contribute(setup, participant)
    keep(folder, State("prepare", _about(letter), participant, given.secret.hex()))
    return Letter({"round": setup.round, "message": given.public.hex()})


def _about(letter: Letter) -> str:
    """Which exchange a letter belongs to."""
    return f"{letter.about['run']}, round {letter.about['round']}"


def _train(
    engine: LocalEngine,
    store: DiskStore,
    folder: Path,
    letter: Letter,
    policy: Policy | None,
    steps: Steps | None,
    n_hosted: int,
) -> Letter:
    """One round of the clients asked for; their state is on disk before anything is sent."""
    method, channel, asked = engine.method, engine.channel, letter.tensors["ids"]
    setup = _setup(method, engine.federation.n_items, letter)
    participant = int(asked.min())
    secrets: dict[int, bytes] = {}
    if steps is not None:
        setup, secrets = steps.cover(engine.devices)
    elif channel.prepares == Preparation.EXCHANGE:
        secrets[participant] = bytes.fromhex(take(folder, "prepare", _about(letter), participant).secret)
    down = unpack_download(letter.tensors)
    if policy is not None:
        covered = len(setup.cohort) if steps else len(asked)
        policy.check_received(method.hides_from(down.shared), covered, len(asked), n_hosted, hides=channel.hides)
    outgoing = _outgoing(engine, setup, participant, secrets)
    trained = engine.train_with(down, asked, setup.round, outgoing)
    if policy is not None:
        policy.check_sum(trained.n_answers, len(asked))
    loss = None if trained.loss is None else float(trained.loss) * trained.n_answers
    about: dict[str, Any] = {"round": setup.round, "loss": loss, "refused": dict(trained.refused)}
    if channel.hides or channel.withholds:  # all of that is in the sum, or stays here
        about |= {"loss": None if loss is None or channel.withholds else 0.0, "refused": {}}
    about["since"] = since(folder, setup.round)
    store.commit()
    keep_since(folder, setup.round)
    return Letter(about, outgoing.hidden(asked) if channel.hides else outgoing.packed(method))


def _outgoing(engine: LocalEngine, setup: RoundSetup, participant: int, secrets: dict[int, bytes]) -> Outgoing:
    weighted, hides = not engine.channel.server().readable, engine.channel.hides
    return Outgoing(engine.devices, setup, participant, secrets, weighted=weighted, hides=hides)


def _setup(method: Method, n_items: int, letter: Letter) -> RoundSetup:
    """What a letter says of the round."""
    cohort = letter.tensors.get("cohort", letter.tensors["ids"])
    messages = {int(name): bytes.fromhex(text) for name, text in letter.about.get("messages", {}).items()}
    return RoundSetup.of(method, letter.about["round"], cohort, n_items, messages)


def _rank(engine: LocalEngine, folder: Path, letter: Letter, work: Work, steps: Steps | None) -> Letter:
    """Ranks of the users' own held-out items: two counts per user leave the node; under masks, sums of metrics."""
    held_out, against = letter.about["held_out"], letter.about["against"]
    ids, asked = engine.ranked(held_out), letter.tensors["ids"]
    down, at = unpack_download(letter.tensors), torch.searchsorted(asked, ids).clamp(max=len(asked) - 1)
    ranks = engine.ranks_with(down.of(at), held_out, against)
    wanted = torch.isin(ids, asked)
    about = {"round": letter.about["round"], "since": since(folder, None)}
    found = Ranks(ranks.above[wanted], ranks.tied[wanted])
    if steps is None:
        return Letter(about, {"ids": ids[wanted], "above": found.above, "tied": found.tied})
    outgoing = _outgoing(engine, *_covering(steps, engine))
    outgoing.collect([outgoing.leave(_gains(ids[wanted], found, work))])
    return Letter(about, outgoing.hidden(asked))


def _covering(steps: Steps, engine: LocalEngine) -> tuple[RoundSetup, int, dict[int, bytes]]:
    setup, secrets = steps.cover(engine.devices)
    return setup, steps.participant, secrets


def _gains(ids: Ids, ranks: Ranks, work: Work) -> Upload:
    """Every metric of each client, as an upload."""
    names = metric_names(work.ks)
    gains = client_metrics(ranks, work.ks, work.ties) if len(ids) else {}
    values = torch.stack([gains[name] for name in names], 1) if gains else torch.zeros(0, len(names)).double()
    nothing = torch.zeros(len(ids), 0, dtype=torch.int64)
    return Upload(ids, {METRICS: values}, {}, nothing, torch.ones(len(ids), dtype=torch.float64))


def _folder_name(run: str) -> str:
    """The name of a run, which came from outside, as the name of a folder."""
    if not re.fullmatch(r"[0-9a-z][0-9a-z-]*", run):
        raise DataError(f"The name of a run should consist of small letters, digits and hyphens. Found {run!r}.")
    return run


def _number(round: object) -> int:
    """The number of a round, which came from outside, before files are named after it."""
    if type(round) is not int or not 0 <= round < 1 << 31:
        raise DataError(f"A round should be a number from 0. Found {round!r:.80}.")
    return round


@lru_cache(maxsize=256)
def _opened(folder: Path) -> Shard:
    """A shard stays open in a process that answers many letters."""
    return read_shard(folder)
