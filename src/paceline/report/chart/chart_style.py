"""Makes charts from rows by the specifications in templates/charts, in one style.

A specification is YAML for Vega-Lite with a title and a caption, in which Jinja fills in values.
Charts are shown on pages, and written as SVG files.
"""

import colorsys
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import vl_convert
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from paceline.analysis.frames import Frame, Row
from paceline.report.findings import StudyFindings, situations
from paceline.report.words import scheme_name, scheme_words

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
    "diloco": "#01665E",
    "sync_gossip": "#80CDC1",
}
INK, FAINT = "#1a1a1a", "#8a8a8a"  # of files; on the page, text has the colour of the page
TIER_COLOURS = {"best": "#0072B2", "tied": "#56B4E9", "behind": "#E69F00", "never": "#B2182B"}
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
    "colours": list(COLOURS.values()),
    "ticks": [mark * 10.0**power for power in range(-3, 7) for mark in (1, 2, 5)],
}


@dataclass(frozen=True)
class Chart:
    """Chart of a study: `spec` in Vega-Lite, drawn from `rows`.

    With `by_situation`, each row names a situation in its column `situation`, and the chart shows
    the rows of one situation at a time.
    """

    name: str
    title: str
    caption: str
    spec: Row
    rows: Sequence[Row]
    by_situation: bool = False

    @property
    def over_workers(self) -> bool:
        """True if an axis is the number of workers, which no title may then name."""
        return self.name in ("scale", "target")

    def of(self, situation: str | None) -> list[Row]:
        """Return the rows to be shown for `situation`; all rows unless `by_situation`."""
        return [r for r in self.rows if not self.by_situation or r["situation"] == situation]


def chart(
    name: str, rows: Sequence[Row], schemes: Iterable[str] | None = None, **values: Any
) -> Chart | None:
    """Return the chart of these rows by templates/charts/<name>.yaml; None if there are no rows.

    `values` fill the places of this template. Each of `schemes` gets a colour; by default, these
    are the schemes of the rows.
    """
    if not rows:
        return None
    names = list(dict.fromkeys((row["scheme"] for row in rows) if schemes is None else schemes))
    values = {"faded": _faded, "scheme_colour": partial(_scheme_colour, names)} | values
    text = _ENVIRONMENT.get_template(f"charts/{name}.yaml").render(values)
    known = yaml.safe_load(text)
    spec = yaml.safe_load(_ENVIRONMENT.get_template("charts/style.yaml").render()) | known["spec"]
    return Chart(name, known["title"], known["caption"], spec, rows, "situation" in rows[0])


def situation_rows(findings: StudyFindings, table: Frame) -> Iterator[tuple[Frame, Row]]:
    """Yield each row of a table of conclusions, with the name of its situation and its scheme."""
    for situation in situations(findings):
        for _, row in situation.of(table).iterrows():
            yield row, {"situation": situation.name, "scheme": scheme_words(row)}


def short(value: float | None, digits: int = 5) -> float | None:
    """Round to `digits` significant digits, which keeps a page small; None if missing."""
    return None if value is None or pd.isna(value) else float(f"{value:.{digits}g}")


def static_svg(chart: Chart, situation: str | None = None, title: str = "") -> str:
    """Return the chart of one situation as the text of an SVG file, black on white."""
    spec = json.loads(json.dumps(chart.spec).replace("currentColor", INK))
    rows = chart.of(situation)
    letters = max((len(str(row.get("scheme", ""))) for row in rows), default=0)
    padding = {"left": 5, "top": 5, "bottom": 5, "right": 5 + min(letters, _MOST_WIDER)}
    spec |= {"datasets": {"rows": rows}, "background": "white", "padding": padding}
    spec["config"]["font"] = _FILE_FONT
    if title:
        spec["title"] = {"text": title}
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
    number, found, colours = Counter(schemes), Counter[str](), list[str]()
    for scheme in schemes:
        lighter = 0.6 * found[scheme] / number[scheme]
        colours.append(_lightened(known.get(scheme) or _colour_of(scheme), lighter))
        found[scheme] += 1
    return colours


def _scheme_colour(names: Sequence[str], **legend: Any) -> str:
    """Return the Vega-Lite encoding of schemes as colours.

    Without a value there is no legend: it would make the chart infinitely large.
    """
    known = {"field": "scheme", "type": "nominal", "title": None}
    is_empty = legend.get("values") == []
    known["legend"] = None if is_empty else {"columns": 1, "labelLimit": 220} | legend
    return json.dumps(known | {"scale": {"domain": names, "range": scheme_colours(names)}})


def _faded(opacity: float) -> str:
    """Return the Vega-Lite encoding that fades all schemes except the highlighted one."""
    chosen = "highlight == '' || highlight == datum.scheme"
    return json.dumps({"condition": {"test": chosen, "value": opacity}, "value": 0.12})


def _colour_of(name: str) -> str:
    hue = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32
    return _hexadecimal(colorsys.hls_to_rgb(hue, 0.4, 0.6))


def _lightened(colour: str, share: float) -> str:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return _hexadecimal(part + share * (1 - part) for part in parts)


def _hexadecimal(parts: Iterable[float]) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in parts)
