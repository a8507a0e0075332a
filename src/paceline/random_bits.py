"""Random numbers as a function of a counter, not of a generator's state.

The order of samples and their augmentation are therefore the same on any number of workers, and
under any version of torch or numpy. The hash is splitmix64 (Steele, Lea, Flood 2014).
"""

import hashlib
from functools import lru_cache
from statistics import NormalDist

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 16  # numbers that are drawn at a time, which costs little more than one


def random_bits(counters: np.ndarray, *key: int | str) -> np.ndarray:
    """Return 64 random bits for each counter: uint64, shape of `counters` (integers >= 0).

    `key` names the stream of numbers: another key, for example another seed, gives unrelated bits.
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    start = np.uint64(int.from_bytes(digest[:8], "little"))
    bits = counters.astype(np.uint64) * _GOLDEN + start
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def uniform(counter: int, *key: int | str) -> float:
    """Return a number inside (0, 1) for a counter (>= 0) of the stream that `key` names."""
    block, place = divmod(counter, _BLOCK)
    return _uniforms(block, *key)[place]


def normal(counter: int, *key: int | str) -> float:
    """Return a standard normal number for a counter (>= 0) of the stream that `key` names."""
    return NormalDist().inv_cdf(uniform(counter, *key))


@lru_cache(maxsize=2**15, typed=True)  # 30 MB at most; 1 and True name different streams
def _uniforms(block: int, *key: int | str) -> tuple[float, ...]:
    counters = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
    drawn = random_bits(counters, *key) >> np.uint64(12)
    return tuple(((drawn + 0.5) / 2**52).tolist())


def random_permutation(length: int, *key: int | str) -> np.ndarray:
    """Return the numbers 0 .. length-1, int64 [length], in an order that only `key` determines."""
    index_bits = np.uint64((1 << max(length - 1, 1).bit_length()) - 1)
    counters = np.arange(length, dtype=np.uint64)
    # One sort of (random high bits, index low bits): 5 times faster than argsort, and without ties.
    shuffled = np.sort((random_bits(counters, *key) & ~index_bits) | counters)
    return (shuffled & index_bits).astype(np.int64)
