"""Name in words of the weights that a snapshot contains."""

from paceline.scheme.accounting import Accounting


def evaluated_weights(accounting: Accounting, *, averaged: bool) -> str:
    """Name the weights and the BatchNorm statistics that a snapshot of a run contains.

    `averaged`: True if it has their moving average, too. BatchNorm statistics are never averaged:
    they are those of the workers when the snapshot is taken.
    """
    weights = _weights(accounting)
    return f"{weights}; beside them their moving average, by samples" if averaged else weights


def _weights(accounting: Accounting) -> str:
    scheme = accounting.scheme
    if scheme.servers:
        weights = "the servers' center" if accounting.own_weights else "weights at the servers"
        return f"{weights}; BatchNorm statistics: mean over workers' latest"
    if scheme.claim(1) == "synchronous":
        return "weights shared by all workers; BatchNorm statistics: mean over workers"
    return "mean over workers' weights; BatchNorm statistics: mean over workers"
