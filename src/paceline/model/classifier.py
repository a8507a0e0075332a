"""The one LightningModule: any network that turns images into logits, trained by SGD."""

import inspect
from collections.abc import Callable, Iterator

from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer


class Classifier(LightningModule):
    """Minimises cross-entropy; `optimizer` makes an optimizer from the parameters.

    Logs nothing: what a run is like is observed from outside, where it costs no step time. Knows
    nothing of workers either.
    """

    def __init__(
        self, network: nn.Module, optimizer: Callable[[Iterator[nn.Parameter]], Optimizer]
    ) -> None:
        super().__init__()
        self.network = network
        self._optimizer = optimizer

    def forward(self, images: Tensor) -> Tensor:
        """Images [N, C, H, W] to logits [N, classes]."""
        return self.network(images)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Images [N, C, H, W] and labels [N] to their mean loss, a scalar."""
        images, labels = batch
        return cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> Optimizer:
        return self._optimizer(self.parameters())

    # Lightning skips hooks that are not callable, and reads the signature of training_step in each
    # step: together 4 % of the step of a small network.
    on_train_batch_start = None  # type: ignore[assignment]
    on_train_batch_end = None  # type: ignore[assignment]
    on_before_zero_grad = None  # type: ignore[assignment]
    on_before_backward = None  # type: ignore[assignment]
    on_after_backward = None  # type: ignore[assignment]
    on_before_optimizer_step = None  # type: ignore[assignment]
    training_step.__signature__ = inspect.signature(training_step)  # type: ignore[attr-defined]
