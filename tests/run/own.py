"""Somebody's LightningModule and LightningDataModule, which know nothing of the project."""

import os
from pathlib import Path

import torch
from pytorch_lightning import LightningDataModule, LightningModule
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.tiny import CLOCKS, NUM_TRAIN, tiny_point

# What OwnModule trains with at its rate of 0.5.
OWN_TRAINING = {
    "training__lr": 0.5,
    "training__momentum": 0,
    "training__weight_decay": 0,
    "training__precision": "32-true",
}


class Drawn(Dataset):
    """48 points in three classes; notes in `folder` which were drawn, a file per process."""

    def __init__(self, folder=None):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.arange(NUM_TRAIN) % 3
        noise = torch.rand(NUM_TRAIN, 3, generator=generator)
        self.points = nn.functional.one_hot(self.labels, 3) + noise
        self._folder = folder

    def __len__(self):
        return NUM_TRAIN

    def __getitem__(self, index):
        if self._folder:
            with (Path(self._folder) / f"drawn.{os.getpid()}").open("a") as file:
                file.write(f"{index}\n")
        return self.points[index], self.labels[index]


class Told(Dataset):
    """Items of which `tell` makes others."""

    def __init__(self, tell):
        self._drawn, self._tell = Drawn(), tell

    def __len__(self):
        return len(self._drawn)

    def __getitem__(self, index):
        return self._tell(*self._drawn[index])


class OwnData(LightningDataModule):
    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def train_dataloader(self):
        return DataLoader(Drawn(self._folder), batch_size=5, shuffle=True)

    def val_dataloader(self):
        return DataLoader(Drawn(), batch_size=16)

    def test_dataloader(self):
        return DataLoader(Drawn(), batch_size=16)


class OwnModule(LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.line = nn.Linear(3, 3)
        self._lr = lr

    def forward(self, points):
        return self.line(points)

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return {"loss": nn.functional.cross_entropy(self(points), labels)}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self._lr)


def own_point(scheme="sync_allreduce", clock="wall", data=None, model=None, **settings):
    """A point of two workers with OwnData and OwnModule, or what `data` and `model` say instead."""
    return tiny_point(
        scheme,
        2,
        4,
        data={"_target_": "tests.run.own.OwnData", "folder": None} | (data or {}),
        model={"_target_": "tests.run.own.OwnModule", "lr": 0.5, "shards": 1, "split": "auto"}
        | (model or {}),
        **{**OWN_TRAINING, **CLOCKS[clock], **settings},
    )
