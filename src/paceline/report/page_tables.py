"""Declares the tables on pages: their columns, with headings, units and formats of cells."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from paceline.analysis.analyse import FOLDER
from paceline.analysis.clocks import LITTLE
from paceline.analysis.comparison import unequal_samples
from paceline.analysis.configuration import groups
from paceline.analysis.configuration_table import NAME
from paceline.analysis.decision import AT_BEST
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import EXCHANGE_NEAR, SIZE
from paceline.analysis.searches import tuning_axes
from paceline.analysis.statistics.times import IN_A_ROW
from paceline.analysis.tables import implied_by_kind
from paceline.record.result import shown_numbers
from paceline.report.accuracy_at_scale import is_searched, rows_at_scale
from paceline.report.answer import target_metric, validation_images
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
from paceline.report.summary import agreement, fault_sentences, predictions
from paceline.report.words import phrase, read, say

_RESULTS = ("clocks", "predicted", "faults", "summary", "scaling", "comparison")
_RESULTS += ("time_to_target", "losses", "predicted_exchange")


@dataclass(frozen=True)
class Table:
    """Table of a page with the heading `name`; its numbers are those of the CSV `source`.

    Each row has one text per column. `says` are sentences above the table.
    """

    name: str
    caption: str
    source: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    says: Sequence[str] = ()


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


def table(
    name: str,
    caption: str,
    source: str,
    columns: Sequence[Column],
    frame: Frame,
    says: Sequence[str] = (),
) -> Table:
    """Return a table that shows each row of `frame` in these columns.

    If `frame` has a column `kind`, it is shown last.
    """
    columns = [*columns, *axes(["kind"] if "kind" in frame else [])]
    rows = [[column.text(row) for column in columns] for _, row in frame.iterrows()]
    return Table(name, caption, source, [column.heading for column in columns], rows, says)


def page_tables(findings: StudyFindings) -> list[Table]:
    """Return the tables of results, of which some may be empty."""
    facts = _facts(findings)
    says = {"predicted": predictions(findings), "faults": fault_sentences(findings)}
    says["clocks"] = agreement(findings)
    tables = []
    for name in _RESULTS:
        declared, source = read("tables")[name], name if name in findings.concluded else NAME
        title, caption = phrase(declared["title"]).render(facts), say(f"caption_{name}", facts)
        rows, own, texts = findings.concluded[source], columns(name, facts), says.get(name, ())
        if "known" in declared:
            rows = findings.known(declared["known"])
        elif source == NAME:  # a section of numbers has the title of its table
            own = [*_numbers(findings, title), *own]
        if name not in says or texts or len(rows):
            tables.append(_concluded(findings, source, title, caption, own, rows, texts))
    return tables


def scale_table(findings: StudyFindings) -> Table | None:
    """Return the table of all schemes and numbers of workers; None if there is nothing to say."""
    rows = rows_at_scale(findings)
    if rows.empty:
        return None
    facts = {"margin": findings.tables.about["margin"]}
    for name in ("verdict", f"{AT_BEST}verdict"):
        rows[name] = [say(f"verdict_{verdict}", facts) for verdict in rows[name]]
    rows = rows if rows["kind"].nunique() > 1 else rows.drop(columns="kind")
    caption, source = say("caption_at_scale", facts), f"{FOLDER}/decision.csv"
    own = [*columns("at_scale"), *(columns("at_scale_at_best") if is_searched(rows) else ())]
    own += columns("at_scale_settings")
    return table("Each scheme at each number of workers", caption, source, own, rows)


def all_points(findings: StudyFindings) -> Table:
    """Return the table of all points (single runs) with their numbers."""
    runs = findings.tables.runs
    own = [
        *_axes_of(findings, runs),
        *axes(["seed"]),
        Column("status", lambda row: ": ".join(filter(None, (row["status"], row["reason"])))),
        *(
            of_value(number.heading, number.name, form_of(number.unit, each_point=True))
            for number in shown_numbers()
            if number.each_point and number.name in runs  # a number declared since is in no record
        ),
        of_value("key", "key"),
    ]
    return table("All points", say("caption_points"), "runs.csv", own, runs)


def origin_tables(findings: StudyFindings) -> list[Table]:
    """Return the tables on how points were made; one of them is on tuning if a rate was tuned."""
    tuned = [tuning(findings)] if len(findings.tables.tuning) else []
    return [*tuned, _evaluated(findings), _made_with(findings)]


def tuning(findings: StudyFindings) -> Table:
    """Return the table of all trials of tuning."""
    own = [*axes(tuning_axes(findings.tables)), *columns("tuning")]
    return table("Tuning", say("caption_tuning"), "tuning.csv", own, findings.tables.tuning)


def _evaluated(findings: StudyFindings) -> Table:
    """Return a table of which weights were evaluated, and the certificate, of each scheme.

    A certificate says whether the workers shared updates as the scheme claims.
    """
    finished = findings.tables.finished
    names = [name for name in ("scheme", "evaluated", "certificate") if name in finished]
    grouped = groups(finished, names) if len(finished) else []
    rows = [[*map(setting, group.values()), str(len(points))] for group, points in grouped]
    caption = say("caption_evaluated")
    return Table("What was evaluated", caption, "runs.csv", (*names, "points"), rows)


def _made_with(findings: StudyFindings) -> Table:
    """Return a table of hardware, versions and code; differing values have a number of points."""
    runs = findings.tables.runs
    names = [name for name in runs if name.startswith(("hardware.", "versions."))]
    names += ["data", "model", "cluster", *implied_by_kind(findings.tables)]
    names += ["commit", "source_digest", "jobs"]
    rows = [(name, _values(runs[name])) for name in dict.fromkeys(names) if name in runs]
    return Table("Made with", say("caption_sources"), "runs.csv", ("what", "value"), rows)


def _values(column: pd.Series) -> str:
    is_size = str(column.name).endswith("_bytes")
    texts = column.map(lambda number: f"{number / 2**30:.1f} GiB" if is_size else setting(number))
    counts = texts.replace("[]", "none").value_counts(sort=False)
    if len(counts) == 1:
        return str(counts.index[0])
    return "; ".join(f"{text} ({number} points)" for text, number in counts.items())


def _concluded(
    findings: StudyFindings,
    name: str,
    title: str,
    caption: str,
    own: Sequence[Column],
    rows: Frame,
    says: Sequence[str] = (),
) -> Table:
    """Return a table that shows rows of the conclusion `name`: their axes, then `own` columns."""
    every = [*_axes_of(findings, rows), *own]
    return table(title, caption, f"{FOLDER}/{name}.csv", every, rows, says)


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
        "samples": unequal_samples(findings.tables),
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
