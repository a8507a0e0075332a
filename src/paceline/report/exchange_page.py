"""Writes the page of a study of exchanges: which collective to use, with its numbers."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from paceline.analysis.analyse import FOLDER
from paceline.analysis.configuration import groups
from paceline.analysis.exchanges import NAME, NO_DIFFERENCE, TABLES, Exchanges, read_exchanges
from paceline.analysis.frames import Frame, Row
from paceline.report.answer import Answer
from paceline.report.chart.collective_chart import collective_chart
from paceline.report.findings import read_conclusion
from paceline.report.number_format import (
    count,
    decimals,
    general,
    listed,
    percent,
    setting,
    size,
)
from paceline.report.page import KINDS, write_page
from paceline.report.phrases import say
from paceline.report.summary import MOST
from paceline.report.table import Column, Table, axis, mean, table, value
from paceline.report.words import value_words

_MEANING = KINDS | {"paced": "real processes; links slowed to those of the emulated cluster"}
_SOURCES = ("hardware.", "versions.", "commit", "started")


def report_exchanges(folder: Path) -> Path:
    """Write figures/*.svg, README.md and index.html into `folder`; return the path of index.html.

    Equal tables result in equal bytes. Raises SettingError("study") if the output of `paceline
    exchange` or `analyse_exchanges` is missing.
    """
    exchanges = read_exchanges(folder)
    seconds, best = (read_conclusion(folder, make.__name__) for make in TABLES)
    chart = collective_chart(exchanges, seconds)
    drawn = [chart] if chart is not None else []
    content = {
        "about": {"study": exchanges.study, "num_points": len(seconds)},
        "question": exchanges.question or "This study states no question.",
        "subtitle": "collectives without training",
        "cluster": "",
        "target": "",
        "sentences": [] if len(best) else [say("no_exchange")],
        "answers": recommended(exchanges, best),
        "most_answers": MOST,
        "hedge": say("exchange_hedge"),
        "broken_rules": [],
        "cautions": _cautions(exchanges),
        "kinds": {kind: _MEANING[kind] for kind in [*dict.fromkeys(seconds["kind"]), "predicted"]},
        "num_points": len(seconds),
        "num_finished": int((seconds["status"] == "finished").sum()),
        "situations": [],
        "how": _how(exchanges.rows),
        "tables": [_recommendation(exchanges, best), _seconds(exchanges, seconds)],
        "points_json": "",
        "points_source": NAME,
        "origin": [],
        "csvs": [NAME, *(f"{FOLDER}/{make.__name__}.csv" for make in TABLES)],
    }
    return write_page(folder, drawn, content)


def recommended(exchanges: Exchanges, recommendation: Frame) -> list[Answer]:
    """Return an answer per cluster, kind and number of bytes, on all numbers of workers."""
    places = ["cluster", "kind", *exchanges.facets, "num_bytes"]
    return [
        _answer(f"{_place(exchanges, group)}, {size(group['num_bytes'])}", rows)
        for group, rows in groups(recommendation, places)
    ]


def _answer(situation: str, rows: Frame) -> Answer:
    is_shown = (rows["verdict"] != NO_DIFFERENCE) & (rows["runner_up"] != "")
    shown, rest = rows[is_shown], rows[~is_shown]
    texts = []
    for name, same in groups(shown, ["collective"]):
        ends = (decimals(same["ratio_mean"].agg(end)) for end in ("min", "max"))
        times = " to ".join(dict.fromkeys(ends))
        texts.append(say("collective_first", name, workers=_workers(same), times=times))
    if len(rest):
        texts.append(say("collectives_tied", workers=_workers(rest)))
    collectives = set(shown["collective"])
    use = collectives.pop() if len(collectives) == 1 else ""
    return Answer(situation, use, " ".join(texts), [])


def _workers(rows: Frame) -> str:
    numbers = [str(int(number)) for number in rows["workers"]]
    return f"{listed(numbers)} {'worker' if numbers == ['1'] else 'workers'}"


def _place(exchanges: Exchanges, row: Frame | Row) -> str:
    """Name the cluster of a row with its kind, and the settings by which clusters differ."""
    parts = [value_words(name, row[name]) for name in exchanges.facets if pd.notna(row[name])]
    return ", ".join([f"{str(row['cluster']).replace('_', ' ')} ({row['kind']})", *parts])


def _cautions(exchanges: Exchanges) -> list[str]:
    """Name exchanges that failed, and say where processes shared cores."""
    rows = exchanges.rows
    texts = [
        say("exchange_failed", row, place=_place(exchanges, row))
        for _, row in rows[rows["status"] == "failed"].iterrows()
    ]
    crowded = rows[rows["workers"] > rows["hardware.cores"]]
    if len(crowded):
        cores = ", ".join(general(value) for value in sorted(set(crowded["hardware.cores"])))
        points, of = crowded["key"].nunique(), rows["key"].nunique()
        texts.append(say("exchanges_crowded", points=points, of=of, cores=cores))
    return texts


def _recommendation(exchanges: Exchanges, rows: Frame) -> Table:
    columns = [
        value("collective", "collective", str),
        value("runner-up", "runner_up", str),
        mean("runner-up's seconds / its own", "ratio", decimals),
        value("verdict", "verdict", str),
    ]
    return _table("Recommended", "recommendation", exchanges, rows, columns)


def _seconds(exchanges: Exchanges, rows: Frame) -> Table:
    columns = [
        value("collective", "collective", str),
        value("status", "status", str),
        mean("seconds", "seconds", general),
        value("updates/s", "updates_per_second", general),
        value("predicted seconds", "predicted_seconds", general),
        value("error of prediction", "error", percent),
        value("bytes sent", "bytes_sent", count),
        value("bytes received", "bytes_received", count),
        value("bytes by formula", "bytes_formula", count),
    ]
    return _table("Exchanges", "exchange_seconds", exchanges, rows, columns)


def _table(
    name: str, source: str, exchanges: Exchanges, rows: Frame, columns: Sequence[Column]
) -> Table:
    axes = map(axis, ("cluster", *exchanges.facets, "workers", "num_bytes"))
    caption = say(f"caption_{source}")
    return table(name, caption, f"{FOLDER}/{source}.csv", [*axes, *columns], rows)


def _how(rows: Frame) -> list[tuple[str, str]]:
    names = [name for name in rows if name.startswith(_SOURCES)]
    return [(name, "; ".join(dict.fromkeys(map(setting, rows[name])))) for name in names]
