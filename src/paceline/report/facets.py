"""Arranges figures as small multiples: one panel per setting of the varying axes."""

import textwrap
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from paceline.analysis.configuration import groups, matching
from paceline.analysis.tables import Frame, Row
from paceline.report.findings import StudyFindings
from paceline.report.number_format import setting

MOST_PANELS = 12

_TITLE = 110  # characters of a title as wide as the figure


@dataclass(frozen=True)
class Panel:
    """Panel of a figure. `axis_values` maps each varying axis to the value that the panel shows.

    It is empty if only scheme, workers and seed vary.
    """

    axis_values: Row

    @property
    def title(self) -> str:
        """Return the setting in words."""
        return ", ".join(f"{name} {setting(value)}" for name, value in self.axis_values.items())

    def of(self, table: Frame) -> Frame:
        """Select the rows of `table` that the panel shows."""
        return matching(table, self.axis_values)


def panels(findings: StudyFindings) -> list[Panel]:
    """Return a panel per setting, sorted by batch size and then in the order of the study."""
    varying = findings.varying
    if not varying:
        return [Panel({})]
    ordered = findings.tables.runs.sort_values(findings.tables.facets[0], kind="stable")
    return [Panel(axis_values) for axis_values, _ in groups(ordered, varying)]


def grid(
    shown: list[Panel], height: float, *, sharey: bool = True, stacked: bool = False
) -> tuple[Figure, list[Axes]]:
    """Make a figure with titled axes for the panels `shown`.

    `height` is that of one panel [inches]. `stacked` panels are all in one column.
    """
    columns = len(shown) if len(shown) <= 3 else (2 if len(shown) == 4 else 3)
    columns = 1 if stacked else columns
    rows = -(-len(shown) // columns)
    width = 10.0 if columns < 3 else 10.8  # a legend of three columns fits
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(width, rows * height + 0.5),
        sharex=False,
        sharey=sharey,
        squeeze=False,
        layout="constrained",
    )
    used = axes.flat[: len(shown)]
    for spare in axes.flat[len(shown) :]:
        spare.set_visible(False)
    for axis, panel in zip(used, shown, strict=True):
        axis.set_title(textwrap.fill(panel.title, _TITLE // columns))
    return figure, list(used)


def label_left(axes: list[Axes], text: str) -> None:
    """Label the vertical axes of the panels in the first column."""
    for axis in axes:
        spec = axis.get_subplotspec()
        if spec is None or spec.is_first_col():
            axis.set_ylabel(text)


def legend_below(figure: Figure, axes: list[Axes], columns: int = 2) -> None:
    """Draw one legend for all panels, with each entry once."""
    entries: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    # means first, then guides
    guides = {name: not isinstance(entry, ErrorbarContainer) for name, entry in entries.items()}
    entries = {name: entries[name] for name in sorted(entries, key=guides.__getitem__)}
    if entries:
        columns = 2 if len(entries) == 4 else columns
        more = (
            -(-len(entries) // columns) - 2
        )  # lines for which the figure grows, so that panels keep their size
        figure.set_figheight(figure.get_figheight() + 0.2 * max(0, more))
        figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns)
