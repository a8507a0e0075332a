"""Writes the figures, the page and the README of a study, all from the same tables."""

from collections.abc import Sequence
from pathlib import Path

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paceline.analysis.analyse import CONCLUSIONS, table_path
from paceline.analysis.frames import Row
from paceline.record.archive import ARCHIVE
from paceline.report.answer import answers
from paceline.report.chart.chart_style import Chart, static_svg
from paceline.report.charts import charts
from paceline.report.doubts import broken_rules, cautions
from paceline.report.findings import StudyFindings, read_findings
from paceline.report.how_it_was_run import how_it_was_run, subtitle
from paceline.report.origin_tables import all_points, origin_tables
from paceline.report.page_data import as_json, chart_json, points_json, situation_names
from paceline.report.page_tables import page_tables
from paceline.report.phrases import say
from paceline.report.situations import Situation, situations
from paceline.report.summary import MOST, asks_of_time, summary_sentences, use_counts
from paceline.report.target_origin import target_origin

KINDS = {
    "measured": "observed on real processes and a wall clock",
    "paced": "real processes; computing slowed to the pace of the accelerator it stands for",
    "virtual": "real gradients on a virtual clock: time is modelled",
    "predicted": "by a model, not observed",
}
LIBRARY = "vega.js"  # Vega, Vega-Lite and Vega-Embed, beside the folders of all pages
_LOADED = f'<script src="../{LIBRARY}"></script>'
_MOST_ROWS = 60  # of a table that is there before it is opened; longer ones are made then
_COLLECTED = ("runs", "tuning")


def report(folder: Path) -> Path:
    """Write figures/*.svg, README.md and index.html into `folder`; return the path of index.html.

    The page loads vega.js from the folder above; neither needs a network. Equal tables result in
    equal bytes. Raises SettingError("study") if the output of `collect` or `analyse` is missing.
    """
    findings = read_findings(folder)
    drawn = charts(findings)
    paths = [folder / f"{name}.csv" for name in _COLLECTED]
    paths += [table_path(folder, conclusion.name) for conclusion in CONCLUSIONS]
    csvs = [str(path.relative_to(folder)) for path in paths if path.is_file()]
    return write_page(folder, drawn, _content(findings, drawn) | {"csvs": csvs})


def write_page(folder: Path, drawn: Sequence[Chart], content: Row) -> Path:
    """Write the figures, README.md and index.html of a study; return the path of the last."""
    shown: Sequence[Situation] = content["situations"]
    write_figures(folder / "figures", drawn, shown[0] if shown else None)
    content = content | {
        "charts": drawn,
        "charts_json": chart_json(drawn),
        "records": ARCHIVE if (folder / ARCHIVE).is_file() else "",
        "scheme_names": list(
            dict.fromkeys(str(row["scheme"]) for chart in drawn for row in chart.rows)
        ),
    }
    (folder / "README.md").write_text(render("readme.md.j2", content))
    page = folder / "index.html"
    page.write_text(render("page.html.j2", content | _assets()))
    (folder.parent / LIBRARY).write_text(vl_convert.javascript_bundle())  # pyright: ignore[reportCallIssue]
    return page


def single_page(page: Path) -> str:
    """Return the text of a page with the library of its charts in it, as one file to be sent."""
    library = (page.parent.parent / LIBRARY).read_text()
    return page.read_text().replace(_LOADED, f"<script>{library}</script>")


def _assets() -> Row:
    """Return the style and the scripts of a page, which needs no network."""
    return {
        "most_rows": _MOST_ROWS,
        "css": Markup(_source("page.css")),
        "script": Markup(_source("page.js")),
        "library": Markup(_LOADED),
    }


def folded(text: str) -> Markup:
    """Put the interval and n of a cell on a line of their own below the mean."""
    mean, mark, spread = str(text).partition(" (")
    if not (mark and ", n = " in spread):
        return Markup.escape(text)
    return Markup('{}<br><small class="spread">({}</small>').format(mean, spread)


def write_figures(folder: Path, drawn: Sequence[Chart], situation: Situation | None) -> None:
    """Write each chart as a file, for the situation that the page shows first."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):  # left by earlier settings
        old.unlink()
    for chart in drawn:
        shown = situation if chart.by_situation else None
        svg = static_svg(chart, shown.name if shown else None, shown.words if shown else "")
        (folder / f"{chart.name}.svg").write_text(svg)


def _content(findings: StudyFindings, drawn: Sequence[Chart]) -> Row:
    runs = findings.tables.runs
    points, how, counts = all_points(findings), how_it_was_run(findings), use_counts(findings)
    return {
        "about": findings.tables.about,
        "question": findings.tables.about["question"] or "This study states no question.",
        "subtitle": subtitle(findings),
        "cluster": dict(how).get("Cluster", ""),
        "target": target_origin(findings),
        "sentences": [
            *summary_sentences(findings),
            *(say("uses_of_size", size=each.words, uses=each.use) for each in counts),
        ],
        "answers": answers(findings),
        "most_answers": 0 if asks_of_time(findings) or counts else MOST,
        "hedge": say("hedge"),
        "broken_rules": broken_rules(findings),
        "cautions": cautions(findings),
        "kinds": {kind: KINDS.get(kind, "") for kind in dict.fromkeys(runs["kind"])},
        "num_points": len(runs),
        "num_finished": len(findings.tables.finished),
        "situations": situation_names(drawn, situations(findings)),
        "how": how,
        "tables": page_tables(findings),
        "points_json": points_json(findings, points),
        "points_source": points.source,
        "origin": origin_tables(findings),
    }


def render(template: str, content: Row) -> str:
    return _environment().get_template(template).render(content)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("paceline.report"),
        autoescape=lambda name: bool(name and ".html" in name),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "cell": _markdown_cell,
        "folded": folded,
        "json_table": lambda table: as_json({"columns": table.columns, "rows": table.rows}),
    }
    return environment


def _source(name: str) -> str:
    """Return a file of templates/ as it is."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _markdown_cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")
