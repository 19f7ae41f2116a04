"""Channels with noise to test: begun with little, and what comes out of both halves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from tests.builders import random_split
from tests.channels.uploads import random_upload, setup_of

from fedrecgel.channels.base import Plan
from fedrecgel.channels.budget import DpSettings
from fedrecgel.channels.dp import Dp
from fedrecgel.channels.sums import Received
from fedrecgel.draws import Draws
from fedrecgel.methods.messages import Need, Upload

INF = float("inf")
SPLIT = random_split(n_users=14, n_items=130)


def plan(n_clients: int = 5, fraction: float = 1.0, rounds: int = 1, names: Iterable[str] = ()) -> Plan:
    return Plan(n_clients, fraction, rounds, frozenset({"matrix", "bias", "number", "table", *names}), seed=0)


def begun(fraction: float = 1.0, **settings: Any) -> Dp:
    channel = Dp(DpSettings(**{"epsilon": INF, **settings}))
    channel.begin(plan(fraction=fraction))
    return channel


def uploads(clients: int = 5, seed: int = 0) -> list[Upload]:
    return [random_upload(torch.Generator().manual_seed(seed), clients, 3, torch.ones(clients).double())]


def through(channel: Dp, sent: list[Upload], round: int = 0) -> Received:
    setup = replace(setup_of(Need.SUM), round=round)
    device = channel.device(Draws(0))
    found = channel.server().collect([device.seal(upload, setup) for upload in sent], setup)
    assert isinstance(found, Received)
    return found
