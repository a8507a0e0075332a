"""The parts of a point that peers train with: the project's own, without Lightning."""

from typing import Any

import torch
from hydra.utils import instantiate
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from paceline.run.point_data import open_feed


def network(point: dict[str, Any]) -> nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(point["seed"])
    return instantiate(point["model"]["network"])


def optimizer(point: dict[str, Any], trained: nn.Module) -> Optimizer:
    """As the project's servers have it: one pass over memory."""
    return instantiate(point["model"]["optimizer"])(trained.parameters(), fused=True)


def batches(point: dict[str, Any], worker: int) -> Any:
    """As many as all workers together take, so that no worker runs out of them."""
    steps = point["training"]["samples"] // point["batch_size"]
    return open_feed(point, instantiate(point["data"])).train(worker, steps)


def gradients(trained: nn.Module, batch: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Of the mean loss, by parameter; those of the network must be clear before."""
    images, labels = batch
    cross_entropy(trained(images), labels).backward()
    return [weight.grad for weight in trained.parameters() if weight.grad is not None]
