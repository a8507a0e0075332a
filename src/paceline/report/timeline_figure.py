"""Draws the times at which each worker computed, communicated and waited."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from paceline.analysis.configuration import groups
from paceline.analysis.tables import Frame
from paceline.report.facets import legend_below
from paceline.report.figure_style import COLOURS
from paceline.report.findings import StudyFindings
from paceline.report.number_format import plural, setting

# in drawing order: one server's message may be on its way while another's still waits
PHASES = {"wait": "#dddddd", "compute": COLOURS[5], "communicate": "#444444"}
_LABELS = {"wait": "wait", "compute": "compute", "communicate": "exchange"}
_MOST_PANELS = 4
_MOST_SPANS = 400  # most spans of a panel; more make the page heavy and are too thin to see


def timeline(findings: StudyFindings) -> Figure | None:
    """Draw a panel per chosen point, with a row per worker, on a common time axis.

    Returns None if the study has no timeline.
    """
    runs = chosen(findings)
    if runs.empty:
        return None
    spans = [_spans(findings, key) for key in runs["key"]]
    end = min(_end(rows) for rows in spans)
    heights = [0.5 + 0.17 * count for count in runs["workers"]]
    figure, axes = plt.subplots(
        len(spans),
        figsize=(10, sum(heights) + 0.6),
        height_ratios=heights,
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, rows, (_, run) in zip(axes.flat, spans, runs.iterrows(), strict=True):
        parts = [f"{name} {setting(run[name])}" for name in findings.varying]
        count = plural(int(run["workers"]), "worker")
        axis.set_title(f"{', '.join([run['scheme'], count, *parts])} ({run['kind']})")
        _draw(axis, rows[rows["start"] < end], int(run["workers"]))
    axes.flat[0].set_xlim(0, end)
    axes.flat[-1].set_xlabel("seconds of the training clock")
    legend_below(figure, list(axes.flat), columns=len(PHASES))
    return figure


def chosen(findings: StudyFindings) -> Frame:
    """Select the points to draw, at most _MOST_PANELS.

    They are, for each scheme, kind and setting, the first seed at the most workers of the scheme;
    each scheme gets one point before any gets a second.
    """
    runs = findings.tables.runs
    runs = runs[runs["key"].isin(set(findings.tables.timeline["key"]))]
    if runs.empty:
        return runs
    runs = runs[runs["workers"] == runs.groupby("scheme")["workers"].transform("max")]
    names = ["scheme", "kind", *findings.varying]
    firsts = [rows.sort_values("seed").iloc[:1].index[0] for _, rows in groups(runs, names)]
    runs = runs.loc[firsts]
    order = runs.groupby("scheme").cumcount().sort_values(kind="stable").index[:_MOST_PANELS]
    return runs[runs.index.isin(order)]


def _spans(findings: StudyFindings, key: str) -> Frame:
    rows = findings.tables.timeline
    return rows[rows["key"] == key].sort_values("start", kind="stable")


def _end(rows: Frame) -> float:
    """Return the time up to which the spans of one point can be drawn [seconds]."""
    cut = rows["start"].iloc[_MOST_SPANS] if len(rows) > _MOST_SPANS else np.inf
    return float(min(rows["end"].max(), cut))


def _draw(axis: Axes, rows: Frame, workers: int) -> None:
    for phase, colour in PHASES.items():
        own = rows[rows["phase"] == phase]
        outline = [
            _box(*span) for span in zip(own["start"], own["end"], own["worker"], strict=True)
        ]
        if outline:
            path = Path.make_compound_path(*outline)
            label = _LABELS[phase]
            axis.add_patch(PathPatch(path, facecolor=colour, edgecolor="none", label=label))
    axis.set_ylim(workers - 0.5, -0.5)
    axis.yaxis.set_major_locator(MaxNLocator(min(workers, 8), integer=True))
    axis.set_ylabel("worker")
    axis.grid(visible=False)


def _box(start: float, end: float, worker: float) -> Path:
    """Return a closed rectangle in the row of `worker`."""
    low, high = worker - 0.4, worker + 0.4
    corners = [(start, low), (end, low), (end, high), (start, high), (start, low)]
    return Path(corners, closed=True)
