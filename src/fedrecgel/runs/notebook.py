"""What a notebook shows of a run: its history as a data frame, as a figure, and a short table instead of a `repr`."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedrecgel.errors import ConfigError
from fedrecgel.evaluation.metrics import is_metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedrecgel.runs.result import Result


def history_columns(history: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """One column for each number of a round; where a round was not evaluated, not a number."""
    flat = []
    for line in history:
        plain = {key: value for key, value in line.items() if not isinstance(value, Mapping)}
        plain |= {f"validation {key}": value for key, value in line.get("validation", {}).items()}
        flat.append(plain)
    names = dict.fromkeys(name for line in flat for name in line)
    return {name: [math.nan if line.get(name) is None else line[name] for line in flat] for name in names}


def history_frame(history: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas data frame, or one of polars where pandas is missing.

    Raises:
        ConfigError: neither is installed.
    """
    columns = history_columns(history)
    try:
        import pandas as pd
    except ImportError:
        try:
            import polars as pl
        except ImportError as error:
            raise ConfigError("A data frame needs pandas or polars. Install one, or read `result.history`.") from error
        return pl.DataFrame(columns, strict=False)
    return pd.DataFrame(columns)


def plot(result: Result, metric: str) -> Figure:
    """The metric over rounds beside popularity, and the loss.

    Raises:
        ConfigError: matplotlib is missing, or the metric was not measured.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("A plot needs matplotlib. Install it with the extra 'report'.") from error

    class Shown(Figure):
        """A figure that notebooks show without pyplot."""

        def _repr_png_(self) -> bytes:
            memory = io.BytesIO()
            self.savefig(memory, format="png", dpi=110)
            return memory.getvalue()

    measured = [line for line in result.history if metric in line]
    if not measured:
        known = ", ".join(result.metrics) or "nothing"
        raise ConfigError(f"There is no '{metric}' in the history of this run. Measured: {known}.")
    figure = Shown(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([line["round"] for line in measured], [100 * line[metric] for line in measured], marker="o", markersize=3)
    for name, values in result.reference.items():
        left.axhline(100 * values[metric], linestyle="--", color="grey")
        left.annotate(name, (measured[0]["round"], 100 * values[metric]), color="grey", va="bottom")
    left.set(xlabel="round", ylabel=f"{metric}, %", title=f"{result.summary['method']} on {result.summary['dataset']}")
    losses = [line for line in result.history if line["loss"] is not None]
    right.plot([line["round"] for line in losses], [line["loss"] for line in losses])
    right.set(xlabel="round", ylabel="training loss")
    return figure


def as_html(result: Result) -> str:
    """Both rankings beside popularity, in percent."""
    said = result.summary
    names = list(result.metrics)
    title = f"{said['method']} on {said['dataset']}, seed {said['seed']}, {said['rounds']} rounds"
    if not names:
        return f"<b>{escape(title)}</b>: a final model, nothing measured"
    blocks = [("among candidates", result.reference, result.metrics)]
    if result.metrics_full:
        blocks.append(("among all items", said["reference_full"], result.metrics_full))
    rows = []
    for words, reference, own in blocks:
        for name, values in [*reference.items(), (said["method"], own)]:
            cells = "".join(f"<td>{100 * values[metric]:.2f}</td>" for metric in names)
            rows.append(f"<tr><th>{escape(name)}, {words}</th>{cells}</tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    warned = "".join(f"<li>{escape(text)}</li>" for text in said.get("warnings", []))
    return f"<b>{escape(title)}</b>{table}" + (f"<ul>{warned}</ul>" if warned else "")


def measured_at(line: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a round's line."""
    return {name: value for name, value in line.items() if is_metric(name)}
