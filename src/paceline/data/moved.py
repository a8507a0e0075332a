"""Count of the data that moved in a run, apart from what workers exchange of weights.

Rooms without torch import it, so this file must not import torch.
"""

from dataclasses import dataclass


@dataclass
class DataMoved:
    """Data that moved by one process, or by all workers on the virtual clock.

    `shuffle_bytes`, `feed_bytes`: sent. `shuffle_seconds`: of the worker that took longest.
    """

    shuffle_bytes: int = 0
    shuffle_seconds: float = 0.0
    feed_bytes: int = 0
