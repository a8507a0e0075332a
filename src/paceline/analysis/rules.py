"""Holds a study to the five rules of comparison of FireCaffe (Iandola et al. 2016).

Of the source, arXiv:1511.00175, it is certain that there is such a list; what its rules ask for is
in our words, and follows a study of any size: theirs asks for ImageNet.
"""

from collections.abc import Callable

import pandas as pd

from paceline.analysis.frames import Frame
from paceline.analysis.report_rules import evaluation_rule, reporting_rule
from paceline.analysis.rule_finding import RuleFinding
from paceline.analysis.speedup_rules import accuracy_rule, baseline_rule, network_rule
from paceline.analysis.tables import Tables

RULES = (
    "Rules of comparison (after FireCaffe, arXiv:1511.00175). Speed-ups that are not at equal "
    "accuracy, by a 95 % interval within the margin, are of throughput only; rule 1 is broken "
    "where accuracies are shown to differ. Rule 2 is broken where another one-worker run is shown "
    "to be faster, at an accuracy that is not shown to be lower."
)
_ASKED: tuple[tuple[str, Callable[[Tables], RuleFinding]], ...] = (
    ("a speed-up is at equal accuracy, or called one of throughput only", accuracy_rule),
    ("the baseline is the best one-worker run on the same machine and versions", baseline_rule),
    ("both sides train the same network", network_rule),
    ("accuracies are of images nothing was tuned on, and of several seeds", evaluation_rule),
    ("settings, hardware, versions and code are known", reporting_rule),
)
_COLUMNS = ["rule", "asks", "verdict", "broken", "of", "evidence", "place"]


def rules(tables: Tables) -> Frame:
    """Return a row for each of the five rules.

    `verdict`: holds; broken, in `broken` of `of` cases; or not applicable, if there is no case.
    `evidence` has the numbers in words; `place` is the table in reports/<study> they are from.
    """
    rows = []
    for number, (asks, find) in enumerate(_ASKED, 1):
        found = find(tables)
        rows.append(
            [number, asks, found.verdict, found.broken, found.of, found.evidence, found.place]
        )
    return pd.DataFrame(rows, columns=_COLUMNS)
