"""Compares the reports of two studies, A and B, scheme by scheme in the situations of both."""

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from paceline.analysis.analyse import read_conclusion
from paceline.analysis.configuration import is_of_scheme, matching
from paceline.analysis.frames import Entry, Frame, Row
from paceline.analysis.tables import Tables, read_tables
from paceline.errors import SettingError
from paceline.report.number_format import setting
from paceline.report.page_tables import Column, columns
from paceline.report.tiers import tier_of
from paceline.report.words import say, scheme_words, value_words

_ORIGIN = ("hardware.", "versions.", "commit")  # columns of runs.csv that say where it was run


class Report(NamedTuple):
    """Tables of a report; `columns` are those of `decision` that identify situation and scheme."""

    tables: Tables
    decision: Frame
    columns: Sequence[str]


class ComparedReports(NamedTuple):
    """Two reports, joined: a row for each situation and scheme that both have.

    `columns` identify the rows. `differs` has a line for each difference in how the studies were
    run. `only` names, for each report, the situations and schemes that the other lacks.
    """

    differs: Sequence[str]
    columns: Sequence[str]
    rows: Frame
    only: Sequence[Sequence[str]]


def read_report(name: str, reports: Path) -> Report:
    """Read the report of the study `name` in `reports`, or in a folder with the path `name`.

    Raises SettingError("study") if there is neither folder, or if the study was not analysed.
    """
    folder = next((path for path in (reports / name, Path(name)) if path.is_dir()), None)
    if folder is None:
        raise SettingError("study", f"there is no report of {name}, and no folder of this name")
    tables = read_tables(folder)
    decision = read_conclusion(folder, "decision")
    return Report(tables, decision, list(dict.fromkeys(["kind", "data", *tables.axes])))


def compare(a: Report, b: Report) -> ComparedReports:
    """Join two reports by the columns that identify situation and scheme in both.

    A setting that only one study varied is also used if the other study has a single value of it.
    Each difference is that of means, B minus A, and each ratio B divided by A, without an interval.
    """
    a, b = _completed(a, b), _completed(b, a)
    shared = [name for name in a.columns if name in b.columns]
    extra = [name for name in (*a.columns, *b.columns) if name not in shared]
    both_tested = all(each.tables.runs["test_top1"].notna().any() for each in (a, b))
    metric = "test_top1" if both_tested else "top1"
    own = a.columns, [name for name in b.columns if name not in shared]
    sides = [
        _numbers(report, side, metric, shared).join(report.decision[columns])
        for report, side, columns in zip((a, b), "ab", own, strict=True)
    ]
    rows = sides[0].merge(sides[1], on="key")
    rows["speedup_ratio"] = rows["speedup_b_mean"] / rows["speedup_a_mean"]
    rows["top1_difference"] = rows[f"{metric}_b"] - rows[f"{metric}_a"]
    rows["images_per_second_ratio"] = rows["images_per_second_b"] / rows["images_per_second_a"]
    names = [*shared, *extra]
    cells = {n: [c for each in (a, b) for c in each.decision.get(n, ())] for n in names}
    varying = [
        name
        for name in names
        if name in ("scheme", "workers") or len({*map(_comparable, cells[name])}) > 1
    ]
    known = set(rows["key"])
    only = [_only(*each, varying, known) for each in zip((a, b), sides, strict=True)]
    rows = rows[names + [name for name in rows if name not in ("key", *names)]]
    return ComparedReports(_differs(a, b, extra), varying, rows, only)


def as_text(compared: ComparedReports) -> str:
    """Return the comparison as a text for a terminal."""
    shown = (
        Column("situation", lambda row: _situation(row, compared.columns)),
        Column("scheme", lambda row: _scheme(row, compared.columns)),
        *columns("compared"),
    )
    rows = [[each.heading for each in shown]]
    rows += [[each.text(row) for each in shown] for _, row in compared.rows.iterrows()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    only = dict(zip("AB", compared.only, strict=True))
    return say("compared_reports", differs=compared.differs, rows=lines, only=only)


def _completed(one: Report, other: Report) -> Report:
    """Add to `one` those columns of `other` whose setting has one value in all points of `one`."""
    known = one.tables.about["settings"]
    same = {n: known[n] for n in other.columns if n not in one.columns and n in known}
    return Report(one.tables, one.decision.assign(**same), [*one.columns, *same])


def _comparable(value: Entry) -> Entry:
    """Return a value of a cell so that cells of both reports compare: None, a text or a float."""
    if pd.isna(value) or value == "":
        return None
    return value if isinstance(value, str) else float(value)


def _numbers(report: Report, side: str, metric: str, shared: Sequence[str]) -> Frame:
    """Return the numbers to compare for each row of the table `report.decision`, with a `key` by
    which to join the rows of two reports.
    """
    rows, finished = report.decision, report.tables.finished
    reached = rows["n_reached"] > 0  # without, a speed-up is only a bound
    points = rows[[name for name in report.columns if name in finished]]
    keys = [repr([_comparable(row[name]) for name in shared]) for _, row in rows.iterrows()]
    numbers: Row = {f"tier_{side}": [tier_of(row) for _, row in rows.iterrows()]}
    ends = ("mean", "low", "high")
    numbers |= {f"speedup_{side}_{end}": rows[f"speedup_{end}"].where(reached) for end in ends}
    numbers[f"{metric}_{side}"] = [
        matching(finished, dict(row))[metric].astype(float).mean() for _, row in points.iterrows()
    ]
    numbers[f"images_per_second_{side}"] = rows["images_per_second_mean"]
    return pd.DataFrame(numbers | {"key": keys}, rows.index)


def _only(report: Report, rows: Frame, varying: Sequence[str], known: Container[str]) -> list[str]:
    """Name the situations and schemes of rows that the other report lacks (not in `known`)."""
    own = [name for name in varying if name in report.columns]
    found: dict[str, list[str]] = {}
    for key, (_, row) in zip(rows["key"], report.decision.iterrows(), strict=True):
        if key not in known:
            found.setdefault(_situation(row, own), []).append(_scheme(row, own))
    return [f"{situation}: {'; '.join(schemes)}" for situation, schemes in found.items()]


def _situation(row: Frame, columns: Sequence[str]) -> str:
    names = dict.fromkeys(["workers", *(name for name in columns if not is_of_scheme(name))])
    words = (row[n] if n in ("kind", "data") else value_words(n, row[n]) for n in names)
    return ", ".join(filter(None, words))


def _scheme(row: Frame, columns: Sequence[str]) -> str:
    return scheme_words({name: row[name] for name in columns if is_of_scheme(name)})


def _differs(a: Report, b: Report, extra: Sequence[str]) -> list[str]:
    sides = [_how(each) for each in (a, b)]
    names = {**sides[0], **sides[1]}
    texts = {name: [str(side.get(name, "not known")) for side in sides] for name in names}
    lines = [f"{name}: {one} | {other}" for name, (one, other) in texts.items() if one != other]
    for name, each in zip("AB", (a, b), strict=True):
        lines += [f"{column}: varied only in {name}" for column in extra if column in each.columns]
    return lines


def _how(report: Report) -> Mapping[str, Entry]:
    """Return what was asked of a study, its settings, and the machine and code it was run with."""
    about, runs = report.tables.about, report.tables.runs
    origin = [name for name in runs if name.startswith(_ORIGIN)]
    return {
        "asked target": about["target"],
        "asked margin": about["margin"],
        "target reached for": ", ".join(map(setting, report.decision["target"].unique())),
        **about["settings"],
        **{name: ", ".join(dict.fromkeys(map(setting, runs[name]))) for name in origin},
    }
