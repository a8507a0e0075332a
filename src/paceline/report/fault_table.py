"""Makes the table of faults on the page of a study, and the sentences above it."""

import math
from collections.abc import Iterable

from paceline.analysis.comparison import FAULT
from paceline.analysis.configuration import groups
from paceline.analysis.tables import Frame, Row
from paceline.report.findings import StudyFindings
from paceline.report.number_format import count, decimals, percent_points, seconds
from paceline.report.table import Table, cell, concluded_table, spread
from paceline.report.words import scheme_words

_WORDS = {
    "worker_killed": "a worker is killed",
    "server_killed": "a server is killed",
    "slow_worker": "a worker becomes 5 times slower",
    "slow_link": "the link of a worker's node is left with a tenth of its bandwidth",
}


def faults(findings: StudyFindings) -> Table:
    """Say what became of the runs of each scheme with each fault."""
    cells = {
        "finished": lambda row: f"{row['n_finished']} of {row['n']}",
        "seconds, ratio": spread("seconds_ratio", decimals),
        "top-1 on test, points": spread("test_top1_difference", percent_points),
        "images lost": cell("images_lost", count),
        "seconds until it ended": cell("seconds_to_end", seconds),
        "why": cell("reason", str),
    }
    caption = (
        "Faults strike when half of the images have been trained. Seconds and accuracies are those "
        "of runs that went on to their last image, against the same seed without the fault; means "
        "with 95 % intervals. Lost are images whose gradients are in no weights in the end: of a "
        "run that ended early, all until the fault; else those of late pushes, which "
        "synchronous servers leave out by their backup workers, and a lost worker's last step."
    )
    return concluded_table(findings, "faults", "Faults", caption, cells, fault_sentences(findings))


def fault_sentences(findings: StudyFindings) -> list[str]:
    """Return a sentence for each fault; none if the study has none."""
    table = findings.concluded["faults"]
    if not len(table):
        return []
    return [_sentence(group[FAULT], rows) for group, rows in groups(table, [FAULT])]


def _sentence(fault: str, rows: Frame) -> str:
    on = rows[rows["n_finished"] == rows["n"]]
    ended = rows[rows["n_finished"] == 0]
    some = rows[(rows["n_finished"] > 0) & (rows["n_finished"] < rows["n"])]
    parts = []
    if len(on):
        parts.append(f"every run of {_listed(map(_with_ratio, on.to_dict('records')))} went on")
    if len(some):
        names = (
            f"{r['n_finished']} of {r['n']} runs of {scheme_words(r)}" for _, r in some.iterrows()
        )
        parts.append(f"{_listed(names)} did")
    if len(ended):
        longest = ended["seconds_to_end"].max()
        by = f" within {seconds(_bound(longest))} s" if longest == longest else ""
        parts.append(
            f"every run of {_listed(map(scheme_words, ended.to_dict('records')))} ended{by}"
        )
    return f"When {_WORDS[fault]}, {'; '.join(parts)}."


def _bound(value: float) -> float:
    """Round up to the hundredths that are shown, so that no number lies above its bound."""
    return math.ceil(100 * value) / 100


def _with_ratio(row: Row) -> str:
    """Name a scheme, with its ratio of seconds if the interval of that does not contain 1."""
    differs = row["seconds_ratio_low"] > 1 or row["seconds_ratio_high"] < 1
    taken = f" ({decimals(row['seconds_ratio_mean'])} times as long)" if differs else ""
    return f"{scheme_words(row)}{taken}"


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
