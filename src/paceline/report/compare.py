"""Compares two reports: how far each scheme came in the situations that both have."""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from paceline.analysis.analyse import table_path
from paceline.analysis.configuration import matching
from paceline.analysis.frames import Entry, Frame, Row, read_table, require
from paceline.analysis.tables import Tables, read_tables
from paceline.errors import SettingError
from paceline.report.number_format import decimals, percent_points, setting, shown, times
from paceline.report.tiers import tier_of
from paceline.report.words import scheme_words, value_words

_ORIGIN = ("hardware.", "versions.", "commit")  # columns of runs.csv that say where it was run
_ASKED = ("target", "margin")
_HEAD = ["situation", "scheme", "tier A -> B", "speed-up A", "speed-up B", "B / A"]
_HEAD += ["top-1 B - A", "images/s B / A"]
_PARTS = ("mean", "low", "high")


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
    and scheme that both have, by `columns`. `alone`: in words,
    what only A has, and what only B has.
    """

    differs: Sequence[str]
    columns: Sequence[str]
    rows: Frame
    alone: Sequence[Sequence[str]]


def read_report(name: str, reports: Path) -> Report:
    """Read the report of a study in `reports`, or in a folder of this path.

    Raises SettingError("study") if there is neither, or if it was not analysed.
    """
    folder = next((path for path in (reports / name, Path(name)) if path.is_dir()), None)
    if folder is None:
        raise SettingError("study", f"there is no report of {name}, and no folder of this name")
    tables = read_tables(folder)
    first = f"paceline report {folder.name}"
    decision = read_table(require(table_path(folder, "decision"), first))
    return Report(tables, decision, list(dict.fromkeys(["kind", "data", *tables.axes])))


def compare(a: Report, b: Report) -> ComparedReports:
    """Join two reports by the columns that both have; a setting of all points of one is a column.

    Differences and ratios are of B against A, of means, and without an interval.
    """
    a, b = _completed(a, b), _completed(b, a)
    shared = [name for name in a.columns if name in b.columns]
    extra = [name for name in (*a.columns, *b.columns) if name not in shared]
    found: dict[tuple[Entry, ...], list[Frame]] = {}
    for _, row in b.decision.iterrows():
        found.setdefault(_key(row, shared), []).append(row)
    pairs = [(x, y) for _, x in a.decision.iterrows() for y in found.get(_key(x, shared), [])]
    metric = _metric(a, b)
    columns = [*shared, *extra]
    rows = [_identity(x, y, columns) | _compared(a, x, b, y, metric) for x, y in pairs]
    varying = _varying([a.decision, b.decision], columns)
    known = {_key(x, shared) for x, _ in pairs}
    alone = [_alone(each, shared, varying, known) for each in (a, b)]
    return ComparedReports(_differs(a, b, extra), varying, pd.DataFrame(rows), alone)


def as_text(compared: ComparedReports) -> str:
    """Lay the comparison out for a terminal."""
    lines = [f"  {line}" for line in compared.differs]
    lines = [*(["What differs (A | B):", *lines] if lines else ["Both were run alike."]), ""]
    if compared.rows.empty:
        lines.append("There is no situation and scheme that both have.")
    else:
        lines += _aligned([_HEAD, *(_cells(row, compared) for _, row in compared.rows.iterrows())])
        lines.append("A speed-up is against the best one worker of its own report.")
    for name, only in zip("AB", compared.alone, strict=True):
        lines += ["", f"Only {name} has:", *(f"  {text}" for text in only)] if only else []
    return "\n".join(lines)


def _completed(one: Report, other: Report) -> Report:
    """Add the columns that `other` has, and of which all points of `one` have the same value."""
    known = one.tables.about["settings"]
    same = {n: known[n] for n in other.columns if n not in one.columns and n in known}
    return Report(one.tables, one.decision.assign(**same), [*one.columns, *same])


def _key(row: Frame, columns: Sequence[str]) -> tuple[Entry, ...]:
    return tuple(_comparable(row[name]) for name in columns)


def _comparable(value: Entry) -> Entry:
    """Return a value that equals itself, also if it is empty or was read as another type."""
    if pd.isna(value) or value == "":
        return None
    return value if isinstance(value, str) else float(value)


def _alone(
    report: Report, shared: Sequence[str], varying: Sequence[str], known: Container[Entry]
) -> list[str]:
    """Name each situation of rows that the other report lacks, with their schemes."""
    own = [name for name in varying if name in report.columns]
    found: dict[str, list[str]] = {}
    for _, row in report.decision.iterrows():
        if _key(row, shared) not in known:
            situation, scheme = _words(row, own)
            found.setdefault(situation, []).append(scheme)
    return [f"{situation}: {'; '.join(schemes)}" for situation, schemes in found.items()]


def _metric(a: Report, b: Report) -> str:
    """Return top-1 of test, unless one of them has none."""
    both = all(each.tables.runs["test_top1"].notna().any() for each in (a, b))
    return "test_top1" if both else "top1"


def _identity(x: Frame, y: Frame, columns: Sequence[str]) -> Row:
    return {name: x[name] if name in x else y[name] for name in columns}


def _compared(a: Report, x: Frame, b: Report, y: Frame, metric: str) -> Row:
    tops = [_top1(report, row, metric) for report, row in ((a, x), (b, y))]
    row: Row = {"tier_a": tier_of(x), "tier_b": tier_of(y)}
    for name, side in (("a", x), ("b", y)):
        reached = side["n_reached"] > 0  # else it is not a speed-up, but a bound of one
        speeds = {part: side[f"speedup_{part}"] if reached else math.nan for part in _PARTS}
        row |= {f"speedup_{name}_{part}": speed for part, speed in speeds.items()}
    row |= {"speedup_ratio": row["speedup_b_mean"] / row["speedup_a_mean"]}
    row |= {f"{metric}_a": tops[0], f"{metric}_b": tops[1], "top1_difference": tops[1] - tops[0]}
    rates = [side["images_per_second_mean"] for side in (x, y)]
    row |= {"images_per_second_a": rates[0], "images_per_second_b": rates[1]}
    return row | {"images_per_second_ratio": rates[1] / rates[0]}


def _top1(report: Report, row: Frame, metric: str) -> float:
    finished = report.tables.finished
    own = matching(finished, {n: row[n] for n in report.columns if n in finished})
    return float(own[metric].astype(float).mean())


def _varying(decisions: Sequence[Frame], columns: Sequence[str]) -> list[str]:
    """Return the columns that tell rows apart, and in any case the scheme and its workers."""
    values = {
        name: {_comparable(value) for each in decisions if name in each for value in each[name]}
        for name in columns
    }
    always = ("scheme", "workers")
    return [name for name in columns if len(values[name]) > 1 or name in always]


def _words(row: Frame | Row, columns: Sequence[str]) -> list[str]:
    """Say of which situation and scheme a row is."""
    own = [name for name in columns if name == "scheme" or name.startswith("scheme.")]
    names = ["workers", *(name for name in columns if name not in own and name != "workers")]
    texts = [row[n] if n in ("kind", "data") else value_words(n, row[n]) for n in names]
    return [", ".join(texts), scheme_words({name: row[name] for name in own})]


def _cells(row: Frame, compared: ComparedReports) -> list[str]:
    tiers = dict.fromkeys(row[f"tier_{name}"] or "no target" for name in "ab")
    return [
        *_words(row, compared.columns),
        " -> ".join(tiers),
        *(_spread(row, f"speedup_{name}") for name in "ab"),
        shown(row["speedup_ratio"], decimals),
        shown(row["top1_difference"], percent_points),
        shown(row["images_per_second_ratio"], decimals),
    ]


def _spread(row: Frame, name: str) -> str:
    mean, low, high = (row[f"{name}_{part}"] for part in _PARTS)
    return shown(mean, times) + ("" if pd.isna(low) else f" ({times(low)} to {times(high)})")


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
        lines += [f"{column}: varied in {name} alone" for column in extra if column in each.columns]
    return lines


def _origin(runs: Frame) -> Row:
    names = [name for name in runs if name.startswith(_ORIGIN)]
    return {name: ", ".join(dict.fromkeys(map(setting, runs[name]))) for name in names}


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
