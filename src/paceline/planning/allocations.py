"""Counts the bytes that operations allocate, for real tensors and for fake ones, which have none.

A storage counts from the operation that returns it until nothing refers to it. What an operation
takes and returns before it ends is not seen, but for convolutions on a CPU, where it is measured.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paceline.planning.measured_peak import Phase, phases_on_cpu

_CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)


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


def phases_by_operation(
    phases: Sequence[Callable[[], None]], held: Iterable[Tensor]
) -> list[Phase]:
    """Call one after the other; return the bytes of each, above those of what is held."""
    found = list[Phase]()
    with Allocations() as allocated:
        allocated.add(held)
        before = allocated.current
        for phase in phases:
            allocated.forget_peak()
            phase()
            found.append(Phase(allocated.peak - before, allocated.current - before))
    return found


def _workspace(func: Any, args: tuple[Any, ...]) -> int:
    """Return the bytes that a convolution on a CPU allocates besides what it returns.

    Copies in layouts of its own, and columns of images, depend on the processor. So it is carried
    out once on zeros of these shapes, whether its tensors are fake or not.
    """
    if func not in _CONVOLUTIONS or args[0].device.type != "cpu":
        return 0
    return _measured_workspace(func, tuple(map(_Described.of, args)))


class _Described(NamedTuple):
    """Argument of an operator: a tensor by its size, stride and type, or anything else."""

    value: Any
    stride: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None

    @classmethod
    def of(cls, value: Any) -> "_Described":
        if isinstance(value, Tensor):
            return cls(tuple(value.shape), value.stride(), value.dtype)
        return cls(tuple(value) if isinstance(value, list) else value)

    def zeros(self) -> Any:
        if self.stride is None:
            return self.value
        return torch.empty_strided(self.value, self.stride, dtype=self.dtype).zero_()


@cache
def _measured_workspace(func: Any, described: tuple[_Described, ...]) -> int:
    with unset_fake_temporarily():
        arguments = [each.zeros() for each in described]
        returned = []
        (phase,) = phases_on_cpu([lambda: returned.append(func(*arguments))])
    return phase.peak - phase.left
