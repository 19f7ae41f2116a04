"""The methods; a new one is one file here and one line in METHODS."""

from fedrecgel.errors import ConfigError, unknown
from fedrecgel.methods.base import Method
from fedrecgel.methods.cofedrec import CoFedRec
from fedrecgel.methods.ease import EASE
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedncf_weights import FedNCFWeights
from fedrecgel.methods.fedrap import FedRAP
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.gpfedrec import GPFedRec
from fedrecgel.methods.ials import IALS
from fedrecgel.methods.itemknn import ItemKNN
from fedrecgel.methods.perfedrec import PerFedRec
from fedrecgel.methods.pfedrec import PFedRec
from fedrecgel.methods.popularity import Popularity
from fedrecgel.methods.seen_first import SeenFirst

METHODS: dict[str, type[Method]] = {
    "popularity": Popularity,
    "seen-first": SeenFirst,
    "itemknn": ItemKNN,
    "ease": EASE,
    "ials": IALS,
    "fedmf": FedMF,
    "fedncf": FedNCF,
    "fedncf-weights": FedNCFWeights,
    "perfedrec": PerFedRec,
    "pfedrec": PFedRec,
    "fedrap": FedRAP,
    "cofedrec": CoFedRec,
    "gpfedrec": GPFedRec,
    "fedrecgel": FedRecGEL,
}


def find_method(name: str) -> type[Method]:
    """The class of a method by its name.

    Raises:
        ConfigError: there is none.
    """
    if name not in METHODS:
        raise ConfigError(unknown("method", name, METHODS))
    return METHODS[name]


def method_label(name: str) -> str:
    """A method in tables and file names: "path/to/my.py:BiasMF" is BiasMF."""
    return name.rpartition(":")[2]
