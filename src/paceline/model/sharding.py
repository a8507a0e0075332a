"""Settings by which a worker's network is split over several processes."""

from typing import Annotated, Literal

from paceline.settings import Neutral, Whole, settings


@settings("model")
class Sharding:
    """Division of each worker into `shards` processes.

    `split`: layers of which each process holds a slice; of the others it holds all, and computes
    them for its part of the images.
    """

    shards: Annotated[Whole, Neutral(1)]
    split: Annotated[Literal["auto", "fully_connected", "all"], Neutral("auto")]
