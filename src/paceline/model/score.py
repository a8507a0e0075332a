"""How good a network is on labelled images."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Score(NamedTuple):
    """Means over images: cross-entropy, and the shares whose label is first or among five."""

    loss: float
    top1: float
    top5: float


@torch.no_grad()
def score(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    num_classes: int,
    device: torch.device | str,
) -> Score:
    """Of `network`, which is on `device`, in evaluation mode; it is left in the mode it was in.

    Batches are images [N, C, H, W] and labels [N], of any N. With fewer than five classes, top5
    is 1.
    """
    from torchmetrics import MeanMetric  # late: it costs seconds, unless Lightning is there already
    from torchmetrics.classification import MulticlassAccuracy

    alone: Any = {"sync_on_compute": False}  # else it meets every process, which others do not
    loss = MeanMetric(nan_strategy="disable", **alone).to(device, torch.float64)
    options: Any = {"average": "micro", "validate_args": False, **alone}
    top1, top5 = (
        MulticlassAccuracy(num_classes, top_k=k, **options).to(device)
        for k in (1, min(5, num_classes))
    )
    with _evaluation_mode(network):
        for images, labels in batches:
            labels = labels.to(device)
            logits = network(images.to(device))
            # per image: without its NaN strategy, MeanMetric ignores weights (torchmetrics 1.9)
            loss.update(cross_entropy(logits, labels, reduction="none"))
            top1.update(logits, labels)
            top5.update(logits, labels)
    return Score(float(loss.compute()), float(top1.compute()), float(top5.compute()))


@contextmanager
def _evaluation_mode(network: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
