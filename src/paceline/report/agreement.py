"""Says how well modelled time agrees with real processes: of virtual runs, and of predictions."""

from collections.abc import Callable

from paceline.analysis.clocks import POINTS, WALL
from paceline.analysis.comparison import REFERENCE
from paceline.analysis.configuration import groups, matching
from paceline.analysis.configuration_table import known
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import EXCHANGE_NEAR, NEAR, NOISE, SIZE
from paceline.report.findings import StudyFindings
from paceline.report.phrases import say
from paceline.report.words import configuration_words, scheme_name, value_words

_MOST = 3  # configurations that a sentence names
_MANY = 6  # settings, above which they have one sentence together


def has_twins(findings: StudyFindings) -> bool:
    """Return True if the study has runs on both clocks."""
    kinds = set(findings.tables.runs["kind"])
    return "virtual" in kinds and bool(kinds.intersection(WALL))


def agreement(findings: StudyFindings) -> list[str]:
    """Return two sentences for each kind that the virtual clock is compared with."""
    if not has_twins(findings):
        return []
    table = findings.concluded["clock_agreement"]
    if not len(table):
        return [say("no_twins")]
    return [
        sentence(findings, rows, group["against"])
        for group, rows in groups(table, ["against"])
        for sentence in (_rates_agree, _accuracies_agree)
    ]


def _rates_agree(findings: StudyFindings, rows: Frame, against: object) -> str:
    speeds, stale = (matching(rows, {"what": w}) for w in ("images_per_second", "staleness_mean"))
    return say(
        "clocks_agree",
        against=against,
        speeds=_agreeing(findings, speeds),
        staleness=_agreeing(findings, stale),
        unpaired=_number(speeds, verdict="unknown"),
    )


def _agreeing(findings: StudyFindings, rows: Frame) -> str:
    """Say how many configurations agree, and name those that agree least.

    These are all that are outside, up to _MOST, or else the one that is closest to the limit.
    """
    inside, outside = (matching(rows, {"verdict": word}) for word in ("within", "outside"))
    worst = _named(findings, outside if len(outside) else inside[:1], "twin_value")
    known = len(inside) + len(outside)
    return say("agreeing", inside=len(inside), known=known, worst=worst)


def _accuracies_agree(findings: StudyFindings, rows: Frame, against: object) -> str:
    rows = matching(rows, {"what": "test_top1"})
    inside, outside = (matching(rows, {"verdict": word}) for word in ("within", "outside"))
    return say(
        "accuracies_agree",
        against=against,
        points=f"{100 * POINTS:g}",
        inside=len(inside),
        known=len(inside) + len(outside),
        within=_named(findings, inside, "twin_interval"),
        outside=_named(findings, outside, "twin_interval"),
        unknown=_number(rows, verdict="unknown"),
    )


def _named(findings: StudyFindings, rows: Frame, phrase: str) -> list[str]:
    """Say the first rows by `phrase`, and count the others."""
    names = ["workers", *findings.varying]
    texts = [
        say(phrase, row, name=configuration_words(row, names)) for _, row in rows[:_MOST].iterrows()
    ]
    return [*texts, f"{len(rows) - _MOST} more"] if len(rows) > _MOST else texts


def predictions(findings: StudyFindings) -> list[str]:
    """Return sentences on rates by kind and setting, on comparisons, exchange and staleness.

    Settings besides scheme and workers have one sentence together if they are many. Validation
    comes before development.
    """
    rates, exchanged = findings.known("rate_n"), findings.known("exchange_n")
    if rates.empty:
        return []
    rates = rates[rates["rate_verdict"] != "calibrated"]
    compared = findings.concluded["predicted_comparisons"]
    return [
        say("half", half=half, text=text) if half else text
        for half in sorted(rates["rate_half"].unique(), reverse=True)
        for text in _of_half(
            findings,
            matching(rates, {"rate_half": half}),
            matching(compared, {"half": half}),
            matching(exchanged, {"exchange_half": half}) if len(exchanged) else exchanged,
        )
    ]


def _of_half(findings: StudyFindings, rates: Frame, compared: Frame, exchanged: Frame) -> list[str]:
    each = list(groups(rates, ["kind", *findings.varying]))
    if len(each) > _MANY:
        each = list(groups(rates, ["kind"]))
    ratios = matching(compared, {"kind": "paced", "against": REFERENCE})
    verdicts = (ratios["error"].abs() <= NEAR["paced"]).map({True: "near", False: "far"})
    pushing = known(exchanged, "exchange_staleness_p")
    rest: tuple[tuple[Frame, Callable[[Frame], str]], ...] = (
        (compared, _faster),
        (ratios.assign(verdict=verdicts), _ratios_near),
        (exchanged, _exchange_near),
        (pushing, _staleness),
    )
    return [
        *(_rates_near(about, rows) for about, rows in each),
        *(sentence(rows) for rows, sentence in rest if len(rows)),
    ]


def _rates_near(about: Row, rows: Frame) -> str:
    kind = about["kind"]
    named = [value_words(axis, value) for axis, value in about.items() if axis != "kind"]
    worst = configuration_words(rows.loc[rows["rate_error"].abs().idxmax()], ["workers"])
    settings = ", ".join(named)
    numbers = _errors(rows, NEAR[kind], "rate_")
    return say("rates_near", numbers, settings=settings, kind=kind, worst=worst)


def _ratios_near(rows: Frame) -> str:
    return say("ratios_near", _errors(rows, NEAR["paced"]), reference=scheme_name(REFERENCE))


def _exchange_near(rows: Frame) -> str:
    return say("exchange_near", _errors(rows, EXCHANGE_NEAR, "exchange_"))


def _errors(rows: Frame, limit: float, prefix: str = "") -> Row:
    """Say how many rows are near, and the median and the worst error, besides the limit."""
    error = rows[f"{prefix}error"].abs()
    worst = rows.loc[error.idxmax(), f"{prefix}error"]
    near = _number(rows, **{f"{prefix}verdict": "near"})
    return {
        "limit": limit,
        "share": say("share", near=near, of=len(rows)),
        "errors": say("errors", median=error.median(), worst=worst),
    }


def _faster(rows: Frame) -> str:
    numbers = {
        name: _number(rows, verdict=verdict)
        for name, verdict in (("right", "right"), ("wrong", "wrong"), ("close", "too close"))
    }
    reference = scheme_name(REFERENCE)
    return say("faster_predicted", numbers, of=len(rows), reference=reference, noise=NOISE)


def _staleness(rows: Frame) -> str:
    alike = len(rows) - _number(rows, exchange_staleness_verdict="apart")
    far = rows["exchange_staleness_distance"]
    numbers = {"alike": alike, "of": len(rows), "size": SIZE}
    return say("staleness_predicted", numbers, median=far.median(), most=far.max())


def _number(rows: Frame, **values: str) -> int:
    return len(matching(rows, values))
