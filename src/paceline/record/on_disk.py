"""Waits until what was written is on the disk, and not in the memory of the machine alone."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
