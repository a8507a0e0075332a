"""Compares a configuration with others, paired by seed.

    speed-up = images/s of K workers / images/s of one worker
    efficiency = speed-up / number of processes of the K workers

The baseline is one worker in one process, with otherwise equal settings. If the scheme has no such
run, it is that of the scheme with the fastest one, since one worker trains by plain SGD under any
scheme. Scaling is weak in the batch if the images per worker and step are constant, and strong if K
workers share global_batch_size images. The total of samples is constant in both.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import pandas as pd

from paceline.analysis.block_drift import KEPT
from paceline.analysis.configuration import (
    Configuration,
    configurations,
    finished,
    matching,
    num_processes,
    one_process,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, Interval, difference, interval, ratio
from paceline.analysis.statistics.means import POSITIVE
from paceline.analysis.tables import Tables

REFERENCE = "sync_allreduce"  # the usual choice; if absent, the study's first
METRICS = ("top1", "test_top1")
FAULT, NO_FAULT = "cluster.fault", "none"
_SPEED = "images_per_second"
Verdict = Literal["equal", "different", "not shown"]


def reference_scheme(runs: Frame) -> str:
    """Return the scheme that all others are compared with."""
    schemes = list(dict.fromkeys(runs["scheme"]))
    return REFERENCE if REFERENCE in schemes else schemes[0]


def scaling(tables: Tables, configuration: Configuration, points: Frame) -> Row:
    """Return the columns on speed-up, efficiency and accuracy against one worker.

    `baseline` describes the one-worker points, or why there are none; `n_unpaired` counts finished
    points without a baseline of equal seed. `baseline_<field>` are fields of EqualAccuracy, empty
    for one process and without a speed-up.
    """
    own, base = finished(points), baseline(tables.finished, configuration)
    processes, speedup = num_processes(configuration), ratio(own, base, _SPEED)
    row: Row = {
        "baseline": _baseline_text(configuration, own, base, speedup.n),
        "baseline_scheme": "" if base.empty else base["scheme"].iloc[0],
        "n_unpaired": len(own) - speedup.n,
    }
    row |= speedup.named("speedup")
    row |= ratio(own, base, _SPEED, processes).named("efficiency")
    if processes > 1 and speedup.n:
        accuracy = equal_accuracy(points, base, tables.margin)
        row |= {f"baseline_{name}": getattr(accuracy, name) for name in accuracy._fields[:3]}
        row |= accuracy.difference.named("baseline_top1_difference")
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
    scheme = base["scheme"].iloc[0]
    worker = "1 worker" if scheme == configuration["scheme"] else f"1 worker of {scheme}"
    return f"{worker}, same settings otherwise, {num_pairs} seeds in common"


class EqualAccuracy(NamedTuple):
    """Comparison of the accuracy of many workers with that of one.

    `difference` is top-1 of `metric` minus that of the baseline, paired by seed. The `verdict` is
    equal if its interval lies within the `margin`, different if it lies outside or if `lost_seeds`
    diverged, which no mean contains, and else not shown.
    """

    verdict: Verdict
    metric: str
    margin: float
    difference: Interval
    lost_seeds: int


def equal_accuracy(points: Frame, base: Frame, margin: float) -> EqualAccuracy:
    """Test whether points are as accurate as their baseline by two one-sided tests (TOST).

    Schuirmann 1987, J. Pharmacokinet. Biopharm. 15: two means are equivalent if the interval of
    their difference, here of 95 %, lies within a margin that was stated before.
    """
    found, metric = top1_difference(finished(points), base)
    lost = int((points["status"] == "diverged").sum())
    verdict: Verdict = "not shown"
    if lost or found.high < -margin or found.low > margin:
        verdict = "different"
    elif -margin <= found.low and found.high <= margin:
        verdict = "equal"
    return EqualAccuracy(verdict, metric, margin, found, lost)


def top1_difference(points: Frame, base: Frame) -> tuple[Interval, str]:
    """Return the difference of test top-1, else of validation top-1, and the metric's name."""
    for metric in reversed(METRICS):
        found = difference(points, base, metric)
        if found.n:
            return found, metric
    return NONE, ""


def speedups(tables: Tables) -> Iterator[tuple[Configuration, Frame, Frame]]:
    """Yield each configuration of several processes that has a speed-up.

    With it come its points, including those that did not finish, and the points of its baseline.
    """
    for configuration, points in configurations(tables.runs, tables.axes):
        base = baseline(tables.finished, configuration)
        if num_processes(configuration) > 1 and ratio(finished(points), base, _SPEED).n:
            yield configuration, points, base


def baseline(finished: Frame, configuration: Configuration) -> Frame:
    """Return the one-process points that a configuration is compared with, if there are any."""
    one = one_process(configuration)
    same_scheme = matching(finished, one)
    if len(same_scheme):
        return same_scheme
    others = matching(finished, {name: one[name] for name in one if name != "scheme"})
    means = others.groupby("scheme")[_SPEED].mean()
    return others[others["scheme"] == means.idxmax()] if len(others) else others


def unequal_samples(tables: Tables) -> tuple[float, float] | None:
    """Return the least and most samples of a finished point; None if within 1 %."""
    samples = tables.finished["samples"].dropna()
    equal = samples.empty or samples.max() <= 1.01 * samples.min()
    return None if equal else (samples.min(), samples.max())


def comparison(tables: Tables, configuration: Configuration, points: Frame) -> Row:
    """Return the columns on the comparison with the `reference` scheme; it has none itself.

    `reference_speed_ratio` is of images/s, `reference_<metric>_difference` of top-1, paired by
    seed.
    """
    reference = reference_scheme(tables.runs)
    if configuration["scheme"] == reference:
        return {}
    own = finished(points)
    other = matching(tables.finished, configuration | {"scheme": reference})
    row: Row = {"reference": reference}
    row |= ratio(own, other, _SPEED).named("reference_speed_ratio")
    for metric in METRICS:
        row |= difference(own, other, metric).named(f"reference_{metric}_difference")
    return row


def fault(tables: Tables, configuration: Configuration, points: Frame) -> Row:
    """Return the columns on a fault in the middle of a run.

    `fault_seconds_ratio` and `fault_test_top1_difference` compare finished runs with the run of the
    same seed without the fault. `fault_seconds_to_end` is the longest time from the fault to the
    end of a failed run. `fault_images_lost` is the mean number of images whose gradients are in no
    weights at the end: all until the fault if a run failed, else those of late pushes and of a lost
    worker's last step. `fault_reason` is what a run reports.
    """
    if configuration.get(FAULT, NO_FAULT) == NO_FAULT:
        return {}
    own, failed = finished(points), matching(points, {"status": "failed"})
    without = matching(tables.finished, configuration | {FAULT: NO_FAULT})
    lost = own["reason"].ne("") * own["batch_size"] + own["dropped_samples"]
    row = ratio(own, without, "seconds").named("fault_seconds_ratio")
    row |= difference(own, without, "test_top1").named("fault_test_top1_difference")
    return row | {
        "fault_seconds_to_end": failed["fault_seconds"].max(),
        "fault_images_lost": pd.concat([lost, failed["fault_samples"]]).astype(float).mean(),
        "fault_reason": next(filter(None, points["reason"]), ""),
    }


def block_ratio(tables: Tables, configuration: Configuration, points: Frame) -> Row:
    """Return the column `block_ratio`: images/s over the mean of the block's two reference runs.

    It is empty for the reference, and without a finished point in a block that is kept.
    """
    kept = tables.blocks[tables.blocks["verdict"] == KEPT].set_index("block")
    references = kept[["first", "last"]].astype(float).mean(axis=1).rename("reference")
    own = finished(points).set_index("seed")
    both = own.join(references, how="inner").dropna(subset=_SPEED)
    if not len(both) or len(matching(tables.repeats, configuration)):
        return {}
    return interval(both[_SPEED] / both["reference"], POSITIVE).named("block_ratio")
