"""State of the random numbers of a process, which dropout and anybody's transforms draw from."""

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """Return the state of the generators of torch, numpy and Python, as tensors and lists."""
    name, words, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": [name, np.asarray(words).tolist(), *rest],
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Go on with the random numbers from a state that `random_state` has returned."""
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    name, words, *rest = state["numpy"]
    np.random.set_state((name, np.array(words, dtype=np.uint32), *rest))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
