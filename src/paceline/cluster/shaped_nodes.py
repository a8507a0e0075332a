"""Nodes on this machine: real processes in network namespaces, connected by shaped links."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Literal

from paceline.cluster.cluster import AbstractWallClockCluster, Kind, places
from paceline.cluster.launcher import launch_task
from paceline.cluster.namespaces import ShapedNetwork, check_permitted, shaped_network
from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import Neutral, Whole, settings
from paceline.timing.profile import Link, ServerPlacement
from paceline.timing.step_times import StepTimes

if TYPE_CHECKING:
    from paceline.clock.run_spec import RunSpec

Fault = Annotated[
    Literal["none", "worker_killed", "server_killed", "slow_worker", "slow_link"], Neutral("none")
]
SLOWER_STEPS, SLOWER_LINK = 5, 10  # times
RECORD = "fault.json"  # in the folder of a record
_HALF, _PERIOD = 0.5, 0.05  # share of the run's images, seconds


@contextlib.contextmanager
def at_half_time(progress: Path, strike: Callable[[], None]) -> Generator[None]:
    """Call `strike` once in a thread when half of the run's images have been trained. `progress`:
    table that a worker extends about once a second by the images of all workers, and their share of
    the run. The file RECORD beside it keeps the time. Raises SettingError if the run ends first.
    """
    over = Event()
    with ThreadPoolExecutor(1, "fault") as executor:
        struck = executor.submit(_strike_at_half_time, progress, strike, over)
        try:
            yield
        finally:
            over.set()
        if not struck.result():
            raise SettingError("cluster.fault", "the run ended before it was half done")


def _strike_at_half_time(progress: Path, strike: Callable[[], None], over: Event) -> bool:
    while not over.wait(_PERIOD):
        lines = progress.read_text().splitlines(keepends=True) if progress.is_file() else []
        rows = list(csv.DictReader(line for line in lines if line.endswith("\n")))
        if rows and float(rows[-1]["share"]) >= _HALF:
            struck = {"samples": int(rows[-1]["samples"]), "at": time.monotonic()}
            strike()
            (progress.parent / RECORD).write_text(json.dumps(struck) + "\n")
            return True
    return False


@settings("cluster")
class ShapedNodesCluster(AbstractWallClockCluster):
    """Nodes on this machine that exchange messages only over shaped links (Linux, as root).

    `workers_per_node`: processes of workers on a node, inside which they share memory. `link`: link
    of each node; its bandwidth counts bytes of messages, its latency cannot be set.
    `server_placement`: each server is on its own node, or servers are on the workers' nodes in
    turn. `fault`: what happens when half of the images have been trained: all processes on the node
    of the last worker, or of the last server, are killed; the first worker becomes slower by
    SLOWER_STEPS from half of its steps on; or the link of the last worker's node becomes slower by
    SLOWER_LINK.
    """

    workers_per_node: Whole
    server_placement: ServerPlacement
    link: Link
    fault: Fault

    @property
    def kind(self) -> Kind:
        return "paced"

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        super().check(scheme, num_workers)
        if self.link.latency:
            raise SettingError("cluster.link.latency", "it cannot be emulated; it must be 0")
        if self.link.unevenness:
            raise SettingError("cluster.link.unevenness", "real links have their own; it must be 0")
        if math.isinf(self.link.bandwidth):
            raise SettingError("cluster.link.bandwidth", "a value is needed")
        if self.fault == "server_killed" and not scheme.servers:
            raise SettingError("cluster.fault", "server_killed, but the scheme has no server")
        if self.fault == "slow_worker" and (self.step_seconds is None or self.slow_workers):
            message = "slow_worker needs paced steps, cluster.step_seconds, and slow_workers=0"
            raise SettingError("cluster.fault", message)
        check_permitted()

    def paced_times(self, run: RunSpec) -> StepTimes | None:
        times = super().paced_times(run)
        if times is None or self.fault != "slow_worker":
            return times
        assert run.num_steps is not None
        half = run.num_steps // run.num_workers // 2
        return replace(times, slow_workers=1, slow_factor=SLOWER_STEPS, slow_from=half)

    def on_one_machine(self, num_training: int, num_servers: int) -> bool:
        return False  # memory of a GPU would pass by the shaped links

    def run(self, task: Task) -> list[Any]:
        sizes = task.num_training, task.num_servers
        nodes = places(*sizes, self.workers_per_node, self.server_placement)
        with ExitStack() as stack:
            network = stack.enter_context(shaped_network(1 + max(nodes), self.link.bandwidth))
            before = task.progress and (task.progress.parent / RECORD).exists()  # it was resumed
            if self.fault != "none" and task.progress and not before:
                struck = nodes[-1 if self.fault == "server_killed" else task.num_training - 1]
                strike = partial(self._strike, network, struck)
                stack.enter_context(at_half_time(task.progress, strike))
            namespaces = [network.namespaces[node] for node in nodes]
            return launch_task(task, address=network.address, namespaces=namespaces)

    def _strike(self, network: ShapedNetwork, node: int) -> None:
        if self.fault in ("worker_killed", "server_killed"):
            network.kill(node)
        elif self.fault == "slow_link":
            network.shape(node, self.link.bandwidth / SLOWER_LINK)
