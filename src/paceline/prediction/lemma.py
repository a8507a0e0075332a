"""Lemmas of Zou 2017 (doi 10.1007/978-3-319-69179-4_2) on the number of workers and of servers.

One worker needs T_C + T_O for a step, and G workers that share the batch need T_C / G + T_O. T_C is
the time to compute, T_O the overhead (of exchanges) that does not overlap with computing. So

    speed-up = G alpha,   efficiency alpha = (1 + R) / (1 + G R),   R = T_O / T_C

The formula assumes that T_O does not depend on G. In a ring all-reduce T_O grows by a factor below
2, with one server in proportion to G. The formulas were derived from the times above, without the
paper's text.
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
    """Results of the lemmas and of the virtual clock for one number of workers.

    `lemma`, `predicted`: images/s by the lemma and by the virtual clock. `overhead`: R. `growth`:
    overhead by the virtual clock, divided by the overhead of two workers, from which the lemma
    computes. `servers`: number of servers that the lemma asks for. `predicted_servers`: images/s by
    the virtual clock with so many servers. `served`: most workers for which so many servers
    suffice. The last three are None for a scheme without servers.
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
    """Return the largest R with at least this efficiency; inf if every R has it."""
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
    """Return the fewest servers whose links can transfer all messages while workers compute.

    The messages are the pushes of gradients to servers and the answers with weights. `num_bytes`:
    bytes of all weights. `bandwidth`: bytes/s of a server's link. `seconds`: time that a worker
    computes between two pushes.
    """
    return max(1, math.ceil(2 * num_bytes * workers / (bandwidth * seconds) * (1 - _ROUNDING)))


def workers_served(num_bytes: float, servers: int, bandwidth: float, seconds: float) -> int:
    """Return the most workers for which `servers` suffice; see `servers_needed`."""
    return math.floor(servers * bandwidth * seconds / (2 * num_bytes) * (1 + _ROUNDING))


def lemma_rows(points: Sequence[Point], steps: int = STEPS) -> list[LemmaRow]:
    """Return a row for each point, from predictions of `steps` steps of each worker.

    The lemma's overhead is the time of a step with two workers, less that with one worker. Raises
    SettingError("cluster") for a cluster that is not modelled.
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
