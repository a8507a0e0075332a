"""Writes the page of a study of exchanges, on the templates of any study."""

from pathlib import Path

from paceline.analysis.analyse import FOLDER, table_path
from paceline.analysis.analyse_exchanges import TABLES
from paceline.analysis.exchanges import NAME, Exchanges, read_exchanges
from paceline.analysis.tables import Frame, read_table, require
from paceline.report.exchange_figures import exchange_drawings
from paceline.report.exchange_sentences import exchange_cautions, recommended
from paceline.report.number_format import count, decimals, general, percent, setting, shown
from paceline.report.page import KINDS, render, write_figures
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
    exchange` or `paceline analyse` is missing.
    """
    exchanges = read_exchanges(folder)
    first = f"paceline analyse {folder.name}"
    paths = [table_path(folder, make.__name__) for make in TABLES]
    seconds, best = (read_table(require(path, first)) for path in paths)
    drawn = exchange_drawings(exchanges, seconds)
    write_figures(folder / "figures", drawn)
    finished = int((seconds["status"] == "finished").sum())
    content = {
        "about": {"study": exchanges.study, "num_points": len(seconds)},
        "question": exchanges.question or "This study states no question.",
        "answer": recommended(exchanges, best),
        "hedge": HEDGE,
        "broken_rules": [],
        "cautions": exchange_cautions(exchanges),
        "kinds": {kind: _MEANING[kind] for kind in [*dict.fromkeys(seconds["kind"]), "predicted"]},
        "num_points": len(seconds),
        "num_finished": finished,
        "drawings": drawn,
        "tables": [_recommendation(exchanges, best)],
        "points": _seconds(exchanges, seconds),
        "origin": [_sources(exchanges.rows)],
        "csvs": [NAME, *(str(path.relative_to(folder)) for path in paths)],
    }
    (folder / "README.md").write_text(render("readme.md.j2", content))
    page = folder / "index.html"
    page.write_text(render("page.html.j2", content))
    return page


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


def _sources(rows: Frame) -> Table:
    names = [name for name in rows if name.startswith(_SOURCES)]
    values = [[name, "; ".join(dict.fromkeys(map(setting, rows[name])))] for name in names]
    return Table("Hardware and code", "What ran.", NAME, ["what", "value"], values)
