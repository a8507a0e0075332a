"""Keeps values that were computed last for the next call."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


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
