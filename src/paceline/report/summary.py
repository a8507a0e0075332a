"""Sums up a study: effects of faults, agreement of clocks and predictions, schemes to use."""

import math
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from paceline.analysis.clocks import POINTS
from paceline.analysis.comparison import FAULT, REFERENCE
from paceline.analysis.configuration import groups, matching
from paceline.analysis.configuration_table import known
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import EXCHANGE_NEAR, NEAR, NOISE, SIZE
from paceline.grouped import grouped
from paceline.report.accuracy_at_scale import accuracy_at_scale
from paceline.report.answer import NONE, UNKNOWN, Choice, choices, throughput
from paceline.report.findings import Situation, StudyFindings
from paceline.report.number_format import plural
from paceline.report.words import (
    configuration_words,
    say,
    scheme_name,
    scheme_words,
    value_words,
    values_words,
)

MOST = 8  # situations with a sentence each; more are counted by what to use
_MOST_NAMED = 3  # configurations that a sentence names
_SIDES = {"right": "right", "wrong": "wrong", "close": "too close"}  # verdicts of comparisons
_MANY = 6  # settings with a sentence each; more share one per kind


def asks_of_time(findings: StudyFindings) -> bool:
    """Return True if the study is about clocks or predictions rather than about schemes."""
    return bool([*agreement(findings), *predictions(findings)])


def summary_sentences(findings: StudyFindings, half: str | None = None) -> list[str]:
    """Return sentences that sum up the study as a whole; none if each situation has a sentence.

    `half`: as at `predictions`.
    """
    if findings.tables.finished.empty:
        return [say("nothing_finished")]
    if texts := [*fault_sentences(findings), *agreement(findings), *predictions(findings, half)]:
        return texts
    found = choices(findings)
    if len(found) <= MOST:
        return [*throughput(findings), *accuracy_at_scale(findings)]
    used = Counter("" if each.use in (NONE, UNKNOWN) else each.use for _, each in found)
    return [say("uses", situations=len(found), uses=used.most_common())]


def use_counts(findings: StudyFindings) -> dict[str, str]:
    """Say how often each scheme is to be used, by words for the number of workers of situations.

    Empty for MOST or fewer situations.
    """
    found = choices(findings)
    if len(found) <= MOST or asks_of_time(findings):
        return {}
    return {
        f"{size}, {plural(len(own), 'situation')}": _uses(own)
        for size, own in grouped(found, lambda each: each[0].size_words).items()
    }


def _uses(found: Sequence[tuple[Situation, Choice]]) -> str:
    """Say in how many situations each scheme is to be used, and in how many without a tie."""
    parts = []
    for use, number in Counter(chosen.use for _, chosen in found).most_common():
        own = [(each, chosen) for each, chosen in found if chosen.use == use]
        others = [each for each, chosen in found if chosen.use != use]
        first = sum(chosen.tied.empty for _, chosen in own)
        only = _only([each for each, _ in own], others)
        numbers = {"number": number, "first": first, "is_scheme": own[0][1].is_scheme}
        parts.append(say("use", numbers, use=use, only=only))
    return "; ".join(parts)


def _only(own: Sequence[Situation], others: Sequence[Situation]) -> str:
    """Name a setting whose value all `own` situations share, and no other situation has; or ""."""
    for name, value in own[0].values.items() if others else ():
        values = {str(each.values[name]) for each in own}
        if len(values) == 1 and values.isdisjoint(str(each.values[name]) for each in others):
            return value_words(name, value)
    return ""


def fault_sentences(findings: StudyFindings) -> list[str]:
    """Return a sentence for each injected fault; none if the study has no fault."""
    table = findings.known("fault_seconds_ratio_n")
    return [_fault(each[FAULT], rows) for each, rows in groups(table, [FAULT])]


def _fault(fault: str, rows: Frame) -> str:
    """Say which schemes finish in spite of a fault.

    The ratio of seconds to a run without the fault is given if it differs significantly from 1.
    """
    low, high = rows["fault_seconds_ratio_low"], rows["fault_seconds_ratio_high"]
    rows = rows.assign(differs=(low > 1) | (high < 1))
    all_continue, all_end = rows["n_finished"] == rows["n"], rows["n_finished"] == 0
    unharmed, harmed, ended = rows[all_continue], rows[~all_continue & ~all_end], rows[all_end]
    longest = ended["fault_seconds_to_end"].max()
    return say(
        "fault",
        fault=say(f"fault_{fault}"),
        unharmed=[say("fault_unharmed", r, scheme=scheme_words(r)) for _, r in unharmed.iterrows()],
        harmed=[say("fault_harmed", r, scheme=scheme_words(r)) for _, r in harmed.iterrows()],
        ended=[scheme_words(row) for _, row in ended.iterrows()],
        # rounded up to the hundredths that are shown, so that no number is above its bound
        seconds=None if pd.isna(longest) else math.ceil(100 * longest) / 100,
    )


def agreement(findings: StudyFindings) -> list[str]:
    """Return two sentences for each kind of runs that the virtual clock is compared with.

    The first is on speed and staleness, the second on accuracy.
    """
    table = findings.concluded["clock_agreement"]
    texts = []
    for group, rows in groups(table, ["against"]):
        speeds, staleness, top1 = (
            _agreeing(findings, matching(rows, {"what": what}), phrase)
            for what, phrase in (
                ("images_per_second", "twin_value"),
                ("staleness_mean", "twin_value"),
                ("test_top1", "twin_interval"),
            )
        )
        texts += [
            say("clocks_agree", against=group["against"], speeds=speeds, staleness=staleness),
            say("accuracies_agree", top1, against=group["against"], points=f"{100 * POINTS:g}"),
        ]
    return texts


def _agreeing(findings: StudyFindings, rows: Frame, phrase: str) -> Row:
    """Count rows by verdict; name those within the limit, those outside, and the worst within."""
    words = ("within", "outside", "unknown")
    inside, outside, unknown = (matching(rows, {"verdict": word}) for word in words)
    return {
        "inside": len(inside),
        "known": len(inside) + len(outside),
        "unknown": len(unknown),
        "within": _named(findings, inside, phrase),
        "outside": _named(findings, outside, phrase),
        "closest": _named(findings, inside[:1], phrase),
    }


def _named(findings: StudyFindings, rows: Frame, phrase: str) -> list[str]:
    """Return a phrase for each of the first rows, and the number of the remaining rows."""
    names, rest = ["workers", *findings.varying], len(rows) - _MOST_NAMED
    texts = [
        say(phrase, row, name=configuration_words(row, names))
        for _, row in rows[:_MOST_NAMED].iterrows()
    ]
    return [*texts, f"{rest} more"] if rest > 0 else texts


def predictions(findings: StudyFindings, half: str | None = None) -> list[str]:
    """Return sentences on how well rates, comparisons, exchange and staleness were predicted.

    Rates have a sentence per kind and setting, or per kind if there are more than _MANY of these.
    If the study is divided into halves, validation comes before development; with `half`, there is
    only this one.
    """
    rates, exchanged = findings.known("rate_n"), findings.known("exchange_n")
    compared, texts = findings.concluded["predicted_comparisons"], list[str]()
    judged = rates[rates["rate_verdict"] != "calibrated"] if len(rates) else rates
    halves = sorted(judged["rate_half"].unique(), reverse=True) if len(judged) else ()
    for each in (own for own in halves if half is None or own in (half, "")):
        of_half = _of_half(
            findings,
            matching(judged, {"rate_half": each}),
            matching(compared, {"half": each}),
            matching(exchanged, {"exchange_half": each}) if len(exchanged) else exchanged,
        )
        texts += [say("half", half=each, text=text) if each else text for text in of_half]
    return texts


def _of_half(findings: StudyFindings, rates: Frame, compared: Frame, exchanged: Frame) -> list[str]:
    settings = groups(rates, ["kind", *findings.varying])
    if len(settings) > _MANY:
        settings = groups(rates, ["kind"])
    texts = [_rates_near(about, rows) for about, rows in settings]
    ratios = matching(compared, {"kind": "paced", "against": REFERENCE})
    pushing = known(exchanged, "exchange_staleness_p")
    if len(compared):
        texts.append(_faster(compared))
    if len(ratios):
        near = (ratios["error"].abs() <= NEAR["paced"]).map({True: "near", False: "far"})
        texts.append(_near("ratios_near", ratios.assign(verdict=near), NEAR["paced"]))
    if len(exchanged):
        texts.append(_near("exchange_near", exchanged, EXCHANGE_NEAR, "exchange_"))
    return [*texts, _staleness(pushing)] if len(pushing) else texts


def _rates_near(about: Row, rows: Frame) -> str:
    kind = about["kind"]
    named = values_words(about, [axis for axis in about if axis != "kind"])
    worst = configuration_words(rows.loc[rows["rate_error"].abs().idxmax()], ["workers"])
    words = {"settings": named, "kind": kind, "worst": worst}
    return _near("rates_near", rows, NEAR[kind], "rate_", **words)


def _near(phrase: str, rows: Frame, limit: float, prefix: str = "", **more: str) -> str:
    """Return a sentence that says how many rows have the verdict near (an error within `limit`).

    It also gives the median and the worst error.
    """
    errors, near = rows[f"{prefix}error"], (rows[f"{prefix}verdict"] == "near").sum()
    worst = errors.loc[errors.abs().idxmax()]
    numbers = {"limit": limit, "reference": scheme_name(REFERENCE)}
    numbers["share"] = say("share", near=near, of=len(rows))
    numbers["errors"] = say("errors", median=errors.abs().median(), worst=worst)
    return say(phrase, numbers, **more)


def _faster(rows: Frame) -> str:
    numbers = {n: len(matching(rows, {"verdict": verdict})) for n, verdict in _SIDES.items()}
    reference = scheme_name(REFERENCE)
    return say("faster_predicted", numbers, of=len(rows), reference=reference, noise=NOISE)


def _staleness(rows: Frame) -> str:
    alike = int((rows["exchange_staleness_verdict"] != "apart").sum())
    far = rows["exchange_staleness_distance"]
    numbers = {"alike": alike, "of": len(rows), "size": SIZE}
    return say("staleness_predicted", numbers, median=far.median(), most=far.max())
