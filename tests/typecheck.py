"""How the tests check shapes and types of every call where shapes are written; mypy checks the rest for nothing."""

from pathlib import Path

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""An int passes for a float, as it does for mypy."""
SOURCE = Path(__file__).parents[1] / "src"


def modules_with_shapes() -> list[str]:
    """Checking every module would make the suite take twice as long."""
    files = sorted((SOURCE / "fedrecgel").rglob("*.py"))
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in files if _has_shapes(path)]
    return [name.removesuffix(".__init__") for name in names]


def _has_shapes(path: Path) -> bool:
    return "jaxtyping" in path.read_text(encoding="utf-8")
