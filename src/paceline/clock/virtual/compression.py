"""Compression of gradients in an all-reduce on the virtual clock.

Values are what real workers would have after compressing, and messages are as long as compressed
ones. To compress takes no time here. Error feedback: what a compression leaves out of a gradient is
added to the next one.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from paceline.errors import SettingError

_FULL_STEPS = 2  # before PowerSGD begins, as on real processes
_TINY = 1e-18  # length of vectors whose squares still are numbers; shorter ones become no longer


class AbstractCompression(ABC):
    """Compression of gradients. `num_messages`: all-reduces that carry one."""

    num_messages = 1

    @abstractmethod
    def size(self, num_elements: int, element_size: int) -> tuple[int, int]:
        """Return the number of elements of the next message and the bytes of each. `num_elements`,
        `element_size`: those of the gradient.
        """

    @abstractmethod
    def send(self, worker: int, value: Tensor) -> None:
        """Replace a worker's gradient by what its message says, in place."""

    @abstractmethod
    def receive(self, mean: Tensor) -> None:
        """Replace the mean of what workers send by what they receive, in place."""


class Half(AbstractCompression):
    """Numbers of 16 bits, as by torch's hooks, except that here their sum is rounded only once."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def size(self, num_elements: int, element_size: int) -> tuple[int, int]:
        return num_elements, 2

    def send(self, worker: int, value: Tensor) -> None:
        value.copy_(value.to(self._dtype))

    def receive(self, mean: Tensor) -> None:
        mean.copy_(mean.to(self._dtype))


class PowerSGD(AbstractCompression):
    """Rank 1 with error feedback (Vogels et al. 2019, arXiv:1905.13727), as by torch's hook: of
    matrices that become shorter by more than half, from the third step on. All messages are linear
    in gradients and errors, so the mean result follows from the means of these alone, which are all
    that is kept. `shapes`: of the tensors of a gradient. `like`: a gradient. `seed`: of the first
    factors.
    """

    def __init__(self, shapes: Sequence[torch.Size], like: Tensor, seed: int) -> None:
        self._errors, self._num_steps = torch.zeros_like(like), 0
        self._shapes = [(s[0], s[1:].numel()) if len(s) > 1 else (1, s.numel()) for s in shapes]
        generator = torch.Generator().manual_seed(seed)
        self._factors: list[Tensor | None] = []  # of each matrix that is compressed
        sent = 0
        for rows, columns in self._shapes:
            compressed = 2 * (rows + columns) < rows * columns
            first = torch.randn(columns, generator=generator, dtype=like.dtype)
            self._factors.append(first.to(like.device) if compressed else None)
            sent += rows + columns if compressed else rows * columns
        self._share = sent / like.numel()

    def size(self, num_elements: int, element_size: int) -> tuple[int, int]:
        return round(num_elements * (self._share if self.num_messages > 1 else 1)), element_size

    def send(self, worker: int, value: Tensor) -> None:
        pass

    def receive(self, mean: Tensor) -> None:
        self._num_steps += 1
        if self._num_steps >= _FULL_STEPS:
            self.num_messages = 3  # from the next one on: two factors, and what is not compressed
        if self._num_steps <= _FULL_STEPS:
            return
        mean.copy_(self._errors.add_(mean))
        parts = torch.split(mean, [rows * columns for rows, columns in self._shapes])
        for part, shape, right in zip(parts, self._shapes, self._factors, strict=True):
            if right is not None:
                matrix = part.view(shape)
                left = torch.mv(matrix, normalize(right, dim=0, eps=_TINY))
                left = normalize(left, dim=0, eps=_TINY)
                found = torch.mv(matrix.T, left)
                torch.outer(left, found, out=matrix)
                right.copy_(torch.where(found.any(), found, right))  # it would stay 0 for ever
        self._errors.sub_(mean)


class OneBit(AbstractCompression):
    """Signs with error feedback (Seide et al. 2014, Interspeech; Karimireddy et al. 2019,
    arXiv:1901.09847): each tensor becomes its signs times its mean absolute value, once by each
    worker and once more where values are averaged. `shapes`, `like`: as for PowerSGD; without
    shapes a gradient is one tensor. The means are too few to be counted in messages.
    """

    def __init__(self, shapes: Sequence[torch.Size], like: Tensor) -> None:
        self._sizes = [shape.numel() for shape in shapes] or [like.numel()]
        self._errors: defaultdict[int | None, Tensor] = defaultdict(lambda: torch.zeros_like(like))

    def size(self, num_elements: int, element_size: int) -> tuple[int, int]:
        return (num_elements + 7) // 8, 1

    def send(self, worker: int | None, value: Tensor) -> None:
        errors = self._errors[worker].add_(value)
        for part, error in zip(
            torch.split(value, self._sizes), torch.split(errors, self._sizes), strict=True
        ):
            part.copy_(error.sign() * error.abs().mean())
        errors.sub_(value)

    def receive(self, mean: Tensor) -> None:
        self.send(None, mean)


def compression(
    name: str, shapes: Sequence[torch.Size], like: Tensor, seed: int
) -> AbstractCompression | None:
    """Return a run's compression of vectors like `like`; None for none. Raises
    SettingError("scheme.compression") if it needs the shapes of tensors, and there are none.
    """
    match name:
        case "none":
            return None
        case "fp16":
            return Half(torch.float16)
        case "bf16":
            return Half(torch.bfloat16)
        case "one_bit":
            return OneBit(shapes, like)
        case _ if shapes:
            return PowerSGD(shapes, like, seed)
        case _:
            message = f"messages of {name} depend on the shapes of weights: train, to know them"
            raise SettingError("scheme.compression", message)
