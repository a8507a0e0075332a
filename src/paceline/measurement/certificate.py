"""Whether a run was what its scheme calls itself, by what was seen in it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from paceline.scheme.rule import Claim

Seen = dict[str, Any]


class Certificate(NamedTuple):
    """`words`: for records. A run that has not `earned` its name has failed."""

    words: str
    earned: bool = True


_UNEQUAL = Certificate("not synchronous: workers ended with other weights", False)


def certificate(
    claim: Claim, workers: int, found: Sequence[Seen], servers: Sequence[Seen]
) -> Certificate:
    """From two workers on. `found`: what the workers saw that came to their end."""
    if workers == 1:
        return Certificate("one worker")
    if claim == "apart":
        return Certificate("none: workers hold weights of their own")
    if claim == "synchronous":
        return _synchronous(found, servers)
    if claim == "equal at the end":
        return Certificate("all ended equal") if _equal(found) else _UNEQUAL
    if not any(staleness for server in servers for _, staleness in server["pushes"]):
        return Certificate(f"not {claim}: no push was stale", False)
    if claim == "asynchronous" and any(server["held"] for server in servers):
        return Certificate("not asynchronous: workers waited for another's step", False)
    return Certificate(f"{claim}: stale pushes seen")


def _synchronous(found: Sequence[Seen], servers: Sequence[Seen]) -> Certificate:
    for server in servers:
        stale = sum(staleness > 0 for _, staleness in server["pushes"])
        if stale > server["dropped"]:
            return Certificate("not synchronous: stale pushes were applied", False)
    return Certificate("synchronous") if servers or _equal(found) else _UNEQUAL


def _equal(found: Sequence[Seen]) -> bool:
    return len({seen["weights_digest"] for seen in found}) == 1
