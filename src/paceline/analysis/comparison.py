"""Compares each configuration with one worker and with the reference scheme, paired by seed.

    speed-up = images/s of K workers / images/s of one worker
    efficiency = speed-up / number of processes of the K workers

The baseline is a run of one worker in one process, with otherwise equal settings. If the scheme has
no such run, the baseline is taken from the scheme whose one-worker run is fastest; this is fair
because one worker trains by plain SGD under any scheme. Scaling is weak if each worker has a
constant number of images per step, and strong if all K workers share a constant number,
global_batch_size. In weak and in strong scaling, the total number of training images is constant.
"""

from typing import Literal

import numpy as np
import pandas as pd

from paceline.analysis.configuration import (
    OPTIMIZER,
    Configuration,
    configurations,
    counts,
    finished,
    groups,
    is_of_scheme,
    matching,
    num_processes,
    one_process,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, Interval, difference, ratio
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import target_seconds

REFERENCE = "sync_allreduce"  # if the study lacks it, its first scheme is the reference
METRICS = ("top1", "test_top1")
_SPEED = "images_per_second"
Verdict = Literal["equal", "different", "not shown"]


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


def scaling(tables: Tables, configuration: Configuration, points: Frame) -> Row:
    """Return the columns on speed-up, efficiency and accuracy against one worker.

    `baseline` describes the one-worker runs that the configuration is compared with, or says why
    there are none. `baseline_verdict` is that of `equal_accuracy`, for a configuration of several
    processes that has a speed-up.
    """
    own, base = finished(points), baseline(tables.finished, configuration)
    processes, speedup = num_processes(configuration), ratio(own, base, _SPEED)
    row: Row = {"baseline": _baseline_text(configuration, own, base, speedup.n)}
    row |= speedup.named("speedup")
    row |= ratio(own, base, _SPEED, processes).named("efficiency")
    if processes > 1 and speedup.n:
        row["baseline_verdict"] = equal_accuracy(tables, points, base)
    return row


def _baseline_text(configuration: Configuration, points: Frame, base: Frame, num_pairs: int) -> str:
    if points.empty:
        return "none: no finished point"
    if base.empty:
        return "none: no finished point with one worker"
    if num_processes(configuration) == 1:
        return "itself"
    if not num_pairs:
        return "none: no seed in common with one worker"
    one = {n: base[n].iloc[0] for n in ("scheme", OPTIMIZER) if n in configuration}
    same = all(value == configuration[name] for name, value in one.items())
    worker = "1 worker" if same else f"1 worker of {', '.join(map(str, one.values()))}"
    return f"{worker}, same settings otherwise, {num_pairs} seeds in common"


def equal_accuracy(tables: Tables, points: Frame, base: Frame) -> Verdict:
    """Test by two one-sided tests (TOST) whether points are as accurate as their baseline.

    The result is equal if the whole interval of the difference, paired by seed, lies within the
    margin; different if it lies outside, or if a run did not train; else not shown. By Schuirmann
    1987 (J. Pharmacokinet. Biopharm. 15), two means are equivalent if the interval of their
    difference lies within a margin that was stated before the experiment. The interval here is one
    of 95 %.
    """
    found, margin = top1_difference(tables, finished(points), base), tables.margin
    if counts(points)["n_diverged"] or found.high < -margin or found.low > margin:
        return "different"
    return "equal" if -margin <= found.low and found.high <= margin else "not shown"


def top1_difference(tables: Tables, points: Frame, base: Frame) -> Interval:
    """Return the mean difference of top-1, paired by seed.

    It is on test images, or on validation images if no pair of runs has been scored on the former.
    """
    found = (_difference(tables, points, base, metric) for metric in reversed(METRICS))
    return next((each for each in found if each.n), NONE)


def _difference(tables: Tables, points: Frame, base: Frame, metric: str) -> Interval:
    """Return a mean difference of top-1, paired by seed, as it would be with other test images."""
    draw = variance_of_draw(tables, points, base) if metric == METRICS[1] else 0.0
    return difference(points, base, metric, draw)


def variance_of_draw(tables: Tables, one: Frame, other: Frame) -> float:
    """Return the variance of the difference of two mean accuracies due to the draw of the images.

    `one` and `other` have rows of finished runs. The result is 0 if records do not say which images
    were classified correctly. All runs are scored on the same images, so that the variance between
    seeds does not contain this variance. Images that both sides classify equally often correctly
    cancel: an image counts by how much more often one side is right about it than the other
    (McNemar 1947, here for means over seeds).
    """
    right = [
        [tables.right[key] for key in own["key"] if key in tables.right] for own in (one, other)
    ]
    if not all(right):
        return 0.0
    difference = np.mean(right[0], axis=0) - np.mean(right[1], axis=0)  # by image
    return float(difference.var() / len(difference))


def baseline(finished: Frame, configuration: Configuration) -> Frame:
    """Return the one-process points that a configuration is compared with; no rows without any."""
    one = one_process(configuration)
    same_scheme = matching(finished, one)
    if len(same_scheme):
        return same_scheme
    arms = _arms(finished, one)
    return max(arms, key=lambda arm: arm[_SPEED].mean(), default=finished[:0])


def _arms(points: Frame, configuration: Configuration) -> list[Frame]:
    """Return the points in the situation of a configuration, divided by scheme and its settings."""
    own = [name for name in configuration if is_of_scheme(name)]
    given = {name: value for name, value in configuration.items() if name not in own}
    return [arm for _, arm in groups(matching(points, given), own)]


def comparison(tables: Tables, configuration: Configuration, points: Frame) -> Row:
    """Return the columns on the comparison with the scheme `reference`.

    `reference_speed_ratio` is images/s divided by images/s of the reference.
    `reference_<metric>_difference` is top-1 minus top-1 of the reference. Runs are paired by seed.
    A configuration of the reference itself has none of these columns. They are empty if the
    reference has several settings, none of which are those of the configuration.
    """
    if is_reference(tables.runs, configuration):
        return {}
    reference, own = reference_arm(tables.runs), finished(points)
    other = matching(tables.finished, configuration | reference)
    if not len(other):
        arms = _arms(matching(tables.finished, reference), configuration)
        other = arms[0] if len(arms) == 1 else other
    row: Row = {"reference": reference["scheme"]}
    row |= ratio(own, other, _SPEED).named("reference_speed_ratio")
    for metric in METRICS:
        found = _difference(tables, own, other, metric)
        row |= found.named(f"reference_{metric}_difference")
    return row


def compared_by(tables: Tables) -> str:
    """Return the column by which the configurations of a study are compared with each other.

    It is the time to the target if the study sets one, else top-1 if a run was
    evaluated, else images/s.
    """
    if tables.about["target"]:
        return "target_seconds"
    evaluated = (metric for metric in reversed(METRICS) if tables.finished[metric].notna().any())
    return next(evaluated, _SPEED)


def against_first(tables: Tables) -> Frame:
    """Return each configuration against the first of its kind and data that shares seeds.

    Runs are paired by seed. The rows are those of configurations.csv, with the columns `first_mean`
    and so on: the difference of top-1, or the ratio of what `compared_by` names. They are empty for
    the first, and where a run has missed the target.
    """
    by, firsts, rows = compared_by(tables), list[Frame](), list[Row]()
    seconds = target_seconds(tables)
    for _, points in configurations(tables.runs, list(dict.fromkeys(["data", *tables.axes]))):
        own = finished(points)
        own = own.assign(target_seconds=own["key"].map(seconds).astype(float))
        alike = (first for first in firsts if _alike(first, own))
        first, found = next(alike, None), NONE
        if first is None:
            firsts.append(own)
        elif by in METRICS:
            found = top1_difference(tables, own, first)
        elif not (own[by].isna().any() or first[by].isna().any()):
            found = ratio(own, first, by)
        rows.append(found.named("first"))
    return pd.DataFrame(rows)


def _alike(one: Frame, other: Frame) -> bool:
    return all(set(one[name]) & set(other[name]) for name in ("kind", "data", "seed"))
