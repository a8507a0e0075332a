"""Settings `sweep.*`: how many points of a study run at a time, and which run again."""

from collections.abc import Mapping
from typing import Any, Literal

from paceline.settings import Whole, settings


@settings("sweep")
class Sweep:
    """Settings of a sweep.

    `jobs`: number of points that run at a time. `rerun`: which points with a record run again.
    """

    jobs: Whole
    rerun: Literal["none", "failed", "stale", "all"]

    @property
    def takes_over(self) -> bool:
        """True if a record of another study can stand for a run."""
        return self.rerun != "all"

    def needs_run(self, result: Mapping[str, Any] | None, digest: str) -> bool:
        """Return True if a point must run.

        `result`: its result.json, None without a record. `digest`: `source_digest()` of the present
        source. A point that diverged has finished: it would diverge again.
        """
        if result is None or self.rerun == "all" or failed_by_environment(result):
            return True
        if self.rerun == "failed":
            return result["status"] == "failed"
        return self.rerun == "stale" and result["source_digest"] != digest


def failed_by_environment(result: Mapping[str, Any]) -> bool:
    """Return whether the machine or the network made a point fail: another try may succeed."""
    return result["status"] == "failed" and bool(result.get("environment"))
