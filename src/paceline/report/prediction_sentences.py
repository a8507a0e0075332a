"""Writes sentences on how well a modelled cluster predicts real processes."""

from paceline.analysis.comparison import REFERENCE
from paceline.analysis.configuration import groups, matching
from paceline.analysis.predicted import EXCHANGE_NEAR, NEAR, NOISE, SIZE
from paceline.analysis.tables import Frame, Row
from paceline.report.findings import StudyFindings
from paceline.report.number_format import plural
from paceline.report.words import SCHEMES, configuration_words, value_words

_PREDICTED = (
    "Predicted: modelled time, nothing trained, on the profile that the study names for the model. "
    "Where workers share cores, a step alone takes what it took in the study's own runs of one "
    "worker without a server, which are calibrated and not judged."
)
_HALVES = "Validation: run when the model of time was frozen; development: what it was changed for."

_MANY = 6  # settings


def about_predictions(findings: StudyFindings) -> str:
    """Say what a prediction is, and what the halves are where the study has them."""
    halves = bool(findings.concluded["predicted"]["half"].any())
    return f"{_PREDICTED} {_HALVES}" if halves else _PREDICTED


def predictions(findings: StudyFindings) -> list[str]:
    """Return sentences on rates by kind and setting, on comparisons, exchange and staleness.

    Settings besides scheme and workers have one sentence together if they are many. Validation
    comes before development.
    """
    names = ("predicted", "predicted_comparisons", "predicted_exchange")
    tables = [findings.concluded[name] for name in names]
    table = tables[0] = tables[0][tables[0]["verdict"] != "calibrated"]
    halves = sorted(table["half"].unique(), reverse=True)
    return [
        f"{half.capitalize()}: {text}" if half else text
        for half in halves
        for text in _of_half(findings, *(each[each["half"] == half] for each in tables))
    ]


def _of_half(findings: StudyFindings, table: Frame, compared: Frame, exchanged: Frame) -> list[str]:
    each = list(groups(table, ["kind", *findings.varying]))
    if len(each) > _MANY:
        each = list(groups(table, ["kind"]))
    return [
        *(_near(about, rows) for about, rows in each),
        *([_compared(compared)] if len(compared) else []),
        *_ratios(compared),
        *([_exchanged(exchanged)] if len(exchanged) else []),
        *([_stale(exchanged)] if exchanged["staleness_p"].notna().any() else []),
    ]


def _near(about: Row, rows: Frame) -> str:
    kind = about["kind"]
    named = [value_words(axis, value) for axis, value in about.items() if axis != "kind"]
    worst = rows.loc[rows["error"].abs().idxmax()]
    return (
        f"{', '.join(named) or 'All settings'}: predicted images/s are within "
        f"{100 * NEAR[kind]:.0f} % of those {kind} in {_share(rows)}; {_errors(rows)} "
        f"({configuration_words(worst, ['workers'])})."
    )


def _ratios(compared: Frame) -> list[str]:
    """Say how near ratios of paced images/s are, where only the scheme differs."""
    rows = matching(compared, {"kind": "paced", "against": REFERENCE})
    if not len(rows):
        return []
    limit = NEAR["paced"]
    verdicts = (rows["error"].abs() <= limit).map({True: "near", False: "far"})
    rows = rows.assign(verdict=verdicts)
    return [
        f"Ratios of images/s to {SCHEMES[REFERENCE]} are predicted within {100 * limit:.0f} % in "
        f"{_share(rows)}; {_errors(rows)}."
    ]


def _exchanged(rows: Frame) -> str:
    return (
        f"Predicted seconds of exchange are within {100 * EXCHANGE_NEAR:.0f} % in {_share(rows)}; "
        f"{_errors(rows)}."
    )


def _stale(rows: Frame) -> str:
    pushing = rows[rows["staleness_p"].notna()]
    apart, far = matching(pushing, {"staleness_verdict": "apart"}), "staleness_distance"
    return (
        f"The staleness of {len(pushing) - len(apart)} of {plural(len(pushing), 'configuration')} "
        f"is as if drawn from the prediction (test of size {100 * SIZE:.0f} %); distributions "
        f"differ by {100 * pushing[far].median():.1f} % of pushes in the median, by at most "
        f"{100 * pushing[far].max():.0f} %."
    )


def _share(rows: Frame) -> str:
    near = matching(rows, {"verdict": "near"})
    return f"{len(near)} of {plural(len(rows), 'configuration')}"


def _errors(rows: Frame) -> str:
    error = rows["error"].abs()
    worst = rows.loc[error.idxmax(), "error"]
    return f"median error {100 * error.median():.0f} %, worst {100 * worst:+.0f} %"


def _compared(rows: Frame) -> str:
    right, wrong, close = (
        len(matching(rows, {"verdict": verdict})) for verdict in ("right", "wrong", "too close")
    )
    return (
        f"Of {plural(len(rows), 'comparison')} with {SCHEMES[REFERENCE]} or with one worker, which "
        f"is faster is predicted rightly in {right}, wrongly in {wrong}; in {close} the observed "
        f"ones differ by no more than {100 * NOISE:.0f} %."
    )
