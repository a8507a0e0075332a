"""Writes the figures, the page and the README of a study, all from the same tables."""

import re
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paceline.analysis.analyse import CONCLUSIONS, table_path
from paceline.analysis.tables import Row
from paceline.measurement.rows import POINT_TABLES
from paceline.report.answer import HEDGE, answer
from paceline.report.caution_sentences import cautions
from paceline.report.figures import Drawing, drawings
from paceline.report.findings import StudyFindings, read_findings
from paceline.report.origin_tables import all_points, origin_tables
from paceline.report.page_tables import page_tables
from paceline.report.rule_sentences import broken_rules

KINDS = {
    "measured": "observed on real processes and a wall clock",
    "paced": "real processes; computing slowed to the pace of the accelerator it stands for",
    "virtual": "real gradients on a virtual clock: time is modelled",
    "predicted": "by a model, not observed",
}
_COLLECTED = ("runs", *(table.collected for table in POINT_TABLES), "tuning")


def report(folder: Path) -> Path:
    """Write figures/*.svg, README.md and index.html into `folder`; return the path of index.html.

    Neither this function nor the page needs a network. Equal tables result in equal bytes. Raises
    SettingError("study") if the output of `paceline collect` or `paceline analyse` is missing.
    """
    findings = read_findings(folder)
    drawn = drawings(findings)
    write_figures(folder / "figures", drawn)
    content = _content(findings, drawn)
    paths = [folder / f"{name}.csv" for name in _COLLECTED]
    paths += [table_path(folder, conclusion.name) for conclusion in CONCLUSIONS]
    content["csvs"] = [str(path.relative_to(folder)) for path in paths if path.is_file()]
    (folder / "README.md").write_text(render("readme.md.j2", content))
    page = folder / "index.html"
    page.write_text(render("page.html.j2", content))
    return page


def inline(drawing: Drawing) -> Markup:
    """Return the SVG for use inside a page.

    Its ids become unique on the page, and screen readers get the title.
    """
    svg = drawing.svg[drawing.svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{drawing.name}-", svg)
    label = Markup.escape(drawing.title)
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))


def folded(text: str) -> Markup:
    """Put the interval and n of a cell on a line of their own below the mean."""
    mean, mark, spread = str(text).partition(" (")
    if not (mark and ", n = " in spread):
        return Markup.escape(text)
    return Markup('{}<br><small class="spread">({}</small>').format(mean, spread)


def write_figures(folder: Path, drawn: list[Drawing]) -> None:
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):  # left by earlier settings
        old.unlink()
    for drawing in drawn:
        if drawing.svg:
            (folder / f"{drawing.name}.svg").write_text(drawing.svg)


def _content(findings: StudyFindings, drawn: list[Drawing]) -> Row:
    runs = findings.tables.runs
    kinds = list(dict.fromkeys(runs["kind"]))
    return {
        "about": findings.tables.about,
        "question": findings.tables.about["question"] or "This study states no question.",
        "answer": answer(findings),
        "hedge": HEDGE,
        "broken_rules": broken_rules(findings),
        "cautions": cautions(findings),
        "kinds": {kind: KINDS.get(kind, "") for kind in kinds},
        "num_points": len(runs),
        "num_finished": len(findings.tables.finished),
        "drawings": drawn,
        "tables": page_tables(findings),
        "points": all_points(findings),
        "origin": origin_tables(findings),
    }


def render(template: str, content: Row) -> str:
    environment = Environment(
        loader=PackageLoader("paceline.report"),
        autoescape=lambda name: bool(name and ".html" in name),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"inline": inline, "cell": _markdown_cell, "folded": folded}
    return environment.get_template(template).render(content)


def _markdown_cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")
