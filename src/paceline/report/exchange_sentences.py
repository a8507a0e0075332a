"""Says which collective to use, and what to know before believing it."""

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.exchanges import NO_DIFFERENCE, Exchanges
from paceline.analysis.tables import Frame
from paceline.report.answer import Answer
from paceline.report.number_format import count, decimals, general, plural, size
from paceline.report.words import value_words


def recommended(exchanges: Exchanges, recommendation: Frame) -> list[Answer]:
    """Return an answer per cluster, kind and number of bytes, on all numbers of workers."""
    return [
        _answer(exchanges, group, rows)
        for group, rows in groups(recommendation, [*_cluster(exchanges), "num_bytes"])
    ]


def _answer(exchanges: Exchanges, group: Frame, rows: Frame) -> Answer:
    shown = rows[(rows["verdict"] != NO_DIFFERENCE) & (rows["runner_up"] != "")]
    rest = rows[~rows.index.isin(shown.index)]
    texts = [_first(name["collective"], same) for name, same in groups(shown, ["collective"])]
    if len(rest):
        texts.append(f"{_with(rest)} none is told from the next.")
    collectives = set(shown["collective"])
    use = collectives.pop() if len(collectives) == 1 else ""
    words = f"{place(exchanges, group)}, {size(group['num_bytes'])}"
    return Answer(words, use, " ".join(text[:1].upper() + text[1:] for text in texts), [])


def _first(collective: str, rows: Frame) -> str:
    low, high = (decimals(rows["ratio_mean"].agg(end)) for end in ("min", "max"))
    times = low if low == high else f"{low} to {high}"
    return f"{_with(rows)} {collective} is first; the next takes {times} times as long."


def _with(rows: Frame) -> str:
    workers = [str(int(number)) for number in rows["workers"]]
    many = ", ".join(workers[:-1]) + " and " + workers[-1] if len(workers) > 1 else workers[0]
    return f"with {many} {'worker' if many == '1' else 'workers'}"


def place(exchanges: Exchanges, row: Frame) -> str:
    """Name the cluster of a row with its kind, and the settings by which clusters differ."""
    parts = [value_words(name, row[name]) for name in exchanges.facets if pd.notna(row[name])]
    return ", ".join([f"{str(row['cluster']).replace('_', ' ')} ({row['kind']})", *parts])


def exchange_cautions(exchanges: Exchanges) -> list[str]:
    """Name exchanges that failed, and say where processes shared cores."""
    rows = exchanges.rows
    texts = [
        f"{row['collective']}, {plural(int(row['workers']), 'worker')}, "
        f"{count(row['num_bytes'])} bytes, {place(exchanges, row)} failed: {row['reason']}"
        for _, row in rows[rows["status"] == "failed"].iterrows()
    ]
    crowded = rows[rows["workers"] > rows["hardware.cores"]]
    if len(crowded):
        cores = ", ".join(general(value) for value in sorted(set(crowded["hardware.cores"])))
        texts.append(
            f"{crowded['key'].nunique()} of {plural(rows['key'].nunique(), 'exchange')} had more "
            f"processes than cores ({cores}): where links are fast, cores decide."
        )
    return texts


def _cluster(exchanges: Exchanges) -> list[str]:
    return ["cluster", "kind", *exchanges.facets]
