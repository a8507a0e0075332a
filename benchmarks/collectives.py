"""Seconds in which real processes sum a vector by each collective, and the bytes that they send.

FireCaffe's figure 5 (arXiv:1511.00175, server against tree) and Kumar's comparison of multicolor
with others (arXiv:1711.00705): on one machine, and over links of 200 Mbit/s between emulated nodes
of one worker each. All turns are written to collectives.csv, by which claims of both papers are
judged. With more processes than cores the cores limit the speed.
"""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from benchmarks.config import ROOT, point_of
from benchmarks.exchange_turns import Asked, Exchanged, measure_exchanges
from benchmarks.row import row
from paceline.cluster.cluster import AbstractCluster
from paceline.record.provenance import commit

TABLE = ROOT / "benchmarks/collectives.csv"
COLUMNS = ("kind", "cluster", "collective", "workers", "num_bytes", "turn")
COLUMNS += ("status", "seconds", "started", "commit")
COLLECTIVES = ("native", "ring", "tree", "multicolor", "parameter_server")
CLUSTERS = {"local": (), "shaped_nodes": ("cluster.link.bandwidth=2.5e+7",)}
WORKERS = (2, 4, 8, 16)
NUM_BYTES = (30_000, 3_000_000, 30_000_000)
TURNS = 3


def rows() -> Iterator[dict[str, Any]]:
    """Measure all exchanges; write the table and yield their lines."""
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for cluster in CLUSTERS:
            for workers in WORKERS:
                started = datetime.now(UTC).isoformat(timespec="seconds")
                asked = [Asked(name, size // 4) for size in NUM_BYTES for name in COLLECTIVES]
                where = _cluster(cluster, workers)
                found = measure_exchanges(where, workers, asked, TURNS)
                for each, exchanged in zip(asked, found, strict=True):
                    place = (cluster, each.collective, workers, 4 * each.length)
                    for turn, seconds in enumerate(exchanged.seconds):
                        row_of_turn = (turn, "finished", seconds, started, commit())
                        table.writerow([where.kind, *place, *row_of_turn])
                    native = found[asked.index(Asked("native", each.length))]
                    yield from _lines(place, exchanged, fmean(native.seconds))


def _cluster(name: str, workers: int) -> AbstractCluster:
    settings = ("scheme=sync_allreduce", f"cluster={name}", "cluster.accelerator=cpu")
    return point_of(*settings, f"workers={workers}", *CLUSTERS[name]).cluster


def _lines(place: tuple[Any, ...], found: Exchanged, native: float) -> Iterator[dict[str, Any]]:
    cluster, name, workers, num_bytes = place
    title = f"{name}, {workers} workers, {num_bytes / 1e6:g} MB, {cluster}: time / native's"
    seconds = fmean(found.seconds)
    yield row(title, seconds, native, "s", seconds / native, "shown", True)
    if name != "native":  # whose bytes the kernel counts, with headers
        ratio = found.sent / found.formula
        yield row("  sent / formula", found.sent, found.formula, "bytes", ratio, "1", ratio == 1)
