"""Measures how good a network is on labelled images."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


@dataclass(frozen=True, kw_only=True)
class Score:
    """Quality of a network on `num_images` images.

    `loss`: mean cross-entropy [nats], which may be infinite or NaN. `top1`: share of images whose
    label has the highest logit. `top5`: share of images whose label is among the five highest
    logits. `largest_class`: share of the images that have the most frequent label. `right`: a bit
    for each image, 1 if its label has the highest logit (numpy.packbits).
    """

    loss: float
    top1: float
    top5: float
    num_images: int
    num_classes: int
    largest_class: float
    right: bytes = b""

    @property
    def most_by_chance(self) -> float:
        """Three standard errors above the share of the largest class, which a network reaches that
        always answers with this class.
        """
        chance = self.largest_class
        return chance + 3 * math.sqrt(chance * (1 - chance) / self.num_images)

    @property
    def at_chance(self) -> bool:
        return self.top1 <= self.most_by_chance

    @property
    def guess_loss(self) -> float:
        """Cross-entropy of a network that gives all classes the same probability [nats]."""
        return math.log(self.num_classes)


@torch.no_grad()
def score(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    device: torch.device | str,
) -> Score:
    """Score `network`, which must be on `device`, in evaluation mode.

    Afterwards each module is again in the mode, training or evaluation, that it had before.
    `batches`, at least one, are pairs of images [N, C, H, W] and labels [N]; N may differ between
    batches. With fewer than five classes, `top5` is 1.
    """
    from torchmetrics import MeanMetric  # late import: it takes seconds
    from torchmetrics.classification import MulticlassAccuracy

    unsynced: Any = {"sync_on_compute": False}  # it would wait for processes that do not score
    loss = MeanMetric(nan_strategy="disable", **unsynced).to(device, torch.float64)
    options: Any = {"average": "micro", "validate_args": False, **unsynced}
    with evaluation_mode(network):
        outputs = ((network(images.to(device)), labels.to(device)) for images, labels in batches)
        first = next(outputs)
        num_classes = first[0].shape[1]
        right, counts = [], torch.zeros(num_classes, dtype=torch.long, device=device)
        top1, top5 = (
            MulticlassAccuracy(num_classes, top_k=k, **options).to(device)
            for k in (1, min(5, num_classes))
        )
        for logits, labels in chain([first], outputs):
            # per image: without its NaN strategy, MeanMetric ignores weights (torchmetrics 1.9)
            loss.update(cross_entropy(logits, labels, reduction="none"))
            top1.update(logits, labels)
            top5.update(logits, labels)
            right.append(logits.argmax(dim=1) == labels)
            counts += torch.bincount(labels, minlength=num_classes)
    of_all = torch.cat(right).cpu().numpy()
    return Score(
        loss=float(loss.compute()),
        top1=float(top1.compute()),
        top5=float(top5.compute()),
        num_images=len(of_all),
        num_classes=num_classes,
        largest_class=float(counts.max()) / len(of_all),
        right=np.packbits(of_all).tobytes(),
    )


def as_precise(images: Tensor, weight: Tensor) -> Tensor:
    """Return images as precise as `weight`; whole numbers stay as they are, as in training."""
    return images.to(weight.dtype) if images.is_floating_point() else images


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
