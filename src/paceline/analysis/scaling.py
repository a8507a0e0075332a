"""Computes speed-up and efficiency against one worker of the same configuration otherwise.

    speed-up = images/s of K workers / images/s of one worker, paired by seed
    efficiency = speed-up / number of processes of the K workers

The one worker is one process, also where each of the others is several. If a scheme has no run with
one worker, the baseline is the fastest scheme that has one, since one worker alone is plain SGD
under any scheme. Scaling is weak in the batch if the images per worker and step are constant: a
step of K workers takes K times as many images. It is strong in a study that sets global_batch_size:
K workers share the images that one takes in a step. The total number of samples is constant, too.
"""

from collections.abc import Iterator

import pandas as pd

from paceline.analysis.configuration import (
    Configuration,
    configurations,
    matching,
    num_processes,
    one_process,
    paired,
)
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import interval
from paceline.analysis.statistics.space import POSITIVE
from paceline.analysis.tables import Tables


def scaling(tables: Tables) -> Frame:
    """Return one row per configuration with its speed-up and efficiency.

    `baseline` describes the points with one worker, or says why there are none. `baseline_scheme`
    is their scheme. `n_unpaired` counts the finished points without a partner of equal seed.
    """
    finished = tables.finished
    rows = [
        _row(configuration, matching(finished, configuration), finished)
        for configuration, _ in configurations(tables.runs, tables.axes)
    ]
    return pd.DataFrame(rows)


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


def _row(configuration: Configuration, points: Frame, finished: Frame) -> Row:
    base = baseline(finished, configuration)
    pairs = paired(points, base, "images_per_second")
    ratios = pairs["value"] / pairs["base"]
    return (
        configuration
        | {
            "baseline": _baseline_text(configuration, points, base, len(pairs)),
            "baseline_scheme": "" if base.empty else base["scheme"].iloc[0],
            "n_unpaired": len(points) - len(pairs),
        }
        | interval(ratios, POSITIVE).named("speedup")
        | interval(ratios / num_processes(configuration), POSITIVE).named("efficiency")
    )


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
