"""Counts the bytes that operations allocate, for real tensors and for fake ones, which have none.

A storage counts from the operation that returns it until nothing refers to it. What an operation
takes and returns before it ends is not seen, but for one case: on a CPU, oneDNN's convolutions copy
the weights into a layout of their own.
"""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_WEIGHT_OF = {  # place of the weights among the arguments
    torch.ops.aten.convolution.default: 1,
    torch.ops.aten.convolution_backward.default: 2,
}


class Allocations(TorchDispatchMode):
    """Context in which operations are counted. `current`, `peak`: bytes, now and at most."""

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self._live: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        returned = func(*args, **(kwargs or {}))
        self.add(each for each in tree_leaves(returned) if isinstance(each, Tensor))
        self.peak = max(self.peak, self.current + _workspace(func, args))
        return returned

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Count storages that were there before."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if (key := storage._cdata) not in self._live:
                size = storage.nbytes()
                self.current += size
                self._live[key] = weakref.ref(storage, self._release(key, size))

    def forget_peak(self) -> None:
        self.peak = self.current

    def _release(self, key: int, size: int) -> Any:
        def release(_: object) -> None:
            self.current -= size
            del self._live[key]

        return release


def _workspace(func: Any, args: tuple[Any, ...]) -> int:
    if func not in _WEIGHT_OF or (weight := args[_WEIGHT_OF[func]]).device.type != "cpu":
        return 0
    return weight.nbytes
