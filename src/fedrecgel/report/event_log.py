"""TensorBoard: the lines of metrics.jsonl once more, for those who watch runs there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrecgel.errors import ConfigError
from fedrecgel.evaluation.metrics import is_metric

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class EventLog:
    """Writes every number of a round as a scalar; metrics.jsonl stays the record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: SummaryWriter | None = None
        try:
            import torch.utils.tensorboard  # noqa: F401 - the check comes before training, the file after its start
        except ImportError as error:
            raise ConfigError("--tensorboard needs TensorBoard. Install the extra: fedrecgel[report].") from error

    def watch(self, line: dict[str, Any]) -> None:
        """Add a finished round."""
        from torch.utils.tensorboard.writer import SummaryWriter

        if self.writer is None:
            # A resumed run repeats rounds; TensorBoard drops events of later rounds that an older file holds.
            self.writer = SummaryWriter(str(self.folder), purge_step=line["round"])
        for name, value in line.items():
            if isinstance(value, dict):
                for inner, number in value.items():
                    self._add(f"{name}/{inner}", number, line["round"])
            elif name != "round":
                self._add(_tag(name), value, line["round"])

    def _add(self, tag: str, value: float | None, number: int) -> None:
        if self.writer is not None and value is not None:  # a method may have no loss
            self.writer.add_scalar(tag, value, number)

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *error: object) -> None:
        if self.writer is not None:
            self.writer.close()


def _tag(name: str) -> str:
    """Groups for TensorBoard's page."""
    if is_metric(name):
        return f"test/{name}"
    for group in ("seconds", "bytes"):
        if name.startswith(group):
            return f"{group}/{name.removeprefix(group + '_')}"
    return f"train/{name}"
