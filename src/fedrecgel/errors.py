"""Everything this package raises on purpose.

::

    FedrecgelError               one or two sentences: what should be, what was found, the way out
    ├── InputError               the user can fix it; exit code 2
    │   ├── DataError            a file, a column, an id, a checksum, too few users or items
    │   ├── ConfigError          an unknown key, data set or method; a value out of range
    │   ├── PrivacyError         a method needs to see more than the channel reveals
    │   ├── PolicyError          a node's own policy does not allow what a server asks for
    │   └── RunFolderError       an output folder that belongs to another run, a foreign checkpoint
    └── RunError                 the run itself failed; exit code 1
        ├── StorageError         a full disk, a truncated checkpoint
        └── IncompleteError      a round with too few answers
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MANY = 40
"""More names than this are not listed in a message."""


class FedrecgelError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class InputError(FedrecgelError):
    """Wrong input; nothing was changed."""

    exit_code = 2


class DataError(InputError):
    """Data that cannot be read or is not what it should be."""


class ConfigError(InputError):
    """A setting that does not exist or cannot have this value."""


class PrivacyError(InputError):
    """A method that needs more than its channel reveals."""


class PolicyError(InputError):
    """A request that a node's own policy does not allow."""


class RunFolderError(InputError):
    """A run folder or checkpoint that belongs to something else."""


class RunError(FedrecgelError):
    """A run that started well and failed."""


class StorageError(RunError):
    """Results that could not be written or read back."""


class IncompleteError(RunError):
    """A round whose answers do not suffice; it may be repeated."""


def unknown(kind: str, found: str, valid: Iterable[str], where: str = "") -> str:
    """The sentence for a misspelt name: what was found and the nearest valid one.

    >>> unknown("method", "fedncv", ["fedncf", "popularity"])
    "Unknown method 'fedncv'. Did you mean 'fedncf'?"
    """
    names = sorted(valid)
    shown = names if len(names) <= MANY else [*names[: MANY - 1], f"… ({len(names):,} in all)"]
    near = get_close_matches(found, names, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'?" if near else f"Valid: {', '.join(shown) or 'none'}."
    return f"Unknown {kind} '{found}'{' ' + where if where else ''}. {hint}"
