"""Draws the numbers of diverged seeds below the lines of a figure."""

from matplotlib.axes import Axes

from paceline.analysis.configuration import groups
from paceline.analysis.tables import Frame
from paceline.report.figure_style import scheme_style

_ROW = 0.09  # share of the height of the lines


def diverged_band(axis: Axes, table: Frame, schemes: list[str]) -> None:
    """Draw a row of hollow markers per scheme and kind, with `diverged/all` seeds beside each.

    `table` has the columns scheme, kind, workers, n and n_diverged. If no seed diverged, the axis
    is not changed.
    """
    rows = groups(table[table["n_diverged"] > 0], ["scheme", "kind"])
    if not rows:
        return
    low, high = axis.get_ylim()
    heights = [low - (index + 0.8) * _ROW * (high - low) for index in range(len(rows))]
    axis.axhline(low, color="#bbbbbb", lw=0.8)
    for (name, own), height in zip(rows, heights, strict=True):
        _markers(axis, own, height, scheme_style(name["scheme"], schemes))
    ticks = [tick for tick in axis.get_yticks() if low <= tick <= high]
    form = axis.yaxis.get_major_formatter()
    labels = [form(tick) for tick in ticks]
    middle = sum(heights) / len(heights)
    axis.set_yticks([*ticks, middle], [*labels, "diverged"])
    axis.set_ylim(heights[-1] - 0.8 * _ROW * (high - low), high)


def _markers(axis: Axes, rows: Frame, height: float, style: tuple[str, str]) -> None:
    colour, marker = style
    if rows.empty:
        return
    axis.scatter(
        rows["workers"],
        [height] * len(rows),
        s=32,
        marker=marker,
        facecolors="white",
        edgecolors=colour,
        linewidths=1.3,
        zorder=3,
        label="diverged, of all seeds",
    )
    for _, row in rows.iterrows():
        axis.annotate(
            f"{row['n_diverged']:.0f}/{row['n']:.0f}",
            (row["workers"], height),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=colour,
        )
