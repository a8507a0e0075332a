"""Writes the page of a study of exchanges, on the templates of any study."""

from pathlib import Path

from paceline.analysis.analyse import FOLDER, table_path
from paceline.analysis.exchanges import NAME, TABLES, Exchanges, read_exchanges
from paceline.analysis.tables import Frame, read_table, require
from paceline.report.answer import MOST
from paceline.report.chart.collective_chart import collective_chart
from paceline.report.exchange_sentences import exchange_cautions, recommended
from paceline.report.number_format import count, decimals, general, percent, setting, shown
from paceline.report.page import KINDS, write_page
from paceline.report.table import Cell, Table, cell, spread

HEDGE = (
    "A collective is first only if the 95 % interval of the runner-up's seconds over its own, "
    "paired by turn, lies above 1. A name is a value of scheme.collective."
)
_MEANING = KINDS | {"paced": "real processes; links slowed to those of the emulated cluster"}
_SOURCES = ("hardware.", "versions.", "commit", "started")


def report_exchanges(folder: Path) -> Path:
    """Write figures/*.svg, README.md and index.html into `folder`; return the path of index.html.

    Equal tables result in equal bytes. Raises SettingError("study") if the output of `paceline
    exchange` or `analyse_exchanges` is missing.
    """
    exchanges = read_exchanges(folder)
    first = f"paceline report {folder.name}"
    paths = [table_path(folder, make.__name__) for make in TABLES]
    seconds, best = (read_table(require(path, first)) for path in paths)
    chart = collective_chart(exchanges, seconds)
    drawn = [chart] if chart is not None else []
    content = {
        "about": {"study": exchanges.study, "num_points": len(seconds)},
        "question": exchanges.question or "This study states no question.",
        "subtitle": "collectives without training",
        "cluster": "",
        "target": "",
        "sentences": [] if len(best) else ["No exchange has finished, so nothing is recommended."],
        "answers": recommended(exchanges, best),
        "most_answers": MOST,
        "hedge": HEDGE,
        "broken_rules": [],
        "cautions": exchange_cautions(exchanges),
        "kinds": {kind: _MEANING[kind] for kind in [*dict.fromkeys(seconds["kind"]), "predicted"]},
        "num_points": len(seconds),
        "num_finished": int((seconds["status"] == "finished").sum()),
        "situations": [],
        "how": _how(exchanges.rows),
        "tables": [_recommendation(exchanges, best), _seconds(exchanges, seconds)],
        "points_json": "",
        "points_source": NAME,
        "origin": [],
        "csvs": [NAME, *(str(path.relative_to(folder)) for path in paths)],
    }
    return write_page(folder, drawn, content)


def _recommendation(exchanges: Exchanges, rows: Frame) -> Table:
    cells = {
        "collective": lambda row: row["collective"],
        "runner-up": lambda row: row["runner_up"],
        "runner-up's seconds / its own": spread("ratio", decimals),
        "verdict": lambda row: row["verdict"],
    }
    caption = "The collective with the fewest seconds, mean over turns; ratios paired by turn."
    return _table("Recommended", caption, f"{FOLDER}/recommendation.csv", exchanges, rows, cells)


def _seconds(exchanges: Exchanges, rows: Frame) -> Table:
    cells = {
        "collective": lambda row: row["collective"],
        "status": lambda row: row["status"],
        "seconds": spread("seconds", general),
        "updates/s": cell("updates_per_second", general),
        "predicted seconds": cell("predicted_seconds", general),
        "error of prediction": lambda row: shown(row["error"], percent),
        "bytes sent": cell("bytes_sent", count),
        "bytes received": cell("bytes_received", count),
        "bytes by formula": cell("bytes_formula", count),
    }
    caption = (
        "One row per exchange. Seconds: from the arrival of the last worker until a worker has the "
        "sum, mean over workers and turns, after a pause as between steps. Bytes of all workers: "
        "counted by messages; by the kernel, with headers, for native."
    )
    return _table("Exchanges", caption, f"{FOLDER}/exchange_seconds.csv", exchanges, rows, cells)


def _table(
    name: str, caption: str, source: str, exchanges: Exchanges, rows: Frame, cells: dict[str, Cell]
) -> Table:
    axes = ["cluster", *exchanges.facets, "workers", "num_bytes"]
    texts = [
        [*(setting(row[axis]) for axis in axes), *(c(row) for c in cells.values()), row["kind"]]
        for _, row in rows.iterrows()
    ]
    return Table(name, caption, source, [*axes, *cells, "kind"], texts)


def _how(rows: Frame) -> list[tuple[str, str]]:
    names = [name for name in rows if name.startswith(_SOURCES)]
    return [(name, "; ".join(dict.fromkeys(map(setting, rows[name])))) for name in names]
