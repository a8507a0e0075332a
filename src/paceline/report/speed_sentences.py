"""Writes the sentences that a reader must know before believing measured throughput."""

from paceline.analysis.block_drift import MOST
from paceline.analysis.tables import Frame
from paceline.report.number_format import plural


def one_machine(row: Frame) -> str:
    """Say when and where images/s were measured."""
    minute = row["started"][:16].replace("T", " ")
    hours = int(row["value"])
    when = "one hour" if hours == 1 else f"{hours} hours of the clock"
    return (
        f"Measured images/s are those of {when} of one machine ({row['name']}): "
        f"{plural(row['points'], 'point')} within {row['minutes']:.0f} minutes from {minute} UTC. "
        "Their intervals hold what varied meanwhile, and nothing of another hour or machine."
    )


def dropped(row: Frame) -> str:
    """Say which blocks do not count."""
    return (
        f"{row['points']} of {plural(row['of'], 'block')} left out of all images/s, and so of "
        "ratios and speed-ups, because the two reference runs differ by more than "
        f"{100 * MOST:.0f} %, one is missing, or the block was interrupted: {row['value']}."
    )


def super_linear(row: Frame) -> str:
    """Say which speed-ups are too good."""
    return (
        f"Of {row['points']} of {plural(row['of'], 'configuration')} with several workers the "
        "speed-up is super-linear, so that the one worker was slow, or something else than "
        f"workers was added; do not plan with it: efficiency {row['value']}."
    )
