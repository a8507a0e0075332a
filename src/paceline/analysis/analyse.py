"""Derives the tables of conclusions of a study from the tables of its points (single runs)."""

import json
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from paceline.analysis.cautions import cautions
from paceline.analysis.clocks import clock_agreement, clocks
from paceline.analysis.configuration import counts, groups, situation_columns, size_of
from paceline.analysis.configuration_table import NAME, configuration_table
from paceline.analysis.decision import best_and_faster, decision
from paceline.analysis.frames import Frame, Row, read_tied, write_table
from paceline.analysis.points import points
from paceline.analysis.predicted import predicted_comparisons
from paceline.analysis.rules import RULES, rules
from paceline.analysis.searches import tuning_curve
from paceline.analysis.tables import Tables, read_tables
from paceline.errors import SettingError
from paceline.record.tied_files import SUMS, replaced, require_sources, write_sums


class Conclusion(NamedTuple):
    """Table of conclusions that `make` derives from a study; it is written to tables/`name`.csv.

    A table with a `caption` is shown on the page of the study with all its columns. For a table
    without one, the page has its own layout, or only a link to the file. If `exact` is True,
    numbers are written with all digits, because charts are drawn from them; else they are rounded.
    `needs`: a column that tables of earlier versions lack.
    """

    name: str
    make: Callable[[Tables], Frame]
    caption: str = ""
    exact: bool = False
    needs: str = ""


CONCLUSIONS = [
    Conclusion(NAME, configuration_table),
    Conclusion("decision", decision, needs="less_accurate_than"),
    Conclusion("points", points, exact=True),
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
    """Write a CSV for each of CONCLUSIONS, and metrics.json, into `folder`, reports/<study>.

    Equal input tables result in files of equal bytes. Raises SettingError("study") if a table of
    the study is missing, damaged or changed, or if the files cannot be written.
    """
    tables = read_tables(folder)
    made = {each.name: each.make(tables) for each in CONCLUSIONS}
    numbers = metrics(tables, made[NAME], made["decision"])
    with replaced(folder) as new:
        for each in CONCLUSIONS:
            write_table(table_path(new, each.name), made[each.name], exact=each.exact)
        tie_tables(new, folder)
        (new / "metrics.json").write_text(json.dumps(numbers, indent=1, allow_nan=False) + "\n")


def tie_tables(new: Path, folder: Path) -> None:
    """Write the digests of all tables in `new`/tables, and of their sources in `folder`."""
    files = {path.name: path for path in (new / FOLDER).glob("*.csv")}
    sources = folder / SUMS, folder / "predictions.csv"
    files |= {f"../{path.name}": path for path in sources if path.exists()}
    write_sums(new / FOLDER / SUMS, files)


def read_conclusion(folder: Path, name: str) -> Frame:
    """Read the table of conclusions `name` in `folder`, reports/<study>.

    Raises SettingError("study"), which names the command to run first, if it is missing, if it was
    changed, if the tables of the study are others than those that it follows from, or if an earlier
    version of Paceline made it.
    """
    path, command = table_path(folder, name), f"paceline report {folder.name}"
    table = read_tied(path, command)
    require_sources(path.with_name(SUMS), command)
    needed = [each.needs for each in CONCLUSIONS if each.name == name and each.needs]
    if len(table) and not set(needed) <= set(table):
        message = f"an earlier version of Paceline made {path}; first: {command}"
        raise SettingError("study", message)
    return table


def table_path(folder: Path, name: str) -> Path:
    """Return the path of the conclusion `name` in the report `folder` of a study."""
    return folder / FOLDER / f"{name}.csv"


def metrics(tables: Tables, configurations: Frame, decided: Frame) -> Row:
    """Return the numbers that `dvc metrics diff` compares, without those that have no value.

    `n_situations` is the number of situations with several workers and several schemes. `n_decided`
    is the number of these situations in which the best scheme is shown to be faster than one
    worker, and no other scheme is tied with it. `best_speedup` is the largest speed-up of a best
    scheme that is shown to be faster than one worker, and `best_speedup_workers` the number of
    workers of that scheme.
    """
    numbers: Row = {"n": len(tables.runs)} | counts(tables.runs)
    numbers |= {"n_missing": len(tables.about["missing"])} | _decisions(tables, decided)
    for name in ("test_top1", "images_per_second"):
        numbers[f"best_{name}"] = _short(configurations[f"{name}_mean"].max())
    return {name: value for name, value in numbers.items() if not pd.isna(value)}


def _decisions(tables: Tables, decided: Frame) -> Row:
    if not len(decided):
        return {"n_situations": 0, "n_decided": 0}
    faster = best_and_faster(decided)
    found = [
        own
        for situation, own in groups(decided, situation_columns(tables.axes))
        if len(own) > 1 and size_of(situation) > 1
    ]
    clear = [own for own in found if "tied" not in list(own["tier"])]
    numbers: Row = {
        "n_situations": len(found),
        "n_decided": sum(any(own.index.isin(faster.index)) for own in clear),
    }
    shown = faster[faster["speedup_mean"].notna()]
    if len(shown):
        row = shown.loc[shown["speedup_mean"].astype(float).idxmax()]
        numbers["best_speedup"] = _short(row["speedup_mean"])
        numbers["best_speedup_workers"] = int(row["workers"])
    return numbers


def _short(value: float) -> float:
    return float(f"{value:.6g}")
