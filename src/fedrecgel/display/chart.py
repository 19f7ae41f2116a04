"""What a chart shows, in the units it is shown in: the page's script and matplotlib draw the same values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar, Literal

from fedrecgel.display.text import slugs


@dataclass(frozen=True)
class BandLine:
    """A line of means, and the band around it."""

    label: str
    colour: int | None
    """Of the palette; None for a reference."""
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """Lines over common axes."""

    left: str
    """Of the vertical axis."""
    lines: Sequence[BandLine]
    popularity: float | None = None
    """A dashed line at this height."""
    digits: int = 2


@dataclass(frozen=True)
class Curves:
    """Lines with bands: panels side by side on paper, behind a switch on the page."""

    kind: ClassVar[str] = "curves"

    bottom: str
    """Of the horizontal axis."""
    panels: Mapping[str, Panel]
    """By what they show."""
    logarithmic: bool = False
    """Whether the horizontal axis is."""


@dataclass(frozen=True)
class StepLine:
    """A line over the steps of a grid."""

    name: str
    mean: Sequence[float]
    colour: int | None
    """Of the palette; None for a reference."""
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    right: bool = False
    """Dashed, and read on the right axis."""
    popularity: float | None = None
    """A dotted line at this height."""


@dataclass(frozen=True)
class Steps:
    """Lines over the values of a grid, evenly spaced, on one vertical axis or two."""

    kind: ClassVar[str] = "steps"

    label: str
    """What it shows, for readers who do not see it."""
    bottom: str
    values: Sequence[float | str]
    left: str
    lines: Sequence[StepLine]
    right: str | None = None
    digits: int = 2


@dataclass(frozen=True)
class Difference:
    """A line of a forest plot, in points."""

    name: str
    difference: float
    low: float
    high: float
    sign: int
    """Of a difference that a test calls real; else 0."""
    details: Sequence[tuple[str, str]]
    """Shown on hover."""


@dataclass(frozen=True)
class Differences:
    """A forest plot: differences with intervals, for one metric at a time."""

    kind: ClassVar[str] = "differences"

    label: str
    """What it shows, for readers who do not see it; {metric} stands for the metric."""
    bottom: str
    """Of the horizontal axis; {metric} stands for the metric."""
    left_side: str
    right_side: str
    metrics: Mapping[str, Sequence[Difference]]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of the axis for each metric; filled in."""

    def __post_init__(self) -> None:
        """Find ranges in which all lines can be seen."""
        found = {metric: shown_range(lines, 0.0) for metric, lines in self.metrics.items() if lines}
        object.__setattr__(self, "ranges", found)


@dataclass(frozen=True)
class Level(Difference):
    """How far one method gets: its difference from nothing, in percent, with its interval if it has one."""

    kind: str
    """federated, centralised or reference."""
    colour: int | None


@dataclass(frozen=True)
class Levels:
    """Every method beside popularity, a panel for each ranking."""

    kind: ClassVar[str] = "levels"

    label: str
    bottom: str
    panels: Mapping[str, Sequence[Level]]
    """By what is ranked against."""
    popularity: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find ranges in which all lines can be seen."""
        found = {name: shown_range(lines, self.popularity[name]) for name, lines in self.panels.items()}
        object.__setattr__(self, "ranges", found)


WIDE_INTERVAL = 4
"""An interval so many times as wide as the median one is cut off, so that the others can be seen."""


def shown_range(lines: Sequence[Difference], origin: float) -> tuple[float, float]:
    """What an axis shows: the origin, every middle, and all intervals but those that would dwarf the rest."""
    widths = [line.high - line.low for line in lines]
    usual = median([width for width in widths if width > 0] or [0.0])
    seen = [origin, *(line.difference for line in lines)]
    for line, width in zip(lines, widths, strict=True):
        if width <= WIDE_INTERVAL * usual:
            seen += [line.low, line.high]
        else:
            seen += [max(line.low, line.difference - usual), min(line.high, line.difference + usual)]
    low, high = min(seen), max(seen)
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


@dataclass(frozen=True)
class ModelSurfaces:
    """The loss around one model."""

    method: str
    loss: float
    """At the model."""
    surfaces: Sequence[Sequence[Sequence[float | None]]]
    """A square grid for every magnitude; None where it is not finite."""


@dataclass(frozen=True)
class Surfaces:
    """Surfaces of several models, each at every magnitude."""

    kind: ClassVar[str] = "surfaces"

    magnitudes: Sequence[float]
    models: Sequence[ModelSurfaces]


@dataclass(frozen=True)
class Contours(Surfaces):
    """Surfaces seen from above; on the page these stand below the surfaces."""

    kind: ClassVar[str] = "contours"


@dataclass(frozen=True)
class Traffic:
    """Bars of megabytes up and down."""

    kind: ClassVar[str] = "traffic"

    rows: Sequence[Mapping[str, object]]
    """Each with name, up and down."""


@dataclass(frozen=True)
class Chart:
    """A figure with its name."""

    name: str
    """For file names and the page."""
    title: str
    content: Curves | Steps | Differences | Levels | Surfaces | Traffic
    command: str
    """What makes it."""
    above: str = ""
    """On the page it stands above the table of this name, or above all."""
    where: Literal["page and paper", "page", "paper"] = "page and paper"


def by_file(charts: Iterable[Chart]) -> dict[str, Chart]:
    """These charts by the names of their files, without suffix."""
    listed = list(charts)
    return dict(zip(slugs(chart.name for chart in listed), listed, strict=True))
