"""Compares a configuration with others, paired by seed.

The others are the reference scheme at the same settings, the same runs without a fault, and the
reference runs of the same block of time.
"""

import pandas as pd

from paceline.analysis.block_drift import KEPT
from paceline.analysis.configuration import Configuration, RowOf, matching, paired
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import interval, interval_of
from paceline.analysis.statistics.ratio import paired_ratio
from paceline.analysis.statistics.space import DIFFERENCES, POSITIVE
from paceline.analysis.tables import Tables

REFERENCE = "sync_allreduce"  # the usual choice; if absent, the study's first
METRICS = ("top1", "test_top1")
FAULT, NONE = "cluster.fault", "none"


def reference_scheme(runs: Frame) -> str:
    """Return the scheme that all others are compared with."""
    schemes = list(dict.fromkeys(runs["scheme"]))
    return REFERENCE if REFERENCE in schemes else schemes[0]


def comparison(tables: Tables) -> RowOf:
    """Return what fills the columns on the `reference` scheme, which has none itself.

    `reference_speed_ratio`: images/s over those of the reference; `reference_<metric>_difference`:
    top-1 less that of the reference, a share. Both are paired by seed.
    """
    reference, finished = reference_scheme(tables.runs), tables.finished

    def row(configuration: Configuration, points: Frame) -> Row:
        if configuration["scheme"] == reference:
            return {}
        other = matching(finished, configuration | {"scheme": reference})
        own = matching(points, {"status": "finished"})
        speed = paired(own, other, "images_per_second")
        ratio = interval(speed["value"] / speed["base"], POSITIVE)
        row = {"reference": reference} | ratio.named("reference_speed_ratio")
        for metric in METRICS:
            pairs = paired(own, other, metric)
            difference = interval(pairs["value"] - pairs["base"], DIFFERENCES)
            row |= difference.named(f"reference_{metric}_difference")
        return row

    return row


def fault(tables: Tables) -> RowOf:
    """Return what fills the columns on a fault in the middle of a run, of a study of faults.

    `fault_seconds_ratio` and `fault_test_top1_difference`: runs that went on to the end, against
    the run of the same seed without the fault. `fault_seconds_to_end`: the longest from the fault
    to the end of a failed run. `fault_images_lost`: the mean number of images whose gradients are
    in no weights in the end: of a run that failed all until the fault, else those of late pushes
    and of the step that a lost worker was in. `fault_reason`: what a run says about its end.
    """
    finished = tables.finished

    def row(configuration: Configuration, points: Frame) -> Row:
        if configuration.get(FAULT, NONE) == NONE:
            return {}
        own, failed = (matching(points, {"status": name}) for name in ("finished", "failed"))
        without = matching(finished, configuration | {FAULT: NONE})
        seconds = paired(own, without, "seconds")
        accuracy = paired(own, without, "test_top1")
        lost = own["reason"].ne("") * own["batch_size"] + own["dropped_samples"]
        return (
            interval(seconds["value"] / seconds["base"], POSITIVE).named("fault_seconds_ratio")
            | interval(accuracy["value"] - accuracy["base"], DIFFERENCES).named(
                "fault_test_top1_difference"
            )
            | {
                "fault_seconds_to_end": failed["fault_seconds"].max(),
                "fault_images_lost": pd.concat([lost, failed["fault_samples"]])
                .astype(float)
                .mean(),
                "fault_reason": next(filter(None, points["reason"]), ""),
            }
        )

    return row


def block_ratio(tables: Tables) -> RowOf:
    """Return what fills the columns on the references of blocks, of a study that has blocks.

    `block_ratio`: images/s over the mean of the two reference runs of the same block. The
    reference has none itself, nor a configuration that finished in no block that is kept.
    """
    kept = tables.blocks[tables.blocks["verdict"] == KEPT].set_index("block")
    references = kept[["first", "last"]].astype(float).mean(axis=1).rename("reference")

    def row(configuration: Configuration, points: Frame) -> Row:
        own = matching(points, {"status": "finished"}).set_index("seed")
        both = own.join(references, how="inner").dropna(subset="images_per_second")
        if not len(both) or len(matching(tables.repeats, configuration)):
            return {}
        found = paired_ratio(both["images_per_second"], both["reference"])
        return interval_of(found, len(both)).named("block_ratio")

    return row
