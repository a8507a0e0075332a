"""Choice of the layers that a split worker divides; it computes the others by images.

Fully connected layers have many weights and few activations, convolutions the reverse (Krizhevsky
2014, arXiv:1404.5997). But what a layer moves depends on how its neighbours are divided, so `auto`
compares whole networks.
"""

import math
from collections.abc import Callable, Iterable

from paceline.errors import SettingError

SPLITS = ("all", "fully_connected", "auto")
Layers = frozenset[str]


def check_split(split: str, shards: int) -> None:
    """Raise SettingError("model.split") or ("model.shards") for what is no value of these."""
    if split not in SPLITS:
        raise SettingError("model.split", f"{split!r} is none of {', '.join(SPLITS)}")
    if shards < 1:
        raise SettingError("model.shards", f"{shards} is not a number of processes")


def divided_layers(
    split: str,
    layers: Iterable[str],
    linear: Layers,
    dividable: Layers,
    num_bytes: Callable[[Layers], int],
) -> Layers:
    """Return the names of the layers to divide.

    `split`: "all" divides all `layers`, "fully_connected" those that are `linear`, "auto" those of
    the `dividable` with which a process sends the fewest bytes in a step: never more than by the
    other two, and no single layer saves bytes if it is done the other way. `num_bytes(divided)`
    counts them, and raises SettingError for a choice that cannot be: that is left out, but "auto"
    raises it for no layer at all, where the processes cannot share the images.
    """
    if split == "all":
        return frozenset(layers)
    if split == "fully_connected":
        return linear

    num_bytes(frozenset())

    def counted(divided: Layers) -> float:
        try:
            return num_bytes(divided)
        except SettingError:
            return math.inf

    starts = (frozenset[str](), linear & dividable, dividable)
    return _improved(min(starts, key=counted), dividable, counted)


def _improved(divided: Layers, dividable: Layers, num_bytes: Callable[[Layers], float]) -> Layers:
    """Change one layer after the other, as long as that saves bytes."""
    least, unchanged = num_bytes(divided), False
    while not unchanged:
        unchanged = True
        for name in sorted(dividable):
            other = divided ^ {name}
            if (found := num_bytes(other)) < least:
                divided, least, unchanged = other, found, False
    return divided
