"""Which points are done again: `sweep.rerun`."""

from collections.abc import Mapping
from typing import Any

from paceline.errors import SettingError

CHOICES = ("none", "failed", "stale", "all")


def needs_run(result: Mapping[str, Any] | None, rerun: str, digest: str) -> bool:
    """Whether a point must run, given `result.json` of its record (None: there is no record).

    `digest`: of today's source. A point that diverged has finished: it would diverge again.
    """
    if rerun not in CHOICES:
        raise SettingError("sweep.rerun", f"{rerun!r}; there are: {', '.join(CHOICES)}")
    if result is None or rerun == "all":
        return True
    if rerun == "failed":
        return result["status"] == "failed"
    return rerun == "stale" and result["source_digest"] != digest
