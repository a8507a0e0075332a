"""Settings `sweep.*`: how many points of a study run at a time, and which points run again."""

from collections.abc import Mapping
from typing import Any, Literal

from paceline.settings import Whole, settings


@settings("sweep")
class Sweep:
    """Settings of a sweep.

    `jobs`: number of points that run at a time; PointConfig turns `auto` into a number. `rerun`:
    the points that run although they have a record: failed ones, those made by a different version
    of the code or of data that have changed since (stale), or all.
    """

    jobs: Whole
    rerun: Literal["none", "failed", "stale", "all"]

    def needs_run(self, result: Mapping[str, Any] | None, digest: str, of_other_data: bool) -> bool:
        """Return True if a point must run.

        `result`: the point's result.json; None if it has no record. `digest`: `source_digest()` of
        the present source. `of_other_data`: True if the record's data have changed since. A point
        that diverged does not count as failed: it would diverge again.
        """
        if result is None or self.rerun == "all" or failed_by_environment(result):
            return True
        if self.rerun == "failed":
            return result["status"] == "failed"
        stale = of_other_data or result["source_digest"] != digest
        return self.rerun == "stale" and stale


def failed_by_environment(result: Mapping[str, Any]) -> bool:
    """Return whether a point failed because of the machine or the network.

    Another try of such a point may succeed.
    """
    return result["status"] == "failed" and bool(result.get("environment"))
