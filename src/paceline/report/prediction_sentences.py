"""Writes sentences on how well a modelled cluster predicts what was measured."""

from paceline.analysis.configuration import groups, matching
from paceline.analysis.predicted import NEAR, NOISE
from paceline.analysis.tables import Frame, Row
from paceline.report.findings import StudyFindings
from paceline.report.number_format import plural, setting

PREDICTED = (
    "Predicted: modelled time, nothing trained, on the profile that the study names for the model. "
    "Where workers share cores, a step alone takes what it took in the study's own runs of one "
    "worker without a server, which are calibrated and not judged."
)


def predictions(findings: StudyFindings) -> list[str]:
    """Return a sentence for each setting besides scheme and workers, and one for comparisons."""
    table = findings.concluded["predicted"]
    table = table[table["verdict"] != "calibrated"]
    if not len(table):
        return []
    parts = groups(table, findings.varying) if findings.varying else [({}, table)]
    texts = [_near_sentence(setting_of, rows) for setting_of, rows in parts]
    compared = findings.concluded["predicted_comparisons"]
    return [*texts, *([_comparison_sentence(compared)] if len(compared) else [])]


def _near_sentence(settings: Row, rows: Frame) -> str:
    named = ", ".join(f"{axis} {setting(value)}" for axis, value in settings.items())
    error, near = rows["error"].abs(), matching(rows, {"verdict": "near"})
    worst = rows.loc[error.idxmax()]
    workers = plural(int(worst["workers"]), "worker")
    return (
        f"{named or 'All settings'}: predicted images/s are within {100 * NEAR:.0f} % of those "
        f"measured in {len(near)} of {plural(len(rows), 'configuration')}; median error "
        f"{100 * error.median():.0f} %, worst {100 * worst['error']:+.0f} % ({worst['scheme']}, "
        f"{workers})."
    )


def _comparison_sentence(rows: Frame) -> str:
    right, wrong, close = (
        len(matching(rows, {"verdict": verdict})) for verdict in ("right", "wrong", "too close")
    )
    return (
        f"Of {plural(len(rows), 'comparison')} with sync_allreduce or with one worker, which is "
        f"faster is predicted rightly in {right}, wrongly in {wrong}; in {close} the measured ones "
        f"differ by no more than {100 * NOISE:.0f} %."
    )
