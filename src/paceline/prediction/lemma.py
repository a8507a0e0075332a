"""Lemmas of Zou 2017 (doi 10.1007/978-3-319-69179-4_2) on the number of workers and of servers.

A step of a batch takes one worker T_C + T_O, and G workers that share the batch T_C / G + T_O. T_C
is computing, T_O overhead that is not hidden by computing, and R = T_O / T_C. So

    speed-up = G alpha,   alpha = (1 + R) / (1 + G R)

This assumes that T_O does not depend on G: over a ring it grows by less than 2, over one server in
proportion to G. The formulas were derived anew from these times, without the paper's text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.prediction.predict import sized_workload, timed_run
from paceline.record.point import Point

STEPS = 100  # of each worker, from which times are predicted
_ROUNDING = 1e-9  # relative; a smaller excess needs no further server


@dataclass(frozen=True)
class LemmaRow:
    """One number of workers; `lemma` and `predicted` are images/s.

    `overhead` is R. `growth` is the predicted overhead, divided by that of two workers, which the
    lemma assumes. `servers` are those that the lemma asks for, None for a scheme without servers;
    `predicted_servers` are images/s with them, `served` is the most workers that they suffice for.
    """

    point: Point
    lemma: float
    predicted: float
    overhead: float
    growth: float
    servers: int | None = None
    predicted_servers: float | None = None
    served: int | None = None


def efficiency(overhead: float, workers: float) -> float:
    """Return the efficiency alpha for R = `overhead`."""
    return (1 + overhead) / (1 + workers * overhead)


def largest_overhead(efficiency: float, workers: float) -> float:
    """Return the largest R at which `workers` have at least this efficiency, inf for any."""
    if efficiency * workers <= 1:
        return math.inf
    return (1 - efficiency) / (efficiency * workers - 1)


def most_workers(efficiency: float, overhead: float) -> float:
    """Return the largest number of workers, not rounded, with at least this efficiency."""
    if not overhead:
        return math.inf
    return (1 + overhead - efficiency) / (efficiency * overhead)


def limit_of_speedup(overhead: float) -> float:
    """Return the speed-up that no number of workers exceeds."""
    return (1 + overhead) / overhead if overhead else math.inf


def servers_needed(num_bytes: float, workers: int, bandwidth: float, seconds: float) -> int:
    """Return the fewest servers whose links carry all pushes and answers during computing.

    `num_bytes` are those of all weights, `bandwidth` [bytes/s] that of a server, and `seconds` the
    time that a worker computes between two pushes.
    """
    return max(1, math.ceil(2 * num_bytes * workers / (bandwidth * seconds) * (1 - _ROUNDING)))


def workers_served(num_bytes: float, servers: int, bandwidth: float, seconds: float) -> int:
    """Return the most workers for which so many servers suffice."""
    return math.floor(servers * bandwidth * seconds / (2 * num_bytes) * (1 + _ROUNDING))


def lemma_rows(points: Sequence[Point], steps: int = STEPS) -> list[LemmaRow]:
    """Compute a row for each point; the overhead is what two workers add to the step of one.

    Raises SettingError("cluster") for a cluster that is not modelled.
    """
    return [_row(point, steps) for point in points]


def _row(point: Point, steps: int) -> LemmaRow:
    step = _step_seconds(point, steps, workers=1)
    overhead = max(0.0, _step_seconds(point, steps, workers=2) - step)
    seconds = _step_seconds(point, steps)
    batch, workers = point.batch_size * point.workers, point.workers
    of_workers: dict[str, Any] = {
        "point": point,
        "lemma": batch / (step + overhead),
        "predicted": batch / seconds,
        "overhead": overhead / (workers * step),
        "growth": (seconds - step) / overhead if overhead else 1.0,
    }
    if not point.scheme.servers:
        return LemmaRow(**of_workers)
    assert isinstance(point.cluster, VirtualCluster)
    profile = point.cluster.profile
    link = profile.node_link if profile.one_machine else profile.link
    num_bytes = sized_workload(point).message_bytes(1, 1)
    servers = servers_needed(num_bytes, workers, link.bandwidth, step)
    return LemmaRow(
        **of_workers,
        servers=servers,
        predicted_servers=batch / _step_seconds(point, steps, servers=servers),
        served=workers_served(num_bytes, servers, link.bandwidth, step),
    )


def _step_seconds(
    point: Point, steps: int, *, workers: int | None = None, servers: int | None = None
) -> float:
    """Return the mean seconds of a worker's step."""
    config = point.config
    if servers is not None:
        config = config.replaced(scheme={**config.values["scheme"], "servers": servers})
    try:
        changed = Point.of(config.replaced(workers=workers or point.workers))
    except SettingError as error:
        message = f"the lemmas need the times of one and of two workers: {error.message}"
        raise SettingError(error.setting, message) from error
    return changed.workers * changed.batch_size / timed_run(changed, steps).images_per_second
