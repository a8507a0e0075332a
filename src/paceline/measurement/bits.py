"""Bits of many images as one cell of a table."""

import base64
import zlib

import numpy as np


def text_of(bits: bytes) -> str:
    """Return packed bits as text, which is short where most are equal."""
    return base64.b64encode(zlib.compress(bits, 9)).decode()


def bits_of(text: str, count: int) -> np.ndarray:
    """Return `count` bits [count, bool] from such a text. Raises ValueError if they do not fit."""
    try:
        packed = zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(f"no packed bits: {error}") from error
    if count < 1 or len(packed) != (count + 7) // 8:
        raise ValueError(f"{len(packed)} bytes of bits do not fit {count}")
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=count).astype(bool)
