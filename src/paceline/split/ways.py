"""Ways to divide a layer over processes, and the choice of one for each layer.

    by_images    each process has the layer and its part of the images; gradients are summed
    by_channels  each process has some of the outputs, for all images; the input is gathered
    by_inputs    each process has some of the inputs, for all images; the outputs are summed
    whole        each process computes the same

Fully connected layers have many weights and few activations, convolutions the reverse: so "conv ->
data, FC -> model" (Krizhevsky 2014, arXiv:1404.5997; Iandola 2016, arXiv:1511.00175).
"""

from typing import NamedTuple

from torch import nn

from paceline.errors import SettingError

BY_IMAGES = "by_images"
BY_CHANNELS = "by_channels"
BY_INPUTS = "by_inputs"
NOT_DIVIDED = "whole"
SPLITS = ("all", "fully_connected", "auto")

WeightedLayer = nn.Linear | nn.Conv2d


class Site(NamedTuple):
    """Place of a layer in the network.

    `activations`: elements of its input for the whole batch. `sliced`: its input comes divided
    along the dimension that the layer adds up.
    """

    name: str
    layer: WeightedLayer
    activations: int
    sliced: bool


def check_split(split: str, shards: int) -> None:
    """Raise SettingError("model.split") or ("model.shards") for what is no value of these."""
    if split not in SPLITS:
        raise SettingError("model.split", f"{split!r} is none of {', '.join(SPLITS)}")
    if shards < 1:
        raise SettingError("model.shards", f"{shards} is not a number of processes")


def way_of(site: Site, split: str, shards: int) -> str:
    """Choose the way of a layer.

    `split`: "all" divides every layer by channels or inputs, "fully_connected" linear layers,
    "auto" those whose input, for the batch, is smaller than their weights: each of the two would
    pass the group once and back. Raises SettingError("model.shards") for a layer that cannot be
    divided as it must be.
    """
    divided = _divided_way(site, shards)
    if split == "auto":
        cheaper = site.activations < sum(weight.numel() for weight in site.layer.parameters())
        return divided if divided and cheaper else BY_IMAGES
    if split == "fully_connected" and isinstance(site.layer, nn.Conv2d):
        return BY_IMAGES
    if divided is None:
        raise SettingError(
            "model.shards", f"{site.name} cannot be divided {_because(site, shards)}"
        )
    return divided


def _divided_way(site: Site, shards: int) -> str | None:
    inputs, outputs, groups = _sizes(site.layer)
    if groups > 1:
        return BY_CHANNELS if groups % shards == 0 else None
    linear = isinstance(site.layer, nn.Linear)
    fewer = linear and site.sliced and outputs < inputs and inputs % shards == 0
    if outputs % shards == 0 and not fewer:
        return BY_CHANNELS
    return BY_INPUTS if inputs % shards == 0 else None


def _sizes(layer: WeightedLayer) -> tuple[int, int, int]:
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features, 1
    return layer.in_channels, layer.out_channels, layer.groups


def _because(site: Site, shards: int) -> str:
    inputs, outputs, groups = _sizes(site.layer)
    if groups > 1:
        return f"over {shards} processes: it has {groups} groups"
    return f"over {shards} processes: it has {inputs} inputs and {outputs} outputs"
