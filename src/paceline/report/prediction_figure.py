"""Draws what is predicted of real processes against what they did."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from paceline.analysis.configuration import groups
from paceline.analysis.predicted import NEAR
from paceline.analysis.predicted_exchange import EXCHANGE_NEAR
from paceline.analysis.tables import Frame
from paceline.report.facets import Panel, grid, label_left, legend_below
from paceline.report.figure_style import scheme_style, thousands
from paceline.report.findings import StudyFindings

_WIDER = 1.15  # factor by which the axes extend beyond each end
_WIDE = 5  # ratio of ends from which on ticks of a decade are enough


class _Predicted(NamedTuple):
    """Table and columns that are drawn, with words and numbers for the axes.

    `near(rows)`: largest relative error that counts as near. `ticks`: of each decade, where axes
    span enough of them.
    """

    table: str
    observed: str
    predicted: str
    what: str
    near: Callable[[Frame], float]
    written: Callable[[float, int], str]
    ticks: tuple[float, ...]


_RATES = _Predicted(
    table="predicted",
    observed="observed",
    predicted="predicted",
    what="images/s",
    near=lambda rows: max(NEAR[kind] for kind in rows["kind"]),
    written=thousands,
    ticks=(1, 2, 3, 5),
)
_EXCHANGE = _Predicted(
    table="predicted_exchange",
    observed="exchange",
    predicted="predicted_exchange",
    what="seconds of exchange",
    near=lambda _: EXCHANGE_NEAR,
    written=lambda value, _: f"{value:g}",
    ticks=(1,),
)


def predicted_rates(findings: StudyFindings, shown: list[Panel]) -> Figure:
    """Draw a marker for each configuration, with its number of workers beside it."""
    return _against_observed(findings, shown, _RATES)


def predicted_exchanges(findings: StudyFindings, shown: list[Panel]) -> Figure:
    """Draw seconds of exchange likewise, for paced configurations."""
    return _against_observed(findings, shown, _EXCHANGE)


def _against_observed(findings: StudyFindings, shown: list[Panel], drawn: _Predicted) -> Figure:
    table = findings.concluded[drawn.table]
    table = table[(table[drawn.observed] > 0) & (table[drawn.predicted] > 0)]  # axes are log
    shown = [panel for panel in shown if len(panel.of(table))]
    figure, axes = grid(shown, 3.2 if len(shown) > 1 else 5.5, sharey=False)
    for axis, panel in zip(axes, shown, strict=True):
        _draw(axis, panel.of(table), drawn, findings.schemes)
        axis.set_xlabel(f"observed {drawn.what} (log)")
    label_left(axes, f"predicted {drawn.what} (log)")
    legend_below(figure, axes, columns=3)
    return figure


def _draw(axis: Axes, rows: Frame, drawn: _Predicted, schemes: list[str]) -> None:
    values = rows[[drawn.observed, drawn.predicted]].to_numpy(float)
    ends = np.array([values.min() / _WIDER, values.max() * _WIDER])
    near = drawn.near(rows)
    axis.fill_between(ends, (1 - near) * ends, (1 + near) * ends, color="#eeeeee", lw=0)
    axis.plot(ends, ends, color="#999999", lw=0.9, label="predicted = observed")
    for name, each in groups(rows, ["scheme"]):
        colour, marker = scheme_style(name["scheme"], schemes)
        points = (each[drawn.observed], each[drawn.predicted])
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
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    wide = ends[1] > _WIDE * ends[0]
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_locator(LogLocator(subs=drawn.ticks) if wide else MaxNLocator(4))
        each.set_major_formatter(FuncFormatter(drawn.written))
        each.set_minor_formatter(NullFormatter())
