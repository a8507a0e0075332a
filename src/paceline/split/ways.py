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

WeightedLayer = nn.Linear | nn.Conv2d


class Site(NamedTuple):
    """Place of a layer in the network.

    `sliced`: its input comes divided along the dimension that the layer adds up.
    """

    name: str
    layer: WeightedLayer
    sliced: bool


def way_of(site: Site, divided: bool, shards: int) -> str:
    """Return the way of a layer: by images, or `divided` by channels or inputs.

    Raises SettingError("model.shards") for a layer that cannot be divided.
    """
    if not divided:
        return BY_IMAGES
    way = _divided_way(site, shards)
    if way is None:
        raise SettingError(
            "model.shards", f"{site.name} cannot be divided {_because(site, shards)}"
        )
    return way


def can_be_divided(layer: WeightedLayer, shards: int) -> bool:
    inputs, outputs, groups = _sizes(layer)
    parts = (groups,) if groups > 1 else (inputs, outputs)
    return any(size % shards == 0 for size in parts)


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
