"""Parts of a run's weights that belong to one group of the module's optimizer."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

SGD = "torch.optim.sgd:SGD"
Slot = tuple[str, int | None]  # name of an option, and the place in it if it has several numbers


class Segment(TypedDict):
    """Consecutive weights of one group, in values that JSON keeps.

    `optimizer`: its class, by module and name. `options`: of the group. `first_number`: place of
    the group's first number among those of all groups, see `slots`.
    """

    num_weights: int
    first_number: int
    optimizer: str
    options: Mapping[str, Any]


def plain_segment(num_weights: int) -> Segment:
    """Return weights from which each gradient is subtracted as it is."""
    weights = torch.zeros(1, requires_grad=True)
    (segment,) = group_segments(torch.optim.SGD([weights], lr=1.0))
    return {**segment, "num_weights": num_weights}


def group_segments(optimizer: Optimizer) -> list[Segment]:
    """Return a segment for each group, in order, of its weights that are trained."""
    kind = type(optimizer)
    found: list[Segment] = []
    first_number = 0
    for group in optimizer.param_groups:
        trained = [weight for weight in group["params"] if weight.requires_grad]
        options = {key: _value(each) for key, each in group.items() if key != "params"}
        segment: Segment = {
            "num_weights": sum(weight.numel() for weight in trained),
            "first_number": first_number,
            "optimizer": f"{kind.__module__}:{kind.__qualname__}",
            "options": options,
        }
        found.append(segment)
        first_number += len(slots(options))
    return found


def slots(options: Mapping[str, Any]) -> list[Slot]:
    """List the numbers among a group's options, which may change while it trains, in order."""
    found: list[Slot] = []
    for key, value in options.items():
        if key == "params":
            continue
        if isinstance(value, list | tuple):
            many = cast("Sequence[object]", value)
            found += [(key, place) for place, each in enumerate(many) if _is_number(each)]
        elif _is_number(value):
            found.append((key, None))
    return found


def with_numbers(segment: Segment, numbers: Sequence[float]) -> dict[str, Any]:
    """Return the segment's options, with these numbers of all groups in their slots."""
    options = dict(segment["options"])
    places, first = slots(options), segment["first_number"]
    own = numbers[first : first + len(places)]
    for (key, place), number in zip(places, own, strict=True):
        held = options[key]
        if place is not None:
            options[key] = [*held[:place], number, *held[place + 1 :]]
        else:
            options[key] = held if held == number else number  # a whole number stays one
    return options


def _is_number(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(option: Any) -> Any:
    if isinstance(option, Tensor):
        return option.item()
    return [*cast("Sequence[Any]", option)] if isinstance(option, tuple) else option
