"""Says what larger batches and not waiting cost and gain, as SGD is spread over more workers."""

import math
from collections.abc import Sequence
from itertools import takewhile

import pandas as pd

from paceline.analysis.comparison import reference_arm
from paceline.analysis.configuration import (
    BUDGETS,
    PROCESSES,
    groups,
    is_of_scheme,
    matching,
    situation_columns,
)
from paceline.analysis.frames import Entry, Frame, Row
from paceline.analysis.intervals import FEWEST, Interval, ratio
from paceline.analysis.tables import implied_by_kind
from paceline.analysis.time_to_target import BELOW_BEST, images_to_target
from paceline.report.findings import RATE, StudyFindings
from paceline.report.number_format import signed, times
from paceline.report.words import say, value_words, values_words

_AS_FEW = 1.25  # times the images of one worker, up to which the updates fall as 1 / batch
_FEWEST_BATCHES = 3
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


def top1_of(rows: Frame) -> str:
    """Return the accuracy that all rows of configurations.csv have: test_top1, or else top1."""
    return "test_top1" if rows["test_top1_mean"].notna().all() else "top1"


def step_images(row: Row | Frame) -> int:
    """Return the number of images of a step of all workers together."""
    given: Entry = row.get("global_batch_size")
    return int(row["workers"] * row["batch_size"] if pd.isna(given) else given)


def needed_images(findings: StudyFindings, rows: Frame, below: float) -> list[Row]:
    """Return how many images come within `below` of the best mean top-1 of one worker, for each
    scheme and number of workers of `rows` that has several budgets, from the smallest batch on.

    Columns: scheme and workers as in `rows`; `batch`, the images of a step; `least` and `most`, the
    images of the smallest and of the largest budget; `needed`, a table of images_to_target, whose
    seeds have all budgets.
    """
    tables, found, metric = findings.tables, list[Row](), top1_of(rows)
    target = rows.loc[rows["workers"] == 1, f"{metric}_mean"].max() - below
    if pd.isna(target):
        return []
    runs = tables.runs[tables.runs["status"] != "failed"]
    left_out = (*BUDGETS, *findings.of_size)
    names = [name for name in ("kind", "data", *tables.axes) if name not in left_out]
    arms = [name for name in names if name == "workers" or is_of_scheme(name)]
    for _, budgets in groups(rows, arms):
        row = budgets.iloc[0]
        own = matching(runs, {name: row[name] for name in names})
        sizes = own.groupby("seed")["key"].transform("size")
        if sizes.max() > 1:
            own = own[sizes == sizes.max()]
            known = {"batch": step_images(row), "needed": images_to_target(own, metric, target)}
            known |= {"least": own["samples"].min(), "most": own["samples"].max()}
            found.append(dict(row) | known)
    return sorted(found, key=lambda each: each["batch"])


def spread_words(findings: StudyFindings) -> str:
    """Say up to which batch the updates of all-reduce to a target fall as 1 / batch, and what
    asynchronous SGD costs in accuracy and gains in speed.

    "" unless all-reduce has at least three batches, the smallest of one worker and each with
    several budgets in epochs, and one worker reaches the target between two budgets.
    """
    table = findings.configurations
    if not {"batch_size", _EPOCHS} <= set(table):
        return ""
    settings, rows = fullest(findings, table, BUDGETS)
    reference = reference_arm(findings.tables.runs)
    batches = needed_images(findings, matching(rows, reference), BELOW_BEST)
    sizes = {each["batch"] for each in batches}
    if not _FEWEST_BATCHES <= len(batches) == len(sizes) or batches[0]["workers"] != 1:
        return ""
    first, larger = batches[0], [each | _against(each, batches[0]) for each in batches[1:]]
    known, fewest = first["needed"]["images"], min(each["n"] for each in larger)
    if fewest < FEWEST or not first["least"] < known.min() <= known.max() < math.inf:
        return ""
    linear = [*takewhile(lambda each: each["high"] <= _AS_FEW, larger)]
    text = say(
        "spread_of_batches",
        points=100 * BELOW_BEST,
        first=first["batch"],
        needs=[_needs(each) for each in larger],
        excess=_AS_FEW - 1,
        linear=linear[-1]["batch"] if linear else None,
        second=larger[0]["batch"],
        low=larger[0]["low"],
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


def _against(batch: Row, first: Row) -> Row:
    """Return how many times as many images a batch needs, by the columns of an Interval.

    Runs are paired by seed. The times are infinite if the largest budget of a seed is too small.
    """
    needed, base = batch["needed"], first["needed"]
    pairs = needed[needed["seed"].isin(base["seed"])]
    if pairs["images"].max() == math.inf:
        return Interval(math.inf, math.inf, math.inf, len(pairs))._asdict()
    return ratio(pairs, base, "images")._asdict()


def _needs(batch: Row) -> str:
    """Say how many times as many images a batch needs as one worker."""
    if batch["mean"] == math.inf:
        return f"more than {batch['most']:,} images in some run with steps of {batch['batch']:,}"
    mean, low, high = (times(batch[end]) for end in ("mean", "low", "high"))
    return f"{mean} ({low} to {high}) times as many images with steps of {batch['batch']:,}"


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
