"""Draws predicted images/s against those of real processes."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from paceline.analysis.configuration import groups
from paceline.analysis.predicted import NEAR
from paceline.report.facets import Panel, grid, label_left, legend_below
from paceline.report.figure_style import scheme_style, thousands
from paceline.report.findings import StudyFindings

_WIDER = 1.15  # factor by which the axes extend beyond each end


def prediction(findings: StudyFindings, shown: list[Panel], schemes: list[str]) -> Figure:
    """Draw a marker for each configuration, with its number of workers beside it."""
    table = findings.concluded["predicted"]
    shown = [panel for panel in shown if len(panel.of(table))]
    figure, axes = grid(shown, 3.2, sharey=False)
    for axis, panel in zip(axes, shown, strict=True):
        rows = panel.of(table)
        rates = rows[["observed", "predicted"]].to_numpy(float)
        ends = np.array([rates.min() / _WIDER, rates.max() * _WIDER])
        near = max(NEAR[kind] for kind in rows["kind"])
        axis.fill_between(ends, (1 - near) * ends, (1 + near) * ends, color="#eeeeee", lw=0)
        axis.plot(ends, ends, color="#999999", lw=0.9, label="predicted = observed")
        for name, each in groups(rows, ["scheme"]):
            colour, marker = scheme_style(name["scheme"], schemes)
            points = (each["observed"], each["predicted"])
            axis.plot(*points, marker, color=colour, ms=4, label=name["scheme"])
            for observed, predicted, workers in zip(*points, each["workers"], strict=True):
                axis.annotate(
                    str(workers),
                    (observed, predicted),
                    (3, 2),
                    textcoords="offset points",
                    color=colour,
                    fontsize=6,
                )
        _log_axes(axis, ends)
        axis.set_xlabel("observed images/s (log)")
    label_left(axes, "predicted images/s (log)")
    legend_below(figure, axes, columns=3)
    return figure


def _log_axes(axis: Axes, ends: np.ndarray) -> None:
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        each.set_major_formatter(FuncFormatter(thousands))
        each.set_minor_formatter(NullFormatter())
