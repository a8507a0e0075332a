"""Lemmas of Zou 2017 beside the predictions of a modelled cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.planning.columns import aligned
from paceline.planning.lemma import (
    efficiency,
    largest_overhead,
    limit_of_speedup,
    most_workers,
    servers_needed,
    workers_served,
)
from paceline.prediction.timed_run import sized_workload, timed_run
from paceline.record.point import Point

STEPS = 100  # of each worker
_HALF = 0.5  # efficiency below which another worker is hardly worth it


@dataclass(frozen=True)
class LemmaRow:
    """One number of workers. `lemma`, `predicted`: images/s.

    `overhead`: R. `growth`: seconds of a step besides computing, as predicted, by those of two
    workers, which are the lemma's. `servers`: by the lemma; None for a scheme that has none.
    `predicted_servers`: images/s with as many. `served`: most workers that they suffice for.
    """

    point: Point
    lemma: float
    predicted: float
    overhead: float
    growth: float
    servers: int | None
    predicted_servers: float | None
    served: int | None


def lemma_rows(points: Sequence[Point], steps: int = STEPS) -> list[LemmaRow]:
    """Compute a row for each point; the overhead is what two workers add to the step of one.

    `steps`: of each worker, from which times are predicted.

    Raises SettingError("cluster") for a cluster that is not modelled.
    """
    return [_row(point, steps) for point in points]


def lemma_table(found: Sequence[LemmaRow]) -> str:
    """Return a line for each row, and what the columns mean."""
    head = ["workers", "batch_size", "R", "alpha", "half from", "at most", "R for half"]
    head += ["lemma images/s", "predicted", "overhead grows"]
    rows = [head, *map(_columns, found)]
    if any(len(row) > len(head) for row in rows):
        head += ["servers by lemma", "predicted with these", "they serve"]
    names = found[0].point.config.names
    of = f"{names['workload']} on {names['cluster']}, {names['scheme']}"
    return "\n".join(
        [
            aligned(rows),
            f"{of}; the lemma takes the overhead of two workers for any number of them,",
            "where it is predicted to grow as the column says; alpha: efficiency by the lemma;",
            "if workers share the images of a step, it is half from so many workers on, and the",
            "speed-up at most so much; R for half: with which this number of workers has half",
        ]
    )


def _row(point: Point, steps: int) -> LemmaRow:
    step = _step_seconds(point, steps, workers=1)
    two = _step_seconds(point, steps, workers=2)
    overhead = max(0.0, two - step)
    batch, workers = point.batch_size * point.workers, point.workers
    seconds = _step_seconds(point, steps)
    servers, served = _servers(point, step) if point.scheme.servers else (None, None)
    with_servers = None if servers is None else _step_seconds(point, steps, servers=servers)
    return LemmaRow(
        point=point,
        lemma=batch / (step + overhead),
        predicted=batch / seconds,
        overhead=overhead / (workers * step),
        growth=(seconds - step) / overhead if overhead else 1.0,
        servers=servers,
        predicted_servers=None if with_servers is None else batch / with_servers,
        served=served,
    )


def _servers(point: Point, step: float) -> tuple[int, int]:
    """Return how many servers suffice, and the most workers for which so many do."""
    cluster = point.cluster
    assert isinstance(cluster, VirtualCluster)
    profile = cluster.profile
    link = profile.node_link if profile.one_machine else profile.link
    num_bytes = sized_workload(point).message_bytes(1, 1)
    servers = servers_needed(num_bytes, point.workers, link.bandwidth, step)
    return servers, workers_served(num_bytes, servers, link.bandwidth, step)


def _step_seconds(
    point: Point, steps: int, *, workers: int | None = None, servers: int | None = None
) -> float:
    """Return the mean seconds of a worker's step, by images/s over all workers."""
    config = point.config
    if servers is not None:
        config = config.replaced(scheme={**config.values["scheme"], "servers": servers})
    number = workers or point.workers
    try:
        changed = Point.of(config.replaced(workers=number))
    except SettingError as error:
        message = f"the lemmas need the times of one and of two workers, too: {error.message}"
        raise SettingError(error.setting, message) from error
    if not isinstance(changed.cluster, VirtualCluster):
        raise SettingError("cluster", f"{config.names['cluster']} is not modelled")
    run = timed_run(changed, steps)
    return changed.workers * changed.batch_size / run.images_per_second


def _columns(row: LemmaRow) -> list[str]:
    workers = row.point.workers
    columns = [
        f"{workers:,}",
        f"{row.point.batch_size:,}",
        f"{row.overhead:.3g}",
        f"{efficiency(row.overhead, workers):.2f}",
        f"{most_workers(_HALF, row.overhead):,.0f}",
        f"{limit_of_speedup(row.overhead):,.0f} times",
        f"{largest_overhead(_HALF, workers):.3g}",
        f"{row.lemma:,.0f}",
        f"{row.predicted:,.0f}",
        f"{row.growth:.2f} times",
    ]
    if row.servers is None or row.predicted_servers is None:
        return columns
    served = f"{row.served:,} workers"
    return [*columns, f"{row.servers:,}", f"{row.predicted_servers:,.0f}", served]
