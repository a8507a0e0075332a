"""A module as most are published: of the package `lightning`."""

import lightning as L
import lightning.pytorch as pl
import torch
from lightning.fabric.utilities import rank_zero_only
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import nn


class Theirs(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.line = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
        self.line(torch.zeros(1, 16))
        self._lr = lr

    def forward(self, images):
        return self.line(images)

    def training_step(self, batch, batch_idx) -> STEP_OUTPUT:
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self._lr)


NAMES = (L.Trainer, pl.Trainer, L.pytorch.Trainer, L.Fabric, Callback, ModelCheckpoint)
DECORATOR = rank_zero_only
