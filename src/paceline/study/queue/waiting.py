"""Wait for points in the queue. Their records are the truth; the queue tells which to wait for."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping

from paceline.study.queue.jobs import living_jobs

_ROUND_SECONDS = 2
_USUAL = ("None", "Priority", "Resources", "BeginTime", "JobArrayTaskLimit")  # reasons to wait
_GRACE_SECONDS = 5  # for the record of a job that has left the queue to be seen here


def ended(study: str, jobs: Mapping[str, str], has_ended: Callable[[str], bool]) -> Iterator[str]:
    """Yield the key of each point when it has ended, or its job has left the queue without.

    What keeps a job waiting is printed, if it may be for ever.

    `jobs`: by key. `has_ended(key)`: whether there is a new record. A Slurm that does not answer
    for a while changes nothing.
    """
    left, gone, told = dict(jobs), dict[str, float](), set[str](_USUAL)
    while left:
        living = living_jobs(study)
        for job, reason in (living or {}).items():
            if reason not in told:
                told.add(reason)
                print(f"paceline: job {job} waits: {reason}", file=sys.stderr, flush=True)
        now = time.monotonic()
        for key, job in list(left.items()):
            if living is not None and job not in living:
                gone.setdefault(key, now)
            else:
                gone.pop(key, None)
            if has_ended(key) or now - gone.get(key, now) > _GRACE_SECONDS:
                del left[key]
                yield key
        if left:
            time.sleep(_ROUND_SECONDS)
