"""How good a network is on labelled images."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Score(NamedTuple):
    """Means over images: cross-entropy, and the shares whose label is first or among five."""

    loss: float
    top1: float
    top5: float
    num_images: int
    num_classes: int

    @property
    def at_chance(self) -> bool:
        """Whether `top1` is within three standard errors of guessing."""
        chance = 1 / self.num_classes
        error = math.sqrt(chance * (1 - chance) / self.num_images)
        return self.top1 <= chance + 3 * error


@torch.no_grad()
def score(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    device: torch.device | str,
) -> Score:
    """Of `network`, which is on `device`, in evaluation mode; it is left in the mode it was in.

    Batches, one at least, are images [N, C, H, W] and labels [N], of any N. With fewer than five
    classes, top5 is 1.
    """
    from torchmetrics import MeanMetric  # late: it costs seconds, unless Lightning is there already
    from torchmetrics.classification import MulticlassAccuracy

    alone: Any = {"sync_on_compute": False}  # else it meets every process, which others do not
    loss = MeanMetric(nan_strategy="disable", **alone).to(device, torch.float64)
    options: Any = {"average": "micro", "validate_args": False, **alone}
    with _evaluation_mode(network):
        outputs = ((network(images.to(device)), labels.to(device)) for images, labels in batches)
        first = next(outputs)
        num_images, num_classes = 0, first[0].shape[1]
        top1, top5 = (
            MulticlassAccuracy(num_classes, top_k=k, **options).to(device)
            for k in (1, min(5, num_classes))
        )
        for logits, labels in chain([first], outputs):
            # per image: without its NaN strategy, MeanMetric ignores weights (torchmetrics 1.9)
            loss.update(cross_entropy(logits, labels, reduction="none"))
            top1.update(logits, labels)
            top5.update(logits, labels)
            num_images += len(labels)
    means = [float(metric.compute()) for metric in (loss, top1, top5)]
    return Score(*means, num_images=num_images, num_classes=num_classes)


@contextmanager
def _evaluation_mode(network: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
