"""Declares the tables on pages: their columns, with headings, units and formats of cells."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from paceline.analysis.analyse import FOLDER
from paceline.analysis.clocks import LITTLE
from paceline.analysis.configuration_table import NAME, known
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import EXCHANGE_NEAR, SIZE
from paceline.analysis.time_to_target import IN_A_ROW
from paceline.record.result import shown_numbers
from paceline.report.findings import StudyFindings, of_several_schemes
from paceline.report.how_it_was_run import target_metric, target_origin
from paceline.report.number_format import (
    FORMS,
    MISSING,
    Form,
    form_of,
    setting,
    shown,
    with_interval,
)
from paceline.report.words import phrase, read, say

_RESULTS = ("clocks", "predicted", "decision", "time_to_target", "configurations")
_RESULTS += ("predicted_exchange",)


@dataclass(frozen=True)
class Table:
    """Table of a page with the heading `name`; its numbers are those of the CSV `source`.

    Each row has one text per column.
    """

    name: str
    caption: str
    source: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Column:
    """Column of a table: `heading` includes the unit, and `text` returns the cell of a row."""

    heading: str
    text: Callable[[Frame], str]


def columns(name: str, facts: Row | None = None) -> list[Column]:
    """Return the columns of the table `name`, as templates/tables.yaml declares them.

    Phrases in these columns can use `facts` about the study and the cells of a row.
    """
    return [_column(facts or {}, **each) for each in read("tables")[name]["columns"]]


def _column(facts: Row, heading: str, form: str = "setting", **shown: str) -> Column:
    ((kind, what),) = shown.items()
    if kind == "text":
        return Column(heading, lambda row: phrase(what).render(facts | dict(row), row=row))
    return {"value": of_value, "mean": of_mean}[kind](heading, what, FORMS[form])


def of_value(heading: str, name: str, form: Form = setting) -> Column:
    """Return a column that shows the number or word in the column `name`; a dash if missing."""
    return Column(heading, lambda row: shown(row.get(name), form))


def of_mean(heading: str, name: str, form: Form) -> Column:
    """Return a column that shows a mean with interval and n; a dash without a mean.

    The cells are those in the columns <name>_mean, <name>_low, <name>_high and <name>_n.
    """
    return Column(heading, lambda row: with_interval(row, name, form))


def axes(names: Iterable[str]) -> list[Column]:
    """Return a column for each of these settings; a setting without a value is shown as "null"."""
    return [Column(name, lambda row, name=name: setting(row[name])) for name in names]


def table(name: str, caption: str, source: str, columns: Sequence[Column], frame: Frame) -> Table:
    """Return a table that shows each row of `frame` in these columns.

    If `frame` has a column `kind`, it is shown last.
    """
    columns = [*columns, *axes(["kind"] if "kind" in frame else [])]
    rows = [[column.text(row) for column in columns] for _, row in frame.iterrows()]
    return Table(name, caption, source, [column.heading for column in columns], rows)


def filled(name: str, rows: Sequence[Row]) -> Table:
    """Return a table of those columns that have a text in any row."""
    names = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in names if any(row.get(name) for row in rows)]
    cells = [[row.get(name) or MISSING for name in names] for row in rows]
    return Table(name, "", "", names, cells)


def page_tables(findings: StudyFindings) -> list[Table]:
    """Return the tables of results that have a row, each with the axes of its rows first."""
    facts, tables = _facts(findings), list[Table]()
    for name in _RESULTS:
        declared, source = read("tables")[name], name if name in findings.concluded else NAME
        title, caption = phrase(declared["title"]).render(facts), say(f"caption_{name}", facts)
        rows, own = findings.concluded[source], columns(name, facts)
        if "known" in declared:
            rows = known(findings.configurations, declared["known"])
        elif name == NAME:
            own = [*own, *_numbers(findings)]
        elif name == "decision" and not of_several_schemes(findings):
            continue
        named = ("scheme", "workers", *findings.varying)
        every = [*axes(axis for axis in named if axis in rows), *own]
        tables.append(table(title, caption, f"{FOLDER}/{source}.csv", every, rows))
    return [each for each in tables if each.rows]


def _facts(findings: StudyFindings) -> Row:
    """Return the facts about the study that captions use."""
    table, kinds = findings.concluded[NAME], set(findings.tables.runs["kind"])
    return {
        "varying": findings.varying,
        "twins": " and ".join(findings.concluded["clocks"]["against"].unique()) or "measured",
        "margin": findings.tables.about["margin"],
        "means": say("caption_means"),
        "real": "virtual" in kinds and len(findings.known("real_seconds_mean")) > 0,
        "little": LITTLE,
        "halves": "rate_half" in table and table["rate_half"].any(),
        "near": EXCHANGE_NEAR,
        "size": SIZE,
        "strong": findings.tables.is_strong,
        "origin": target_origin(findings),
        "in_a_row": IN_A_ROW,
        "side": "below" if target_metric(findings) == "loss" else "above",
    }


def _numbers(findings: StudyFindings) -> list[Column]:
    """Return a column for each number of a run that has a value in any configuration."""
    frame = findings.concluded[NAME]
    has_virtual = "virtual" in set(frame["kind"])
    return [
        of_mean(number.heading, number.name, form_of(number.unit))
        for number in shown_numbers()
        if has_virtual or not number.beside_virtual
        if f"{number.name}_mean" in frame and frame[f"{number.name}_mean"].notna().any()
    ]
