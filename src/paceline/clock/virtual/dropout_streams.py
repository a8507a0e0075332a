"""Dropout on the virtual clock: the random numbers of a step depend on its worker and number alone,
so that they are the same in every engine and in any order of computing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from paceline.errors import SettingError
from paceline.random_bits import random_bits

# number of an image's dimensions that are dropped together
_DROPPED: dict[Any, int] = {
    functional.dropout: 0,
    functional.dropout1d: 1,
    functional.dropout2d: 2,
    functional.dropout3d: 3,
}
_top_hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks  # pyright: ignore
_KINDS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class DropoutStreams:
    """Streams of the dropout layers of `network`, by worker and step."""

    def __init__(self, network: nn.Module, seed: int, device: torch.device) -> None:
        parts = [part for part in network.modules() if isinstance(part, _KINDS)]
        self._active, self._seed = any(part.p > 0 for part in parts), seed
        self._like = torch.empty(0, dtype=torch.float32, device=device)
        self._generator = torch.Generator(device) if self._active else None
        self._shapes: list[torch.Size] = []

    def drawing(self, worker: int, step: int) -> AbstractContextManager[Any]:
        """Return the context of a worker's forward pass by itself."""
        if not self._active:
            return nullcontext()
        self._shapes = []
        self._begin(worker, step)
        return Dropping(self._draw)

    def drawn(self, numbers: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Return the uniform numbers of each layer of the last `drawing`, stacked by `numbers`."""
        shapes = self._shapes
        noise = [self._like.new_empty(len(numbers), *each) for each in shapes]
        for row, number in enumerate(numbers if shapes else ()):
            self._begin(*number)
            for each in noise:
                each[row].uniform_(generator=self._generator)
        return noise

    def _begin(self, worker: int, step: int) -> None:
        assert self._generator is not None
        (bits,) = random_bits(torch.tensor([step]).numpy(), "dropout", self._seed, worker)
        self._generator.manual_seed(int(bits >> 1))

    def _draw(self, shape: torch.Size) -> Tensor:
        self._shapes.append(shape)
        return self._like.new_empty(shape).uniform_(generator=self._generator)


class Dropping(TorchFunctionMode):
    """Context in which dropout keeps what `draw(shape)` gives at least its probability."""

    def __init__(self, draw: Callable[[torch.Size], Tensor]) -> None:
        super().__init__()
        self._draw = draw

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func in _DROPPED:
            return self._dropped(_DROPPED[func], *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropped(
        self,
        dimensions: int,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        if not training or not p:
            return input
        if _top_hooks(True) is not None:
            message = "its dropout is inside of torch.utils.checkpoint, which would draw again"
            raise SettingError("model", message)
        kept = 2 if dimensions == 2 else input.dim() - dimensions  # as torch has it
        drawn = self._draw(torch.Size([*input.shape[:kept], *[1] * (input.dim() - kept)]))
        return torch.where(drawn >= p, input * (1 / (1 - p) if p < 1 else 0.0), 0.0)


def given(noise: Sequence[Tensor]) -> AbstractContextManager[Any]:
    """Return the context of a forward pass whose dropout layers take the tensors of `noise`."""
    left: Iterator[Tensor] = iter(noise)
    return Dropping(lambda _: next(left)) if noise else nullcontext()
