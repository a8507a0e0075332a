"""Says what all charts have in common: a form for the page and for files, colours, and type."""

import colorsys
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import altair as alt
import pandas as pd
import vl_convert

from paceline.analysis.frames import Row
from paceline.report.words import scheme_name

Marks: TypeAlias = Any  # an Altair chart of any kind

ROWS = alt.NamedData("rows")  # of a chart; the page puts those of one situation there
COLOURS = {  # distinct for the colour-blind as well, after Okabe and Ito, extended
    "sync_allreduce": "#0072B2",
    "async_parameter_server": "#D55E00",
    "gossip": "#009E73",
    "local_sgd": "#CC79A7",
    "elastic_averaging": "#E69F00",
    "sync_parameter_server": "#56B4E9",
    "independent": "#7F7F7F",
    "post_local_sgd": "#6A51A3",
    "mixed": "#B2182B",
    "stale_synchronous": "#999933",
    "sync_then_async": "#8C510A",
}
INK, FAINT = "#1a1a1a", "#8a8a8a"  # of files; on the page, text has the colour of the page
COMPUTE_COLOUR, EXCHANGE_COLOUR = "#56B4E9", "#009E73"
TIER_COLOURS = {"best": "#0072B2", "tied": "#56B4E9", "behind": "#E69F00", "never": "#B2182B"}
LOG_TICKS = [mark * 10.0**power for power in range(-3, 7) for mark in (1, 2, 5)]
_FONT = "system-ui, -apple-system, Segoe UI, sans-serif"
HIGHLIGHT = alt.param(name="highlight", value="")


@dataclass(frozen=True)
class Chart:
    """Chart of a study: `spec` in Vega-Lite, whose data `rows` are.

    With `by_situation`, rows have the name of a situation in the column `situation`, and are shown
    for one at a time.
    """

    name: str
    title: str
    caption: str
    spec: Row
    rows: Sequence[Row]
    by_situation: bool = False

    def of(self, situation: str | None) -> list[Row]:
        """Return the rows to be shown for a situation."""
        if not self.by_situation:
            return list(self.rows)
        return [row for row in self.rows if row["situation"] == situation]


def specification(marks: Marks) -> Row:
    """Return the chart in Vega-Lite, styled, with currentColor for what has the page's ink."""
    styled = marks.configure(
        font=_FONT,
        background="transparent",
        axis=alt.AxisConfig(
            labelColor="currentColor",
            titleColor="currentColor",
            gridColor="#8a8a8a40",
            domainColor=FAINT,
            tickColor=FAINT,
            titleFontWeight="normal",
            labelLimit=220,
        ),
        legend=alt.LegendConfig(labelColor="currentColor", titleColor="currentColor"),
        header=alt.HeaderConfig(labelColor="currentColor", titleColor="currentColor"),
        title=alt.TitleConfig(color="currentColor", fontWeight="bold", fontSize=12, anchor="start"),
        text=alt.MarkConfig(color="currentColor"),
        view=alt.ViewConfig(stroke=None),
    )
    return styled.to_dict()


def short(value: float | None, digits: int = 5) -> float | None:
    """Return a number with so many significant digits, which keep a page small; None if missing."""
    return None if value is None or pd.isna(value) else float(f"{value:.{digits}g}")


def static_svg(chart: Chart, situation: str | None = None, title: str = "") -> str:
    """Return the SVG of a file: black on white, for one situation; equal charts, equal bytes."""
    spec = json.loads(json.dumps(chart.spec).replace("currentColor", INK))
    own = spec.get("datasets", {})
    spec |= {"datasets": {**own, "rows": chart.of(situation)}, "background": "white"}
    if title:
        spec["title"] = {"text": title}
    return _renumbered(vl_convert.vegalite_to_svg(spec))


def _renumbered(svg: str) -> str:
    """Number clipping paths from 0, which Vega numbers on from chart to chart of a process."""
    places: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"clip{places.setdefault(found[1], len(places))}"

    return re.sub(r"\bclip(\d+)\b", number, svg)


def scheme_colour(names: Sequence[str], **legend: Any) -> alt.Color:
    """Return the encoding of schemes, of which each has the same colour in all studies."""
    return colour(names, scheme_colours(names), **legend)


def colour(names: Sequence[str], colours: Sequence[str], **legend: Any) -> alt.Color:
    """Return the encoding of the field `scheme` with these names by these colours."""
    scale = alt.Scale(domain=list(names), range=list(colours))
    legend = {"legend": alt.Legend(columns=1, labelLimit=220)} | legend
    return alt.Color("scheme:N", title=None, scale=scale, **legend)


def scheme_colours(names: Sequence[str]) -> list[str]:
    """Return a colour for each scheme, named in words with its settings.

    A scheme that is not in COLOURS has one that follows from its name. Of several variants of a
    scheme, those after the first have lighter shades of its colour.
    """
    known = {scheme_name(scheme): shade for scheme, shade in COLOURS.items()}
    schemes = [name.partition(", ")[0] for name in names]
    number, found, colours = Counter(schemes), Counter[str](), list[str]()
    for scheme in schemes:
        lighter = 0.6 * found[scheme] / number[scheme]
        colours.append(_lightened(known.get(scheme) or _colour_of(scheme), lighter))
        found[scheme] += 1
    return colours


def _colour_of(name: str) -> str:
    hue = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32
    return _hexadecimal(colorsys.hls_to_rgb(hue, 0.4, 0.6))


def _lightened(colour: str, share: float) -> str:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return _hexadecimal(part + share * (1 - part) for part in parts)


def _hexadecimal(parts: Iterable[float]) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in parts)


def tips(**shown: str | tuple[str, str]) -> list[alt.Tooltip]:
    """Return what is told of a mark: fields of its row with a title; of a number with a format."""
    return [
        alt.Tooltip(f"{name}:N", title=about)
        if isinstance(about, str)
        else alt.Tooltip(f"{name}:Q", title=about[0], format=about[1])
        for name, about in shown.items()
    ]


def faded(full: float = 1.0) -> Any:
    """Return the opacity that leaves a highlighted scheme, or all if none is highlighted."""
    chosen = "highlight == '' || highlight == datum.scheme"
    return alt.condition(chosen, alt.value(full), alt.value(0.12))
