"""Scheme against scheme, at the same workers and settings, seed by seed."""

import pandas as pd

from paceline.analysis.configuration import configurations, matching, paired
from paceline.analysis.intervals import interval
from paceline.analysis.tables import Frame, Tables

REFERENCE = "sync_allreduce"  # what a reader would use without asking; else the study's first
DIFFERENCES = ("top1", "test_top1")


def reference_scheme(runs: Frame) -> str:
    schemes = list(dict.fromkeys(runs["scheme"]))
    return REFERENCE if REFERENCE in schemes else schemes[0]


def comparison(tables: Tables) -> Frame:
    """`speed_ratio`: images/s over those of the reference; `*_difference`: minus the reference's.

    A row per configuration of every other scheme; no row where the study has one scheme.
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
        row |= interval(speed["value"] / speed["base"]).named("speed_ratio")
        for metric in DIFFERENCES:
            pairs = paired(finished, other, metric)
            row |= interval(pairs["value"] - pairs["base"]).named(f"{metric}_difference")
        rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes, "reference"])
