"""Writes what `verify` measured beside what was predicted and counted."""

from collections.abc import Sequence
from statistics import median

from paceline.planning.columns import aligned, megabytes, milliseconds
from paceline.planning.measured_peak import Peak
from paceline.planning.plan import Planned
from paceline.planning.verify import VerifiedPlan, differences, rank


def peak_table(planned: Sequence[Planned], peaks: Sequence[Peak]) -> str:
    """Return the counted memory of steps as they are beside the measured, by batch size."""
    rows = [["batch_size", "MB counted", "allocated", "error", "resident"]]
    for each, peak in zip(planned, peaks, strict=True):
        counted = each.measured.memory.peak
        error = f"{100 * (counted / peak.allocated - 1):+.1f} %"
        numbers = [megabytes(counted), megabytes(peak.allocated), error, _resident(peak)]
        rows.append([f"{each.batch_size:,}", *numbers])
    return f"{aligned(rows)}\nallocated: by torch; resident: with what malloc and libraries keep"


def verified_table(verified: Sequence[VerifiedPlan]) -> str:
    """Return measured beside predicted, and the place of the choice, which is first."""
    head = ["plan", "predicted", "measured", "beside the choice"]
    rows = [[*head, "MB counted", "allocated", "resident"]]
    compared = differences(verified)
    for each, apart in zip(verified, compared, strict=True):
        peak = each.peak
        rows.append(
            [
                str(each.plan),
                milliseconds(each.plan.seconds),
                milliseconds(median(each.seconds)),
                str(apart) if each is not verified[0] else "-",
                megabytes(each.plan.fullest.bytes),
                megabytes(peak.allocated) if peak else "-",
                _resident(peak) if peak else "-",
            ]
        )
    least = min(median(each.seconds) for each in verified)
    ratio = median(verified[0].seconds) / least
    lines = [
        "beside the choice: median over rounds, and 95 % by a sign test",
        f"the choice is number {rank(verified)} of {len(verified)} measured, "
        f"{ratio:.3f} times the fastest; {sum(each.faster for each in compared)} are faster beyond "
        f"the interval; n={len(verified[0].seconds)} rounds, none of them those it was chosen by",
    ]
    return "\n".join([aligned(rows), *lines])


def _resident(peak: Peak) -> str:
    return "-" if peak.resident is None else megabytes(peak.resident)
