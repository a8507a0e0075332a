"""The ledger: a verdict on each claim of papers/claims.yaml, by the committed tables.

Each claim is tested by itself at the level of its interval. Verdicts are not adjusted for the
number of claims.
"""

import math
from functools import cache, partial
from pathlib import Path

from paceline.analysis.claim_tests import ACCURACIES, Tested, read_study, tested
from paceline.analysis.claims import Claim, read_claims
from paceline.analysis.frames import Row

HOLDS = "holds"
FAILS = "does not hold"
OPEN = "open"
_REASONS = {
    HOLDS: "The whole interval lies in the claimed range.",
    FAILS: "The interval lies outside of the claimed range.",
    OPEN: "A part of the interval lies in the claimed range, and a part does not.",
}
_UNITS = {"ratio": "times", "predicted": "times", "slope": "(log-log slope)"}


def ledger(root: Path) -> list[Row]:
    """Return a row for each claim, in the order of papers/claims.yaml."""
    study = cache(partial(read_study, root=root))
    return [_row(claim, tested(claim, root, study)) for claim in read_claims(root)]


def judge(low: float, high: float, claimed: tuple[float | None, float | None]) -> str:
    """Return the verdict on the interval from `low` to `high`; an open end of a range is None."""
    start = -math.inf if claimed[0] is None else claimed[0]
    end = math.inf if claimed[1] is None else claimed[1]
    if start <= low and high <= end:
        return HOLDS
    return FAILS if high < start or low > end else OPEN


def _row(claim: Claim, result: Tested) -> Row:
    found = result.found
    verdict = judge(found.low, found.high, claim.claimed)
    reason = "It has no interval." if math.isnan(found.low) else _REASONS[verdict]
    if claim.statistic == "predicted":
        reason = reason.replace(" lies", " of a prediction lies")
    if claim.limit:
        told = "" if result.doubt or verdict == OPEN else f" (by its interval alone: {verdict})"
        verdict, reason = OPEN, claim.limit.removesuffix(".") + told + "."
    elif result.doubt:
        verdict, reason = OPEN, result.doubt
    is_points = claim.statistic in ("difference", "distance") and claim.of in ACCURACIES
    scale, unit = (100, "points") if is_points else (1, _UNITS.get(claim.statistic, ""))
    start, end = (None if each is None else scale * each for each in claim.claimed)
    return {
        "paper": claim.paper,
        "claim": claim.id,
        "verdict": verdict,
        "reason": reason,
        "value": _number(scale * found.mean),
        "low": _number(scale * found.low),
        "high": _number(scale * found.high),
        "unit": unit,
        "n": found.n or "",
        "claimed_low": "" if start is None else _number(start),
        "claimed_high": "" if end is None else _number(end),
        "after_runs": str(claim.after_runs).lower(),
        "kind": result.kind,
        "runs": claim.runs,
    }


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}"
