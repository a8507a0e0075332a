"""Pauses before measured messages, as a step makes them."""

import random
import time

import torch

# Before each message a process fills its caches with something else, as a step does, and sleeps, as
# one that waits for its accelerator. Without a pause two processes exchange messages while the
# kernel still waits for the last one, caches are warm, and no thread sleeps: gloo's all-reduce of
# 30 KB then takes a fifth of the time. The longer the pause, the deeper the sleep.
PAUSE = 0.01  # seconds at most; each is as long as chance has it, so that workers do not meet
_OTHER = torch.zeros(16 * 2**20, dtype=torch.uint8)


def sleep(most: float) -> None:
    """Fill the caches with something else, then sleep for at most so many seconds."""
    _OTHER.add_(1)
    time.sleep(random.uniform(0, most))  # torch's generator stays as it is
