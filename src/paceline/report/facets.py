"""Small multiples: one panel per batch size and value of the further axes."""

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


@dataclass(frozen=True)
class Panel:
    """`where`: axis -> value, empty where nothing but scheme, workers and seed varies."""

    where: Row

    @property
    def title(self) -> str:
        return ", ".join(f"{name} {setting(value)}" for name, value in self.where.items())

    def of(self, table: Frame) -> Frame:
        return matching(table, self.where)


def panels(findings: StudyFindings) -> list[Panel]:
    """In order of the batch size, then of the study."""
    varying = findings.varying
    if not varying:
        return [Panel({})]
    ordered = findings.tables.runs.sort_values("batch_size", kind="stable")
    return [Panel(where) for where, _ in groups(ordered, varying)]


def grid(
    shown: list[Panel], height: float, *, sharey: bool = True, stacked: bool = False
) -> tuple[Figure, list[Axes]]:
    """`height`: of one panel, in inches. `stacked`: one below the other."""
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
        axis.set_title(panel.title)
    return figure, list(used)


def label_left(axes: list[Axes], text: str) -> None:
    for axis in axes:
        spec = axis.get_subplotspec()
        if spec is None or spec.is_first_col():
            axis.set_ylabel(text)


def legend_below(figure: Figure, axes: list[Axes], columns: int = 2) -> None:
    """One legend for all panels, each entry once."""
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
        more = -(-len(entries) // columns) - 2  # lines that the panels must not pay for
        figure.set_figheight(figure.get_figheight() + 0.2 * max(0, more))
        figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns)
