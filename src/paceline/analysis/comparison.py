"""Compares schemes at the same number of workers and settings, paired by seed."""

import pandas as pd

from paceline.analysis.configuration import configurations, matching, paired
from paceline.analysis.frames import Frame
from paceline.analysis.intervals import interval
from paceline.analysis.statistics.space import DIFFERENCES, POSITIVE
from paceline.analysis.tables import Tables

REFERENCE = "sync_allreduce"  # the usual choice; if absent, the study's first
METRICS = ("top1", "test_top1")


def reference_scheme(runs: Frame) -> str:
    """Return the scheme that all others are compared with."""
    schemes = list(dict.fromkeys(runs["scheme"]))
    return REFERENCE if REFERENCE in schemes else schemes[0]


def comparison(tables: Tables) -> Frame:
    """Return one row per configuration of every scheme but the reference.

    `speed_ratio` is images/s over those of the reference. `<metric>_difference` is the metric minus
    that of the reference. The table has no rows if the study has one scheme.
    """
    reference = reference_scheme(tables.runs)
    rows = []
    for configuration, points in configurations(tables.runs, tables.axes):
        if configuration["scheme"] == reference:
            continue
        finished = points[points["status"] == "finished"]
        other = matching(tables.finished, configuration | {"scheme": reference})
        speed = paired(finished, other, "images_per_second")
        row = configuration | {"reference": reference}
        row |= interval(speed["value"] / speed["base"], POSITIVE).named("speed_ratio")
        for metric in METRICS:
            pairs = paired(finished, other, metric)
            row |= interval(pairs["value"] - pairs["base"], DIFFERENCES).named(
                f"{metric}_difference"
            )
        rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes, "reference"])
