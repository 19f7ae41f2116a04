"""Configs that come with the package: settings found by searches, and the published ones."""

from __future__ import annotations

from pathlib import Path

from fedrecgel.errors import ConfigError
from fedrecgel.methods import method_label

PACKAGE = Path(__file__).resolve().parents[1]
TUNED = "tuned"


def shipped_configs() -> Path:
    """The folder `configs`: beside the sources in a checkout, in the package once it is installed."""
    inside = PACKAGE / "configs"
    return inside if inside.is_dir() else PACKAGE.parents[1] / "configs"


def tuned_config(dataset: str, method: str) -> Path:
    """What a search found for this method on this data set.

    Raises:
        ConfigError: there is none.
    """
    folder = shipped_configs() / dataset
    path = folder / f"{method_label(method)}.toml"
    if not path.exists():
        there = ", ".join(sorted(found.stem for found in folder.glob("*.toml"))) or "none at all"
        raise ConfigError(
            f"There is no tuned config of '{method}' for '{dataset}'; for these data there are: {there}. Leave "
            f"--config out for the defaults, or search: fedrecgel tune --dataset {dataset} --method {method}."
        )
    return path


def shown_config(path: Path) -> str:
    """The path of a config as results name it: the same in a checkout and where the package is installed."""
    shipped = shipped_configs()
    return (Path("configs") / path.relative_to(shipped) if path.is_relative_to(shipped) else path).as_posix()
