"""Answers which scheme to use in each situation of a study, by the verdicts of decision.csv."""

from contextlib import suppress
from typing import NamedTuple

import pandas as pd

from paceline.analysis.comparison import METRICS, SPEED, compared_by
from paceline.analysis.configuration import BUDGETS, PROCESSES, SPLIT, is_of_scheme, with_processes
from paceline.analysis.decision import AS_FAST, NO_FASTER, USE
from paceline.analysis.frames import Entry, Frame, Row
from paceline.analysis.intervals import FEWEST
from paceline.analysis.searches import searched_setting, untuned_schemes
from paceline.analysis.tables import implied_by_kind
from paceline.report.findings import RATE, Situation, StudyFindings, of_several_schemes, situations
from paceline.report.number_format import (
    MISSING,
    Form,
    count,
    decimals,
    few_seeds,
    percent,
    percent_points,
    seconds,
    shown,
    times,
)
from paceline.report.page_tables import Table, filled
from paceline.report.words import (
    cell,
    heading,
    say,
    scheme_words,
    value_words,
    values_words,
)

ONE = "one worker"  # what to use where no scheme is faster
_MOST_NAMED = 5  # configurations in a line
MOST_EFFICIENT = 1.02  # efficiency above which more than the number of workers differs
RIGHT, _SAME, _WRONG, _LOST, _DOUBTED = "✓ ", "= ", "✗ ", " ✗", " !"
_HEADINGS = {
    "target_seconds": "seconds to the target",
    SPEED: "images/s",
    "speedup": "speed-up of the whole run",
    "top1": "top-1",
    "first": "against the first",
}


class Choice(NamedTuple):
    """Choice of what to use in a situation.

    `use` is the scheme in words, ONE, or "" if no scheme trained. `row` is the row of decision.csv
    of the fastest scheme that is accurate enough, and None if none trained. `as_fast` has the rows
    of the schemes that cannot be told apart from it in speed.
    """

    use: str
    row: Frame | None
    as_fast: Frame


def choice(rows: Frame) -> Choice:
    """Choose what to use from the rows of decision.csv of a situation."""
    chosen = rows[rows["verdict"].isin([USE, NO_FASTER])]
    if chosen.empty:
        return Choice("", None, rows[:0])
    row = chosen.iloc[0]
    use = ONE if row["verdict"] == NO_FASTER else scheme_words(row)
    return Choice(use, row, rows[rows["verdict"] == AS_FAST])


def choices(findings: StudyFindings) -> list[tuple[Situation, Choice]]:
    """Return the situations of several workers, each with the choice of what to use there.

    Those with a single scheme are left out if others have several, and those whose learning rates
    follow from a rule if others have tuned rates.
    """
    decision = findings.concluded["decision"]
    found = of_several_schemes(findings) or [e for e in situations(findings) if e.size > 1]
    found = [each for each in found if each.values.get(RATE) != "by_rule"] or found
    return [(each, choice(each.of(decision))) for each in found]


def found_words(findings: StudyFindings, row: Frame) -> str:
    """Name the scheme of a row of decision.csv, with the setting of it that a search chose."""
    known = [name for name in row.index if name not in findings.of_size]
    name, _, text = searched_setting(findings.tables, row[known]).partition("=")
    value: Entry = text
    with suppress(ValueError):
        value = float(text)
    return f"{scheme_words(row)} ({value_words(name, value)})" if name else scheme_words(row)


def answer(findings: StudyFindings) -> Table:
    """Return the table of what to use in each situation, or of the compared configurations."""
    if findings.compares_all:
        return _of_configurations(findings)
    found, implied = choices(findings), implied_by_kind(findings.tables)
    values: Frame = pd.DataFrame([each.values for each, _ in found])
    names = [n for n in values if n not in implied and values[n].nunique(dropna=False) > 1]
    sizes = [name for name in values if name in ("workers", PROCESSES)]
    names = [*sizes, *(name for name in names if name not in sizes)]
    rows = [
        {heading(n): cell(n, each.values[n]) for n in names} | _answer_row(findings, chosen)
        for each, chosen in found
    ]
    return filled("Answer", rows)


def _answer_row(findings: StudyFindings, chosen: Choice) -> Row:
    row = chosen.row
    if row is None:
        return {"use": f"{_WRONG}no run finished"}
    if chosen.use == ONE:
        return {"use": _SAME + ONE, "images/s": "", "speed-up of the whole run": _speedup(row)}
    return {
        "use": RIGHT * is_shown(findings, row) + found_words(findings, row),
        "images/s": _mean(row, SPEED, count),
        "speed-up of the whole run": _speedup(row),
        "top-1": _mean(row, "top1", percent),
        "minus one worker's, points": _difference(row, findings.tables.margin),
        "equally fast, within the margin": ", ".join(
            scheme_words(other) for _, other in chosen.as_fast.iterrows()
        ),
    }


def is_shown(findings: StudyFindings, row: Frame) -> bool:
    """Return True if enough seeds with tuned rates have shown what the rule asks of the top-1."""
    if pd.isna(row["top1_mean"]):
        return True
    is_tuned = row.get(RATE) == "tuned" or not untuned_schemes(findings.tables)
    return bool(row["top1_n"] >= FEWEST and is_tuned)


def _speedup(row: Frame) -> str:
    """Say a speed-up, with a mark if it is above what the number of workers explains."""
    text = _mean(row, "speedup", times)
    return text + _DOUBTED if row["efficiency_mean"] > MOST_EFFICIENT else text


def _difference(row: Frame, margin: float) -> str:
    """Say top-1 minus one worker's with half of its interval, and mark a loss above the margin."""
    mean, low, high = (row[f"one_worker_top1_difference_{end}"] for end in ("mean", "low", "high"))
    if pd.isna(low):
        return "" if pd.isna(mean) else percent_points(mean)
    text = f"{percent_points(mean)} ± {decimals(50 * (high - low))}"
    return text + _LOST if high < -margin else text


def _mean(row: Frame, name: str, form: Form) -> str:
    """Say a mean, or that its seeds are too few for it; "" without a mean."""
    text = few_seeds(row, name, form) or shown(row.get(f"{name}_mean"), form)
    return "" if text == MISSING else text


def compared_configurations(findings: StudyFindings, by: str) -> list[Row]:
    """Return the rows of configurations with a finished run, each with its name in `words`, and
    with the values of its settings in `cells`, by their headings.

    `value_mean` and so on: the column `by`, of what is compared. Words are those of what varies;
    the budget is not named beside images/s, which do not depend on it.
    """
    table = with_processes(findings.configurations)
    table = table[table["n_finished"] > 0]
    table = table.assign(scheme_words=[scheme_words(row) for _, row in table.iterrows()])
    left_out = (*SPLIT, *(BUDGETS if by == SPEED else ()))
    names = [PROCESSES if PROCESSES in table else "workers", *findings.varying]
    names = [n for n in names if not is_of_scheme(n) and n not in left_out]
    names = [n for n in names if table[n].nunique(dropna=False) > 1]
    several = table["scheme_words"].nunique() > 1 or not names
    kinds = ["kind"] if table["kind"].nunique() > 1 else []
    rows = list[Row]()
    for _, row in table.iterrows():
        words = [row["scheme_words"] if several else "", values_words(row, names)]
        text = ", ".join(filter(None, words)) + "".join(f" ({row[kind]})" for kind in kinds)
        cells = {"scheme": row["scheme_words"]} if several else {}
        cells |= {heading(name): cell(name, row[name]) for name in (*names, *kinds)}
        value = {f"value_{end}": row.get(f"{by}_{end}") for end in ("mean", "low", "high", "n")}
        rows.append(dict(row) | value | {"words": text, "cells": cells})
    return rows


def _of_configurations(findings: StudyFindings) -> Table:
    """Return the table of the compared configurations."""
    by = compared_by(findings.tables)
    rows = compared_configurations(findings, by)
    sign = percent_points if by in METRICS else times
    cells = list[Row]()
    for row in rows:
        shown = {
            "target_seconds": _to_target(row) if by == "target_seconds" else "",
            SPEED: _mean(row, SPEED, count),
            "speedup": "" if row["baseline"] == "itself" else _speedup(row),
            "top1": _mean(row, by if by in METRICS else METRICS[1], percent),
            "first": _mean(row, "first", sign),
        }
        cells.append(row["cells"] | {_HEADINGS[name]: text for name, text in shown.items()})
    return filled("Answer", cells)


def compared_words(findings: StudyFindings) -> str:
    """Say what the compared configurations reached, of more than a few that of the best; "" if
    none has a number.
    """
    by = compared_by(findings.tables)
    rows = compared_configurations(findings, by)
    known = [row for row in rows if not pd.isna(row["value_mean"])]
    units = {SPEED: (count, " images/s"), "target_seconds": (seconds, " s to the target")}
    form, unit = units.get(by, (percent, " top-1"))
    if len(rows) > _MOST_NAMED and known:
        best = (min if by == "target_seconds" else max)(known, key=lambda row: row["value_mean"])
        best["words"] = f"best mean, {best['words']}"
        known = [best]
    words = "; ".join(f"{row['words']}: {form(row['value_mean'])}" for row in known)
    return words + unit * bool(words)


def _to_target(row: Row) -> str:
    target: Entry = row.get("target")
    if pd.isna(target):
        return ""
    return _mean(row, "target_seconds", seconds) or f"> {seconds(row['most_seconds'])}"


def rule(findings: StudyFindings, table: Table) -> str:
    """Say by which rule the answer was chosen, and what the marks in its `table` mean."""
    cells, margin = [cell for row in table.rows for cell in row], findings.tables.margin
    used = [(use, row) for _, (use, row, _) in choices(findings) if row is not None]
    scored = {bool(pd.notna(row["top1_mean"])) for _, row in used}
    names = ["rule"] * (True in scored) + ["rule_of_speed"] * (False in scored)
    names += ["rule_of_doubt"] * any(
        use != ONE and not is_shown(findings, row) for use, row in used
    )
    names = ["rule_of_configurations"] if findings.compares_all else names
    for mark, sign in (("loss", _LOST), ("excess", _DOUBTED)):
        names += [f"rule_of_{mark}"] * any(cell.endswith(sign) for cell in cells)
    facts = {"margin": 100 * margin, "points": compared_by(findings.tables) in METRICS}
    return " ".join(say(each, facts) for each in names)
