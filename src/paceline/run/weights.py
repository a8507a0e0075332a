"""Saves trained weights to a file that plain torch can load, and loads initial weights from it."""

from collections.abc import Mapping
from pathlib import Path

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.model.filling import FILLING


def save_weights(module: LightningModule, path: Path) -> None:
    """Save the state_dict of the network in a Classifier; of any other module, save its own."""
    network = _network_of(module)
    held = {name: value for name, value in network.state_dict().items() if name != FILLING}
    weights = {name: value.detach().cpu().clone() for name, value in held.items()}
    torch.save(weights, path)  # clones: the live ones are views of one large vector


def load_weights(module: LightningModule, path: str) -> None:
    """Load the weights and BatchNorm statistics that `save_weights` wrote to `path`.

    Raises SettingError("training.initial_weights") for another kind of file, and for weights of
    another network; the message names the first tensor that differs.
    """
    network = _network_of(module)
    try:
        held = torch.load(Path(path).expanduser(), map_location="cpu", weights_only=True)
    except Exception as error:  # on arbitrary bytes torch raises whatever it stumbles over
        raise _refused(f"{path} has no weights that torch can load") from error
    if not (isinstance(held, dict) and all(isinstance(each, Tensor) for each in held.values())):
        raise _refused(f"{path} has no weights by name")
    if difference := _first_difference(network.state_dict(), held):
        raise _refused(f"{path}: {difference}")
    network.load_state_dict(held)


def _network_of(module: LightningModule) -> nn.Module:
    return module.network if isinstance(module, Classifier) else module


def _first_difference(own: Mapping[str, Tensor], held: Mapping[str, Tensor]) -> str | None:
    for name, value in own.items():
        if name not in held:
            return f"it has no {name}, which the network has"
        if held[name].shape != value.shape:
            shape, found = list(value.shape), list(held[name].shape)
            return f"{name} has the shape {found} there, and {shape} in the network"
    others = (name for name in held if name not in own)
    return next((f"it has {name}, which the network has not" for name in others), None)


def _refused(message: str) -> SettingError:
    return SettingError("training.initial_weights", message)
