"""Front page of all studies: README.md in reports/, made from the metrics.json of each study."""

from pathlib import Path

import pandas as pd

from paceline.analysis.configuration_table import NAME, known
from paceline.analysis.frames import Row
from paceline.errors import SettingError
from paceline.record.label import label
from paceline.record.report_files import damaged, read_about, read_values, replaced
from paceline.report.findings import StudyFindings
from paceline.report.number_format import percent
from paceline.report.render import render
from paceline.report.summary import one_line

PAGE = "README.md"
METRICS = "metrics.json"
_MEANS = {  # columns of configurations.csv, by their names in metrics.json
    "top1": "test_top1_mean",
    "images_per_second": "images_per_second_mean",
    "target_seconds": "target_seconds_mean",
}
_FIRST = ("grid", "schemes", "example")  # in front; the page shows the figure of the first
_PUBLISHED = "predictions/predictions.csv"  # of `paceline predict --published`


def study_metrics(findings: StudyFindings) -> Row:
    """Return the content of a study's metrics.json, which `dvc metrics diff` compares.

    It has means over seeds by configuration, as in {"top1": {"async x2": 0.9}}, how many runs
    finished, and the `answer` in one line. Accuracy comes first, so that a terminal has room for it
    in the table of `dvc exp show`.
    """
    table = findings.concluded[NAME]
    kinds = ["kind"] * (table["kind"].nunique() > 1)
    names = ["scheme", "workers", *findings.varying, *kinds]
    means = {
        name: {
            label(row, names): float(f"{row[column]:.6g}")
            for _, row in known(table, column).iterrows()
        }
        for name, column in _MEANS.items()
    }
    finished = {"n_finished": len(findings.tables.finished)}
    return (
        {name: of for name, of in means.items() if of} | finished | {"answer": one_line(findings)}
    )


def write_front_page(reports: Path) -> Path:
    """Write README.md into `reports` from the metrics.json of its studies; return its path.

    Studies without a report are listed there, each with the command to run. Equal metrics result in
    files of equal bytes.
    """
    studies, missing = list[Row](), list[str]()
    for folder in sorted((path.parent for path in reports.glob("*/runs.csv")), key=_place):
        try:
            about = read_about(folder, f"paceline sweep {folder.name}")
            studies.append(about | {"study": folder.name} | _read(folder / METRICS))
        except SettingError as error:
            missing.append(error.message.replace(f"{reports}/", ""))
    content = {
        "studies": studies,
        "missing": missing,
        "figure": next((each["study"] for each in studies if each["study"] == _FIRST[0]), ""),
        "published": _published(reports / _PUBLISHED),
        "papers": _claims(reports / "papers/verdicts.csv"),
    }
    with replaced(reports) as new:
        (new / PAGE).write_text(render("front.md.j2", content))
    return reports / PAGE


def _place(folder: Path) -> tuple[int, str]:
    name = folder.name
    return _FIRST.index(name) if name in _FIRST else len(_FIRST), name


def _read(path: Path) -> Row:
    command = f"paceline report {path.parent.name}"
    content = read_values(path, command)
    try:
        return {name: content[name] for name in ("n_finished", "answer")}
    except KeyError as error:
        raise damaged(path, f"is damaged: it has no {error}", command) from error


def _claims(path: Path) -> str:
    """Say how many claims of papers hold; "" if none was tested."""
    if not path.is_file():
        return ""
    rows = pd.read_csv(path)
    known = rows["after_runs"] & (rows["verdict"] != "open")
    found = rows["verdict"].value_counts().items()
    words = "; ".join(f"{verdict}: {number}" for verdict, number in found)
    return f"{words} ({known.sum()} of those decided, with a range set when the result was known)"


def _published(path: Path) -> str:
    """Say how well published numbers were predicted; "" if nothing was predicted."""
    if not path.is_file():
        return ""
    rows = pd.read_csv(path)
    errors = rows.loc[rows["verdict"] == "judged", "error"].abs()
    return (
        f"{len(errors)} of {len(rows)} published numbers could be judged: their median error is "
        f"{percent(errors.median(), 0)}, the largest {percent(errors.max(), 0)}"
    )
