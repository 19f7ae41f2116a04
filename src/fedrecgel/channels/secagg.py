"""Secure aggregation: the server learns the sum of a round and nothing else, whoever drops out on the way.

Numbers become integers (`channels/fixedpoint.py`), integers get masks that cancel in the sum (`channels/masking.py`).
Tables are whole and every upload has the same size. What a node would say of its users in the clear is in the sum, too:
weights, losses, how many they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from fedrecgel.channels.base import Channel, Contribution, DeviceHalf, Preparation, RoundSetup, ServerHalf
from fedrecgel.channels.fixedpoint import FixedPointSettings, to_floats, to_integers
from fedrecgel.channels.masking import (
    Circle,
    Kept,
    Revealed,
    Secret,
    cover,
    open_envelopes,
    publish,
    reveal,
    share,
    uncover,
)
from fedrecgel.channels.masks import Words
from fedrecgel.channels.sums import CLIENTS, COUNT, COUNTS, LOSS, WEIGHT, Received, each_of, whole
from fedrecgel.draws import Draws
from fedrecgel.errors import ConfigError, IncompleteError, PrivacyError
from fedrecgel.methods.messages import Need, Upload
from fedrecgel.tensors import Tensors

MIN_PARTICIPANTS = 3
"""Of two, each knows the other's part of the sum."""
MIN_CLIENTS = 10
"""The smallest cohort of any sum, unless the settings say so: of metrics, too."""
PLAYED = 32
"""Largest cohort whose masks a simulator runs unless told otherwise."""
COUNT_NUMBERS = FixedPointSettings(fraction_bits=24, largest=1e6)
"""How clients, weights and losses are written, always in 64 bits: a million clients fit."""


@dataclass(frozen=True)
class SecaggSettings:
    """When sums are taken under masks."""

    min_clients: Annotated[int, Meta(ge=MIN_PARTICIPANTS)] | None = None
    """The smallest cohort whose sum is taken; none: what the method states, as `fedrecgel methods NAME` prints it. With
    fewer the run warns."""
    masks: Literal["auto", "run", "simulated"] = "auto"
    """On the local engine: run the masks, or add the same integers without them, which gives the same bits. Auto runs
    them for cohorts of up to 32. Nodes always run them."""


class Numbers(NamedTuple):
    """How the numbers of a round are written; everybody who takes part works it out alike."""

    format: FixedPointSettings
    dtype: torch.dtype
    """32 bits if the largest possible sum fits, else 64."""
    most: int
    """No honest sum is larger in magnitude, as an integer."""

    @classmethod
    def of(cls, setup: RoundSetup, settings: FixedPointSettings) -> Numbers:
        """For a cohort of this size.

        Raises:
            ConfigError: sums could overflow.
        """
        numbers = replace(settings, largest=max(settings.largest, setup.magnitude))
        most = len(setup.cohort) * numbers.bound
        if most >= 1 << 63:
            raise ConfigError(
                f"Sums of {len(setup.cohort):,} clients should stay below 2^63. They could reach "
                f"2^{most.bit_length()}: lower fixed_point.fraction_bits or fixed_point.largest."
            )
        return cls(numbers, torch.int32 if most < 1 << 31 else torch.int64, most)

    def of_name(self, name: str) -> Numbers:
        """Those of one tensor: counts have their own."""
        return Numbers(COUNT_NUMBERS, torch.int64, (1 << 63) - 1) if name.startswith(COUNT) else self

    def write(self, values: Tensor) -> Tensor:
        """Integers in the place of numbers."""
        flat = torch.from_numpy(to_integers(values, self.format))
        return flat.view(values.shape).to(self.dtype)


class Secagg(Channel):
    """Sums under masks."""

    name = "secagg"
    reveals = Need.SUM
    protects = "single uploads, from a server that sees only their sum, and from fewer colluding nodes than open a mask"
    prepares = Preparation.RECOVERY
    hides = True
    section = "secagg"
    settings_type = SecaggSettings

    def __init__(self, settings: Any = None, numbers: FixedPointSettings | None = None) -> None:
        super().__init__(settings)
        self._numbers = numbers or FixedPointSettings()

    @classmethod
    def sections(cls) -> dict[str, type]:
        """Its own, and how numbers are written."""
        return {"secagg": SecaggSettings, "fixed_point": FixedPointSettings}

    @classmethod
    def build(cls, settings: Mapping[str, Any]) -> Channel:
        """With both sections."""
        return cls(settings.get("secagg"), settings.get("fixed_point"))

    def plays(self, n_participants: int) -> bool:
        """As the settings say."""
        masks = self.settings.masks
        return n_participants <= PLAYED if masks == "auto" else bool(masks == "run")

    def check_cohort(self, method: str, n_clients: int, setup: RoundSetup) -> None:
        """As many as the method needs, or the settings say."""
        check_size(n_clients, setup, self.settings.min_clients, f"Method '{method}'")

    def device(self, draws: Draws) -> SecaggDevice:
        """Keys come from these draws: fresh on a node."""
        return SecaggDevice(self.settings, self._numbers, draws)

    def server(self) -> SecaggServer:
        """Without any secret."""
        return SecaggServer(self._numbers)


def check_size(n_clients: int, setup: RoundSetup, min_clients: int | None, who: str) -> None:
    """Refuse a sum over too few.

    Raises:
        PrivacyError: the cohort is too small.
    """
    least = max(MIN_CLIENTS, setup.smallest)
    if min_clients is None and n_clients < least:
        raise PrivacyError(
            f"{who} needs cohorts of at least {least:,} clients, because smaller sums give single histories away. "
            f"Found {n_clients:,}. Raise method.fraction, take more users, lower method.rank where there is one, or "
            f"set secagg.min_clients, and be warned."
        )
    if min_clients is not None and n_clients < min_clients:
        raise PrivacyError(
            f"Channel 'secagg' needs cohorts of at least secagg.min_clients = {min_clients} clients, so that a sum "
            f"hides each. Found {n_clients}. Raise method.fraction, or take more users."
        )


class SecaggDevice(DeviceHalf):
    """Writes integers and puts masks on them."""

    def __init__(self, settings: SecaggSettings, numbers: FixedPointSettings, draws: Draws) -> None:
        self._settings, self._numbers, self._draws = settings, numbers, draws
        self._latest: tuple[Mapping[int, bytes], Circle] | None = None

    def _circle(self, setup: RoundSetup) -> Circle:
        """Of a round; a simulator asks for it once for each client."""
        latest = self._latest
        if latest is None or latest[0] is not setup.messages:
            latest = self._latest = (setup.messages, Circle.of(setup.messages))
        return latest[1]

    def contribute(self, setup: RoundSetup, participant: int) -> Contribution:
        """Fresh keys."""
        secret = Secret(self._draws.key("secagg", setup.round, participant))
        return Contribution(publish(secret), msgspec.msgpack.encode(secret))

    def share(self, setup: RoundSetup, participant: int, secret: bytes) -> dict[int, bytes]:
        """Sealed shares for each neighbour.

        Raises:
            PrivacyError: too few take part.
        """
        self._check(setup, setup.messages)
        return share(_secret(secret), participant, self._circle(setup))

    def _check(self, setup: RoundSetup, participants: Collection[int]) -> None:
        check_size(len(setup.cohort), setup, self._settings.min_clients, "This round")
        if len(participants) < MIN_PARTICIPANTS:
            raise PrivacyError(
                f"Channel 'secagg' needs at least {MIN_PARTICIPANTS} nodes, because of two each knows the other's part "
                f"of a sum. Found {len(participants)}: start more nodes."
            )

    def seal(self, upload: Upload, setup: RoundSetup) -> Upload:
        """Every client's numbers times its weight, as integers; weights and counts among them."""
        numbers, weight = Numbers.of(setup, self._numbers), upload.weight.double()

        def written(name: str, value: Tensor) -> Tensor:
            fitting = weight.view(-1, *[1] * (value.dim() - 1))
            return numbers.of_name(name).write(value if name.startswith(COUNT) else value.double() * fitting)

        dense = {name: each_of(value) for name, value in upload.dense.items()}
        loss = dense.get(LOSS, torch.zeros_like(weight)).double()  # an upload without one is as long
        dense |= {CLIENTS: torch.ones_like(weight), WEIGHT: weight}
        dense[LOSS] = loss.clamp(-COUNT_NUMBERS.largest, COUNT_NUMBERS.largest)
        return replace(
            upload,
            dense={name: written(name, value) for name, value in dense.items()},
            rows={name: written(name, value) for name, value in upload.rows.items()},
            weight=torch.ones_like(upload.weight),
        )

    def retain(self, setup: RoundSetup, participant: int, secret: bytes) -> bytes:
        """The neighbours' shares, opened."""
        circle = self._circle(setup)
        sharers = setup.envelopes.keys()
        kept = open_envelopes(_secret(secret), participant, circle, setup.envelopes[participant], sharers)
        return msgspec.msgpack.encode(kept)

    def cover(self, upload: Upload, setup: RoundSetup, secrets: Mapping[int, bytes]) -> Upload:
        """Whole tables under masks."""
        numbers, circle = Numbers.of(setup, self._numbers), self._circle(setup)
        upload = whole(upload, setup.n_items)
        covered: Tensors = {}
        for name, value in {**upload.dense, **upload.rows}.items():
            # A sum over a node's users is wider than what is sent, and fits: the cohort's would.
            covered[name] = each_of(value).to(numbers.of_name(name).dtype).contiguous().clone()
        for row, participant in enumerate(upload.ids.tolist()):
            own = {name: unsigned(value[row]) for name, value in covered.items()}
            cover(own, _secret(secrets[participant]), participant, circle, setup.envelopes[participant])
        return replace(
            upload,
            dense={name: covered[name] for name in upload.dense},
            rows={name: covered[name] for name in upload.rows},
        )

    def reveal(self, setup: RoundSetup, participant: int, kept: bytes, arrived: Collection[int]) -> bytes:
        """One share of each neighbour.

        Raises:
            PrivacyError: too few uploads arrived.
        """
        self._check(setup, arrived)
        found = msgspec.msgpack.decode(kept, type=Kept)
        return msgspec.msgpack.encode(reveal(found, participant, self._circle(setup), arrived))


class SecaggServer(ServerHalf):
    """Adds masked integers, takes the masks off the sum, and turns it into numbers."""

    readable = False

    def __init__(self, numbers: FixedPointSettings) -> None:
        self._numbers = numbers

    def arriving(self, one: Tensors, setup: RoundSetup) -> Tensors:
        """Integers, and the counts beside them."""
        numbers = Numbers.of(setup, self._numbers)
        found = {name: value.to(numbers.of_name(name).dtype) for name, value in one.items()}
        return found | {name: torch.empty((), dtype=torch.int64, device="meta") for name in COUNTS}

    def open_sums(self, received: Received, setup: RoundSetup) -> Received:
        """The sum, without masks if there are any.

        Raises:
            IncompleteError: masks cannot be taken off, or the sum is larger than honest clients can make it.
        """
        numbers = Numbers.of(setup, self._numbers)
        sums = {name: value.to(numbers.of_name(name).dtype).clone() for name, value in received.sums.items()}
        if setup.messages:
            revealed = {who: _decoded(said) for who, said in setup.revealed.items()}
            uncover(
                {name: unsigned(value) for name, value in sums.items()},
                Circle.of(setup.messages),
                setup.envelopes.keys(),
                received.ids.tolist(),
                {who: said for who, said in revealed.items() if said is not None},
            )
        found: Tensors = {}
        for name, value in sums.items():
            own = numbers.of_name(name)
            if int(value.abs().max() if value.numel() else 0) > own.most:
                raise IncompleteError(
                    f"Sums of {len(setup.cohort):,} clients should be at most that many times "
                    f"{own.format.largest:g} in magnitude. '{name}' is not: some node sent more than its clients may."
                )
            dtype = torch.float64 if name.startswith(COUNT) else received.weights.dtype
            found[name] = to_floats(value.flatten().long().numpy(), own.format.fraction_bits, dtype).view(value.shape)
        counts = {name: float(found.pop(name)) for name in COUNTS if name in found}
        return replace(received, sums=found, weight=counts.get(WEIGHT, 0.0), counts=counts)


def unsigned(value: Tensor) -> Words:
    """The same memory as numbers modulo 2^32 or 2^64, in which nothing overflows."""
    flat = value.numpy().reshape(-1)
    return flat.view(np.uint32) if value.dtype == torch.int32 else flat.view(np.uint64)


def _secret(text: bytes) -> Secret:
    return msgspec.msgpack.decode(text, type=Secret)


def _decoded(said: bytes) -> Revealed | None:
    """What a participant revealed; None if it is something else."""
    try:
        return msgspec.msgpack.decode(said, type=Revealed)
    except msgspec.DecodeError:
        return None
