"""Answers which scheme to use in each situation of a study, by the verdicts of decision.csv."""

from contextlib import suppress
from typing import NamedTuple

from paceline.analysis.comparison import METRICS, compared_by
from paceline.analysis.configuration import BUDGETS, PROCESSES, SPLIT, is_of_scheme, with_processes
from paceline.analysis.decision import AS_FAST, NO_FASTER, USE
from paceline.analysis.frames import Entry, Frame, Row
from paceline.analysis.searches import searched_setting
from paceline.report.findings import RATE, Situation, StudyFindings, situations
from paceline.report.number_format import (
    MISSING,
    Form,
    count,
    few_seeds,
    percent,
    percent_points,
    seconds,
    shown,
    times,
)
from paceline.report.page_tables import Table, filled
from paceline.report.words import say, scheme_words, value_words, values_words

ONE = "one worker"  # what to use where no scheme is faster
MOST_EFFICIENT = 1.02  # efficiency above which more than the number of workers differs
RIGHT, _SAME, _WRONG, _DOUBTED = "✓ ", "= ", "✗ ", "!"


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
    """Return each situation of several workers, with the choice of what to use there.

    A situation whose learning rates follow from a rule is left out if there is one with tuned rates
    and otherwise the same settings.
    """
    several = [each for each in situations(findings) if each.size > 1]
    decision = findings.concluded["decision"]
    tuned = {_without_rate(each) for each in several if each.values.get(RATE) == "tuned"}
    return [
        (each, choice(each.of(decision)))
        for each in several
        if each.values.get(RATE) != "by_rule" or _without_rate(each) not in tuned
    ]


def _without_rate(situation: Situation) -> tuple[str, ...]:
    return tuple(str(value) for name, value in situation.values.items() if name != RATE)


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
    rows = [_answer_row(findings, *each) for each in choices(findings)]
    return filled("Answer", rows)


def _answer_row(findings: StudyFindings, situation: Situation, chosen: Choice) -> Row:
    row = chosen.row
    if row is None:
        return {"situation": situation.title, "use": f"{_WRONG}no scheme trained"}
    is_one = chosen.use == ONE
    speed = _speedup(row)
    others = [found_words(findings, other) for _, other in chosen.as_fast.iterrows()]
    return {
        "situation": situation.title,
        "use": _SAME + ONE if is_one else RIGHT + found_words(findings, row),
        "images/s": "" if is_one else _mean(row, "images_per_second", count),
        "times one worker": f"{speed} ({scheme_words(row)})" if is_one else speed,
        "top-1": "" if is_one else _mean(row, "top1", percent),
        "minus one worker's, points": ""
        if is_one
        else _mean(row, "one_worker_top1_difference", percent_points),
        "as fast": "" if is_one else ", ".join(others),
    }


def _speedup(row: Frame | Row) -> str:
    """Say a speed-up, with a mark if it is above what the number of workers explains."""
    text = _mean(row, "speedup", times)
    return f"{text} {_DOUBTED}" if row["efficiency_mean"] > MOST_EFFICIENT else text


def _mean(row: Frame | Row, name: str, form: Form) -> str:
    """Say a mean, or that its seeds are too few for it; "" without a mean."""
    text = few_seeds(row, name, form) or shown(row[f"{name}_mean"], form)
    return "" if text == MISSING else text


def compared_configurations(findings: StudyFindings) -> list[Row]:
    """Return the rows of configurations with a finished run, each with its name in `words`.

    `value_mean` and so on: what the study compares. Words are those of what varies; the budget is
    not named beside images/s, which do not depend on it.
    """
    by, table = compared_by(findings.tables), with_processes(findings.configurations)
    table = table[table["n_finished"] > 0]
    table = table.assign(scheme_words=[scheme_words(row) for _, row in table.iterrows()])
    left_out = (*SPLIT, *(BUDGETS if by == "images_per_second" else ()))
    names = [PROCESSES if PROCESSES in table else "workers", *findings.varying]
    names = [n for n in names if not is_of_scheme(n) and n not in left_out]
    names = [n for n in names if table[n].nunique(dropna=False) > 1]
    several = table["scheme_words"].nunique() > 1 or not names
    rows = list[Row]()
    for _, row in table.iterrows():
        words = [row["scheme_words"] if several else "", values_words(row, names)]
        text = ", ".join(filter(None, words))
        text += f" ({row['kind']})" if table["kind"].nunique() > 1 else ""
        value = {f"value_{end}": row.get(f"{by}_{end}") for end in ("mean", "low", "high", "n")}
        rows.append(dict(row) | value | {"words": text})
    return rows


def _of_configurations(findings: StudyFindings) -> Table:
    """Return the table of the compared configurations, in which the best mean has a mark."""
    rows, by = compared_configurations(findings), compared_by(findings.tables)
    means = [row["value_mean"] for row in rows if row["value_mean"] == row["value_mean"]]
    best = (min if by == "target_seconds" else max)(means, default=None)
    sign = percent_points if by in METRICS else times
    return filled(
        "Answer",
        [
            {
                "configuration": (RIGHT if row["value_mean"] == best else "") + row["words"],
                "seconds to the target": _to_target(row) if by == "target_seconds" else "",
                "images/s": _mean(row, "images_per_second", count),
                "times one worker": "" if row["baseline"] == "itself" else _speedup(row),
                "top-1": _mean(row, by if by in METRICS else METRICS[1], percent),
                "against the first" + (", points" if by in METRICS else ", times"): (
                    _mean(row, "first", sign)
                ),
            }
            for row in rows
        ],
    )


def _to_target(row: Row) -> str:
    return _mean(row, "target_seconds", seconds) or f"> {seconds(row['most_seconds'])}"


def rule(findings: StudyFindings) -> str:
    """Say by which rule the answer was chosen."""
    if findings.compares_all:
        return say("rule_of_configurations")
    is_scored = findings.concluded["decision"]["top1_mean"].notna().any()
    return say("rule" if is_scored else "rule_of_speed", margin=findings.tables.about["margin"])
