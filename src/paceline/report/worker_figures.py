"""Draws a number against the number of workers, with one line per scheme and kind."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from paceline.analysis.configuration import groups
from paceline.analysis.tables import Frame, Row
from paceline.report.diverged_band import diverged_band
from paceline.report.facets import Panel, grid, label_left, legend_below
from paceline.report.figure_style import LINES, percent_ticks, scheme_style, thousands

_WIDER = 1.3  # factor by which the axis extends beyond each end
MANY = 16  # a linear axis hides small numbers beside such large ones


@dataclass(frozen=True)
class Series:
    """Number to draw against workers.

    `table` has the columns `<name>_mean`, `_low` and `_high`; `points` has one row per seed with
    the column `point`. `guide` returns perfect scaling at x workers. `censored` is a column of
    `points` that is drawn as a hollow marker if `point` is missing. With `lost`, the numbers of
    diverged seeds are drawn below the lines; each panel then has a vertical axis of its own,
    because a wide one would hide the differences in the other panels.
    """

    name: str
    label: str
    table: Frame
    points: Frame
    point: str
    percent: bool = False
    from_zero: bool = True
    guide: Callable[[np.ndarray], np.ndarray] | None = None
    censored: str | None = None
    lost: bool = False


def draw(series: Series, shown: list[Panel], schemes: list[str]) -> Figure:
    """Draw `series` in the panels `shown`; colours follow the order of `schemes`."""
    figure, axes = grid(shown, 2.9, sharey=not series.lost)
    counts = sorted(set(series.table["workers"]) | ({1} if series.guide else set()))
    for axis, panel in zip(axes, shown, strict=True):
        _lines(axis, series, panel, schemes, math.log2(_WIDER**2 * counts[-1] / counts[0]))
        workers_axis(axis, counts)
        if series.guide:
            ends = np.array([counts[0], counts[-1]], dtype=float)
            steps = np.geomspace(ends[0], ends[1], 30)
            axis.plot(steps, series.guide(steps), color="#999999", lw=0.9, label="perfect scaling")
        axis.yaxis.set_major_formatter(
            percent_ticks() if series.percent else FuncFormatter(thousands)
        )
    log = series.from_zero and not series.percent and counts[-1] >= MANY
    if log:
        axes[0].set_yscale("log")
    elif series.from_zero:
        # set after all panels are drawn, since they share it; a marker at the top must not be cut
        axes[0].set_ylim(0, 1.04 * axes[0].get_ylim()[1])
    for axis, panel in zip(axes, shown, strict=True) if series.lost else ():
        diverged_band(axis, panel.of(series.table), schemes)
    label_left(axes, f"{series.label} (log)" if log else series.label)
    legend_below(figure, axes, columns=3)
    return figure


def _lines(axis: Axes, series: Series, panel: Panel, schemes: list[str], doublings: float) -> None:
    """Draw the lines of a panel; `doublings` is the length of its axis in doublings of workers."""
    drawn = groups(panel.of(series.table), ["scheme", "kind"])
    step = min(0.14, min(0.6, 0.08 * doublings) / max(1, len(drawn)))
    for index, (name, rows) in enumerate(drawn):
        colour, marker = scheme_style(name["scheme"], schemes)
        rows = rows.sort_values("workers")
        dodge = 2 ** (step * (index - (len(drawn) - 1) / 2))  # intervals side by side, not stacked
        mean = rows[f"{series.name}_mean"].to_numpy(float)
        low, high = (rows[f"{series.name}_{end}"].to_numpy(float) for end in ("low", "high"))
        if series.lost:  # a share: wider intervals would flatten the lines
            low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
        label = f"{name['scheme']} ({name['kind']})"
        line = LINES.get(name["kind"], "-")
        axis.errorbar(
            rows["workers"] * dodge,
            mean,
            np.nan_to_num([mean - low, high - mean]),
            fmt=marker + line,
            color=colour,
            capsize=4,
            markersize=5,
            label=label,
        )
        _seeds(axis, series, panel, name, (colour, marker, dodge, 2 ** (0.4 * step)))


def _seeds(
    axis: Axes, series: Series, panel: Panel, name: Row, style: tuple[str, str, float, float]
) -> None:
    colour, marker, dodge, shift = style
    points = panel.of(series.points)
    points = points[(points["scheme"] == name["scheme"]) & (points["kind"] == name["kind"])]
    positions = points["workers"] * dodge * shift
    axis.scatter(
        positions, points[series.point], s=16, c=colour, marker=marker, alpha=0.45, linewidths=0
    )
    if series.censored:
        late = points[points[series.point].isna()]
        axis.scatter(
            late["workers"] * dodge,
            late[series.censored],
            s=45,
            marker="^",
            facecolors="none",
            edgecolors=colour,
            label="stopped before the target (at its end)" if len(late) else None,
        )


def workers_axis(axis: Axes, counts: list[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xticks([], minor=True)
    axis.set_xlim(counts[0] / _WIDER, counts[-1] * _WIDER)
    axis.set_xlabel("workers")
