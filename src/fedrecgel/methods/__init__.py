"""The methods; a new one is one file here and one line in METHODS, or a file of one's own named by its path."""

from fedrecgel.errors import ConfigError, unknown
from fedrecgel.methods.base import Method
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.methods.ease import EASE
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedncf_weights import FedNCFWeights
from fedrecgel.methods.fedrap import FedRAP
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.gfcf import GFCF
from fedrecgel.methods.gpfedrec import GPFedRec
from fedrecgel.methods.ials import IALS
from fedrecgel.methods.itemknn import ItemKNN
from fedrecgel.methods.outside import announced, class_at, full_name, is_outside, load_entry, method_label, remember
from fedrecgel.methods.perfedrec import PerFedRec
from fedrecgel.methods.pfedrec import PFedRec
from fedrecgel.methods.popularity import Popularity
from fedrecgel.methods.seen_first import SeenFirst
from fedrecgel.methods.spectra import Spectra

__all__ = ["METHODS", "Method", "announced", "find_method", "full_name", "load_entry", "method_label", "name_of"]

METHODS: dict[str, type[Method]] = {
    "popularity": Popularity,
    "seen-first": SeenFirst,
    "itemknn": ItemKNN,
    "ease": EASE,
    "ials": IALS,
    "gfcf": GFCF,
    "fedmf": FedMF,
    "fedncf": FedNCF,
    "fedncf-weights": FedNCFWeights,
    "perfedrec": PerFedRec,
    "pfedrec": PFedRec,
    "fedrap": FedRAP,
    "cofedrec": CoFedRec,
    "gpfedrec": GPFedRec,
    "fedrecgel": FedRecGEL,
    "spectra": Spectra,
}


def find_method(name: str) -> type[Method]:
    """The class of a method by its name.

    Args:
        name: a key of METHODS, `path/to/file.py:Class`, or an entry point of the group `fedrecgel.methods`; a key of
            METHODS wins.

    Raises:
        ConfigError: there is none, or it is no method.
    """
    if name in METHODS:
        return METHODS[name]
    if is_outside(name):
        return class_at(name)
    entries = announced()
    if name not in entries:
        raise ConfigError(unknown("method", name, [*METHODS, *entries]))
    return load_entry(entries[name])


def name_of(kind: type[Method]) -> str:
    """The name under which `find_method` finds a class, in other processes too if it is registered or in a file."""
    if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        for name, known in METHODS.items():
            if known is kind:
                return name
    place = f"{kind.__module__}:{kind.__qualname__}"
    for name, entry in announced().items():
        if entry.value == place and name not in METHODS:
            return name
    return remember(kind)
