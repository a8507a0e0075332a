"""Tags of an experiment in MLflow, by which its page opens as a comparison of a study's runs.

MLflow keeps a saved view of its page of runs (the menu "Views") in a tag of the experiment: the
columns of the list, and the charts. The format is that of MLflow 3.17's page, which is not
documented; a page that cannot read it ignores it.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

TOP1, IMAGES_PER_SECOND = "accuracy/top1", "throughput/images_per_second"
_NAME, _KEY = "Accuracy against throughput", "paceline"  # of the saved view
_SECTIONS = ("comparison", "curve")


def experiment_tags(axes: Sequence[str], note: str | None) -> dict[str, str]:
    """Return the tags of the experiment of a study whose points differ in the settings `axes`.

    `note`: description that the page of the experiment shows.
    """
    text = json.dumps(_state(axes), separators=(",", ":"))
    state = "deflate;" + base64.b64encode(zlib.compress(text.encode())).decode()
    view = {"name": _NAME, "createdAt": 0, "updatedAt": 0, "state": state}
    tags = {
        "mlflow.experimentKind": "custom_model_development",  # else the page is one of GenAI
        f"mlflow.sharedViewState.{_KEY}": json.dumps(view),
    }
    return tags | ({"mlflow.note.content": note} if note else {})


def comparison_link(tracking_uri: str, experiment_id: str) -> str:
    """Return the address of the saved view; for a database, with the command that serves it."""
    page = f"/#/experiments/{experiment_id}/runs?viewStateShareKey={_KEY}&compareRunsMode=CHART"
    if tracking_uri.startswith("http"):
        return tracking_uri.rstrip("/") + page
    return f"http://127.0.0.1:5000{page} after mlflow ui --backend-store-uri {tracking_uri}"


def _state(axes: Sequence[str]) -> Mapping[str, Any]:
    params = [f"params.`{axis}`" for axis in axes]
    metrics = [f"metrics.`{name}`" for name in (TOP1, IMAGES_PER_SECOND)]
    accuracy, speed = ({"key": name, "type": "METRIC"} for name in (TOP1, IMAGES_PER_SECOND))
    groups = [{"mode": "param", "groupByData": axis} for axis in axes if axis != "seed"]
    over_time = {"metricKey": "curve/top1", "xAxisKey": "metric", "useGlobalXaxisKey": False}
    over_time["selectedXAxisMetricKey"] = "curve/seconds"
    charts = [
        _chart("SCATTER", "comparison", _NAME, xaxis=speed, yaxis=accuracy),
        _chart("BAR", "comparison", "Top-1 on test images", metricKey=TOP1),
        _chart("BAR", "comparison", "Images per second", metricKey=IMAGES_PER_SECOND),
        _chart("LINE", "curve", "Top-1 on validation images against seconds", **over_time),
    ]
    about = {"display": True, "isReordered": False, "deleted": False, "isGenerated": True}
    return {
        "searchFilter": f"metrics.`{IMAGES_PER_SECOND}` > 0",
        "orderByKey": metrics[0],
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*metrics, *params],
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": charts,
        "compareRunSections": [{"uuid": name, "name": name, **about} for name in _SECTIONS],
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": groups},  # over seeds
        "groupsExpanded": {},
        "globalLineChartConfig": {
            "xAxisKey": "step",
            "lineSmoothness": 0,
            "selectedXAxisMetricKey": "",
        },
    }


def _chart(kind: str, section: str, title: str, **own: Any) -> dict[str, Any]:
    about = {"uuid": title, "type": kind, "metricSectionId": section, "displayName": title}
    return about | {"runsCountToCompare": 100, "deleted": False, "isGenerated": False} | own
