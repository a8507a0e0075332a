"""Compares each configuration with one worker and with the reference scheme, paired by seed.

    speed-up = time of one worker's whole run / time of this whole run
    efficiency = images/s of K workers / images/s of one worker / number of processes

The time of a whole run is its number of images divided by its images/s. Scaling is weak if each
worker has a constant number of images per step, and strong if all K workers share a constant
number, global_batch_size.
"""

import numpy as np
import pandas as pd

from paceline.analysis.configuration import (
    BUDGETS,
    OPTIMIZER,
    SPLIT,
    Configuration,
    configurations,
    finished,
    groups,
    is_of_scheme,
    matching,
    num_processes,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import DIFFERENCES, NONE, Array, Interval, interval, paired, ratio
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import crossings

REFERENCE = "sync_allreduce"  # if the study lacks it, its first scheme is the reference
METRICS = ("top1", "test_top1")
SPEED = "images_per_second"
_TRAINED = ("data", "model", "workload")  # groups of settings that a baseline must share


def reference_scheme(runs: Frame) -> str:
    """Return the scheme that all other schemes of the study are compared with."""
    schemes = list(dict.fromkeys(runs["scheme"]))
    return REFERENCE if REFERENCE in schemes else schemes[0]


def reference_arm(runs: Frame) -> Row:
    """Return the reference scheme and, if the study compares optimizers, its first one."""
    own = matching(runs, {"scheme": reference_scheme(runs)})
    return {name: own[name].iloc[0] for name in ("scheme", OPTIMIZER) if name in own}


def is_reference(runs: Frame, row: Row | Frame) -> bool:
    """Return True for a row of the reference scheme with the optimizer of the reference."""
    return all(row[name] == value for name, value in reference_arm(runs).items())


def one_worker(tables: Tables, configuration: Configuration) -> Frame:
    """Return the finished runs of one process that a configuration is compared with.

    They have its kind, data set and network, and its other settings (of the cluster, the batch and
    the budget), in this order, as far as one worker was run with them; else the nearest batch and
    budget. The scheme is the reference, since one worker trains by plain SGD under any scheme; else
    the fastest.
    """
    runs = matching(tables.finished, {"kind": configuration["kind"], "workers": 1})
    runs = runs[num_processes(runs) == 1]
    given = [n for n in tables.facets if not is_of_scheme(n) and n not in SPLIT]
    for name in ["data", *sorted(given, key=_order)]:
        same = matching(runs, {name: configuration[name]})
        if same.empty and name in (*BUDGETS, "batch_size", "global_batch_size"):
            far = np.log(runs[name].astype(float) / configuration[name]).abs()
            same = runs[far == far.min()]
        runs = same if len(same) or name.split(".")[0] in _TRAINED else runs
    own = matching(runs, reference_arm(tables.runs))
    arms = [arm for _, arm in configurations(own if len(own) else runs, tables.axes)]
    return max(arms, key=lambda arm: arm[SPEED].mean(), default=runs[:0])


def _order(name: str) -> int:
    """Return the place of a setting in the order by which a baseline is sought."""
    kinds = (*_TRAINED, "cluster", "batch_size", "global_batch_size", "training")
    group = name if name.endswith("batch_size") else name.split(".")[0]
    return kinds.index(group) if group in kinds else len(kinds)


def compared(tables: Tables, configuration: Configuration, points: Frame) -> Row:
    """Return the columns that compare a configuration with one worker and with the reference.

    - `baseline`: settings of one worker's runs; "itself"; or "" if there are none;
    - `speedup`, `efficiency`: see the module;
    - `one_worker_top1_difference`: top-1 minus that of one worker, as a share; on test images, or
      on validation images if no pair of runs was scored on the former;
    - `reference`: the scheme, or "" for itself; `reference_speedup`, `reference_top1_difference`:
      the same against its runs in this situation; empty if it has several settings there.
    """
    own, base = finished(points), one_worker(tables, configuration)
    is_itself = set(own.index) == set(base.index)
    processes, longer = num_processes(configuration), _times_as_long(own, base)
    row: Row = {"baseline": "itself" if len(own) and is_itself else _settings(tables, base)}
    row |= ratio(own, base, SPEED, longer).named("speedup")
    row |= ratio(own, base, SPEED, processes).named("efficiency")
    found = NONE if is_itself else top1_difference(own, base)
    row |= found.named("one_worker_top1_difference")
    is_other = not is_reference(tables.runs, configuration)
    other = _reference(tables, configuration) if is_other else own[:0]
    row |= {"reference": reference_scheme(tables.runs) if is_other else ""}
    row |= ratio(own, other, SPEED).named("reference_speedup")
    return row | top1_difference(own, other).named("reference_top1_difference")


def _times_as_long(own: Frame, base: Frame) -> float:
    """Return the number of images of a run, divided by that of one worker's run."""
    for name in BUDGETS:
        if name in own and len(own) and len(base) and pd.notna(own[name].iloc[0]):
            return float(own[name].iloc[0] / base[name].iloc[0])
    return 1.0


def _settings(tables: Tables, base: Frame) -> str:
    if base.empty:
        return ""
    names = [name for name in tables.axes if name not in ("scheme", "workers")]
    own = [f"{name}={base[name].iloc[0]}" for name in names if not pd.isna(base[name].iloc[0])]
    return " ".join([str(base["scheme"].iloc[0]), *own])


def _reference(tables: Tables, configuration: Configuration) -> Frame:
    """Return the runs of the reference in the situation of a configuration of another scheme."""
    reference = reference_arm(tables.runs)
    own = matching(tables.finished, configuration | reference)
    given = {name: value for name, value in configuration.items() if not is_of_scheme(name)}
    of_scheme = [name for name in configuration if is_of_scheme(name)]
    arms = groups(matching(tables.finished, given | reference), of_scheme)
    return own if len(own) or len(arms) != 1 else arms[0][1]


def top1_difference(points: Frame, base: Frame) -> Interval:
    """Return the mean of `losses`."""
    return interval(losses(points, base), DIFFERENCES)


def losses(points: Frame, base: Frame) -> Array:
    """Return top-1 minus that of `base`, as a share, for each seed that both have.

    It is on test images, or on validation images if no pair of runs has been scored on the former.
    """
    values = (paired(points, base, metric) for metric in reversed(METRICS))
    return next((value - other for value, other in values if len(value)), np.array([]))


def compared_by(tables: Tables) -> str:
    """Return the column by which the configurations of a study are compared with each other.

    It is the time to the target if the study sets one, else top-1 if a run was
    evaluated, else images/s.
    """
    if tables.about["target"]:
        return "target_seconds"
    evaluated = (metric for metric in reversed(METRICS) if tables.finished[metric].notna().any())
    return next(evaluated, SPEED)


def against_first(tables: Tables) -> Frame:
    """Return each configuration against the first of its kind and data that shares seeds.

    Runs are paired by seed. The rows are those of configurations.csv, with the columns `first_mean`
    and so on: the difference of top-1, or the ratio of what `compared_by` names. They are empty for
    the first, and where a run has missed the target.
    """
    by, firsts, rows = compared_by(tables), list[Frame](), list[Row]()
    seconds = crossings(tables)
    for _, points in configurations(tables.runs, list(dict.fromkeys(["data", *tables.axes]))):
        own = points[points["status"] != "failed"] if by == "target_seconds" else finished(points)
        own = own.assign(target_seconds=own["key"].map(seconds).astype(float))
        alike = (first for first in firsts if _alike(first, own))
        first, found = next(alike, None), NONE
        if first is None:
            firsts.append(own)
        elif by in METRICS:
            found = top1_difference(own, first)
        elif not (own[by].isna().any() or first[by].isna().any()):
            found = ratio(own, first, by)
        rows.append(found.named("first"))
    return pd.DataFrame(rows)


def _alike(one: Frame, other: Frame) -> bool:
    return all(set(one[name]) & set(other[name]) for name in ("kind", "data", "seed"))
