"""Makes charts from rows by the specifications in templates/charts, in one style.

A specification is YAML for Vega-Lite with a title and a caption, in which Jinja fills in values.
Charts are shown on pages, and written as SVG files.
"""

import colorsys
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import vl_convert
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from paceline.analysis.frames import Row
from paceline.report.words import scheme_name

COLOURS = {  # told apart at a glance on white and on a dark page; contrast with both is about 3
    "sync_allreduce": "#2B7BD6",
    "async_parameter_server": "#D9481F",
    "local_sgd": "#2A9D4B",
    "diloco": "#C2409C",
    "gossip": "#C99400",
    "sync_parameter_server": "#0FA3A8",
    "independent": "#868686",
    "mixed": "#7A4FE0",
    "stale_synchronous": "#8A5A2B",
    "post_local_sgd": "#86A800",
    "elastic_averaging": "#6B7A1F",
    "sync_then_async": "#A33B4A",
    "sync_gossip": "#D88C79",
}
INK, FAINT = "#1a1a1a", "#8a8a8a"  # of files; on the page, text has the colour of the page
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])  # of the variants of a scheme
# Files are measured with this font. If a browser has none of its width, each letter of a legend is
# at most a pixel wider; the longest lines have 40 letters.
_FILE_FONT, _MOST_WIDER = "Liberation Sans, Arial, Helvetica, sans-serif", 40
_CLIP = re.compile(r"\bclip\d+\b")
_ENVIRONMENT = Environment(
    loader=PackageLoader("paceline.report"),
    autoescape=False,  # it is no HTML
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals |= {
    "faint": FAINT,
    "palette": [*COLOURS.values()],
    "ticks": [mark * 10.0**power for power in range(-3, 7) for mark in (1, 2, 5)],
}


@dataclass(frozen=True)
class Chart:
    """Chart of a study: `spec` in Vega-Lite, drawn from `rows`."""

    name: str
    title: str
    caption: str
    spec: Row
    rows: Sequence[Row]


def chart(name: str, rows: Sequence[Row], **values: Any) -> Chart | None:
    """Return the chart of these rows by templates/charts/<name>.yaml; None if there are no rows.

    `values` fill the places of this template. Each scheme of the rows gets a colour.
    """
    if not rows:
        return None
    names = list(dict.fromkeys(row["scheme"] for row in rows))
    colour, dash = (partial(_scheme, names, of) for of in (scheme_colours, _dashes))
    values = {"scheme_colour": colour, "scheme_dash": dash} | values
    text = _ENVIRONMENT.get_template(f"charts/{name}.yaml").render(values)
    known = yaml.safe_load(text)
    spec = yaml.safe_load(_ENVIRONMENT.get_template("charts/style.yaml").render()) | known["spec"]
    return Chart(name, known["title"], known["caption"], spec, rows)


def short(value: float | None, digits: int = 5) -> float | None:
    """Round to `digits` significant digits, which keeps a page small; None if missing."""
    return None if value is None or pd.isna(value) else float(f"{value:.{digits}g}")


def static_svg(chart: Chart) -> str:
    """Return the chart as the text of an SVG file, black on white."""
    spec = json.loads(json.dumps(chart.spec).replace("currentColor", INK))
    letters = max((len(str(row.get("scheme", ""))) for row in chart.rows), default=0)
    padding = {"left": 25, "top": 5, "bottom": 5, "right": 5 + min(letters, _MOST_WIDER)}
    spec |= {"datasets": {"rows": chart.rows}, "background": "white", "padding": padding}
    spec["config"]["font"] = _FILE_FONT
    svg = vl_convert.vegalite_to_svg(spec)
    # Vega numbers clipping paths on from chart to chart of a process
    places = {name: place for place, name in enumerate(dict.fromkeys(_CLIP.findall(svg)))}
    return _CLIP.sub(lambda found: f"clip{places[found[0]]}", svg)


def scheme_colours(names: Sequence[str]) -> list[str]:
    """Return a colour for each of `names`; a scheme has the same colour in all studies.

    `names` are schemes in words with their settings. A scheme that is not in COLOURS has a colour
    derived from its name. Further variants of a scheme have lighter shades.
    """
    known = {scheme_name(scheme): shade for scheme, shade in COLOURS.items()}
    schemes = [name.partition(", ")[0] for name in names]
    return [
        _lightened(known.get(scheme) or _colour_of(scheme), 0.5 * place / schemes.count(scheme))
        for scheme, place in zip(schemes, _variants(names), strict=True)
    ]


def _dashes(names: Sequence[str]) -> list[list[int]]:
    return [_DASHES[place % len(_DASHES)] for place in _variants(names)]


def _variants(names: Sequence[str]) -> list[int]:
    """Return for each of `names` how many variants of the same scheme stand before it."""
    schemes = [name.partition(", ")[0] for name in names]
    return [schemes[:place].count(scheme) for place, scheme in enumerate(schemes)]


def _scheme(names: Sequence[str], shown_as: Callable[..., list[Any]], **legend: Any) -> str:
    """Return the Vega-Lite encoding of schemes by their colours, or by dashes of their lines."""
    known = {"field": "scheme", "type": "nominal", "title": None}
    known |= {"legend": {"labelLimit": 400} | legend}
    return json.dumps(known | {"scale": {"domain": names, "range": shown_as(names)}})


def _colour_of(name: str) -> str:
    hue = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32
    return _hexadecimal(colorsys.hls_to_rgb(hue, 0.4, 0.6))


def _lightened(colour: str, share: float) -> str:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return _hexadecimal(part + share * (1 - part) for part in parts)


def _hexadecimal(parts: Iterable[float]) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in parts)
