"""Runs of split workers: several points in one launch, on images of 8x8 in four classes."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.exchange.process_group import divide, join, leave
from paceline.record.observed import TrainingReport
from paceline.record.point import Point
from paceline.run.training_process import TrainingProcess
from tests.launching import launch
from tests.tiny import batches_of, point_of, tiny_point

DATA = {
    "_target_": "tests.tiny.TinyImages",
    "root": "",
    "num_classes": 4,
    "image_shape": [1, 8, 8],
    "num_validation": 0,
    "split_seed": 0,
    "augmentation": None,
}


def small_point(
    network: str, scheme: str, workers: int, shards: int, split: str = "auto", **settings: Any
) -> dict[str, Any]:
    """Settings of a point with 16 images in a step of all workers, 10 such steps.

    `network`: one of those below. ResNet-18 learns slowly, or rounding grows too much in 10 steps:
    its last BatchNorms have one value of each image.
    """
    arguments = {"image_shape": [1, 8, 8], "num_classes": 4}
    own = {
        "small_alexnet": {"_target_": "paceline.model.small_alexnet.SmallAlexNet", "dropout": 0.0},
        "small_nin": {"_target_": "paceline.model.small_nin.SmallNiN", "dropout": 0.0},
        "small_cnn": {
            "_target_": "paceline.model.small_cnn.SmallCNN",
            "width": 8,
            "normalization": "batch",
        },
        "resnet18": {
            "_target_": "paceline.model.network.torchvision_network",
            "name": "resnet18",
            "normalization": "batch",
        },
    }[network]
    chosen = {
        "data": DATA,
        "training__samples": 160,
        "measurement__evaluations": 2,
        "model__network": {**own, **arguments},
        "model__optimizer__lr": 0.1 if network != "resnet18" else 0.002,
        "model__shards": shards,
        "model__split": split,
    }
    return tiny_point(scheme, workers, 16 // workers, **{**chosen, **settings})


def num_steps(config: dict[str, Any]) -> int:
    """Return the number of steps of each worker."""
    return config["training"]["samples"] // (config["workers"] * config["batch_size"])


def plain_state(config: dict[str, Any], workers: int = 1) -> dict[str, Tensor]:
    """Weights and statistics after a bare loop of SGD, in this process.

    Each gradient is the mean of those of `workers` replicas, which share the weights, and have
    statistics of their own.
    """
    torch.manual_seed(config["seed"])
    module = point_of(config).model.build().double()
    network, sgd = module.network, module.configure_optimizers()
    shared = {id(weight): weight for weight in network.parameters()}
    replicas = [network, *(deepcopy(network, dict(shared)) for _ in range(workers - 1))]
    steps = num_steps(config)
    size = config["training"]["samples"] // (steps * workers)
    drawn = {**config, "workers": workers, "batch_size": size}
    shares = [batches_of(drawn, worker) for worker in range(workers)]
    for turn in range(steps):
        losses = [
            nn.functional.cross_entropy(replica(images), labels)
            for replica, (images, labels) in zip(
                replicas, (share[turn] for share in shares), strict=True
            )
        ]
        sgd.zero_grad()
        torch.stack(losses).mean().backward()
        sgd.step()
    states = [replica.state_dict() for replica in replicas]
    return {
        name: torch.stack([state[name] for state in states]).mean(0)
        if first.is_floating_point()
        else first
        for name, first in states[0].items()
    }


def train_all(points: list[Point], folder: Path) -> list[TrainingReport]:
    """Train all points, one after the other, in the processes of this group."""
    torch.set_num_threads(1)
    join(60, "cpu")
    reports = []
    for index, point in enumerate(points):
        divide(point.workers, point.sharding.shards)
        own = folder / str(index)
        own.mkdir(exist_ok=True)
        reports.append(TrainingProcess(point, own, {}).run())
    leave()
    return reports


def train_virtually(points: list[Point], folder: Path) -> list[TrainingReport]:
    """Train all points, one after the other, on the virtual clock of this process."""
    torch.set_num_threads(1)
    join(60, "cpu")
    reports = [TrainingProcess(point, folder, {}).run() for point in points]
    leave()
    return reports


def on_virtual_clock(configs: list[dict[str, Any]], folder: Path) -> list[TrainingReport]:
    """Reports of the points with the cluster `virtual`."""
    cluster = tiny_point("sync_allreduce", 1, 4, "virtual")["cluster"]
    points = [point_of({**config, "cluster": cluster}) for config in configs]
    folder.mkdir(exist_ok=True)
    (reports,) = launch(
        "tests.clock.wall.splits:train_virtually",
        (points, folder),
        workers=1,
        servers=0,
        log_folder=folder / "log",
    )
    return reports


def trained_together(
    configs: list[dict[str, Any]], folder: Path
) -> list[tuple[list[TrainingReport], dict[str, Tensor]]]:
    """Reports by rank and final weights of each point; all have as many processes."""
    points = [point_of(config) for config in configs]
    (processes,) = {sum(point.num_processes) for point in points}
    by_rank = launch(
        "tests.clock.wall.splits:train_all",
        (points, folder),
        workers=processes,
        servers=0,
        log_folder=folder / "log",
    )
    weights = [torch.load(folder / str(index) / "weights.pt") for index in range(len(points))]
    return list(zip(map(list, zip(*by_rank, strict=True)), weights, strict=True))
