"""Tests whether many workers end at the accuracy of one: two one-sided tests (TOST).

Schuirmann 1987, J. Pharmacokinet. Biopharm. 15: two means are equivalent if the interval of their
difference lies within a margin stated before. The interval is that of `intervals`, 95 %, which
makes each of the two tests one of 2.5 %.
"""

from typing import Literal

import pandas as pd

from paceline.analysis.comparison import METRICS
from paceline.analysis.configuration import Configuration, paired
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import Interval, interval
from paceline.analysis.scaling import speedups
from paceline.analysis.statistics.space import DIFFERENCES, POSITIVE
from paceline.analysis.tables import Tables

Verdict = Literal["equal", "different", "not shown"]
_COLUMNS = ["metric", "margin", "lost_seeds", "verdict"]


def equal_accuracy(tables: Tables) -> Frame:
    """Return one row per configuration of several workers that has a speed-up.

    `top1_difference` is top-1 (that of test, if it is known) minus that of the baseline of the
    speed-up, paired by seed, as a share; so is `margin`. `verdict`: equal, if its interval lies
    within the margin; different, if it lies outside, or if `lost_seeds` diverged, which no mean
    contains; else not shown. Only the speed-up of equal accuracies is more than one of throughput.
    """
    rows = [_row(*sides, tables.margin) for sides in speedups(tables)]
    names = [*interval([]).named("speedup"), *interval([]).named("top1_difference")]
    return pd.DataFrame(rows, columns=["kind", *tables.axes, *names, *_COLUMNS])


def _row(configuration: Configuration, points: Frame, base: Frame, margin: float) -> Row:
    finished = points[points["status"] == "finished"]
    speeds = paired(finished, base, "images_per_second")
    difference, metric = top1_difference(finished, base)
    lost = int((points["status"] == "diverged").sum())
    return (
        configuration
        | interval(speeds["value"] / speeds["base"], POSITIVE).named("speedup")
        | difference.named("top1_difference")
        | {"metric": metric, "margin": margin, "lost_seeds": lost}
        | {"verdict": "different" if lost else equivalence(difference, margin)}
    )


def top1_difference(points: Frame, base: Frame) -> tuple[Interval, str]:
    """Return the difference of top-1, paired by seed, and the name of the metric.

    It is that of test, unless no seed has one on both sides.
    """
    for metric in reversed(METRICS):
        pairs = paired(points, base, metric)
        if len(pairs):
            return interval(pairs["value"] - pairs["base"], DIFFERENCES), metric
    return interval([]), ""


def equivalence(difference: Interval, margin: float) -> Verdict:
    """Judge an interval by `margin`, in the same unit."""
    if -margin <= difference.low and difference.high <= margin:
        return "equal"
    return "different" if difference.high < -margin or difference.low > margin else "not shown"
