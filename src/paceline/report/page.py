"""Writes the tables, figures, page (index.html) and README.md of a study."""

import json
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert
from markupsafe import Markup

from paceline.analysis.analyse import CONCLUSIONS, FOLDER
from paceline.analysis.frames import Row
from paceline.prediction.evidence import FACTOR
from paceline.record.archive import ARCHIVE
from paceline.record.report_files import replaced
from paceline.report.answer import answer, rule
from paceline.report.chart.chart_style import Chart, static_svg
from paceline.report.chart.study_charts import (
    configuration_chart,
    phase_chart,
    prediction_chart,
    scale_chart,
    target_chart,
    time_chart,
)
from paceline.report.checks import CAUTION, checks
from paceline.report.findings import StudyFindings
from paceline.report.front_page import METRICS, study_metrics
from paceline.report.how_it_was_run import how_it_was_run, subtitle
from paceline.report.number_format import plural
from paceline.report.page_tables import page_tables
from paceline.report.render import render, safe_json
from paceline.report.spread import spread_words
from paceline.report.summary import summary
from paceline.report.words import say

CHARTS = (  # in the reader's order
    prediction_chart,
    configuration_chart,
    scale_chart,
    target_chart,
    time_chart,
    phase_chart,
)
PAGE = "index.html"
LIBRARY = "vega.js"  # Vega, Vega-Lite and Vega-Embed, beside the folders of all pages
_LOADED = f'<script src="../{LIBRARY}"></script>'
_MOST_ROWS = 6  # of the answer, on the first screen


def report(findings: StudyFindings, folder: Path) -> Path:
    """Write tables/*.csv, figures/*.svg and index.html into `folder`, which are not in git, and
    metrics.json, README.md and its figure.svg.

    Returns the path of index.html. The page loads vega.js, which is written into the parent folder,
    and needs no network. Equal findings result in files of equal bytes. Raises
    SettingError("study") if a file cannot be written.
    """
    texts = {f"{FOLDER}/{each.name}.csv": findings.concluded.csv(each.name) for each in CONCLUSIONS}
    csvs = [name for name in ("runs.csv", "tuning.csv") if (folder / name).is_file()]
    content: dict[str, Any] = _content(findings) | {"csvs": [*csvs, *texts, ARCHIVE]}
    content["searched"] = len(findings.tables.tuning) > 0
    texts |= {METRICS: json.dumps(study_metrics(findings), indent=1, allow_nan=False) + "\n"}
    texts |= {"README.md": render("readme.md.j2", content)}
    texts |= {PAGE: render("page.html.j2", content)}
    for chart in content["charts"]:
        texts[f"figures/{chart.name}.svg"] = svg = static_svg(chart)
        texts.setdefault("figure.svg", svg)  # of README.md
    with replaced(folder) as new:
        for name, text in texts.items():
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text(text)
    _write_library(folder.parent)
    return folder / PAGE


def charts(findings: StudyFindings) -> list[Chart]:
    """Return the charts for which the study has data, in the order of the page: of a study of
    batches and waiting, steps to the target and accuracy against time come first.
    """
    made = [chart for make in CHARTS if (chart := make(findings)) is not None]
    spreads = bool(spread_words(findings))
    return sorted(made, key=lambda each: spreads and each.name not in ("target", "time"))


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
    lines, drawn, tables = checks(findings), charts(findings), page_tables(findings)
    agreement = summary(findings)
    first = agreement or answer(findings)
    shown = replace(first, rows=first.rows[:_MOST_ROWS])
    if len(first.rows) > _MOST_ROWS:
        name = plural(len(first.rows) - _MOST_ROWS, "more row")
        tables = [replace(first, name=name, rows=first.rows[_MOST_ROWS:]), *tables]
    told = [say("incomplete", about)] if about["missing"] else []
    told += filter(None, [spread_words(findings)])
    return {
        "about": about,
        "question": about["question"] or "This study states no question.",
        "subtitle": subtitle(findings),
        "sentences": told + ([] if len(findings.tables.finished) else [say("nothing_finished")]),
        "answer": shown,
        "rule": "" if agreement else rule(findings, shown),
        "hedge": say("hedge", factor=FACTOR),
        "unfair": [each.text for each in lines if each.sign != CAUTION],
        "cautions": [each.text for each in lines if each.sign == CAUTION],
        "kinds": {kind: say(f"kind_{kind}") for kind in runs["kind"].unique()},
        "num_finished": len(findings.tables.finished),
        "how": how_it_was_run(findings),
        "tables": tables,
        "charts": drawn,
        "charts_json": safe_json([asdict(chart) for chart in drawn]),
        "library": Markup(_LOADED),
    }
