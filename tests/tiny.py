"""A tiny problem on which laws are exact: float64, no BatchNorm, 48 images, three classes."""

import logging
import warnings
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from hydra.utils import instantiate
from torch import Tensor, nn

from paceline.clock.reports import ServerReport, WorkerReport
from paceline.cluster.launcher import launch_task
from paceline.cluster.supervisor import LostWorker, Task
from paceline.data.batches import Batch, Normalisation, WorkerBatches
from paceline.data.image_set import AbstractImageData, ImageSet, Splits
from paceline.data.order import SampleStream, StreamOrder
from paceline.record.certificate import run_log
from paceline.record.observed import TrainingReport
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.study.compose import composed

NUM_TRAIN = 48
REPOSITORY = Path(__file__).parent.parent
CONF = REPOSITORY / "conf"
CLOCKS = {
    "wall": {},
    "virtual": {"cluster": "virtual", "cluster__step_jitter": 1},
}  # settings of a point; a jitter as wide as that mixes the order of arrivals thoroughly
TINY = {
    "study": "tiny",
    "seed": 3,
    "save_weights": True,
    "cluster__accelerator": "cpu",
    "cluster__timeout_seconds": 60,
    "training__epochs": 3,
    "training__lr_reference_batch_size": 8,
    "training__milestones": [0.5],
    "training__precision": "64-true",
    "measurement__evaluations": 3,
    "measurement__evaluation_batch_size": 48,
    "measurement__mlflow__tracking_uri": None,
    "data": {
        "_target_": "tests.tiny.TinyImages",
        "root": "",
        "num_classes": 3,
        "image_shape": [1, 4, 4],
        "num_validation": 0,
        "split_seed": 0,
        "augmentation": None,
    },
    "model": {
        "shards": 1,
        "split": "auto",
        "_target_": "paceline.model.classifier.Classifier",
        "network": {"_target_": "tests.tiny.tiny_network"},
        "optimizer": {
            "_target_": "torch.optim.SGD",
            "_partial_": True,
            "lr": 0.1,
            "momentum": 0.9,
            "weight_decay": 0.01,
        },
    },
}


class TinyImages(AbstractImageData):
    """48 seeded images for each split, of the shape and in the number of classes that are set.

    No two splits have an image in common.
    """

    def prepare(self) -> None:
        pass

    def load(self) -> Splits:
        generator = torch.Generator().manual_seed(0)
        labels = torch.arange(NUM_TRAIN) % self.num_classes

        def part() -> ImageSet:
            images = torch.randint(0, 200, (NUM_TRAIN, *self.image_shape), generator=generator)
            images[torch.arange(NUM_TRAIN), 0, labels] += 50
            return ImageSet(images.to(torch.uint8), labels)

        return Splits(part(), part(), part(), (0.4,), (0.2,))


def tiny_network(batch_norm: bool = False) -> nn.Sequential:
    hidden: list[nn.Module] = [nn.Flatten(), nn.Linear(16, 5)]
    if batch_norm:
        hidden.append(nn.BatchNorm1d(5))
    return nn.Sequential(*hidden, nn.Tanh(), nn.Linear(5, 3))


def tiny_point(
    scheme: str, workers: int, batch_size: int, cluster: str = "local", **settings: Any
) -> dict[str, Any]:
    """A point's settings: those of conf/, TINY, and `settings`, with `__` for the dot in names.

    Training has what the optimizer has, as the interpolations of conf/ would have it.
    """
    config = deepcopy(_composed(scheme, cluster))
    config |= {"workers": workers, "batch_size": batch_size}
    for name, value in {**TINY, **settings}.items():
        *parents, leaf = name.split("__")
        holder = config
        for parent in parents:
            holder = holder[parent]
        assert parents[:1] == ["model"] or leaf in holder, name
        holder[leaf] = deepcopy(value)
    if optimizer := config["model"].get("optimizer"):
        had = {"momentum": 0.0, "weight_decay": 0.0, **optimizer}
        for name in ("lr", "momentum", "weight_decay"):
            config["training"][name] = settings.get(f"training__{name}", had[name])
    return config


@cache
def _composed(scheme: str, cluster: str) -> dict[str, Any]:
    """Hydra composes once for each cluster; a scheme is what its file says."""
    if scheme == "sync_allreduce":
        chosen = (f"scheme={scheme}", f"cluster={cluster}", "data=synthetic")
        return dict(composed(chosen, REPOSITORY).values)
    config = deepcopy(_composed("sync_allreduce", cluster))
    config["scheme"] = yaml.safe_load((CONF / f"scheme/{scheme}.yaml").read_text())
    config["names"]["scheme"] = scheme
    return config


def point_of(config: dict[str, Any]) -> Point:
    return Point.of(PointConfig(config))


class Seen(NamedTuple):
    """What the processes of a run reported, and its workers and servers, real or modelled."""

    training: list[TrainingReport]
    workers: list[WorkerReport]
    servers: list[ServerReport]
    lost: list[LostWorker]
    processes: list[TrainingReport]  # as `training`, with those of other shards


def run_tiny(
    config: dict[str, Any], folder: Path, process: str = "tests.unyielding:run"
) -> tuple[Seen, dict[str, Tensor]]:
    """What was seen in the run of the point, and the weights evaluated at the end.

    Its log must be as the scheme promises. `process`: function of each real process.
    """
    point = point_of(config)
    here = point.kind == "virtual"
    target = "paceline.run.training_process:run" if here else process
    task = Task(target, (point, folder), *point.num_processes, folder / "log")
    return _seen(point, _run_here(task) if here else point.cluster.run(task), folder)


def run_together(
    configs: list[dict[str, Any]], folder: Path
) -> list[tuple[Seen, dict[str, Tensor]]]:
    """As `run_tiny` of each, in a folder of its number in `folder`. Real processes run one after
    the other, since half of the time of such a run is their start.
    """
    points = [point_of(config) for config in configs]
    folders = [folder / str(number) for number in range(len(points))]
    for each in folders:
        each.mkdir()
    if points[0].kind == "virtual":
        return [run_tiny(*each) for each in zip(configs, folders, strict=True)]
    most = max(sum(point.num_processes) for point in points)
    task = Task("tests.unyielding:run_each", (points, folder), most, 0, folder / "log")
    by_run = zip(*launch_task(task), strict=True)
    return [_seen(*each) for each in zip(points, by_run, folders, strict=True)]


def _seen(point: Point, returned: Iterable[Any], folder: Path) -> tuple[Seen, dict[str, Tensor]]:
    returned = list(returned)
    processes = [each for each in returned if isinstance(each, TrainingReport)]
    training = [each for each in processes if each.shard == 0]
    strategies = [each.strategy for each in training]
    servers = [each for each in returned if isinstance(each, ServerReport)]
    seen = Seen(
        training,
        [worker for each in strategies for worker in each.workers],
        servers + [server for each in strategies for server in each.servers],
        [each for each in returned if isinstance(each, LostWorker)],
        processes,
    )
    if not seen.lost and not any(each.diverged for each in strategies):
        assert not point.scheme.broken(
            run_log(point.scheme, point.workers, seen.workers, seen.servers)
        )
    return seen, torch.load(folder / "weights.pt")


def _run_here(task: Task) -> list[Any]:
    """Run a point on the virtual clock in this process, and leave its settings as they were."""
    threads, log = torch.get_num_threads(), logging.getLogger("pytorch_lightning")
    level = log.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            return launch_task(task, own_rank=0)
    finally:
        torch.set_num_threads(threads)
        log.setLevel(level)


def batches_of(config: dict[str, Any], worker: int, num_batches: int = 1000) -> WorkerBatches:
    """What this worker of the point draws."""
    splits = splits_of(config)
    return WorkerBatches(
        splits.train,
        StreamOrder(
            SampleStream(NUM_TRAIN, config["seed"]), config["workers"], config["batch_size"]
        ),
        Normalisation(splits.mean, splits.std, torch.float64),
        worker=worker,
        num_batches=num_batches,
    )


def evaluated(config: dict[str, Any], part: str) -> Batch:
    """All images of a part of the point's data as one batch: "train", "validation" or "test"."""
    splits = splits_of(config)
    images = getattr(splits, part)
    normalise = Normalisation(splits.mean, splits.std, torch.float64)
    return normalise(images.images), images.labels


def splits_of(config: dict[str, Any]) -> Splits:
    return TinyImages(**{k: v for k, v in config["data"].items() if k[0] != "_"}).load()


class PlainSGD:
    """The reference: torch's own optimizer in a bare loop, in this process."""

    def __init__(self, config: dict[str, Any]) -> None:
        torch.manual_seed(config["seed"])
        settings = config["model"]["network"]
        self.network = tiny_network(settings.get("batch_norm", False)).double()
        self._optimizer = instantiate(config["model"]["optimizer"])(self.network.parameters())

    def gradient(self, images: Tensor, labels: Tensor, weights: dict | None = None) -> list[Tensor]:
        """At `weights` (default: those held), of the mean loss."""
        held = weights or dict(self.network.named_parameters())
        leaves = {name: value.detach().clone().requires_grad_() for name, value in held.items()}
        logits = torch.func.functional_call(self.network, leaves, (images,))
        loss = nn.functional.cross_entropy(logits, labels)
        return list(torch.autograd.grad(loss, list(leaves.values())))

    def apply(self, gradients: list[Tensor], factor: float = 1.0) -> None:
        for parameter, gradient in zip(self.network.parameters(), gradients, strict=True):
            parameter.grad = gradient
        group = self._optimizer.param_groups[0]
        base = group.setdefault("initial_lr", group["lr"])
        group["lr"] = base * factor
        self._optimizer.step()

    def weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.network.state_dict().items()}
