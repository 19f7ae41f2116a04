"""The tables of the landscape experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedrecgel.report.table import Entry, Table
from fedrecgel.studies.landscape import Landscape, Measured
from fedrecgel.theory.flatness import Flatness, Rise


def landscape_tables(document: Landscape) -> list[Table]:
    """For each normalisation the average loss at a distance; for each setting flatness in numbers."""
    tables = [
        _average_loss(document, group, [item for item in document.measured if item.group == group])
        for group in dict.fromkeys(item.group for item in document.measured)
    ]
    for dataset, setting in dict.fromkeys((item.dataset, item.setting) for item in document.measured):
        items = [item for item in document.measured if (item.dataset, item.setting) == (dataset, setting)]
        once = {(item.method, item.seed): item for item in reversed(items)}  # the same numbers in each normalisation
        tables.append(_flatness(document, dataset, setting, list(once.values())[::-1]))
    return tables


def _average_loss(document: Landscape, group: tuple[str, str, str], items: Sequence[Measured]) -> Table:
    dataset, setting, normalisation = group
    drawn = [item for item in items if item.flatness.surfaces]
    lines = []
    for item in drawn:
        quoted = document.published_average.get(dataset, {}).get(item.method, {})
        cells = [
            Entry(
                "∞" if found.average is None else f"{found.average:.4f}",
                found.average,
                note=f"paper {quoted[key]}" if (key := f"{found.magnitude:g}") in quoted else "",
                hint=item.file,
            )
            for found in item.flatness.surfaces
        ]
        lines.append([Entry(item.method), Entry(f"{item.flatness.loss:.4f}", item.flatness.loss), *cells])
    magnitudes = [f"{found.magnitude:g}" for found in drawn[0].flatness.surfaces] if drawn else []
    settings = items[0].flatness.settings
    notes = [
        f"Mean training loss on a {settings.grid} × {settings.grid} grid over [-m, m]² along two random directions "
        f"({normalisation} normalisation) in the space of shared tensors; {settings.clients} clients, seed "
        f"{items[0].seed}.",
        "The published magnitudes name neither directions nor normalisation: orders of magnitude, not a target.",
    ]
    title = f"{dataset}, {setting} settings, {normalisation} normalisation: average loss at a distance"
    columns = ["method", "at the model", *magnitudes]
    return Table("-".join(("loss", *group)), title, columns, lines, notes, document.command)


def _flatness(document: Landscape, dataset: str, setting: str, items: Sequence[Measured]) -> Table:
    radii = [rise.radius for rise in items[0].flatness.rises]
    shown = [radius for radius in radii if radius in (0.02, 0.1, 1.0)]
    lines = []
    for method in dict.fromkeys(item.method for item in items):
        of_method = [item.flatness for item in items if item.method == method]
        lines.append(
            [
                Entry(method, hint=", ".join(item.folder for item in items if item.method == method)),
                _mean_entry(found.loss for found in of_method),
                _mean_entry(found.eigenvalue for found in of_method),
                *(_mean_entry(_rise(found, radius).mean for found in of_method) for radius in shown),
                *(_mean_entry(_rise(found, radius).worst for found in of_method) for radius in shown),
                Entry(str(len(of_method)), len(of_method)),
            ]
        )
    columns = ["method", "loss", "top Hessian eigenvalue λ"]
    columns += [f"expected rise, ρ = {radius:g}" for radius in shown]
    columns += [f"worst rise, ρ = {radius:g}" for radius in shown]
    notes = [
        "Mean ± standard deviation over seeds, all over the shared tensors. λ by power iteration on exact "
        "Hessian-vector products; expected rise over random unit directions; worst rise along the gradient, as SAM "
        "looks for it.",
    ]
    title = f"{dataset}, {setting} settings: flatness in numbers"
    return Table(f"flatness-{dataset}-{setting}", title, [*columns, "seeds"], lines, notes, document.command)


def _rise(found: Flatness, radius: float) -> Rise:
    return next(rise for rise in found.rises if rise.radius == radius)


def _mean_entry(values: Iterable[float]) -> Entry:
    found = list(values)
    mean = sum(found) / len(found)
    if len(found) == 1:
        return Entry(f"{mean:.3g}", mean)
    sd = (sum((value - mean) ** 2 for value in found) / (len(found) - 1)) ** 0.5
    return Entry(f"{mean:.3g} ± {sd:.1g}", mean)
