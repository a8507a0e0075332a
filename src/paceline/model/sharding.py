"""Settings by which a worker's network is split over several processes."""

from typing import Literal

from paceline.settings import Whole, settings


@settings("model")
class Sharding:
    """Division of each worker into `shards` processes.

    `split`: layers of which each process holds a slice; of the others it holds all, and computes
    them for its part of the images.
    """

    shards: Whole
    split: Literal["auto", "fully_connected", "all"]
