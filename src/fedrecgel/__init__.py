"""Federated recommendation with sharpness-aware embedding learning."""

import os

os.environ.setdefault(
    "OMP_WAIT_POLICY", "PASSIVE"
)  # before torch is loaded: idle threads that spin slow down everything

from fedrecgel.data.interactions import Interactions
from fedrecgel.data.load import load
from fedrecgel.data.split import Split
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Method
from fedrecgel.runs.api import train
from fedrecgel.runs.result import Recommendation, Result
from fedrecgel.runs.result import open_run as open  # noqa: A004 - read as fedrecgel.open

__all__ = ["METHODS", "Interactions", "Method", "Recommendation", "Result", "Split", "load", "open", "train"]
