"""Draws the course of runs: curves, staleness and phases."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from paceline.analysis.configuration import groups
from paceline.analysis.phase_seconds import ALL, ends_of_scale
from paceline.analysis.tables import Frame
from paceline.report.facets import Panel, grid, label_left, legend_below
from paceline.report.figure_style import COLOURS, percent_ticks, scheme_style
from paceline.report.findings import StudyFindings
from paceline.report.worker_figures import MANY

PHASES = {"seconds_data": "data", "seconds_compute": "compute", "seconds_communicate": "exchange"}
_PHASE_COLOURS = dict(zip(PHASES, (COLOURS[4], COLOURS[5], "#444444"), strict=True))
_HATCHES = {"paced": "//", "virtual": ".."}
_X_LABELS = {"samples": "samples over all workers", "seconds": "seconds"}
_MOST_BINS = 24
_BODY = 0.995  # share of the pushes; a rare late one would squeeze all others


def curves(findings: StudyFindings, shown: list[Panel], schemes: list[str], x: str) -> Figure:
    """Draw validation top-1 against `x`, "samples" or "seconds", with one line per run."""
    trained = findings.points[findings.points["status"] != "failed"]
    runs = ends_of_scale(findings.tables, trained).sort_values("workers", kind="stable")
    several = runs["kind"].nunique() > 1
    figure, axes = grid(shown, 2.9)
    asked = findings.tables.about["target"]
    of_top1 = not asked or asked["metric"] == "top1"
    log = x == "seconds" and _far_apart(runs["seconds"].dropna())
    for axis, panel in zip(axes, shown, strict=True):
        for _, run in panel.of(runs).iterrows():
            curve = findings.tables.curves[findings.tables.curves["key"] == run["key"]]
            colour, _ = scheme_style(run["scheme"], schemes)
            line = "-" if run["most"] else "--"
            count = f"{run['workers']} worker{'s' if run['workers'] > 1 else ''}"
            label = f"{run['scheme']}, {count} ({run['kind']})"
            wide = several and run["kind"] == "virtual"
            width, alpha = (3.5, 0.3) if wide else (1.2, 0.75)
            axis.plot(
                curve[x],
                curve["top1"],
                line,
                color=colour,
                lw=width,
                alpha=alpha,
                label=label,
            )
        for target in panel_targets(panel.of(runs)) if of_top1 else ():
            axis.axhline(target, color="#888888", lw=1, ls=":", label="target")
        axis.set_xlabel(_X_LABELS[x] + (" (log)" if log else ""))
        if log:
            axis.set_xscale("log")
        else:
            axis.xaxis.set_major_locator(MaxNLocator(5))
            axis.set_xlim(left=0)
        axis.xaxis.set_major_formatter(FuncFormatter(_short))
        axis.yaxis.set_major_formatter(percent_ticks())
    label_left(axes, "top-1, validation")
    legend_below(figure, axes)
    return figure


def panel_targets(points: Frame) -> list[float]:
    """Return the distinct targets of `points`, in ascending order."""
    return sorted(set(points["target"].dropna()))


def staleness(findings: StudyFindings, shown: list[Panel], schemes: list[str]) -> Figure | None:
    """Draw the share of pushes by staleness at the most workers, over all seeds together.

    Returns None if no scheme has a server.
    """
    runs = ends_of_scale(findings.tables, findings.tables.finished)
    pushes = findings.tables.staleness.merge(runs[runs["most"]], on="key")
    if pushes.empty:
        return None
    figure, axes = grid(shown, 2.6)
    for axis, panel in zip(axes, shown, strict=True):
        own = panel.of(pushes)
        edges = _bins(own if len(own) else pushes)
        drawn = groups(own, ["scheme", "kind"])
        for index, (name, rows) in enumerate(drawn):
            heights, _ = np.histogram(
                rows["staleness"].clip(upper=edges[-1]), edges, weights=rows["pushes"]
            )
            width = 0.8 * (edges[1] - edges[0]) / len(drawn)
            left = (edges[:-1] + edges[1:]) / 2 + (index - (len(drawn) - 1) / 2) * width
            colour, _ = scheme_style(name["scheme"], schemes)
            label = f"{name['scheme']}, {rows['workers'].iloc[0]} workers ({name['kind']})"
            hatch = _HATCHES.get(name["kind"])
            shares = heights / heights.sum()
            axis.bar(left, shares, width, color=colour, hatch=hatch, ec="white", label=label)
        axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axis.yaxis.set_major_formatter(percent_ticks())
        axis.set_xlabel("staleness (updates)")
    label_left(axes, "share of pushes")
    legend_below(figure, axes)
    return figure


def phases(findings: StudyFindings, shown: list[Panel]) -> Figure | None:
    """Draw the seconds of each phase per worker as stacked bars, mean over seeds.

    Bars show shares if the longest is MANY times the shortest. Returns None if nothing was
    recorded.
    """
    table = findings.concluded["phase_seconds"]
    bars = [(panel, _bars(panel.of(table))) for panel in shown]
    longest = max(len(rows) for _, rows in bars)
    if not longest:
        return None
    share = _far_apart(pd.concat([rows for _, rows in bars if len(rows)]).sum(axis=1))
    equal_labels = len({tuple(rows.index) for _, rows in bars}) == 1
    figure, axes = grid(shown, 0.7 + 0.3 * longest, sharey=False, stacked=not equal_labels)
    for axis, (_, rows) in zip(axes, bars, strict=True):
        _stack(axis, rows.div(rows.sum(axis=1), axis=0) if share else rows)
        axis.set_xlabel("share of the worker's seconds" if share else "seconds")
        if share:
            axis.xaxis.set_major_formatter(percent_ticks())
    for axis in axes:
        spec = axis.get_subplotspec()
        if spec is not None and not spec.is_first_col():
            axis.tick_params(labelleft=False)
    legend_below(figure, axes, columns=3)
    return figure


def _bars(table: Frame) -> Frame:
    """Return the seconds of each phase as columns, indexed by the label of the bar."""
    kinds = len(set(table["kind"]))
    labels = [_label(row, kinds) for _, row in table.iterrows()]
    return table[list(PHASES)].set_axis(labels)


def _label(row: Frame, kinds: int) -> str:
    many = row["worker"] == ALL
    subject = f"mean of {row['workers']}" if many else f"worker {row['worker']} of {row['workers']}"
    kind = "" if kinds == 1 else f" ({row['kind']})"
    return f"{row['scheme']}{kind}, {subject}"


def _stack(axis: Axes, rows: Frame) -> None:
    left = np.zeros(len(rows))
    for column, label in PHASES.items():
        widths = rows[column].to_numpy(float) if len(rows) else left
        axis.barh(rows.index, widths, 0.7, left, color=_PHASE_COLOURS[column], label=label)
        left = left + widths
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)


def _far_apart(seconds: Frame) -> bool:
    """Return True if the shortest would be invisible beside the longest on a linear axis."""
    seconds = seconds[seconds > 0]
    return bool(len(seconds) and seconds.max() >= MANY * seconds.min())


def _bins(pushes: Frame) -> np.ndarray:
    """Return the edges of the bars [updates]; the last bar includes all larger staleness."""
    counts = pushes.groupby("staleness")["pushes"].sum().sort_index()
    body = counts.cumsum() <= _BODY * counts.sum()
    largest = min(int(counts.index.max()), int(body.sum() and counts.index[body].max()) + 2)
    width = -(-(largest + 1) // _MOST_BINS)
    return np.arange(-0.5, largest + width + 0.5, width)


def _short(value: float, _position: int) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= 10 * size or (value >= size and value % (size / 10) == 0):
            return f"{value / size:g} {unit}"
    return f"{value:g}"
