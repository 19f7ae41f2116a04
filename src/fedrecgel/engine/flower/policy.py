"""Policy: what a node does for a server, decided on the node. A simulation has none: there, all is one person's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from fedrecgel.errors import PolicyError
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Minima, Need

Letters = Annotated[int, Meta(ge=0)]
Days = Annotated[float, Meta(gt=0)]


@dataclass(frozen=True)
class Policy:
    """The section [policy] of a node's own file. Every refusal names the key that decided it."""

    methods: tuple[str, ...] = ()
    """Methods this node trains and ranks with; none named: every installed one whose server needs sums only. A method
    that is named here may also ask for the uploads of single users."""
    channels: tuple[str, ...] = ("secagg", "plain")
    """Ways an upload may take; secagg needs `--key` and the keys of other nodes under [peers]."""
    runs: tuple[str, ...] = ()
    """Fingerprints of settings this node runs, as `fedrecgel node policy CONFIG` prints them; none: any settings."""
    min_users: Annotated[int, Meta(ge=1)] = 10
    """The smallest number of this node's users who train together and whose sum leaves; 1 hides nobody. Under secagg,
    the smallest number of users of all nodes together, where the method does not need more."""
    min_sum: Annotated[int, Meta(ge=0)] = 0
    """Under secagg, the smallest number of users of all nodes together, whatever the method needs; 0: what it needs."""
    rounds: Letters = 1000
    """Training letters answered within `days`, over all runs."""
    rankings: Letters = 100
    """Letters answered within `days`, over all runs, that ask for ranks among the candidates."""
    full_rankings: Letters = 10
    """The same for ranks in the whole catalogue, which can be made to tell something of every user's history."""
    days: Days = 30.0
    """The period over which letters are counted."""
    keep_days: Days = 30.0
    """What users learnt in a run is deleted when it was not touched for so long; until then the run can be resumed."""
    peers: Mapping[str, str] = field(default_factory=dict)
    """Other nodes by any name, each with the line of its .pub file; a section of its own in the file, [peers]."""

    def check_host(self, n_users: int) -> None:
        """Refuse to start where every letter would have to be refused.

        Raises:
            PolicyError: this node hosts too few users.
        """
        if n_users < self.min_users and not self.peers:
            raise PolicyError(
                f"A node should host at least policy.min_users = {self.min_users} users, so that a sum hides each of "
                f"them. Found {n_users}. Host more, list other nodes under [peers] in the file that --policy names, so "
                f"that sums under masks hide its users among theirs, or set min_users there."
            )

    def check_name(self, method: str) -> None:
        """Refuse a method that the file does not name, if it names any; before anything of it is imported."""
        if self.methods and method not in self.methods:
            raise PolicyError(
                f"This node runs {', '.join(self.methods)} (policy.methods). It was asked for '{method}'."
            )

    def check_work(self, method: Method, channel: str, fingerprint: str) -> None:
        """Refuse what a method would show, another channel, or other settings.

        Raises:
            PolicyError: with the key that decided it.
        """
        if not self.methods and method.server_needs > Need.SUM:
            raise PolicyError(
                f"This node answers with sums over its users. A '{type(method).__name__}' server reads the uploads of "
                f"single users: name the method in policy.methods to allow it."
            )
        if channel not in self.channels:
            raise PolicyError(
                f"Uploads leave this node through {' or '.join(self.channels)} (policy.channels). It was asked for "
                f"'{channel}'."
            )
        if self.runs and fingerprint not in self.runs:
            raise PolicyError(
                f"This node runs settings with the fingerprint {' or '.join(self.runs)} (policy.runs). Found "
                f"{fingerprint}: `fedrecgel node policy CONFIG` prints a policy for a config."
            )

    def check_cohort(self, method: Method, ids: Tensor, n_hosted: int, *, redraws: bool) -> None:
        """Refuse to train so few users together that their sum tells of each.

        Args:
            method: what is trained.
            ids: the users a letter names.
            n_hosted: all users of this node.
            redraws: whether negatives are drawn anew in every round.

        Raises:
            PolicyError: too few, somebody twice, or not all where sums of some could be subtracted from each other.
        """
        _check_once(ids)
        if len(ids) < self.min_users:
            raise PolicyError(
                f"At least policy.min_users = {self.min_users} users of this node train together. It was asked for "
                f"{len(ids)}."
            )
        if self.min_users == 1:  # hides nobody
            return
        if len(ids) < method.smallest_cohort:
            raise PolicyError(
                f"A sum of '{type(method).__name__}' hides its users from {method.smallest_cohort:,} on. It was asked "
                f"for {len(ids):,}. Host more users, or set min_users = 1 in the file that --policy names."
            )
        self._check_all(method, ids, n_hosted, redraws=redraws)

    def _check_all(self, method: Method, ids: Tensor, n_hosted: int, *, redraws: bool) -> None:
        if not _fresh(method, redraws=redraws) and len(ids) != n_hosted:
            raise PolicyError(
                f"Uploads of '{type(method).__name__}' are the same every time, so sums over some users could be "
                f"subtracted from each other. All {n_hosted} users of this node take part, or none; it was asked for "
                f"{len(ids)}."
            )

    def check_hidden(self, method: Method, ids: Tensor, n_hosted: int, *, redraws: bool) -> None:
        """The same where sums are taken under masks: others hide this node's users, so it may have few.

        Raises:
            PolicyError: somebody is named twice, or sums over other nodes could be subtracted from each other.
        """
        _check_once(ids)
        if self.min_users == 1:  # hides nobody
            return
        self._check_all(method, ids, n_hosted, redraws=redraws)
        enough = self._least(method)
        if n_hosted < enough and not self.runs and not _fresh(method, redraws=redraws):
            raise PolicyError(
                f"Uploads of '{type(method).__name__}' are the same every time, so sums with and without this node "
                f"could be subtracted from each other. It has fewer than {enough:,} users, so it needs to know the "
                f"run: `fedrecgel node policy CONFIG` prints a policy with policy.runs."
            )

    def check_total(self, method: Method, n_clients: int, received: int = 0, *, trains: bool) -> None:
        """Refuse a sum over all nodes that covers too few users.

        Raises:
            PolicyError: too few.
        """
        least = self._least(method, received) if trains else self.min_users
        if n_clients < least:
            raise PolicyError(
                f"A sum over all nodes should cover at least {least:,} users, by policy.min_users, policy.min_sum and "
                f"what the method '{type(method).__name__}' needs. Found {n_clients:,}."
            )

    def _least(self, method: Method, received: int = 0) -> int:
        """Users of all nodes whose sum hides each; more where what was received needs more."""
        if self.min_users == 1:  # hides nobody
            return 1
        return self.min_sum or max(self.min_users, method.smallest_sum, received)

    def check_received(self, minima: Minima, n_clients: int, n_asked: int, n_hosted: int, *, hides: bool) -> None:
        """Refuse a sum that does not hide its users, for what a node received.

        Args:
            minima: what the method says of it.
            n_clients: users that the sum covers.
            n_asked: users of this node among them.
            n_hosted: all users of this node.
            hides: whether it is taken under masks.

        Raises:
            PolicyError: too few, or not all of this node where sums of some could be subtracted from each other.
        """
        if self.min_users == 1:  # hides nobody
            return
        if not minima.drawn and n_asked != n_hosted:
            raise PolicyError(
                f"Uploads of this round are the same every time, so sums over some users could be subtracted from each "
                f"other. All {n_hosted} users of this node take part, or none; it was asked for {n_asked}."
            )
        least = minima.cohort if not hides else self.min_sum or minima.sum
        if n_clients < least:
            raise PolicyError(
                f"A sum of this round hides its users from {least:,} on. It was asked for one of {n_clients:,}. Host "
                f"more users, set method.init = 'normal' for the run if the method has it, or min_users = 1 in the "
                f"file that --policy names."
            )

    def check_sum(self, n_users: int, n_asked: int) -> None:
        """Refuse to send a sum over some of those asked: what a server sends decides whose uploads the gate drops.

        Raises:
            PolicyError: somebody is missing.
        """
        if n_users != n_asked and self.min_users > 1:
            raise PolicyError(
                f"A sum that leaves this node holds all {n_asked} users it was asked for. After the gate some are "
                f"missing, and sums with and without them could be subtracted from each other."
            )


def _check_once(ids: Tensor) -> None:
    """Refuse letters in which one user counts as several."""
    if ids.dim() != 1 or ids.dtype != torch.int64 or len(torch.unique(ids)) != len(ids):
        raise PolicyError("A letter should name every user once, by a whole number. It does not.")


def _fresh(method: Method, *, redraws: bool) -> bool:
    """Whether uploads differ from run to run, so that two sums do not differ by a user's upload alone."""
    return method.samples_negatives and redraws and not method.draws_nothing
