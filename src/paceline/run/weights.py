"""File of trained weights for use in plain torch."""

from pathlib import Path

import torch
from pytorch_lightning import LightningModule

from paceline.model.classifier import Classifier
from paceline.model.filling import FILLING


def save_weights(module: LightningModule, path: Path) -> None:
    """Save a state_dict for `torch.load(path)`.

    It is that of the network for a Classifier, else that of the module.
    """
    network = module.network if isinstance(module, Classifier) else module
    held = {name: value for name, value in network.state_dict().items() if name != FILLING}
    weights = {name: value.detach().cpu().clone() for name, value in held.items()}
    torch.save(weights, path)  # clones: the live ones are views of one large vector
