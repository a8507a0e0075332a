"""The one LightningModule: any network that turns images into logits, trained by SGD."""

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
