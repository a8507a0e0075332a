"""Says what larger batches and not waiting cost and gain, as SGD is spread over more workers."""

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from paceline.analysis.comparison import reference_arm
from paceline.analysis.configuration import BUDGETS, PROCESSES, groups, matching, situation_columns
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import FEWEST, ratio
from paceline.analysis.tables import implied_by_kind
from paceline.analysis.time_to_target import crossings
from paceline.report.findings import RATE, StudyFindings
from paceline.report.number_format import signed, times
from paceline.report.words import say, values_words

AS_FEW = 1.25  # times the images of the smallest batch, up to which the updates fall as 1 / batch
_FEWEST_BATCHES = 3
_NOT_WAITING = "async_parameter_server"
_FASTER = "reference_speedup_mean"
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
    return int(row.get("global_batch_size") or row["workers"] * row["batch_size"])


def least_budget(budgets: Frame) -> Frame:
    """Return the row of the budget that needs the fewest images to the target; where none reaches
    it in every run, of the largest budget.
    """
    needed = budgets["target_samples_mean"]
    return budgets.loc[(needed if needed.notna().any() else -budgets["most_samples"]).idxmin()]


def spread_words(findings: StudyFindings) -> str:
    """Say up to which batch the updates of all-reduce to the target fall as 1 / batch, and what
    not waiting costs in accuracy and gains in speed.

    "" unless the study reaches a target with at least three batches of all-reduce, each with
    several budgets, and has asynchronous SGD in the same situations.
    """
    asked, table = findings.tables.about["target"] or {}, findings.configurations
    if asked.get("metric") != "top1" or "below_baseline" not in asked or _EPOCHS not in table:
        return ""
    _, rows = fullest(findings, table, BUDGETS)
    batches = _batches(findings, matching(rows, reference_arm(findings.tables.runs)))
    free = rows[(rows["scheme"] == _NOT_WAITING) & (rows["reference_top1_difference_n"] >= FEWEST)]
    if len(batches) < _FEWEST_BATCHES or batches[0]["mean"] != 1 or free.empty:
        return ""
    budgets = sorted(set(free[_EPOCHS]))
    epochs = budgets[len(budgets) // 2]
    free, table = free[free[_EPOCHS] == epochs], table[table[_EPOCHS] == epochs]
    late = table[(table["scheme"] == _NOT_WAITING) & (table.get(_SLOW, 0) > 0)]
    linear = [*takewhile(lambda each: each["high"] <= AS_FEW, batches)]
    return say(
        "spread",
        points=100 * asked["below_baseline"],
        linear=linear[-1]["batch"],
        excess=AS_FEW - 1,
        more=[_needs(each) for each in batches[len(linear) :]],
        epochs=epochs,
        changes=[f"{_points(row)} with {row['workers']:.0f} workers" for _, row in free.iterrows()],
        speeds=[times(row[_FASTER]) for _, row in free.iterrows()],
        late=[
            f"{times(row[_FASTER])} times as many where {row[_SLOW]:.0f} of {row['workers']:.0f} "
            f"is {findings.tables.about['settings']['cluster.slow_factor']:g} times as slow"
            for _, row in late.iterrows()
        ],
    )


def _needs(batch: Row) -> str:
    """Say how many times as many images a batch needs as the smallest."""
    if batch["mean"] == np.inf:
        return f"more than {batch['epochs']:g} epochs with {batch['batch']:,}"
    return f"{times(batch['mean'])} times as many with {batch['batch']:,}"


def _points(row: Frame) -> str:
    mean, low, high = (row[f"reference_top1_difference_{end}"] for end in ("mean", "low", "high"))
    return f"{signed(100 * mean, 1)} ± {50 * (high - low):.1f} points"


def _batches(findings: StudyFindings, rows: Frame) -> list[Row]:
    """Return for each batch how many times as many images reach the target as with the smallest.

    Runs are paired by seed. The times are infinite where a run misses the target.
    """
    tables, found = findings.tables, list[Row]()
    runs = tables.finished.assign(
        needed=tables.finished["key"].map(crossings(tables, "samples")).astype(float)
    )
    first = None
    for batch, budgets in rows.groupby(rows.apply(step_images, axis=1)):
        best = least_budget(budgets)
        own = matching(runs, {name: best[name] for name in ("kind", "data", *tables.axes)})
        first = own if first is None else first
        against: Row = {"mean": np.inf, "high": np.inf}
        if not own["needed"].isna().any():
            against = ratio(own, first, "needed")._asdict()
        found.append({"batch": batch, "epochs": best[_EPOCHS]} | against)
    return found
