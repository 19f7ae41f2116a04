"""The table a run ends with: the method beside popularity, where it was measured, in percent."""

from __future__ import annotations

from typing import Any

from fedrecgel.runs.result import Result


def result_table(result: Result) -> str:
    """Both rankings, the protocol in a line, the cost in a line, and what else a reader should know."""
    summary = result.summary
    protocol, data, seconds = summary["protocol"], summary["data"], summary["seconds"]
    names = list(summary["metrics"])
    method = f"{summary['method']}{_marks(summary)}"
    width = max(24, len(method) + 4)
    header = " " * width + "".join(f"{name:>{_width(name)}}" for name in names)
    lines = [header if names else f"{method}: a final model"]
    blocks = [(f"among {protocol['candidates']} candidates", summary["reference"], summary["metrics"])]
    if summary["metrics_full"] is not None:
        some = summary.get("metrics_full_users")
        title = "whole catalogue" if some is None else f"whole catalogue, {some:,} users drawn at random"
        blocks.append((title, summary["reference_full"], summary["metrics_full"]))
    for title, reference, found in blocks if names else []:
        lines.append(title)
        rows = [*reference.items(), (method, found)]
        lines += [_row(f"  {name}", width, names, values) for name, values in rows]
    lines += _coverage(method, width, summary)
    lines.append(
        f"\n{summary['dataset']}: {data['users']:,} users, {data['items']:,} items, "
        f"{data['interactions']:,} interactions; seed {summary['seed']}; "
        f"round {protocol['selected_round']} of {summary['rounds']} ({protocol['selection']})\n"
        f"held out: {protocol['ties'] if names else 'nothing'}; split {protocol['fingerprint'][:12]}"
    )
    clients = sum(line["clients"] for line in result.history)
    up, down = (_megabytes(summary["bytes"][way] / clients / 1e6) for way in ("up", "down"))
    lines.append(
        f"{seconds['train']:.1f} s training, {seconds['evaluate']:.1f} s evaluation; per client and round "
        f"{up} MB up, {down} MB down"
    )
    lines += summary.get("warnings", [])  # an earlier version wrote none
    return "\n".join(lines)


def _megabytes(number: float) -> str:
    """Nodes send one sum for many clients: little for each, but not nothing."""
    return f"{number:.2f}" if number >= 0.01 or number == 0 else f"{number:.1g}"


def _coverage(method: str, width: int, summary: dict[str, Any]) -> list[str]:
    """Which share of the catalogue the lists of all users show together."""
    if not summary.get("coverage"):  # an earlier version wrote none, nodes have none
        return []
    names = list(summary["coverage"])
    rows = [*summary["reference_coverage"].items(), (method, summary["coverage"])]
    head = f"{'share of the catalogue':<{width}}" + "".join(f"{name:>{_width(name)}}" for name in names)
    return [head, *(_row(f"  {name}", width, names, values) for name, values in rows)]


def _marks(summary: dict[str, Any]) -> str:
    """Whatever makes a number less comparable stands beside the name."""
    marks = [summary["variant"]] if summary["variant"] else []
    if summary["protocol"]["selection"] == "test":
        marks.append("selected on test")
    if summary["protocol"]["negatives"].startswith("leaky"):
        marks.append("leaky negatives")
    return f" ({', '.join(marks)})" if marks else ""


def _row(title: str, width: int, names: list[str], values: dict[str, float]) -> str:
    return f"{title:<{width}}" + "".join(f"{100 * values[name]:>{_width(name)}.2f}" for name in names)


def _width(name: str) -> int:
    return max(9, len(name) + 2)
