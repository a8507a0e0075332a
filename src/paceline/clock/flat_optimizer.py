"""An optimizer's rule on weights that are one vector."""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from paceline.clock.segment import SGD, Segment, with_numbers

_PLACED = ("capturable", "differentiable", "foreach")  # by torch, for the tensors of the module


Numbers = Sequence[float]  # of all groups, see LiveOptions


class AbstractFlatOptimizer(ABC):
    """Optimizer over one vector, which it updates in place.

    `weights`: as many as the segments have together.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._sizes = [segment["num_weights"] for segment in segments]
        self._options: list[Mapping[str, Any]] = [segment["options"] for segment in segments]
        self._numbers: Numbers | None = None  # in the options

    def step(self, gradient: Tensor, factor: float = 1.0, numbers: Numbers | None = None) -> None:
        """Take a step; `factor` multiplies each segment's rate.

        `numbers`: those of all groups in this step; None: as before.
        """
        if numbers is not None and numbers != self._numbers:
            self._options = [with_numbers(segment, numbers) for segment in self._segments]
            self._numbers = numbers
        self._step(gradient, factor)

    @abstractmethod
    def _step(self, gradient: Tensor, factor: float) -> None: ...

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: that of the optimizer, not a copy."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of another optimizer with the same segments."""

    @abstractmethod
    def fork(self, weights: Tensor) -> "AbstractFlatOptimizer":
        """Return the same optimizer, its state included, for other weights."""


def flat_optimizer(weights: Tensor, segments: Sequence[Segment]) -> AbstractFlatOptimizer:
    """Return the optimizer that the segments name."""
    if all(segment["optimizer"] == SGD for segment in segments):
        return FlatSGD(weights, segments)
    return FlatTorch(weights, segments)


class FlatSGD(AbstractFlatOptimizer):
    """Equivalent of torch.optim.SGD.

    It calls the same kernel as torch.optim.SGD(fused=True), with one pass over memory. The
    optimizer itself would take 0.3 ms more with caches cold from training, much of a small step.
    """

    def __init__(self, weights: Tensor, segments: Sequence[Segment]) -> None:
        super().__init__(segments)
        self._weights = torch.split(weights, self._sizes)
        self._moving = weights.new_empty(weights.shape)
        self._momenta = torch.split(self._moving, self._sizes)
        self._begun = [False] * len(segments)  # with momentum

    @torch.no_grad()
    def _step(self, gradient: Tensor, factor: float) -> None:
        gradients = [gradient] if len(self._sizes) == 1 else torch.split(gradient, self._sizes)
        vectors = zip(self._weights, gradients, self._momenta, strict=True)
        for number, (weights, part, moving) in enumerate(vectors):
            options = self._options[number]
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
        self._begun = state["begun"]

    def fork(self, weights: Tensor) -> "FlatSGD":
        other = FlatSGD(weights, self._segments)
        other._moving.copy_(self._moving)
        other._begun = [*self._begun]
        return other


class FlatTorch(AbstractFlatOptimizer):
    """The optimizer itself, over one tensor for each segment: so it must treat weights apart."""

    def __init__(self, weights: Tensor, segments: Sequence[Segment]) -> None:
        super().__init__(segments)
        groups = [
            {**_own(options), "params": [part]}
            for options, part in zip(self._options, torch.split(weights, self._sizes), strict=True)
        ]
        kind = optimizer_class(segments[0]["optimizer"])
        self._optimizer = make_optimizer(kind, groups)

    def _step(self, gradient: Tensor, factor: float) -> None:
        groups = self._optimizer.param_groups
        parts = torch.split(gradient, self._sizes)
        for group, options, part in zip(groups, self._options, parts, strict=True):
            group.update(_own(options))
            group["params"][0].grad = part
            group["lr"] = options["lr"] * factor
        self._optimizer.step()
        for group in groups:
            group["params"][0].grad = None  # the caller's again

    def state(self) -> dict[str, Any]:
        return {"of_segments": [self._optimizer.state[part] for part in self._parts]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for part, own in zip(self._parts, state["of_segments"], strict=True):
            # load_state_dict would share tensors, and round those of another dtype
            self._optimizer.state[part] = copy.deepcopy(own)

    def fork(self, weights: Tensor) -> "FlatTorch":
        other = FlatTorch(weights, self._segments)
        other.load_state(self.state())
        return other

    @property
    def _parts(self) -> list[Tensor]:
        return [part for group in self._optimizer.param_groups for part in group["params"]]


@cache
def optimizer_class(name: str) -> type[Optimizer]:
    """Return the class "module:name". Raises ImportError or AttributeError if there is none."""
    found = resolve_name(name)
    if not (isinstance(found, type) and issubclass(found, Optimizer)):
        raise ImportError(f"{name} is no optimizer")
    return found


def make_optimizer(kind: type[Optimizer], groups: Sequence[dict[str, Any]]) -> Optimizer:
    """Make an optimizer whose groups have all options of its kind."""
    known = inspect.signature(kind).parameters
    first = {key: value for key, value in groups[0].items() if key in known and key != "params"}
    build: Any = kind
    return build(list(groups), **first)


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in options.items() if key not in _PLACED}
