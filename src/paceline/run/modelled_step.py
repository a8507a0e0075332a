"""Messages inside a point's split workers, on a modelled cluster."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline.data.image_set import AbstractImageData
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.timing.split_step import SplitStep
from paceline.timing.workload import OWN


def split_step_of(
    point: Point, module: Callable[[], Any], image_shape: Callable[[], Sequence[int]]
) -> SplitStep | None:
    """Return the messages of a worker's step; None if workers are whole.

    They are those of the workload's layers, or of the plan for the trained network: `module` and
    `image_shape` are asked only then. Raises SettingError for a network that cannot be split.
    """
    sharding = point.sharding
    if sharding.shards == 1:
        return None
    if point.workload.name != OWN:
        return point.workload.split_step(sharding, point.batch_size)
    from paceline.clock.split.network_plan import modelled_split  # Lightning takes seconds

    dtype = torch.float64 if point.training.precision == "64-true" else torch.float32
    return modelled_split(module(), sharding, point.batch_size, image_shape(), dtype)


def declared_shape(point: Point) -> Sequence[int]:
    """Return the shape [C, H, W] of a point's images without reading them.

    Raises SettingError("model.shards") for data that do not declare it.
    """
    data = point.data.build()
    if not isinstance(data, AbstractImageData):
        message = f"the shape of the images of a {type(data).__name__} is not known before training"
        raise SettingError("model.shards", message)
    return data.image_shape
