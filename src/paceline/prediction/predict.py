"""Predicts a point's throughput on a modelled cluster."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.assumptions import Interval, interval
from paceline.prediction.timed_run import TimedRun, sized_workload, timed_run
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.timing.step_times import StepRate


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

    `draws`: number of random draws of what the profile assumes, for the interval; 0 for none.
    Raises SettingError for a cluster that is not modelled, and for fewer than two steps.
    """
    if steps < 2:
        raise SettingError("steps", f"{steps} are too few for a rate")
    if draws < 0:
        raise SettingError("draws", f"0 or more are needed, not {draws}")
    point = Point.of(config)
    workload = sized_workload(point)
    run = timed_run(point, steps, workload)
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


def cells(prediction: Prediction) -> dict[str, str]:
    """Return a row of the table in the terminal, with the units in its headings."""
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
    low_to_high = " to ".join(f"{end:,.0f}" for end in prediction.interval or ())
    return settings | {
        "images/s": f"{run.images_per_second:,.{0 if run.images_per_second >= 100 else 1}f}",
        **({"90 % of draws": low_to_high} if low_to_high else {}),
        "computing": f"{100 * run.computing:.0f} %",
        "exchanging": f"{100 * run.exchanging:.0f} %",
        "waiting": f"{100 * run.waiting:.0f} %",
        "staleness": f"{run.mean_staleness:.2f}" if run.staleness else "-",
        "busiest": f"{name} {100 * share:.0f} %",
    }


def notes(predictions: Sequence[Prediction]) -> list[str]:
    """Return the lines below the table."""
    found = ["predicted: modelled time, nothing trained; batch_size: images of a worker and step"]
    if any(each.extrapolated for each in predictions):
        found.append("*: outside of the batch sizes that were measured or published")
    return found


def as_json(predictions: Sequence[Prediction]) -> str:
    return json.dumps([_entry(each) for each in predictions], indent=2) + "\n"


def _entry(prediction: Prediction) -> dict[str, object]:
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
