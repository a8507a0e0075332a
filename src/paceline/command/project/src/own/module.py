"""A LightningModule as anybody writes one; it knows nothing of Paceline."""

import math

import torch
from pytorch_lightning import LightningModule
from torch import nn


class OwnModule(LightningModule):
    """Two linear layers; `forward` takes images and returns logits."""

    def __init__(self, image_shape, num_classes, lr, momentum, weight_decay):
        super().__init__()
        self.settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        self.network = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(image_shape), 64),
            nn.ReLU(),
            nn.Linear(64, num_classes),
        )

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, batch_index):
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), **self.settings)
