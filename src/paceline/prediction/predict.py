"""Prediction of a point's throughput on a modelled cluster."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.assumptions import Interval, interval
from paceline.prediction.timed_run import TimedRun, timed_run
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.timing.step_rate import StepRate
from paceline.timing.workload import OWN, AbstractWorkload


@dataclass(frozen=True)
class Prediction:
    """Prediction for one point.

    `interval`: of images/s over what the profile assumes; None if it was not asked for. `swept`:
    values of the settings by which it differs from others. `rate`: of the accelerators;
    None if cluster.step_seconds decides. `rows`: ids of the published rows that went into the rate
    and into the rest of the profile.
    """

    point: Point
    run: TimedRun
    interval: Interval | None
    swept: Mapping[str, str]
    rate: StepRate | None
    rows: Sequence[str]

    @property
    def extrapolated(self) -> bool:
        """True if the batch size is outside of those that were measured or published."""
        cluster = self.point.cluster
        assert isinstance(cluster, VirtualCluster)
        return not cluster.covers(self.point.workload, self.point.batch_size)


def predict(
    config: PointConfig, steps: int, swept: Mapping[str, str] | None = None, draws: int = 0
) -> Prediction:
    """Predict from `steps` steps of every worker; Prediction documents `swept`.

    `draws`: of what the profile assumes, for the interval; 0 for none.
    Raises SettingError for a cluster that is not modelled, and for fewer than two steps.
    """
    if steps < 2:
        raise SettingError("steps", f"{steps} are too few for a rate")
    if draws < 0:
        raise SettingError("draws", f"0 or more are needed, not {draws}")
    point = Point.of(config)
    workload = sized_workload(point)
    run = timed_run(point, workload, steps)
    assert isinstance(point.cluster, VirtualCluster)
    rate = point.cluster.rate_of(point.workload)
    return Prediction(
        point=point,
        run=run,
        interval=interval(config, workload, steps, draws) if draws else None,
        swept=swept or {},
        rate=rate,
        rows=[*(rate.rows if rate else ()), *point.cluster.fitted_to],
    )


def table(predictions: Sequence[Prediction]) -> str:
    """Return a line for each prediction, with its units in the head."""
    columns = [_columns(each) for each in predictions]
    head = list(columns[0])
    rows = [head, *(list(each.values()) for each in columns)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
    notes = ["predicted: modelled time, nothing trained; batch_size: images of a worker and step"]
    if any(each.extrapolated for each in predictions):
        notes.append("*: outside of the batch sizes that were measured or published")
    return "\n".join([*(line.rstrip() for line in lines), *notes])


def as_json(predictions: Sequence[Prediction]) -> str:
    return json.dumps([_json(each) for each in predictions], indent=2) + "\n"


def _columns(prediction: Prediction) -> dict[str, str]:
    point, run, names = prediction.point, prediction.run, prediction.point.config.names
    name, share = run.busiest
    settings = {
        "cluster": names["cluster"],
        "workload": names["workload"],
        "scheme": names["scheme"],
        **prediction.swept,
        "workers": f"{point.workers:,}",
        "batch_size": f"{point.batch_size:,}{'*' if prediction.extrapolated else ''}",
    }
    return settings | {
        "images/s": f"{run.images_per_second:,.{0 if run.images_per_second >= 100 else 1}f}",
        **({"90 % of draws": _range(prediction.interval)} if prediction.interval else {}),
        "computing": f"{100 * run.computing:.0f} %",
        "exchanging": f"{100 * run.exchanging:.0f} %",
        "waiting": f"{100 * run.waiting:.0f} %",
        "staleness": f"{run.mean_staleness:.2f}" if run.staleness else "-",
        "busiest": f"{name} {100 * share:.0f} %",
    }


def _json(prediction: Prediction) -> dict[str, object]:
    point, run, names = prediction.point, prediction.run, prediction.point.config.names
    name, share = run.busiest
    return {
        "kind": "predicted",
        "cluster": names["cluster"],
        "workload": names["workload"],
        "scheme": names["scheme"],
        "settings": dict(prediction.swept),
        "workers": point.workers,
        "batch_size": point.batch_size,
        "images_per_second": run.images_per_second,
        "images_per_second_interval": prediction.interval and list(prediction.interval),
        "share_computing": run.computing,
        "share_exchanging": run.exchanging,
        "share_waiting": run.waiting,
        "pushes_by_staleness": {str(key): n for key, n in sorted(run.staleness.items())},
        "busiest": name,
        "share_busiest": share,
        "extrapolated_batch_size": prediction.extrapolated,
        "rows": list(prediction.rows),
    }


def _range(interval: Interval) -> str:
    return f"{interval.low:,.0f} to {interval.high:,.0f}"


def sized_workload(point: Point) -> AbstractWorkload:
    """Return the workload of a run without training: its own, or one with the model's bytes."""
    if point.workload.name != OWN:
        return point.workload
    model = point.model.build()
    size = 8 if point.training.precision == "64-true" else 4  # bytes of a weight on the wire
    statistics = sum(each.numel() for each in model.buffers() if each.is_floating_point())
    tensors = [weight.numel() for weight in model.parameters()]
    return point.workload.of_size(size * sum(tensors), size * statistics, tensors)
