"""Writes the figures, the page (index.html) and the README.md of a study from its tables."""

import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paceline.analysis.analyse import CONCLUSIONS, FOLDER, table_path, tie_tables
from paceline.analysis.comparison import compared_by
from paceline.analysis.frames import Row, write_table
from paceline.errors import printable
from paceline.record.archive import ARCHIVE
from paceline.record.tied_files import digest_of, replaced
from paceline.report.answer import Answer, answers
from paceline.report.chart.accuracy_charts import (
    configuration_chart,
    scale_chart,
    target_chart,
    time_chart,
    tuning_chart,
)
from paceline.report.chart.chart_style import Chart, static_svg
from paceline.report.chart.decision_charts import decision_chart, map_chart
from paceline.report.chart.model_charts import prediction_charts
from paceline.report.chart.worker_charts import phase_chart, staleness_chart, timeline_chart
from paceline.report.doubts import broken_rules, cautions, unsearched
from paceline.report.findings import Situation, StudyFindings, read_findings, situations
from paceline.report.how_it_was_run import how_it_was_run, subtitle, target_origin
from paceline.report.number_format import setting
from paceline.report.page_tables import Table, all_points, origin_tables, page_tables, scale_table
from paceline.report.summary import MOST, asks_of_time, summary_sentences, use_counts
from paceline.report.words import say

CHARTS = (  # in the reader's order, after those of predictions
    configuration_chart,
    map_chart,
    target_chart,
    scale_chart,
    decision_chart,
    time_chart,
    phase_chart,
    staleness_chart,
    timeline_chart,
    tuning_chart,
)
_BESIDE_PREDICTIONS = (decision_chart, phase_chart, staleness_chart)
LIBRARY = "vega.js"  # Vega, Vega-Lite and Vega-Embed, beside the folders of all pages
_LOADED = f'<script src="../{LIBRARY}"></script>'
_MARKUP = re.compile(r"[\\`\[\]|]")  # of code, links and tables; emphasis is harmless
_MOST_ROWS = 60  # longer tables are built only when the reader opens them


def report(folder: Path) -> Path:
    """Write figures/*.svg, README.md and index.html into `folder`; return the path of index.html.

    The page loads vega.js, which is written into the parent folder, and needs no network. Equal
    tables result in files of equal bytes. Raises SettingError("study") if a table is missing or
    was changed after it was written, or if a file cannot be written.
    """
    findings = read_findings(folder)
    paths = [folder / "runs.csv", folder / "tuning.csv"]
    paths += [table_path(folder, conclusion.name) for conclusion in CONCLUSIONS]
    csvs = [str(path.relative_to(folder)) for path in paths if path.is_file()]
    content = _content(findings)
    archive = say("archive", archive=ARCHIVE, digest=digest_of(folder / ARCHIVE))
    content["how"] = [*content["how"], ("Records", archive)]
    return write_page(folder, charts(findings), content | {"csvs": csvs})


def charts(findings: StudyFindings) -> list[Chart]:
    """Return the charts for which the study has data, in the order of the page."""
    predicted = prediction_charts(findings)
    made = (make(findings) for make in (_BESIDE_PREDICTIONS if predicted else CHARTS))
    return [*predicted, *(chart for chart in made if chart is not None)]


def write_page(folder: Path, drawn: Sequence[Chart], content: Mapping[str, Any]) -> Path:
    """Write figures, answers, README.md and index.html of a study; return the page's path."""
    rows = [row for chart in drawn for row in chart.rows]
    drawn_of = [{row.get("situation") for row in each.rows} for each in drawn if each.by_situation]
    shown = [each for each in content["situations"] if any(each.name in of for of in drawn_of)]
    if not content["compares_all"]:  # fullest first
        shown.sort(key=lambda each: sum(each.name not in of for of in drawn_of))
    content = {
        "at_scale": None,
        **content,
        "situations": shown,
        "charts": drawn,
        "here": _shown_first(drawn[0], shown) if drawn else "",
        "charts_json": _json([_chart(chart) for chart in drawn]),
        "records": ARCHIVE if (folder / ARCHIVE).is_file() else "",
        "scheme_names": list(dict.fromkeys(str(row["scheme"]) for row in rows)),
        "most_rows": _MOST_ROWS,
        "library": Markup(_LOADED),
    }
    with replaced(folder) as new:
        (new / "figures").mkdir()
        for chart in drawn:  # each for the situation that the page shows first
            shown = content["situations"][0].name if chart.by_situation else None
            svg = static_svg(chart, shown, _shown_first(chart, content["situations"]))
            (new / "figures" / f"{chart.name}.svg").write_text(svg)
        shutil.copytree(folder / FOLDER, new / FOLDER)
        table = pd.DataFrame(content["answers"], columns=Answer._fields)
        write_table(table_path(new, "answers"), table.drop(columns="details"))
        tie_tables(new, folder)
        (new / "README.md").write_text(render("readme.md.j2", content))
        (new / "index.html").write_text(render("page.html.j2", content))
    _write_library(folder.parent)
    return folder / "index.html"


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


def render(template: str, content: Mapping[str, Any]) -> str:
    """Return the file `template` of templates/, filled with `content`."""
    environment = Environment(
        loader=PackageLoader("paceline.report"),
        autoescape=lambda name: bool(name and ".html" in name),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "cell": markdown,
        "folded": folded,
        "json_table": lambda table: _json({"columns": table.columns, "rows": table.rows}),
    }
    return environment.get_template(template).render(content)


def folded(text: str) -> Markup:
    """Return the text of a cell as HTML, with the interval and n on a second line."""
    mean, mark, spread = str(text).partition(" (")
    if not (mark and ", n = " in spread):
        return Markup.escape(text)
    return Markup('{}<br><small class="spread">({}</small>').format(mean, spread)


def markdown(text: str) -> str:
    """Return a text as one line of Markdown in which no markup and no control character is left."""
    line = printable(" ".join(str(text).split()))
    return _MARKUP.sub(r"\\\g<0>", line.replace("&", "&amp;").replace("<", "&lt;"))


def _content(findings: StudyFindings) -> Row:
    about, runs = findings.tables.about, findings.tables.runs
    how, counts = how_it_was_run(findings), use_counts(findings)
    broken = broken_rules(findings)
    points = all_points(findings)
    return {
        "about": about,
        "question": about["question"] or "This study states no question.",
        "subtitle": subtitle(findings),
        "cluster": dict(how).get("Cluster", ""),
        "target": target_origin(findings),
        "sentences": [
            *([say("incomplete", about)] if about["missing"] else []),
            *unsearched(findings.tables),
            *summary_sentences(findings),
            *(say("uses_of_size", size=size, uses=uses) for size, uses in counts.items()),
        ],
        "at_scale": None if asks_of_time(findings) else scale_table(findings),
        "answers": answers(findings),
        "most_answers": 0 if asks_of_time(findings) or counts else MOST,
        "compares_all": findings.compares_all,
        "hedge": say("hedge_of_first", by=compared_by(findings.tables))
        if findings.compares_all
        else say("hedge"),
        "broken_rules": [each for each in broken if each.affects],
        "cautions": [*cautions(findings), *(each.text for each in broken if not each.affects)],
        "kinds": {kind: say(f"kind_{kind}", paced="computing") for kind in runs["kind"].unique()},
        "num_points": len(runs),
        "num_finished": len(findings.tables.finished),
        "situations": situations(findings),
        "how": how,
        "tables": page_tables(findings),
        "points_json": _points(findings, points),
        "points_source": points.source,
        "origin": origin_tables(findings),
    }


def _json(value: object) -> Markup:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def _chart(chart: Chart) -> Row:
    """Return a chart for the page's script, with its rows as lists of cells.

    In a column that has only texts, each cell is the index of its text in the list of the column's
    texts, which keeps the page small.
    """
    columns = list(dict.fromkeys(name for row in chart.rows for name in row))
    different = [list(dict.fromkeys(row.get(name) for row in chart.rows)) for name in columns]
    texts = [each if all(isinstance(value, str) for value in each) else [] for each in different]
    places = [{text: place for place, text in enumerate(each)} for each in texts]
    rows = [
        [own.get(row.get(name), row.get(name)) for name, own in zip(columns, places, strict=True)]
        for row in chart.rows
    ]
    return {
        "name": chart.name,
        "title": chart.title,
        "spec": chart.spec,
        "bySituation": chart.by_situation,
        "columns": columns,
        "texts": texts,
        "rows": rows,
    }


def _points(findings: StudyFindings, table: Table) -> Markup:
    """Return the table of all points as JSON, with the command that runs each point again.

    A point with a tuned learning rate also needs the records of the study's trials.
    """
    about, runs = findings.tables.about, findings.tables.runs
    axes = [name for name in about["axes"] if name in runs]
    settings = (
        (shlex.quote(f"{name}={setting(row[name])}") for name in axes if pd.notna(row[name]))
        for _, row in runs.iterrows()
    )
    return _json(
        {
            "columns": list(table.columns),
            "rows": [list(row) for row in table.rows],
            "command": f"paceline train experiments={about['study']} ",
            "commands": [" ".join(each) for each in settings],
        }
    )
