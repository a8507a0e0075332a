"""Says what larger batches and not waiting cost and gain, as SGD is spread over more workers."""

import math
from collections.abc import Sequence
from itertools import takewhile

import pandas as pd

from paceline.analysis.comparison import reference_arm
from paceline.analysis.configuration import BUDGETS, PROCESSES, groups, matching, situation_columns
from paceline.analysis.frames import Entry, Frame, Row
from paceline.analysis.intervals import FEWEST, Interval, ratio
from paceline.analysis.tables import implied_by_kind
from paceline.analysis.time_to_target import crossings
from paceline.report.findings import RATE, StudyFindings
from paceline.report.number_format import signed, times
from paceline.report.words import say, value_words, values_words

_AS_FEW = 1.25  # times the images of the smallest batch, up to which the updates fall as 1 / batch
_FEWEST_BATCHES = 3
_INFINITE = Interval(math.inf, math.inf, math.inf, FEWEST)
_FREE = "async_parameter_server"
_SLOW, _EPOCHS = "cluster.slow_workers", "training.epochs"


def fullest(
    findings: StudyFindings, table: Frame, without: Sequence[str] = ()
) -> tuple[str, Frame]:
    """Return the finished rows of those settings that have the most numbers of workers, and the
    words of these settings.

    `without`: settings that may differ between these rows. Rates by rule are left out where other
    rates were searched.
    """
    table = table[table["n_finished"] > 0]
    if RATE in table and (table[RATE] == "tuned").any():
        table = table[table[RATE] == "tuned"]
    columns = [n for n in situation_columns(findings.tables.axes) if n in table]
    columns = [name for name in columns if name not in ("workers", *without)]
    if PROCESSES in situation_columns(findings.tables.axes) or table.empty:
        return "", table[:0]  # a line by workers would not say how many processes each has
    settings, rows = max(
        groups(table, columns), key=lambda each: (each[1]["workers"].nunique(), len(each[1]))
    )
    implied = ("kind", *implied_by_kind(findings.tables))
    varying = [name for name in columns if table[name].nunique(dropna=False) > 1]
    words = values_words(settings, [name for name in varying if name not in implied])
    return ", ".join(filter(None, [words, settings["kind"] if "kind" in varying else ""])), rows


def step_images(row: Row | Frame) -> int:
    """Return the number of images of a step of all workers together."""
    given: Entry = row.get("global_batch_size")
    return int(row["workers"] * row["batch_size"] if pd.isna(given) else given)


def least_budget(budgets: Frame) -> Frame:
    """Return the row of the budget that needs the fewest images to the target; where none reaches
    it in every run, of the largest budget.
    """
    needed = budgets["target_samples_mean"]
    return budgets.loc[(needed if needed.notna().any() else -budgets["most_samples"]).idxmin()]


def spread_words(findings: StudyFindings) -> str:
    """Say up to which batch the updates of all-reduce to the target fall as 1 / batch, and what
    asynchronous SGD costs in accuracy and gains in speed.

    "" unless the study reaches a target below one worker with at least three batches of all-reduce,
    the smallest of one worker and each with several budgets in epochs.
    """
    asked, table = findings.tables.about["target"] or {}, findings.configurations
    needed = {"target_samples_mean", "batch_size", _EPOCHS}
    if asked.get("metric") != "top1" or "below_baseline" not in asked or not needed <= set(table):
        return ""
    settings, rows = fullest(findings, table, BUDGETS)
    batches = _batches(findings, matching(rows, reference_arm(findings.tables.runs)))
    linear = [*takewhile(lambda each: each["high"] <= _AS_FEW, batches)]
    if len(batches) < _FEWEST_BATCHES or not linear:
        return ""
    text = say(
        "spread_of_batches",
        points=100 * asked["below_baseline"],
        excess=_AS_FEW - 1,
        linear=linear[-1]["batch"] if len(linear) > 1 else None,
        more=[_needs(each) for each in batches[len(linear) :]],
    )
    given = [n for n in situation_columns(findings.tables.axes) if n not in ("workers", _EPOCHS)]
    given = {name: rows[name].iloc[0] for name in given if name in rows}
    free = matching(table, {n: v for n, v in given.items() if n != _SLOW} | {"scheme": _FREE})
    told = [name for name in ("workers", _EPOCHS, _SLOW) if name in free]
    if free.empty or free.duplicated(told).any():
        return text
    epochs = free.groupby(_EPOCHS).size().iloc[::-1].idxmax()  # of equally many, the largest
    of = ", ".join(filter(None, [value_words(_EPOCHS, epochs), settings]))
    changes = [*filter(None, (_change(row) for _, row in free[free[_EPOCHS] == epochs].iterrows()))]
    return f"{text} {say('spread_of_waiting', of=of, changes=changes)}" if changes else text


def _batches(findings: StudyFindings, rows: Frame) -> list[Row]:
    """Return for each batch how many times as many images reach the target as with the smallest.

    Runs are paired by seed. The times are infinite where a run misses the target or diverges. None
    are returned if the smallest is not of one worker, or if a batch has a single budget, several
    settings with one budget, or too few seeds.
    """
    tables, found = findings.tables, list[Row]()
    runs = tables.runs[tables.runs["status"] != "failed"]
    needed = runs["key"].map(crossings(tables, "samples")).astype(float)
    runs, first = runs.assign(needed=needed), None
    rows = rows.assign(batch=[step_images(row) for _, row in rows.iterrows()]).sort_values("batch")
    for batch, budgets in groups(rows, ["batch"]):
        best, several = least_budget(budgets), budgets[_EPOCHS].nunique()
        own = matching(runs, {name: best[name] for name in ("kind", "data", *tables.axes)})
        first = own if first is None else first
        against = _INFINITE if own["needed"].isna().any() else ratio(own, first, "needed")
        is_one = best["workers"] == 1 or own is not first
        if not (is_one and several > 1 and several == len(budgets) and against.n >= FEWEST):
            return []
        found.append(dict(batch) | {"epochs": best[_EPOCHS]} | against._asdict())
    return found


def _needs(batch: Row) -> str:
    """Say how many times as many images a batch needs as the smallest."""
    if batch["mean"] == math.inf:
        return f"more than {batch['epochs']:g} epochs with {batch['batch']:,}"
    low, high = times(batch["low"]), times(batch["high"])
    return f"{times(batch['mean'])} ({low} to {high}) times as many with {batch['batch']:,}"


def _change(row: Frame) -> str:
    """Say how a configuration differs from all-reduce; "" without enough seeds for that."""
    slow = value_words(_SLOW, row[_SLOW]) if row.get(_SLOW, 0) else ""
    where = " and ".join(filter(None, [value_words("workers", row["workers"]), slow]))
    if row["n_diverged"]:
        return f"with {where} {row['n_diverged']:.0f} of {row['n']:.0f} runs did not train"
    if row["reference_top1_difference_n"] < FEWEST:
        return ""
    mean, low, high = (row[f"reference_top1_difference_{end}"] for end in ("mean", "low", "high"))
    change = f"{signed(100 * mean, 1)} ± {50 * (high - low):.1f} points of top-1"
    return f"with {where} {change} and {times(row['reference_speedup_mean'])} times the images/s"
