"""Says the short answer in plain words, from the verdicts of analysis."""

import pandas as pd

from paceline.analysis.configuration import groups, matching
from paceline.analysis.tables import Frame
from paceline.report.agreement_sentences import agreement
from paceline.report.findings import StudyFindings
from paceline.report.number_format import (
    decimals,
    percent,
    percent_points,
    plural,
    setting,
    with_interval,
)

HEDGE = (
    "Two schemes are told apart here only if the 95 % interval of their difference, paired by "
    "seed, leaves out 'no difference', and their own 95 % intervals do not overlap."
)
_MOST = 12
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
    """Return sentences; each names its kind of number and n."""
    if findings.tables.finished.empty:
        return ["No point has finished yet, so there is no answer: see below what happened."]
    scaled, compared = _scaled(findings), _compared(findings)
    texts = [*agreement(findings), *_fastest(findings), *_diverged(findings)]
    texts += [*compared[:_MOST], *scaled[:_MOST]]
    if max(len(scaled), len(compared)) > _MOST:
        texts.append("Further settings are in the tables below.")
    if not scaled:
        texts.append("What more workers bring cannot be said: no pair of runs with one and more.")
    if not compared:
        texts.append("Nothing can be said between schemes: no two of them share workers and seeds.")
    return texts


def _fastest(findings: StudyFindings) -> list[str]:
    texts = []
    for where, rows in groups(findings.concluded["fastest"], ["kind", "workers"]):
        times = "; ".join(
            f"{row['scheme']} in {row['settings_won']} of {plural(row['settings'], 'setting')}"
            for _, row in rows.iterrows()
        )
        first = rows.iloc[0]
        texts.append(
            f"Highest mean images/s at {plural(int(rows['workers'].iloc[0]), 'worker')} "
            f"({where['kind']}, n = {_range(first['n_least'], first['n_most'])}): {times}."
        )
    return texts


def _diverged(findings: StudyFindings) -> list[str]:
    """Name the settings of which every seed diverged: no comparison of means has them."""
    rows = matching(findings.concluded["verdicts"], {"what": "diverged"})
    texts = []
    for where, same in groups(rows, ["kind", "scheme", *findings.varying]):
        parts = [f"{axis} {setting(where[axis])}" for axis in findings.varying]
        counts = " and ".join(str(count) for count in sorted(same["workers"]))
        n = sorted(same["n"])
        texts.append(
            f"{', '.join([str(where['scheme']), *parts])}: every seed diverged at {counts} workers "
            f"({where['kind']}, n = {_range(n[0], n[-1])})."
        )
    return texts


def _range(low: float, high: float) -> str:
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def _scaled(findings: StudyFindings) -> list[str]:
    """Compare many workers with one of the same scheme."""
    rows = matching(findings.concluded["verdicts"], {"what": "workers", "most_workers": 1})
    texts = []
    for _, row in rows.iterrows():
        ratio = f"{decimals(row['mean'])} times the images/s of one worker"
        text = f"{row['scheme']}, {_where(findings, row)}: {ratio} {_spread(row, decimals)}"
        texts.append(f"{text}{_GAIN[row['verdict']]} {_accuracies(findings, row)}".strip())
    return texts


def _accuracies(findings: StudyFindings, row: Frame) -> str:
    """Say the accuracy with one worker and with these; nothing where one of them is unknown."""
    where = {name: row[name] for name in ["kind", *findings.tables.axes]}
    one, these = (
        matching(findings.concluded["summary"], where | {"workers": workers}).iloc[0]
        for workers in (1, row["workers"])
    )
    if pd.isna(one["test_top1_mean"]) or pd.isna(these["test_top1_mean"]):
        return ""
    before, after = (with_interval(side, "test_top1", percent) for side in (one, these))
    return f"Test top-1 ({row['kind']}): {before} with one worker; {after} with these."


def _compared(findings: StudyFindings) -> list[str]:
    """Compare schemes with the reference: a row of speed, then one of accuracy, for each."""
    rows = matching(findings.concluded["verdicts"], {"what": "scheme", "most_workers": 1})
    return [
        _against(findings, *(row for _, row in pair.iterrows()))
        for _, pair in groups(rows, ["kind", *findings.tables.axes])
    ]


def _against(findings: StudyFindings, speed: Frame, accuracy: Frame) -> str:
    ratio = f"{decimals(speed['mean'])} times the images/s of {speed['against']}"
    text = (
        f"{speed['scheme']}, {_where(findings, speed)}: {ratio} "
        f"{_spread(speed, decimals)}: {_said(speed, _SPEED)}"
    )
    if accuracy["verdict"] == "unknown":
        return f"{text}. Their accuracies cannot be compared."
    return (
        f"{text}. Its {_SPLITS[accuracy['metric']]} top-1 differs by "
        f"{percent_points(accuracy['mean'])} points {_spread(accuracy, percent_points)}: "
        f"{_said(accuracy, _ACCURACY)}."
    )


def _said(row: Frame, words: dict[str, str]) -> str:
    if row["verdict"] == "one seed":
        return "one seed in common cannot tell them apart"
    return words.get(row["verdict"], f"{row['n']:.0f} seeds cannot tell them apart")


def _where(findings: StudyFindings, row: Frame) -> str:
    parts = [f"{axis} {setting(row[axis])}" for axis in findings.varying]
    return ", ".join([f"{row['workers']:.0f} workers", *parts])


def _spread(row: Frame, form) -> str:
    label = f"{row['kind']}, n = {row['n']:.0f}"
    if pd.isna(row["low"]):
        return f"({label}, no interval)"
    return f"({label}, 95 % interval {form(row['low'])} to {form(row['high'])})"
