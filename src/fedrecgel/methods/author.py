"""Everything the author of a method needs, in one import: `from fedrecgel.methods import author as fed`."""

from fedrecgel.data.federation import ClientBatch, Sampler
from fedrecgel.data.history import History
from fedrecgel.draws import Draws
from fedrecgel.methods.base import LARGE, Fraction, Method, Radius, Rate, Size, local_epochs
from fedrecgel.methods.histories import FADING, Centralised, HistorySent, add_rows
from fedrecgel.methods.messages import ClientResult, Download, Inbox, Minima, Need, Problem, Server, Upload
from fedrecgel.tables import NO_TABLE, PersonalTable, StackedTable, State
from fedrecgel.tensors import Ids, Tensors

__all__ = [
    "FADING",
    "LARGE",
    "NO_TABLE",
    "Centralised",
    "ClientBatch",
    "ClientResult",
    "Download",
    "Draws",
    "Fraction",
    "History",
    "HistorySent",
    "Ids",
    "Inbox",
    "Method",
    "Minima",
    "Need",
    "PersonalTable",
    "Problem",
    "Radius",
    "Rate",
    "Sampler",
    "Server",
    "Size",
    "StackedTable",
    "State",
    "Tensors",
    "Upload",
    "add_rows",
    "local_epochs",
]
