"""Times work that is too short for one measurement."""

import time
from collections.abc import Callable

import torch


def timed(
    work: Callable[[], None], least: float, before: Callable[[], None] = lambda: None
) -> float:
    """Return the seconds of one call, as the mean of as many as take `least` seconds in all.

    `before`: called before each of them, and not counted.
    """
    total, number = 0.0, 0
    while not number or total < least:
        before()
        start = time.perf_counter()
        work()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        total += time.perf_counter() - start
        number += 1
    return total / number
