"""What scores; a new model is one file here and one line in MODELS."""

from fedrecgel.errors import ConfigError, unknown
from fedrecgel.models.base import Model
from fedrecgel.models.mf import MF
from fedrecgel.models.mlp import MLP
from fedrecgel.models.neumf import NeuMF

MODELS: dict[str, type[Model]] = {"neumf": NeuMF, "mf": MF, "mlp": MLP}


def find_model(name: str) -> type[Model]:
    """The class of a model by its name.

    Raises:
        ConfigError: there is none.
    """
    if name not in MODELS:
        raise ConfigError(unknown("method.model", name, MODELS))
    return MODELS[name]
