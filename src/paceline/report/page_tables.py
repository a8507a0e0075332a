"""Declares the tables on pages: their columns, with headings, units and formats of cells."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from paceline.analysis.analyse import FOLDER
from paceline.analysis.clocks import LITTLE
from paceline.analysis.configuration import finished, matching
from paceline.analysis.configuration_table import NAME
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import EXCHANGE_NEAR, SIZE
from paceline.analysis.statistics.times import IN_A_ROW
from paceline.grouped import grouped
from paceline.record.result import shown_numbers
from paceline.report.answer import (
    BUDGETS,
    choices,
    searched_words,
    target_metric,
    validation_images,
)
from paceline.report.findings import StudyFindings
from paceline.report.how_it_was_run import target_origin
from paceline.report.number_format import (
    FORMS,
    Form,
    form_of,
    setting,
    shown,
    with_interval,
)
from paceline.report.words import phrase, read, say, scheme_words

_RESULTS = ("clocks", "predicted", "summary", "scaling", "comparison")
_RESULTS += ("time_to_target", "losses", "predicted_exchange")
_DIFFERENCE = "one_worker_top1_difference"


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


def page_tables(findings: StudyFindings) -> list[Table]:
    """Return the tables of results that have a row."""
    facts, tables = _facts(findings), list[Table]()
    for name in _RESULTS:
        declared, source = read("tables")[name], name if name in findings.concluded else NAME
        title, caption = phrase(declared["title"]).render(facts), say(f"caption_{name}", facts)
        rows, own = findings.concluded[source], columns(name, facts)
        if "known" in declared:
            rows = findings.known(declared["known"])
        elif source == NAME:  # a section of numbers has the title of its table
            own = [*_numbers(findings, title), *own]
        tables.append(_concluded(findings, source, title, caption, own, rows))
    return [each for each in tables if each.rows]


def scale_table(findings: StudyFindings) -> Table | None:
    """Return the table of all schemes and numbers of workers; None if there is nothing to say."""
    rows = rows_at_scale(findings)
    if rows.empty:
        return None
    facts = {"margin": findings.tables.about["margin"]}
    rows["verdict"] = [say(f"verdict_{verdict}", facts) for verdict in rows["verdict"]]
    rows = rows if rows["kind"].nunique() > 1 else rows.drop(columns="kind")
    caption, source = say("caption_at_scale", facts), f"{FOLDER}/decision.csv"
    return table(
        "Each scheme at each number of workers", caption, source, columns("at_scale"), rows
    )


def rows_at_scale(findings: StudyFindings) -> Frame:
    """Return rows of decision.csv of several numbers of workers, by scheme.

    They are of kinds of runs whose situations differ in their number of workers only, and that are
    compared with one worker; those with another budget than it are left out. Further columns:
    `words` of the scheme; `verdict`, as of `verdict_of`; and of the runs
    their `lr`, `momentum`, number of `updates`, and as `own` the words of the scheme's setting that
    a search chose.
    """
    rows, alone = list[Row](), matching(findings.concluded["decision"], {"workers": 1})
    every = [
        situation
        for situation, _ in choices(findings)
        if alone.empty
        or all(situation.values[name] in set(alone[name]) for name in BUDGETS if name in alone)
    ]
    for own in grouped(every, lambda each: each.values["kind"]).values():
        settings = [{**each.values, "workers": None} for each in own]
        if len(own) < 2 or any(each != settings[0] for each in settings):
            continue
        own = sorted(own, key=lambda each: each.size)
        decided: Frame = pd.concat([each.of(findings.concluded["decision"]) for each in own])
        if decided[f"{_DIFFERENCE}_mean"].notna().any():
            found = [_row(findings, row) for _, row in decided.iterrows()]
            rows += [
                row for same in grouped(found, lambda row: row["words"]).values() for row in same
            ]
    return pd.DataFrame(rows)


def _row(findings: StudyFindings, row: Frame) -> Row:
    tables, known = findings.tables, [name for name in row.index if name not in findings.of_size]
    axes = [name for name in ("kind", *tables.axes) if name in known]
    points = matching(tables.runs, dict(row[axes]))
    alike = {n: points[n].iloc[0] for n in ("lr", "momentum") if points[n].nunique() == 1}
    return {
        **row,
        "words": scheme_words(row),
        "verdict": verdict_of(row),
        **alike,
        "updates": finished(points)["updates"].mean(),
        "own": searched_words(findings, row),
    }


def verdict_of(row: Frame | Row) -> str:
    """Return the verdict on the accuracy of a row of decision.csv, against one worker.

    A phrase with the name verdict_<verdict> says it.
    """
    if row["n_diverged"]:
        return "some_diverged" if row["n_finished"] else "all_diverged"
    if row["at_edge"]:
        return "at_edge"
    if pd.isna(row[f"{_DIFFERENCE}_low"]):
        return "unknown"
    if row["one_worker_within_margin"] == 1:
        return "within"
    return str(row["one_worker_accuracy"])


def _concluded(
    findings: StudyFindings,
    name: str,
    title: str,
    caption: str,
    own: Sequence[Column],
    rows: Frame,
) -> Table:
    """Return a table that shows rows of the conclusion `name`: their axes, then `own` columns."""
    every = [*_axes_of(findings, rows), *own]
    return table(title, caption, f"{FOLDER}/{name}.csv", every, rows)


def _axes_of(findings: StudyFindings, frame: Frame) -> list[Column]:
    """Return the columns that identify the configuration of a row."""
    return axes(name for name in ("scheme", "workers", *findings.varying) if name in frame)


def _facts(findings: StudyFindings) -> Row:
    """Return the facts about the study that captions use."""
    known = findings.concluded[NAME]
    real = known.get("real_seconds_mean", pd.Series(dtype=float))
    return {
        "varying": findings.varying,
        "twins": " and ".join(findings.concluded["clocks"]["against"].unique()) or "measured",
        "means": say("caption_means"),
        "real": real.notna().any() and "virtual" in set(findings.tables.runs["kind"]),
        "little": LITTLE,
        "halves": "rate_half" in known and known["rate_half"].any(),
        "near": EXCHANGE_NEAR,
        "size": SIZE,
        "strong": findings.tables.is_strong,
        "images": validation_images(findings),
        "origin": target_origin(findings),
        "in_a_row": IN_A_ROW,
        "side": "below" if target_metric(findings) == "loss" else "above",
    }


def _numbers(findings: StudyFindings, section: str) -> list[Column]:
    """Return a column for each number of `section` that has a value in any configuration."""
    frame = findings.concluded[NAME]
    has_virtual = "virtual" in set(frame["kind"])
    return [
        of_mean(number.heading, number.name, form_of(number.unit))
        for number in shown_numbers()
        if number.section == section and (has_virtual or not number.beside_virtual)
        if f"{number.name}_mean" in frame and frame[f"{number.name}_mean"].notna().any()
    ]
