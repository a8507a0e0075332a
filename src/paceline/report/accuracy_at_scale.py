"""Says what each number of workers costs in accuracy, by the table decision.csv."""

import pandas as pd

from paceline.analysis.configuration import finished, groups, matching
from paceline.analysis.decision import AT_BEST
from paceline.analysis.frames import Frame, Row
from paceline.analysis.statistics.multiple_comparisons import BETTER, NOT_TOLD, WORSE
from paceline.grouped import grouped
from paceline.report.answer import BUDGETS, choices, searched_words
from paceline.report.findings import StudyFindings
from paceline.report.words import say, scheme_words

_DIFFERENCE = "one_worker_{}top1_difference_{}"
# of a scheme against one worker, in the order of sentences; phrases with these names say them
WITHIN, SOME, ALL, EDGE, UNKNOWN = "within", "some_diverged", "all_diverged", "at_edge", "unknown"
_VERDICTS = (WITHIN, BETTER, NOT_TOLD, WORSE, SOME, ALL, EDGE, UNKNOWN)


def accuracy_at_scale(findings: StudyFindings) -> list[str]:
    """Return a sentence on how schemes at each number of workers compare with one worker.

    There are two if a search was made: one with the settings that were run, and one at the best
    settings. There are none where `rows_at_scale` has no rows.
    """
    rows, texts = rows_at_scale(findings), list[str]()
    for kind, own in groups(rows, ["kind"]):
        single = matching(findings.concluded["decision"], {**kind, "workers": 1})
        facts = kind | {"margin": findings.tables.about["margin"]}
        for estimand in ("", AT_BEST) if is_searched(own) else ("",):
            told = {verdict: _sizes(own, verdict, estimand) for verdict in _VERDICTS}
            told = {say(f"verdict_{verdict}", facts): of for verdict, of in told.items() if of}
            settings = "at best settings" if estimand else "with these settings"
            at_edge = not estimand and len(single) > 0 and all(single["at_edge"])  # said once
            texts.append(
                say("accuracy_at_scale", facts, settings=settings, told=told, at_edge=at_edge)
            )
    return texts


def is_searched(rows: Frame) -> bool:
    """Return True if numbers at the best settings differ from those with the ones that were run."""
    here, best = (list(rows[_DIFFERENCE.format(each, "low")].dropna()) for each in ("", AT_BEST))
    return here != best


def _sizes(rows: Frame, verdict: str, estimand: str) -> dict[str, list[int]]:
    """Return the numbers of workers at which each scheme has a verdict."""
    own = rows[rows[f"{estimand}verdict"] == verdict]
    return {words: list(of["workers"]) for words, of in own.groupby("words", sort=False)}


def rows_at_scale(findings: StudyFindings) -> Frame:
    """Return rows of decision.csv of several numbers of workers, by scheme.

    They are of kinds of runs whose situations differ in their number of workers only, and that are
    compared with one worker; those with another budget than it are left out. Further columns:
    `words` of the scheme; `verdict` and `best_verdict`, each one of _VERDICTS; and of the runs
    their `lr`, `momentum`, number of `updates`, and as `own` the words of the scheme's setting that
    a search chose.
    """
    rows, alone = list[Row](), matching(findings.concluded["decision"], {"workers": 1})
    every = [
        situation
        for situation, _ in choices(findings)
        if alone.empty
        or all(situation.values[name] in set(alone[name]) for name in BUDGETS if name in alone)
    ]
    for own in grouped(every, lambda each: each.values["kind"]).values():
        settings = [{**each.values, "workers": None} for each in own]
        if len(own) < 2 or any(each != settings[0] for each in settings):
            continue
        own = sorted(own, key=lambda each: each.size)
        decided: Frame = pd.concat([each.of(findings.concluded["decision"]) for each in own])
        if decided[_DIFFERENCE.format("", "mean")].notna().any():
            found = [_row(findings, row) for _, row in decided.iterrows()]
            rows += [
                row for same in grouped(found, lambda row: row["words"]).values() for row in same
            ]
    return pd.DataFrame(rows)


def _row(findings: StudyFindings, row: Frame) -> Row:
    tables, known = findings.tables, [name for name in row.index if name not in findings.of_size]
    axes = [name for name in ("kind", *tables.axes) if name in known]
    points = matching(tables.runs, dict(row[axes]))
    alike = {n: points[n].iloc[0] for n in ("lr", "momentum") if points[n].nunique() == 1}
    return {
        **row,
        "words": scheme_words(row),
        **{f"{each}verdict": verdict_of(row, each) for each in ("", AT_BEST)},
        **alike,
        "updates": finished(points)["updates"].mean(),
        "own": searched_words(findings, row),
    }


def verdict_of(row: Frame | Row, estimand: str) -> str:
    """Return which of _VERDICTS holds of a row of decision.csv.

    `estimand`: AT_BEST, or "" for the settings that were run.
    """
    if row["n_diverged"]:
        return SOME if row["n_finished"] else ALL
    if row["at_edge"]:
        return EDGE
    if pd.isna(row[_DIFFERENCE.format(estimand, "low")]):
        return UNKNOWN
    if row[f"one_worker_{estimand}within_margin"] == 1:
        return WITHIN
    return str(row[f"one_worker_{estimand}accuracy"])
