"""Lemmas of Zou 2017 beside the predictions of a modelled cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cluster.virtual import VirtualCluster
from paceline.errors import SettingError
from paceline.planning.lemma import efficiency, servers_needed
from paceline.prediction.predict import sized_workload
from paceline.prediction.timed_run import timed_run
from paceline.record.point import Point

STEPS = 100  # of each worker


@dataclass(frozen=True)
class LemmaRow:
    """One number of workers. `lemma`, `predicted`: images/s.

    `overhead`: R. `growth`: seconds of a step besides computing, as predicted, by those of two
    workers, which are the lemma's. `servers`: by the lemma; None for a scheme that has none.
    `predicted_servers`: images/s with as many.
    """

    point: Point
    lemma: float
    predicted: float
    overhead: float
    growth: float
    servers: int | None
    predicted_servers: float | None


def lemma_rows(points: Sequence[Point], steps: int = STEPS) -> list[LemmaRow]:
    """Compute a row for each point; the overhead is what two workers add to the step of one.

    `steps`: of each worker, from which times are predicted.

    Raises SettingError("cluster") for a cluster that is not modelled.
    """
    return [_row(point, steps) for point in points]


def lemma_table(found: Sequence[LemmaRow]) -> str:
    """Return a line for each row, and what the columns mean."""
    head = ["workers", "R", "alpha", "lemma images/s", "predicted", "overhead grows"]
    rows = [head, *map(_columns, found)]
    if any(len(row) > len(head) for row in rows):
        head += ["servers by lemma", "predicted with these"]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
    names = found[0].point.config.names
    of = f"{names['workload']} on {names['cluster']}, {names['scheme']}"
    return "\n".join(
        [
            *(line.rstrip() for line in lines),
            f"{of}; the lemma takes the overhead of two workers for any number of them,",
            "where it is predicted to grow as the column says; alpha: efficiency by the lemma",
        ]
    )


def _row(point: Point, steps: int) -> LemmaRow:
    step = _step_seconds(point, steps, workers=1)
    two = _step_seconds(point, steps, workers=2)
    overhead = max(0.0, two - step)
    batch, workers = point.batch_size * point.workers, point.workers
    seconds = _step_seconds(point, steps)
    servers = _servers(point, step) if point.scheme.servers else None
    with_servers = None if servers is None else _step_seconds(point, steps, servers=servers)
    return LemmaRow(
        point=point,
        lemma=batch / (step + overhead),
        predicted=batch / seconds,
        overhead=overhead / (workers * step),
        growth=(seconds - step) / overhead if overhead else 1.0,
        servers=servers,
        predicted_servers=None if with_servers is None else batch / with_servers,
    )


def _servers(point: Point, step: float) -> int:
    cluster = point.cluster
    assert isinstance(cluster, VirtualCluster)
    profile = cluster.profile
    link = profile.node_link if profile.one_machine else profile.link
    num_bytes = sized_workload(point).message_bytes(1, 1)
    return servers_needed(num_bytes, point.workers, link.bandwidth, step)


def _step_seconds(
    point: Point, steps: int, *, workers: int | None = None, servers: int | None = None
) -> float:
    """Return the mean seconds of a worker's step, by images/s over all workers."""
    config = point.config
    if servers is not None:
        config = config.replaced(scheme={**config.values["scheme"], "servers": servers})
    changed = Point.of(config.replaced(workers=workers or point.workers))
    if not isinstance(changed.cluster, VirtualCluster):
        raise SettingError("cluster", f"{config.names['cluster']} is not modelled")
    run = timed_run(changed, sized_workload(changed), steps)
    return changed.workers * changed.batch_size / run.images_per_second


def _columns(row: LemmaRow) -> list[str]:
    workers = row.point.workers
    columns = [
        f"{workers:,}",
        f"{row.overhead:.3g}",
        f"{efficiency(row.overhead, workers):.2f}",
        f"{row.lemma:,.0f}",
        f"{row.predicted:,.0f}",
        f"{row.growth:.2f} times",
    ]
    if row.servers is None or row.predicted_servers is None:
        return columns
    return [*columns, f"{row.servers:,}", f"{row.predicted_servers:,.0f}"]
