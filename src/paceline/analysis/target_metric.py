"""Metric of a study's target, by its column in runs.csv and curves.csv."""

from typing import NamedTuple

from paceline.analysis.frames import Frame
from paceline.analysis.tables import Tables


class TargetMetric(NamedTuple):
    """Metric of validation. `sign`: 1 if more of it is better, -1 if less is."""

    column: str
    sign: int

    def gain(self, table: Frame) -> Frame:
        """Return the metric of each row, its sign changed if less is better."""
        return self.sign * table[self.column]


TOP1 = TargetMetric("top1", 1)
_METRICS = (TOP1, TargetMetric("top5", 1), TargetMetric("validation_loss", -1))


def target_metric(tables: Tables) -> TargetMetric:
    """Return the metric that the study's target is of; top-1 if it asks for none."""
    asked = tables.about["target"]
    if not asked:
        return TOP1
    return next(each for each in _METRICS if each.column.endswith(asked["metric"]))
