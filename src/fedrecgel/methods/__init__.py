"""The methods; a new one is one file here and one line in METHODS."""

from fedrecgel.methods.base import Method
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.popularity import Popularity

METHODS: dict[str, type[Method]] = {
    "popularity": Popularity,
    "fedncf": FedNCF,
    "fedrecgel": FedRecGEL,
}
