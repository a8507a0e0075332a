"""The parts of a point that peers train with: the project's own, without Lightning."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from paceline.record.point import Point
from paceline.record.target import Target
from paceline.run.open_data import open_data
from paceline.run.placed_data import reading_of


def network(point: Point) -> nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(point.seed)
    return point.model.build().network


def optimizer(point: Point, trained: nn.Module) -> Optimizer:
    """As the project's servers have it: one pass over memory."""
    sgd = Target("optimizer", point.model.values["optimizer"]).build()
    return sgd(trained.parameters(), fused=True)


def batches(point: Point, worker: int) -> Any:
    """As many as all workers together take, so that no worker runs out of them."""
    steps = int(point.training.samples or 0) // point.batch_size
    return open_data(point.data.build(), reading_of(point)).train(worker, steps)


def gradients(trained: nn.Module, batch: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Of the mean loss, by parameter; those of the network must be clear before."""
    images, labels = batch
    cross_entropy(trained(images), labels).backward()
    return [weight.grad for weight in trained.parameters() if weight.grad is not None]
