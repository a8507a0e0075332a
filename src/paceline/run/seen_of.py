"""What the workers and servers of a process saw, as a record is made from it."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from paceline.engine.reports import StrategyReport, WorkerReport


def seen_of(report: StrategyReport, common: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what each worker and server of the process saw; `common`: what the process saw.

    What cannot be told apart (losses, images, scores, real time) is the first worker's.
    """
    common = common | {
        "counted": report.counted,
        "updates": report.updates,
        "diverged": report.diverged,
    }
    rest = common | {
        "losses": [(0.0, 0)] * len(common["losses"]),
        "images_seen": np.zeros_like(common["images_seen"]),
        "real_step_ends": (),
        "scores": [],
        "test": None,
    }
    for index, worker in enumerate(report.workers):
        yield (rest if index else common) | _of(worker)
    yield from (asdict(server) for server in report.servers)


def _of(worker: WorkerReport) -> dict[str, Any]:
    fields = vars(worker).copy()
    fields["seconds_communicate"] = fields.pop("seconds_communicating")
    fields["numbers"] = fields.pop("step_numbers")
    return fields
