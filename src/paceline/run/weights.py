"""Weights for use elsewhere, in plain torch."""

from pathlib import Path

import torch
from pytorch_lightning import LightningModule

from paceline.model.classifier import Classifier


def save_weights(module: LightningModule, path: Path) -> None:
    """`torch.load(path)` is a state_dict: of the network for a Classifier, else of the module."""
    network = module.network if isinstance(module, Classifier) else module
    weights = {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
    torch.save(weights, path)  # clones: the live ones are views of one large vector
