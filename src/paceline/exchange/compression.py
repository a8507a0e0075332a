"""Compression of gradients before they are sent, by the names that settings use."""

from typing import Literal, get_args

from paceline.errors import SettingError

Compression = Literal["none", "fp16", "bf16", "power_sgd"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)


def check_compression(compression: str, collective: str) -> None:
    """Raise SettingError("scheme.compression") if the collective cannot have this compression."""
    if compression not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise SettingError("scheme.compression", f"there is no {compression}; there are: {known}")
    if compression == "power_sgd" and collective != "native":
        message = f"power_sgd sums its factors by native all-reduce, not {collective}"
        raise SettingError("scheme.compression", message)
