"""Digest by which workers' weights are compared."""

import hashlib
from collections.abc import Iterable

from torch import Tensor


def weights_digest(weights: Iterable[Tensor]) -> str:
    """Return the SHA-256 of all weights in order, as single-precision numbers."""
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()
