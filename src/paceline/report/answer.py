"""Writes the short answer in plain words, from the verdicts of analysis."""

import pandas as pd

from paceline.analysis.configuration import groups, matching, one_process
from paceline.analysis.tables import Frame
from paceline.report.agreement_sentences import agreement
from paceline.report.findings import StudyFindings
from paceline.report.number_format import (
    Form,
    decimals,
    percent,
    percent_points,
    plural,
    setting,
    with_interval,
)
from paceline.report.prediction_sentences import predictions

HEDGE = (
    "Two schemes are told apart here only if the 95 % interval of their difference, paired by "
    "seed, leaves out 'no difference', and their own 95 % intervals do not overlap."
)
_MOST_SENTENCES = 12
_SPEED = {"higher": "faster", "lower": "slower"}
_ACCURACY = {"higher": "more accurate", "lower": "less accurate"}
_GAIN = {
    "higher": ": more workers are faster.",
    "lower": ": more workers are slower.",
    "not told apart": ": no gain can be told from noise.",
    "one seed": "; one seed cannot tell this from chance.",
}
_SPLITS = {"test_top1": "test", "top1": "validation"}


def answer(findings: StudyFindings) -> list[str]:
    """Return the sentences of the short answer; each states its kind of number and n."""
    if findings.tables.finished.empty:
        return ["No point has finished yet, so there is no answer: see below what happened."]
    scaled, compared = _scaling_sentences(findings), _scheme_sentences(findings)
    texts = [
        *agreement(findings),
        *predictions(findings),
        *_fastest_sentences(findings),
        *_diverged_sentences(findings),
    ]
    texts += [*compared[:_MOST_SENTENCES], *scaled[:_MOST_SENTENCES]]
    if max(len(scaled), len(compared)) > _MOST_SENTENCES:
        texts.append("Further settings are in the tables below.")
    if not scaled:
        texts.append("What more workers bring cannot be said: no pair of runs with one and more.")
    if not compared:
        texts.append("Nothing can be said between schemes: no two of them share workers and seeds.")
    return texts


def _fastest_sentences(findings: StudyFindings) -> list[str]:
    texts = []
    for group, rows in groups(findings.concluded["fastest"], ["kind", "workers"]):
        times = "; ".join(
            f"{row['scheme']} in {row['settings_won']} of {plural(row['settings'], 'setting')}"
            for _, row in rows.iterrows()
        )
        first = rows.iloc[0]
        texts.append(
            f"Highest mean images/s at {plural(int(rows['workers'].iloc[0]), 'worker')} "
            f"({group['kind']}, n = {_range(first['n_least'], first['n_most'])}): {times}."
        )
    return texts


def _diverged_sentences(findings: StudyFindings) -> list[str]:
    """Name the settings whose seeds all diverged, since no comparison of means contains them."""
    rows = matching(findings.concluded["verdicts"], {"what": "diverged"})
    texts = []
    for group, same in groups(rows, ["kind", "scheme", *findings.varying]):
        parts = [f"{axis} {setting(group[axis])}" for axis in findings.varying]
        counts = " and ".join(str(count) for count in sorted(same["workers"]))
        n = sorted(same["n"])
        texts.append(
            f"{', '.join([str(group['scheme']), *parts])}: every seed diverged at {counts} workers "
            f"({group['kind']}, n = {_range(n[0], n[-1])})."
        )
    return texts


def _range(low: float, high: float) -> str:
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def _scaling_sentences(findings: StudyFindings) -> list[str]:
    """Compare many workers with one worker of the same scheme."""
    rows = matching(findings.concluded["verdicts"], {"what": "workers", "most_workers": 1})
    texts = []
    for _, row in rows.iterrows():
        ratio = f"{decimals(row['mean'])} times the images/s of one worker"
        text = f"{row['scheme']}, {_settings(findings, row)}: {ratio} {_interval(row, decimals)}"
        texts.append(f"{text}{_GAIN[row['verdict']]} {_accuracy_sentence(findings, row)}".strip())
    return texts


def _accuracy_sentence(findings: StudyFindings, row: Frame) -> str:
    """State the accuracy with one process and with those of `row`; "" if either is unknown."""
    configuration = {name: row[name] for name in ["kind", *findings.tables.axes]}
    one, these = (
        matching(findings.concluded["summary"], side).iloc[0]
        for side in (one_process(configuration), configuration)
    )
    if pd.isna(one["test_top1_mean"]) or pd.isna(these["test_top1_mean"]):
        return ""
    before, after = (with_interval(side, "test_top1", percent) for side in (one, these))
    return f"Test top-1 ({row['kind']}): {before} with one worker; {after} with these."


def _scheme_sentences(findings: StudyFindings) -> list[str]:
    """Compare each scheme with the reference, in a sentence on speed and one on accuracy."""
    rows = matching(findings.concluded["verdicts"], {"what": "scheme", "most_workers": 1})
    return [
        _against_reference(findings, *(row for _, row in pair.iterrows()))
        for _, pair in groups(rows, ["kind", *findings.tables.axes])
    ]


def _against_reference(findings: StudyFindings, speed: Frame, accuracy: Frame) -> str:
    ratio = f"{decimals(speed['mean'])} times the images/s of {speed['against']}"
    text = (
        f"{speed['scheme']}, {_settings(findings, speed)}: {ratio} "
        f"{_interval(speed, decimals)}: {_verdict_text(speed, _SPEED)}"
    )
    if accuracy["verdict"] == "unknown":
        return f"{text}. Their accuracies cannot be compared."
    return (
        f"{text}. Its {_SPLITS[accuracy['metric']]} top-1 differs by "
        f"{percent_points(accuracy['mean'])} points {_interval(accuracy, percent_points)}: "
        f"{_verdict_text(accuracy, _ACCURACY)}."
    )


def _verdict_text(row: Frame, words: dict[str, str]) -> str:
    if row["verdict"] == "one seed":
        return "one seed in common cannot tell them apart"
    return words.get(row["verdict"], f"{row['n']:.0f} seeds cannot tell them apart")


def _settings(findings: StudyFindings, row: Frame) -> str:
    parts = [f"{axis} {setting(row[axis])}" for axis in findings.varying]
    return ", ".join([f"{row['workers']:.0f} workers", *parts])


def _interval(row: Frame, form: Form) -> str:
    label = f"{row['kind']}, n = {row['n']:.0f}"
    if pd.isna(row["low"]):
        return f"({label}, no interval)"
    return f"({label}, 95 % interval {form(row['low'])} to {form(row['high'])})"
