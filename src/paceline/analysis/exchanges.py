"""Recommends the fastest collective per number of workers, size of message, and cluster.

The recommendation is by measured seconds of exchanges: single collective operations on all workers,
without training.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from paceline.analysis.analyse import table_path, tie_tables
from paceline.analysis.configuration import groups
from paceline.analysis.frames import Frame, read_tied, write_table
from paceline.analysis.intervals import NONE, interval
from paceline.analysis.statistics.means import POSITIVE
from paceline.analysis.tables import read_about
from paceline.record.schema import columns_of_exchanges
from paceline.record.tied_files import replaced

NAME = "exchanges.csv"
NO_DIFFERENCE = "no difference shown"
_SAME = ("reason", "predicted_seconds", "bytes_sent", "bytes_received", "bytes_formula")


@dataclass(frozen=True)
class Exchanges:
    """Exchanges of a study: `rows` has one row per turn of an exchange, or one if it failed.

    A turn is one measured repetition. `facets` are those columns, besides the cluster's name, by
    which the clusters of the study differ.
    """

    study: str
    question: str | None
    facets: list[str]
    rows: Frame

    @property
    def situation(self) -> list[str]:
        """Columns that identify what was exchanged and where, without the collective."""
        return ["kind", "cluster", *self.facets, "workers", "num_bytes"]


def read_exchanges(folder: Path) -> Exchanges:
    """Read the tables in `folder`, reports/<study>. Raises SettingError("study") without them."""
    first = f"paceline sweep {folder.name}"
    rows = read_tied(folder / NAME, first, columns_of_exchanges())
    about = read_about(folder, first, exchanges=True)
    return Exchanges(about["study"], about["question"], about["facets"], rows)


def exchange_seconds(exchanges: Exchanges) -> Frame:
    """Return one row per exchange: its mean seconds over all turns, and the predicted seconds.

    `updates_per_second` is 1 / seconds, as in figure 5 of FireCaffe (Iandola et al. 2016,
    arXiv:1511.00175). `error` is predicted seconds / mean seconds - 1.
    """
    rows = []
    for group, turns in groups(exchanges.rows, [*exchanges.situation, "collective"]):
        found = interval(turns["seconds"], POSITIVE)
        row = group | {"status": turns["status"].iloc[0]} | found.named("seconds")
        row |= {name: turns[name].iloc[0] for name in _SAME}
        row["updates_per_second"] = 1 / found.mean
        rows.append(row | {"error": row["predicted_seconds"] / found.mean - 1})
    return pd.DataFrame(rows)


def recommendation(exchanges: Exchanges) -> Frame:
    """Return one row per situation in which an exchange finished.

    `collective` is the one with the smallest mean of seconds, and `runner_up` the one with the
    second smallest. `ratio` is the mean of the runner-up's seconds divided by those of `collective`
    in the same turn. `verdict` is first if `collective` is shown to be faster; it is NO_DIFFERENCE
    if the interval of the ratio contains 1 or is unknown.
    """
    finished = exchanges.rows[exchanges.rows["status"] == "finished"]
    rows = []
    for group, turns in groups(finished, exchanges.situation):
        by_turn = turns.pivot(index="turn", columns="collective", values="seconds").astype(float)
        first, *others = by_turn.mean().sort_values(kind="stable").index
        row = group | {"collective": first, "runner_up": others[0] if others else ""}
        ratio = interval(by_turn[others[0]] / by_turn[first] if others else [], POSITIVE)
        verdict = "first" if ratio.low > 1 else NO_DIFFERENCE
        rows.append(row | ratio.named("ratio") | {"verdict": verdict})
    columns = [*exchanges.situation, "collective", "runner_up", *NONE.named("ratio")]
    return pd.DataFrame(rows, columns=[*columns, "verdict"])


TABLES = (exchange_seconds, recommendation)


def analyse_exchanges(folder: Path) -> None:
    """Write the CSVs of TABLES into `folder`, reports/<study>.

    Raises SettingError("study") if exchanges.csv is missing.
    """
    exchanges = read_exchanges(folder)
    with replaced(folder) as new:
        for make in TABLES:
            write_table(table_path(new, make.__name__), make(exchanges))
        tie_tables(new, folder)
