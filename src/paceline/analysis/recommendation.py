"""Recommends a collective for each number of workers, bytes and cluster that were measured."""

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.exchanges import Exchanges
from paceline.analysis.frames import Frame
from paceline.analysis.intervals import interval
from paceline.analysis.statistics.space import POSITIVE

NO_DIFFERENCE = "no difference shown"


def recommendation(exchanges: Exchanges) -> Frame:
    """Return one row per situation in which an exchange finished.

    `collective` has the fewest mean seconds, `runner_up` the next. `ratio`: seconds of the
    runner-up over those of the first, paired by turn. `verdict`: first, or no difference
    shown, if the interval of the ratio contains 1 or does not exist.
    """
    finished = exchanges.rows[exchanges.rows["status"] == "finished"]
    rows = []
    for group, turns in groups(finished, exchanges.situation) if len(finished) else []:
        by_turn = turns.pivot(index="turn", columns="collective", values="seconds").astype(float)
        first, *others = by_turn.mean().sort_values(kind="stable").index
        row = group | {"collective": first, "runner_up": others[0] if others else ""}
        ratio = interval(by_turn[others[0]] / by_turn[first] if others else [], POSITIVE)
        verdict = "first" if ratio.low > 1 else NO_DIFFERENCE
        rows.append(row | ratio.named("ratio") | {"verdict": verdict})
    columns = [*exchanges.situation, "collective", "runner_up", *interval([]).named("ratio")]
    return pd.DataFrame(rows, columns=[*columns, "verdict"])
