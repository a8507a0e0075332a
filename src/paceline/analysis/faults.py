"""Effects of a fault in the middle of a run, against the same run without the fault."""

import pandas as pd

from paceline.analysis.configuration import configurations, matching, paired
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import interval
from paceline.analysis.statistics.space import DIFFERENCES, POSITIVE
from paceline.analysis.tables import Tables

FAULT, NONE = "cluster.fault", "none"


def faults(tables: Tables) -> Frame:
    """Return one row per configuration with a fault; none for a study without this axis.

    `n`, `n_finished`: runs, and those that went on to the end. `seconds_ratio`,
    `test_top1_difference`: of these, against the run of the same seed without the fault.
    `seconds_to_end`: longest time from the fault to the end of a run that failed. `images_lost`:
    mean number of images whose gradients are in no weights in the end: of a run that failed all
    until the fault, else those of late pushes and of the step that a lost worker was in.
    `reason`: what a run says about its end.
    """
    if FAULT not in tables.axes:
        return pd.DataFrame(columns=["kind", *tables.axes])
    rows = [
        configuration | _numbers(tables, configuration, points)
        for configuration, points in configurations(tables.runs, tables.axes)
        if configuration[FAULT] != NONE
    ]
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes])


def _numbers(tables: Tables, configuration: Row, points: Frame) -> Row:
    finished = matching(points, {"status": "finished"})
    failed = matching(points, {"status": "failed"})
    without = matching(tables.finished, configuration | {FAULT: NONE})
    seconds = paired(finished, without, "seconds")
    accuracy = paired(finished, without, "test_top1")
    lost = finished["reason"].ne("") * finished["batch_size"] + finished["dropped_samples"]
    reasons = [reason for reason in points["reason"] if reason]
    return {
        "n": len(points),
        "n_finished": len(finished),
        **interval(seconds["value"] / seconds["base"], POSITIVE).named("seconds_ratio"),
        **interval(accuracy["value"] - accuracy["base"], DIFFERENCES).named("test_top1_difference"),
        "seconds_to_end": failed["fault_seconds"].max(),
        "images_lost": pd.concat([lost, failed["fault_samples"]]).astype(float).mean(),
        "reason": reasons[0] if reasons else "",
    }
