"""Writes the tables, figures, page (index.html) and README.md of a study."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert
from markupsafe import Markup

from paceline.analysis.analyse import CONCLUSIONS, FOLDER
from paceline.analysis.comparison import compared_by
from paceline.analysis.frames import Row
from paceline.record.archive import ARCHIVE
from paceline.record.report_files import replaced
from paceline.report.answer import answers
from paceline.report.chart.accuracy_charts import (
    configuration_chart,
    phase_chart,
    prediction_chart,
    scale_chart,
    target_chart,
    time_chart,
)
from paceline.report.chart.chart_style import Chart, static_svg
from paceline.report.chart.decision_charts import decision_chart, map_chart
from paceline.report.checks import CAUTION, checks
from paceline.report.findings import Situation, StudyFindings, situations
from paceline.report.front_page import METRICS, study_metrics
from paceline.report.how_it_was_run import how_it_was_run, subtitle, target_origin
from paceline.report.page_tables import page_tables, scale_table
from paceline.report.render import render, safe_json
from paceline.report.summary import asks_of_time, summary_sentences
from paceline.report.words import say

CHARTS = (  # in the reader's order
    configuration_chart,
    map_chart,
    target_chart,
    scale_chart,
    decision_chart,
    time_chart,
    phase_chart,
)
_OF_PREDICTIONS = (prediction_chart, decision_chart, phase_chart)  # of a study that predicts
PAGE = "index.html"
LIBRARY = "vega.js"  # Vega, Vega-Lite and Vega-Embed, beside the folders of all pages
_LOADED = f'<script src="../{LIBRARY}"></script>'
_MOST_ANSWERS = 8  # that the page shows at once


def report(findings: StudyFindings, folder: Path) -> Path:
    """Write tables/*.csv, figures/*.svg and index.html into `folder`, which are not in git, and
    metrics.json, README.md and its figure.svg.

    Returns the path of index.html. The page loads vega.js, which is written into the parent folder,
    and needs no network. Equal findings result in files of equal bytes. Raises
    SettingError("study") if a file cannot be written.
    """
    texts = {f"{FOLDER}/{each.name}.csv": findings.concluded.csv(each.name) for each in CONCLUSIONS}
    csvs = [name for name in ("runs.csv", "tuning.csv") if (folder / name).is_file()]
    content: dict[str, Any] = _content(findings) | {"csvs": [*csvs, *texts]}
    content["how"] = [*content["how"], ("Records", ARCHIVE)]
    content |= _charts(charts(findings), content)
    texts |= {METRICS: json.dumps(study_metrics(findings), indent=1, allow_nan=False) + "\n"}
    texts |= {"README.md": render("readme.md.j2", content)}
    texts |= {PAGE: render("page.html.j2", content)}
    shown = content["situations"][0].name if content["situations"] else None
    for chart in content["charts"]:  # each for the situation that the page shows first
        situation = shown if chart.by_situation else None
        svg = static_svg(chart, situation, _shown_first(chart, content["situations"]))
        texts[f"figures/{chart.name}.svg"] = svg
        texts.setdefault("figure.svg", svg)  # of README.md
    with replaced(folder) as new:
        for name, text in texts.items():
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text(text)
    _write_library(folder.parent)
    return folder / PAGE


def charts(findings: StudyFindings) -> list[Chart]:
    """Return the charts for which the study has data, in the order of the page."""
    makers = _OF_PREDICTIONS if len(findings.known("rate_n")) else CHARTS
    return [chart for make in makers if (chart := make(findings)) is not None]


def _charts(drawn: Sequence[Chart], content: Row) -> Row:
    """Return what the page shows of its charts, and the situations that any of them shows."""
    rows = [row for chart in drawn for row in chart.rows]
    drawn_of = [{row.get("situation") for row in each.rows} for each in drawn if each.by_situation]
    shown = [each for each in content["situations"] if any(each.name in of for of in drawn_of)]
    if not content["compares_all"]:  # fullest first
        shown.sort(key=lambda each: sum(each.name not in of for of in drawn_of))
    return {
        "situations": shown,
        "charts": drawn,
        "here": _shown_first(drawn[0], shown) if drawn else "",
        "charts_json": safe_json([_chart(chart) for chart in drawn]),
        "scheme_names": list(dict.fromkeys(str(row["scheme"]) for row in rows)),
        "library": Markup(_LOADED),
    }


def _shown_first(chart: Chart, situations: Sequence[Situation]) -> str:
    """Return the words of the situation that a chart shows first; "" if all that it has have these.

    A chart over workers names no number of workers.
    """
    names = {row["situation"] for row in chart.rows} if chart.by_situation else ()
    if not chart.over_workers:
        return situations[0].words if names else ""
    words = [each.settings for each in situations if each.name in names]
    return words[0] if len(set(words)) > 1 else ""


def _write_library(reports: Path) -> None:
    """Write the library of all charts, unless it is there already; to make it takes seconds."""
    made_by = f"/* vl-convert-python {version('vl-convert-python')} */\n"
    path = reports / LIBRARY
    if path.is_file() and path.read_text(errors="replace").startswith(made_by):
        return
    with replaced(reports) as new:
        bundle = vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue]
        (new / LIBRARY).write_text(made_by + bundle)


def single_page(page: Path) -> str:
    """Return the HTML of a page that contains the library of its charts, to be sent as one file."""
    library = (page.parent.parent / LIBRARY).read_text()
    return page.read_text().replace(_LOADED, f"<script>{library}</script>")


def _content(findings: StudyFindings) -> Row:
    about, runs = findings.tables.about, findings.tables.runs
    how, lines = how_it_was_run(findings), checks(findings)
    return {
        "about": about,
        "question": about["question"] or "This study states no question.",
        "subtitle": subtitle(findings),
        "cluster": dict(how).get("Cluster", ""),
        "target": target_origin(findings),
        "sentences": [
            *([say("incomplete", about)] if about["missing"] else []),
            *summary_sentences(findings),
        ],
        "at_scale": None if asks_of_time(findings) else scale_table(findings),
        "answers": answers(findings),
        "most_answers": 0 if asks_of_time(findings) else _MOST_ANSWERS,
        "compares_all": findings.compares_all,
        "hedge": say("hedge_of_first", by=compared_by(findings.tables))
        if findings.compares_all
        else say("hedge"),
        "unfair": [each.text for each in lines if each.sign != CAUTION],
        "cautions": [each.text for each in lines if each.sign == CAUTION],
        "kinds": {kind: say(f"kind_{kind}") for kind in runs["kind"].unique()},
        "num_finished": len(findings.tables.finished),
        "situations": situations(findings),
        "how": how,
        "tables": page_tables(findings),
    }


def _chart(chart: Chart) -> Row:
    """Return a chart for the page's script."""
    names = ("name", "title", "spec", "by_situation", "rows")
    return {name: getattr(chart, name) for name in names}
