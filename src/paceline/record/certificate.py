"""Certificate of a run: a verdict on whether its workers shared updates as the scheme claims."""

from collections.abc import Sequence
from typing import NamedTuple

from paceline.clock.reports import ServerReport, WorkerReport
from paceline.scheme.audit import RunLog, ServedLog
from paceline.scheme.rule import AbstractScheme


class Certificate(NamedTuple):
    """Verdict on a run: `words` for its record, and whether the scheme's claim was `earned`.

    A run whose certificate is not earned counts as failed.
    """

    words: str
    earned: bool = True


_RULE = "by the rule"
_UNEQUAL = Certificate("not synchronous: workers ended with other weights", False)


def certificate(
    scheme: AbstractScheme,
    num_workers: int,
    workers: Sequence[WorkerReport],
    servers: Sequence[ServerReport],
    *,
    whole: bool,
) -> Certificate:
    """Return a verdict on whether a run with `num_workers` workers kept to the scheme's claim.

    `workers`: reports of the workers that finished. `whole`: True if all workers finished in one
    uninterrupted run, so that the log of the run can be audited.
    """
    if num_workers == 1:
        return Certificate("one worker")
    claim = scheme.claim(num_workers)
    broken = scheme.broken(run_log(scheme, num_workers, workers, servers)) if whole else ""
    if broken:
        return Certificate(f"not {_RULE if claim == 'apart' else claim}: {broken}", False)
    if claim == "apart":
        return Certificate("none: workers hold weights of their own")
    if claim == "synchronous":
        return _synchronous(workers, servers)
    if claim == "equal at the end":
        return Certificate("all ended equal") if _equal(workers) else _UNEQUAL
    if not any(staleness for server in servers for _, staleness in server.applied):
        return Certificate(f"not {claim}: no push was stale", False)
    if claim == "asynchronous" and any(server.held for server in servers):
        return Certificate("not asynchronous: workers waited for another's step", False)
    return Certificate(f"{claim}: stale pushes seen")


def _synchronous(workers: Sequence[WorkerReport], servers: Sequence[ServerReport]) -> Certificate:
    for server in servers:
        if any(staleness for _, staleness in server.applied):
            return Certificate("not synchronous: stale pushes were applied", False)
    return Certificate("synchronous") if servers or _equal(workers) else _UNEQUAL


def run_log(
    scheme: AbstractScheme,
    num_workers: int,
    workers: Sequence[WorkerReport],
    servers: Sequence[ServerReport],
) -> RunLog:
    """Return the log by which a scheme audits a run, from the reports of workers and servers."""
    pushing = range(0, num_workers, scheme.group_size)
    return RunLog(
        {worker.worker: worker.steps for worker in workers},
        [
            ServedLog(server.pushes, server.dropped_steps, pushing, server.server == 0)
            for server in servers
        ],
        {worker.worker: worker.averages for worker in workers},
    )


def _equal(workers: Sequence[WorkerReport]) -> bool:
    return len({worker.weights_digest for worker in workers}) == 1
