"""What the bus of a machine costs, on each modelled cluster whose accelerators share one: an
all-reduce among those of a node, and a whole step of a network that the profile can time.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.config import ROOT, point_of
from benchmarks.row import row
from paceline.cluster.virtual import VirtualCluster
from paceline.exchange.collectives import collective
from paceline.prediction.predict import predict
from paceline.study.compose import composed
from paceline.timing.machine import messages_at_once

NETWORKS = ("resnet50", "alexnet")
OWN_LINKS = "nvswitch"


def rows() -> Iterator[dict[str, Any]]:
    for name in sorted(path.stem for path in (ROOT / "conf/cluster").glob("*.yaml")):
        cluster = composed([f"cluster={name}", "data=synthetic"], ROOT).target("cluster").build()
        if isinstance(cluster, VirtualCluster) and messages_at_once(cluster.topology):
            yield from _costs(name, cluster)


def _costs(name: str, cluster: VirtualCluster) -> Iterator[dict[str, Any]]:
    bus = cluster.profile
    own, workers = replace(bus, topology=OWN_LINKS), bus.workers_per_node or 4
    for network in NETWORKS:
        settings = [f"cluster={name}", f"workload={network}", f"workers={workers}"]
        point = point_of(*settings, "cluster.step_seconds=1")
        num_bytes = point.workload.weight_bytes(0)
        seconds = [collective("native").seconds(num_bytes, workers, each) for each in (bus, own)]
        of = f"{name}, {workers} accelerators of a node, {network}"
        yield _row(f"{of}: all-reduce over the bus / over own links", seconds, "s")
        if network in cluster.step_rates:
            each = [[*settings, f"cluster.topology={of}"] for of in (cluster.topology, OWN_LINKS)]
            rates = [predict(composed(those, ROOT), 200).run.images_per_second for those in each]
            yield _row(f"  images/s of batch {point.batch_size}", rates, "images/s")


def _row(name: str, both: list[float], unit: str) -> dict[str, Any]:
    ours, theirs = both
    return row(name, ours, theirs, unit, ours / theirs, "shown", True)
