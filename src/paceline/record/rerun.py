"""How the points of a study are run, by `sweep.*`."""

from collections.abc import Mapping
from typing import Any, Literal

from paceline.settings import Whole, settings


@settings("sweep")
class Sweep:
    """`jobs`: points at a time. `rerun`: which points with a record are run again."""

    jobs: Whole
    rerun: Literal["none", "failed", "stale", "all"]

    def needs_run(self, result: Mapping[str, Any] | None, digest: str) -> bool:
        """Tell whether a point must run. `result`: its result.json, None without a record.

        `digest`: of today's source. A point that diverged has finished: it would diverge again.
        """
        if result is None or self.rerun == "all":
            return True
        if self.rerun == "failed":
            return result["status"] == "failed"
        return self.rerun == "stale" and result["source_digest"] != digest
