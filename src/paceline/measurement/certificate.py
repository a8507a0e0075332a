"""Decides from the reports of a run if its updates were shared as its scheme claims."""

from collections.abc import Sequence
from typing import NamedTuple

from paceline.engine.reports import ServerReport, WorkerReport


class Certificate(NamedTuple):
    """Verdict on a run, in words for its record. A run counts as failed unless `earned` is True."""

    words: str
    earned: bool = True


_UNEQUAL = Certificate("not synchronous: workers ended with other weights", False)


def certificate(
    claim: str,
    num_workers: int,
    workers: Sequence[WorkerReport],
    servers: Sequence[ServerReport],
) -> Certificate:
    """Compare the claim of a scheme for `num_workers` workers with the reports of a run.

    `claim` is one of paceline.scheme.rule.Claim. `workers` are the reports of the workers that
    finished.
    """
    if num_workers == 1:
        return Certificate("one worker")
    if claim == "apart":
        return Certificate("none: workers hold weights of their own")
    if claim == "synchronous":
        return _synchronous(workers, servers)
    if claim == "equal at the end":
        return Certificate("all ended equal") if _equal(workers) else _UNEQUAL
    if not any(staleness for server in servers for _, staleness in server.pushes):
        return Certificate(f"not {claim}: no push was stale", False)
    if claim == "asynchronous" and any(server.held for server in servers):
        return Certificate("not asynchronous: workers waited for another's step", False)
    return Certificate(f"{claim}: stale pushes seen")


def _synchronous(workers: Sequence[WorkerReport], servers: Sequence[ServerReport]) -> Certificate:
    for server in servers:
        stale = sum(staleness > 0 for _, staleness in server.pushes)
        if stale > server.dropped:
            return Certificate("not synchronous: stale pushes were applied", False)
    return Certificate("synchronous") if servers or _equal(workers) else _UNEQUAL


def _equal(workers: Sequence[WorkerReport]) -> bool:
    return len({worker.weights_digest for worker in workers}) == 1
