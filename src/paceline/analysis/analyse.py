"""Turns the tables of a study's points into tables of conclusions."""

import json
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from paceline.analysis.cautions import cautions
from paceline.analysis.clocks import clock_agreement, clocks
from paceline.analysis.configuration_table import NAME, configuration_table
from paceline.analysis.crossovers import crossovers
from paceline.analysis.decision import decision
from paceline.analysis.frames import Frame, write_table
from paceline.analysis.mean_curves import mean_curves
from paceline.analysis.metrics import metrics
from paceline.analysis.points import points
from paceline.analysis.predicted import predicted_comparisons
from paceline.analysis.rules import RULES, rules
from paceline.analysis.searches import tuning_curve
from paceline.analysis.tables import Tables, read_tables


class Conclusion(NamedTuple):
    """Declaration of a table of conclusions, tables/`name`.csv, which `make` derives from a study.

    With a `caption` the page shows the table as it is; without one, the report has a layout of its
    own for it, or only links to it. An `exact` table is written with all digits, as runs.csv is,
    because figures need them.
    """

    name: str
    make: Callable[[Tables], Frame]
    caption: str = ""
    exact: bool = False


CONCLUSIONS = [
    Conclusion(NAME, configuration_table),
    Conclusion("decision", decision),
    Conclusion("crossovers", crossovers),
    Conclusion("points", points, exact=True),
    Conclusion("mean_curves", mean_curves),
    Conclusion("blocks", attrgetter("blocks")),
    Conclusion("clocks", clocks),
    Conclusion("clock_agreement", clock_agreement),
    Conclusion("predicted_comparisons", predicted_comparisons),
    Conclusion("tuning_curve", tuning_curve),
    Conclusion("cautions", cautions),
    Conclusion("rules", rules, caption=RULES),
]
FOLDER = "tables"  # name of the folder in the report of a study


def analyse(folder: Path) -> None:
    """Write a CSV for each of CONCLUSIONS, even if it has no rows, and metrics.json.

    `folder` is reports/<study>, the output of `paceline sweep`. Equal tables result in equal
    bytes. Raises SettingError("study") if the collected tables are missing.
    """
    tables = read_tables(folder)
    made = {each.name: each.make(tables) for each in CONCLUSIONS}
    (folder / FOLDER).mkdir(exist_ok=True)
    for old in (folder / FOLDER).glob("*.csv"):
        old.unlink()
    for each in CONCLUSIONS:
        write_table(table_path(folder, each.name), made[each.name], exact=each.exact)
    numbers = metrics(tables, made[NAME], made["decision"])
    (folder / "metrics.json").write_text(json.dumps(numbers, indent=1, allow_nan=False) + "\n")


def table_path(folder: Path, name: str) -> Path:
    """Return the path of the conclusion `name` in the report `folder` of a study."""
    return folder / FOLDER / f"{name}.csv"
