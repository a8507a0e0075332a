"""Computes speed-up, efficiency and accuracy against one worker at the same settings otherwise.

    speed-up = images/s of K workers / images/s of one worker, paired by seed
    efficiency = speed-up / number of processes of the K workers

The one worker is one process, also where each of the others is several. If a scheme has no run with
one worker, the baseline is the fastest scheme that has one, since a single worker is plain SGD
under any scheme. Scaling is weak in the batch if the images per worker and step are constant: a
step of K workers takes K times as many images. It is strong in a study that sets global_batch_size:
K workers share the images that one takes in a step. The total of samples is constant in both.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from paceline.analysis.comparison import METRICS
from paceline.analysis.configuration import (
    Configuration,
    RowOf,
    configurations,
    matching,
    num_processes,
    one_process,
    paired,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import NONE, Interval, interval
from paceline.analysis.statistics.space import DIFFERENCES, POSITIVE
from paceline.analysis.tables import Tables

Verdict = Literal["equal", "different", "not shown"]


def scaling(tables: Tables) -> RowOf:
    """Return what fills the columns on speed-up, efficiency and accuracy against one worker.

    `baseline`: the one-worker points in words, or why there are none, with `baseline_scheme`;
    `n_unpaired`: finished points without a baseline of equal seed; `speedup`, paired by seed;
    `efficiency`. `baseline_verdict` and the other fields of EqualAccuracy are empty without a
    speed-up and for one process.
    """

    def row(configuration: Configuration, points: Frame) -> Row:
        own = matching(points, {"status": "finished"})
        base = baseline(tables.finished, configuration)
        pairs = paired(own, base, "images_per_second")
        ratios = pairs["value"] / pairs["base"]
        row = (
            {
                "baseline": _baseline_text(configuration, own, base, len(pairs)),
                "baseline_scheme": "" if base.empty else base["scheme"].iloc[0],
                "n_unpaired": len(own) - len(pairs),
            }
            | interval(ratios, POSITIVE).named("speedup")
            | interval(ratios / num_processes(configuration), POSITIVE).named("efficiency")
        )
        if num_processes(configuration) > 1 and len(pairs):
            row |= equal_accuracy(points, base, tables.margin).named("baseline_")
        return row

    return row


class EqualAccuracy(NamedTuple):
    """Comparison of the accuracy of many workers with that of one.

    `difference` is top-1 of `metric` minus that of the baseline, paired by seed, as a share; so is
    `margin`. `verdict`: equal, if its interval lies within the margin; different, if it lies
    outside, or if `lost_seeds` diverged, which no mean contains; else not shown.
    """

    verdict: Verdict
    metric: str
    margin: float
    difference: Interval
    lost_seeds: int

    def named(self, prefix: str) -> Row:
        """Return the columns of a table; the lost seeds are those that diverged."""
        columns = {f"{prefix}{name}": getattr(self, name) for name in self._fields[:3]}
        return columns | self.difference.named(f"{prefix}top1_difference")


def equal_accuracy(points: Frame, base: Frame, margin: float) -> EqualAccuracy:
    """Test whether points are as accurate as their baseline: two one-sided tests (TOST).

    Schuirmann 1987, J. Pharmacokinet. Biopharm. 15: two means are equivalent if the interval of
    their difference lies within a margin stated before. The interval is that of `intervals`, 95 %,
    which makes each of the two tests one of 2.5 %. Only the speed-up of equal accuracies is more
    than one of throughput.
    """
    difference, metric = top1_difference(matching(points, {"status": "finished"}), base)
    lost = int((points["status"] == "diverged").sum())
    verdict: Verdict = "not shown"
    if lost or difference.high < -margin or difference.low > margin:
        verdict = "different"
    elif -margin <= difference.low and difference.high <= margin:
        verdict = "equal"
    return EqualAccuracy(verdict, metric, margin, difference, lost)


def top1_difference(points: Frame, base: Frame) -> tuple[Interval, str]:
    """Return the difference of top-1, paired by seed, and the name of the metric.

    It is that of test, unless no seed has one on both sides.
    """
    for metric in reversed(METRICS):
        pairs = paired(points, base, metric)
        if len(pairs):
            return interval(pairs["value"] - pairs["base"], DIFFERENCES), metric
    return NONE, ""


def speedups(tables: Tables) -> Iterator[tuple[Configuration, Frame, Frame]]:
    """Yield each configuration of several processes that has a speed-up.

    With it come its points, also those that did not finish, and those of its baseline.
    """
    for configuration, points in configurations(tables.runs, tables.axes):
        base = baseline(tables.finished, configuration)
        finished = points[points["status"] == "finished"]
        if num_processes(configuration) > 1 and len(paired(finished, base, "images_per_second")):
            yield configuration, points, base


def unequal_samples(tables: Tables) -> tuple[float, float] | None:
    """Return the smallest and the largest number of samples of a finished point.

    The result is None if all are equal to within 1 %, which the last global batch can add.
    """
    samples = tables.finished["samples"].dropna()
    equal = samples.empty or samples.max() <= 1.01 * samples.min()
    return None if equal else (samples.min(), samples.max())


def baseline(finished: Frame, configuration: Configuration) -> Frame:
    """Return the points of one process that a configuration is compared with; perhaps none."""
    alone = one_process(configuration)
    same_scheme = matching(finished, alone)
    if len(same_scheme):
        return same_scheme
    others = matching(finished, {name: alone[name] for name in alone if name != "scheme"})
    means = others.groupby("scheme")["images_per_second"].mean()
    return others[others["scheme"] == means.idxmax()] if len(others) else others


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
