"""Writes the page of a study of exchanges: which collective to use, and its measured times.

An exchange is a single collective operation on all workers, without training.
"""

from pathlib import Path

import pandas as pd

from paceline.analysis.analyse import FOLDER, read_conclusion
from paceline.analysis.configuration import groups
from paceline.analysis.exchanges import NAME, NO_DIFFERENCE, TABLES, Exchanges, read_exchanges
from paceline.analysis.frames import Frame, Row
from paceline.report.answer import Answer
from paceline.report.chart.model_charts import collective_chart
from paceline.report.number_format import setting, size
from paceline.report.page import write_page
from paceline.report.page_tables import Table, axes, columns, table
from paceline.report.summary import MOST
from paceline.report.words import read, say, value_words

_SOURCES = ("hardware.", "versions.", "commit", "started")


def report_exchanges(folder: Path) -> Path:
    """Write figures/*.svg, README.md and index.html into `folder`; return the path of index.html.

    Equal tables result in files of equal bytes. Raises SettingError("study") if a table is missing.
    """
    exchanges = read_exchanges(folder)
    seconds, best = (read_conclusion(folder, make.__name__) for make in TABLES)
    chart = collective_chart(exchanges, seconds)
    rows, kinds = exchanges.rows, [*dict.fromkeys(seconds["kind"]), "predicted"]
    sources = [name for name in rows if name.startswith(_SOURCES)]
    content = {
        "about": {"study": exchanges.study, "num_points": len(seconds)},
        "question": exchanges.question or "This study states no question.",
        "subtitle": "collectives without training",
        "cluster": "",
        "target": "",
        "compares_all": False,
        "sentences": [] if len(best) else [say("no_exchange")],
        "answers": recommended(exchanges, best),
        "most_answers": MOST,
        "hedge": say("exchange_hedge"),
        "broken_rules": [],
        "cautions": _cautions(exchanges),
        "kinds": {kind: say(f"kind_{kind}", paced="links") for kind in kinds},
        "num_points": len(seconds),
        "num_finished": int((seconds["status"] == "finished").sum()),
        "situations": [],
        "how": [(name, "; ".join(dict.fromkeys(map(setting, rows[name])))) for name in sources],
        "tables": [
            _table("recommendation", exchanges, best),
            _table("exchange_seconds", exchanges, seconds),
        ],
        "points_json": "",
        "points_source": NAME,
        "origin": [],
        "csvs": [NAME, *(f"{FOLDER}/{make.__name__}.csv" for make in TABLES)],
    }
    return write_page(folder, [chart] if chart else [], content)


def recommended(exchanges: Exchanges, recommendation: Frame) -> list[Answer]:
    """Return an answer for each cluster, kind and size of message, for all numbers of workers."""
    places = ["cluster", "kind", *exchanges.facets, "num_bytes"]
    return [
        _answer(f"{_place(exchanges, group)}, {size(group['num_bytes'])}", rows)
        for group, rows in groups(recommendation, places)
    ]


def _answer(situation: str, rows: Frame) -> Answer:
    is_first = (rows["verdict"] != NO_DIFFERENCE) & (rows["runner_up"] != "")
    texts = []
    for name, own in groups(rows[is_first], ["collective"]):
        ends = [own["ratio_mean"].min(), own["ratio_mean"].max()]
        texts.append(say("collective_first", name, workers=list(own["workers"]), ends=ends))
    if not is_first.all():
        texts.append(say("collectives_tied", workers=list(rows.loc[~is_first, "workers"])))
    first = set(rows.loc[is_first, "collective"])
    use = first.pop() if is_first.all() and len(first) == 1 else ""
    return Answer(situation, use, " ".join(texts), [])


def _place(exchanges: Exchanges, row: Frame | Row) -> str:
    """Name the cluster of a row, its kind, and those settings by which clusters differ."""
    parts = [value_words(name, row[name]) for name in exchanges.facets if pd.notna(row[name])]
    return ", ".join([f"{str(row['cluster']).replace('_', ' ')} ({row['kind']})", *parts])


def _cautions(exchanges: Exchanges) -> list[str]:
    """Return sentences on exchanges that failed, and on processes that shared cores."""
    rows = exchanges.rows
    texts = [
        say("exchange_failed", row, place=_place(exchanges, row))
        for _, row in rows[rows["status"] == "failed"].iterrows()
    ]
    crowded = rows[rows["workers"] > rows["hardware.cores"]]
    if len(crowded):
        points, of = crowded["key"].nunique(), rows["key"].nunique()
        cores = ", ".join(map(setting, sorted(set(crowded["hardware.cores"]))))
        texts.append(say("exchanges_crowded", points=points, of=of, cores=cores))
    return texts


def _table(name: str, exchanges: Exchanges, rows: Frame) -> Table:
    of = axes(("cluster", *exchanges.facets, "workers", "num_bytes"))
    title, caption = read("tables")[name]["title"], say(f"caption_{name}")
    return table(title, caption, f"{FOLDER}/{name}.csv", [*of, *columns(name)], rows)
