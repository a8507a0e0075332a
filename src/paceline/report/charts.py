"""Lists the charts of a study, in the reader's order."""

from paceline.report.chart.chart_style import Chart
from paceline.report.chart.decision_chart import decision_chart
from paceline.report.chart.map_chart import map_chart
from paceline.report.chart.prediction_chart import prediction_charts
from paceline.report.chart.scale_chart import scale_chart
from paceline.report.chart.time_chart import time_chart
from paceline.report.chart.timeline_chart import timeline_chart
from paceline.report.chart.tuning_chart import tuning_chart
from paceline.report.chart.why_chart import phase_chart, staleness_chart
from paceline.report.findings import StudyFindings

_IN_ORDER = (
    map_chart,
    decision_chart,
    time_chart,
    scale_chart,
    phase_chart,
    staleness_chart,
    timeline_chart,
    tuning_chart,
)
_BESIDE_PREDICTIONS = (decision_chart, phase_chart, staleness_chart)


def charts(findings: StudyFindings) -> list[Chart]:
    """Return the charts for which the study has numbers; equal findings make equal charts."""
    predicted = prediction_charts(findings)
    rest = _BESIDE_PREDICTIONS if predicted else _IN_ORDER
    made = [*predicted, *(make(findings) for make in rest)]
    return [chart for chart in made if chart is not None]
