"""Judges the claims of papers. Only this file has the words of verdicts.

A verdict follows from the interval of a test, from the range that the paper claims, and from what
limits the test. The best verdict of a prediction is that it is consistent with the paper.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from paceline.analysis.cautions import LATE
from paceline.analysis.claim_tests import (
    ACCURACIES,
    FEWEST,
    Observed,
    Result,
    evaluate,
    observed,
    power,
    predictions,
    table_of,
    time_of,
)
from paceline.analysis.claims import NOT_JUDGED, TESTS, Claim, Limit, Paper, Published, read_papers
from paceline.analysis.frames import Row
from paceline.analysis.statistics.means import LEVEL, Array, Estimate
from paceline.analysis.statistics.multiple_comparisons import holm
from paceline.record.numbers import NUMBERS

REPLICATED = "replicated"
EXCEEDS = "exceeds"
DIRECTION = "direction only"
NOT_REPLICATED = "not replicated"
UNDECIDED = "undecided"
CONSISTENT = "consistent"
INCONSISTENT = "inconsistent"
CALIBRATED = "calibrated"
UNJUDGED = "not judged"
UNTESTABLE = "not testable here"
NOT_RUN = "not run yet"
OPEN = "open"
TONES = {REPLICATED: "good", EXCEEDS: "good", CONSISTENT: "fits", DIRECTION: "partly"}  # colours
TONES |= {NOT_REPLICATED: "bad", INCONSISTENT: "bad"}
MEANINGS = {  # in the order of the page
    REPLICATED: "the whole interval lies in what was claimed",
    EXCEEDS: "the whole interval lies beyond what was claimed, on the better side",
    DIRECTION: "the sign is right; the size is not, or it or its settings were not published",
    NOT_REPLICATED: "the interval excludes what was claimed, or its sign",
    UNDECIDED: "too few runs, too wide an interval, missing runs, or a reason that is given",
    CONSISTENT: "a prediction whose interval contains the published number; no run",
    INCONSISTENT: "a prediction whose interval excludes the published number; no run",
    CALIBRATED: "the published number is an input of the prediction, so that it is no test",
    UNJUDGED: "the number is from memory, or a setting of its prediction is assumed, or it is no "
    "claim of the paper, or a test of the code",
    UNTESTABLE: "the reason is given",
    NOT_RUN: "the command and its cost are given",
}
DECIDED = (REPLICATED, EXCEEDS, DIRECTION, NOT_REPLICATED)  # by runs
JUDGED = (*DECIDED, UNDECIDED)
_CAPS: dict[Limit, str] = {
    "no size is published": DIRECTION,
    "settings are not stated": DIRECTION,
    "cores are shared": UNDECIDED,
    "our scale": UNDECIDED,
}
_CAPS |= dict.fromkeys(NOT_JUDGED, UNJUDGED)

_UNITS = {"ratio": "times", "slope": "log-log slope", "law_of_growth": "largest relative residual"}
_UNITS |= dict.fromkeys(("count", "exact"), "largest relative difference")
_ASSUMED = "settings assumed"  # as the table of predictions says it
_NO_EFFECT = {"ratio": 1.0, "slope": 0.0, "greater": 0.0}


def claimed_range(claim: Claim, size: float | None) -> tuple[float, float]:
    """Return the range of a test's number in which the claim holds; `size`: the claimed ratio."""
    if claim.claimed is not None:
        low, high = claim.claimed
        return (-math.inf if low is None else low, math.inf if high is None else high)
    margin = claim.margin or 0
    if claim.test == "ratio" and size is not None:
        return size * (1 - margin), size * (1 + margin)
    if claim.test == "equal":
        return -margin, margin
    if claim.test in ("count", "exact", "law_of_growth"):
        return 0.0, margin
    return margin, math.inf


def judge(claim: Claim, result: Result, low: float, high: float, p: Array | float) -> Array:
    """Return the verdict [...] on the interval of a test, without what limits it.

    `low` and `high`: what is claimed. `p`: p-value, adjusted for the tests of a page.
    """
    found, narrow = result.estimate, result.narrow
    if claim.test == "differ":  # to either side
        found = narrow = _size(found)
    none = _NO_EFFECT.get(claim.test, math.nan)
    inside = (narrow.low >= low) & (narrow.high <= high) & (np.asarray(p) <= 1 - LEVEL)
    below, above = np.asarray(found.high < low), np.asarray(found.low > high)
    up, down = low >= none, high <= none  # the side of no effect on which the claim is
    right = (up & (found.low > none)) | (down & (found.high < none))
    of_size = none not in (low, high) or math.isfinite(low + high)  # more than a sign is claimed
    better = {"equal": above & (claim.of in ACCURACIES), "ratio": (up & above) | (down & below)}
    cases = [inside, better.get(claim.test, False), right & of_size, below | above]
    words = [REPLICATED, EXCEEDS, DIRECTION, NOT_REPLICATED]
    return np.select(cases, words, UNDECIDED)


def _size(found: Estimate) -> Estimate:
    """Return the size of a difference, whatever its sign."""
    least = np.maximum(np.maximum(found.low, -found.high), 0)
    return Estimate(np.abs(found.value), least, np.maximum(-found.low, found.high))


@dataclass(frozen=True)
class _Case:
    """A claim, and what its verdict follows from.

    `rows`: its published numbers. `size`: the ratio that it claims. `predicted`: predictions of its
    numbers. `tested`: observations, and the result of its test on them; None without runs. `p`: the
    p-value of the test, adjusted for all tests of the paper.
    """

    paper: Paper
    claim: Claim
    rows: Sequence[Mapping[str, str]]
    size: float | None
    predicted: Sequence[Row]
    tested: tuple[Observed, Result] | None
    p: float = 0.0


def ledger(root: Path, judged: Path | None = None) -> list[Row]:
    """Return a row for each claim of claims/*.yaml, in the order of the files.

    `judged`: project whose reports have the runs that test them; by default `root`.
    """
    judged = judged or root
    published, known = Published(root), predictions(judged)
    table = cache(partial(table_of, root=judged))
    rows: list[Row] = []
    for paper in read_papers(root):
        cases = list[_Case]()
        for claim in paper.claims:
            seen = observed(claim, root, published, table)
            own = claim.published if claim.is_predicted else ()
            case = _Case(
                paper=paper,
                claim=claim,
                rows=[published.row(name, claim.id) for name in claim.published],
                size=published.size(claim),
                predicted=[known[name] for name in own if name in known],
                tested=None if seen is None else (seen, evaluate(claim, seen)),
            )
            cases.append(case)
        tested = {n: case.tested[1] for n, case in enumerate(cases) if case.tested}
        p = {n: float(found.p) for n, found in tested.items() if found.has_p}
        for n, adjusted in zip(p, holm(np.array([*p.values()])), strict=True):
            cases[n] = replace(cases[n], p=adjusted)
        rows += [_row(case) for case in cases]
    return rows


def _row(case: _Case) -> Row:
    paper, claim = case.paper, case.claim
    numbers = [published_number(row) for row in case.rows]
    registered = claim.registered or paper.registered
    is_later = bool(case.predicted)  # a prediction has no date; without data, no margin is later
    if case.tested:  # unless every run is known to have started after the commit of the margin
        started = case.tested[0].started
        is_later = not started or time_of(started) <= registered
    row: Row = {
        "paper": paper.id,
        "doi": paper.doi,
        "claim": claim.id,
        "says": claim.says.format(*numbers),
        "in_the_way": claim.in_the_way,
        "kind": claim.kind or "",
        "test": claim.test,
        "theirs": _theirs(case) or "; ".join(numbers),
        "ours": "",
        "as_run": "",
        "study": claim.study,
        "command": claim.repeat,
        "minutes": claim.minutes,
        "registered": registered.isoformat(),
        "margin_later": is_later,
    }
    row |= _numbers(case, *case.tested) if case.tested else _of_predictions(case.predicted)
    row["verdict"], row["why"] = _verdict(case)
    return row


def _theirs(case: _Case) -> str:
    """Return what the paper's numbers give for a ratio or for a law of growth; "" for others."""
    claim, rows = case.claim, case.rows
    if case.size is not None:
        return f"{_number(case.size)} times"
    if claim.test not in ("slope", "law_of_growth") or len(rows) < 2:
        return ""
    axis = "gpus" if claim.along == "workers" else claim.along
    power = -1 if claim.of == "seconds" and all(row["unit"] == "1/s" for row in rows) else 1
    values = np.array([[float(row["value"]) ** power] for row in rows])
    found = evaluate(claim, Observed(values, np.array([float(row[axis]) for row in rows])))
    return f"{_number(float(found.estimate.value))} {_UNITS[claim.test]}"


def _numbers(case: _Case, seen: Observed, found: Result) -> Row:
    claim, size = case.claim, case.size
    value, low, high = found.estimate.at()
    start, end = claimed_range(claim, size)
    true = size if claim.test == "ratio" and size is not None else (start + end) / 2
    chance = smallest = math.nan  # under a limit, no test finds a claim
    if not claim.limit:
        chance, smallest = power(claim, found, start, end, true, bool(seen.luck))
    scale, unit = 1, _UNITS.get(claim.test, "")
    if claim.test in ("equal", "differ", "greater") and claim.of in ACCURACIES:
        scale, unit = 100, "points"
    elif claim.test == "greater":
        unit = next((each.unit for each in NUMBERS if each.name == claim.of), "")
    ours, as_run = _interval(value, low, high, found.n, scale, unit), ""
    if seen.luck and ours:
        ran = evaluate(claim, replace(seen, luck=()))
        as_run = _interval(*ran.estimate.at(), ran.n, scale, unit)
        ours = f"{as_run}, as run; {ours}, at best settings"
    return {
        "ours": ours,
        "as_run": as_run,
        "value": value,
        "low": low,
        "high": high,
        "n": found.n,
        "claimed_low": start,
        "claimed_high": end,
        "ours_over_theirs": value / size if size and claim.test == "ratio" else None,
        "p": case.p if found.has_p else None,
        "power": chance,
        "smallest": smallest,
        "along": seen.along,
        "means": pd.DataFrame(seen.values).mean(axis=1).tolist(),  # of those that are known
        "smallest_text": f"{_number(scale * smallest)} {unit}".strip(),
        "lost": seen.lost,
        "diverged": seen.diverged,
        "commit": seen.commit,
        "started": seen.started,
    }


def _of_predictions(predicted: Sequence[Row]) -> Row:
    """Return the numbers of the prediction that is furthest from its published number."""
    if not predicted:
        return {}
    row = max(predicted, key=lambda each: abs(each["error"]))
    ends = {name: row[name] / row["published"] for name in ("low", "high")}
    texts = (
        _interval(each["predicted"], each["low"], each["high"], None, 1, _unit(each))
        for each in predicted
    )
    return {"ours": "; ".join(texts), "value": 1 + row["error"], **ends}


def _verdict(case: _Case) -> tuple[str, str]:
    """Return the verdict and its reason; limits come before numbers."""
    claim, predicted = case.claim, case.predicted
    cap = _CAPS[claim.limit] if claim.limit else ""
    if claim.untestable:
        return UNTESTABLE, claim.untestable
    if claim.study != TESTS and not case.tested and not predicted:
        minutes = sum(each.minutes for each in case.paper.claims if each.repeat == claim.repeat)
        return NOT_RUN, f"it costs {minutes:g} min of two cores"
    if cap == UNJUDGED or any(row["verified"] != "yes" for row in case.rows):
        return UNJUDGED, claim.because or "the published number is from memory"
    if claim.is_predicted:
        return _of_prediction(claim, predicted)
    assert case.tested is not None
    seen, found = case.tested
    if seen.lost:
        late = f"took longer than was set for more than {100 * LATE:g} % of their steps"
        return UNDECIDED, f"runs that failed, are missing, missed the target or {late}: {seen.lost}"
    if found.n is not None and found.n < FEWEST:
        return UNDECIDED, f"runs a side: {found.n}; a test needs {FEWEST}"
    if seen.unknown:
        return UNDECIDED, f"a search found no best trial inside its range: {seen.unknown}"
    ends = claimed_range(claim, case.size)
    word = str(judge(claim, found, *ends, case.p))
    if cap == UNDECIDED or (cap == DIRECTION and word in (REPLICATED, EXCEEDS)):
        told = f"; by its test alone: {word}" if word in (DIRECTION, NOT_REPLICATED) else ""
        return cap, claim.because + told
    if word != UNDECIDED:
        return word, ""
    if not seen.luck:
        return word, "its test excludes neither what was claimed nor the contrary"
    ran = judge(claim, evaluate(claim, replace(seen, luck=())), *ends, case.p)
    return word, f"searches of few trials may have missed better settings; as run: {ran}"


def _of_prediction(claim: Claim, predicted: Sequence[Row]) -> tuple[str, str]:
    inputs = {each for row in predicted for each in str(row["inputs"]).split(" ")}
    if inputs & set(claim.published) or any(row["verdict"] == CALIBRATED for row in predicted):
        return CALIBRATED, "a published number of this claim is an input of its prediction"
    worst = max(abs(float(row["error"])) for row in predicted)
    if any(row["verdict"] == _ASSUMED for row in predicted):
        return UNJUDGED, f"{claim.because or _ASSUMED}; the prediction is {100 * worst:.0f} % off"
    reason = f"at most {100 * worst:.0f} % from the paper"
    reason = "; ".join(filter(None, [reason, claim.because]))
    if any(math.isnan(row["low"] + row["high"]) for row in predicted):
        return UNDECIDED, f"no interval; {reason}"
    if all(row["low"] <= row["published"] <= row["high"] for row in predicted):
        return CONSISTENT, f"inside of the prediction's interval; {reason}"
    return INCONSISTENT, f"outside of the prediction's interval; {reason}"


def _interval(value: float, low: float, high: float, n: int | None, scale: float, unit: str) -> str:
    if math.isnan(value):
        return ""
    found, start, end = (_number(scale * each) for each in (value, low, high))
    ends = "no interval" if math.isnan(low) else f"{start} to {end}"
    is_exact = n is None and start == end != "nan"
    text = f"{found} {unit}".strip() + ("" if is_exact else f" ({ends})")
    return text + (f", n = {n}" if n else "")


def published_number(row: Mapping[str, str]) -> str:
    """Return a published number with its unit, in words if it is a ratio."""
    return f"{row['value']} {_unit(row)}".strip()


def _unit(row: Mapping[str, str]) -> str:
    return "times" if row["unit"] == "x" else row["unit"]


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
