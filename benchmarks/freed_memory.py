"""Steps of plain torch in processes that keep freed memory, as the launcher starts them, or not."""

import json
import os
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from benchmarks.row import row
from paceline.cluster.processes import KEEP_MEMORY
from paceline.model.network import torchvision_network
from paceline.model.small_cnn import SmallCNN

CASES = (("small CNN", 32, 600), ("small CNN", 128, 300), ("ResNet-18", 32, 20))
IMAGE, CLASSES = (1, 28, 28), 10
TURNS = 3


def rows() -> list[dict[str, Any]]:
    return [line for case in CASES for line in _rows(*case)]


def _rows(name: str, batch_size: int, steps: int) -> list[dict[str, Any]]:
    turns = [
        [_measured(name, batch_size, steps, keep) for keep in (True, False)] for _ in range(TURNS)
    ]
    kept, returned = (
        {what: median(turn[side][what] for turn in turns) for what in ("rate", "faults")}
        for side in (0, 1)
    )
    title = f"freed memory kept / returned by malloc: {name}, 1x28x28, batch {batch_size}"
    ratio = kept["rate"] / returned["rate"]
    faults = (kept["faults"], returned["faults"])
    return [
        row(title, kept["rate"], returned["rate"], "images/s", ratio, ">= 0.97", ratio >= 0.97),
        row("  page faults a step", *faults, "", faults[0] / max(1, faults[1]), "shown", True),
    ]


def _measured(name: str, batch_size: int, steps: int, keep: bool) -> dict[str, float]:
    environment = {key: each for key, each in os.environ.items() if key not in KEEP_MEMORY}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.freed_memory", name, str(batch_size), str(steps)],
        env=environment | (KEEP_MEMORY if keep else {}) | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def measure(name: str, batch_size: int, steps: int) -> dict[str, float]:
    """Median images/s, and minor page faults a step, after a tenth of the steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if name == "ResNet-18":
        network = torchvision_network("resnet18", IMAGE, CLASSES, "batch")
    else:
        network = SmallCNN(IMAGE, CLASSES, 16, "batch")
    sgd = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.randn(batch_size, *IMAGE), torch.randint(0, CLASSES, (batch_size,))
    seconds = []
    for step in range(steps + steps // 10):
        if step == steps // 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        began = time.perf_counter()
        sgd.zero_grad()
        cross_entropy(network(images), labels).backward()
        sgd.step()
        seconds.append(time.perf_counter() - began)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return {"rate": batch_size / median(seconds[-steps:]), "faults": faults / steps}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
