"""Sums up a study of time: agreement of clocks, and of predictions with what was observed."""

from paceline.analysis.clocks import POINTS
from paceline.analysis.comparison import REFERENCE
from paceline.analysis.configuration import groups, matching
from paceline.analysis.configuration_table import known
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import EXCHANGE_NEAR, NEAR, NOISE, SIZE
from paceline.report.findings import StudyFindings
from paceline.report.words import configuration_words, say, scheme_name, values_words

_MOST_NAMED = 3  # configurations that a sentence names
_SIDES = {"right": "right", "wrong": "wrong", "close": "too close"}  # verdicts of comparisons
_MANY = 6  # settings with a sentence each; more share one per kind


def asks_of_time(findings: StudyFindings) -> bool:
    """Return True if the study is about clocks or predictions rather than about schemes."""
    return bool([*agreement(findings), *predictions(findings)])


def summary_sentences(findings: StudyFindings) -> list[str]:
    """Return sentences that sum up a study of time, or say that no point has finished."""
    if findings.tables.finished.empty:
        return [say("nothing_finished")]
    return [*agreement(findings), *predictions(findings)]


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


def predictions(findings: StudyFindings) -> list[str]:
    """Return sentences on how well rates, comparisons, exchange and staleness were predicted.

    Rates have a sentence per kind and setting, or per kind if there are more than _MANY of these.
    If the study is divided into halves, validation comes before development.
    """
    rates, exchanged = findings.known("rate_n"), findings.known("exchange_n")
    compared, texts = findings.concluded["predicted_comparisons"], list[str]()
    judged = rates[rates["rate_verdict"] != "calibrated"] if len(rates) else rates
    halves = sorted(judged["rate_half"].unique(), reverse=True) if len(judged) else ()
    for each in halves:
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
