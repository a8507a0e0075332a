"""Defines the source of all order of data: one endless stream of sample indices per run."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from paceline.random_bits import random_permutation

_KEPT_PERMUTATIONS = 8  # workers far apart on a virtual clock read different epochs


class SampleStream:
    """Concatenation of seeded permutations of the training set, one per epoch.

    A batch may span the end of one permutation and the start of the next. The stream is a function
    of (num_samples, seed) alone, so that all processes agree on it.
    """

    def __init__(self, num_samples: int, seed: int) -> None:
        if num_samples < 1:
            raise ValueError(f"a stream needs samples, not {num_samples}")
        self.num_samples = num_samples
        self.seed = seed
        self._permutations = Recent(_KEPT_PERMUTATIONS)

    def indices(self, first: int, count: int) -> Tensor:
        """Return the data set's indices at positions first to first + count - 1: int64 [count]."""
        return part_of_passes(self.permutation, self.num_samples, first, count)

    def permutation(self, epoch: int) -> Tensor:
        """Return the order of an epoch: int64 [num_samples]."""
        return self._permutations.get(epoch, lambda: self._ordered(epoch))

    def _ordered(self, epoch: int) -> Tensor:
        return torch.from_numpy(random_permutation(self.num_samples, "order", self.seed, epoch))


def part_of_passes(
    one_pass: Callable[[int], Tensor], length: int, first: int, count: int
) -> Tensor:
    """Return the values at positions first to first + count - 1 of passes that follow each other.

    `one_pass(number)`: values of a pass, [length].
    """
    number, offset = divmod(first, length)
    pieces = [one_pass(number)[offset : offset + count]]
    while (missing := count - sum(map(len, pieces))) > 0:
        number += 1
        pieces.append(one_pass(number)[:missing])
    return torch.cat(pieces) if len(pieces) > 1 else pieces[0]


class Recent:
    """Memory of the `limit` values that were asked for last, by key.

    A copy in another process begins empty.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self._limit,)

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the value of `key`, computed if it is not kept."""
        if key not in self._kept:
            self._kept[key] = compute()
            if len(self._kept) > self._limit:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]
