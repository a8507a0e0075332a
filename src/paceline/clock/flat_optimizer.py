"""Optimizers that update weights which are one vector; a segment of the vector has the weights of
one group of the optimizer, or one tensor if the optimizer computes with whole tensors.
"""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, TypedDict, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

SGD = "torch.optim.sgd:SGD"
# They treat each weight by itself, so that weights can be cut anywhere among servers. All others
# are taken to compute with whole tensors, as LARS does with their norms.
ELEMENTWISE = frozenset(
    {
        *(torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam),
        *(torch.optim.RAdam, torch.optim.Adamax, torch.optim.RMSprop, torch.optim.Adagrad),
        *(torch.optim.Adadelta, torch.optim.ASGD, torch.optim.Rprop),
    }
)
_PLACED = ("capturable", "differentiable", "foreach")  # by torch, for the tensors of the module

Numbers = Sequence[float]  # of all groups, see LiveOptions
Slot = tuple[str, int | None]  # name of an option, and the place in it if it has several numbers


class Segment(TypedDict):
    """Consecutive weights of one group, in JSON values. `optimizer`: its class, by module and name.
    `options`: options of the group. `first_number`: place of the group's first number among those
    of all groups, see `slots`. `shape`: shape of the tensor that it is; empty if it may be cut.
    """

    num_weights: int
    shape: Sequence[int]
    first_number: int
    optimizer: str
    options: Mapping[str, Any]


def plain_segment(num_weights: int) -> Segment:
    """Return a segment of weights from which each gradient is subtracted unchanged."""
    weights = torch.zeros(1, requires_grad=True)
    (segment,) = group_segments(torch.optim.SGD([weights], lr=1.0))
    return {**segment, "num_weights": num_weights}


def group_segments(optimizer: Optimizer) -> list[Segment]:
    """Return a segment for the trained weights of each group, in order."""
    kind = type(optimizer)
    found: list[Segment] = []
    first_number = 0
    for group in optimizer.param_groups:
        options = {key: _value(each) for key, each in group.items() if key != "params"}
        segment: Segment = {
            "num_weights": sum(each.numel() for each in group["params"] if each.requires_grad),
            "shape": [],
            "first_number": first_number,
            "optimizer": f"{kind.__module__}:{kind.__qualname__}",
            "options": options,
        }
        found.append(segment)
        first_number += len(slots(options))
    return found


def slots(options: Mapping[str, Any]) -> list[Slot]:
    """List the places of the numbers in a group's options; these numbers may change in training."""
    found: list[Slot] = []
    for key, value in options.items():
        if isinstance(value, list | tuple) and key != "params":
            many = cast("Sequence[object]", value)
            found += [(key, place) for place, each in enumerate(many) if _is_number(each)]
        elif _is_number(cast("object", value)):
            found.append((key, None))
    return found


def _is_number(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(option: Any) -> Any:
    if isinstance(option, Tensor):
        return option.item()
    return [*cast("Sequence[Any]", option)] if isinstance(option, tuple) else option


def _with_numbers(segment: Segment, numbers: Numbers) -> dict[str, Any]:
    """Return the segment's options with their slots filled from `numbers` of all groups."""
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


class AbstractFlatOptimizer(ABC):
    """Optimizer that updates one vector in place: `weights`, as many as all segments have."""

    def __init__(self, weights: Tensor, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._sizes = [segment["num_weights"] for segment in segments]
        self._weights = torch.split(weights, self._sizes)
        self._options: list[Mapping[str, Any]] = [segment["options"] for segment in segments]
        self._numbers: Numbers | None = None  # in the options

    def step(self, gradient: Tensor, factor: float = 1.0, numbers: Numbers | None = None) -> None:
        """Take a step. `factor` multiplies each segment's rate. `numbers`: options of all groups in
        this step; None if they are as before.
        """
        if numbers is not None and numbers != self._numbers:
            self._options = [_with_numbers(segment, numbers) for segment in self._segments]
            self._numbers = numbers
        self._step(gradient, factor)

    def fork(self, weights: Tensor) -> "AbstractFlatOptimizer":
        """Return an equal optimizer with a copy of the state, for other weights."""
        other = type(self)(weights, self._segments)
        other.load_state(self.state())
        return other

    @abstractmethod
    def _step(self, gradient: Tensor, factor: float) -> None: ...

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, not as a copy."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a copy of the state of another optimizer with the same segments."""


def flat_optimizer(weights: Tensor, segments: Sequence[Segment]) -> AbstractFlatOptimizer:
    """Return the optimizer that the segments name."""
    of_sgd = all(segment["optimizer"] == SGD for segment in segments)
    return (FlatSGD if of_sgd else FlatTorch)(weights, segments)


class FlatSGD(AbstractFlatOptimizer):
    """Equivalent of torch.optim.SGD. It calls the kernel of torch.optim.SGD(fused=True) in one pass
    over memory. The optimizer itself takes 0.3 ms more with cold caches: much of a small step.
    """

    def __init__(self, weights: Tensor, segments: Sequence[Segment]) -> None:
        super().__init__(weights, segments)
        self._moving = weights.new_empty(weights.shape)
        self._momenta = torch.split(self._moving, self._sizes)
        self._begun = [False] * len(segments)  # with momentum

    @torch.no_grad()
    def _step(self, gradient: Tensor, factor: float) -> None:
        gradients = [gradient] if len(self._sizes) == 1 else torch.split(gradient, self._sizes)
        vectors = zip(self._options, self._weights, gradients, self._momenta, strict=True)
        for number, (options, weights, part, moving) in enumerate(vectors):
            torch._fused_sgd_(  # pyright: ignore[reportPrivateImportUsage, reportPrivateUsage]
                [weights],
                [part],
                [moving] if options["momentum"] else [],
                weight_decay=options["weight_decay"],
                momentum=options["momentum"],
                lr=options["lr"] * factor,
                dampening=options["dampening"],
                nesterov=options["nesterov"],
                maximize=options["maximize"],
                is_first_step=not self._begun[number],
            )
            self._begun[number] |= options["momentum"] != 0

    def state(self) -> dict[str, Any]:
        return {"moving": self._moving, "begun": self._begun}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._moving.copy_(state["moving"])
        self._begun = [*state["begun"]]


class FlatTorch(AbstractFlatOptimizer):
    """The optimizer itself, a tensor for each segment. Raises ImportError, AttributeError."""

    def __init__(self, weights: Tensor, segments: Sequence[Segment]) -> None:
        super().__init__(weights, segments)
        pairs = zip(self._weights, segments, strict=True)
        self._tensors = [part.view(*(each["shape"] or part.shape)) for part, each in pairs]
        members: dict[int, list[int]] = {}  # numbers of the segments, by group
        for number, segment in enumerate(segments):
            members.setdefault(segment["first_number"], []).append(number)
        self._members = list(members.values())
        groups = [
            {**_own(self._options[own[0]]), "params": [self._tensors[number] for number in own]}
            for own in self._members
        ]
        kind, name = resolve_name(segments[0]["optimizer"]), segments[0]["optimizer"]
        if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
            raise ImportError(f"{name} is no optimizer")
        known, first = inspect.signature(kind).parameters, groups[0]
        needed = {key: value for key, value in first.items() if key in known and key != "params"}
        build: Any = kind
        self._optimizer: Optimizer = build(groups, **needed)

    def _step(self, gradient: Tensor, factor: float) -> None:
        for tensor, part in zip(self._tensors, torch.split(gradient, self._sizes), strict=True):
            tensor.grad = part.view_as(tensor)
        for group, (first, *_) in zip(self._optimizer.param_groups, self._members, strict=True):
            options = self._options[first]
            group.update(_own(options))
            group["lr"] = options["lr"] * factor
        self._optimizer.step()
        for tensor in self._tensors:
            tensor.grad = None  # the caller's again

    def state(self) -> dict[str, Any]:
        declared = {*self._optimizer.defaults, "params"}
        return {
            "of_segments": [self._optimizer.state[tensor] for tensor in self._tensors],
            "of_groups": [
                {key: each for key, each in group.items() if key not in declared}
                for group in self._optimizer.param_groups
            ],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        # load_state_dict would share tensors, and round those of another dtype
        for tensor, own in zip(self._tensors, state["of_segments"], strict=True):
            self._optimizer.state[tensor] = {
                # an optimizer may keep a single number for all weights on the CPU
                name: each.to(tensor.device) if isinstance(each, Tensor) and each.ndim else each
                for name, each in copy.deepcopy(own).items()
            }
        for group, own in zip(self._optimizer.param_groups, state["of_groups"], strict=True):
            group.update(copy.deepcopy(own))


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in options.items() if key not in _PLACED}
