"""Draws the seconds of each collective against workers, with what a cost model predicts."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from paceline.analysis.configuration import groups
from paceline.analysis.exchanges import Exchanges
from paceline.analysis.tables import Frame
from paceline.report.facets import Panel, grid, label_left, legend_below
from paceline.report.figure_style import LINES, as_svg, figure_settings, scheme_style, thousands
from paceline.report.figures import Drawing
from paceline.report.worker_figures import workers_axis

_WIDER = 2.0  # factor by which the axis extends beyond the means; wider intervals are cut
_CAPTION = (
    "Updates per second: 1 / seconds of an exchange, after FireCaffe's figure 5. Full lines with "
    "markers: {kinds}, means over turns, bars their 95 % intervals, cut at the edge; thin lines: "
    "predicted, by the collective's cost model."
)


def exchange_drawings(exchanges: Exchanges, seconds: Frame) -> list[Drawing]:
    """Return the figure, with a panel per cluster and number of bytes."""
    finished = seconds[seconds["status"] == "finished"]
    title = "Updates per second against workers"
    caption = _CAPTION.format(kinds=" or ".join(dict.fromkeys(seconds["kind"])))
    if finished.empty:
        return [Drawing("exchanges", title, "Nothing to draw: no exchange has finished.", "")]
    names = ["cluster", *exchanges.facets, "num_bytes"]
    names = [name for name in names if finished[name].nunique(dropna=False) > 1]
    shown = [Panel(values) for values, _ in groups(finished, names)] if names else [Panel({})]
    collectives = list(dict.fromkeys(seconds["collective"]))
    with figure_settings():
        figure, axes = grid(shown, 3.0, sharey=False)
        for axis, panel in zip(axes, shown, strict=True):
            _draw(axis, panel.of(finished), collectives)
        label_left(axes, "updates/s (log)")
        legend_below(figure, axes, columns=3)
        svg = as_svg(figure)
        plt.close(figure)
    return [Drawing("exchanges", title, caption, svg)]


def _draw(axis: Axes, rows: Frame, collectives: list[str]) -> None:
    for name, each in groups(rows, ["collective"]):
        colour, marker = scheme_style(name["collective"], collectives)
        each = each.sort_values("workers")
        rate = each["updates_per_second"]
        # an interval that reaches down to no time at all has no upper end on this axis
        low, high = 1 / each["seconds_high"], 1 / each["seconds_low"].where(each["seconds_low"] > 0)
        bars = np.nan_to_num([rate - low, high - rate])
        style = {"color": colour, "marker": marker, "ms": 4, "capsize": 2}
        axis.errorbar(each["workers"], rate, bars, label=name["collective"], **style)
        predicted = 1 / each["predicted_seconds"].astype(float)
        axis.plot(each["workers"], predicted, LINES["predicted"], color=colour, lw=0.9)
    axis.plot([], [], LINES["predicted"], color="#555555", lw=0.9, label="predicted")
    axis.set_yscale("log")
    rates: Frame = pd.concat(
        [rows["updates_per_second"], 1 / rows["predicted_seconds"].astype(float)]
    )
    axis.set_ylim(rates.min() / _WIDER, rates.max() * _WIDER)
    axis.yaxis.set_major_formatter(FuncFormatter(thousands))
    axis.yaxis.set_minor_formatter(NullFormatter())
    workers_axis(axis, sorted(set(rows["workers"])))
