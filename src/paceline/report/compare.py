"""Compares two reports: how far each scheme came in the situations that both have."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from paceline.analysis.configuration import matching
from paceline.analysis.frames import Entry, Frame, Row
from paceline.analysis.tables import Tables, read_tables
from paceline.errors import SettingError
from paceline.report.choice import tier_of
from paceline.report.findings import read_conclusion
from paceline.report.number_format import (
    MISSING,
    decimals,
    interval,
    percent_points,
    setting,
    times,
)
from paceline.report.table import Column, value
from paceline.report.words import scheme_words, value_words

_ORIGIN = ("hardware.", "versions.", "commit")  # columns of runs.csv that say where it was run
_ASKED = ("target", "margin")
_COLUMNS = (
    Column("tier A -> B", lambda row: " -> ".join(_tiers(row))),
    Column("speed-up A", lambda row: interval(row, "speedup_a", times) or MISSING),
    Column("speed-up B", lambda row: interval(row, "speedup_b", times) or MISSING),
    value("B / A", "speedup_ratio", decimals),
    value("top-1 B - A, points", "top1_difference", percent_points),
    value("images/s B / A", "images_per_second_ratio", decimals),
)


def _tiers(row: Frame) -> dict[str, None]:
    return dict.fromkeys(row[f"tier_{side}"] or "no target" for side in "ab")


@dataclass(frozen=True)
class Report:
    """Tables of a report: `columns` of `decision` say of which situation and scheme a row is."""

    tables: Tables
    decision: Frame
    columns: Sequence[str]


@dataclass(frozen=True)
class ComparedReports:
    """Two reports, joined.

    `differs`: what differs between how they were run, a line each. `rows`: one for each situation
    and scheme that both have, by `columns`. `only`: in words, what only A has, and what only B has.
    """

    differs: Sequence[str]
    columns: Sequence[str]
    rows: Frame
    only: Sequence[Sequence[str]]


def read_report(name: str, reports: Path) -> Report:
    """Read the report of a study in `reports`, or in a folder of this path.

    Raises SettingError("study") if there is neither, or if it was not analysed.
    """
    folder = next((path for path in (reports / name, Path(name)) if path.is_dir()), None)
    if folder is None:
        raise SettingError("study", f"there is no report of {name}, and no folder of this name")
    tables = read_tables(folder)
    decision = read_conclusion(folder, "decision")
    return Report(tables, decision, list(dict.fromkeys(["kind", "data", *tables.axes])))


def compare(a: Report, b: Report) -> ComparedReports:
    """Join two reports by the columns that both have; a setting of all points of one is a column.

    Differences and ratios are of B against A, of means, and without an interval.
    """
    a, b = _completed(a, b), _completed(b, a)
    shared = [name for name in a.columns if name in b.columns]
    extra = [name for name in (*a.columns, *b.columns) if name not in shared]
    both_tested = all(each.tables.runs["test_top1"].notna().any() for each in (a, b))
    metric = "test_top1" if both_tested else "top1"
    of_b = [name for name in b.columns if name not in shared]
    sides = [
        _numbers(report, side, metric).join(report.decision[columns])
        for report, side, columns in ((a, "a", a.columns), (b, "b", of_b))
    ]
    keys = [_keys(each, shared) for each in (a, b)]
    rows = sides[0].assign(key=keys[0]).merge(sides[1].assign(key=keys[1]), on="key")
    rows["speedup_ratio"] = rows["speedup_b_mean"] / rows["speedup_a_mean"]
    rows["top1_difference"] = rows[f"{metric}_b"] - rows[f"{metric}_a"]
    rows["images_per_second_ratio"] = rows["images_per_second_b"] / rows["images_per_second_a"]
    varying = _varying([a.decision, b.decision], [*shared, *extra])
    known = set(rows["key"])
    only = [_only(*each, varying, known) for each in zip((a, b), keys, strict=True)]
    numbers = [name for name in rows if name not in ("key", *shared, *extra)]
    return ComparedReports(_differs(a, b, extra), varying, rows[[*shared, *extra, *numbers]], only)


def as_text(compared: ComparedReports) -> str:
    """Lay the comparison out for a terminal."""
    lines = [f"  {line}" for line in compared.differs]
    lines = [*(["What differs (A | B):", *lines] if lines else ["Both were run alike."]), ""]
    if compared.rows.empty:
        lines.append("There is no situation and scheme that both have.")
    else:
        cells = [
            [*_words(row, compared.columns), *(column.text(row) for column in _COLUMNS)]
            for _, row in compared.rows.iterrows()
        ]
        lines += _aligned([["situation", "scheme", *(each.title for each in _COLUMNS)], *cells])
        lines.append("Each speed-up is over the best single worker of the same report.")
    for name, only in zip("AB", compared.only, strict=True):
        lines += ["", f"Only {name} has:", *(f"  {text}" for text in only)] if only else []
    return "\n".join(lines)


def _completed(one: Report, other: Report) -> Report:
    """Add the columns that `other` has, and of which all points of `one` have the same value."""
    known = one.tables.about["settings"]
    same = {n: known[n] for n in other.columns if n not in one.columns and n in known}
    return Report(one.tables, one.decision.assign(**same), [*one.columns, *same])


def _keys(report: Report, shared: Sequence[str]) -> list[str]:
    """Return what identifies each row of the decision, equal in both reports."""
    return [
        repr([_comparable(row[name]) for name in shared]) for _, row in report.decision.iterrows()
    ]


def _comparable(value: Entry) -> Entry:
    """Return a value that equals itself, also if it is empty or was read as another type."""
    if pd.isna(value) or value == "":
        return None
    return value if isinstance(value, str) else float(value)


def _numbers(report: Report, side: str, metric: str) -> Frame:
    """Return the compared numbers of each row of the decision, under names of this side."""
    rows = report.decision
    reached = rows["n_reached"] > 0  # without, a speed-up is only a bound
    of_points = [name for name in report.columns if name in report.tables.finished]
    tops = [
        matching(report.tables.finished, dict(row))[metric].astype(float).mean()
        for _, row in rows[of_points].iterrows()
    ]
    numbers: Row = {f"tier_{side}": [tier_of(row) for _, row in rows.iterrows()]}
    for part in ("mean", "low", "high"):
        numbers[f"speedup_{side}_{part}"] = rows[f"speedup_{part}"].where(reached)
    rates = rows["images_per_second_mean"]
    numbers |= {f"{metric}_{side}": tops, f"images_per_second_{side}": rates}
    return pd.DataFrame(numbers, rows.index)


def _only(
    report: Report, keys: Sequence[str], varying: Sequence[str], known: Container[str]
) -> list[str]:
    """Name each situation of rows that the other report lacks, with their schemes."""
    own = [name for name in varying if name in report.columns]
    found: dict[str, list[str]] = {}
    for key, (_, row) in zip(keys, report.decision.iterrows(), strict=True):
        if key not in known:
            situation, scheme = _words(row, own)
            found.setdefault(situation, []).append(scheme)
    return [f"{situation}: {'; '.join(schemes)}" for situation, schemes in found.items()]


def _varying(decisions: Sequence[Frame], columns: Sequence[str]) -> list[str]:
    """Return the columns by which rows differ, and in any case the scheme and its workers."""
    values = {
        name: {_comparable(value) for each in decisions if name in each for value in each[name]}
        for name in columns
    }
    return [name for name in columns if len(values[name]) > 1 or name in ("scheme", "workers")]


def _words(row: Frame | Row, columns: Sequence[str]) -> list[str]:
    """Say of which situation and scheme a row is."""
    own = [name for name in columns if name == "scheme" or name.startswith("scheme.")]
    names = ["workers", *(name for name in columns if name not in own and name != "workers")]
    texts = [row[n] if n in ("kind", "data") else value_words(n, row[n]) for n in names]
    return [", ".join(texts), scheme_words({name: row[name] for name in own})]


def _differs(a: Report, b: Report, extra: Sequence[str]) -> list[str]:
    abouts = [each.tables.about for each in (a, b)]
    sides = [
        {f"asked {name}": about[name] for name in _ASKED}
        | {"target reached for": ", ".join(map(setting, each.decision["target"].unique()))}
        | dict(about["settings"])
        | _origin(each.tables.runs)
        for about, each in zip(abouts, (a, b), strict=True)
    ]
    names = dict.fromkeys([*sides[0], *sides[1]])
    texts = {name: [str(side.get(name, "not known")) for side in sides] for name in names}
    lines = [f"{name}: {one} | {other}" for name, (one, other) in texts.items() if one != other]
    for name, each in zip("AB", (a, b), strict=True):
        lines += [f"{column}: varied only in {name}" for column in extra if column in each.columns]
    return lines


def _origin(runs: Frame) -> Row:
    names = [name for name in runs if name.startswith(_ORIGIN)]
    return {name: ", ".join(dict.fromkeys(map(setting, runs[name]))) for name in names}


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
